/* SPDX-License-Identifier: MIT */
#include "engine/queue.h"

#include <stdlib.h>

/* A gate is a few hundred bytes; names that are not in use are looked up again. */
enum { GATES_MAX = 100000 };

void queue_init(struct queue *queue, size_t max_directory)
{
    *queue = (struct queue){0};
    list_init(&queue->called);
    list_init(&queue->pending);
    list_init(&queue->unresolved);
    makers_init(&queue->makers);
    gates_init(&queue->gates, GATES_MAX);
    waiters_init(&queue->waiters);
    directory_init(&queue->directory, max_directory);
}

void queue_release(struct queue *queue)
{
    waiters_release(&queue->waiters);
    map_release(&queue->keys);
    makers_release(&queue->makers);
    gates_release(&queue->gates);
    directory_release(&queue->directory);
}

static size_t *count_of(struct queue *queue, const struct op *op)
{
    return op->counts_as_end ? &queue->end_count : &queue->acquire_count;
}

/* ---- the semaphores of an operation ---- */

void op_drop_gates(struct op *op)
{
    if (op->gates && op->gates != op->few_gates)
        free(op->gates);
    op->gates = NULL;
    op->gate_count = 0;
}

static struct gate **gates_room(struct op *op, size_t count)
{
    op_drop_gates(op);
    op->gates = count <= ARRAY_LENGTH(op->few_gates) ? op->few_gates : malloc(count * sizeof *op->gates);
    return op->gates;
}

bool queue_set_gates(struct queue *queue, struct op *op, const uint64_t *semaphore_ids, size_t count)
{
    if (!gates_room(op, count))
        return false;
    for (size_t i = 0; i < count; i++) {
        struct gate *gate = gates_get(&queue->gates, semaphore_ids[i]);
        if (!gate)
            return false;
        op->gates[op->gate_count++] = gate;
    }
    op->resolved = true;
    return true;
}

static int compare_gates(const void *a, const void *b)
{
    uint64_t left = (*(struct gate *const *)a)->id;
    uint64_t right = (*(struct gate *const *)b)->id;
    return (left > right) - (left < right);
}

/* An acquire names its semaphores; the gates know their ids, or not. */
static bool resolve_wants(struct queue *queue, struct op *op)
{
    const struct operation *operation = op->operation;
    if (!gates_room(op, operation->want_count))
        return false;
    for (size_t i = 0; i < operation->want_count; i++) {
        struct gate *gate = gates_find_name(&queue->gates, operation->wants[i].semaphore);
        if (!gate)
            return false;
        operation->wants[i].semaphore_id = gate->id;
        op->gates[op->gate_count++] = gate;
    }
    if (op->gate_count > 1)
        qsort(op->gates, op->gate_count, sizeof *op->gates, compare_gates);
    return true;
}

/* An administrative operation finds its row by name; the gate only keeps our own batches off it. */
static bool resolve_name(struct queue *queue, struct op *op)
{
    struct gate *gate = gates_find_name(&queue->gates, op->operation->semaphore);
    op->gates = op->few_gates;
    op->gate_count = 0;
    if (gate)
        op->gates[op->gate_count++] = gate;
    return true;
}

static bool resolve_key(struct queue *queue, struct op *op)
{
    const struct directory_entry *entry = directory_find(&queue->directory, op->operation->external_id);
    uint64_t ids[BATCH_MAX_SEMAPHORES];
    for (size_t i = 0; entry && i < entry->count; i++)
        ids[i] = entry->shares[i].semaphore_id;
    if (!entry || !queue_set_gates(queue, op, ids, entry->count))
        return false;
    op->held_slots = 0;
    for (size_t i = 0; i < entry->count; i++)
        op->held_slots += op->gates[i]->kind == KIND_COUNTED ? 0 : entry->shares[i].count;
    return true;
}

static bool resolve_from_memory(struct queue *queue, struct op *op)
{
    if (operation_is_administrative(op->operation->kind))
        return resolve_name(queue, op);
    if (op->operation->kind == OP_ACQUIRE)
        return resolve_wants(queue, op);
    return resolve_key(queue, op);
}

/* ---- operations on one key ---- */

static struct op *first_on_key(const struct queue *queue, const struct op *op)
{
    struct map_node *node = map_find(&queue->keys, op->operation->external_id);
    return node ? MAP_ENTRY(node, struct op, by_key) : NULL;
}

static bool head_key(struct queue *queue, struct op *op)
{
    op->heads_key = map_insert(&queue->keys, &op->by_key, op->operation->external_id);
    return op->heads_key;
}

/* Without memory the op goes unnoticed: its order among those on its key is then the database's business. */
static void note_key(struct queue *queue, struct op *op)
{
    if (operation_is_administrative(op->operation->kind))
        return;
    list_init(&op->same_key);
    struct op *first = first_on_key(queue, op);
    if (first)
        list_append(&first->same_key, &op->same_key);
    op->keyed = first || head_key(queue, op);
}

struct op *queue_before_on_key(const struct op *op)
{
    return op->keyed && !op->heads_key ? LIST_ENTRY(op->same_key.prev, struct op, same_key) : NULL;
}

