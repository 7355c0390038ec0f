/* SPDX-License-Identifier: MIT */
/*
 * All kinds of ends at once: clients of three permitd acquire one to three of eight semaphores with short ttls, then
 * release or renew them or let them expire. No client gets an error, few transactions are retried for a deadlock, and
 * at the end nothing is held.
 */
#include "ends.h"

#include <stdio.h>

enum { CLIENTS = 64, SECONDS = 20, SECONDS_FULL = 300, TTL_LEAST_MS = 1200, TTL_MOST_MS = 3000, QUIET_MS = 90000 };

static const struct semaphore_facts semaphores[] = {
    {"four", 4, true},    {"six", 6, false},    {"eight", 8, true},      {"ten", 10, false},
    {"twelve", 12, true}, {"twenty", 20, true}, {"thirty-a", 30, false}, {"thirty-b", 30, true},
};

enum { SEMAPHORES = sizeof(semaphores) / sizeof(semaphores[0]) };

struct crowd {
    struct world world;
    int64_t end_us;
};

struct client {
    pthread_t thread;
    struct crowd *crowd;
    struct caller caller;
};

static unsigned any_permitd(struct caller *caller)
{
    return caller_random(caller, (unsigned)caller->world->permitd_count);
}

static struct job random_job(struct caller *caller)
{
    struct job job = caller_new_job(caller);
    size_t count = 1 + caller_random(caller, SHARES_MAX);
    job.ttl_ms = TTL_LEAST_MS + caller_random(caller, TTL_MOST_MS - TTL_LEAST_MS + 1);
    while (job.want_count < count) {
        unsigned semaphore = caller_random(caller, SEMAPHORES);
        if (!job_wants(&job, semaphore))
            job.wants[job.want_count++] = (struct want){semaphore, 1 + caller_random(caller, 2)};
    }
    return job;
}

static void renew_some(struct caller *caller, const struct job *job)
{
    for (unsigned left = 1 + caller_random(caller, 4); left; left--) {
        kit_sleep_ms((int)job->ttl_ms / 3);
        if (caller_renew(caller, any_permitd(caller), job) != SAYS_HELD)
            return;
    }
}

/*
 * Calls at the deadline, when either outcome is right, and once more after it. Deadlines count from DUE_LATER_MS after
 * the grant, and the clocks of the permitd differ by some 10 ms.
 */
static void call_at_deadline(struct caller *caller, const struct job *job)
{
    kit_sleep_ms((int)(job->ttl_ms + DUE_LATER_MS - 10 + caller_random(caller, 50)));
    switch (caller_random(caller, 3)) {
    case 0: caller_renew(caller, any_permitd(caller), job); break;
    case 1: caller_acquire(caller, any_permitd(caller), job); break;
    default: caller_release(caller, any_permitd(caller), job); break;
    }
    caller_query(caller, any_permitd(caller), job);
}

static void use_key(struct caller *caller)
{
    struct job job = random_job(caller);
    enum call_says says = SAYS_NO_CAPACITY;
    for (unsigned tries = 0; tries < 8 && says == SAYS_NO_CAPACITY; tries++) {
        if (tries)
            kit_sleep_ms(5 + (int)caller_random(caller, 30));
        says = caller_acquire(caller, any_permitd(caller), &job);
    }
    if (says != SAYS_HELD)
        return;
    unsigned fate = caller_random(caller, 100);
    if (fate < 30)
        renew_some(caller, &job);
    if (fate < 50) {
        kit_sleep_ms((int)caller_random(caller, 20));
        caller_release(caller, any_permitd(caller), &job);
    } else if (fate < 60)
        call_at_deadline(caller, &job);
    /* All other requests are left to expire. */
}

static void *client_run(void *context)
{
    struct client *client = context;
    while (kit_now_us() < client->crowd->end_us)
        use_key(&client->caller);
    caller_close(&client->caller);
    return NULL;
}

static struct history run_clients(struct crowd *crowd)
{
    static struct client clients[CLIENTS];
    struct history history = {NULL, 0, 0};
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i].crowd = crowd;
        caller_init(&clients[i].caller, &crowd->world, i);
        KIT_CHECK(!pthread_create(&clients[i].thread, NULL, client_run, &clients[i]));
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        history_join(&history, &clients[i].caller.history);
    }
    return history;
}

static void acquire_everything(struct crowd *crowd, struct history *history)
{
    struct caller caller;
    caller_init(&caller, &crowd->world, 9999);
    for (unsigned i = 0; i < SEMAPHORES; i++) {
        struct job job = caller_new_job(&caller);
        job.want_count = 1;
        job.wants[0] = (struct want){i, semaphores[i].capacity};
        if (caller_acquire(&caller, i % (unsigned)crowd->world.permitd_count, &job) != SAYS_HELD)
            kit_fail("crowd: %s: its full capacity cannot be had when all is quiet", semaphores[i].name);
    }
    caller_close(&caller);
    history_join(history, &caller.history);
}

