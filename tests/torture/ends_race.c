/* SPDX-License-Identifier: MIT */
/*
 * A request holds one unit of each of two semaphores and reaches its deadline while one client needs the one unit and
 * another client, through another permitd, the other. Sometimes its own client renews or releases it at that moment.
 * Nobody is refused with an error, both get their unit, and nothing is ever seen half done.
 */
#include "ends.h"

#include <stdio.h>

enum { PAIRS = 8, ROUNDS = 400, ROUNDS_FULL = 10000, GRANT_MS = 60000, EDGE_US = 6000 };

static struct semaphore_facts semaphores[2 * PAIRS];

enum edge_act { LEAVE, RENEW, RELEASE };

struct pair {
    unsigned number;
    unsigned rounds;
    pthread_barrier_t barrier;
    /* Set by the left side before the barrier. */
    struct job both;
    int64_t due_us;
    enum edge_act act;
};

struct side {
    pthread_t thread;
    struct pair *pair;
    unsigned which; /* 0 left, 1 right */
    struct caller caller;
    unsigned long refused;
};

static unsigned any_permitd(struct caller *caller)
{
    return caller_random(caller, (unsigned)caller->world->permitd_count);
}

static void hold_both(struct side *side)
{
    struct pair *pair = side->pair;
    struct caller *caller = &side->caller;
    pair->both = caller_new_job(caller);
    pair->both.ttl_ms = 20 + caller_random(caller, 31);
    pair->both.want_count = 2;
    for (unsigned i = 0; i < 2; i++)
        pair->both.wants[i] = (struct want){2 * pair->number + i, 1};
    int64_t sent = kit_now_us();
    if (caller_acquire(caller, any_permitd(caller), &pair->both) != SAYS_HELD)
        kit_fail("race: both units were released and cannot be had");
    pair->due_us = sent + (int64_t)pair->both.ttl_ms * 1000;
    unsigned dice = caller_random(caller, 10);
    pair->act = dice < 6 ? LEAVE : dice < 8 ? RENEW : RELEASE;
}

/* From a little before the deadline to a little after it. */
static void sleep_to_the_edge(struct side *side)
{
    int64_t at = side->pair->due_us - EDGE_US + caller_random(&side->caller, 2 * EDGE_US), now = kit_now_us();
    if (at > now)
        kit_sleep_ms((int)((at - now) / 1000));
}

static void act_at_the_edge(struct side *side)
{
    struct caller *caller = &side->caller;
    if (side->which == 0 && side->pair->act == RENEW)
        caller_renew(caller, any_permitd(caller), &side->pair->both);
    if (side->which == 0 && side->pair->act == RELEASE)
        caller_release(caller, any_permitd(caller), &side->pair->both);
}

static void take_own(struct side *side)
{
    struct caller *caller = &side->caller;
    struct job job = caller_new_job(caller);
    job.want_count = 1;
    job.wants[0] = (struct want){2 * side->pair->number + side->which, 1};
    int64_t end = kit_now_us() + (int64_t)GRANT_MS * 1000;
    enum call_says says;
    while ((says = caller_acquire(caller, any_permitd(caller), &job)) == SAYS_NO_CAPACITY && kit_now_us() < end) {
        side->refused++;
        kit_sleep_ms(1);
    }
    if (says != SAYS_HELD)
        kit_fail("race: an acquire of %s was answered %d", semaphores[job.wants[0].semaphore].name,
                 caller->history.calls[caller->history.count - 1].status);
    KIT_CHECK(caller_release(caller, any_permitd(caller), &job) == SAYS_ENDED);
}

static void *side_run(void *context)
{
    struct side *side = context;
    for (unsigned round = 0; round < side->pair->rounds; round++) {
        if (side->which == 0)
            hold_both(side);
        pthread_barrier_wait(&side->pair->barrier);
        sleep_to_the_edge(side);
        act_at_the_edge(side);
        take_own(side);
        pthread_barrier_wait(&side->pair->barrier);
    }
    caller_close(&side->caller);
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

void ends_race(const struct form *form)
{
    static struct world world = {.facts = {.semaphores = semaphores, .count = 2 * PAIRS}};
    static struct pair pairs[PAIRS];
    static struct side sides[2 * PAIRS];
    unsigned rounds = (form->full ? ROUNDS_FULL : ROUNDS) / PAIRS;
    struct site site = site_start(2, false);
    name_semaphores();
    world.seed = form->seed;
    site_world(&site, &world);
    make_semaphores(&world.facts, site.permitd[0]->port);
    struct inspector inspector;
    inspector_start(&inspector, &site);

    int64_t start = kit_now_us();
    for (unsigned i = 0; i < 2 * PAIRS; i++) {
        if (i % 2 == 0) {
            pairs[i / 2] = (struct pair){.number = i / 2, .rounds = rounds};
            KIT_CHECK(!pthread_barrier_init(&pairs[i / 2].barrier, NULL, 2));
        }
        sides[i] = (struct side){.pair = &pairs[i / 2], .which = i % 2};
        caller_init(&sides[i].caller, &world, i);
        KIT_CHECK(!pthread_create(&sides[i].thread, NULL, side_run, &sides[i]));
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
    if (!site_wait_empty(&site, GRANT_MS))
        kit_fail("race: something is held though everything was released or is over");
    judge("race", &site, &history, &world.facts);
    printf("ends: race: %u rounds on %d pairs in %.1f s; %lld requests expired, %lu refusals before the unit was free; "
           "deadlocks in the database: %lld; %u looks of the inspector\n",
           rounds * PAIRS, PAIRS, seconds,
           (long long)kit_sql_number(site.sql, "SELECT COUNT(*) FROM permit_request WHERE end_reason = 2"), refused,
           (long long)site_deadlocks(&site), inspector.rounds);
    history_release(&history);
    site_stop(&site);
}
