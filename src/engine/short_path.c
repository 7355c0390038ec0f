/* SPDX-License-Identifier: MIT */
#include "engine/short_path.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/served_time.h"
#include "engine/waitlist.h"
#include "engine/worker.h"

/* A batch that commits later than this after its plan goes the long way. Deadlines count from LEASE_MARGIN_US. */
#define SLACK_US (250LL * US_PER_MS)
_Static_assert(SLACK_US <= LEASE_MARGIN_US, "no request ends early because its packet waited");

/* ---- the view ---- */

/* Returns the copy; NULL: there is none, or the semaphore goes the long way now. */
static const struct semaphore_copy *usable(struct engine *engine, struct semaphore_entry *entry, mono_us now)
    REQUIRES(engine_mutex)
{
    const struct semaphore_copy *copy = rows_find(&engine->queue.rows, entry);
    return copy && entry->shared_until <= now && copy->row.retired_at == NEVER ? copy : NULL;
}

static bool wants_are_plain(const struct operation *operation)
{
    for (size_t i = 0; i < operation->want_count; i++)
        if (operation->wants[i].semaphore_id == 0 || operation->wants[i].named_count)
            return false;
    return true;
}

/* Returns true if operations like this one can be decided on cached rows. */
static bool is_plain(const struct op *op)
{
    const struct operation *operation = op->operation;
    switch (operation->kind) {
    case OP_ACQUIRE: return operation->ttl.kind != TTL_OWNER && wants_are_plain(operation);
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

/* The requests are sorted. */
static bool has_request(const struct view *view, struct bytes external_id)
{
    const struct request key = {.external_id = external_id};
    return view->request_count && bsearch(&key, view->requests, view->request_count, sizeof key, request_compare_keys);
}

/*
 * Adds the cached request of the key of an op. An acquire with an unknown key is for a new request; the other operations
 * need theirs. False: it must be read.
 */
static bool load_request(struct worker *worker, const struct op *op, struct view *view) REQUIRES(engine_mutex)
{
    const struct key_entry *entry = rows_find_key(&worker->engine->queue.rows, op->operation->external_id);
    if (!entry)
        return op->operation->kind == OP_ACQUIRE;
    return entry->has_row && view_has_semaphores(view, entry) &&
           request_load(&entry->request, worker->arena, &view->requests[view->request_count++]);
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

static bool load_semaphore(struct worker *worker, struct run *run, struct semaphore_entry *entry, mono_us now)
    REQUIRES(engine_mutex)
{
    struct view *view = &run->view;
    size_t at = view->semaphore_count;
    const struct semaphore_copy *copy = usable(worker->engine, entry, now);
    struct slots_wanted slots = {0};
    if (!copy || !semaphore_copy_load(copy, worker->arena, &view->semaphores[at]))
        return false;
    view->semaphore_count++;
    view->next_due[at] = copy->row.next_due_at;
    if (copy->row.kind == KIND_COUNTED)
        return true;
    return run_slots_wanted(worker, run, entry->id, &slots) &&
           (slots.free == 0 || semaphore_copy_load_slots(copy, slots.free, worker->arena, &view->free_slots[at]));
}

/* Makes the view of a batch from the caches. False: not all of it is known, or out of memory. */
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
    view->semaphores = arena_array(worker->arena, count, sizeof *view->semaphores);
    view->free_slots = arena_array(worker->arena, count, sizeof *view->free_slots);
    view->named_slots = arena_array(worker->arena, count, sizeof *view->named_slots);
    view->next_due = arena_array(worker->arena, count, sizeof *view->next_due);
    view->requests = arena_array(worker->arena, run->count, sizeof *view->requests);
    if (!view->semaphores || !view->free_slots || !view->named_slots || !view->next_due || !view->requests)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!load_semaphore(worker, run, entries[i], now))
            return false;
    for (size_t i = 0; i < run->count; i++)
        if (!load_request(worker, run->ops[i], view))
            return false;
    sort_requests(view);
    return count > 0;
}

/* ---- the queues ---- */

/* Makes room in the view for these parts of queues, with this server as the only living one. False: out of memory. */
static bool make_room(const struct queue_read *reads, size_t count, uint64_t server_id, struct arena *arena,
                      struct view *view)
{
    size_t room = view->request_count;
    for (size_t i = 0; i < count; i++)
        room += reads[i].limit + 1;
    struct request *requests = arena_array(arena, room, sizeof *requests);
    uint64_t *servers = arena_array(arena, 1, sizeof *servers);
    view->queues = arena_array(arena, view->semaphore_count, sizeof *view->queues);
    if (!requests || !servers || !view->queues)
        return false;
    if (view->request_count)
        memcpy(requests, view->requests, view->request_count * sizeof *requests);
    servers[0] = server_id;
    view->requests = requests;
    view->servers = servers;
    view->server_count = 1;
    view->has_servers = true;
    return true;
}

/* Adds one part of a queue, and the slots that its waiters may take, as store_read_waiters does. */
static bool load_queue(struct worker *worker, struct run *run, const struct queue_read *read, uint64_t server_id)
{
    struct view *view = &run->view;
    const struct semaphore *semaphore = &view->semaphores[read->semaphore];
    struct slots_wanted slots = {0};
    int64_t units;
    engine_lock(worker->engine);
    struct queue *queue = &worker->engine->queue;
    const struct semaphore_copy *copy =
        rows_find(&queue->rows, semaphore_cache_find(&queue->semaphores, semaphore->id));
    bool known = copy && semaphore_copy_load_queue(copy, read, server_id, worker->arena, view, &units);
    if (known && semaphore->kind == KIND_SLOTTED) {
        known = run_slots_wanted(worker, run, semaphore->id, &slots);
        int64_t wanted = max_i64(slots.free, min_i64(slots.free + min_i64(read->free, units), semaphore->capacity));
        known = known && semaphore_copy_load_slots(copy, wanted, worker->arena, &view->free_slots[read->semaphore]);
    }
    engine_unlock(worker->engine);
    return known;
}

/* Adds the parts of the queues that the batch needs. False: not all of these are known, or out of memory. */
static bool load_queues(struct worker *worker, struct run *run, const struct operation *const *operations,
                        const struct plan_settings *settings)
{
    struct view *view = &run->view;
    struct queue_read *reads = arena_array(worker->arena, view->semaphore_count, sizeof *reads);
    bool servers;
    if (!reads)
        return false;
    size_t count = plan_queue_reads(view, operations, run->count, settings, worker->arena, reads, &servers);
    if (count == 0)
        return !servers;
    if (!settings->server_id || !make_room(reads, count, settings->server_id, worker->arena, view))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!load_queue(worker, run, &reads[i], settings->server_id))
            return false;
    sort_requests(view);
    return waitlist_list_subscribers(worker->engine, worker->arena, view);
}

