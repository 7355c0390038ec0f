/* SPDX-License-Identifier: MIT */
/*
 * One try of a batch: makes the view of its rows, plans, and writes. The rows come from copies (rows.h), and one packet
 * locks, writes and proves that the copies were right; or the rows are locked and read.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/failover.h"
#include "engine/feed.h"
#include "engine/served_time.h"
#include "engine/waitlist.h"
#include "engine/worker.h"
#include "store/feed.h"

enum {
    ID_BLOCK = 10000,
    IDS_FEW = 4 * BATCH_MAX_OPERATIONS, /* other workers may take some, too, until the batch is planned */
    SLOTS_AHEAD = 512,                  /* free slots to read for copies */
};

/* A batch that commits later than this after its plan goes the long way. Deadlines count from LEASE_MARGIN_US. */
#define SLACK_US (250LL * US_PER_MS)
_Static_assert(SLACK_US <= LEASE_MARGIN_US, "no request ends early because its packet waited");

/* ---- what a batch needs ---- */

/* Returns the operations of the run, in the arena. NULL: out of memory. */
static const struct operation **run_operations(struct worker *worker, const struct run *run)
{
    const struct operation **operations = arena_array(worker->arena, run->count, sizeof *operations);
    for (size_t i = 0; operations && i < run->count; i++)
        operations[i] = run->ops[i]->operation;
    return operations;
}

/* Collects the distinct semaphores of the run, ascending by id; returns their number. */
static size_t run_collect_entries(const struct run *run, struct semaphore_entry **ret_entries)
{
    size_t count = 0;
    for (size_t i = 0; i < run->count; i++)
        for (size_t j = 0; j < run->ops[i]->entry_count; j++) {
            struct semaphore_entry *entry = run->ops[i]->entries[j];
            assert(entry->prelock_holder);
            size_t at = count;
            while (at > 0 && ret_entries[at - 1]->id > entry->id)
                at--;
            if (at > 0 && ret_entries[at - 1] == entry)
                continue;
            memmove(ret_entries + at + 1, ret_entries + at, (count - at) * sizeof *ret_entries);
            ret_entries[at] = entry;
            count++;
        }
    return count;
}

/* Returns what the operation wants of this semaphore; NULL: nothing. */
static const struct want *want_of(const struct op *op, uint64_t semaphore_id)
{
    for (size_t i = 0; i < op->operation->want_count; i++)
        if (op->operation->wants[i].semaphore_id == semaphore_id)
            return &op->operation->wants[i];
    return NULL;
}

/* Returns true if an operation of the run wants best seats of this semaphore. */
static bool run_wants_best(const struct run *run, uint64_t semaphore_id)
{
    for (size_t i = 0; i < run->count; i++) {
        const struct want *want = want_of(run->ops[i], semaphore_id);
        if (want && want->choice == CHOOSE_BEST)
            return true;
    }
    return false;
}

/*
 * Collects the slots to read of a semaphore: all specific slots, and enough free ones for the acquires that may be
 * granted. False: out of memory.
 */
static bool run_slots_wanted(struct worker *worker, const struct run *run, uint64_t semaphore_id,
                             struct slots_wanted *ret_set)
{
    struct slots_wanted set = {0};
    size_t names = 0;
    for (size_t i = 0; i < run->count; i++) {
        const struct want *want = want_of(run->ops[i], semaphore_id);
        names += want ? want->named_count : 0;
    }
    struct slot_name *named = names ? arena_array(worker->arena, names, sizeof *named) : NULL;
    if (names && !named)
        return false;
    for (size_t i = 0; i < run->count; i++) {
        const struct want *want = want_of(run->ops[i], semaphore_id);
        if (!want)
            continue;
        if (want->named_count)
            memcpy(named + set.named_count, want->named, want->named_count * sizeof *named);
        set.named_count += want->named_count;
        bool all = want_searches_all(want);
        /* A named slot may be among the free slots read, and is then lost to the others. */
        set.free += all ? SLOTS_MAX_CAPACITY : min_i64(want->count, SLOTS_MAX_COUNT);
    }
    set.free = min_i64(set.free, SLOTS_MAX_CAPACITY);
    set.named = named;
    *ret_set = set;
    return true;
}

/* The distinct owners whose heartbeat acquires of the run depend on. NULL: out of memory. */
static const struct bytes *collect_owners(struct worker *worker, const struct run *run, size_t *ret_count)
{
    struct bytes *owners = arena_array(worker->arena, run->count, sizeof *owners);
    size_t count = 0;
    for (size_t i = 0; owners && i < run->count; i++) {
        const struct operation *operation = run->ops[i]->operation;
        bool there = !operation_asks(operation->kind) || operation->ttl.kind != TTL_OWNER;
        for (size_t j = 0; j < count && !there; j++)
            there = bytes_equal(owners[j], operation->owner);
        if (!there)
            owners[count++] = operation->owner;
    }
    *ret_count = count;
    return owners;
}

/* ---- ids of new rows ---- */

/* Reserves ids for all workers, if few are left. */
static enum permit_status reserve_ids(struct worker *worker)
{
    struct engine *engine = worker->engine;
    struct id_range ids;
    uint64_t epoch;
    engine_lock(engine);
    bool enough = engine->ids.end - engine->ids.next >= IDS_FEW;
    engine_unlock(engine);
    if (enough)
        return PERMIT_OK;
    enum permit_status status = worker->store->batch->reserve_ids(worker->store, ID_BLOCK, &ids, &epoch);
    if (status != PERMIT_OK)
        return status;
    engine_lock(engine);
    if (epoch != engine->ids_epoch || ids.next > engine->ids.next) {
        engine->ids = ids;
        engine->ids_epoch = epoch;
    }
    engine_unlock(engine);
    return PERMIT_OK;
}

