/* SPDX-License-Identifier: MIT */
#include "engine/waitlist.h"

#include <assert.h>
#include <stdlib.h>

enum {
    DUE_AGAIN_US = 100000,             /* due holders that have not ended are checked again after this time */
    KEPT_MAX = 10000,                  /* waiters without clients; further ones are freed immediately */
    NAMED_KEPT_MAX = 16 * 1024 * 1024, /* bytes; above this, no waiter that names slots is kept without clients */
};

void waiters_init(struct waiters *waiters)
{
    *waiters = (struct waiters){0};
    list_init(&waiters->all);
    list_init(&waiters->entries);
}

void waiters_release(struct waiters *waiters)
{
    list_for_each (node, next, &waiters->all)
        waiters_remove(waiters, LIST_ENTRY(node, struct waiter, node));
    map_release(&waiters->by_key);
    heap_release(&waiters->wait_ends);
    heap_release(&waiters->dues);
}

struct waiter *waiters_find(const struct waiters *waiters, struct bytes external_id)
{
    struct map_node *node = waiters->by_key.count ? map_find(&waiters->by_key, external_id) : NULL;
    return node ? MAP_ENTRY(node, struct waiter, by_key) : NULL;
}

/* ---- a waiter and its places ---- */

static size_t strings_size(const struct operation *operation)
{
    size_t size = operation->external_id.length + operation->owner.length + operation->principal.length;
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct want *want = &operation->wants[i];
        size += want->semaphore.length;
        for (size_t j = 0; j < want->named_count; j++)
            size += want->named[j].label.length;
    }
    return size;
}

static size_t named_count(const struct operation *operation)
{
    size_t count = 0;
    for (size_t i = 0; i < operation->want_count; i++)
        count += operation->wants[i].named_count;
    return count;
}

static struct bytes copy_string(char **at, struct bytes string)
{
    struct bytes copy = {*at, string.length};
    if (string.length)
        memcpy(*at, string.data, string.length);
    *at += string.length;
    return copy;
}

/* Copies a want; its slots go to *named and its strings to *at, which both advance. */
static struct want copy_want(struct slot_name **named, char **at, const struct want *asked)
{
    struct want want = *asked;
    want.semaphore = copy_string(at, asked->semaphore);
    want.named = *named;
    for (size_t i = 0; i < asked->named_count; i++) {
        want.named[i] = asked->named[i];
        if (asked->named[i].label.data)
            want.named[i].label = copy_string(at, asked->named[i].label);
    }
    *named += asked->named_count;
    return want;
}

static int compare_places(const void *a, const void *b)
{
    return compare_u64(&((const struct wait_place *)a)->entry->id, &((const struct wait_place *)b)->entry->id);
}

/*
 * Creates a waiter with copies of the operation of the op; it is in no list yet. NULL: out of memory, or unknown
 * semaphore.
 */
static struct waiter *waiter_new(struct semaphore_cache *cache, const struct op *op)
{
    const struct operation *asked = op->operation;
    size_t count = asked->want_count;
    size_t fixed = sizeof(struct waiter) + count * (sizeof(struct wait_place) + sizeof(struct want)) +
                   named_count(asked) * sizeof(struct slot_name);
    struct waiter *waiter = malloc(fixed + strings_size(asked));
    if (!waiter)
        return NULL;
    *waiter = (struct waiter){
        .operation = *asked, .place_count = count, .is_specific = wants_are_specific(asked->wants, count)};
    waiter->named_size = wants_named_size(asked->wants, count);
    struct operation *operation = &waiter->operation;
    char *at = (char *)waiter + fixed;
    operation->wants = (struct want *)(waiter->places + count);
    struct slot_name *named = (struct slot_name *)(operation->wants + count);
    operation->external_id = copy_string(&at, asked->external_id);
    operation->owner = copy_string(&at, asked->owner);
    operation->principal = copy_string(&at, asked->principal);
    operation->nonce = (struct bytes){0}; /* until waiter_take_nonce */
    for (size_t i = 0; i < count; i++) {
        operation->wants[i] = copy_want(&named, &at, &asked->wants[i]);
        waiter->places[i] = (struct wait_place){.waiter = waiter,
                                                .entry = semaphore_cache_find(cache, asked->wants[i].semaphore_id),
                                                .count = asked->wants[i].count};
        list_init(&waiter->places[i].node);
        if (waiter->places[i].entry)
            continue;
        free(waiter);
        return NULL;
    }
    qsort(waiter->places, count, sizeof *waiter->places, compare_places);
    list_init(&waiter->node);
    list_init(&waiter->clients);
    return waiter;
}

