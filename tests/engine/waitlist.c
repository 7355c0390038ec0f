/* SPDX-License-Identifier: MIT */
/* The waitlist: when and how waiters ask, and which clients are answered. Without threads, clock or database. */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "../unit/wait_mode.h"
#include "base/clock.h"
#include "engine/state.h"
#include "engine/waitlist.h"
#include "engine/worker.h"
#include "fixture.h"

enum { SERVER = 7 };

static struct engine engine;
static struct batch batch;
static struct list answered;
static struct arena arena;

static void begin(void)
{
    arena_init(&arena, 1024, 65536);
    engine = (struct engine){
        .settings = {.max_pending = OPS, .max_waiters = OPS, .wait_poll_ms = 20, .request_timeout_ms = 10000},
        .server_id = SERVER};
    mutex_init(&engine.mutex);
    pthread_cond_init(&engine.work, NULL);
    pthread_cond_init(&engine.poll_wake, NULL);
    queue_init(&engine.queue, ROW_BYTES);
    semaphore_cache_put(&engine.queue.semaphores, 1, BYTES("a"), KIND_SLOTTED, 1);
    semaphore_cache_put(&engine.queue.semaphores, 2, BYTES("b"), KIND_COUNTED, 1);
    batch = (struct batch){0};
    list_init(&answered);
}

static void drop_answered(void)
{
    list_for_each (node, next, &answered)
        list_remove(node);
}

/* The batch of a look or leave has decided: `row` goes on waiting; NULL: no row does. */
static void end_look(struct waiter *waiter, const struct request *row)
{
    const struct outcome outcome = {.status = PERMIT_NO_CAPACITY, .waits = row != NULL, .request = row};
    waitlist_end_look(&engine, waiter, &outcome, &answered);
}

/* Frees the remaining waiters, as a stop does that cannot reach the database. */
static void end(void)
{
    struct list left;
    list_init(&left);
    for (size_t i = 0; i < batch.op_count; i++)
        if (op_is_of_waiter(batch.ops[i]))
            end_look(waiter_of(batch.ops[i]), NULL);
    queue_finish(&batch);
    engine_end_waits(&engine);
    queue_take_expired(&engine.queue, NEVER, &left);
    list_for_each (node, next, &left) {
        struct op *op = LIST_ENTRY(node, struct op, node);
        list_remove(node);
        queue_forget_key(&engine.queue, op);
        if (op_is_of_waiter(op))
            waitlist_retry_later(&engine, waiter_of(op), &answered);
        else
            op_drop_entries(op);
    }
    drop_answered();
    cr_assert(engine_waits_ended(&engine));
    arena_release(&arena);
    queue_release(&engine.queue);
    pthread_cond_destroy(&engine.poll_wake);
    pthread_cond_destroy(&engine.work);
    mutex_destroy(&engine.mutex);
}

TestSuite(waitlist, .init = begin, .fini = end);

/* Fills an acquire of one unit of a that waits for a minute. It is static: the end of the test still uses it. */
static void ask(struct asked *asked, const char *key)
{
    *asked = (struct asked){.wants = {{.semaphore = BYTES("a"), .semaphore_id = 1, .count = 1}}};
    asked->operation =
        (struct operation){.kind = OP_ACQUIRE, .external_id = bytes_of(key), .wants = asked->wants, .want_count = 1};
    op_init(&asked->op, &asked->operation, NEVER, fixture_decided);
    asked->op.arrived_at = clock_mono();
    asked->op.wait_until = asked->op.arrived_at + 60LL * US_PER_SECOND;
}

/* The row of a request that waits at this server, as its batch wrote it. */
static struct request row_of(uint64_t id, utc_us place)
{
    return (struct request){
        .id = id, .state = REQUEST_WAITING, .server_id = SERVER, .place = place, .waiting_since = place};
}

static struct waiter *park_row(struct asked *asked, uint64_t id)
{
    const struct request row = row_of(id, (utc_us)id);
    cr_assert(waitlist_park(&engine, &asked->op, &row));
    return asked->op.waiter;
}

/* Takes a batch as a worker does. Returns the mode in which its first operation waits. */
static enum wait_mode take_batch(void)
{
    cr_assert(queue_take(&engine.queue, &batch, clock_mono()));
    waitlist_prepare(&engine, &batch);
    return operation_wait(batch.ops[0]->operation);
}

static void finish_batch(void)
{
    queue_finish(&batch);
}

static size_t count_answered(void)
{
    size_t count = 0;
    list_for_each (node, next, &answered)
        count++;
    return count;
}

Test(waitlist, clients_with_one_key_share_one_waiter)
{
    static struct asked one, other;
    ask(&one, "k1");
    ask(&other, "k1");
    struct waiter *waiter = park_row(&one, 1);
    cr_assert_eq(park_row(&other, 1), waiter);
    cr_assert_eq(engine.queue.waiters.count, 1);
}