/*
 * Drops the ids unless they are of this epoch: another server, or the server before an older copy took over, reserved
 * them, and they may be in use again.
 */
static void drop_ids(struct engine *engine, uint64_t epoch)
{
    engine_lock(engine);
    if (engine->ids_epoch != epoch)
        engine->ids = (struct id_range){0};
    engine_unlock(engine);
}

/* Takes ids for the operations, which the engine has reserved in the epoch of the view. False: too few are left. */
static bool run_take_ids(struct run *run)
{
    struct engine *engine = run->worker->engine;
    engine_lock(engine);
    bool enough = engine->ids_epoch == run->view.clock.epoch && engine->ids.end - engine->ids.next >= run->count;
    run->ids = (struct id_range){engine->ids.next, engine->ids.next + run->count};
    engine->ids.next += enough ? run->count : 0;
    engine_unlock(engine);
    return enough;
}

/*
 * Gives the ids back that the plan has not used, if no other run has taken ids since. In another epoch the same ids may
 * have been reserved again, and taken.
 */
static void run_keep_ids(struct run *run, uint64_t used)
{
    struct engine *engine = run->worker->engine;
    engine_lock(engine);
    if (engine->ids_epoch == run->view.clock.epoch && engine->ids.next == run->ids.end)
        engine->ids.next = run->ids.next + used;
    engine_unlock(engine);
}

/* ---- the view, from locked rows ---- */

/* Returns the id of the run's only semaphore, if it is a whole batch and others change that semaphore, too; else 0. */
static uint64_t shared_semaphore(const struct worker *worker, const struct run *run) REQUIRES(engine_mutex)
{
    const struct batch *batch = &worker->batch;
    bool is_complete = run->is_whole && run->count == batch->op_count;
    if (!is_complete || batch->entry_count != 1 || operation_is_administrative(run->ops[0]->operation->kind))
        return 0;
    return batch->entries[0]->shared_until > clock_mono() ? batch->entries[0]->id : 0;
}

/*
 * A batch on a semaphore that other permitd change, too, waits for the row lock before it reads, and then takes the
 * operations that have arrived meanwhile. Without this they would be a second batch, which waits again
 * (docs/decisions/0008-gathering-on-shared-semaphores.md). The copies tell which semaphores others change, so nothing
 * gathers with short_path = off.
 */
static enum permit_status gather(struct worker *worker, struct run *run, bool *ret_lock_held)
{
    struct engine *engine = worker->engine;
    struct batch *batch = &worker->batch;
    engine_lock(engine);
    uint64_t id = shared_semaphore(worker, run);
    engine_unlock(engine);
    enum permit_status status = id ? worker->store->batch->await(worker->store, id) : PERMIT_OK;
    if (!id || status != PERMIT_OK)
        return status;
    engine_lock(engine);
    queue_take_gathered(&engine->queue, batch, clock_mono());
    waitlist_prepare(engine, batch);
    engine_unlock(engine);
    run->count = run->transaction.count = batch->op_count;
    if (run->most < run->count)
        run->most = run->count;
    *ret_lock_held = true;
    return PERMIT_OK;
}

/* Returns true if the queue is short and should be read whole, to be copied. */
static bool should_copy_queue(struct engine *engine, struct semaphore_entry *entry) REQUIRES(engine_mutex)
{
    const struct semaphore_copy *copy = rows_find(&engine->queue.rows, entry);
    return engine->settings.short_path && copy && !copy->has_queue && copy->row.waiting <= QUEUE_READ_MAX &&
           entry->queue_read_from <= clock_mono();
}

/*
 * Sets how many waiters of each semaphore are read together with the locks: as many as the ends of the run may let in,
 * because a hand-over without a round trip for them is faster, and two more, because the first ones may block nobody.
 * If they are not enough, the plan reads on. Of a queue that should be copied, none: 64 are read after the locks. Those
 * of a slotted semaphore often want other slots than those that are freed. Returns false if nothing is read ahead.
 */
static bool count_ahead(const struct run *run, struct semaphore_entry *const *entries, size_t count, size_t *ret_ahead)
    REQUIRES(engine_mutex)
{
    enum { MORE = 2 };
    bool any = false;
    for (size_t i = 0; i < run->count; i++)
        any |= op_is_of_waiter(run->ops[i]); /* its plan needs the living servers */
    for (size_t i = 0; i < count; i++) {
        struct semaphore_entry *entry = entries[i];
        bool reads = entry->has_queue && entry->kind == KIND_COUNTED && !should_copy_queue(run->worker->engine, entry);
        size_t ends = 0;
        for (size_t j = 0; reads && j < run->count; j++)
            for (size_t k = 0; operation_frees(run->ops[j]->operation->kind) && k < run->ops[j]->entry_count; k++)
                ends += run->ops[j]->entries[k] == entry;
        ret_ahead[i] = ends == 0 ? 0 : ends + MORE < QUEUE_READ_MAX ? ends + MORE : QUEUE_READ_MAX;
        any |= ends > 0;
    }
    return any;
}

/* Reads the seats of the semaphore whose seats change. */
static enum permit_status read_seats(struct worker *worker, struct view *view)
{
    struct seats *seats = arena_alloc(worker->arena, sizeof *seats);
    if (!seats)
        return PERMIT_NO_MEMORY;
    *seats = (struct seats){0};
    view->seats = seats;
    return worker->store->batch->read_seats(worker->store, view->semaphores[0].id, worker->arena, seats);
}

static struct seat_key seat_key_of(const struct run *run, size_t index)
{
    const struct semaphore *semaphore = &run->view.semaphores[index];
    return (struct seat_key){semaphore->id, semaphore->config_version, run->view.clock.epoch, run->generation};
}

/* Sets the map of a semaphore of the view, which the worker holds until its next try. */
static void use_layout(struct worker *worker, struct run *run, size_t index, struct seat_layout *layout)
{
    assert(worker->layout_count < ARRAY_LENGTH(worker->layouts));
    worker->layouts[worker->layout_count++] = layout;
    run->view.seat_maps[index] = &layout->map;
}

