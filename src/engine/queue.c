/* SPDX-License-Identifier: MIT */
#include "engine/queue.h"

#include <assert.h>
#include <stdlib.h>

/* Size of the semaphore cache. An entry takes a few hundred bytes; an evicted one is resolved again. */
enum { SEMAPHORE_CACHE_MAX = 100000 };

void queue_init(struct queue *queue, size_t max_row_bytes)
{
    *queue = (struct queue){.batch_max = BATCH_MAX_OPERATIONS, .grows_at = NEVER};
    list_init(&queue->woken);
    list_init(&queue->pending);
    list_init(&queue->unresolved);
    list_init(&queue->awaiting_server_id);
    list_init(&queue->awaiting_row);
    list_init(&queue->running);
    template_creates_init(&queue->creations);
    semaphore_cache_init(&queue->semaphores, SEMAPHORE_CACHE_MAX);
    waiters_init(&queue->waiters);
    rows_init(&queue->rows, max_row_bytes);
    seat_cache_init(&queue->seats);
}

void queue_release(struct queue *queue)
{
    assert(queue_empty(queue));
    waiters_release(&queue->waiters);
    map_release(&queue->keys);
    template_creates_release(&queue->creations);
    semaphore_cache_release(&queue->semaphores);
    rows_release(&queue->rows);
    seat_cache_release(&queue->seats);
}

/* The counter of queued ops that counts this op. */
static size_t *counter_of(struct queue *queue, const struct op *op)
{
    return op_counts_as_end(op) ? &queue->end_count : &queue->other_count;
}

/* ---- the semaphores of an operation ---- */

void op_drop_entries(struct op *op)
{
    if (op->entries && op->entries != op->few_entries)
        free(op->entries);
    op->entries = NULL;
    op->entry_count = 0;
}

/* Clears the semaphores of the op and returns memory for `count` new ones; entry_count is 0. NULL: out of memory. */
static struct semaphore_entry **alloc_entries(struct op *op, size_t count)
{
    op_drop_entries(op);
    op->entries = count <= ARRAY_LENGTH(op->few_entries) ? op->few_entries : malloc(count * sizeof *op->entries);
    return op->entries;
}

bool queue_set_entries(struct queue *queue, struct op *op, const uint64_t *semaphore_ids, size_t count)
{
    if (!alloc_entries(op, count))
        return false;
    for (size_t i = 0; i < count; i++) {
        struct semaphore_entry *entry = semaphore_cache_get(&queue->semaphores, semaphore_ids[i]);
        if (!entry)
            return false;
        op->entries[op->entry_count++] = entry;
    }
    if (!op->resolved)
        op->resolved = OP_RESOLVED;
    return true;
}

static int compare_entries(const void *a, const void *b)
{
    uint64_t left = (*(struct semaphore_entry *const *)a)->id;
    uint64_t right = (*(struct semaphore_entry *const *)b)->id;
    return (left > right) - (left < right);
}

/* Adds the semaphores of the copied row of the key that the op does not have yet; there is memory for them. */
static void add_entries_of_key(struct queue *queue, const struct key_entry *key, struct op *op) REQUIRES(engine_mutex)
{
    for (size_t i = 0; i < key->count; i++) {
        struct semaphore_entry *entry = semaphore_cache_find(&queue->semaphores, key->shares[i].semaphore_id);
        bool there = !entry;
        for (size_t j = 0; j < op->entry_count; j++)
            there |= op->entries[j] == entry;
        if (!there)
            op->entries[op->entry_count++] = entry;
    }
}

/*
 * Finds by name all semaphores that the op wants units of; of an exchange also those of its key, as far as they are
 * known: a batch puts it back for the others. False: one is not in the cache.
 */