/* The refusal names the content of the row, and the longest ttl. */
Test(waitlist, other_content_under_the_key_of_a_waiter_is_left_to_a_batch)
{
    static struct asked one, other;
    ask(&one, "k1");
    ask(&other, "k1");
    other.operation.digest[0] = 1;
    struct waiter *waiter = park_row(&one, 1);
    cr_assert_eq(engine_submit(&engine, &other.op), PERMIT_OK);
    cr_assert(other.op.queued && !other.op.waiter && !waiter_is_woken(waiter));
    (void)take_batch();
    cr_assert_eq(batch.op_count, 1);
    cr_assert_eq(batch.ops[0], &other.op);
    queue_forget_key(&engine.queue, &other.op);
    const struct request row = row_of(2, 2);
    cr_assert_not(waitlist_park(&engine, &other.op, &row), "it would become a client of another request");
    op_drop_entries(&other.op);
    finish_batch();
}

/* The request may have to go on without the waiter, if the semaphore was retired and a template creates it again. */
Test(waitlist, joining_client_takes_the_arrival_of_the_waiter)
{
    static struct asked one, again;
    ask(&one, "k1");
    ask(&again, "k1");
    one.op.arrival = 7;
    (void)park_row(&one, 1);
    cr_assert_eq(engine_submit(&engine, &again.op), PERMIT_OK);
    cr_assert_eq(again.op.waiter, one.op.waiter);
    cr_assert_eq(again.op.arrival, 7);
}

/* Its row would be removed when the first client's wait is over. */
Test(waitlist, client_that_waits_longer_makes_the_waiter_ask)
{
    static struct asked one, shorter, longer;
    ask(&one, "k1");
    ask(&shorter, "k1");
    ask(&longer, "k1");
    shorter.op.wait_until = one.op.wait_until - US_PER_SECOND;
    longer.op.wait_until = one.op.wait_until + US_PER_SECOND;
    struct waiter *waiter = park_row(&one, 1);
    cr_assert_eq(engine_submit(&engine, &shorter.op), PERMIT_OK);
    cr_assert_not(waiter_is_woken(waiter));
    cr_assert_eq(engine_submit(&engine, &longer.op), PERMIT_OK);
    cr_assert(waiter_is_woken(waiter));
    cr_assert_eq(take_batch(), WAIT_ASK);
    cr_assert_eq(waiter->operation.wait_us, longer.op.wait_until - batch.taken_at);
}

/* P22: its row can be granted by any server, so an answer without a decision is outcome_unknown. */
Test(waitlist, parked_client_cannot_be_answered_without_a_decision)
{
    static struct asked one;
    ask(&one, "k1");
    (void)park_row(&one, 1);
    cr_assert_not(stage_answer(&one.op.stage));
}

/* P6: the request that the batch has read may have ended when a client repeats it. */
Test(waitlist, request_during_a_batch_is_not_answered_by_that_batch)
{
    static struct asked one, again;
    ask(&one, "k1");
    ask(&again, "k1");
    struct waiter *waiter = park_row(&one, 1);
    waitlist_wake(&engine, waiter);
    cr_assert_eq(take_batch(), WAIT_ASK);
    cr_assert_eq(engine_submit(&engine, &again.op), PERMIT_OK);
    cr_assert_null(again.op.waiter);
    end_look(waiter, NULL);
    finish_batch();
    cr_assert_eq(count_answered(), 1);
    cr_assert_eq(answered.next, &one.op.node);
    cr_assert(engine_abandon(&engine, &again.op));
}

Test(waitlist, only_clients_whose_wait_has_ended_are_answered)
{
    static struct asked one, other;
    ask(&one, "k1");
    ask(&other, "k1");
    struct waiter *waiter = park_row(&one, 1);
    (void)park_row(&other, 1);
    other.op.wait_until = other.op.arrived_at;
    waitlist_wake(&engine, waiter);
    cr_assert_eq(take_batch(), WAIT_ASK); /* for the other client */
    const struct request row = row_of(1, 1);
    end_look(waiter, &row);
    finish_batch();
    cr_assert_eq(count_answered(), 1);
    cr_assert_eq(answered.next, &other.op.node);
    cr_assert_eq(one.op.waiter, waiter);
    cr_assert_not(waiter_is_woken(waiter));
}

Test(waitlist, last_decision_ends_the_wait)
{
    static struct asked one;
    ask(&one, "k1");
    struct waiter *waiter = park_row(&one, 1);
    one.op.wait_until = one.op.arrived_at;
    waitlist_wake(&engine, waiter);
    cr_assert_eq(take_batch(), WAIT_LAST);
    cr_assert_eq(waiter->operation.kind, OP_LOOK);
}

/* P17: a waiter that left before its batch began holds nothing. */
Test(waitlist, waiter_without_clients_leaves_by_a_write)
{
    static struct asked one;
    ask(&one, "k1");
    struct waiter *waiter = park_row(&one, 1);
    cr_assert(engine_abandon(&engine, &one.op));
    cr_assert_eq(engine.queue.waiters.count, 0);
    cr_assert(waiter_is_woken(waiter));
    cr_assert_eq(take_batch(), WAIT_GONE);
    end_look(waiter, NULL);
    finish_batch();
    cr_assert_null(waiters_find(&engine.queue.waiters, BYTES("k1")));
}