/* Returns the map of a semaphore of the view, if it is cached. NULL: it is not, or out of memory. */
static const struct seat_map *find_seat_map(struct worker *worker, struct run *run, size_t index) REQUIRES(engine_mutex)
{
    struct view *view = &run->view;
    if (!view->seat_maps)
        view->seat_maps = arena_array(worker->arena, view->semaphore_count, sizeof *view->seat_maps);
    if (!view->seat_maps)
        return NULL;
    const struct seat_key key = seat_key_of(run, index);
    struct seat_layout *layout = view->seat_maps[index] ? NULL : seat_cache_find(&worker->engine->queue.seats, &key);
    if (layout)
        use_layout(worker, run, index, layout);
    return view->seat_maps[index];
}

void worker_drop_layouts(struct worker *worker)
{
    while (worker->layout_count)
        seat_layout_drop(worker->layouts[--worker->layout_count]);
}

/*
 * Returns the copy of a semaphore if it has all free slots, and the batch can use them: if they have labels, it needs
 * the seat map, too. NULL: there is none.
 */
static const struct semaphore_copy *find_all_slots(struct worker *worker, uint64_t semaphore_id, bool has_map)
    REQUIRES(engine_mutex)
{
    struct queue *queue = &worker->engine->queue;
    struct semaphore_entry *entry = semaphore_cache_find(&queue->semaphores, semaphore_id);
    const struct semaphore_copy *copy = entry ? rows_find(&queue->rows, entry) : NULL;
    return copy && semaphore_copy_has_all_slots(copy) && (has_map || !copy->labelled) ? copy : NULL;
}

/*
 * Takes all free slots of a locked semaphore from its copy, if they are known there by the version that is locked: a
 * run of adjacent slots, or the best seats, may be anywhere.
 */
static bool take_cached_slots(struct worker *worker, struct run *run, size_t index)
{
    const struct semaphore *semaphore = &run->view.semaphores[index];
    engine_lock(worker->engine);
    bool has_map = run_wants_best(run, semaphore->id) || find_seat_map(worker, run, index);
    const struct semaphore_copy *copy = find_all_slots(worker, semaphore->id, has_map);
    bool known = copy && copy->row.version == semaphore->version &&
                 semaphore_copy_load_slots(copy, SLOTS_MAX_CAPACITY + 1, worker->arena, &run->view.free_slots[index]);
    engine_unlock(worker->engine);
    return known;
}

/* Locks and reads. The free slots that are copied are not read if the locked version is the one of their copy. */
static enum permit_status lock_set_read(struct worker *worker, struct run *run, const struct lock_set *set)
{
    struct view *view = &run->view;
    enum permit_status status = worker->store->batch->lock(worker->store, set, worker->arena, view);
    for (size_t i = 0, at = 0; status == PERMIT_OK && i < view->semaphore_count; i++) {
        while (set->semaphore_ids[at] < view->semaphores[i].id)
            at++;
        if (set->slots_wanted[at].known_version == view->semaphores[i].version && !take_cached_slots(worker, run, i))
            status = PERMIT_CONFLICT; /* a new session has made it void since */
    }
    return status;
}

/* Copies: reads enough free slots for the next batches, and not those that a batch which needs all of them knows. */
static void know_slots(struct worker *worker, const struct run *run, const uint64_t *ids, struct slots_wanted *slots,
                       size_t count)
{
    engine_lock(worker->engine);
    for (size_t i = 0; i < count; i++) {
        if (slots[i].free == 0)
            continue;
        const struct semaphore_copy *copy = NULL;
        if (slots[i].free == SLOTS_MAX_CAPACITY)
            copy = find_all_slots(worker, ids[i], run_wants_best(run, ids[i]));
        slots[i].free = max_i64(slots[i].free, SLOTS_AHEAD);
        slots[i].known_version = copy ? copy->row.version : 0;
    }
    engine_unlock(worker->engine);
}

/* Locks the semaphores of the run, unless they are, and reads the rows that its plan needs. */
static enum permit_status lock_rows(struct worker *worker, struct run *run, bool lock_held)
{
    struct semaphore_entry *entries[BATCH_MAX_SEMAPHORES + 1];
    uint64_t ids[BATCH_MAX_SEMAPHORES];
    struct slots_wanted slots[BATCH_MAX_SEMAPHORES] = {0};
    size_t ahead[BATCH_MAX_SEMAPHORES];
    struct bytes *keys = arena_array(worker->arena, run_key_count(run), sizeof *keys);
    if (!keys)
        return PERMIT_NO_MEMORY;
    struct lock_set set = {.semaphore_ids = ids, .slots_wanted = slots, .keys = keys, .lock_held = lock_held};
    const struct operation *first = run->ops[0]->operation;
    if (operation_is_administrative(first->kind)) {
        set.semaphore_name = first->semaphore;
        set.all_slots = first->change && first->change->has_labels;
        enum permit_status status = worker->store->batch->lock(worker->store, &set, worker->arena, &run->view);
        bool seats = status == PERMIT_OK && first->change && first->change->seats && run->view.semaphore_count > 0;
        return seats ? read_seats(worker, &run->view) : status;
    }
    set.semaphore_count = run_collect_entries(run, entries);
    assert(set.semaphore_count <= BATCH_MAX_SEMAPHORES);
    engine_lock(worker->engine);
    bool short_path = worker->engine->settings.short_path;
    for (size_t i = 0; i < set.semaphore_count; i++) {
        ids[i] = entries[i]->id;
        assert(i == 0 || ids[i - 1] < ids[i]);
        slots[i].free = entries[i]->kind == KIND_COUNTED ? 0 : 1;
    }
    if (count_ahead(run, entries, set.semaphore_count, ahead))
        set.waiters_ahead = ahead;
    engine_unlock(worker->engine);
    for (size_t i = 0; i < set.semaphore_count; i++)
        if (slots[i].free && !run_slots_wanted(worker, run, ids[i], &slots[i]))
            return PERMIT_NO_MEMORY;
    if (short_path)
        know_slots(worker, run, ids, slots, set.semaphore_count);
    for (size_t i = 0; i < run->count; i++)
        for (size_t j = 0; j < operation_key_count(run->ops[i]->operation); j++)
            keys[set.key_count++] = operation_key(run->ops[i]->operation, j);
    set.owners = collect_owners(worker, run, &set.owner_count);
    return set.owners ? lock_set_read(worker, run, &set) : PERMIT_NO_MEMORY;
}

