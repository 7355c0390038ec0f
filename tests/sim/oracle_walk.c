/* SPDX-License-Identifier: MIT */
/*
 * The all-knowing walk of the queue (P20): decides all waiters of all semaphores by the rows as they are, one after the
 * other in the order of their places, as if one batch had locked everything. It counts units only; a waiter for specific
 * slots makes its semaphores unsure, and so does one whose state the batch may have seen otherwise.
 */
#include "exchange.h"
#include "fake_session.h"
#include "world.h"

enum { WAITERS_MAX = 4096 };

/* The state of a semaphore in the walk. */
struct known {
    int64_t free;
    int64_t confirmed;
    int64_t reserved;
    bool closed; /* paused, out of service, or capacity 0 */
    bool fifo;
    bool shut;   /* fifo: a waiter was passed over */
    bool barred; /* fifo: one that reserves nothing */
    bool unsure; /* a waiter may or may not have taken or reserved units of it */
};

static struct known known[SEMAPHORES_MAX];
static utc_us since; /* the batch has decided at some time from then on */
static const struct db_key *sorted[WAITERS_MAX];
static size_t sorted_count;

static int compare_sorted(const void *a, const void *b)
{
    return request_compare_places(&(*(const struct db_key *const *)a)->row.request,
                                  &(*(const struct db_key *const *)b)->row.request);
}

/* Collects the waiters that clients ask for, in the order of their places. */
static void sort_waiters(void)
{
    sorted_count = 0;
    for (size_t i = 0; i < database.waiting_count && sorted_count < WAITERS_MAX; i++)
        if (queue_is_asked(database.waiting[i]) && database.waiting[i]->story)
            sorted[sorted_count++] = database.waiting[i];
    if (sorted_count)
        qsort(sorted, sorted_count, sizeof *sorted, compare_sorted);
}

static struct known *known_of(const struct db_semaphore *semaphore)
{
    return &known[semaphore - database.semaphores];
}

static void look_at_rows(utc_us now)
{
    for (size_t i = 0; i < database.semaphore_count; i++) {
        const struct db_semaphore_row *row = &database.semaphores[i].row;
        known[i] = (struct known){.free = row->semaphore.capacity - row->semaphore.in_use,
                                  .closed = !row_in_service(row) || row->semaphore.paused_reason.data ||
                                            row->semaphore.capacity == 0,
                                  .fifo = row->semaphore.queue == QUEUE_FIFO};
    }
    for (size_t i = 0; i < database.held_count; i++) {
        const struct request *request = &database.held[i]->row.request;
        for (size_t j = 0; j < request->permit_count; j++) {
            const struct db_semaphore *semaphore = database_semaphore(request->permits[j].semaphore_id);
            if (request->confirmed_at != NEVER)
                known_of(semaphore)->confirmed += request->permits[j].count;
            if (request->due_at <= now) /* a batch may end it for a waiter */
                known_of(semaphore)->unsure = true;
        }
    }
}

static bool fits(const struct story *story)
{
    for (size_t i = 0; i < story->want_count; i++) {
        const struct known *semaphore = known_of(story->semaphores[i]);
        if (semaphore->closed || semaphore->shut || semaphore->free - semaphore->reserved < story->wants[i].count)
            return false;
    }
    return true;
}

static bool is_unsure(const struct story *story)
{
    for (size_t i = 0; i < story->want_count; i++)
        if (known_of(story->semaphores[i])->unsure)
            return true;
    return false;
}

static void make_unsure(const struct story *story)
{
    for (size_t i = 0; i < story->want_count; i++)
        known_of(story->semaphores[i])->unsure = true;
}

/*
 * A waiter on a closed semaphore, or with a want that can never be granted, is in nobody's way. Of specific slots only a
 * batch that locks the semaphore knows that.
 */
static bool is_aside(const struct story *story)
{
    for (size_t i = 0; i < story->want_count; i++) {
        const struct want *want = &story->wants[i];
        bool unsatisfiable = want_is_unsatisfiable(want, &story->semaphores[i]->row);
        if (known_of(story->semaphores[i])->closed || (unsatisfiable && !want_is_specific(want)))
            return true;
    }
    return false;
}

/* Decides one waiter. */
static void walk_one(const struct db_key *key, utc_us now)
{
    const struct story *story = key->story;
    bool reserves = now - key->row.request.waiting_since >= profile.backfill_bound_ms * US_PER_MS;
    if (is_aside(story))
        return;
    if (fits(story)) {
        for (size_t i = 0; i < story->want_count; i++)
            known_of(story->semaphores[i])->free -= story->wants[i].count;
        return;
    }
    for (size_t i = 0; i < story->want_count; i++) {
        const struct known *semaphore = known_of(story->semaphores[i]);
        int64_t room = story->semaphores[i]->row.semaphore.capacity - semaphore->confirmed;
        if (semaphore->barred || semaphore->reserved + story->wants[i].count > room)
            reserves = false;
    }
    for (size_t i = 0; i < story->want_count; i++) {
        struct known *semaphore = known_of(story->semaphores[i]);
        semaphore->reserved += reserves ? story->wants[i].count : 0;
        semaphore->shut |= semaphore->fifo;
        semaphore->barred |= semaphore->fifo && !reserves;
    }
}