Test(waitlist, client_that_comes_back_before_the_leave_keeps_waiting)
{
    static struct asked one, again;
    ask(&one, "k1");
    ask(&again, "k1");
    (void)park_row(&one, 1);
    cr_assert(engine_abandon(&engine, &one.op));
    cr_assert_eq(engine_submit(&engine, &again.op), PERMIT_OK);
    cr_assert_eq(take_batch(), WAIT_ASK);
}

/* The client left while the batch that entered its request ran. */
Test(waitlist, acquire_without_client_is_entered_only_to_leave)
{
    static struct asked one;
    ask(&one, "k1");
    one.op.wait_until = 0;
    const struct request row = row_of(1, 1);
    cr_assert_not(waitlist_park(&engine, &one.op, &row));
    cr_assert_eq(take_batch(), WAIT_GONE);
}

/* ---- grants by other batches ---- */

/* A grant by a batch that does not name the waiter. It is static: the end of the test still uses the op. */
static struct {
    struct asked asked;
    struct request row;
    struct notice notice;
    struct plan plan;
} granted;

/* Parks k1, which the plan of `granted` grants. */
static struct waiter *park_granted(void)
{
    ask(&granted.asked, "k1");
    granted.row = row_of(1, 1);
    granted.row.external_id = BYTES("k1");
    granted.notice = (struct notice){
        .external_id = BYTES("k1"), .outcome = {.created = true, .request = &granted.row}, .unasked = true};
    granted.plan = (struct plan){.notices = &granted.notice, .notice_count = 1};
    return park_row(&granted.asked, 1);
}

/* A key whose subscribers a batch may tell, "key:busy" if another batch has it, "key:coming" if an acquire of it may wait. */
static void expect_subscribers(struct request *rows, size_t count, const char *expected)
{
    struct view view = {.requests = rows, .request_count = count};
    struct buf got;
    buf_init(&got, 1000);
    cr_assert(waitlist_list_subscribers(&engine, &arena, &view));
    for (size_t i = 0; i < view.subscriber_count; i++) {
        const struct subscriber *subscriber = &view.subscribers[i];
        buf_append(&got, subscriber->external_id.data, subscriber->external_id.length);
        buf_append_text(&got, !subscriber->busy ? " " : subscriber->subscribed ? ":busy " : ":coming ");
    }
    cr_expect_str_eq(got.data ? got.data : "", expected);
    buf_release(&got);
}

Test(waitlist, granted_waiter_is_taken_even_if_it_is_about_to_look)
{
    struct waiter *waiter = park_granted();
    expect_subscribers(&granted.row, 1, "k1 ");
    cr_assert(waitlist_begin_grants(&engine, &granted.plan));
    waitlist_wake(&engine, waiter);
    waitlist_notify(&engine, &granted.row, &answered);
    cr_assert_eq(count_answered(), 1);
    cr_assert(queue_empty(&engine.queue));
    cr_assert_null(waiters_find(&engine.queue.waiters, BYTES("k1")));
}

/* The key was used again for other content while this permitd counted as dead: its client is not given what others hold. */
Test(waitlist, grant_of_other_content_is_not_for_the_client_that_waits)
{
    struct waiter *waiter = park_granted();
    granted.row.digest[0] = 1;
    granted.notice.unasked = false;
    expect_subscribers(&granted.row, 1, "");
    cr_assert(waitlist_begin_grants(&engine, &granted.plan));
    cr_assert_not(waiter_in_batch(waiter));
    waitlist_notify(&engine, &granted.row, &answered);
    cr_assert_eq(count_answered(), 0);
    cr_assert_eq(waiters_find(&engine.queue.waiters, BYTES("k1")), waiter);
}

/* The clock tick takes the op out of the queue, and decides it in a later turn of the mutex. */
Test(waitlist, granted_waiter_is_taken_even_if_it_is_being_timed_out)
{
    struct waiter *waiter = park_granted();
    struct list expired;
    list_init(&expired);
    cr_assert(waitlist_begin_grants(&engine, &granted.plan));
    waitlist_wake(&engine, waiter);
    queue_take_expired(&engine.queue, NEVER, &expired);
    waitlist_notify(&engine, &granted.row, &answered);
    cr_assert_eq(count_answered(), 1);
    list_remove(&waiter->op.node);
    decide_status(&engine, &waiter->op, PERMIT_BUSY, NULL);
    cr_assert_eq(waiters_find(&engine.queue.waiters, BYTES("k1")), waiter); /* it asks later, and is freed then */
    cr_assert(!waiter_is_woken(waiter) && !waiter->in_grant && waiter->wake_at.time < NEVER);
}