/* ---- the plan ---- */

/*
 * Returns true if the one packet can write and prove the plan, and nobody else must be told of it. If nothing changes, it
 * proves that there is no capacity; other refusals are decided from the rows.
 */
static bool plan_is_plain(const struct plan *plan, size_t count)
{
    const struct changes *changes = &plan->changes;
    if (plan_reads_more(plan))
        return false;
    for (size_t i = 0; i < count; i++)
        if (plan->outcomes[i].put_back || (changes->empty && plan->outcomes[i].status != PERMIT_NO_CAPACITY))
            return false;
    return changes->semaphore_count > 0 && changes->mail_count == 0 && changes->event_count == 0;
}

static bool inserts(const struct changes *changes, struct bytes external_id)
{
    for (size_t i = 0; i < changes->request_count && changes->requests[i].insert; i++)
        if (bytes_equal(changes->requests[i].request->external_id, external_id))
            return true;
    return false;
}

/* Collects the keys that the plan takes for new and does not insert. False: out of memory. */
static bool collect_absent(struct worker *worker, const struct run *run, struct assumed *assumed)
{
    struct bytes *keys = arena_array(worker->arena, run->count, sizeof *keys);
    for (size_t i = 0; keys && i < run->count; i++) {
        struct bytes key = run->ops[i]->operation->external_id;
        bool refused = run->plan.outcomes[i].status != PERMIT_OK;
        if (refused && !has_request(&run->view, key) && !inserts(&run->plan.changes, key))
            keys[assumed->absent_count++] = key;
    }
    assumed->absent = keys;
    return keys != NULL;
}