void queue_forget_key(struct queue *queue, struct op *op)
{
    if (!op->keyed)
        return;
    struct op *next = list_empty(&op->same_key) ? NULL : LIST_ENTRY(op->same_key.next, struct op, same_key);
    bool headed = op->heads_key;
    list_remove(&op->same_key);
    op->keyed = op->heads_key = false;
    if (!headed)
        return;
    map_remove(&queue->keys, &op->by_key);
    if (next)
        next->keyed = head_key(queue, next); /* the table has just become smaller: there is room */
}

/* Appends the gates of `from` that `ret_gates` has not yet; returns the new count. */
static size_t add_gates(struct gate **ret_gates, size_t count, const struct op *from)
{
    size_t before = count;
    for (size_t i = 0; i < from->gate_count; i++) {
        bool there = false;
        for (size_t j = 0; j < before; j++)
            there |= ret_gates[j] == from->gates[i];
        if (!there)
            ret_gates[count++] = from->gates[i];
    }
    return count;
}

void queue_follow_key(struct queue *queue, struct op *op)
{
    (void)queue;
    const struct op *before = queue_before_on_key(op);
    struct gate *gates[2 * BATCH_MAX_SEMAPHORES];
    if (!before || !before->resolved || operation_is_administrative(op->operation->kind))
        return;
    size_t count = add_gates(gates, add_gates(gates, 0, op), before);
    if (count == op->gate_count || count > BATCH_MAX_SEMAPHORES || !gates_room(op, count))
        return;
    memcpy(op->gates, gates, count * sizeof(struct gate *));
    op->gate_count = count;
    qsort(op->gates, count, sizeof *op->gates, compare_gates);
}

/* ---- in and out ---- */

/* True if no batch and no earlier operation stands before it. */
static bool claim_gates(struct op *op)
{
    bool clear = true;
    for (size_t i = 0; i < op->gate_count; i++) {
        clear &= !op->gates[i]->batch && op->gates[i]->waiting == 0;
        op->gates[i]->waiting++;
    }
    return clear;
}

bool queue_add(struct queue *queue, struct op *op)
{
    op->arrival = ++queue->arrivals;
    ++*count_of(queue, op);
    note_key(queue, op);
    const struct op *before = queue_before_on_key(op);
    op->resolved = !(before && !before->resolved) && resolve_from_memory(queue, op);
    op->queued = true;
    if (!op->resolved) {
        op->gate_count = 0;
        list_append(&queue->unresolved, &op->node);
        return true;
    }
    queue_follow_key(queue, op);
    list_append(&queue->pending, &op->node);
    return claim_gates(op);
}

/* Waiters are called in order of arrival, mostly; what is put back came before nearly all others. */
static struct list *place_of(struct queue *queue, const struct op *op)
{
    struct list *at;
    if (op->stands) {
        for (at = &queue->called; at->prev != &queue->called; at = at->prev)
            if (LIST_ENTRY(at->prev, struct op, node)->arrival < op->arrival)
                break;
        return at;
    }
    for (at = queue->pending.next; at != &queue->pending; at = at->next)
        if (LIST_ENTRY(at, struct op, node)->arrival >= op->arrival)
            break;
    return at;
}

void queue_put_back(struct queue *queue, struct op *op)
{
    list_insert_before(place_of(queue, op), &op->node);
    op->queued = true;
    ++*count_of(queue, op);
    (void)claim_gates(op);
}

void queue_call(struct queue *queue, struct waiter *waiter)
{
    struct op *op = &waiter->op;
    if (waiter->called || !gates_room(op, waiter->stand_count))
        return;
    for (size_t i = 0; i < waiter->stand_count; i++)
        op->gates[op->gate_count++] = waiter->stands[i].gate;
    op->resolved = true;
    op->put_backs = 0;
    waiter->called = true;
    queue->waiters.called++;
    note_key(queue, op);
    queue_put_back(queue, op);
}

bool queue_call_next(struct queue *queue, struct gate *gate, mono_us aged_since)
{
    struct waiter *waiter = waiters_next(gate, aged_since);
    if (!waiter)
        return false;
    queue_call(queue, waiter);
    return true;
}

void queue_take_out(struct queue *queue, struct op *op)
{
    list_remove(&op->node);
    op->queued = false;
    op->maker = NULL;
    --*count_of(queue, op);
    for (size_t i = 0; i < op->gate_count; i++)
        op->gates[i]->waiting--;
}

/* Onto a list of what waits for step 0, now or later. */
static void put_unresolved(struct queue *queue, struct op *op, struct list *list)
{
    op_drop_gates(op);
    op->resolved = false;
    op->queued = true;
    ++*count_of(queue, op);
    list_append(list, &op->node);
}

void queue_look_up(struct queue *queue, struct op *op)
{
    put_unresolved(queue, op, &queue->unresolved);
}

void queue_wait_for(struct queue *queue, struct maker *maker, struct op *op)
{
    put_unresolved(queue, op, &maker->askers);
    op->maker = maker;
}