Test(waitlist, only_keys_with_clients_have_subscribers)
{
    static struct asked one, other, third;
    struct request rows[] = {row_of(1, 1), row_of(2, 2), row_of(3, 3)};
    const char *keys[] = {"k1", "k2", "k3"};
    struct asked *asked[] = {&one, &other, &third};
    for (size_t i = 0; i < 3; i++) {
        rows[i].external_id = bytes_of(keys[i]);
        ask(asked[i], keys[i]);
        (void)park_row(asked[i], i + 1);
    }
    rows[1].server_id = SERVER + 1;
    cr_assert(engine_abandon(&engine, &third.op));
    expect_subscribers(rows, 3, "k1 k2 "); /* a row may name an earlier id of this server */
}

/* P20: while a batch decides its waiter, the client waits all the same: a copy of its call leaves it the place. */
Test(waitlist, client_subscribes_while_its_waiter_is_in_a_batch)
{
    static struct asked asked;
    struct request row = row_of(1, 1);
    row.external_id = BYTES("k1");
    ask(&asked, "k1");
    waitlist_wake(&engine, park_row(&asked, 1));
    cr_assert_eq(take_batch(), WAIT_ASK);
    expect_subscribers(&row, 1, "k1:busy ");
}

/* P20: the client of a place has left, and another copy of its acquire is in the queue (seed 292 of the simulation). */
Test(waitlist, new_acquire_of_a_left_place_asks_later)
{
    static struct asked left, copy;
    struct request row = row_of(1, 1);
    row.external_id = BYTES("k1");
    ask(&left, "k1");
    ask(&copy, "k1");
    (void)park_row(&left, 1);
    cr_assert(engine_abandon(&engine, &left.op));
    (void)take_batch(); /* in which the waiter leaves its place; the copy comes too late to join it */
    expect_subscribers(&row, 1, "");
    cr_assert_eq(engine_submit(&engine, &copy.op), PERMIT_OK);
    expect_subscribers(&row, 1, "k1:coming ");
}

/* P20: a batch with an unknown outcome has entered it. Else the batches of this server would let others pass it. */
Test(waitlist, acquire_that_is_tried_again_asks_later)
{
    static struct asked one, without_wait;
    struct request rows[] = {row_of(1, 1), row_of(2, 2)};
    ask(&one, "k1");
    ask(&without_wait, "k2");
    rows[0].external_id = BYTES("k1");
    rows[1].external_id = BYTES("k2");
    without_wait.op.wait_until = 0;
    cr_assert_eq(engine_submit(&engine, &one.op), PERMIT_OK);
    cr_assert_eq(engine_submit(&engine, &without_wait.op), PERMIT_OK);
    cr_assert_eq(take_batch(), WAIT_ASK);
    expect_subscribers(rows, 2, "k1:coming ");
    queue_forget_key(&engine.queue, &one.op);
    queue_forget_key(&engine.queue, &without_wait.op);
    expect_subscribers(rows, 2, "");
    finish_batch();
    op_drop_entries(&one.op);
    op_drop_entries(&without_wait.op);
}

/* P17: the batch that has put it back may have entered it. Its place is given up by the next one, without a client. */
Test(waitlist, client_of_an_acquire_that_was_put_back_leaves_by_a_batch)
{
    static struct asked one;
    ask(&one, "k1");
    cr_assert_eq(engine_submit(&engine, &one.op), PERMIT_OK);
    cr_assert_eq(take_batch(), WAIT_ASK);
    finish_batch();
    queue_put_back(&engine.queue, &one.op);
    cr_assert_not(engine_abandon(&engine, &one.op));
    cr_assert(one.op.queued);
    cr_assert_eq(take_batch(), WAIT_LAST);
    finish_batch();
    queue_forget_key(&engine.queue, &one.op);
    op_drop_entries(&one.op);
}

/* P17: its plan is out of date. */
Test(waitlist, waiter_whose_client_has_left_since_the_plan_is_not_granted)
{
    const struct waiter *waiter = park_granted();
    cr_assert(engine_abandon(&engine, &granted.asked.op));
    cr_assert_not(waitlist_begin_grants(&engine, &granted.plan));
    cr_assert_not(waiter->in_grant);
}

/* The packet may have been written although it failed: the waiter asks, and finds its grant. */
Test(waitlist, waiter_of_a_failed_grant_asks)
{
    struct waiter *waiter = park_granted();
    cr_assert(waitlist_begin_grants(&engine, &granted.plan));
    cr_assert_not(engine_abandon(&engine, &granted.asked.op)); /* its answer goes out, or its end */
    waitlist_cancel_grants(&engine, &granted.plan);
    cr_assert(waiter_is_woken(waiter));
    cr_assert_eq(take_batch(), WAIT_LAST);
}

/* P18: the waiter must not count as being in that batch for ever. */
Test(waitlist, waiter_whose_grant_cannot_be_delivered_asks)
{
    struct waiter *waiter = park_granted();
    struct arena no_memory;
    arena_init(&no_memory, 0, 0);
    struct worker worker = {.engine = &engine, .arena = &no_memory};
    struct run run = {.worker = &worker, .plan = granted.plan};
    cr_assert(waitlist_begin_grants(&engine, &run.plan));
    deliver(&worker, &run, false);
    cr_assert_not(waiter_in_batch(waiter));
    cr_assert(waiter_is_woken(waiter));
    cr_assert_eq(take_batch(), WAIT_ASK);
    arena_release(&no_memory);
}

