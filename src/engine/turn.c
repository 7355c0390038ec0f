/* SPDX-License-Identifier: MIT */
/*
 * Whose turn it is: which waiters go into a batch, so that the transaction that frees units grants them too. Memory
 * knows what is free and what the batch's releases give back; the waiters that may fit into that, in order of arrival,
 * are taken. Whoever would find no room is left out, which saves reading its key: nearly all of them, in a crowd. What
 * memory knows is a hint; the plan decides under the locks.
 */
#include <stdlib.h>

#include "engine/queue.h"

/* What may be given to waiters of this gate. */
static void open_credit(struct gate *gate)
{
    gate->credit = gate->doubtful ? INT64_MAX / 2 : max_i64(0, gate->room);
    gate->promised = 0;
    gate->doubtful = false;
    gate->left_out = gate->freeing = false;
    gate->taken_version = gate->version;
}

/* What the end of a request gives back: exactly, if this process granted it; at least a unit otherwise. */
static void add_freed(struct queue *queue, const struct batch *batch, const struct op *op)
{
    const struct directory_entry *entry = directory_find(&queue->directory, op->operation->external_id);
    for (size_t i = 0; i < op->gate_count; i++)
        if (op->gates[i]->batch == batch) {
            op->gates[i]->freeing = true;
            op->gates[i]->credit += !entry;
        }
    for (size_t i = 0; entry && i < entry->count; i++) {
        struct gate *gate = gates_find(&queue->gates, entry->shares[i].semaphore_id);
        if (gate && gate->batch == batch)
            gate->credit += max_i64(1, entry->shares[i].count);
    }
}

/* At once at all its gates, so that nobody else is taken for the same units. */
static void spend_credit(const struct waiter *waiter)
{
    for (size_t i = 0; i < waiter->stand_count; i++) {
        waiter->stands[i].gate->credit -= waiter->stands[i].count;
        waiter->stands[i].gate->promised += waiter->stands[i].count;
    }
}

static bool fits(const struct batch *batch, const struct waiter *waiter)
{
    for (size_t i = 0; i < waiter->stand_count; i++) {
        const struct gate *gate = waiter->stands[i].gate;
        int64_t available = gate->batch == batch ? gate->credit : gate->doubtful ? INT64_MAX : gate->room;
        if (waiter->stands[i].count > available)
            return false;
    }
    return true;
}

/* What the batch has already, somebody who came later may have reserved for the next one. */
static bool can_have_gates(const struct queue *queue, const struct batch *batch, const struct waiter *waiter)
{
    size_t more = 0;
    for (size_t i = 0; i < waiter->stand_count; i++) {
        const struct gate *gate = waiter->stands[i].gate;
        if (gate->batch == batch)
            continue;
        if (gate->batch || gate->reserved == queue->pass)
            return false;
        more++;
    }
    return batch->gate_count + more <= BATCH_MAX_SEMAPHORES;
}

/* False: this batch has no room for it, or not all of its semaphores; then it is called, and goes first into a later
 * one. */
static bool take_waiter(struct queue *queue, struct batch *batch, struct waiter *waiter)
{
    queue_call(queue, waiter);
    if (!waiter->called || !can_have_gates(queue, batch, waiter) || !batch_has_slots_for(batch, &waiter->op))
        return false;
    size_t known = batch->gate_count;
    queue_take_out(queue, &waiter->op);
    batch_add(batch, &waiter->op);
    for (size_t i = known; i < batch->gate_count; i++)
        open_credit(batch->gates[i]);
    if (!waiter->certain)
        spend_credit(waiter);
    return true;
}

/*
 * Something ends in the batch, and it may be what somebody waits for who wants certain slots: the first of them go
 * along, lest a newcomer of this batch takes it. The others are called when it is over.
 */
static void take_certain(struct queue *queue, struct batch *batch, struct gate *gate)
{
    size_t taken = 0;
    list_for_each (node, next, &gate->waiters) {
        struct waiter *waiter = LIST_ENTRY(node, struct stand, node)->waiter;
        if (!waiter->certain || !waiter_is_asked(waiter) || waiter->called)
            continue;
        if (taken++ == BATCH_MAX_WAITERS || batch->op_count == BATCH_MAX_OPERATIONS)
            return;
        (void)take_waiter(queue, batch, waiter);
    }
}

/*
 * The waiters of one gate, in order, until what is free is spent or nobody may pass. A waiter that is in the batch
 * already spends in its turn: a waiter that came before it finds what was free before.
 */
static void fill_from(struct queue *queue, struct batch *batch, struct gate *gate, mono_us aged_since)
{
    size_t taken = 0;
    gate->credit += gate->promised;
    list_for_each (node, next, &gate->waiters) {
        struct stand *stand = LIST_ENTRY(node, struct stand, node);
        struct waiter *waiter = stand->waiter;
        if (!waiter_is_asked(waiter) || waiter->certain)
            continue;
        if (waiter->called && !waiter->op.queued) {
            gate->credit -= stand->count;
            continue;
        }
        bool full = gate->credit <= 0 || taken == BATCH_MAX_WAITERS || batch->op_count == BATCH_MAX_OPERATIONS;
        gate->left_out = full || waiter->called; /* called and not taken: some other semaphore of it is busy */
        if (!gate->left_out && fits(batch, waiter)) {
            gate->left_out = !take_waiter(queue, batch, waiter);
            taken++;
        } else if (!gate->left_out) {
            gate->left_out = waiter_keeps_others(waiter, gate, aged_since); /* else what fits may pass it */
        }
        gate->left_out_arrival = waiter->op.arrival;
        if (gate->left_out)
            return;
    }
}