/* True if it is not known how a batch has seen this waiter. */
static bool is_unclear(const struct transaction *transaction, const struct db_key *key)
{
    const struct story *story = key->story;
    const struct request_row *before = transaction ? database_before(key) : NULL;
    utc_us protected_at = key->row.request.waiting_since + profile.backfill_bound_ms * US_PER_MS;
    /* A packet begins in the database after its plan was made. */
    mono_us seen_at = transaction ? min_i64(transaction->began_at, transaction->planned_at) : sim_now();
    if (protected_at >= since && protected_at <= lease_time(&database.globals.clock, database_now()))
        return true;
    if (story->lost || story_is_specific(story) || key->row.request.ttl_ms == TTL_BY_OWNER || is_unsure(story) ||
        !queue_has_client(key, seen_at))
        return true;
    if (before && (!row_is_waiting(before) || before->request.server_id != key->row.request.server_id ||
                   before->request.waiting_until != key->row.request.waiting_until))
        return true; /* it was entered, or asked for, in this commit */
    if (transaction && key->row.request.waiting_until <= transaction->read_time)
        return true;
    for (size_t i = 0; transaction && i < story->want_count; i++) {
        const struct db_semaphore *semaphore = story->semaphores[i];
        if (semaphore->lock.holder != transaction && semaphore->changed_at >= transaction->read_at)
            return true; /* changed after the batch had read it plainly */
    }
    return false;
}

/* The number of waiters before it in a queue of it. */
static size_t rank_of(size_t at)
{
    size_t rank = 0;
    for (size_t i = 0; i < at; i++)
        for (size_t j = 0; j < sorted[i]->row.place_count; j++)
            if (row_place(&sorted[at]->row, sorted[i]->row.places[j].semaphore_id)) {
                rank++;
                break;
            }
    return rank;
}

/* Walks along all waiters that stand before the place; `except` is not one of them. */
static void walk_to(const struct transaction *transaction, const struct db_key *except, utc_us place, uint64_t id,
                    utc_us now)
{
    for (size_t i = 0; i < sorted_count; i++) {
        const struct request *request = &sorted[i]->row.request;
        bool young = now - request->waiting_since < profile.backfill_bound_ms * US_PER_MS;
        if (place_compare(request->place, request->id, place, id) >= 0)
            return;
        if (sorted[i] == except)
            continue;
        bool unread = young && fake_queue_read_max < QUEUE_READ_MAX && rank_of(i) >= fake_queue_read_max;
        if (!is_aside(sorted[i]->story) && (unread || is_unclear(transaction, sorted[i])))
            make_unsure(sorted[i]->story);
        else
            walk_one(sorted[i], now);
    }
}

static bool has_waited(const struct request *request)
{
    return request->waiting_since && request->waiting_since != NEVER;
}

/*
 * Takes back what the commit has granted to other new requests: these are decided after the waiters, in the order in
 * which they come, and by their priority they may stand before others.
 */
static void return_new_grants(const struct transaction *transaction, const struct db_key *except)
{
    const struct changes *changes = transaction->changes;
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct db_key *other = database_key(changes->requests[i].request->external_id);
        const struct request *request = &other->row.request;
        bool is_new = changes->requests[i].insert && row_is_held(&other->row) && !has_waited(request);
        for (size_t j = 0; is_new && other != except && j < request->permit_count; j++)
            known_of(database_semaphore(request->permits[j].semaphore_id))->free += request->permits[j].count;
    }
}

/* A waiter that leaves by this commit may have stood in the way of others when the grant was decided. */
static void excuse_leavers(const struct transaction *transaction)
{
    const struct changes *changes = transaction->changes;
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct db_key *other = database_key(changes->requests[i].request->external_id);
        const struct request_row *before = database_before(other);
        bool left = before && row_is_waiting(before) && !row_is_waiting(&other->row) && !row_is_held(&other->row);
        if (left && other->story)
            make_unsure(other->story);
    }
}

/*
 * The place at which a grant was judged. A new request has that of its entry now, by the highest priority that a client
 * asks for; one that has left may have asked with another.
 */
