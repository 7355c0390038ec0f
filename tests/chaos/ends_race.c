/* SPDX-License-Identifier: MIT */
/*
 * A request holds one unit of each of two semaphores and reaches its deadline. One client needs the first unit, and
 * another client, through another permitd, the second. Sometimes the holder renews or releases at that moment. No
 * client gets an error, both get their unit, and the rows are consistent at all times.
 */
#include "ends.h"

#include <stdio.h>

enum { PAIRS = 8, ROUNDS = 400, ROUNDS_FULL = 10000, GRANT_MS = 60000, EDGE_US = 6000, CLOCKS_US = 30000 };

static struct semaphore_facts semaphores[2 * PAIRS];

enum edge_act { LEAVE, RENEW, RELEASE };

struct pair {
    unsigned number;
    unsigned rounds;
    pthread_barrier_t barrier;
    /* Set by the left racer before the barrier. */
    struct job both;
    int64_t due_us;
    enum edge_act act;
};

struct racer {
    pthread_t thread;
    struct pair *pair;
    unsigned which; /* 0: the left one, 1: the right one */
    struct caller caller;
    unsigned long refused;
};

static unsigned any_permitd(struct caller *caller)
{
    return caller_random(caller, (unsigned)caller->world->permitd_count);
}

static void hold_both(struct racer *racer)
{
    struct pair *pair = racer->pair;
    struct caller *caller = &racer->caller;
    pair->both = caller_new_job(caller);
    pair->both.ttl_ms = 20 + caller_random(caller, 31);
    pair->both.want_count = 2;
    for (unsigned i = 0; i < 2; i++)
        pair->both.wants[i] = (struct want){2 * pair->number + i, 1};
    int64_t sent = kit_now_us();
    if (caller_acquire(caller, any_permitd(caller), &pair->both) != SAYS_HELD)
        kit_fail("race: both units were released and cannot be had");
    pair->due_us = sent + ((int64_t)pair->both.ttl_ms + DUE_LATER_MS) * 1000;
    unsigned dice = caller_random(caller, 10);
    pair->act = dice < 6 ? LEAVE : dice < 8 ? RENEW : RELEASE;
}

/* Sleeps until a random time just before or after the deadline, by the clock of either permitd. */
static void sleep_to_deadline(struct racer *racer)
{
    int64_t at = racer->pair->due_us - EDGE_US + caller_random(&racer->caller, 2 * EDGE_US + CLOCKS_US),
            now = kit_now_us();
    if (at > now)
        kit_sleep_ms((int)((at - now) / 1000));
}

static void act_at_deadline(struct racer *racer)
{
    struct caller *caller = &racer->caller;
    if (racer->which == 0 && racer->pair->act == RENEW)
        caller_renew(caller, any_permitd(caller), &racer->pair->both);
    if (racer->which == 0 && racer->pair->act == RELEASE)
        caller_release(caller, any_permitd(caller), &racer->pair->both);
}

static void take_own(struct racer *racer)
{
    struct caller *caller = &racer->caller;
    struct job job = caller_new_job(caller);
    job.want_count = 1;
    job.wants[0] = (struct want){2 * racer->pair->number + racer->which, 1};
    int64_t end = kit_now_us() + (int64_t)GRANT_MS * 1000;
    enum call_says says;
    while ((says = caller_acquire(caller, any_permitd(caller), &job)) == SAYS_NO_CAPACITY && kit_now_us() < end) {
        racer->refused++;
        kit_sleep_ms(1);
    }
    if (says != SAYS_HELD)
        kit_fail("race: an acquire of %s was answered %d", semaphores[job.wants[0].semaphore].name,
                 caller->history.calls[caller->history.count - 1].status);
    KIT_CHECK(caller_release(caller, any_permitd(caller), &job) == SAYS_ENDED);
}

static void *racer_run(void *context)
{
    struct racer *racer = context;
    for (unsigned round = 0; round < racer->pair->rounds; round++) {
        if (racer->which == 0)
            hold_both(racer);
        pthread_barrier_wait(&racer->pair->barrier);
        sleep_to_deadline(racer);
        act_at_deadline(racer);
        take_own(racer);
        pthread_barrier_wait(&racer->pair->barrier);
    }
    caller_close(&racer->caller);
    return NULL;
}

static void name_semaphores(void)
{
    static char names[2 * PAIRS][16];
    for (unsigned i = 0; i < 2 * PAIRS; i++) {
        snprintf(names[i], sizeof(names[i]), "%s-%u", i % 2 ? "right" : "left", i / 2);
        semaphores[i] = (struct semaphore_facts){names[i], 1, i % 4 < 2};
    }
}

void ends_race(const struct part_options *options)
{
    static struct world world = {.facts = {.semaphores = semaphores, .count = 2 * PAIRS}};
    static struct pair pairs[PAIRS];
    static struct racer sides[2 * PAIRS];
    unsigned rounds = (options->full ? ROUNDS_FULL : ROUNDS) / PAIRS;
    struct fixture fixture = fixture_start(2, false);
    name_semaphores();
    world.seed = options->seed;
    fixture_world(&fixture, &world);
    make_semaphores(&world.facts, fixture.permitd[0]->port);
    struct inspector inspector;
    inspector_start(&inspector, &fixture);

    int64_t start = kit_now_us();
    for (unsigned i = 0; i < 2 * PAIRS; i++) {
        if (i % 2 == 0) {
            pairs[i / 2] = (struct pair){.number = i / 2, .rounds = rounds};
            KIT_CHECK(!pthread_barrier_init(&pairs[i / 2].barrier, NULL, 2));
        }
        sides[i] = (struct racer){.pair = &pairs[i / 2], .which = i % 2};
        caller_init(&sides[i].caller, &world, i);
        KIT_CHECK(!pthread_create(&sides[i].thread, NULL, racer_run, &sides[i]));
    }
    struct history history = {NULL, 0, 0};
    unsigned long refused = 0;
    for (unsigned i = 0; i < 2 * PAIRS; i++) {
        pthread_join(sides[i].thread, NULL);
        history_join(&history, &sides[i].caller.history);
        refused += sides[i].refused;
    }
    double seconds = (double)(kit_now_us() - start) / 1e6;
    inspector_stop(&inspector);
    if (!fixture_wait_empty(&fixture, GRANT_MS))
        kit_fail("race: something is held though everything was released or is over");
    judge("race", &fixture, &history, &world.facts);
    printf("ends: race: %u rounds on %d pairs in %.1f s; %lld requests expired, %lu refusals before the unit was free; "
           "deadlocks in the database: %lld; %u looks of the inspector\n",
           rounds * PAIRS, PAIRS, seconds,
           (long long)kit_sql_number(fixture.sql, "SELECT COUNT(*) FROM permit_request WHERE end_reason = 2"), refused,
           (long long)fixture_deadlocks(&fixture), inspector.rounds);
    history_release(&history);
    fixture_stop(&fixture);
}