/* The kinds of answers that the clients of a grant got, in order: 'c' created, 'r' replayed. */
static char told[OPS];

static void note_grant(struct op *op, const struct decision *decision)
{
    (void)op;
    told[strlen(told)] = decision->outcome->created ? 'c' : decision->outcome->replayed ? 'r' : '?';
}

static void deliver_granted(void)
{
    struct worker worker = {.engine = &engine, .arena = &arena};
    struct run run = {.worker = &worker, .plan = granted.plan};
    cr_assert(waitlist_begin_grants(&engine, &run.plan));
    deliver(&worker, &run, false);
}

Test(waitlist, grant_is_new_for_the_client_whose_nonce_it_has)
{
    static struct asked other;
    (void)park_granted();
    ask(&other, "k1");
    granted.asked.operation.nonce = BYTES("one");
    other.operation.nonce = BYTES("other");
    granted.row.nonce = BYTES("other");
    (void)park_row(&other, 1);
    granted.asked.op.decided = other.op.decided = note_grant;
    deliver_granted();
    cr_assert_str_eq(told, "rc");
}

/* P3: the row has the nonce of a client that has left since the plan; the other one must not take it for its grant. */
Test(waitlist, grant_is_new_for_nobody_if_the_client_with_its_nonce_has_left)
{
    (void)park_granted();
    granted.asked.operation.nonce = BYTES("one");
    granted.row.nonce = BYTES("left");
    granted.asked.op.decided = note_grant;
    deliver_granted();
    cr_assert_str_eq(told, "r");
}

/* ---- waking ---- */

/* M32: the event may be later than the rows that the batch has read. */
Test(waitlist, wake_during_a_batch_makes_the_waiter_ask_again)
{
    static struct asked one;
    ask(&one, "k1");
    struct waiter *waiter = park_row(&one, 1);
    waitlist_wake(&engine, waiter);
    (void)take_batch();
    waitlist_wake(&engine, waiter);
    const struct request row = row_of(1, 1);
    end_look(waiter, &row);
    finish_batch();
    cr_assert(waiter_is_woken(waiter));
}

/* It had to wait until fewer are awake, and mail has woken it before that. */
Test(waitlist, wake_during_a_batch_counts_also_after_a_late_call)
{
    enum { MANY = 1000000 };
    static struct asked one;
    ask(&one, "k1");
    struct waiter *waiter = park_row(&one, 1);
    struct semaphore_entry *entry = semaphore_cache_find(&engine.queue.semaphores, 1);
    entry->woken += MANY;
    waitlist_wake(&engine, waiter);
    cr_assert(!waiter_is_woken(waiter));
    waiter->operation.mailed = waiter->request_id;
    waitlist_wake(&engine, waiter);
    entry->woken -= MANY;
    (void)take_batch();
    waitlist_wake(&engine, waiter);
    waitlist_wake_called(&engine);
    const struct request row = row_of(1, 1);
    end_look(waiter, &row);
    finish_batch();
    cr_assert(waiter_is_woken(waiter));
}

/* P17: a batch decides only the waiters of which it locks all semaphores, so each of them must be woken in time. */
Test(waitlist, waiters_that_seem_to_fit_are_woken_in_rotation)
{
    enum { COUNT = 35 };
    static struct asked asks[COUNT];
    static char keys[COUNT][4];
    struct waiter *waiters[COUNT];
    const struct semaphore row = {.id = 1, .capacity = 10, .in_use = 9, .retired_at = NEVER};
    for (size_t i = 0; i < COUNT; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "k%zu", i);
        ask(&asks[i], keys[i]);
        waiters[i] = park_row(&asks[i], i + 1);
    }
    waitlist_wake_by_row(&engine, &(struct semaphore){.id = 1, .capacity = 10, .in_use = 10, .retired_at = NEVER});
    cr_expect(!waiter_is_woken(waiters[0]));
    for (size_t round = 1; round <= 4; round++) {
        size_t woken = 0;
        waitlist_wake_by_row(&engine, &row);
        for (size_t i = 0; i < COUNT; i++)
            woken += waiter_is_woken(waiters[i]);
        cr_expect_eq(woken, round < 4 ? 10 * round : COUNT);
    }
}

/* The unit is for the third: the others also want one of a semaphore that is full. */
Test(waitlist, waiter_whose_other_semaphore_is_full_does_not_seem_to_fit)
{
    static struct asked one, two, three;
    const struct semaphore full = {.id = 2, .capacity = 1, .in_use = 1, .retired_at = NEVER};
    const struct semaphore free_one = {.id = 1, .capacity = 1, .retired_at = NEVER};
    ask(&one, "k1");
    ask(&two, "k2");
    ask(&three, "k3");
    one.wants[1] = two.wants[1] = (struct want){.semaphore = BYTES("b"), .semaphore_id = 2, .count = 1};
    one.operation.want_count = two.operation.want_count = 2;
    struct waiter *waiters[] = {park_row(&one, 1), park_row(&two, 2), park_row(&three, 3)};
    waitlist_wake_by_row(&engine, &full);
    waitlist_wake_by_row(&engine, &free_one);
    cr_expect(!waiter_is_woken(waiters[0]) && !waiter_is_woken(waiters[1]) && waiter_is_woken(waiters[2]));
}