/* Adds the place to the waitlist of its semaphore in order of arrival, nearly always at the end. */
static void join_waitlist(struct waiters *waiters, struct wait_place *place)
{
    struct semaphore_entry *entry = place->entry;
    struct list *at = &entry->waiters;
    while (at->prev != &entry->waiters &&
           LIST_ENTRY(at->prev, struct wait_place, node)->waiter->op.arrival > place->waiter->op.arrival)
        at = at->prev;
    list_insert_before(at, &place->node);
    entry->specific_count += place->waiter->is_specific;
    if (!list_empty(&entry->waited_for))
        return;
    list_append(&waiters->entries, &entry->waited_for);
    waiters->entry_count++;
    (void)!heap_add(&waiters->dues, &entry->due,
                    min_i64(entry->due_at, entry->wake_at)); /* out of memory: the expiry task must suffice */
}

/* Removes the place from the waitlist of its semaphore. */
static void leave_waitlist(struct waiters *waiters, struct wait_place *place)
{
    struct semaphore_entry *entry = place->entry;
    assert(!list_empty(&place->node));
    list_remove(&place->node);
    entry->specific_count -= place->waiter->is_specific;
    if (!list_empty(&entry->waiters))
        return;
    list_remove(&entry->waited_for);
    waiters->entry_count--;
    heap_remove(&waiters->dues, &entry->due);
}

/*
 * Updates the counts when the first client joins (`asked`) or the last one leaves. A waiter without clients blocks no
 * other, so free units become uncertain.
 */
static void update_counts(struct waiters *waiters, struct waiter *waiter, bool asked)
{
    assert(asked ? waiters->kept > 0 : waiters->count > 0);
    waiters->count += asked ? 1 : (size_t)-1;
    waiters->kept -= asked ? 1 : (size_t)-1;
    for (size_t i = 0; i < waiter->place_count; i++) {
        struct semaphore_entry *entry = waiter->places[i].entry;
        assert(asked || entry->waiter_count > 0);
        entry->waiter_count += asked ? 1 : (size_t)-1;
        if (!asked && entry->free_units > 0)
            entry->free_units_uncertain = true;
    }
}

void waiter_record_refusal(struct waiter *waiter)
{
    bool behind = waiter->operation.queue_rank == RANK_BEHIND;
    for (size_t i = 0; i < waiter->place_count; i++) {
        struct semaphore_entry *entry = waiter->places[i].entry;
        waiter->places[i].refused_at = behind ? entry->taken_version : entry->version;
    }
}

struct waiter *waiters_add(struct waiters *waiters, struct semaphore_cache *cache, struct op *op, mono_us now)
{
    assert(!waiters_find(waiters, op->operation->external_id));
    struct waiter *waiter = waiter_new(cache, op);
    if (!waiter)
        return NULL;
    waiter->op.operation = &waiter->operation;
    waiter->op.arrival = op->arrival;
    waiter->op.is_waiter_op = true;
    waiter->since = op->arrived_at;
    list_init(&waiter->op.node);
    if (!map_insert(&waiters->by_key, &waiter->by_key, waiter->operation.external_id))
        goto err_made;
    if (!heap_add(&waiters->wait_ends, &waiter->wait_end, now))
        goto err_inserted;
    struct list *at = &waiters->all;
    while (at->prev != &waiters->all && LIST_ENTRY(at->prev, struct waiter, node)->op.arrival > op->arrival)
        at = at->prev;
    list_insert_before(at, &waiter->node);
    waiter_record_refusal(waiter);
    for (size_t i = 0; i < waiter->place_count; i++)
        join_waitlist(waiters, &waiter->places[i]);
    waiters->kept++;
    waiters->named_size += waiter->named_size;
    waiters_add_client(waiters, waiter, op);
    return waiter;

err_inserted:
    map_remove(&waiters->by_key, &waiter->by_key);
err_made:
    free(waiter);
    return NULL;
}

void waiters_remove(struct waiters *waiters, struct waiter *waiter)
{
    assert(!waiter_has_clients(waiter) && waiters->kept > 0);
    for (size_t i = 0; i < waiter->place_count; i++)
        leave_waitlist(waiters, &waiter->places[i]);
    heap_remove(&waiters->wait_ends, &waiter->wait_end);
    map_remove(&waiters->by_key, &waiter->by_key);
    list_remove(&waiter->node);
    waiters->kept--;
    waiters->named_size -= waiter->named_size;
    free(waiter);
}