/* Handles a failover. PERMIT_CONFLICT: the batch runs again on the server that serves then, with new ids. */
static enum permit_status fail_over(struct worker *worker, enum epoch_cause cause, uint64_t seen)
{
    enum permit_status status = worker->store->batch->rollback(worker->store);
    if (status == PERMIT_OK)
        status = failover_run(worker->engine, worker->store, cause, seen);
    drop_ids(worker->engine, UINT64_MAX); /* of no epoch */
    return status == PERMIT_OK ? PERMIT_CONFLICT : status;
}

/* Checks that the locked rows may be used. */
static enum permit_status check_server(struct worker *worker, const struct view *view)
{
    if (!view->same_server)
        return fail_over(worker, EPOCH_SERVER, view->clock.epoch);
    if (failover_tokens_behind(worker->engine, view))
        return fail_over(worker, EPOCH_TOKENS, view->clock.epoch);
    drop_ids(worker->engine, view->clock.epoch);
    return PERMIT_OK;
}

/* Makes the view of a batch from the rows, with their locks. */
static enum permit_status lock_and_read(struct worker *worker, struct run *run)
{
    bool lock_held = false;
    enum permit_status status = gather(worker, run, &lock_held);
    boot_us asked_at = clock_boot();
    if (status == PERMIT_OK)
        status = lock_rows(worker, run, lock_held);
    boot_us answered_at = clock_boot();
    if (status == PERMIT_OK)
        status = check_server(worker, &run->view);
    if (status == PERMIT_OK)
        served_time_locked(worker->engine, &run->view, asked_at, answered_at);
    if (status == PERMIT_OK && feed_may_be_full(worker->engine)) { /* no events are left out for what was read before */
        struct feed_head head;
        status = worker->store->feed->head(worker->store, &head);
        run->view.feed_full = status == PERMIT_OK && head.full;
    }
    return status;
}

/* ---- the plan, on locked rows ---- */

/* Reads these parts of queues, and the living servers, in one or two more packets. */
static enum permit_status read_waiters(struct worker *worker, struct run *run, const struct queue_read *reads,
                                       size_t count)
{
    struct slots_wanted *slots = arena_array(worker->arena, count, sizeof *slots);
    if (!slots)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const struct semaphore *semaphore = &run->view.semaphores[reads[i].semaphore];
        slots[i] = (struct slots_wanted){0};
        if (semaphore->kind != KIND_SLOTTED)
            continue;
        if (!run_slots_wanted(worker, run, semaphore->id, &slots[i]))
            return PERMIT_NO_MEMORY;
        if (run->view.free_slots[reads[i].semaphore].complete || take_cached_slots(worker, run, reads[i].semaphore))
            slots[i].free = SLOTS_KNOWN;
    }
    enum permit_status status =
        worker->store->batch->read_waiters(worker->store, reads, slots, count, worker->arena, &run->view);
    if (status == PERMIT_OK && !waitlist_list_subscribers(worker->engine, worker->arena, &run->view))
        status = PERMIT_NO_MEMORY;
    return status;
}

/* Reads, without locks, the other semaphores that waiters of the view want, as far as the plan asks for them. */
static enum permit_status read_glimpses(struct worker *worker, struct run *run, const struct plan_settings *settings)
{
    utc_us aged = lease_time(&run->view.clock, run->view.now) - settings->backfill_bound_us;
    enum permit_status status = worker->store->batch->read_glimpses(
        worker->store, run->plan.unknown, run->plan.unknown_count, aged, worker->arena, &run->view);
    if (status == PERMIT_OK && !waitlist_list_subscribers(worker->engine, worker->arena, &run->view))
        status = PERMIT_NO_MEMORY;
    return status;
}

/* Locks the rows of the view in this state that the batch may write and has not locked. */
static enum permit_status lock_requests(struct worker *worker, struct run *run, enum request_state state)
{
    struct view *view = &run->view;
    uint64_t *ids = arena_array(worker->arena, view->request_count, sizeof *ids);
    if (!ids)
        return PERMIT_NO_MEMORY;
    size_t count = plan_rows_to_lock(view, state, ids);
    return count ? worker->store->batch->lock_requests(worker->store, ids, count, view) : PERMIT_OK;
}

/* Returns true if a waiter of the view wants best seats of this semaphore. */
static bool waiters_want_best(const struct view *view, uint64_t semaphore_id)
{
    for (size_t i = 0; i < view->request_count; i++) {
        const struct request *request = &view->requests[i];
        for (size_t j = 0; request->state == REQUEST_WAITING && j < request->want_count; j++)
            if (request->wants[j].semaphore_id == semaphore_id && request->wants[j].choice == CHOOSE_BEST)
                return true;
    }
    return false;
}