Test(waitlist, waiter_that_can_never_be_granted_is_woken_by_the_row)
{
    static struct asked one, other;
    ask(&one, "k1");
    ask(&other, "k2");
    other.wants[0].count = 3;
    struct waiter *fits = park_row(&one, 1);
    struct waiter *hopeless = park_row(&other, 2);
    waitlist_wake_by_row(&engine, &(struct semaphore){.id = 1, .capacity = 2, .in_use = 2, .retired_at = NEVER});
    cr_expect(!waiter_is_woken(fits) && waiter_is_woken(hopeless));
    waitlist_wake_by_row(&engine, &(struct semaphore){.id = 1, .capacity = 2, .in_use = 2, .retired_at = 1});
    cr_expect(waiter_is_woken(fits));
}

/* P17: a lock on one semaphore's row may keep all its woken waiters in the queue. */
Test(waitlist, waiters_of_one_semaphore_delay_neither_others_nor_one_with_mail)
{
    enum { MANY = 1000000 };
    static struct asked one, other, mailed;
    ask(&one, "k1");
    ask(&mailed, "k2");
    ask(&other, "k3");
    other.wants[0] = (struct want){.semaphore = BYTES("b"), .semaphore_id = 2, .count = 1};
    struct waiter *waiting = park_row(&one, 1);
    struct waiter *called = park_row(&mailed, 2);
    struct waiter *elsewhere = park_row(&other, 3);
    struct semaphore_entry *entry = semaphore_cache_find(&engine.queue.semaphores, 1);
    entry->woken += MANY;
    called->operation.mailed = true;
    waitlist_wake(&engine, waiting);
    waitlist_wake(&engine, called);
    waitlist_wake(&engine, elsewhere);
    cr_expect(!waiter_is_woken(waiting) && waiter_is_woken(called) && waiter_is_woken(elsewhere));
    entry->woken -= MANY;
    (void)take_batch();
    end_look(called, NULL);
    end_look(elsewhere, NULL);
    finish_batch();
    waitlist_wake_called(&engine);
    cr_expect(waiter_is_woken(waiting)); /* its turn has come */
}

Test(waitlist, mail_is_deleted_by_the_batch_that_asks)
{
    static struct asked one;
    ask(&one, "k1");
    struct waiter *waiter = park_row(&one, 5);
    waiter->operation.mailed = waiter->request_id;
    waitlist_wake(&engine, waiter);
    (void)take_batch();
    cr_assert_eq(waiter->operation.mailed, 5);
    const struct request row = row_of(5, 5);
    end_look(waiter, &row);
    finish_batch();
    waitlist_wake(&engine, waiter);
    (void)take_batch();
    cr_assert_eq(waiter->operation.mailed, 0);
}

/* The wait poll compares: a shrink may have taken away the slots that the waiter named. */
Test(waitlist, place_has_the_settings_of_the_last_batch)
{
    static struct asked one;
    ask(&one, "k1");
    struct waiter *waiter = park_row(&one, 1);
    struct semaphore semaphore = {.id = waiter->places[0].entry->id, .config_version = 7};
    waitlist_record_settings(waiter, &(struct view){.semaphores = &semaphore, .semaphore_count = 1});
    cr_assert_eq(waiter->places[0].config_version, 7);
}

/* A failover lost the row; it was entered again, under another id. */
Test(waitlist, waiter_follows_its_row_to_another_id)
{
    static struct asked one;
    ask(&one, "k1");
    struct waiter *waiter = park_row(&one, 5);
    waitlist_wake(&engine, waiter);
    (void)take_batch();
    cr_assert_eq(waiter->operation.place, 5);
    struct request row = row_of(9, 5);
    end_look(waiter, &row);
    finish_batch();
    cr_assert_null(waiters_find_id(&engine.queue.waiters, 5));
    cr_assert_eq(waiters_find_id(&engine.queue.waiters, 9), waiter);
}

/* This server was declared dead while the batch ran, and has another id. */
Test(waitlist, row_with_an_old_server_id_makes_the_waiter_ask)
{
    static struct asked one;
    ask(&one, "k1");
    atomic_store(&engine.server_id, SERVER + 1);
    struct waiter *waiter = park_row(&one, 1);
    cr_assert(waiter_is_woken(waiter));
}

Test(waitlist, undecided_waiter_asks_again_later)
{
    static struct asked one;
    ask(&one, "k1");
    struct waiter *waiter = park_row(&one, 1);
    waitlist_wake(&engine, waiter);
    (void)take_batch();
    waitlist_retry_later(&engine, waiter, &answered);
    finish_batch();
    cr_assert_eq(count_answered(), 0);
    cr_assert(waiter->wake_at.time < one.op.wait_until);
}

