/* SPDX-License-Identifier: MIT */
/*
 * P10 in a long run. Processes take permits with a short ttl from a real permitd, write, and are stopped at random for
 * less or more than their ttl. None of them checks its clock: a third releases, a third forgets its permit, a third
 * continues to write until it is refused. The history is judged: along a slot, in the order of commits, tokens never go
 * down (otherwise a stale write was accepted); and every refused token had a larger one granted on its slot (otherwise
 * a live one was refused).
 */
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guards.h"
#include "permits.h"
#include "testkit.h"

enum {
    SEMAPHORES = 3,
    CAPACITY = 4,
    WRITERS = 14,
    STOPPED_MAX = 4,
    TTL_MS = 400,
    LIMIT_S = 7200,
    CARELESS_WRITES = 400,
    UNREFUSED = 20,
    AGAIN_MAX = 100
};

/* Shared by the writers and the process that stops them. */
struct ledger {
    _Atomic uint64_t target, writes, passed, stale, again, lost, grants, live_refused;
    _Atomic int64_t granted[SEMAPHORES][CAPACITY + 1]; /* largest token granted on each slot */
    atomic_bool over;
};

struct writer {
    struct store *store;
    struct ledger *ledger;
    struct kit_http http;
    struct session session;
    uint64_t dice;
    unsigned semaphore;
    char names[SEMAPHORES][64];
};

static void name_of(const struct store *store, unsigned semaphore, char *to, size_t size)
{
    snprintf(to, size, "%s-soak-%u", store->name, semaphore);
}

/* Call it before the first write with the permit. */
static void note_grant(struct writer *writer, const struct permit *permit)
{
    for (size_t i = 0; i < permit->count; i++) {
        _Atomic int64_t *granted = &writer->ledger->granted[writer->semaphore][permit->numbers[i]];
        int64_t seen = atomic_load(granted);
        while (permit->token > seen && !atomic_compare_exchange_weak(granted, &seen, permit->token))
            ;
    }
    atomic_fetch_add(&writer->ledger->grants, 1);
}

static void note_refusal(struct writer *writer, const struct permit *permit)
{
    atomic_fetch_add(&writer->ledger->stale, 1);
    for (size_t i = 0; i < permit->count; i++)
        if (atomic_load(&writer->ledger->granted[writer->semaphore][permit->numbers[i]]) > permit->token)
            return;
    if (!atomic_fetch_add(&writer->ledger->live_refused, 1))
        printf("%-10s a live holder was refused: slots %s, token %" PRIi64 ": %s\n", writer->store->name, permit->slots,
               permit->token, writer->session.message);
    fflush(stdout);
}

/* One guarded write. Returns false if it is refused. */
static bool writer_write(struct writer *writer, const struct permit *permit)
{
    const struct write write = {writer->names[writer->semaphore], PLACE_SLOTS, permit->slots, permit->token};
    for (int i = 0; i < AGAIN_MAX; i++) {
        enum verdict verdict = writer->store->kind->transactions && !(dice(&writer->dice) % 8)
                                   ? session_write_in_steps(&writer->session, &write)
                                   : session_write(&writer->session, &write);
        if (verdict == AGAIN || verdict == LOST) {
            atomic_fetch_add(verdict == AGAIN ? &writer->ledger->again : &writer->ledger->lost, 1);
            continue;
        }
        atomic_fetch_add(&writer->ledger->writes, 1);
        if (verdict == PASSED)
            atomic_fetch_add(&writer->ledger->passed, 1);
        else if (verdict == STALE)
            note_refusal(writer, permit);
        else
            kit_fail("%s: %s", writer->store->name, writer->session.message);
        return verdict == PASSED;
    }
    kit_fail("%s: no end of conflicts: %s", writer->store->name, writer->session.message);
}

static void writer_hold(struct writer *writer, const struct permit *permit)
{
    unsigned ending = (unsigned)dice(&writer->dice) % 3;
    uint64_t writes = 20 + dice(&writer->dice) % 180;
    if (ending == 2)
        writes += CARELESS_WRITES;
    for (uint64_t i = 0; i < writes && !atomic_load(&writer->ledger->over); i++) {
        if (!writer_write(writer, permit))
            return;
        if (ending == 2 && i % 16 == 0)
            kit_sleep_ms(TTL_MS / 16); /* longer than its ttl, so that others are granted in between */
    }
    if (ending == 0)
        permits_release(&writer->http, permit);
}

_Noreturn static void writer_run(struct writer *writer, unsigned port)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    writer->http = kit_http(port);
    session_open(&writer->session, writer->store);
    while (!atomic_load(&writer->ledger->over)) {
        struct permit permit;
        writer->semaphore = (unsigned)dice(&writer->dice) % SEMAPHORES;
        unsigned count = dice(&writer->dice) % 4 ? 1 : 2 + (unsigned)dice(&writer->dice) % 2;
        if (!permits_acquire(&writer->http, writer->names[writer->semaphore], count, TTL_MS, 5000, &permit))
            continue;
        note_grant(writer, &permit);
        writer_hold(writer, &permit);
        uint64_t writes = atomic_load(&writer->ledger->writes), target = atomic_load(&writer->ledger->target);
        if (writes >= target && (atomic_load(&writer->ledger->stale) || writes >= UNREFUSED * target))
            atomic_store(&writer->ledger->over, true); /* a run without a refusal would prove nothing */
    }
    _exit(0);
}

