/* SPDX-License-Identifier: MIT */
/*
 * Injects one fault after the other while clients run: several permitd, each behind its own proxy, on one MariaDB. Keys
 * are repeated after each lost answer, also by other clients and at all permitd in parallel; they are released before
 * they are acquired, renewed just before their deadline, and waited for. After each fault all permitd must serve again
 * within 15 s (P13). At the end the checkers judge the history and SQL the rows; then all leases run out, and the full
 * capacity must be free (C6).
 *
 * storm [--seed N] [--minutes N] [--faults N] [--operations N] [--clients N] [--permitd N] [--only TEXT]
 *       [--history FILE]
 *
 * --operations: after each fault the clients continue until their share of this number is answered. The history takes
 * about 250 bytes per operation.
 */
#include "storm.h"
#include "linear.h"
#include "queue_watch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    CLIENTS_MAX = 64,
    AGAIN_MS = 15000, /* P13 */
    NEVER_MS = 60000, /* anything later counts as lost; generous for slow machines */
    CALM_MS = 600000, /* limit for the operations of one fault */
    KEPT_MS = 60000,  /* until a place that nobody asks for is gone; generous for slow machines */
    LOOK_MS = 10,
    LATE_MS = 60000, /* longest delay of expiry during faults; generous for slow machines */
};

static const struct semaphore_facts semaphores[] = {
    {"one-a", 1, true},   {"one-b", 1, false},   {"two-a", 2, true},    {"seven-a", 7, true},
    {"nine-b", 9, false}, {"fifty-a", 50, true}, {"wide", 1000, false},
};
enum { SEMAPHORES = sizeof(semaphores) / sizeof(semaphores[0]) };

static const struct queue_facts queues[SEMAPHORES] = {
    {"one-a", true, BACKFILL_BOUND_US},    {"one-b", false, BACKFILL_BOUND_US}, {"two-a", false, BACKFILL_BOUND_US},
    {"seven-a", false, BACKFILL_BOUND_US}, {"nine-b", true, BACKFILL_BOUND_US}, {"fifty-a", false, BACKFILL_BOUND_US},
    {"wide", false, BACKFILL_BOUND_US},
};

struct run {
    struct storm storm;
    unsigned clients;
    unsigned fault_max;
    unsigned minutes;
    unsigned operations; /* to be answered in total; 0: no minimum */
    const char *only;
    const char *history_path;
    unsigned counts[64]; /* finished faults by kind */
    unsigned done;       /* finished faults */
    struct linear_counts order;
    struct queue_watch watch;
    struct order_counts queue_order;
    int64_t latest_us;  /* longest time held beyond a lease, on the lease clock */
    int64_t slowest_us; /* longest time until all served again */
    const char *slowest;
};

/* ---- faults ---- */

void storm_start_permitd(struct storm *storm, unsigned at)
{
    struct kit_permitd_options options = {.database = proxy_url(storm->proxies[at])};
    storm->permitd[at] = kit_permitd_start(&options);
    atomic_store(&storm->world.ports[at], storm->permitd[at]->port);
}

/* Restarts a database that has died of its disk only now. */
static void restart_dead_database(struct storm *storm)
{
    if (!storm->database_may_die || !kit_database_has_ended(storm->database))
        return;
    kit_database_restart(storm->database);
    storm->database_deaths++;
}

struct goal {
    struct storm *storm;
    unsigned granted[PERMITD_MAX];
};

static bool all_grant_again(void *context)
{
    struct goal *goal = context;
    restart_dead_database(goal->storm);
    for (size_t i = 0; i < goal->storm->world.permitd_count; i++)
        if (atomic_load(&goal->storm->granted[i]) < goal->granted[i])
            return false;
    return true;
}

/* Waits until each permitd grants again. */
static int64_t await_service(struct run *run, const char *after)
{
    enum { MORE = 5 };
    struct goal goal = {.storm = &run->storm};
    int64_t start = kit_now_us();
    for (size_t i = 0; i < run->storm.world.permitd_count; i++)
        goal.granted[i] = atomic_load(&run->storm.granted[i]) + MORE;
    if (!kit_wait_until(all_grant_again, &goal, NEVER_MS))
        kit_fail("storm: not every permitd grants again %d s after %s", NEVER_MS / 1000, after);
    return kit_now_us() - start;
}

static bool share_is_done(void *context)
{
    struct run *run = context;
    restart_dead_database(&run->storm);
    return atomic_load(&run->storm.answered) >= (uint64_t)run->operations * run->done / run->fault_max;
}