/* Plans the batch on cached rows. *ret_planned: the plan may be sent. */
static enum permit_status plan_cached(struct worker *worker, struct run *run, struct assumed *ret_assumed,
                                      bool *ret_planned)
{
    const struct operation **operations = run_operations(worker, run);
    struct shortfall *shortfalls = arena_array(worker->arena, run->view.semaphore_count, sizeof *shortfalls);
    *ret_planned = false;
    if (!operations || !shortfalls)
        return PERMIT_NO_MEMORY;
    if (plan_shortfalls(&run->view, operations, run->count, shortfalls) > 0)
        return PERMIT_OK; /* due holders, which are not cached */
    struct plan_settings settings = worker_plan_settings(worker);
    if (!load_queues(worker, run, operations, &settings) || !run_take_ids(run))
        return PERMIT_OK;
    enum permit_status status =
        plan_batch(&run->view, operations, run->count, run->ids, &settings, worker->arena, &run->plan);
    run_keep_ids(run, status == PERMIT_OK ? run->plan.ids_used : 0);
    if (status != PERMIT_OK || !plan_is_plain(&run->plan, run->count))
        return status;
    if (!run->plan.changes.empty)
        plan_write_all(&run->plan);
    *ret_assumed = (struct assumed){.epoch = run->view.clock.epoch,
                                    .server_id = run->plan.changes.place_count ? settings.server_id : 0,
                                    .now = lease_time(&run->view.clock, run->view.now),
                                    .slack_us = SLACK_US};
    if (!collect_absent(worker, run, ret_assumed))
        return PERMIT_NO_MEMORY;
    *ret_planned = true;
    return PERMIT_OK;
}

/* ---- the packet ---- */

static void record_mismatch(struct engine *engine, enum mismatch mismatch)
{
    metrics_count(&engine->metrics.mismatches[mismatch]);
    if (mismatch == MISMATCH_GUARD)
        served_time_forget(engine);
}

enum permit_status short_path_run(struct worker *worker, struct run *run, bool *ret_done)
{
    struct engine *engine = worker->engine;
    struct assumed assumed;
    enum mismatch mismatch;
    bool planned = false;
    *ret_done = false;
    engine_lock(engine);
    bool known = load_view(worker, run);
    engine_unlock(engine);
    enum permit_status status = known ? plan_cached(worker, run, &assumed, &planned) : PERMIT_OK;
    bool writes = planned && !run->plan.changes.empty;
    if (status == PERMIT_OK && planned)
        status = store_prepare(worker->store, &run->plan.changes, &assumed);
    if (status == PERMIT_TOO_LARGE) /* the rows decide whether it is */
        return PERMIT_OK;
    if (status != PERMIT_OK || !planned || (writes && !run_mark_sent(run)))
        return status;
    if (!waitlist_begin_grants(engine, &run->plan))
        return PERMIT_OK;
    run->applied = writes;
    status = store_commit_cached(worker->store, &run->plan.changes, &assumed, &mismatch);
    *ret_done = status == PERMIT_OK;
    if (*ret_done)
        return status;
    run_cancel_grants(run);
    run->applied = false; /* which rows it has waited for is not known */
    if (mismatch == MISMATCH_NONE)
        return status;
    record_mismatch(engine, mismatch);
    return store_rollback(worker->store);
}

/* ---- learning ---- */

bool short_path_wants_queue(struct engine *engine, uint64_t semaphore_id)
{
    engine_lock(engine);
    struct semaphore_entry *entry = semaphore_cache_find(&engine->queue.semaphores, semaphore_id);
    const struct semaphore_copy *copy = entry ? rows_find(&engine->queue.rows, entry) : NULL;
    bool wants = copy && !copy->has_queue && entry->queue_read_from <= clock_mono();
    engine_unlock(engine);
    return wants && engine->settings.short_path;
}

void short_path_learn(struct worker *worker, const struct run *run)
{
    struct engine *engine = worker->engine;
    const struct committed commit = {.read = &run->view,
                                     .plan = &run->plan,
                                     .copies = engine->settings.short_path,
                                     .generation = run->generation,
                                     .server_id = engine_server_id(engine),
                                     .now = clock_mono(),
                                     .shared_pause_us = engine->settings.shared_pause_ms * US_PER_MS};
    rows_learn(&engine->queue.rows, &engine->queue.semaphores, &commit);
}