/* Reads the seats of a semaphore of the view, unless they are cached. */
static enum permit_status load_seat_map(struct worker *worker, struct run *run, size_t index)
{
    struct seat_cache *cache = &worker->engine->queue.seats;
    struct seat_layout *layout;
    engine_lock(worker->engine);
    const struct seat_map *map = find_seat_map(worker, run, index);
    engine_unlock(worker->engine);
    if (map || !run->view.seat_maps)
        return map ? PERMIT_OK : PERMIT_NO_MEMORY;
    const struct seat_key key = seat_key_of(run, index);
    enum permit_status status = seat_layout_read(worker->store, &key, &layout);
    if (status != PERMIT_OK)
        return status;
    engine_lock(worker->engine);
    seat_cache_put(cache, layout);
    use_layout(worker, run, index, layout);
    engine_unlock(worker->engine);
    return PERMIT_OK;
}

/* Loads the seat maps of the semaphores of which best seats, or labels, are wanted. */
static enum permit_status load_seat_maps(struct worker *worker, struct run *run)
{
    const struct view *view = &run->view;
    enum permit_status status = PERMIT_OK;
    for (size_t i = 0; i < view->semaphore_count && status == PERMIT_OK; i++) {
        const struct semaphore *semaphore = &view->semaphores[i];
        bool wanted = view->free_slots[i].labels_unread || run_wants_best(run, semaphore->id) ||
                      waiters_want_best(view, semaphore->id);
        if (semaphore->kind == KIND_SLOTTED && wanted)
            status = load_seat_map(worker, run, i);
    }
    return status;
}

/*
 * Reads the waiters that the batch may grant, and plans it. Nothing is read if no semaphore has waiters with units to
 * grant and no key of the batch waits. The plan may ask for more: then it is made again.
 */
static enum permit_status plan_with_waiters(struct worker *worker, struct run *run,
                                            const struct operation *const *operations,
                                            const struct plan_settings *settings)
{
    enum { ROUNDS_MAX = 5 };
    struct queue_read *reads = arena_array(worker->arena, run->view.semaphore_count, sizeof *reads);
    if (!reads)
        return PERMIT_NO_MEMORY;
    bool servers = false;
    size_t count = plan_queue_reads(&run->view, operations, run->count, settings, worker->arena, reads, &servers);
    bool read = count > 0 || servers;
    enum permit_status status = PERMIT_OK;
    for (int round = 1; status == PERMIT_OK; round++) { /* the plan of the last one asks for nothing */
        if (read)
            status = read_waiters(worker, run, reads, count);
        if (status == PERMIT_OK && run->locks_waiters)
            status = lock_requests(worker, run, REQUEST_WAITING);
        run->view.reads_end = round == ROUNDS_MAX;
        if (status == PERMIT_OK)
            status = load_seat_maps(worker, run);
        if (status == PERMIT_OK)
            status = plan_batch(&run->view, operations, run->count, run->ids, settings, worker->arena, &run->plan);
        if (status != PERMIT_OK || !plan_reads_more(&run->plan))
            return status;
        read = plan_read_on(&run->plan, &run->view, settings, reads, &count);
        if (run->plan.unknown_count)
            status = read_glimpses(worker, run, settings);
    }
    return status;
}

/*
 * Reads due holders, if a requested semaphore has a deficit and its next_due_at has passed, and locks their rows, which
 * the batch may end for others. If another session has locked due holders, reads more of them.
 */
static enum permit_status read_due_holders(struct worker *worker, struct run *run,
                                           const struct operation *const *operations)
{
    struct view *view = &run->view;
    struct shortfall *shortfalls = arena_array(worker->arena, view->semaphore_count, sizeof *shortfalls);
    if (!shortfalls)
        return PERMIT_NO_MEMORY;
    size_t count = plan_shortfalls(view, operations, run->count, shortfalls);
    enum permit_status status = PERMIT_OK;
    bool more = count > 0;
    for (unsigned round = 0; more && status == PERMIT_OK; round++) {
        status = worker->store->batch->read_due(worker->store, shortfalls, count, worker->arena, view);
        if (status == PERMIT_OK)
            status = lock_requests(worker, run, REQUEST_ACQUIRED);
        more = plan_read_past_locked(view, shortfalls, count, round);
    }
    return status;
}

/* Plans the run on locked rows. */
static enum permit_status plan_locked(struct worker *worker, struct run *run, const struct operation *const *operations,
                                      const struct plan_settings *settings)
{
    enum permit_status status = read_due_holders(worker, run, operations);
    return status == PERMIT_OK ? plan_with_waiters(worker, run, operations, settings) : status;
}

/* ---- the view, from copies ---- */

/* Returns true if operations like this one can be decided on copies. */
static bool is_plain(const struct op *op)
{
    const struct operation *operation = op->operation;
    switch (operation->kind) {
    case OP_ACQUIRE:
        for (size_t i = 0; i < operation->want_count; i++)
            if (operation->wants[i].semaphore_id == 0 || operation->wants[i].named_count)
                return false;
        return operation->ttl.kind != TTL_OWNER;
    case OP_RELEASE:
    case OP_RENEW:
    case OP_CONFIRM: return true;
    case OP_EXPIRE: return operation->expire_as == END_EXPIRED;
    default: return false;
    }
}

/* Returns true if all semaphores of the key are in the view. */
static bool view_has_semaphores(const struct view *view, const struct key_entry *entry)
{
    for (size_t i = 0; i < entry->count; i++) {
        size_t at = 0;
        while (at < view->semaphore_count && view->semaphores[at].id != entry->shares[i].semaphore_id)
            at++;
        if (at == view->semaphore_count)
            return false;
    }
    return true;
}

/*
 * Adds the copies of the requests of the keys of an op. An acquire with an unknown key is for a new request; the other
 * operations need theirs. False: one must be read.
 */
static bool load_requests(struct worker *worker, const struct operation *operation, struct view *view)
    REQUIRES(engine_mutex)
{
    for (size_t i = 0; i < operation_key_count(operation); i++) {
        const struct key_entry *entry = rows_find_key(&worker->engine->queue.rows, operation_key(operation, i));
        if (!entry && operation->kind == OP_ACQUIRE)
            continue;
        if (!entry || !entry->has_row || !view_has_semaphores(view, entry) ||
            !request_load(&entry->request, worker->arena, &view->requests[view->request_count++]))
            return false;
    }
    return true;
}

