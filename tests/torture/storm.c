/* SPDX-License-Identifier: MIT */
/*
 * Everything that can go wrong, one thing after the other, while clients go on: several permitd, each behind a proxy of
 * its own before one MariaDB. Keys are asked for again after every lost answer, by other clients too, at all permitd at
 * once, released before they were acquired, renewed at the edge of their ttl, waited for. After each fault everything
 * is to be served again within 15 s (P13). At the end the history is judged by the checkers, the rows by SQL; then all
 * leases are let run out and the full capacity must be there (C6).
 *
 * storm [--seed N] [--minutes N] [--faults N] [--operations N] [--clients N] [--permitd N] [--only TEXT]
 *       [--history FILE]
 *
 * --operations: after each fault the clients go on until their share of so many operations was answered, which takes a
 * history of about 250 bytes each.
 */
#include "storm.h"
#include "linear.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    CLIENTS_MAX = 64,
    AGAIN_MS = 15000, /* P13 */
    NEVER_MS = 60000, /* what has not come by then does not come; a slow machine is no fault */
    CALM_MS = 600000, /* for the operations of one fault */
    LATE_MS = 60000,  /* so late something may expire while faults go on; a slow machine is no fault */
};

static const struct semaphore_facts semaphores[] = {
    {"one-a", 1, true},   {"one-b", 1, false},   {"two-a", 2, true},    {"seven-a", 7, true},
    {"nine-b", 9, false}, {"fifty-a", 50, true}, {"wide", 1000, false},
};
enum { SEMAPHORES = sizeof(semaphores) / sizeof(semaphores[0]) };

struct run {
    struct storm storm;
    unsigned clients;
    unsigned fault_max;
    unsigned minutes;
    unsigned operations; /* to be answered in all; 0: as it comes */
    const char *only;
    const char *history_path;
    unsigned counts[64]; /* faults done, by kind */
    unsigned done;       /* faults in all */
    struct linear_counts order;
    int64_t latest_us;  /* that something was held beyond its lease, in served time */
    int64_t slowest_us; /* until all served again */
    const char *slowest;
};

/* ---- faults ---- */

void storm_start_permitd(struct storm *storm, unsigned at)
{
    struct kit_permitd_options options = {.database = proxy_url(storm->proxies[at])};
    storm->permitd[at] = kit_permitd_start(&options);
    atomic_store(&storm->world.ports[at], storm->permitd[at]->port);
}

/* One that has died of its disk only now is started again. */
static void tend_database(struct storm *storm)
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
    tend_database(goal->storm);
    for (size_t i = 0; i < goal->storm->world.permitd_count; i++)
        if (atomic_load(&goal->storm->granted[i]) < goal->granted[i])
            return false;
    return true;
}

/* Each permitd grants something again. */
static int64_t await_service(struct run *run, const char *after)
{
    enum { MORE = 5 };
    struct goal goal = {.storm = &run->storm};
    int64_t start = kit_now_us();
    for (size_t i = 0; i < run->storm.world.permitd_count; i++)
        goal.granted[i] = atomic_load(&run->storm.granted[i]) + MORE;
    if (!kit_wait_until(all_grant_again, &goal, NEVER_MS))
        kit_fail("storm: not everything is served again %d s after %s", NEVER_MS / 1000, after);
    return kit_now_us() - start;
}

static bool share_is_done(void *context)
{
    struct run *run = context;
    tend_database(&run->storm);
    return atomic_load(&run->storm.answered) >= (uint64_t)run->operations * run->done / run->fault_max;
}

static void await_operations(struct run *run)
{
    if (!run->minutes && !kit_wait_until(share_is_done, run, CALM_MS))
        kit_fail("storm: only %llu operations were answered so far", (unsigned long long)run->storm.answered);
}

