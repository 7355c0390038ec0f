/* SPDX-License-Identifier: MIT */
/*
 * Many clients through several permitd on one database. Keys are repeated by their client, by other clients and at all
 * permitd in parallel; requests take one to three small semaphores in random order, with and without waiting; releases
 * come early, late and twice, also while a client waits. There are no faults, so no 5xx. The checkers judge the
 * history, SQL the tables, and at the end the full capacity can be acquired.
 *
 * right [--seed N] [--operations N] [--clients N] [--permitd N]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fixture.h"
#include "linear.h"
#include "queue_watch.h"
#include "rows.h"

enum { CLIENTS_MAX = 256, WAIT_MOST_MS = 200, KEPT_MS = 60000, LOOK_MS = 5 };

static const struct semaphore_facts semaphores[] = {
    {"one-a", 1, true}, {"one-b", 1, false},  {"two-a", 2, true},    {"two-b", 2, false},
    {"two-c", 2, true}, {"seven-a", 7, true}, {"seven-b", 7, false}, {"seven-c", 7, true},
};

enum { SEMAPHORES = sizeof(semaphores) / sizeof(semaphores[0]) };

static const struct queue_facts queues[SEMAPHORES] = {
    {"one-a", false, BACKFILL_BOUND_US},   {"one-b", false, BACKFILL_BOUND_US},  {"two-a", true, BACKFILL_BOUND_US},
    {"two-b", false, BACKFILL_BOUND_US},   {"two-c", false, BACKFILL_BOUND_US},  {"seven-a", false, BACKFILL_BOUND_US},
    {"seven-b", false, BACKFILL_BOUND_US}, {"seven-c", true, BACKFILL_BOUND_US},
};

struct run {
    struct world world;
    unsigned operations;
    unsigned clients;
    atomic_uint calls; /* sent so far */
};

struct client {
    pthread_t thread;
    struct run *run;
    struct caller caller;
};

/* Semaphores that no request waits for: there no_capacity means that the units did not fit (C3). */
static const uint64_t never_waited = 1u << 1 | 1u << 4 | 1u << 7;

static bool is_never_waited(unsigned semaphore)
{
    return never_waited >> semaphore & 1;
}

/*
 * One to three different semaphores in random order. Every other job waits, if none of its semaphores is in
 * never_waited.
 */
static struct job random_job(struct caller *caller)
{
    struct job job = caller_new_job(caller);
    job_want_some(caller, &job);
    for (unsigned i = 0; i < SEMAPHORES; i++)
        if (is_never_waited(i) && job_wants(&job, i))
            return job;
    job.wait_ms = caller_random(caller, 2) ? caller_random(caller, WAIT_MOST_MS) : 0;
    return job;
}

static unsigned any_permitd(struct caller *caller)
{
    return caller_random(caller, (unsigned)caller->world->permitd_count);
}

/* True in `percent` of a hundred cases. */
static bool chance(struct caller *caller, unsigned percent)
{
    return caller_random(caller, 100) < percent;
}

static void release_key(struct caller *caller, const struct job *job)
{
    if (chance(caller, 15))
        caller_release_everywhere(caller, job);
    else
        caller_release(caller, any_permitd(caller), job);
    if (chance(caller, 20))
        caller_release(caller, any_permitd(caller), job);
    if (chance(caller, 20))
        caller_acquire(caller, any_permitd(caller), job);
    if (chance(caller, 20))
        caller_query(caller, any_permitd(caller), job);
}

/* All requests of a key from the first to the last, with repetitions. */
static void use_key(struct run *run, struct caller *caller)
{
    struct job job = random_job(caller);
    enum call_says says = SAYS_NO_CAPACITY;
    world_remember(&run->world, &job);
    for (unsigned tries = 0; says == SAYS_NO_CAPACITY && tries < 3; tries++) {
        if (tries)
            kit_sleep_ms((int)caller_random(caller, 4));
        says = chance(caller, 30) ? caller_acquire_everywhere(caller, &job)
                                  : caller_acquire(caller, any_permitd(caller), &job);
    }
    if (says == SAYS_HELD) {
        if (chance(caller, 30))
            caller_acquire(caller, any_permitd(caller), &job);
        kit_sleep_ms((int)caller_random(caller, 5));
    }
    /* Release also after giving up: a copy of the acquire may have been granted meanwhile. */
    release_key(caller, &job);
}

