/* SPDX-License-Identifier: MIT */
/* One key has one place, whoever asks under it: without threads, clock or database. */
#include <criterion/criterion.h>
#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "engine/waits.h"
#include "side.h"

static struct engine engine;

static void begin(void)
{
    engine = (struct engine){.settings = {.max_pending = OPS, .max_waiters = OPS, .max_semaphore_waiters = OPS}};
    pthread_mutex_init(&engine.mutex, NULL);
    pthread_cond_init(&engine.work, NULL);
    pthread_cond_init(&engine.watch, NULL);
    queue_init(&engine.queue, DIRECTORY);
    gates_learn(&engine.queue.gates, 1, BYTES("a"), KIND_SLOTTED, 1);
}

static void end(void)
{
    queue_release(&engine.queue);
    pthread_cond_destroy(&engine.watch);
    pthread_cond_destroy(&engine.work);
    pthread_mutex_destroy(&engine.mutex);
}

TestSuite(places, .init = begin, .fini = end);

/* An acquire of one unit of a that waits for a minute. */
static void ask(struct asked *asked, const char *key, unsigned char digest)
{
    *asked = (struct asked){.wants = {{.semaphore = BYTES("a"), .semaphore_id = 1, .count = 1}}};
    asked->operation =
        (struct operation){.kind = OP_ACQUIRE, .external_id = bytes_of(key), .wants = asked->wants, .want_count = 1};
    asked->operation.digest[0] = digest;
    op_init(&asked->op, &asked->operation, NEVER, side_decided);
    asked->op.wait_until = clock_mono() + 60LL * US_PER_SECOND;
}

static bool park(struct asked *asked, enum permit_status *ret_status)
{
    return waits_park(&engine, &asked->op, clock_mono(), ret_status);
}

Test(places, two_that_were_refused_under_one_key_wait_in_one_place)
{
    struct asked one, other, third;
    enum permit_status status;
    ask(&one, "k1", 0);
    ask(&other, "k1", 0);
    ask(&third, "k1", 1);
    cr_assert(park(&one, &status));
    cr_assert(park(&other, &status));
    cr_assert_eq(one.op.asks, other.op.asks);
    cr_assert_eq(engine.queue.waiters.count, 1);
    cr_assert_not(park(&third, &status));
    cr_assert_eq(status, PERMIT_KEY_REUSED);
    cr_assert(engine_abandon(&engine, &one.op));
    cr_assert(engine_abandon(&engine, &other.op));
}

/* It may have to go on without the place: when the semaphore was retired, and a template makes it again. */
Test(places, who_joins_a_place_has_the_arrival_of_that)
{
    struct asked one, again;
    enum permit_status status;
    ask(&one, "k1", 0);
    ask(&again, "k1", 0);
    one.op.arrival = 7;
    cr_assert(park(&one, &status));
    cr_assert_eq(engine_submit(&engine, &again.op), PERMIT_OK);
    cr_assert_eq(again.op.asks, one.op.asks);
    cr_assert_eq(again.op.arrival, 7);
    cr_assert(engine_abandon(&engine, &one.op));
    cr_assert(engine_abandon(&engine, &again.op));
}

/* P6: what the batch has read may have ended when somebody asks again. */
Test(places, who_asks_while_a_batch_decides_is_not_answered_by_that_batch)
{
    struct asked one, again;
    struct batch batch = {0};
    enum permit_status status;
    ask(&one, "k1", 0);
    ask(&again, "k1", 0);
    cr_assert(park(&one, &status));
    queue_call(&engine.queue, one.op.asks);
    cr_assert(queue_take(&engine.queue, &batch, clock_mono(), -1));
    cr_assert_eq(engine_submit(&engine, &again.op), PERMIT_OK);
    cr_assert_null(again.op.asks);
    struct list answered;
    list_init(&answered);
    waits_settle(&engine, one.op.asks, false, &answered);
    queue_finish(&engine.queue, &batch);
    cr_assert_eq(answered.next, &one.op.node);
    cr_assert_eq(answered.prev, &one.op.node);
    cr_assert(engine_abandon(&engine, &again.op));
}