/* ---- stopping the writers ---- */

struct stop {
    pid_t pid; /* 0: unused */
    int64_t until_us;
};

/* SIGINT ends the run early; the writes so far are judged. */
static volatile sig_atomic_t enough;

static void on_interrupt(int number)
{
    (void)number;
    enough = 1;
}

/* Half of the stops are short, the others longer than the ttl. */
static uint64_t stop_at_random(struct ledger *ledger, const pid_t *pids, uint64_t *state)
{
    struct stop stops[STOPPED_MAX] = {0};
    uint64_t count = 0;
    int64_t end = kit_now_us() + (int64_t)LIMIT_S * 1000000;
    while (!atomic_load(&ledger->over)) {
        struct stop *stop = &stops[dice(state) % STOPPED_MAX];
        kit_sleep_ms(5 + (int)(dice(state) % 30));
        if (stop->pid && kit_now_us() >= stop->until_us) {
            kill(stop->pid, SIGCONT);
            stop->pid = 0;
        } else if (!stop->pid) {
            int ms = dice(state) % 2 ? 5 + (int)(dice(state) % 100) : TTL_MS + (int)(dice(state) % 1000);
            *stop = (struct stop){pids[dice(state) % WRITERS], kit_now_us() + (int64_t)ms * 1000};
            kill(stop->pid, SIGSTOP);
            count++;
        }
        if (enough || kit_now_us() > end)
            atomic_store(&ledger->over, true);
    }
    for (unsigned i = 0; i < WRITERS; i++)
        kill(pids[i], SIGCONT);
    return count;
}

static void end_writers(const pid_t *pids)
{
    for (unsigned i = 0; i < WRITERS; i++) {
        int status;
        KIT_CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        if (status)
            kit_fail("soak: a writer ended with status 0x%x", (unsigned)status);
    }
}

static uint64_t judge(struct store *store, struct session *session, uint64_t *ret_stale_accepted)
{
    uint64_t lines = 0, stale_accepted = 0;
    size_t back;
    for (unsigned semaphore = 0; semaphore < SEMAPHORES; semaphore++) {
        char name[64];
        name_of(store, semaphore, name, sizeof(name));
        for (unsigned slot = 1; slot <= CAPACITY; slot++) {
            lines += count_history(session, name, slot, &back);
            stale_accepted += back;
        }
    }
    *ret_stale_accepted = stale_accepted;
    return lines;
}

static void prepare(struct store *store, struct session *session, unsigned port)
{
    struct kit_http http = kit_http(port);
    for (unsigned semaphore = 0; semaphore < SEMAPHORES; semaphore++) {
        char name[64];
        name_of(store, semaphore, name, sizeof(name));
        permits_semaphore(&http, name, "slotted", CAPACITY);
        prepare_history(session, name, CAPACITY);
    }
    kit_http_close(&http);
}

void guard_soak(struct store *store, unsigned port, uint64_t writes, uint64_t seed, struct soak *ret_soak)
{
    pid_t pids[WRITERS];
    struct session session;
    uint64_t state = seed * 2 + 1;
    int64_t begun = kit_now_us();
    struct ledger *ledger = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    KIT_CHECK(ledger != MAP_FAILED);
    atomic_store(&ledger->target, writes);
    session_open(&session, store);
    prepare(store, &session, port);
    fflush(stdout);
    for (unsigned i = 0; i < WRITERS; i++) {
        struct writer writer = {.store = store, .ledger = ledger, .dice = seed * 1000003 + i + 1};
        for (unsigned semaphore = 0; semaphore < SEMAPHORES; semaphore++)
            name_of(store, semaphore, writer.names[semaphore], sizeof(writer.names[0]));
        pids[i] = fork();
        KIT_CHECK(pids[i] >= 0);
        if (!pids[i])
            writer_run(&writer, port);
    }
    signal(SIGINT, on_interrupt);
    uint64_t stops = stop_at_random(ledger, pids, &state);
    end_writers(pids);
    struct soak soak;
    uint64_t lines = judge(store, &session, &soak.stale_accepted);
    soak.live_refused = atomic_load(&ledger->live_refused);
    session_close(&session);
    printf("%-10s %" PRIu64 " guarded writes in %.0f s: %" PRIu64 " accepted, of which stale: %" PRIu64 "; %" PRIu64
           " refused, of which live: %" PRIu64 "\n",
           store->name, atomic_load(&ledger->writes), (double)(kit_now_us() - begun) / 1e6,
           atomic_load(&ledger->passed), soak.stale_accepted, atomic_load(&ledger->stale), soak.live_refused);
    printf("%-10s %" PRIu64 " grants, %" PRIu64 " stops, %" PRIu64 " lines, %" PRIu64 " conflicts, %" PRIu64
           " sessions ended inside a transaction\n",
           store->name, atomic_load(&ledger->grants), stops, lines, atomic_load(&ledger->again),
           atomic_load(&ledger->lost));
    munmap(ledger, sizeof(*ledger));
    *ret_soak = soak;
}