static bool resolve_wants(struct queue *queue, struct op *op) REQUIRES(engine_mutex)
{
    const struct operation *operation = op->operation;
    const struct key_entry *key =
        operation->kind == OP_EXCHANGE ? rows_find_key(&queue->rows, operation->external_id) : NULL;
    if (!alloc_entries(op, operation->want_count + (key ? key->count : 0)))
        return false;
    for (size_t i = 0; i < operation->want_count; i++) {
        assert(i == 0 || bytes_compare(operation->wants[i - 1].semaphore, operation->wants[i].semaphore) < 0);
        struct semaphore_entry *entry = semaphore_cache_find_name(&queue->semaphores, operation->wants[i].semaphore);
        if (!entry)
            return false;
        operation->wants[i].semaphore_id = entry->id;
        op->entries[op->entry_count++] = entry;
    }
    if (key && op->entry_count + key->count <= BATCH_MAX_SEMAPHORES)
        add_entries_of_key(queue, key, op);
    if (op->entry_count > 1)
        qsort(op->entries, op->entry_count, sizeof *op->entries, compare_entries);
    return true;
}

/* The key waits at this server: finds the semaphores of its waiter. */
static bool resolve_waiter(struct op *op, const struct waiter *waiter)
{
    if (!alloc_entries(op, waiter->place_count))
        return false;
    for (size_t i = 0; i < waiter->place_count; i++)
        op->entries[op->entry_count++] = waiter->places[i].entry;
    return true;
}

/* Another operation: finds the semaphores of its keys in the copied rows. */
static bool resolve_keys(struct queue *queue, struct op *op) REQUIRES(engine_mutex)
{
    const struct operation *operation = op->operation;
    const struct waiter *waiter = waiters_find(&queue->waiters, operation->external_id);
    if (waiter)
        return resolve_waiter(op, waiter);
    const struct key_entry *entry = NULL;
    uint64_t ids[2 * BATCH_MAX_SEMAPHORES];
    size_t count = 0;
    for (size_t i = 0; i < operation_key_count(operation); i++) {
        entry = rows_find_key(&queue->rows, operation_key(operation, i));
        assert(!entry || entry->count <= BATCH_MAX_SEMAPHORES);
        for (size_t j = 0; entry && j < entry->count; j++)
            ids[count++] = entry->shares[j].semaphore_id;
        count = u64_sort_unique(ids, count);
        if (!entry || count > BATCH_MAX_SEMAPHORES)
            return false;
    }
    if (!queue_set_entries(queue, op, ids, count))
        return false;
    op->held_slots = 0;
    if (operation->keys) /* a confirm moves no slots */
        return true;
    for (size_t i = 0; i < entry->count; i++)
        op->held_slots += op->entries[i]->kind == KIND_COUNTED ? 0 : entry->shares[i].count;
    return true;
}

/* Finds the semaphores of an op in the caches. False: a query has to resolve it. */
static bool resolve_from_caches(struct queue *queue, struct op *op) REQUIRES(engine_mutex)
{
    if (operation_names_semaphores(op->operation))
        return resolve_wants(queue, op);
    if (!operation_is_administrative(op->operation->kind))
        return resolve_keys(queue, op);
    /* Its batch locks the row by name; the pre-lock only keeps the other batches of this process off it. */
    struct semaphore_entry *entry = semaphore_cache_find_name(&queue->semaphores, op->operation->semaphore);
    op->entries = op->few_entries;
    op->entry_count = entry ? 1 : 0;
    op->few_entries[0] = entry;
    return true;
}

/* ---- operations on one key ---- */

/* Makes the op the first one of its key, unless it is out of memory. */
static void set_key_head(struct queue *queue, struct op *op)
{
    op->key_order = map_insert(&queue->keys, &op->by_key, op->operation->external_id) ? KEY_FIRST : KEY_NONE;
}

/* Adds the op to the order of its key. Out of memory: it stays outside of that order, and the database orders it. */
static void add_to_key(struct queue *queue, struct op *op)
{
    if (operation_is_administrative(op->operation->kind))
        return;
    list_init(&op->same_key);
    struct map_node *node = map_find(&queue->keys, op->operation->external_id);
    if (node) {
        list_append(&MAP_ENTRY(node, struct op, by_key)->same_key, &op->same_key);
        op->key_order = KEY_LATER;
    } else {
        set_key_head(queue, op);
    }
}

struct op *queue_before_on_key(const struct op *op)
{
    return op->key_order == KEY_LATER ? LIST_ENTRY(op->same_key.prev, struct op, same_key) : NULL;
}