/* ---- clients ---- */

void waiters_add_client(struct waiters *waiters, struct waiter *waiter, struct op *op)
{
    assert(!op->waiter && !op->queued);
    if (!waiter_has_clients(waiter))
        update_counts(waiters, waiter, true);
    list_append(&waiter->clients, &op->node);
    op->waiter = waiter;
    waiter->op.deadline = op->deadline > waiter->op.deadline ? op->deadline : waiter->op.deadline;
    if (waiter->woken && stage_is_sent(&waiter->op.stage))
        (void)!stage_send(&op->stage); /* cannot fail: it joins now, and is not answered */
    waiters_schedule(waiters, waiter, 0);
}

void waiter_take_nonce(struct waiter *waiter)
{
    if (!waiter_has_clients(waiter))
        return;
    struct bytes nonce = LIST_ENTRY(waiter->clients.next, struct op, node)->operation->nonce;
    if (nonce.length)
        memcpy(waiter->nonce, nonce.data, nonce.length);
    waiter->operation.nonce = (struct bytes){waiter->nonce, nonce.length};
}

mono_us waiter_wait_end(const struct waiter *waiter)
{
    mono_us first = NEVER;
    list_for_each (node, next, &waiter->clients)
        first = min_i64(first, LIST_ENTRY(node, struct op, node)->wait_until);
    return first;
}

/* Returns true if the waiter may be kept without clients. */
static bool may_keep_without_clients(const struct waiters *waiters, const struct waiter *waiter)
{
    return waiters->kept <= KEPT_MAX && (!waiter->named_size || waiters->named_size <= NAMED_KEPT_MAX);
}

void waiters_schedule(struct waiters *waiters, struct waiter *waiter, mono_us keep_until)
{
    if (waiter_has_clients(waiter))
        heap_move(&waiters->wait_ends, &waiter->wait_end, waiter_wait_end(waiter));
    else if (waiter->woken || (keep_until && may_keep_without_clients(waiters, waiter)))
        heap_move(&waiters->wait_ends, &waiter->wait_end, keep_until);
    else
        waiters_remove(waiters, waiter);
}

void waiters_remove_client(struct waiters *waiters, struct op *op, mono_us keep_until)
{
    struct waiter *waiter = op->waiter;
    assert(waiter);
    list_remove(&op->node);
    op->waiter = NULL;
    if (!waiter_has_clients(waiter))
        update_counts(waiters, waiter, false);
    waiters_schedule(waiters, waiter, keep_until);
}

void waiters_take_clients(struct waiters *waiters, struct waiter *waiter, mono_us until, struct list *ret_answered)
{
    bool asked = waiter_has_clients(waiter);
    list_for_each (node, next, &waiter->clients) {
        struct op *op = LIST_ENTRY(node, struct op, node);
        if (op->wait_until > until)
            continue;
        list_remove(node);
        list_append(ret_answered, node);
        op->waiter = NULL;
    }
    if (asked && !waiter_has_clients(waiter))
        update_counts(waiters, waiter, false);
}

/* ---- free units ---- */

static void schedule_due(struct waiters *waiters, struct semaphore_entry *entry)
{
    if (entry->due.place)
        heap_move(&waiters->dues, &entry->due, min_i64(entry->due_at, entry->wake_at));
}

void waiters_wake_at(struct waiters *waiters, struct semaphore_entry *entry, mono_us at)
{
    entry->wake_at = min_i64(entry->wake_at, at);
    schedule_due(waiters, entry);
}

void waiters_clear_wake(struct waiters *waiters, struct semaphore_entry *entry)
{
    entry->due_at = entry->wake_at = NEVER;
    schedule_due(waiters, entry);
    waiters_mark_uncertain(entry);
}

/*
 * Wakes immediately the waiters that can never be granted, because the semaphore is retired or too small, so that they
 * are answered.
 */
static void wake_unsatisfiable(struct waiters *waiters, struct semaphore_entry *entry, bool retired, mono_us now)
{
    list_for_each (node, next, &entry->waiters) {
        struct wait_place *place = LIST_ENTRY(node, struct wait_place, node);
        bool unsatisfiable = retired || (entry->row.capacity > 0 && place->count > entry->row.capacity);
        if (unsatisfiable && waiter_has_clients(place->waiter))
            heap_move(&waiters->wait_ends, &place->waiter->wait_end, now);
    }
}