/* True if a waiter for slot 1, refused at version 5, is called when the rows have another one. */
static bool is_called(enum certain who, uint64_t version)
{
    struct slot_name seat = {.number = 1};
    struct gate *gate = gates_find(&engine.queue.gates, 1);
    struct asked one;
    enum permit_status status;
    ask(&one, "k1", 0);
    one.wants[0].choice = CHOOSE_NAMED;
    one.wants[0].named = &seat;
    one.wants[0].named_count = 1;
    gate->version = 5;
    cr_assert(park(&one, &status));
    gate->version = version;
    waits_call_certain(&engine, gate, who, NULL);
    struct waiter *waiter = one.op.asks;
    bool called = waiter->called;
    if (called) {
        queue_take_out(&engine.queue, &waiter->op);
        waiter->called = false;
    }
    cr_assert(engine_abandon(&engine, &one.op));
    return called;
}

/* Else whoever waits for a seat is tried again and again, as long as others come and go on other seats elsewhere. */
Test(places, who_was_refused_by_the_rows_as_they_are_is_not_tried_again)
{
    cr_assert_not(is_called(CERTAIN_UNSEEN, 5));
    cr_assert(is_called(CERTAIN_UNSEEN, 6));
    cr_assert_not(is_called(CERTAIN_FREED, 6));
    cr_assert(is_called(CERTAIN_ALL, 5));
}

static enum permit_status told;

static void note_told(struct op *op, const struct decision *decision)
{
    (void)op;
    told = decision->status;
}

/* What came later on the key came perhaps after somebody else had made the semaphore: it has to look for itself. */
Test(places, who_came_later_on_a_key_is_not_refused_by_a_maker_of_before)
{
    const struct template template = {.prefix = BYTES("x"), .settings = {.kind = KIND_SLOTTED}};
    struct asked one, later;
    struct batch batch = {0};
    struct op *taken[3];
    ask(&one, "k1", 0);
    ask(&later, "k1", 0);
    one.wants[0].semaphore = later.wants[0].semaphore = BYTES("x1");
    one.op.decided = note_told;
    cr_assert_eq(engine_submit(&engine, &one.op), PERMIT_OK);
    cr_assert_eq(engine_submit(&engine, &later.op), PERMIT_OK);
    cr_assert_eq(queue_take_unresolved(&engine.queue, taken, 3), 2);
    cr_assert(maker_ask(&engine, &one.op, BYTES("x1"), &template));
    cr_assert(maker_follow(&engine, &later.op));
    struct op *maker = &one.op.maker->op;
    cr_assert(queue_take(&engine.queue, &batch, clock_mono(), -1));
    cr_assert_eq(batch.ops[0], maker);
    queue_finish(&engine.queue, &batch);
    maker->decided(maker, &(struct decision){.status = PERMIT_INVALID, .detail = "kind cannot change"});
    cr_assert_eq(told, PERMIT_INVALID);
    cr_assert(later.op.queued && !later.op.maker);
    cr_assert_eq(queue_take_unresolved(&engine.queue, taken, 3), 1);
    cr_assert_eq(taken[0], &later.op);
    queue_forget_key(&engine.queue, &later.op);
}

/* The watcher while nobody asks: it sleeps until a place that nobody came back to is given up. */
static void *sleep_until_woken(void *woken)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    pthread_mutex_lock(&engine.mutex);
    engine.watch_at = clock_mono() + 10LL * US_PER_SECOND;
    *(bool *)woken = pthread_cond_timedwait(&engine.watch, &engine.mutex, &until) == 0;
    pthread_mutex_unlock(&engine.mutex);
    return NULL;
}

/* P17: what others free is looked at every wait_poll from then on. */
Test(places, the_first_who_waits_wakes_the_watcher)
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
        sleeps = engine.watch_at > 0;
        if (sleeps)
            cr_assert(park(&one, &status));
        pthread_mutex_unlock(&engine.mutex);
    }
    pthread_join(watcher, NULL);
    cr_assert(woken);
    cr_assert(engine_abandon(&engine, &one.op));
}