void queue_look_up_again(struct queue *queue, struct maker *maker)
{
    list_for_each (node, next, &maker->askers)
        LIST_ENTRY(node, struct op, node)->maker = NULL;
    list_append_all(&maker->askers, &queue->unresolved);
    list_append_all(&queue->unresolved, &maker->askers);
}

size_t queue_take_unresolved(struct queue *queue, struct op **ret_ops, size_t max)
{
    size_t count = 0;
    while (count < max && !list_empty(&queue->unresolved)) {
        struct op *op = LIST_ENTRY(queue->unresolved.next, struct op, node);
        queue_take_out(queue, op);
        ret_ops[count++] = op;
    }
    return count;
}

/* ---- batches ---- */

/* True if the batch can have all semaphores of the op. */
static bool can_have_gates(const struct queue *queue, const struct batch *batch, const struct op *op)
{
    size_t more = 0;
    for (size_t i = 0; i < op->gate_count; i++) {
        const struct gate *gate = op->gates[i];
        if ((gate->batch && gate->batch != batch) || gate->reserved == queue->pass)
            return false;
        more += gate->batch != batch;
    }
    return batch->gate_count + more <= BATCH_MAX_SEMAPHORES;
}

static void reserve(const struct queue *queue, struct op *op)
{
    for (size_t i = 0; i < op->gate_count; i++)
        op->gates[i]->reserved = queue->pass;
}

static bool is_counted(const struct op *op, uint64_t semaphore_id)
{
    for (size_t i = 0; i < op->gate_count; i++)
        if (op->gates[i]->id == semaphore_id)
            return op->gates[i]->kind == KIND_COUNTED;
    return false;
}

/* How many slots the op may move. */
static int64_t slots_of(const struct op *op)
{
    const struct operation *operation = op->operation;
    int64_t slots = operation_ends_request(operation->kind) ? op->held_slots : 0;
    for (size_t i = 0; i < operation->want_count; i++)
        if (!is_counted(op, operation->wants[i].semaphore_id))
            slots += operation->wants[i].count;
    return slots;
}

bool batch_has_slots_for(const struct batch *batch, const struct op *op)
{
    return batch->op_count == 0 || batch->slots + slots_of(op) <= BATCH_MAX_SLOTS;
}

void batch_add(struct batch *batch, struct op *op)
{
    batch->ops[batch->op_count++] = op;
    batch->slots += slots_of(op);
    if (op->stands) {
        waiter_of(op)->taken_at = batch->taken_at;
        waiter_take_nonce(waiter_of(op));
    }
    for (size_t i = 0; i < op->gate_count; i++) {
        if (op->gates[i]->batch == batch)
            continue;
        op->gates[i]->batch = batch;
        batch->gates[batch->gate_count++] = op->gates[i];
    }
}

/* From one list, what may run; true if the batch takes no more. */
static bool take_from(struct queue *queue, struct batch *batch, struct list *list)
{
    list_for_each (node, next, list) {
        struct op *op = LIST_ENTRY(node, struct op, node);
        bool alone = operation_is_administrative(op->operation->kind);
        if (!can_have_gates(queue, batch, op) || !batch_has_slots_for(batch, op) || (alone && batch->op_count)) {
            reserve(queue, op);
            continue;
        }
        queue_take_out(queue, op);
        batch_add(batch, op);
        if (alone || batch->op_count == BATCH_MAX_PENDING)
            return true;
    }
    return false;
}

bool queue_take(struct queue *queue, struct batch *batch, mono_us now, mono_us aged_since)
{
    queue->pass++;
    batch->taken_at = now;
    if (!take_from(queue, batch, &queue->called))
        (void)take_from(queue, batch, &queue->pending);
    if (batch->op_count && !operation_is_administrative(batch->ops[0]->operation->kind))
        turn_fill(queue, batch, aged_since);
    return batch->op_count > 0;
}

void queue_finish(struct queue *queue, struct batch *batch)
{
    (void)queue;
    for (size_t i = 0; i < batch->gate_count; i++)
        batch->gates[i]->batch = NULL;
    batch->gate_count = 0;
    batch->op_count = 0;
    batch->slots = 0;
}

static void expire_list(struct queue *queue, struct list *list, mono_us now, struct list *ret_expired)
{
    list_for_each (node, next, list) {
        struct op *op = LIST_ENTRY(node, struct op, node);
        if (op->deadline > now && now != NEVER)
            continue;
        queue_take_out(queue, op);
        list_append(ret_expired, &op->node);
    }
}

void queue_take_expired(struct queue *queue, mono_us now, struct list *ret_expired)
{
    expire_list(queue, &queue->called, now, ret_expired);
    expire_list(queue, &queue->pending, now, ret_expired);
    expire_list(queue, &queue->unresolved, now, ret_expired);
    list_for_each (node, next, &queue->makers.all)
        expire_list(queue, &LIST_ENTRY(node, struct maker, node)->askers, now, ret_expired);
}

bool queue_empty(const struct queue *queue)
{
    return list_empty(&queue->called) && list_empty(&queue->pending) && list_empty(&queue->unresolved) &&
           list_empty(&queue->makers.all);
}