static void strike(struct run *run, unsigned number)
{
    struct storm *storm = &run->storm;
    const struct fault *fault = &faults[number];
    unsigned span = fault->longest_ms - fault->shortest_ms;
    storm->victim = caller_random(&storm->dice, (unsigned)storm->world.permitd_count);
    tend_database(storm);
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

/* Of those that came least often so far, one by chance. */
static unsigned rarest_fault(struct run *run)
{
    unsigned from = caller_random(&run->storm.dice, fault_count), rarest = fault_count;
    for (unsigned i = 0; i < fault_count; i++) {
        unsigned number = (from + i) % fault_count;
        if (is_chosen(run, number) && (rarest == fault_count || run->counts[number] < run->counts[rarest]))
            rarest = number;
    }
    if (rarest == fault_count)
        kit_fail("storm: no fault that is possible here has \"%s\" in its name", run->only);
    return rarest;
}

/* Each kind once in an order of its own, then again, until there were enough or the time is over. */
static void strike_often(struct run *run)
{
    int64_t end = kit_now_us() + (int64_t)run->minutes * 60 * 1000000;
    while (run->minutes ? kit_now_us() < end : run->done < run->fault_max) {
        unsigned number = rarest_fault(run);
        strike(run, number);
    }
}

/* ---- the verdict ---- */

/* Again until the answer says something: a machine with much else to do may need more than a request's time. */
static enum call_says until_told(struct caller *caller, unsigned at, caller_call *call, const struct job *job)
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

/* Whose confirmation was asked for is held for good; a lost client's is let go here. */
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
        if (confirmed[key] && until_told(caller, key % (unsigned)run->storm.world.permitd_count, caller_release,
                                         &(struct job){.key = key, .confirmed = true}) != SAYS_ENDED)
            kit_fail("storm: key %u cannot be released when all is quiet", key);
    free(confirmed);
}

/* C6: all leases are over, nothing is held, and everything can be had. */
static void acquire_everything(struct run *run, struct history *history)
{
    struct caller caller;
    caller_init(&caller, &run->storm.world, 9999);
    release_confirmed(run, &caller, history);
    kit_sleep_ms(LEASE_MAX_MS);
    for (unsigned i = 0; i < SEMAPHORES; i++) {
        struct job job = caller_new_job(&caller);
        job.wait_ms = 10000; /* for the sweeper, and what is left of served time */
        job.want_count = 1;
        job.wants[0] = (struct want){i, semaphores[i].capacity};
        if (until_told(&caller, 0, caller_acquire, &job) != SAYS_HELD)
            kit_fail("storm: the full capacity of %s cannot be had when all leases are over", semaphores[i].name);
    }
    caller_close(&caller);
    history_join(history, &caller.history);
}

/* When everything that was not confirmed had run out: quiet_us is when the last fault had ended. */
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
                check_expiry(&ledger, LATE_MS * 1000LL, &run->latest_us, message) && rows_check(sql, message);
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
        "confirmed, %zu without room; %zu more were unanswered or 503; the longest call took %.1f s\n",
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
    printf("  mariadbd ended by itself: %u\n", run->storm.database_deaths);
    printf("  packets struck on their way: %u\n", strikes);
    printf("storm: all served again within %.1f s at most (%s); %d were asked\n", (double)run->slowest_us / 1e6,
           run->slowest, AGAIN_MS / 1000);
    /* Each fault after which all was served; the checkers of judge, and all to be had. */
    printf("storm: %u passed, 0 failed: ok\n", run->done + 13);
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
    int64_t start = kit_now_us();
    for (unsigned i = 0; i < run->clients; i++) {
        clients[i] = (struct client){.storm = storm};
        caller_init(&clients[i].caller, &storm->world, i);
        KIT_CHECK(!pthread_create(&clients[i].thread, NULL, client_run, &clients[i]));
    }
    await_service(run, "the start");
    strike_often(run);
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
        .storm.world = {.facts = {.semaphores = semaphores, .count = SEMAPHORES}, .permitd_count = 3, .faults = true},
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