/* A new acquire that waits joins the row of its key, which may be that of a client that has just left. */
static bool asks_to_wait(const struct op *op)
{
    return op->operation->kind == OP_ACQUIRE && (op->operation->may_have_place || op->wait_until > op->arrived_at);
}

bool queue_asks_for(const struct queue *queue, struct bytes external_id)
{
    struct map_node *node = queue->keys.count ? map_find(&queue->keys, external_id) : NULL;
    if (!node)
        return false;
    const struct op *head = MAP_ENTRY(node, struct op, by_key);
    const struct op *op = head;
    do {
        if (asks_to_wait(op))
            return true;
        op = LIST_ENTRY(op->same_key.next, struct op, same_key);
    } while (op != head);
    return false;
}

void queue_forget_key(struct queue *queue, struct op *op)
{
    if (op->key_order == KEY_NONE)
        return;
    struct op *next = list_empty(&op->same_key) ? NULL : LIST_ENTRY(op->same_key.next, struct op, same_key);
    bool was_first = op->key_order == KEY_FIRST;
    list_remove(&op->same_key);
    op->key_order = KEY_NONE;
    if (!was_first)
        return;
    map_remove(&queue->keys, &op->by_key);
    if (next)
        set_key_head(queue, next); /* needs no memory: the table has just lost an entry */
}

/* Appends the semaphores of `from` that are missing in `ret_entries`; returns the new count. */
static size_t add_entries(struct semaphore_entry **ret_entries, size_t count, const struct op *from)
{
    size_t before = count;
    for (size_t i = 0; i < from->entry_count; i++) {
        bool there = false;
        for (size_t j = 0; j < before; j++)
            there |= ret_entries[j] == from->entries[i];
        if (!there)
            ret_entries[count++] = from->entries[i];
    }
    return count;
}

void queue_follow_key(struct op *op)
{
    const struct op *before = queue_before_on_key(op);
    struct semaphore_entry *entries[2 * BATCH_MAX_SEMAPHORES];
    if (!before || !before->resolved || operation_is_administrative(op->operation->kind))
        return;
    size_t count = add_entries(entries, add_entries(entries, 0, op), before);
    if (count == op->entry_count || count > BATCH_MAX_SEMAPHORES || !alloc_entries(op, count))
        return;
    memcpy(op->entries, entries, count * sizeof(struct semaphore_entry *));
    op->entry_count = count;
    qsort(op->entries, count, sizeof *op->entries, compare_entries);
}

/* ---- in and out ---- */

/* Counts the op as waiting at its semaphores. Returns true if no batch and no other queued op uses any of them. */
static bool claim_prelocks(struct op *op)
{
    bool clear = true;
    for (size_t i = 0; i < op->entry_count; i++) {
        clear &= !op->entries[i]->prelock_holder && op->entries[i]->queued == 0;
        op->entries[i]->queued++;
    }
    return clear;
}

bool queue_add(struct queue *queue, struct op *op)
{
    assert(!op->queued);
    op->arrival = ++queue->arrivals;
    ++*counter_of(queue, op);
    add_to_key(queue, op);
    const struct op *before = queue_before_on_key(op);
    bool follows_unresolved = before && !before->resolved;
    op->resolved = !follows_unresolved && resolve_from_caches(queue, op) ? OP_RESOLVED : OP_UNRESOLVED;
    op->queued = true;
    if (!op->resolved) {
        op->entry_count = 0;
        list_append(&queue->unresolved, &op->node);
        return true;
    }
    queue_follow_key(op);
    assert(list_empty(&queue->pending) || LIST_ENTRY(queue->pending.prev, struct op, node)->arrival < op->arrival);
    list_append(&queue->pending, &op->node);
    return claim_prelocks(op);
}

/*
 * The list node before which the op belongs. Woken waiters mostly arrive last; ops put back arrived before nearly all
 * others.
 */