/* Uses another client's key, seldom with a release. */
static void use_other_key(struct caller *caller)
{
    struct job job;
    if (!world_recall(caller, &job))
        return;
    unsigned what = caller_random(caller, 10);
    if (what < 6)
        caller_acquire(caller, any_permitd(caller), &job);
    else if (what < 9)
        caller_query(caller, any_permitd(caller), &job);
    else
        caller_release(caller, any_permitd(caller), &job);
}

static void *client_run(void *context)
{
    struct client *client = context;
    struct run *run = client->run;
    size_t before = 0;
    while (atomic_fetch_add(&run->calls, (unsigned)(client->caller.history.count - before)) < run->operations) {
        before = client->caller.history.count;
        if (chance(&client->caller, 70))
            use_key(run, &client->caller);
        else
            use_other_key(&client->caller);
    }
    caller_close(&client->caller);
    return NULL;
}

static struct history run_clients(struct run *run)
{
    static struct client clients[CLIENTS_MAX];
    struct history history = {NULL, 0, 0};
    for (unsigned i = 0; i < run->clients; i++) {
        clients[i].run = run;
        caller_init(&clients[i].caller, &run->world, i);
        KIT_CHECK(!pthread_create(&clients[i].thread, NULL, client_run, &clients[i]));
    }
    for (unsigned i = 0; i < run->clients; i++) {
        pthread_join(clients[i].thread, NULL);
        history_join(&history, &clients[i].caller.history);
    }
    return history;
}

/* Checks that the full capacity of every semaphore can be acquired after all keys are released. */
static void acquire_everything(struct run *run, struct history *history)
{
    struct caller caller;
    caller_init(&caller, &run->world, 9999);
    unsigned end = atomic_load(&run->world.next_key);
    for (unsigned key = 0; key < end; key++)
        KIT_CHECK(caller_release(&caller, key % (unsigned)run->world.permitd_count, &(struct job){.key = key}) ==
                  SAYS_ENDED);
    for (unsigned i = 0; i < SEMAPHORES; i++) {
        struct job job = caller_new_job(&caller);
        job.want_count = 1;
        job.wants[0] = (struct want){i, semaphores[i].capacity};
        if (caller_acquire(&caller, 0, &job) != SAYS_HELD)
            kit_fail("%s: its full capacity cannot be had though everything was released", semaphores[i].name);
    }
    caller_close(&caller);
    history_join(history, &caller.history);
}

static void judge_history(const struct history *history, const struct facts *facts, const struct ledger *ledger)
{
    char message[MESSAGE_SIZE] = "";
    struct linear_counts counts = {0, 0, 0};
    int64_t latest;
    if (!check_statuses(history, false, message) || !check_capacity(history, facts, message) ||
        !check_keys(history, facts, message) || !check_tokens(history, facts, message) ||
        !check_ends(history, facts, message) || !check_linear(history, facts, never_waited, &counts, message) ||
        !check_replay(ledger, facts, message) || !check_kept(ledger, history, facts, message) ||
        !check_expiry(ledger, facts, 0, &latest, message))
        kit_fail("right: %s", message);
    printf("right: %zu grants, ends and refusals put in one order, %zu roughly, %zu not decided\n", counts.placed,
           counts.rough, counts.skipped);
}

/* Checks C8, and that no place stays without a client. */
static void judge_order(const struct run *run, struct queue_watch *watch, const struct history *history,
                        struct kit_sql *sql)
{
    char message[MESSAGE_SIZE] = "";
    struct order_counts counts = {0, 0};
    size_t ask_count;
    struct order order = queue_watch_stop(watch);
    struct ask *asks = asks_of_history(history, &run->world, &ask_count);
    order_limit(&order, asks, ask_count);
    if (!check_order(&order, &counts, message))
        kit_fail("right: %s", message);
    if (!counts.judged)
        kit_fail("right: no waiter was seen while others were granted");
    if (!rows_await_no_places(sql, KEPT_MS))
        kit_fail("right: %lld places are left though nobody waits", (long long)rows_places(sql));
    printf("right: %zu pairs of a grant and a waiter in the order of the queue, %zu rightly passed\n", counts.judged,
           counts.passed);
    free(asks);
    order_release(&order);
}

static void judge_rows(struct kit_sql *sql)
{
    char message[MESSAGE_SIZE] = "";
    if (!rows_check(sql, message))
        kit_fail("right: %s", message);
}