/*
 * Makes ended requests look old enough for retention to delete them, so that it runs during the test. Reads the ids
 * first and updates by primary key, so it blocks no other transaction. Without acquired_at, rows_check_past skips these
 * rows, as it does the deleted ones.
 */
struct ager {
    pthread_t thread;
    struct fixture *fixture;
    atomic_bool stopping;
};

enum { AGED_MAX = 500, AGE_EVERY_MS = 100 };

struct aged {
    char ids[AGED_MAX * 21];
    size_t length;
};

static void take_id(void *context, char **columns)
{
    struct aged *aged = context;
    aged->length += (size_t)snprintf(aged->ids + aged->length, sizeof(aged->ids) - aged->length, "%s%s",
                                     aged->length ? "," : "", columns[0]);
}

static void *ager_run(void *context)
{
    struct ager *ager = context;
    struct kit_sql *sql = fixture_sql(ager->fixture->database);
    while (!atomic_load(&ager->stopping)) {
        struct aged aged = {.length = 0};
        kit_sql_each(sql,
                     "SELECT id FROM permit_request WHERE state = 2 AND "
                     "due_at BETWEEN SYSDATE(6) AND SYSDATE(6) + INTERVAL 604790 SECOND LIMIT 500",
                     take_id, &aged);
        /* Errors 1213 and 1205 are normal here: retention had the lock. */
        if (aged.length)
            (void)kit_sql_try(sql,
                              "UPDATE permit_request SET due_at = due_at - INTERVAL 8 DAY, ended_at = ended_at - "
                              "INTERVAL 8 DAY, acquired_at = NULL WHERE id IN (%s)",
                              aged.ids);
        kit_sleep_ms(AGE_EVERY_MS);
    }
    kit_sql_close(sql);
    return NULL;
}

static int64_t granted_keys(const struct history *history)
{
    int64_t count = 0;
    for (size_t i = 0; i < history->count; i++)
        count += history->calls[i].kind == CALL_ACQUIRE && history->calls[i].status == 201;
    return count;
}

void ends_crowd(const struct part_options *options)
{
    static struct crowd crowd = {
        .world = {.facts = {.semaphores = semaphores, .count = SEMAPHORES, .early_us = EARLY_QUIET_US}}};
    struct fixture fixture = fixture_start(3, false);
    crowd.world.seed = options->seed;
    fixture_world(&fixture, &crowd.world);
    make_semaphores(&crowd.world.facts, fixture.permitd[0]->port);
    struct inspector inspector;
    inspector_start(&inspector, &fixture);
    struct ager ager = {.fixture = &fixture};
    KIT_CHECK(!pthread_create(&ager.thread, NULL, ager_run, &ager));
    int64_t start = kit_now_us();
    crowd.end_us = start + (int64_t)(options->full ? SECONDS_FULL : SECONDS) * 1000000;
    struct history history = run_clients(&crowd);
    double seconds = (double)(kit_now_us() - start) / 1e6;
    int64_t last_us = kit_now_us();
    if (!fixture_wait_empty(&fixture, QUIET_MS))
        kit_fail("crowd: %lld requests are held %d s after the last call, the longest ttl is %d ms",
                 (long long)fixture_held(&fixture), QUIET_MS / 1000, TTL_MOST_MS);
    double quiet = (double)(kit_now_us() - last_us) / 1e6;
    inspector_stop(&inspector);
    atomic_store(&ager.stopping, true);
    pthread_join(ager.thread, NULL);
    size_t calls = history.count;
    acquire_everything(&crowd, &history);
    judge("crowd", &fixture, &history, &crowd.world.facts);
    int64_t forgotten = granted_keys(&history) - kit_sql_number(fixture.sql, "SELECT COUNT(*) FROM permit_request");
    double batches = fixture_metric(&fixture, "permitd_batch_operations_count");
    double conflicts = fixture_metric(&fixture, "permitd_batch_retries_total{reason=\"conflict\"}");
    printf("ends: crowd: %zu calls of %d clients through %zu permitd in %.1f s; all quiet %.1f s later; %.0f batches, "
           "%.0f "
           "retried for a conflict; deadlocks in the database: %lld; %u checks of the inspector; %lld keys deleted by "
           "retention\n",
           calls, CLIENTS, fixture.count, seconds, quiet, batches, conflicts, (long long)fixture_deadlocks(&fixture),
           inspector.rounds, (long long)forgotten);
    /* The short options has too few batches to check a rate of one in 10,000. */
    if (conflicts * 10000 >= batches + (options->full ? 0 : 10000))
        kit_fail("crowd: %.0f of %.0f batches were retried for a conflict", conflicts, batches);
    history_release(&history);
    fixture_stop(&fixture);
}