static struct list *queue_position(struct queue *queue, const struct op *op)
{
    struct list *at;
    if (op_is_of_waiter(op) || op->arrival == 0) {
        for (at = &queue->woken; at->prev != &queue->woken; at = at->prev)
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
    assert(!op->queued && op->resolved);
    list_insert_before(queue_position(queue, op), &op->node);
    op->queued = true;
    ++*counter_of(queue, op);
    (void)claim_prelocks(op);
}

void queue_add_first(struct queue *queue, struct op *op)
{
    op->arrival = 0;
    add_to_key(queue, op);
    queue_put_back(queue, op);
}

void queue_wake(struct queue *queue, struct waiter *waiter)
{
    if (waiter_is_woken(waiter) || !resolve_waiter(&waiter->op, waiter))
        return;
    list_remove(&waiter->call);
    waiter->op.put_backs = 0;
    waiter->operation.widened = 0;
    waiter->op.resolved = OP_RESOLVED;
    waiter->look = LOOK_PENDING;
    queue->waiters.woken++;
    waiter->places[0].entry->woken++;
    add_to_key(queue, &waiter->op);
    queue_put_back(queue, &waiter->op);
}

void queue_take_out(struct queue *queue, struct op *op)
{
    assert(op->queued && *counter_of(queue, op) > 0);
    list_remove(&op->node);
    op->queued = false;
    op->creation = NULL;
    --*counter_of(queue, op);
    for (size_t i = 0; i < op->entry_count; i++)
        op->entries[i]->queued--;
}

/* Queues the op in a list of unresolved ops. */
static void put_unresolved(struct queue *queue, struct op *op, struct list *list)
{
    assert(!op->queued);
    op_drop_entries(op);
    op->resolved = OP_UNRESOLVED;
    op->queued = true;
    ++*counter_of(queue, op);
    list_append(list, &op->node);
}

void queue_resolve(struct queue *queue, struct op *op)
{
    put_unresolved(queue, op, &queue->unresolved);
}

void queue_await_creation(struct queue *queue, struct template_create *creation, struct op *op)
{
    put_unresolved(queue, op, &creation->clients);
    op->creation = creation;
}

void queue_await_server_id(struct queue *queue, struct op *op)
{
    put_unresolved(queue, op, &queue->awaiting_server_id);
}

void queue_have_server_id(struct queue *queue)
{
    list_append_all(&queue->unresolved, &queue->awaiting_server_id);
}

void queue_await_row(struct queue *queue, struct op *op, mono_us retry_at)
{
    op->row_retry_at = retry_at;
    put_unresolved(queue, op, &queue->awaiting_row);
}

mono_us queue_retry_rows(struct queue *queue, mono_us now)
{
    mono_us next = NEVER;
    list_for_each (node, after, &queue->awaiting_row) {
        struct op *op = LIST_ENTRY(node, struct op, node);
        if (op->row_retry_at > now) {
            next = min_i64(next, op->row_retry_at);
            continue;
        }
        list_remove(node);
        list_append(&queue->unresolved, node);
    }
    return next;
}

void queue_resolve_again(struct queue *queue, struct template_create *creation)
{
    list_for_each (node, next, &creation->clients)
        LIST_ENTRY(node, struct op, node)->creation = NULL;
    list_append_all(&creation->clients, &queue->unresolved);
    list_append_all(&queue->unresolved, &creation->clients);
}

size_t queue_take_unresolved(struct queue *queue, struct op **ret_ops, size_t max)
{
    size_t count = 0, keys = 0;
    while (keys < max && !list_empty(&queue->unresolved)) {
        struct op *op = LIST_ENTRY(queue->unresolved.next, struct op, node);
        keys += operation_key_count(op->operation);
        queue_take_out(queue, op);
        ret_ops[count++] = op;
    }
    return count;
}

/* ---- batches ---- */

/* Returns true if the batch can take the pre-locks of all semaphores of the op. */
static bool can_lock(const struct queue *queue, const struct batch *batch, const struct op *op)
{
    size_t more = 0;
    for (size_t i = 0; i < op->entry_count; i++) {
        const struct semaphore_entry *entry = op->entries[i];
        bool is_mine = entry->prelock_holder == batch;
        if ((!is_mine && (entry->prelock_holder || batch->is_closed)) || entry->reserved == queue->pass)
            return false;
        more += !is_mine;
    }
    return batch->entry_count + more <= BATCH_MAX_SEMAPHORES;
}

static bool is_counted(const struct op *op, uint64_t semaphore_id)
{
    for (size_t i = 0; i < op->entry_count; i++)
        if (op->entries[i]->id == semaphore_id)
            return op->entries[i]->kind == KIND_COUNTED;
    return false;
}

/* The number of slots that a change of a semaphore may make, take out of service or label. */
static int64_t slots_changed_by(const struct op *op)
{
    const struct semaphore_change *change = op->operation->change;
    bool counted =
        op->entry_count ? op->entries[0]->kind == KIND_COUNTED : change->has_kind && change->kind == KIND_COUNTED;
    return max_i64(change->has_capacity && !counted ? change->capacity : 0, (int64_t)change->label_count);
}

/* The number of slots that the op may move, or that it names: each of these is read and resolved. */
static int64_t slots_moved_by(const struct op *op)
{
    const struct operation *operation = op->operation;
    if (operation_is_administrative(operation->kind) && operation->change)
        return slots_changed_by(op);
    int64_t slots = operation_frees(operation->kind) ? op->held_slots : 0;
    for (size_t i = 0; i < operation->want_count; i++)
        if (!is_counted(op, operation->wants[i].semaphore_id))
            slots += max_i64(operation->wants[i].count, (int64_t)operation->wants[i].named_count);
    return slots;
}

/*
 * Returns true if the op moves more slots than a batch should, and so does a batch that runs. Several of these at once
 * would leave no worker for the other semaphores (P23).
 */
static bool must_wait_for_large(const struct queue *queue, const struct op *op)
{
    bool waits = false;
    if (slots_moved_by(op) <= BATCH_MAX_SLOTS)
        return false;
    list_for_each (node, next, &queue->running)
        waits |= LIST_ENTRY(node, struct batch, node)->slots > BATCH_MAX_SLOTS;
    return waits;
}

static bool batch_has_room_for(const struct batch *batch, const struct op *op)
{
    return batch->op_count == 0 || (batch->slots + slots_moved_by(op) <= BATCH_MAX_SLOTS &&
                                    batch->key_count + operation_key_count(op->operation) <= BATCH_MAX_OPERATIONS);
}

/* Adds an op to a batch, and takes the pre-locks of its semaphores, which are free or held by the batch. */
static void batch_add(struct batch *batch, struct op *op)
{
    assert(!op->queued && batch->op_count < BATCH_MAX_OPERATIONS);
    batch->ops[batch->op_count++] = op;
    batch->slots += slots_moved_by(op);
    batch->key_count += operation_key_count(op->operation);
    for (size_t i = 0; i < op->entry_count; i++) {
        if (op->entries[i]->prelock_holder == batch)
            continue;
        assert(!op->entries[i]->prelock_holder && batch->entry_count < BATCH_MAX_SEMAPHORES);
        op->entries[i]->prelock_holder = batch;
        batch->entries[batch->entry_count++] = op->entries[i];
    }
}

/* Moves the ops of one list that can run to the batch; returns true if the batch takes no more. */
static bool take_from(struct queue *queue, struct batch *batch, struct list *list) REQUIRES(engine_mutex)
{
    list_for_each (node, next, list) {
        struct op *op = LIST_ENTRY(node, struct op, node);
        bool alone = operation_is_administrative(op->operation->kind);
        assert(next == list || op->arrival <= LIST_ENTRY(next, struct op, node)->arrival);
        if (!can_lock(queue, batch, op) || !batch_has_room_for(batch, op) || (alone && batch->op_count) ||
            must_wait_for_large(queue, op)) {
            for (size_t i = 0; i < op->entry_count; i++)
                op->entries[i]->reserved = queue->pass; /* later ops of this pass do not pass it */
            continue;
        }
        queue_take_out(queue, op);
        batch_add(batch, op);
        if (alone || batch->op_count >= queue->batch_max)
            return true;
    }
    return false;
}

void queue_halve_batches(struct queue *queue, size_t operation_count, mono_us now)
{
    size_t half = operation_count / 2;
    if (half < queue->batch_max)
        queue->batch_max = half < BATCH_MAX_LEAST ? BATCH_MAX_LEAST : half;
    queue->grows_at = now + BATCH_GROWS_MS * US_PER_MS;
}

static void grow_batches(struct queue *queue, mono_us now)
{
    if (now < queue->grows_at)
        return;
    queue->batch_max *= 2;
    queue->grows_at = now + BATCH_GROWS_MS * US_PER_MS;
    if (queue->batch_max < BATCH_MAX_OPERATIONS)
        return;
    queue->batch_max = BATCH_MAX_OPERATIONS;
    queue->grows_at = NEVER;
}

bool queue_take(struct queue *queue, struct batch *batch, mono_us now)
{
    assert(batch->op_count == 0 && batch->entry_count == 0);
    queue->pass++;
    grow_batches(queue, now);
    batch->taken_at = now;
    if (!take_from(queue, batch, &queue->woken))
        (void)take_from(queue, batch, &queue->pending);
    if (batch->op_count == 0)
        return false;
    batch->number = ++queue->batches;
    list_append(&queue->running, &batch->node);
    return true;
}

/* Moves the ops of the batch from `first` on to its front: waiters ask before the clients of their keys. */
static void batch_move_to_front(struct batch *batch, size_t first)
{
    struct op *moved[BATCH_MAX_OPERATIONS];
    size_t count = batch->op_count - first;
    memcpy(moved, batch->ops + first, count * sizeof(struct op *));
    memmove(batch->ops + count, batch->ops, first * sizeof(struct op *));
    memcpy(batch->ops, moved, count * sizeof(struct op *));
}

void queue_take_gathered(struct queue *queue, struct batch *batch, mono_us now)
{
    size_t before = batch->op_count;
    if (before >= queue->batch_max)
        return;
    queue->pass++;
    batch->taken_at = now;
    batch->is_closed = true;
    bool full = take_from(queue, batch, &queue->woken);
    batch_move_to_front(batch, before);
    if (!full)
        (void)take_from(queue, batch, &queue->pending);
    batch->is_closed = false;
}

bool queue_have_ended(const struct queue *queue, uint64_t number)
{
    return list_empty(&queue->running) || LIST_ENTRY(queue->running.next, struct batch, node)->number > number;
}

static bool is_needed(const struct semaphore_entry *entry, struct op *const *ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < ops[i]->entry_count; j++)
            if (ops[i]->entries[j] == entry)
                return true;
    return false;
}

