/* SPDX-License-Identifier: MIT */
/*
 * Everything at once: clients of three permitd take one to three of eight semaphores with short ttls, release, renew,
 * or forget. Nobody gets an error, hardly a transaction is run again for a deadlock, and when all is quiet nothing is
 * left.
 */
#include "ends.h"

#include <stdio.h>

enum { CLIENTS = 64, SECONDS = 20, SECONDS_FULL = 300, TTL_LEAST_MS = 200, TTL_MOST_MS = 2000, QUIET_MS = 90000 };

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

static bool job_wants(const struct job *job, unsigned semaphore)
{
    for (size_t i = 0; i < job->want_count; i++)
        if (job->wants[i].semaphore == semaphore)
            return true;
    return false;
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

/* At the deadline, when it may go either way; and once more when it is over. */
static void meddle_at_the_edge(struct caller *caller, const struct job *job)
{
    kit_sleep_ms((int)(job->ttl_ms - 10 + caller_random(caller, 20)));
    switch (caller_random(caller, 3)) {
    case 0: caller_renew(caller, any_permitd(caller), job); break;
    case 1: caller_acquire(caller, any_permitd(caller), job); break;
    default: caller_release(caller, any_permitd(caller), job); break;
    }
    caller_look(caller, any_permitd(caller), job);
}

static void live(struct caller *caller)
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
        meddle_at_the_edge(caller, &job);
    /* The others forget it. */
}

static void *client_run(void *context)
{
    struct client *client = context;
    while (kit_now_us() < client->crowd->end_us)
        live(&client->caller);
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

void ends_crowd(const struct ends *ends)
{
    static struct crowd crowd = {.world = {.facts = {semaphores, SEMAPHORES}}};
    struct site site = site_start(3, false);
    crowd.world.seed = ends->seed;
    site_world(&site, &crowd.world);
    make_semaphores(&crowd.world.facts, site.permitd[0]->port);
    struct inspector inspector;
    inspector_start(&inspector, &site);
    int64_t start = kit_now_us();
    crowd.end_us = start + (int64_t)(ends->full ? SECONDS_FULL : SECONDS) * 1000000;
    struct history history = run_clients(&crowd);
    double seconds = (double)(kit_now_us() - start) / 1e6;
    int64_t last_us = kit_now_us();
    if (!site_wait_empty(&site, QUIET_MS))
        kit_fail("crowd: %lld requests are held %d s after the last call, the longest ttl is %d ms",
                 (long long)site_held(&site), QUIET_MS / 1000, TTL_MOST_MS);
    double quiet = (double)(kit_now_us() - last_us) / 1e6;
    inspector_stop(&inspector);
    size_t calls = history.count;
    acquire_everything(&crowd, &history);
    judge("crowd", &site, &history, &crowd.world.facts);
    double batches = site_metric(&site, "permitd_batch_operations_count");
    double conflicts = site_metric(&site, "permitd_batch_retries_total{reason=\"conflict\"}");
    printf(
        "ends: crowd: %zu calls of %d clients through %zu permitd in %.1f s; %lld requests expired; all quiet %.1f s "
        "later; %.0f batches, %.0f run again for a conflict; deadlocks in the database: %lld; %u looks of the "
        "inspector\n",
        calls, CLIENTS, site.count, seconds,
        (long long)kit_sql_number(site.sql, "SELECT COUNT(*) FROM permit_request WHERE end_reason = 2"), quiet, batches,
        conflicts, (long long)site_deadlocks(&site), inspector.rounds);
    /* The short form has not enough batches to tell one from one in 10,000. */
    if (conflicts * 10000 >= batches + (ends->full ? 0 : 10000))
        kit_fail("crowd: %.0f of %.0f batches were run again for a conflict", conflicts, batches);
    history_release(&history);
    site_stop(&site);
}
