/* SPDX-License-Identifier: MIT */
/*
 * Waiters that join a batch: the transaction that frees units also grants them. The semaphore cache has the units free
 * after the last batch; the key cache has the units that each release frees. Waiters that may fit into the sum join the
 * batch in order of arrival. The other waiters stay out, and their keys are not read: in a crowd nearly all of them.
 * Cached values are hints; the plan decides under the locks.
 */
#include <assert.h>
#include <stdlib.h>

#include "engine/queue.h"

/* Sets the units for waiters of this semaphore, and clears the state of the last batch. */
static void reset_credit(struct semaphore_entry *entry)
{
    entry->units_for_waiters = entry->free_units_uncertain ? INT64_MAX / 2 : max_i64(0, entry->free_units);
    entry->units_spent_before = 0;
    entry->free_units_uncertain = false;
    entry->waiter_skipped = entry->freeing = false;
    entry->taken_version = entry->version;
}

/* Adds the units that the end of a request frees: the exact number if the key cache has it, else 1 per semaphore. */
static void add_freed(struct queue *queue, const struct batch *batch, const struct op *op)
{
    const struct key_entry *cached = key_cache_find(&queue->key_cache, op->operation->external_id);
    for (size_t i = 0; i < op->entry_count; i++)
        if (op->entries[i]->prelock_holder == batch) {
            op->entries[i]->freeing = true;
            op->entries[i]->units_for_waiters += !cached;
        }
    for (size_t i = 0; cached && i < cached->count; i++) {
        struct semaphore_entry *entry = semaphore_cache_find(&queue->semaphores, cached->shares[i].semaphore_id);
        if (entry && entry->prelock_holder == batch)
            entry->units_for_waiters += max_i64(1, cached->shares[i].count);
    }
}

/* Spends the units of a waiter at all its semaphores, so that no other waiter joins for the same units. */
static void spend_credit(const struct waiter *waiter)
{
    for (size_t i = 0; i < waiter->place_count; i++) {
        waiter->places[i].entry->units_for_waiters -= waiter->places[i].count;
        waiter->places[i].entry->units_spent_before += waiter->places[i].count;
    }
}

/* Returns true if the waiter may fit at all its semaphores. */
static bool fits(const struct batch *batch, const struct waiter *waiter)
{
    for (size_t i = 0; i < waiter->place_count; i++) {
        const struct semaphore_entry *entry = waiter->places[i].entry;
        int64_t available = entry->prelock_holder == batch ? entry->units_for_waiters
                            : entry->free_units_uncertain  ? INT64_MAX
                                                           : entry->free_units;
        if (waiter->places[i].count > available)
            return false;
    }
    return true;
}

/*
 * Returns true if the batch can take the pre-locks of the waiter. Ignores reservations of pre-locks that the batch
 * holds.
 */
static bool can_lock(const struct queue *queue, const struct batch *batch, const struct waiter *waiter)
{
    size_t more = 0;
    for (size_t i = 0; i < waiter->place_count; i++) {
        const struct semaphore_entry *entry = waiter->places[i].entry;
        if (entry->prelock_holder == batch)
            continue;
        if (entry->prelock_holder || entry->reserved == queue->pass)
            return false;
        more++;
    }
    return batch->entry_count + more <= BATCH_MAX_SEMAPHORES;
}

/*
 * Wakes a waiter and moves it to the batch. False: the batch is full, or cannot take all its semaphores; the waiter
 * stays woken for a later batch.
 */
static bool add_waiter(struct queue *queue, struct batch *batch, struct waiter *waiter)
{
    queue_wake(queue, waiter);
    if (!waiter->woken || !can_lock(queue, batch, waiter) || !batch_has_slots_for(batch, &waiter->op))
        return false;
    size_t known = batch->entry_count;
    queue_take_out(queue, &waiter->op);
    batch_add(batch, &waiter->op);
    for (size_t i = known; i < batch->entry_count; i++)
        reset_credit(batch->entries[i]);
    if (!waiter->is_specific)
        spend_credit(waiter);
    return true;
}

/*
 * Adds the first waiters for specific slots of a semaphore on which a request ends in the batch, so that no new request
 * of the batch takes the slot that they wait for. The end of the batch wakes the others.
 */