static void await_operations(struct run *run)
{
    if (!run->minutes && !kit_wait_until(share_is_done, run, CALM_MS))
        kit_fail("storm: only %llu operations were answered so far", (unsigned long long)run->storm.answered);
}

static void inject_fault(struct run *run, unsigned number)
{
    struct storm *storm = &run->storm;
    const struct fault *fault = &faults[number];
    unsigned span = fault->longest_ms - fault->shortest_ms;
    storm->victim = caller_random(&storm->dice, (unsigned)storm->world.permitd_count);
    restart_dead_database(storm);
    storm->database_may_die = false;
    fault->begin(storm);
    kit_sleep_ms((int)(fault->shortest_ms + caller_random(&storm->dice, span + 1)));
    fault->end(storm);
    int64_t took = await_service(run, fault->name);
    run->counts[number]++;
    run->done++;
    await_operations(run);
    if (took > run->slowest_us) {
        run->slowest_us = took;
        run->slowest = fault->name;
    }
}

static bool is_chosen(const struct run *run, unsigned number)
{
    const struct fault *fault = &faults[number];
    return (!run->only || strstr(fault->name, run->only)) && fault_is_possible(fault, &run->storm);
}

/* A random one of the faults that came least often so far. */
static unsigned rarest_fault(struct run *run)
{
    unsigned from = caller_random(&run->storm.dice, fault_count), rarest = fault_count;
    for (unsigned i = 0; i < fault_count; i++) {
        unsigned number = (from + i) % fault_count;
        if (is_chosen(run, number) && (rarest == fault_count || run->counts[number] < run->counts[rarest]))
            rarest = number;
    }
    if (rarest == fault_count)
        kit_fail("storm: no possible fault has \"%s\" in its name", run->only);
    return rarest;
}

/* Injects each kind once in random order, then again, until the number or the time is reached. */
static void inject_faults(struct run *run)
{
    int64_t end = kit_now_us() + (int64_t)run->minutes * 60 * 1000000;
    while (run->minutes ? kit_now_us() < end : run->done < run->fault_max) {
        unsigned number = rarest_fault(run);
        inject_fault(run, number);
    }
}

/* ---- judging ---- */

/*
 * Repeats the call until it has an answer that is not SAYS_NOTHING. A busy machine may need longer than the time limit
 * of one request.
 */
static enum call_says call_until_answered(struct caller *caller, unsigned at, caller_call *call, const struct job *job)
{
    int64_t end = kit_now_us() + NEVER_MS * 1000LL;
    enum call_says says;
    while ((says = call(caller, at, job)) == SAYS_NOTHING && kit_now_us() < end) {
        const struct call *last = &caller->history.calls[caller->history.count - 1];
        fprintf(stderr, "storm: all is quiet, and key %u got the status %d after %lld ms\n", job->key, last->status,
                (long long)(last->answered_us - last->sent_us) / 1000);
        kit_sleep_ms(50);
    }
    return says;
}

/* Releases all keys that may be confirmed, because those do not expire. */
static void release_confirmed(struct run *run, struct caller *caller, const struct history *history)
{
    size_t end = history_key_end(history);
    bool *confirmed = calloc(end + 1, sizeof(*confirmed));
    KIT_CHECK(confirmed);
    for (size_t i = 0; i < history->count; i++)
        confirmed[history->calls[i].key] |= history->calls[i].kind == CALL_CONFIRM;
    for (size_t i = 0; i < history->count; i++)
        if (history->calls[i].kind == CALL_RELEASE && history->calls[i].says == SAYS_ENDED)
            confirmed[history->calls[i].key] = false;
    for (unsigned key = 0; key < end; key++)
        if (confirmed[key] &&
            call_until_answered(caller, key % (unsigned)run->storm.world.permitd_count, caller_release,
                                &(struct job){.key = key, .confirmed = true}) != SAYS_ENDED)
            kit_fail("storm: key %u cannot be released when all is quiet", key);
    free(confirmed);
}

/* C6: all leases have ended, nothing is held, and the full capacity can be acquired. */
static void acquire_everything(struct run *run, struct history *history)
{
    struct caller caller;
    caller_init(&caller, &run->storm.world, 9999);
    release_confirmed(run, &caller, history);
    kit_sleep_ms(LEASE_MAX_MS);
    for (unsigned i = 0; i < SEMAPHORES; i++) {
        struct job job = caller_new_job(&caller);
        job.wait_ms = 10000; /* for expiry, and for what the lease clock lags behind */
        job.want_count = 1;
        job.wants[0] = (struct want){i, semaphores[i].capacity};
        if (call_until_answered(&caller, 0, caller_acquire, &job) != SAYS_HELD)
            kit_fail("storm: the full capacity of %s cannot be had when all leases are over", semaphores[i].name);
    }
    caller_close(&caller);
    history_join(history, &caller.history);
}