Test(waitlist, waiters_of_a_semaphore_are_in_the_order_of_the_queue)
{
    static struct asked asked[3];
    const uint64_t ids[] = {5, 3, 4};
    char keys[3][4];
    for (size_t i = 0; i < 3; i++) {
        snprintf(keys[i], sizeof keys[i], "k%zu", i);
        ask(&asked[i], keys[i]);
        (void)park_row(&asked[i], ids[i]);
    }
    const struct semaphore_entry *entry = semaphore_cache_find(&engine.queue.semaphores, 1);
    uint64_t id = 3;
    list_for_each (node, next, &entry->waiters)
        cr_assert_eq(LIST_ENTRY(node, struct wait_place, node)->waiter->request_id, id++);
    cr_assert_eq(id, 6);
}

/* ---- limits ---- */

/* Submits an acquire; returns why it may not wait. */
static enum wait_refusal refusal_of_next(struct asked *asked, const char *key)
{
    ask(asked, key);
    asked->operation.owner = BYTES("o1");
    cr_assert_eq(engine_submit(&engine, &asked->op), PERMIT_OK);
    enum wait_mode mode = take_batch();
    cr_assert_eq(mode == WAIT_ASK, asked->op.wait_refusal == WAIT_ALLOWED);
    queue_forget_key(&engine.queue, &asked->op);
    finish_batch();
    return asked->op.wait_refusal;
}

Test(waitlist, limits_keep_an_acquire_from_waiting)
{
    static struct asked one, other;
    ask(&one, "k1");
    one.operation.owner = BYTES("o1");
    (void)park_row(&one, 1);
    cr_expect_eq(refusal_of_next(&other, "k2"), WAIT_ALLOWED);
    op_drop_entries(&other.op);
    engine.settings.max_owner_waiters = 1;
    cr_expect_eq(refusal_of_next(&other, "k2"), WAIT_REFUSED_OWNER);
    op_drop_entries(&other.op);
    engine.settings.max_waiters = 1;
    cr_expect_eq(refusal_of_next(&other, "k2"), WAIT_REFUSED_MAX);
    op_drop_entries(&other.op);
    engine.settings.max_waiters = 2;
    engine.settings.max_owner_waiters = 0;
    engine_end_waits(&engine);
    ask(&other, "k3");
    cr_assert_eq(engine_submit(&engine, &other.op), PERMIT_OK);
    cr_assert(queue_take(&engine.queue, &batch, clock_mono()));
    waitlist_prepare(&engine, &batch);
    cr_expect_eq(operation_wait(batch.ops[0]->operation), WAIT_LAST); /* the waiter's */
    cr_expect_eq(other.op.wait_refusal, WAIT_REFUSED_CLOSED);
    end_look(waiters_find(&engine.queue.waiters, BYTES("k1")), NULL);
    queue_forget_key(&engine.queue, &other.op);
    finish_batch();
    op_drop_entries(&other.op);
}

/* Waiters are woken together, and a batch takes as many as it may name slots. */
Test(waitlist, woken_waiters_that_name_many_slots_ask_in_several_batches)
{
    static struct asked one, other;
    static struct slot_name names[BATCH_MAX_SLOTS / 2 + 1];
    ask(&one, "k1");
    ask(&other, "k2");
    one.wants[0].named = other.wants[0].named = names;
    one.wants[0].named_count = other.wants[0].named_count = ARRAY_LENGTH(names);
    one.op.arrival = 1;
    other.op.arrival = 2;
    struct waiter *first_waiter = park_row(&one, 1);
    waitlist_wake(&engine, first_waiter);
    waitlist_wake(&engine, park_row(&other, 2));
    (void)take_batch();
    cr_assert(batch.op_count == 1 && waiter_of(batch.ops[0]) == first_waiter);
    end_look(first_waiter, NULL);
    finish_batch();
    (void)take_batch();
    cr_assert(batch.op_count == 1 && op_is_of_waiter(batch.ops[0]));
}

/* A batch may add many waiters at once. */
Test(waitlist, limit_of_an_owner_counts_within_a_batch)
{
    static struct asked asked[4];
    const char *keys[] = {"k1", "k2", "k3", "k4"};
    const enum wait_refusal expected[] = {WAIT_ALLOWED, WAIT_ALLOWED, WAIT_REFUSED_OWNER, WAIT_ALLOWED};
    engine.settings.max_owner_waiters = 2;
    for (size_t i = 0; i < 4; i++) {
        ask(&asked[i], keys[i]);
        asked[i].operation.owner = i < 3 ? BYTES("o1") : BYTES("o2");
        cr_assert_eq(engine_submit(&engine, &asked[i].op), PERMIT_OK);
    }
    (void)take_batch();
    for (size_t i = 0; i < 4; i++) {
        cr_expect_eq(asked[i].op.wait_refusal, expected[i], "%s", keys[i]);
        queue_forget_key(&engine.queue, &asked[i].op);
    }
    finish_batch();
    for (size_t i = 0; i < 4; i++)
        op_drop_entries(&asked[i].op);
}