/* Sorts the requests and removes duplicates, which several operations of one key make. */
static void sort_requests(struct view *view)
{
    size_t kept = 0;
    if (view->request_count > 1)
        qsort(view->requests, view->request_count, sizeof *view->requests, request_compare_keys);
    for (size_t i = 0; i < view->request_count; i++)
        if (i == 0 || request_compare_keys(&view->requests[kept - 1], &view->requests[i]) != 0)
            view->requests[kept++] = view->requests[i];
    view->request_count = kept;
}

/* Loads free slots from the copy of a semaphore, and the seat map if best seats or labels are wanted. */
static bool load_slots(struct worker *worker, struct run *run, const struct semaphore_copy *copy, int64_t wanted,
                       size_t at) REQUIRES(engine_mutex)
{
    struct view *view = &run->view;
    const struct semaphore *semaphore = &view->semaphores[at];
    if (!semaphore_copy_load_slots(copy, wanted, worker->arena, &view->free_slots[at]))
        return false;
    if (!view->free_slots[at].labels_unread && !run_wants_best(run, semaphore->id))
        return true;
    return find_seat_map(worker, run, at) != NULL;
}

static bool load_semaphore(struct worker *worker, struct run *run, struct semaphore_entry *entry, mono_us now)
    REQUIRES(engine_mutex)
{
    struct view *view = &run->view;
    size_t at = view->semaphore_count;
    const struct semaphore_copy *copy = rows_find(&worker->engine->queue.rows, entry);
    struct slots_wanted slots = {0};
    if (!copy || copy->row.retired_at != NEVER || entry->shared_until > now ||
        !semaphore_copy_load(copy, worker->arena, &view->semaphores[at]))
        return false;
    view->semaphore_count++;
    view->next_due[at] = copy->row.next_due_at;
    if (copy->row.kind == KIND_COUNTED)
        return true;
    return run_slots_wanted(worker, run, entry->id, &slots) &&
           (slots.free == 0 || load_slots(worker, run, copy, slots.free, at));
}

/* Makes the view of a batch from copies. False: not all of it is known, or out of memory. */
static bool load_view(struct worker *worker, struct run *run) REQUIRES(engine_mutex)
{
    struct engine *engine = worker->engine;
    struct semaphore_entry *entries[BATCH_MAX_SEMAPHORES + 1];
    struct view *view = &run->view;
    mono_us now = clock_mono();
    *view = (struct view){0};
    if (!engine->settings.short_path || !served_time_estimate(engine, view))
        return false;
    for (size_t i = 0; i < run->count; i++)
        if (!is_plain(run->ops[i]))
            return false;
    size_t count = run_collect_entries(run, entries);
    view->seat_maps = arena_array(worker->arena, count, sizeof *view->seat_maps);
    view->semaphores = arena_array(worker->arena, count, sizeof *view->semaphores);
    view->free_slots = arena_array(worker->arena, count, sizeof *view->free_slots);
    view->named_slots = arena_array(worker->arena, count, sizeof *view->named_slots);
    view->next_due = arena_array(worker->arena, count, sizeof *view->next_due);
    view->requests = arena_array(worker->arena, run_key_count(run), sizeof *view->requests);
    if (!view->seat_maps || !view->semaphores || !view->free_slots || !view->named_slots || !view->next_due ||
        !view->requests)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!load_semaphore(worker, run, entries[i], now))
            return false;
    for (size_t i = 0; i < run->count; i++)
        if (!load_requests(worker, run->ops[i]->operation, view))
            return false;
    sort_requests(view);
    return count > 0;
}

/* Adds one part of a queue, and the slots that its waiters may take, as batch->read_waiters does. */
static bool load_queue(struct worker *worker, struct run *run, const struct queue_read *read, uint64_t server_id)
    REQUIRES(engine_mutex)
{
    struct queue *queue = &worker->engine->queue;
    struct view *view = &run->view;
    const struct semaphore *semaphore = &view->semaphores[read->semaphore];
    const struct semaphore_copy *copy =
        rows_find(&queue->rows, semaphore_cache_find(&queue->semaphores, semaphore->id));
    struct slots_wanted slots = {0};
    int64_t units;
    if (!copy || !semaphore_copy_load_queue(copy, read, server_id, worker->arena, view, &units))
        return false;
    if (semaphore->kind == KIND_COUNTED)
        return true;
    if (!run_slots_wanted(worker, run, semaphore->id, &slots))
        return false;
    int64_t wanted = max_i64(slots.free, min_i64(slots.free + min_i64(read->free, units), semaphore->capacity));
    return load_slots(worker, run, copy, wanted, read->semaphore);
}

/*
 * Adds the parts of the queues that the batch needs, with this server as the only living one. False: not all of these
 * are known, or out of memory.
 */
static bool load_queues(struct worker *worker, struct run *run, const struct operation *const *operations,
                        const struct plan_settings *settings)
{
    struct view *view = &run->view;
    struct queue_read *reads = arena_array(worker->arena, view->semaphore_count, sizeof *reads);
    bool needs_servers;
    if (!reads)
        return false;
    size_t count = plan_queue_reads(view, operations, run->count, settings, worker->arena, reads, &needs_servers);
    if (count == 0)
        return !needs_servers;
    size_t room = view->request_count;
    for (size_t i = 0; i < count; i++)
        room += reads[i].limit + 1;
    struct request *requests = arena_array(worker->arena, room, sizeof *requests);
    uint64_t *servers = arena_array(worker->arena, 1, sizeof *servers);
    view->queues = arena_array(worker->arena, view->semaphore_count, sizeof *view->queues);
    if (!settings->server_id || !requests || !servers || !view->queues)
        return false;
    if (view->request_count)
        memcpy(requests, view->requests, view->request_count * sizeof *requests);
    servers[0] = settings->server_id;
    view->requests = requests;
    view->servers = servers;
    view->server_count = 1;
    view->has_servers = true;
    bool known = true;
    engine_lock(worker->engine);
    for (size_t i = 0; i < count && known; i++)
        known = load_queue(worker, run, &reads[i], settings->server_id);
    engine_unlock(worker->engine);
    if (!known)
        return false;
    sort_requests(view);
    return waitlist_list_subscribers(worker->engine, worker->arena, view);
}