/* Checks C8, and that no place stays without a client. */
static void judge_order(struct run *run, const struct history *history)
{
    char message[MESSAGE_SIZE] = "";
    size_t ask_count;
    struct order order = queue_watch_stop(&run->watch);
    struct ask *asks = asks_of_history(history, &run->storm.world, &ask_count);
    order_limit(&order, asks, ask_count);
    if (!check_order(&order, &run->queue_order, message))
        kit_fail("storm: %s", message);
    if (!run->queue_order.judged)
        kit_fail("storm: no waiter was seen while others were granted");
    free(asks);
    order_release(&order);
    struct kit_sql *sql = kit_sql_open(run->storm.database->socket, "permitd");
    if (!rows_await_no_places(sql, KEPT_MS))
        kit_fail("storm: %lld places are left though nobody waits", (long long)rows_places(sql));
    kit_sql_close(sql);
}

/* Call it when all unconfirmed requests have expired. quiet_us: the end of the last fault. */
static void judge(struct run *run, const struct history *history, int64_t quiet_us)
{
    char message[MESSAGE_SIZE] = "";
    const struct facts *facts = &run->storm.world.facts;
    struct kit_sql *sql = kit_sql_open(run->storm.database->socket, "permitd");
    int64_t read_us = kit_now_us();
    struct ledger ledger = rows_read(sql, &run->storm.world);
    bool good = check_statuses(history, true, message) && check_capacity(history, facts, message) &&
                check_keys(history, facts, message) && check_tokens(history, facts, message) &&
                check_ends(history, facts, message) && check_fence(history, facts, message) &&
                check_linear(history, facts, 0, &run->order, message) && check_replay(&ledger, facts, message) &&
                check_kept(&ledger, history, facts, message) &&
                check_quiet(&ledger, history, facts, quiet_us, read_us, message) &&
                check_expiry(&ledger, facts, LATE_MS * 1000LL, &run->latest_us, message) && rows_check(sql, message);
    ledger_release(&ledger);
    kit_sql_close(sql);
    if (!good)
        kit_fail("storm: %s", message);
}

static void print_counts(const struct run *run, const struct history *history, double seconds)
{
    size_t grants = 0, releases = 0, silent = 0, refused = 0, prolonged = 0, writes = 0, stale = 0;
    int64_t longest = 0;
    for (size_t i = 0; i < history->count; i++) {
        const struct call *call = &history->calls[i];
        grants += call->kind == CALL_ACQUIRE && call->says == SAYS_HELD;
        releases += call->kind == CALL_RELEASE && call->says == SAYS_ENDED;
        prolonged += (call->kind == CALL_RENEW || call->kind == CALL_CONFIRM) && call->says == SAYS_HELD;
        refused += call->says == SAYS_NO_CAPACITY;
        silent += call->says == SAYS_NOTHING;
        writes += call->kind == CALL_WRITE;
        stale += call->says == SAYS_REFUSED;
        if (call->answered_us - call->sent_us > longest)
            longest = call->answered_us - call->sent_us;
    }
    printf(
        "storm: %zu operations of %u clients through %zu permitd in %.0f s: %zu grants, %zu releases, %zu renewed or "
        "confirmed, %zu without capacity; %zu more were unanswered or 503; the longest call took %.1f s\n",
        history->count - silent - writes, run->clients, run->storm.world.permitd_count, seconds, grants, releases,
        prolonged, refused, silent, (double)longest / 1e6);
    for (unsigned i = 0; i < fault_count; i++)
        if (run->counts[i])
            printf("  %s: %u\n", faults[i].name, run->counts[i]);
    unsigned strikes = 0;
    for (unsigned i = 0; i < run->storm.world.permitd_count; i++)
        for (int fault = 0; fault < PROXY_FAULT_COUNT; fault++)
            strikes += proxy_strikes(run->storm.proxies[i], (enum proxy_fault)fault);
    printf(
        "  %zu writes to a fenced store, of which it refused %zu; nothing was held more than %.1f s beyond its lease\n",
        writes, stale, (double)run->latest_us / 1e6);
    printf("  %zu grants and ends put in one order, %zu roughly, %zu not decided\n", run->order.placed,
           run->order.rough, run->order.skipped);
    printf("  %zu pairs of a grant and a waiter in the order of the queue, %zu rightly passed\n",
           run->queue_order.judged, run->queue_order.passed);
    printf("  mariadbd ended by itself: %u\n", run->storm.database_deaths);
    printf("  packets struck on their way: %u\n", strikes);
    printf("storm: all served again within %.1f s at most (%s); %d were asked\n", (double)run->slowest_us / 1e6,
           run->slowest, AGAIN_MS / 1000);
    /* Each fault after which all served; the checkers of judge, and the full capacity. */
    printf("storm: %u passed, 0 failed: ok\n", run->done + 15);
}