static void add_specific(struct queue *queue, struct batch *batch, struct semaphore_entry *entry)
{
    size_t taken = 0;
    list_for_each (node, next, &entry->waiters) {
        struct waiter *waiter = LIST_ENTRY(node, struct wait_place, node)->waiter;
        if (!waiter->is_specific || !waiter_has_clients(waiter) || waiter->woken)
            continue;
        if (taken++ == BATCH_MAX_WAITERS || batch->op_count == BATCH_MAX_OPERATIONS)
            return;
        (void)add_waiter(queue, batch, waiter);
    }
}

/*
 * Adds the waiters of one semaphore in queue order, until the free units are spent or a waiter blocks all behind it.
 * The units of a waiter that is in the batch already are deducted at its place in the order, not before.
 */
static void add_from_waitlist(struct queue *queue, struct batch *batch, struct semaphore_entry *entry,
                              mono_us aged_since)
{
    size_t taken = 0;
    entry->units_for_waiters += entry->units_spent_before;
    list_for_each (node, next, &entry->waiters) {
        struct wait_place *place = LIST_ENTRY(node, struct wait_place, node);
        struct waiter *waiter = place->waiter;
        assert(next == &entry->waiters ||
               waiter->op.arrival <= LIST_ENTRY(next, struct wait_place, node)->waiter->op.arrival);
        if (!waiter_has_clients(waiter) || waiter->is_specific)
            continue;
        if (waiter->woken && !waiter->op.queued) {
            entry->units_for_waiters -= place->count;
            continue;
        }
        bool full =
            entry->units_for_waiters <= 0 || taken == BATCH_MAX_WAITERS || batch->op_count == BATCH_MAX_OPERATIONS;
        entry->waiter_skipped =
            full || waiter->woken; /* woken but not in the batch: another of its semaphores is locked */
        if (!entry->waiter_skipped && fits(batch, waiter)) {
            entry->waiter_skipped = !add_waiter(queue, batch, waiter);
            taken++;
        } else if (!entry->waiter_skipped) {
            entry->waiter_skipped =
                waiter_blocks_others(waiter, entry, aged_since); /* else waiters that fit may pass it */
        }
        entry->skipped_arrival = waiter->op.arrival;
        if (entry->waiter_skipped)
            return;
    }
}

/* Returns true if the acquire requests units of this semaphore. An op may need it only for due holders or its key. */
static bool wants_of(const struct op *op, const struct semaphore_entry *entry)
{
    for (size_t i = 0; i < op->operation->want_count; i++)
        if (op->operation->wants[i].semaphore_id == entry->id)
            return true;
    return false;
}

/* Returns true if a waiter with clients, which arrived later, waits for one of the semaphores of the op. */
static bool was_overtaken(const struct op *op)
{
    for (size_t i = 0; i < op->entry_count; i++) {
        const struct list *places = &op->entries[i]->waiters;
        for (const struct list *node = places->prev; node != places && wants_of(op, op->entries[i]);
             node = node->prev) {
            const struct waiter *waiter = LIST_ENTRY(node, struct wait_place, node)->waiter;
            if (waiter->op.arrival < op->arrival)
                break;
            if (waiter_has_clients(waiter))
                return true;
        }
    }
    return false;
}

/*
 * Returns true for the op of a waiter, and for an acquire that may wait and was overtaken by a waiter because it was
 * put back or one of its semaphores was created from a template. Its place is ahead of that waiter, so it is decided
 * first: if it were blocked by queue order, no waiter would be ahead of it, and nothing would wake it.
 */
static bool has_queue_place(const struct op *op)
{
    return op->is_waiter_op || (op->operation->kind == OP_ACQUIRE && op->wait_until && was_overtaken(op));
}

static int compare_arrivals(const void *a, const void *b)
{
    return compare_u64(&(*(struct op *const *)a)->arrival, &(*(struct op *const *)b)->arrival);
}