void queue_release_others(struct batch *batch, struct op *const *ops, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < batch->entry_count; i++) {
        if (is_needed(batch->entries[i], ops, count))
            batch->entries[kept++] = batch->entries[i];
        else
            batch->entries[i]->prelock_holder = NULL;
    }
    batch->entry_count = kept;
}

void queue_finish(struct batch *batch)
{
    if (batch->number)
        list_remove(&batch->node);
    batch->number = 0;
    for (size_t i = 0; i < batch->entry_count; i++)
        batch->entries[i]->prelock_holder = NULL;
    batch->entry_count = 0;
    batch->op_count = 0;
    batch->slots = 0;
    batch->key_count = 0;
}

static void take_expired_from(struct queue *queue, struct list *list, mono_us now, struct list *ret_expired)
    REQUIRES(engine_mutex)
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
    take_expired_from(queue, &queue->woken, now, ret_expired);
    take_expired_from(queue, &queue->pending, now, ret_expired);
    take_expired_from(queue, &queue->unresolved, now, ret_expired);
    take_expired_from(queue, &queue->awaiting_server_id, now, ret_expired);
    take_expired_from(queue, &queue->awaiting_row, now, ret_expired);
    list_for_each (node, next, &queue->creations.all)
        take_expired_from(queue, &LIST_ENTRY(node, struct template_create, node)->clients, now, ret_expired);
}

bool queue_empty(const struct queue *queue)
{
    return list_empty(&queue->woken) && list_empty(&queue->pending) && list_empty(&queue->unresolved) &&
           list_empty(&queue->awaiting_server_id) && list_empty(&queue->awaiting_row) &&
           list_empty(&queue->creations.all);
}