static void run_all(struct run *run)
{
    static struct client clients[CLIENTS_MAX];
    struct storm *storm = &run->storm;
    struct history history = {NULL, 0, 0};
    storm->database = kit_database_start_shimmed(NULL);
    for (unsigned i = 0; i < storm->world.permitd_count; i++) {
        storm->proxies[i] = proxy_start(storm->database->socket, storm->world.seed + i);
        storm_start_permitd(storm, i);
    }
    make_semaphores(&storm->world.facts, storm->permitd[0]->port);
    make_fifo(queues, SEMAPHORES, storm->permitd[0]->port);
    queue_watch_start(&run->watch, storm->database, queues, SEMAPHORES, LOOK_MS);
    int64_t start = kit_now_us();
    for (unsigned i = 0; i < run->clients; i++) {
        clients[i] = (struct client){.storm = storm};
        caller_init(&clients[i].caller, &storm->world, i);
        KIT_CHECK(!pthread_create(&clients[i].thread, NULL, client_run, &clients[i]));
    }
    await_service(run, "the start");
    inject_faults(run);
    atomic_store(&storm->stopping, true);
    for (unsigned i = 0; i < run->clients; i++) {
        pthread_join(clients[i].thread, NULL);
        history_join(&history, &clients[i].caller.history);
    }
    int64_t quiet_us = kit_now_us();
    double seconds = (double)(quiet_us - start) / 1e6;
    acquire_everything(run, &history);
    if (run->history_path)
        history_write(&history, semaphores, run->history_path);
    judge_order(run, &history);
    judge(run, &history, quiet_us);
    print_counts(run, &history, seconds);
    history_release(&history);
    for (unsigned i = 0; i < storm->world.permitd_count; i++) {
        kit_permitd_stop(storm->permitd[i]);
        proxy_stop(storm->proxies[i]);
    }
    kit_database_stop(storm->database);
}

static _Noreturn void usage(void)
{
    kit_fail("usage: storm [--seed N] [--minutes N] [--faults N] [--operations N] [--clients N] [--permitd N] "
             "[--only TEXT] [--history FILE]");
}

int main(int argc, char **argv)
{
    static struct run run = {
        .storm.world = {.facts = {.semaphores = semaphores, .count = SEMAPHORES, .early_us = EARLY_US},
                        .permitd_count = 3,
                        .faults = true},
        .clients = 16};
    KIT_CHECK(!pthread_mutex_init(&run.storm.fenced.mutex, NULL));
    struct world *world = &run.storm.world;
    world->seed = (uint64_t)time(NULL);
    run.fault_max = fault_count;
    for (int i = 1; i < argc; i += 2) {
        const char *text = i + 1 < argc ? argv[i + 1] : NULL;
        unsigned long long value = text ? strtoull(text, NULL, 10) : 0;
        if (!text)
            usage();
        else if (!strcmp(argv[i], "--seed"))
            world->seed = value;
        else if (!strcmp(argv[i], "--minutes"))
            run.minutes = (unsigned)value;
        else if (!strcmp(argv[i], "--faults"))
            run.fault_max = (unsigned)value;
        else if (!strcmp(argv[i], "--operations"))
            run.operations = (unsigned)value;
        else if (!strcmp(argv[i], "--clients") && value >= 1 && value <= CLIENTS_MAX)
            run.clients = (unsigned)value;
        else if (!strcmp(argv[i], "--permitd") && value >= 1 && value <= PERMITD_MAX)
            world->permitd_count = (size_t)value;
        else if (!strcmp(argv[i], "--only"))
            run.only = text;
        else if (!strcmp(argv[i], "--history"))
            run.history_path = text;
        else
            usage();
    }
    caller_init(&run.storm.dice, world, 5555);
    printf("storm: seed %llu\n", (unsigned long long)world->seed);
    fflush(stdout);
    run_all(&run);
    return 0;
}
