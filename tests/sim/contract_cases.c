/* SPDX-License-Identifier: MIT */
/*
 * Runs the cases of tests/contract on the fake store, without faults. Each case has a process and a database of its own,
 * because the database in memory cannot be emptied.
 */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract.h"
#include "database.h"
#include "dice.h"
#include "fake_store.h"
#include "run.h"
#include "scheduler.h"

static unsigned char ways[CALLS_MAX];

void contract_fail(const char *file, int line, const char *condition, const char *message)
{
    printf("%s:%d: %s %s\n", file, line, condition, message);
    fflush(stdout);
    _exit(1);
}

void mark_as_shop(const char *key, uint32_t errand)
{
    struct transaction *shop = transaction_begin();
    struct db_key *row = database_key(bytes_of(key));
    MUST(transaction_try_lock_key(shop, row));
    (void)database_commit_errand(shop, row, errand);
    transaction_free(shop);
}

static void *run_case(void *context)
{
    const struct contract_case *chosen = context;
    struct fixture one, two;
    fixture_open(&one, fake_store_open(NULL, STORE_WORKER));
    fixture_open(&two, fake_store_open(NULL, STORE_WORKER));
    chosen->run(&one, &two);
    fixture_close(&two);
    fixture_close(&one);
    scheduler_stop();
    return NULL;
}

static void add_semaphore(const char *name, enum semaphore_kind kind, int64_t capacity)
{
    struct semaphore like = {.kind = kind};
    semaphore_reset(&like, 1000);
    like.capacity = capacity;
    like.max_hold_ms = 60 * 1000;
    (void)database_add_semaphore(name, &like);
}

static bool case_passes(const struct contract_case *chosen)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dice_seed(1);
        faults = (struct fault_rates){0};
        fault_ways = ways;
        scheduler_begin();
        database_begin();
        add_semaphore("alpha", KIND_SLOTTED, 3);
        add_semaphore("beta", KIND_COUNTED, 10);
        process_spawn(0, run_case, (void *)(uintptr_t)chosen);
        scheduler_run();
        _exit(0);
    }
    bool passed = child > 0 && waitpid(child, &status, 0) == child && status == 0;
    if (!passed)
        printf("%s: failed, status 0x%x\n", chosen->name, (unsigned)status);
    return passed;
}

int run_contract(void)
{
    size_t passed = 0;
    for (size_t i = 0; i < contract_case_count; i++)
        passed += case_passes(&contract_cases[i]);
    printf("%zu passed, %zu failed\n", passed, contract_case_count - passed);
    return passed == contract_case_count ? 0 : 1;
}