/* Plans the run on copies. PERMIT_CONFLICT: a row that it needs is not copied. */
static enum permit_status plan_copies(struct worker *worker, struct run *run, const struct operation *const *operations,
                                      const struct plan_settings *settings)
{
    struct shortfall *shortfalls = arena_array(worker->arena, run->view.semaphore_count, sizeof *shortfalls);
    if (!shortfalls)
        return PERMIT_NO_MEMORY;
    if (plan_shortfalls(&run->view, operations, run->count, shortfalls) > 0) /* due holders are not copied */
        return PERMIT_CONFLICT;
    if (!load_queues(worker, run, operations, settings))
        return PERMIT_CONFLICT;
    return plan_batch(&run->view, operations, run->count, run->ids, settings, worker->arena, &run->plan);
}

/* ---- the plan ---- */

/* Plans the run. Consumes the ids even if the transaction fails, because its outcome may be unknown. */
static enum permit_status make_plan(struct worker *worker, struct run *run, bool on_copies)
{
    const struct operation **operations = run_operations(worker, run);
    if (!operations)
        return PERMIT_NO_MEMORY;
    if (!run_take_ids(run))
        return PERMIT_CONFLICT; /* the next try reserves more */
    run->settings = engine_plan_settings(worker->engine);
    run->settings.max_packet = worker->store->max_packet;
    enum permit_status status = on_copies ? plan_copies(worker, run, operations, &run->settings)
                                          : plan_locked(worker, run, operations, &run->settings);
    assert(status != PERMIT_OK || run->plan.ids_used <= run->count);
    run_keep_ids(run, status == PERMIT_OK ? run->plan.ids_used : 0);
    return status;
}

/* ---- the write ---- */

/*
 * P22: marks the operations that the packet writes as sent: those that are not refused without a place in the queue (a
 * last decision may give up a place) or because of a locked row, and of those that are put back the ones with a place.
 * False: a client was answered since the batch began; the packet must not be sent. The clients of waiters are marked
 * since they were parked.
 */
static bool mark_sent(struct run *run)
{
    bool sendable = true;
    for (size_t i = 0; i < run->count && sendable; i++) {
        const struct outcome *outcome = &run->plan.outcomes[i];
        bool refused = outcome->may_wait || outcome->status == PERMIT_IN_TRANSACTION;
        bool writes = !refused || outcome->waits || operation_ends_wait(run->ops[i]->operation);
        struct op *op = run->ops[i];
        bool sends = outcome->put_back ? outcome->waits : writes;
        op->sent_now = sends && !stage_is_sent(&op->stage);
        if (sends)
            sendable = stage_send(&op->stage);
    }
    return sendable;
}

/* The packet was stopped before its COMMIT: takes the marks back that mark_sent has made for it. */
static void unmark_sent(struct run *run)
{
    for (size_t i = 0; i < run->count; i++)
        if (run->ops[i]->sent_now)
            stage_reopen(&run->ops[i]->stage);
}

/* Before the packet with COMMIT. False: it must not be sent, because a client was answered, or has left. */
static bool begin_write(struct run *run)
{
    bool writes = !run->plan.changes.empty;
    if ((writes && !mark_sent(run)) || !waitlist_begin_grants(run->worker->engine, &run->plan))
        return false;
    run->applied = writes;
    return true;
}

void run_cancel_grants(struct run *run)
{
    if (run->applied && run->plan.notice_count)
        waitlist_cancel_grants(run->worker->engine, &run->plan);
    run->plan.notice_count = 0;
}

/*
 * Writes and commits; without changes it rolls back, which needs no flush. PERMIT_CONFLICT after an answered client, or
 * one that has left: the next try drops that operation, or does not grant; also if another session has locked the row
 * of a waiter, which is rare: the next try locks these rows before it plans.
 */
static enum permit_status write_changes(struct worker *worker, struct run *run)
{
    if (run->plan.changes.empty)
        return worker->store->batch->rollback(worker->store);
    enum permit_status status = worker->store->batch->prepare(worker->store, &run->plan.changes, NULL);
    if (status != PERMIT_OK)
        return status;
    if (!begin_write(run))
        return PERMIT_CONFLICT;
    status = worker->store->batch->commit(worker->store, &run->plan.changes);
    if (status == PERMIT_INTERNAL && worker->store->was_stopped)
        unmark_sent(run);
    if (status == PERMIT_OK && run->plan.changes.feed_count)
        feed_written(worker->engine);
    if (status != PERMIT_LOCK_TIMEOUT || run->locks_waiters)
        return status;
    run->locks_waiters = true;
    return PERMIT_CONFLICT;
}

/* ---- the short path ---- */

/*
 * A batch whose rows are all copied is planned on the copies and sent as one packet, which takes the locks, writes,
 * proves that the copies were right, and commits. If they were not, nothing has happened, and the batch goes the long
 * way: lock and read, then write.
 *
 * The long way is for everything rare: administrative operations, looks and leaves of waiters, mail, forced releases,
 * ttl "owner", specific slots, best seats and slots with labels whose seat map is not cached, queues that are not
 * copied, due holders, keys whose request is not copied (except unknown keys of acquires), ends of a dead owner's
 * requests, and refusals for another reason than capacity that write nothing: an errand raises no version, so none of
 * these proves them.
 */