static utc_us place_of_grant(const struct transaction *transaction, const struct db_key *key)
{
    const struct request *request = &key->row.request;
    if (has_waited(request))
        return request->place;
    int64_t step_us = INT64_MAX;
    int priority = key->story->unknown || key->story->left_at ? PRIORITY_MAX : 0;
    for (const struct list *node = key->story->acquires.next; node != &key->story->acquires; node = node->next) {
        const struct call *call = LIST_ENTRY(node, struct call, of_key);
        priority = call->operation.priority > priority ? call->operation.priority : priority;
    }
    for (size_t i = 0; i < key->story->want_count; i++)
        step_us = min_i64(step_us, semaphore_priority_step_us(&key->story->semaphores[i]->row.semaphore));
    return transaction->read_time - priority * step_us;
}

void walk_check_grant(const struct transaction *transaction, const struct db_key *key)
{
    const struct story *story = key->story;
    const struct request *request = &key->row.request;
    utc_us now = transaction->read_time;
    if (story->lost || story_is_specific(story) || request->permit_count != story->want_count)
        return;
    since = now;
    sort_waiters();
    look_at_rows(now);
    return_new_grants(transaction, key);
    excuse_leavers(transaction);
    for (size_t i = 0; i < story->want_count; i++)
        known_of(story->semaphores[i])->free += story->wants[i].count;
    bool waited = has_waited(request);
    walk_to(transaction, key, place_of_grant(transaction, key), waited ? request->id : UINT64_MAX, now);
    if (is_unsure(story))
        return;
    counts.order_judged++;
    if (!fits(story))
        violation("P20", "%s is granted, and takes what a waiter before it needs or has reserved", key->text);
}

/* True if the commit has granted units to others, or freed them, beside the exchange. */
static bool is_mixed(const struct transaction *transaction, const struct db_key *key)
{
    const struct changes *changes = transaction->changes;
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct db_key *other = database_key(changes->requests[i].request->external_id);
        const struct request_row *before = database_before(other);
        if (other != key && before && (row_is_held(&other->row) || row_is_held(before)))
            return true;
    }
    return false;
}

/*
 * P20: what an exchange takes beyond what it gives back of the same semaphore is nothing that a waiter needs. Judged if
 * the commit has decided about nothing else.
 */
void walk_check_exchange(const struct transaction *transaction, const struct db_key *key,
                         const struct exchange *exchange)
{
    utc_us now = transaction->read_time;
    if (key->story->lost || is_mixed(transaction, key))
        return;
    since = now;
    sort_waiters();
    look_at_rows(now);
    for (size_t i = 0; i < exchange->taken_count; i++)
        known_of(database_semaphore_named(exchange->taken[i].semaphore))->free += exchange->taken[i].count;
    for (size_t i = 0; i < exchange->given_count; i++)
        known_of(database_semaphore_named(exchange->given[i].semaphore))->free -= exchange->given[i].count;
    walk_to(transaction, key, now, UINT64_MAX, now);
    for (size_t i = 0; i < exchange->taken_count; i++) {
        const struct want *taken = &exchange->taken[i];
        const struct known *semaphore = known_of(database_semaphore_named(taken->semaphore));
        int64_t own = exchange_gives(exchange, taken->semaphore);
        if (taken->count <= own || semaphore->unsure)
            continue;
        counts.order_judged++;
        if (semaphore->closed || semaphore->shut || semaphore->free + own - semaphore->reserved < taken->count)
            violation("P20", "%s takes by an exchange what a waiter before it needs or has reserved", key->text);
    }
}

bool walk_would_grant(const struct db_key *key)
{
    utc_us now = lease_time(&database.globals.clock, database_now());
    since = now;
    sort_waiters();
    look_at_rows(now);
    walk_to(NULL, key, key->row.request.place, key->row.request.id, now);
    return !is_unsure(key->story) && !is_aside(key->story) && fits(key->story);
}

void walk_check_refusal(const struct call *call)
{
    const struct story *story = call->story;
    utc_us now = lease_time(&database.globals.clock, database_now());
    int64_t step_us = INT64_MAX;
    if (call->wait_until || story->key->row.exists || story_is_specific(story) ||
        database.committed_at >= call->sent_at || database.globals.grants_from > now)
        return;
    for (size_t i = 0; i < story->want_count; i++)
        step_us = min_i64(step_us, semaphore_priority_step_us(&story->semaphores[i]->row.semaphore));
    since = now - (sim_now() - call->sent_at);
    sort_waiters();
    look_at_rows(now);
    walk_to(NULL, story->key, now - call->operation.priority * step_us, UINT64_MAX, now);
    if (is_unsure(story))
        return;
    counts.refusals_judged++;
    if (!is_aside(story) && fits(story))
        violation("P20", "%s is refused, although it takes nothing that a waiter before it needs or has reserved",
                  story->key->text);
}