/* Schedules a wake at the other semaphores of its waiters, where these no longer block waiters that fit. */
static void wake_unblocked(struct waiters *waiters, struct semaphore_entry *entry, mono_us now)
{
    list_for_each (node, next, &entry->waiters) {
        struct waiter *waiter = LIST_ENTRY(node, struct wait_place, node)->waiter;
        for (size_t i = 0; i < waiter->place_count; i++)
            if (waiter->places[i].entry != entry)
                waiters_wake_at(waiters, waiter->places[i].entry, now);
    }
}

void waiters_update_row(struct waiters *waiters, struct semaphore_entry *entry, const struct semaphore *row,
                        mono_us due_at, mono_us now)
{
    bool retired = row->retired_at != NEVER;
    bool changed =
        row->capacity != entry->row.capacity || retired; /* also from 0, at which an acquire of any count waits */
    entry->version = row->version;
    entry->row = *row;
    entry->row.name = entry->row.note = entry->row.paused_reason = (struct bytes){0}; /* they are the caller's */
    entry->free_units = row->paused_reason.data ? 0 : row->capacity - row->in_use;
    bool was_closed = entry->closed;
    entry->closed = row->paused_reason.data || row->capacity == 0;
    entry->due_at = due_at <= now ? now + DUE_AGAIN_US : due_at;
    if (list_empty(&entry->waiters))
        return;
    schedule_due(waiters, entry);
    if (changed)
        wake_unsatisfiable(waiters, entry, retired, now);
    if (entry->closed && !was_closed)
        wake_unblocked(waiters, entry, now);
}

void waiters_mark_uncertain(struct semaphore_entry *entry)
{
    entry->free_units_uncertain = true;
}

bool waiter_is_aged(const struct waiter *waiter, mono_us aged_since)
{
    return waiter->since <= aged_since;
}

/*
 * A waiter on a paused semaphore, or on one with capacity 0, blocks no other waiter; nor does a waiter for specific
 * slots.
 */
bool waiter_blocks_others(const struct waiter *waiter, const struct semaphore_entry *entry, mono_us aged_since)
{
    if (waiter->is_specific)
        return false;
    for (size_t i = 0; i < waiter->place_count; i++)
        if (waiter->places[i].entry->closed)
            return false;
    return entry->row.queue == QUEUE_FIFO || waiter_is_aged(waiter, aged_since);
}

static const struct want *want_of(const struct waiter *waiter, const struct semaphore_entry *entry)
{
    const struct want *want = waiter->operation.wants;
    while (want->semaphore_id != entry->id)
        want++;
    assert(want < waiter->operation.wants + waiter->operation.want_count);
    return want;
}

bool waiter_can_use(const struct waiter *waiter, const struct semaphore_entry *entry, const struct permit *freed)
{
    const struct want *want = want_of(waiter, entry);
    if (want->choice == CHOOSE_LOWEST)
        return true;
    for (uint32_t i = 0; i < freed->slots.count; i++)
        if ((entry->version && freed->slots.numbers[i] > entry->row.capacity) ||
            want_names_slot(want, freed->slots.numbers[i], freed->labels ? freed->labels[i] : (struct bytes){0}))
            return true;
    return false;
}

static bool may_fit(const struct waiter *waiter)
{
    for (size_t i = 0; i < waiter->place_count; i++) {
        const struct semaphore_entry *entry = waiter->places[i].entry;
        if (!entry->free_units_uncertain && waiter->places[i].count > entry->free_units)
            return false;
    }
    return true;
}

static bool has_news(const struct waiter *waiter)
{
    for (size_t i = 0; i < waiter->place_count; i++)
        if (waiter->places[i].entry->free_units_uncertain ||
            waiter->places[i].entry->version != waiter->places[i].refused_at)
            return true;
    return false;
}

struct waiter *waiters_next(const struct semaphore_entry *entry, mono_us aged_since)
{
    if (entry->free_units <= 0 && !entry->free_units_uncertain)
        return NULL;
    list_for_each (node, next, &entry->waiters) {
        struct waiter *waiter = LIST_ENTRY(node, struct wait_place, node)->waiter;
        if (!waiter_has_clients(waiter) || waiter->is_specific)
            continue;
        if (waiter->woken)
            return NULL; /* its batch is first, and the waiters behind it join that batch */
        if (may_fit(waiter) && has_news(waiter))
            return waiter;
        if (waiter_blocks_others(waiter, entry, aged_since))
            return NULL;
    }
    return NULL;
}
