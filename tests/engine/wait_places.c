/* SPDX-License-Identifier: MIT */
/* Each key has one place in the waitlist, shared by its clients. Without threads, clock or database. */
#include <criterion/criterion.h>
#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "engine/waitlist_policy.h"
#include "fixture.h"

static struct engine engine;

static void begin(void)
{
    engine = (struct engine){.settings = {.max_pending = OPS, .max_waiters = OPS, .max_semaphore_waiters = OPS}};
    pthread_mutex_init(&engine.mutex, NULL);
    pthread_cond_init(&engine.work, NULL);
    pthread_cond_init(&engine.poll_wake, NULL);
    queue_init(&engine.queue, DIRECTORY);
    semaphore_cache_put(&engine.queue.semaphores, 1, BYTES("a"), KIND_SLOTTED, 1);
}

static void end(void)
{
    queue_release(&engine.queue);
    pthread_cond_destroy(&engine.poll_wake);
    pthread_cond_destroy(&engine.work);
    pthread_mutex_destroy(&engine.mutex);
}

TestSuite(places, .init = begin, .fini = end);

/* Fills an acquire of one unit of a that waits for a minute. */
static void ask(struct asked *asked, const char *key, unsigned char digest)
{
    *asked = (struct asked){.wants = {{.semaphore = BYTES("a"), .semaphore_id = 1, .count = 1}}};
    asked->operation =
        (struct operation){.kind = OP_ACQUIRE, .external_id = bytes_of(key), .wants = asked->wants, .want_count = 1};
    asked->operation.digest[0] = digest;
    op_init(&asked->op, &asked->operation, NEVER, fixture_decided);
    asked->op.wait_until = clock_mono() + 60LL * US_PER_SECOND;
}

static bool park(struct asked *asked, enum permit_status *ret_status)
{
    return waitlist_park(&engine, &asked->op, clock_mono(), ret_status);
}

Test(places, requests_with_one_key_share_one_place)
{
    struct asked one, other, third;
    enum permit_status status;
    ask(&one, "k1", 0);
    ask(&other, "k1", 0);
    ask(&third, "k1", 1);
    cr_assert(park(&one, &status));
    cr_assert(park(&other, &status));
    cr_assert_eq(one.op.waiter, other.op.waiter);
    cr_assert_eq(engine.queue.waiters.count, 1);
    cr_assert_not(park(&third, &status));
    cr_assert_eq(status, PERMIT_KEY_REUSED);
    cr_assert(engine_abandon(&engine, &one.op));
    cr_assert(engine_abandon(&engine, &other.op));
}

/* The request may have to continue without the place, if the semaphore was retired and a template creates it again. */
Test(places, joining_client_takes_the_arrival_of_the_place)
{
    struct asked one, again;
    enum permit_status status;
    ask(&one, "k1", 0);
    ask(&again, "k1", 0);
    one.op.arrival = 7;
    cr_assert(park(&one, &status));
    cr_assert_eq(engine_submit(&engine, &again.op), PERMIT_OK);
    cr_assert_eq(again.op.waiter, one.op.waiter);
    cr_assert_eq(again.op.arrival, 7);
    cr_assert(engine_abandon(&engine, &one.op));
    cr_assert(engine_abandon(&engine, &again.op));
}

/* P6: the request that the batch has read may have ended when a client repeats it. */
Test(places, request_during_a_batch_is_not_answered_by_that_batch)
{
    struct asked one, again;
    struct batch batch = {0};
    enum permit_status status;
    ask(&one, "k1", 0);
    ask(&again, "k1", 0);
    cr_assert(park(&one, &status));
    queue_wake(&engine.queue, one.op.waiter);
    cr_assert(queue_take(&engine.queue, &batch, clock_mono(), -1));
    cr_assert_eq(engine_submit(&engine, &again.op), PERMIT_OK);
    cr_assert_null(again.op.waiter);
    struct list answered;
    list_init(&answered);
    waitlist_settle(&engine, one.op.waiter, false, &answered);
    queue_finish(&engine.queue, &batch);
    cr_assert_eq(answered.next, &one.op.node);
    cr_assert_eq(answered.prev, &one.op.node);
    cr_assert(engine_abandon(&engine, &again.op));
}