/*
 * Returns true if the one packet can write and prove the plan, and nobody else must be told of it. If nothing changes,
 * it proves that there is no capacity; other refusals are decided from the rows.
 */
static bool plan_is_plain(const struct plan *plan, size_t count)
{
    const struct changes *changes = &plan->changes;
    if (plan_reads_more(plan))
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct outcome *outcome = &plan->outcomes[i];
        bool is_proven = outcome->status == PERMIT_NO_CAPACITY || (!changes->empty && outcome->status == PERMIT_OK) ||
                         (!changes->empty && outcome->request);
        if (outcome->put_back || !is_proven)
            return false;
    }
    return changes->semaphore_count > 0 && changes->mail_count == 0 && changes->event_count == 0;
}

static bool inserts(const struct changes *changes, struct bytes external_id)
{
    for (size_t i = 0; i < changes->request_count && changes->requests[i].insert; i++)
        if (bytes_equal(changes->requests[i].request->external_id, external_id))
            return true;
    return false;
}

/*
 * Collects what the packet has to prove beside the versions of its semaphores: time, server, epoch, and the keys that
 * the plan takes for new and does not insert. False: out of memory.
 */
static bool collect_assumed(struct worker *worker, const struct run *run, struct assumed *ret_assumed)
{
    const struct view *view = &run->view;
    struct bytes *absent = arena_array(worker->arena, run->count, sizeof *absent);
    size_t absent_count = 0;
    for (size_t i = 0; absent && i < run->count; i++) {
        const struct request key = {.external_id = run->ops[i]->operation->external_id};
        bool refused = run->plan.outcomes[i].status != PERMIT_OK;
        bool known =
            view->request_count && bsearch(&key, view->requests, view->request_count, sizeof key, request_compare_keys);
        if (refused && !known && !inserts(&run->plan.changes, key.external_id))
            absent[absent_count++] = key.external_id;
    }
    *ret_assumed = (struct assumed){.epoch = view->clock.epoch,
                                    .server_id = run->plan.changes.place_count ? run->settings.server_id : 0,
                                    .now = lease_time(&view->clock, view->now),
                                    .slack_us = SLACK_US,
                                    .absent = absent,
                                    .absent_count = absent_count};
    return absent != NULL;
}

/* Plans the run on copies and prepares its packet. False: it goes the long way. */
static bool prepare_copies(struct worker *worker, struct run *run, struct assumed *ret_assumed)
{
    engine_lock(worker->engine);
    bool known = load_view(worker, run);
    engine_unlock(worker->engine);
    if (!known || make_plan(worker, run, true) != PERMIT_OK || !plan_is_plain(&run->plan, run->count))
        return false;
    if (run->plan.changes.feed_count && feed_may_be_full(worker->engine))
        return false; /* whether it is, is read under the locks */
    if (!run->plan.changes.empty)
        plan_write_all(&run->plan);
    return collect_assumed(worker, run, ret_assumed) &&
           worker->store->batch->prepare(worker->store, &run->plan.changes, ret_assumed) == PERMIT_OK;
}

/*
 * Runs the batch on copies. False: it goes the long way, and no transaction is open. True: *ret_status is the end of
 * the try; PERMIT_OK: it is committed, or proven to change nothing.
 */
static bool run_on_copies(struct worker *worker, struct run *run, enum permit_status *ret_status)
{
    struct assumed assumed;
    enum mismatch mismatch;
    if (!prepare_copies(worker, run, &assumed) || !begin_write(run))
        return false;
    *ret_status = worker->store->batch->commit_if_unchanged(worker->store, &run->plan.changes, &assumed, &mismatch);
    run->on_copies = *ret_status == PERMIT_OK;
    if (run->on_copies && run->plan.changes.feed_count)
        feed_written(worker->engine);
    if (run->on_copies)
        return true;
    run_cancel_grants(run);
    bool marked = run->applied;
    run->applied = false; /* which rows it has waited for is not known */
    if (mismatch == MISMATCH_NONE)
        return true;
    metrics_count(&worker->engine->metrics.mismatches[mismatch]);
    if (mismatch == MISMATCH_GUARD)
        served_time_forget(worker->engine);
    if (marked)
        unmark_sent(run);
    *ret_status = worker->store->batch->rollback(worker->store);
    return *ret_status != PERMIT_OK;
}

/* ---- the try ---- */

/*
 * Notes the worker's session, before anything is sent, and the generation of copies that the try may store. Ends the hold
 * of the try before.
 */
static void note_session(struct worker *worker, struct run *run)
{
    struct engine *engine = worker->engine;
    engine_lock(engine);
    worker_drop_layouts(worker);
    engine->queue.rows.generation += worker->sessions != worker->store->sessions;
    worker->sessions = worker->store->sessions;
    run->generation = engine->queue.rows.generation;
    engine_unlock(engine);
}

enum permit_status attempt(struct worker *worker, struct run *run)
{
    run_cancel_grants(run);
    arena_clear(worker->arena);
    run->applied = false;
    enum permit_status status = task_connect(worker->task);
    note_session(worker, run);
    if (status == PERMIT_OK)
        status = reserve_ids(worker);
    if (status == PERMIT_OK && !run->tried_copies) {
        run->tried_copies = true;
        if (run_on_copies(worker, run, &status))
            return status;
        arena_clear(worker->arena);
        if (run_drop_late(&run->transaction, PERMIT_BUSY) == 0) /* its packet waited for too long */
            return PERMIT_OK;
    }
    if (status == PERMIT_OK)
        status = lock_and_read(worker, run);
    if (status == PERMIT_OK)
        status = make_plan(worker, run, false);
    return status == PERMIT_OK ? write_changes(worker, run) : status;
}