static void count_answers(const struct history *history, unsigned counts[SAYS_COUNT])
{
    for (size_t i = 0; i < history->count; i++)
        counts[history->calls[i].says] += history->calls[i].kind == CALL_ACQUIRE;
}

/* Checks that the audit, which ran all the time, found no difference, and lets it run once more on the final rows. */
static void judge_audit(struct kit_permitd *const *permitd, size_t count)
{
    unsigned ports[PERMITD_MAX];
    for (size_t i = 0; i < count; i++)
        ports[i] = permitd[i]->port;
    if (permitd_audit(ports, count) != 0)
        kit_fail("right: the audit has found drifts");
    for (size_t i = 0; i < count; i++) {
        char *log = kit_read_file(permitd[i]->log_path);
        if (log && strstr(log, "usage mismatch"))
            kit_fail("right: the audit had found drifts");
        free(log);
    }
}

static void run_all(struct run *run, struct kit_database *database)
{
    struct kit_permitd *permitd[PERMITD_MAX];
    for (size_t i = 0; i < run->world.permitd_count; i++) {
        permitd[i] = kit_permitd_start(&(struct kit_permitd_options){.database = database->url});
        atomic_store(&run->world.ports[i], permitd[i]->port);
    }
    static struct queue_watch watch;
    make_semaphores(&run->world.facts, permitd[0]->port);
    make_fifo(queues, SEMAPHORES, permitd[0]->port);
    queue_watch_start(&watch, database, queues, SEMAPHORES, LOOK_MS);
    int64_t start = kit_now_us();
    struct history history = run_clients(run);
    double seconds = (double)(kit_now_us() - start) / 1e6;

    struct kit_sql *sql = kit_sql_open(database->socket, "permitd");
    judge_rows(sql);
    judge_order(run, &watch, &history, sql);
    rows_record(sql, &run->world, 0, atomic_load(&run->world.next_key), &history);
    /* Keys that were neither granted nor released have no row. */
    unsigned counts[SAYS_COUNT] = {0};
    count_answers(&history, counts);
    size_t calls = history.count;
    acquire_everything(run, &history);
    judge_rows(sql);
    struct ledger ledger = rows_read(sql, &run->world);
    judge_history(&history, &run->world.facts, &ledger);
    ledger_release(&ledger);
    kit_sql_close(sql);
    judge_audit(permitd, run->world.permitd_count);
    for (size_t i = 0; i < run->world.permitd_count; i++)
        kit_permitd_stop(permitd[i]);
    printf("right: %zu calls of %u clients through %zu permitd in %.1f s; %u keys; acquires: %u held, %u no capacity, "
           "%u ended\n",
           calls, run->clients, run->world.permitd_count, seconds, atomic_load(&run->world.next_key), counts[SAYS_HELD],
           counts[SAYS_NO_CAPACITY], counts[SAYS_ENDED]);
    /*
     * Statuses, capacity, keys, tokens, ends, one order, replay, kept grants, expiry; the rows before and after; the
     * full capacity; the audit; the order of the queues; no place is left.
     */
    printf("right: 15 passed, 0 failed: ok\n");
    history_release(&history);
}

int main(int argc, char **argv)
{
    static struct run run = {.world = {.facts = {.semaphores = semaphores, .count = SEMAPHORES}, .permitd_count = 3},
                             .operations = 30000,
                             .clients = 64};
    run.world.seed = (uint64_t)time(NULL);
    for (int i = 1; i + 1 < argc; i += 2) {
        unsigned long long value = strtoull(argv[i + 1], NULL, 10);
        if (!strcmp(argv[i], "--seed"))
            run.world.seed = value;
        else if (!strcmp(argv[i], "--operations"))
            run.operations = (unsigned)value;
        else if (!strcmp(argv[i], "--clients") && value >= 1 && value <= CLIENTS_MAX)
            run.clients = (unsigned)value;
        else if (!strcmp(argv[i], "--permitd") && value >= 1 && value <= PERMITD_MAX)
            run.world.permitd_count = (size_t)value;
        else
            kit_fail("usage: right [--seed N] [--operations N] [--clients N] [--permitd N]");
    }
    printf("right: seed %llu\n", (unsigned long long)run.world.seed);
    fflush(stdout);
    struct kit_database *database = kit_database_start(NULL);
    run_all(&run, database);
    kit_database_stop(database);
    return 0;
}