/* Returns true if a waiter for slot 1, refused at version 5, is woken when the rows have `version`. */
static bool is_called(enum wake_specific who, uint64_t version)
{
    struct slot_name seat = {.number = 1};
    struct semaphore_entry *entry = semaphore_cache_find(&engine.queue.semaphores, 1);
    struct asked one;
    enum permit_status status;
    ask(&one, "k1", 0);
    one.wants[0].choice = CHOOSE_NAMED;
    one.wants[0].named = &seat;
    one.wants[0].named_count = 1;
    entry->version = 5;
    cr_assert(park(&one, &status));
    entry->version = version;
    waitlist_wake_specific(&engine, entry, who, NULL);
    struct waiter *waiter = one.op.waiter;
    bool woken = waiter->woken;
    if (woken) {
        queue_take_out(&engine.queue, &waiter->op);
        waiter->woken = false;
    }
    cr_assert(engine_abandon(&engine, &one.op));
    return woken;
}

/* Otherwise a waiter for a slot would be tried again whenever another server changes other slots. */
Test(places, refused_waiter_is_not_retried_on_unchanged_rows)
{
    cr_assert_not(is_called(WAKE_STALE, 5));
    cr_assert(is_called(WAKE_STALE, 6));
    cr_assert_not(is_called(WAKE_FREED, 6));
    cr_assert(is_called(WAKE_ALL, 5));
}

static enum permit_status reported_status;

static void record_status(struct op *op, const struct decision *decision)
{
    (void)op;
    reported_status = decision->status;
}

/*
 * A later operation on the key may have arrived after another client created the semaphore, so it must be resolved
 * again.
 */
Test(places, later_operation_on_a_key_is_not_refused_by_an_earlier_creation)
{
    const struct template template = {.prefix = BYTES("x"), .settings = {.kind = KIND_SLOTTED}};
    struct asked one, later;
    struct batch batch = {0};
    struct op *taken[3];
    ask(&one, "k1", 0);
    ask(&later, "k1", 0);
    one.wants[0].semaphore = later.wants[0].semaphore = BYTES("x1");
    one.op.decided = record_status;
    cr_assert_eq(engine_submit(&engine, &one.op), PERMIT_OK);
    cr_assert_eq(engine_submit(&engine, &later.op), PERMIT_OK);
    cr_assert_eq(queue_take_unresolved(&engine.queue, taken, 3), 2);
    cr_assert(template_create_join(&engine, &one.op, BYTES("x1"), &template));
    cr_assert(template_create_follow_key(&engine, &later.op));
    struct op *creation = &one.op.creation->op;
    cr_assert(queue_take(&engine.queue, &batch, clock_mono(), -1));
    cr_assert_eq(batch.ops[0], creation);
    queue_finish(&engine.queue, &batch);
    creation->decided(creation, &(struct decision){.status = PERMIT_INVALID, .detail = "kind cannot change"});
    cr_assert_eq(reported_status, PERMIT_INVALID);
    cr_assert(later.op.queued && !later.op.creation);
    cr_assert_eq(queue_take_unresolved(&engine.queue, taken, 3), 1);
    cr_assert_eq(taken[0], &later.op);
    queue_forget_key(&engine.queue, &later.op);
}

/* The wait poll without clients: it sleeps until a place without clients is given up. */
static void *sleep_until_woken(void *woken)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    pthread_mutex_lock(&engine.mutex);
    engine.next_poll_at = clock_mono() + 10LL * US_PER_SECOND;
    *(bool *)woken = pthread_cond_timedwait(&engine.poll_wake, &engine.mutex, &until) == 0;
    pthread_mutex_unlock(&engine.mutex);
    return NULL;
}

/* P17: from then on permitd polls, every wait_poll, for units that other servers have freed. */
Test(places, first_waiter_wakes_the_wait_poll)
{
    struct asked one;
    enum permit_status status;
    pthread_t watcher;
    bool woken = false;
    bool sleeps = false;
    ask(&one, "k1", 0);
    pthread_create(&watcher, NULL, sleep_until_woken, &woken);
    while (!sleeps) {
        sched_yield();
        pthread_mutex_lock(&engine.mutex);
        sleeps = engine.next_poll_at > 0;
        if (sleeps)
            cr_assert(park(&one, &status));
        pthread_mutex_unlock(&engine.mutex);
    }
    pthread_join(watcher, NULL);
    cr_assert(woken);
    cr_assert(engine_abandon(&engine, &one.op));
}