/* It came while the batch that made the waiter ran, so it could not join the waiter. */
Test(waitlist, copy_of_an_acquire_that_waits_here_joins_it_at_any_limit)
{
    static struct asked one, copy;
    ask(&one, "k1");
    ask(&copy, "k1");
    engine.settings.max_waiters = 1;
    cr_assert_eq(engine_submit(&engine, &copy.op), PERMIT_OK);
    struct waiter *waiter = park_row(&one, 1);
    cr_assert_eq(take_batch(), WAIT_ASK);
    cr_expect_eq(copy.op.wait_refusal, WAIT_ALLOWED);
    queue_forget_key(&engine.queue, &copy.op);
    finish_batch();
    cr_expect_eq(park_row(&copy, 1), waiter);
}

/* P20: otherwise it would end the wait of its key at another server. */
Test(waitlist, acquire_without_a_wait_that_joined_a_waiter_asks_for_no_place_later)
{
    static struct asked one, copy;
    struct op *taken;
    ask(&one, "k1");
    ask(&copy, "k1");
    copy.op.wait_until = 0;
    struct waiter *waiter = park_row(&one, 1);
    cr_assert_eq(engine_submit(&engine, &copy.op), PERMIT_OK);
    cr_assert_eq(copy.op.waiter, waiter);
    cr_assert_eq(take_batch(), WAIT_ASK);
    end_look(waiter, NULL);
    finish_batch();
    cr_assert_eq(count_answered(), 2);
    list_remove(&copy.op.node);
    op_resolve_again(&engine, &copy.op);
    cr_assert_eq(queue_take_unresolved(&engine.queue, &taken, 1), 1);
    (void)queue_add(&engine.queue, taken);
    cr_expect_eq(take_batch(), WAIT_NO);
    queue_forget_key(&engine.queue, &copy.op);
    finish_batch();
    op_drop_entries(&copy.op);
}

Test(waitlist, acquires_that_need_the_servers_id_are_resolved_when_it_has_one)
{
    static struct asked one;
    struct op *taken;
    ask(&one, "k1");
    cr_assert_eq(engine_submit(&engine, &one.op), PERMIT_OK);
    (void)take_batch();
    finish_batch();
    queue_await_server_id(&engine.queue, &one.op);
    cr_assert_eq(queue_take_unresolved(&engine.queue, &taken, 1), 0);
    queue_have_server_id(&engine.queue);
    cr_assert_eq(queue_take_unresolved(&engine.queue, &taken, 1), 1);
    queue_forget_key(&engine.queue, &one.op);
}

/* ---- creations ---- */

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
Test(waitlist, later_operation_on_a_key_is_not_refused_by_an_earlier_creation)
{
    const struct template template = {.prefix = BYTES("x"), .settings = {.kind = KIND_SLOTTED}};
    static struct asked one, later;
    struct op *taken[3];
    ask(&one, "k1");
    ask(&later, "k1");
    one.wants[0].semaphore = later.wants[0].semaphore = BYTES("x1");
    one.op.decided = record_status;
    cr_assert_eq(engine_submit(&engine, &one.op), PERMIT_OK);
    cr_assert_eq(engine_submit(&engine, &later.op), PERMIT_OK);
    cr_assert_eq(queue_take_unresolved(&engine.queue, taken, 3), 2);
    cr_assert(template_create_join(&engine, &one.op, BYTES("x1"), &template));
    cr_assert(template_create_follow_key(&engine, &later.op));
    struct op *creation = &one.op.creation->op;
    cr_assert(queue_take(&engine.queue, &batch, clock_mono()));
    cr_assert_eq(batch.ops[0], creation);
    queue_finish(&batch);
    creation->decided(creation, &(struct decision){.status = PERMIT_INVALID, .detail = "kind cannot change"});
    cr_assert_eq(reported_status, PERMIT_INVALID);
    cr_assert(later.op.queued && !later.op.creation);
    cr_assert_eq(queue_take_unresolved(&engine.queue, taken, 3), 1);
    cr_assert_eq(taken[0], &later.op);
    queue_forget_key(&engine.queue, &later.op);
}

/* The wait poll without clients: it sleeps. */
static void *sleep_until_woken(void *woken)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    engine_lock(&engine);
    engine.next_poll_at = clock_mono() + 10LL * US_PER_SECOND;
    *(bool *)woken = engine_wait_until(&engine, &engine.poll_wake, &until) == 0;
    engine_unlock(&engine);
    return NULL;
}

/* P17: from then on permitd polls its mail every wait_poll. */
Test(waitlist, first_waiter_wakes_the_wait_poll)
{
    static struct asked one;
    pthread_t watcher;
    bool woken = false;
    bool sleeps = false;
    ask(&one, "k1");
    pthread_create(&watcher, NULL, sleep_until_woken, &woken);
    while (!sleeps) {
        sched_yield();
        engine_lock(&engine);
        sleeps = engine.next_poll_at > 0;
        if (sleeps)
            (void)park_row(&one, 1);
        engine_unlock(&engine);
    }
    pthread_join(watcher, NULL);
    cr_assert(woken);
}