/* Some of its gates it has only because due holders, or its key's row, are there, too. */
static bool wants_of(const struct op *op, const struct gate *gate)
{
    for (size_t i = 0; i < op->operation->want_count; i++)
        if (op->operation->wants[i].semaphore_id == gate->id)
            return true;
    return false;
}

/* Somebody waits for one of its semaphores who came later. */
static bool was_overtaken(const struct op *op)
{
    for (size_t i = 0; i < op->gate_count; i++) {
        const struct list *stands = &op->gates[i]->waiters;
        for (const struct list *node = stands->prev; node != stands && wants_of(op, op->gates[i]); node = node->prev) {
            const struct waiter *waiter = LIST_ENTRY(node, struct stand, node)->waiter;
            if (waiter->op.arrival < op->arrival)
                break;
            if (waiter_is_asked(waiter))
                return true;
        }
    }
    return false;
}

/*
 * A waiter; or an acquire that may wait and was overtaken by a waiter, because it was put back or a template made one
 * of its semaphores meanwhile. Its place in the queue is before that waiter, so it is decided before it: if it were
 * refused for standing behind, nobody would stand before it, and nothing would call it.
 */
static bool is_waiting(const struct op *op)
{
    return op->stands || (op->operation->kind == OP_ACQUIRE && op->wait_until && was_overtaken(op));
}

static int compare_arrivals(const void *a, const void *b)
{
    return compare_u64(&(*(struct op *const *)a)->arrival, &(*(struct op *const *)b)->arrival);
}

/* Waiters to the front, in order of arrival; the others stay in their order behind them. */
static void waiters_first(struct batch *batch)
{
    struct op *others[BATCH_MAX_OPERATIONS];
    size_t waiters = 0;
    size_t count = 0;
    for (size_t i = 0; i < batch->op_count; i++)
        if (is_waiting(batch->ops[i]))
            batch->ops[waiters++] = batch->ops[i];
        else
            others[count++] = batch->ops[i];
    if (waiters == 0)
        return;
    memcpy(batch->ops + waiters, others, count * sizeof(struct op *));
    qsort(batch->ops, waiters, sizeof(struct op *), compare_arrivals);
}

/* True if a waiter is left out that it must not pass. */
static bool is_behind(const struct op *op)
{
    for (size_t i = 0; i < op->gate_count; i++)
        if (op->gates[i]->left_out && wants_of(op, op->gates[i]) &&
            (!is_waiting(op) || op->arrival > op->gates[i]->left_out_arrival))
            return true;
    return false;
}

/* Nothing is granted to it: at its other semaphores, too, nobody passes it, unless what fits may. */
static void leave_behind(const struct op *op, mono_us aged_since)
{
    const struct waiter *waiter = op->stands ? waiter_of((struct op *)op) : NULL;
    for (size_t i = 0; i < op->gate_count; i++) {
        struct gate *gate = op->gates[i];
        bool certain = wants_are_certain(op->operation->wants, op->operation->want_count);
        bool keeps = waiter ? waiter_keeps_others(waiter, gate, aged_since) : gate->fifo && !certain;
        if (!keeps || !wants_of(op, gate) || (gate->left_out && gate->left_out_arrival < op->arrival))
            continue;
        gate->left_out = true;
        gate->left_out_arrival = op->arrival;
    }
}

/* Waiters come first, in order of arrival, so that one who is left behind is known to those who came later. */
static enum place place_of(const struct op *op, mono_us aged_since)
{
    if (is_behind(op)) {
        if (is_waiting(op))
            leave_behind(op, aged_since);
        return PLACE_BEHIND;
    }
    if (!is_waiting(op))
        return PLACE_NEWCOMER;
    const struct waiter *waiter = op->stands ? waiter_of((struct op *)op) : NULL;
    return waiter && !waiter->certain && waiter_is_aged(waiter, aged_since) ? PLACE_AGED : PLACE_WAITER;
}

/* True if somebody goes on waiting for it after this batch. */
static bool goes_on_waiting(const struct op *op, mono_us now)
{
    if (!op->stands)
        return op->wait_until > now;
    list_for_each (node, next, &waiter_of((struct op *)op)->askers)
        if (LIST_ENTRY(node, struct op, node)->wait_until > now)
            return true;
    return false;
}

void turn_fill(struct queue *queue, struct batch *batch, mono_us aged_since)
{
    for (size_t i = 0; i < batch->gate_count; i++)
        open_credit(batch->gates[i]);
    bool anybody = queue->waiters.by_key.count > 0;
    for (size_t i = 0; anybody && i < batch->op_count; i++) {
        struct op *op = batch->ops[i];
        if (operation_ends_request(op->operation->kind))
            add_freed(queue, batch, op);
    }
    for (size_t i = 0; anybody && i < batch->gate_count; i++)
        if (batch->gates[i]->freeing && batch->gates[i]->certain_count)
            take_certain(queue, batch, batch->gates[i]);
    for (size_t i = 0; anybody && i < batch->gate_count; i++)
        fill_from(queue, batch, batch->gates[i], aged_since);
    if (anybody)
        waiters_first(batch);
    for (size_t i = 0; i < batch->op_count; i++) {
        struct operation *operation = batch->ops[i]->operation;
        if (operation->kind != OP_ACQUIRE)
            continue;
        operation->place = place_of(batch->ops[i], aged_since);
        operation->waits = goes_on_waiting(batch->ops[i], batch->taken_at);
    }
}