/* Moves waiters to the front in order of arrival; the others keep their order behind them. */
static void sort_waiters_first(struct batch *batch)
{
    struct op *others[BATCH_MAX_OPERATIONS];
    size_t waiters = 0;
    size_t count = 0;
    for (size_t i = 0; i < batch->op_count; i++)
        if (has_queue_place(batch->ops[i]))
            batch->ops[waiters++] = batch->ops[i];
        else
            others[count++] = batch->ops[i];
    if (waiters == 0)
        return;
    memcpy(batch->ops + waiters, others, count * sizeof(struct op *));
    qsort(batch->ops, waiters, sizeof(struct op *), compare_arrivals);
}

/* Returns true if a waiter is left out that the op must not pass. */
static bool is_behind(const struct op *op)
{
    for (size_t i = 0; i < op->entry_count; i++)
        if (op->entries[i]->waiter_skipped && wants_of(op, op->entries[i]) &&
            (!has_queue_place(op) || op->arrival > op->entries[i]->skipped_arrival))
            return true;
    return false;
}

/*
 * Keeps the queue order of a blocked waiter at its other semaphores too, where it blocks waiters that do not fit there.
 */
static void block_others(const struct op *op, mono_us aged_since)
{
    const struct waiter *waiter = op->is_waiter_op ? waiter_of((struct op *)op) : NULL;
    for (size_t i = 0; i < op->entry_count; i++) {
        struct semaphore_entry *entry = op->entries[i];
        bool certain = wants_are_specific(op->operation->wants, op->operation->want_count);
        bool keeps =
            waiter ? waiter_blocks_others(waiter, entry, aged_since) : entry->row.queue == QUEUE_FIFO && !certain;
        if (!keeps || !wants_of(op, entry) || (entry->waiter_skipped && entry->skipped_arrival < op->arrival))
            continue;
        entry->waiter_skipped = true;
        entry->skipped_arrival = op->arrival;
    }
}

/*
 * The queue rank of an acquire. The batch is in order of arrival, so that a blocked waiter is known when later ones are
 * ranked.
 */
static enum queue_rank rank_of(const struct op *op, mono_us aged_since)
{
    if (is_behind(op)) {
        if (has_queue_place(op))
            block_others(op, aged_since);
        return RANK_BEHIND;
    }
    if (!has_queue_place(op))
        return RANK_NEW;
    const struct waiter *waiter = op->is_waiter_op ? waiter_of((struct op *)op) : NULL;
    return waiter && !waiter->is_specific && waiter_is_aged(waiter, aged_since) ? RANK_AGED : RANK_WAITER;
}

/* Returns true if the op, or a client of its waiter, may still wait after this batch. */
static bool may_wait_on(const struct op *op, mono_us now)
{
    if (!op->is_waiter_op)
        return op->wait_until > now;
    list_for_each (node, next, &waiter_of((struct op *)op)->clients)
        if (LIST_ENTRY(node, struct op, node)->wait_until > now)
            return true;
    return false;
}

void batch_add_waiters(struct queue *queue, struct batch *batch, mono_us aged_since)
{
    for (size_t i = 0; i < batch->entry_count; i++)
        reset_credit(batch->entries[i]);
    bool anybody = queue->waiters.by_key.count > 0;
    for (size_t i = 0; anybody && i < batch->op_count; i++) {
        struct op *op = batch->ops[i];
        if (operation_ends_request(op->operation->kind))
            add_freed(queue, batch, op);
    }
    for (size_t i = 0; anybody && i < batch->entry_count; i++)
        if (batch->entries[i]->freeing && batch->entries[i]->specific_count)
            add_specific(queue, batch, batch->entries[i]);
    for (size_t i = 0; anybody && i < batch->entry_count; i++)
        add_from_waitlist(queue, batch, batch->entries[i], aged_since);
    if (anybody)
        sort_waiters_first(batch);
    for (size_t i = 0; i < batch->op_count; i++) {
        struct operation *operation = batch->ops[i]->operation;
        assert(i == 0 || !batch->ops[i]->is_waiter_op || batch->ops[i - 1]->arrival <= batch->ops[i]->arrival);
        if (operation->kind != OP_ACQUIRE)
            continue;
        operation->queue_rank = rank_of(batch->ops[i], aged_since);
        operation->waits = may_wait_on(batch->ops[i], batch->taken_at);
    }
}
