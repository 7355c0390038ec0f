/* SPDX-License-Identifier: MIT */
/*
 * The groups of methods that the tasks call. The database in memory keeps no names of owners and no heartbeats, and has
 * nothing that is old enough for retention. The oracle compares its rows, so the audit finds nothing. Methods that only
 * the API or the liveness task calls are NULL.
 */
#include "fake_tasks.h"

#include "fake_session.h"
#include "oracle.h"
#include "store/audit.h"
#include "store/doctor.h"
#include "store/owners.h"
#include "store/query.h"
#include "store/retention_batch.h"
#include "store/templates.h"

/* A read that finds nothing. */
static enum permit_status read_nothing(struct store *store)
{
    enum permit_status status = call_enter(fake_of(store));
    return status == PERMIT_OK ? call_leave(fake_of(store)) : status;
}

/* ---- queries ---- */

static void read_time(struct query_time *ret_time)
{
    *ret_time = (struct query_time){.clock = database.globals.clock, .now = database_now()};
}

static enum permit_status clock_now(struct store *store, struct query_time *ret_time)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    read_time(ret_time);
    return call_leave(fake);
}

static int compare_tokens(const void *a, const void *b)
{
    const struct holder_row *left = a, *right = b;
    return (left->permit.token > right->permit.token) - (left->permit.token < right->permit.token);
}

/* Adds the permits of a held request at this semaphore. */
static size_t add_holder(const struct request *request, uint64_t semaphore_id, uint64_t after, struct arena *arena,
                         struct holder_row *rows)
{
    size_t count = 0;
    for (size_t i = 0; i < request->permit_count; i++)
        if (request->permits[i].semaphore_id == semaphore_id && request->permits[i].token > after) {
            rows[count] = (struct holder_row){.request = *request, .permit = request->permits[i]};
            rows[count].request.external_id = arena_copy(arena, request->external_id);
            rows[count++].request.owner = arena_copy(arena, request->owner);
        }
    return count;
}

static enum permit_status holders(struct store *store, struct bytes name, struct page *page)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    const struct db_semaphore *semaphore = database_semaphore_named(name);
    if (!semaphore || !row_in_service(&semaphore->row))
        return call_leave(fake) == PERMIT_OK ? PERMIT_UNKNOWN_SEMAPHORE : PERMIT_DATABASE_LOST;
    struct holder_row *rows = arena_array(page->arena, database.held_count, sizeof *rows);
    size_t count = 0;
    if (!rows)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < database.held_count; i++)
        count += add_holder(&database.held[i]->row.request, semaphore->row.semaphore.id, page->after.number,
                            page->arena, &rows[count]);
    qsort(rows, count, sizeof *rows, compare_tokens);
    page->holders = rows;
    page_end(page, count);
    if (page->count)
        page->next.number = rows[page->count - 1].permit.token;
    read_time(&page->time);
    return call_leave(fake);
}

static int compare_waiters(const void *a, const void *b)
{
    return compare_places(&(*(struct db_key *const *)a)->row.request, &(*(struct db_key *const *)b)->row.request);
}

/*
 * The keys of the queue of a semaphore in its order, without kept places. `before`: only those that stand before this
 * request; NULL: all. False: out of memory.
 */
static bool list_queue(uint64_t semaphore_id, const struct request *before, struct arena *arena,
                       struct db_key ***ret_keys, size_t *ret_count)
{
    struct db_key **keys = arena_array(arena, database.waiting_count, sizeof *keys);
    size_t count = 0;
    if (!keys)
        return false;
    for (size_t i = 0; i < database.waiting_count; i++) {
        struct db_key *key = database.waiting[i];
        bool stands = queue_is_asked(key) && (!before || compare_places(&key->row.request, before) < 0);
        for (size_t j = 0; stands && j < key->row.place_count; j++)
            if (key->row.places[j].semaphore_id == semaphore_id)
                keys[count++] = key;
    }
    if (count)
        qsort(keys, count, sizeof(struct db_key *), compare_waiters);
    *ret_keys = keys;
    *ret_count = count;
    return true;
}

static struct bytes *copy_keys(struct db_key *const *keys, size_t count, struct arena *arena)
{
    struct bytes *texts = arena_array(arena, count, sizeof *texts);
    for (size_t i = 0; texts && i < count; i++)
        texts[i] = arena_copy(arena, keys[i]->external_id);
    return texts;
}

static enum permit_status read_front(const struct db_semaphore *semaphore, struct arena *arena,
                                     struct semaphore_front *front)
{
    uint64_t id = semaphore->row.semaphore.id;
    struct holder_row *rows = arena_array(arena, database.held_count, sizeof *rows);
    struct db_key **keys;
    size_t held = 0, waiting;
    if (!rows || !list_queue(id, NULL, arena, &keys, &waiting))
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < database.held_count; i++)
        held += add_holder(&database.held[i]->row.request, id, 0, arena, &rows[held]);
    qsort(rows, held, sizeof *rows, compare_tokens);
    front->holder_count = held < QUERY_FRONT_HOLDERS ? held : QUERY_FRONT_HOLDERS;
    front->holders = arena_array(arena, front->holder_count, sizeof *front->holders);
    for (size_t i = 0; front->holders && i < front->holder_count; i++)
        front->holders[i] = (struct front_holder){.external_id = rows[i].request.external_id,
                                                  .owner = rows[i].request.owner,
                                                  .since = rows[i].request.acquired_at,
                                                  .expires_at = request_expires_at(&rows[i].request)};
    front->waiter_count = waiting < QUERY_FRONT_WAITERS ? waiting : QUERY_FRONT_WAITERS;
    front->waiters = copy_keys(keys, front->waiter_count, arena);
    return front->holders && front->waiters ? PERMIT_OK : PERMIT_NO_MEMORY;
}

static enum permit_status fronts(struct store *store, const uint64_t *semaphore_ids, size_t count, struct arena *arena,
                                 struct semaphore_front *ret_fronts, struct query_time *ret_time)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    for (size_t i = 0; i < count && status == PERMIT_OK; i++) {
        ret_fronts[i] = (struct semaphore_front){.holder_count = 0};
        if (database_semaphore(semaphore_ids[i]))
            status = read_front(database_semaphore(semaphore_ids[i]), arena, &ret_fronts[i]);
    }
    read_time(ret_time);
    return status == PERMIT_OK ? call_leave(fake) : status;
}

static enum permit_status ahead(struct store *store, const struct request *request, struct arena *arena,
                                struct queue_position **ret_positions, bool *ret_kept)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    struct queue_position *positions = arena_array(arena, request->want_count, sizeof *positions);
    if (!positions)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < request->want_count; i++) {
        struct db_key **keys;
        size_t count;
        if (!list_queue(request->wants[i].semaphore_id, request, arena, &keys, &count))
            return PERMIT_NO_MEMORY;
        size_t key_count = count < QUERY_AHEAD_KEYS ? count : QUERY_AHEAD_KEYS;
        positions[i] =
            (struct queue_position){.ahead = count, .keys = copy_keys(keys, key_count, arena), .key_count = key_count};
        if (!positions[i].keys)
            return PERMIT_NO_MEMORY;
    }
    const struct db_server *server = database_server(request->server_id);
    *ret_positions = positions;
    *ret_kept = !server || server->row.dead_at != NEVER;
    return call_leave(fake);
}

static int compare_wants(const void *a, const void *b)
{
    return bytes_compare(((const struct want *)a)->semaphore, ((const struct want *)b)->semaphore);
}

static struct bytes semaphore_name(uint64_t id)
{
    return database_semaphore(id)->row.semaphore.name;
}

static enum permit_status read_request(struct store *store, struct bytes external_id, struct arena *arena,
                                       struct request *ret_request, struct bytes **ret_names,
                                       struct query_time *ret_time)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    const struct request_row *row = &database_key(external_id)->row;
    if (!row->exists)
        return call_leave(fake) == PERMIT_OK ? PERMIT_UNKNOWN_REQUEST : PERMIT_DATABASE_LOST;
    struct request request;
    fake_batch_copy_request(row, arena, &request);
    for (size_t i = 0; i < request.want_count; i++)
        request.wants[i].semaphore = semaphore_name(request.wants[i].semaphore_id);
    if (request.want_count)
        qsort(request.wants, request.want_count, sizeof *request.wants, compare_wants);
    struct bytes *names = arena_array(arena, request.want_count + request.permit_count, sizeof *names);
    for (size_t i = 0; i < request.want_count; i++)
        names[i] = request.wants[i].semaphore;
    for (size_t i = 0; i < request.permit_count; i++)
        names[i] = semaphore_name(request.permits[i].semaphore_id);
    *ret_request = request;
    *ret_names = names;
    read_time(ret_time);
    return call_leave(fake);
}

static enum permit_status semaphores_of(struct store *store, const uint64_t *ids, size_t count, struct arena *arena,
                                        struct semaphore_page *ret_page)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    *ret_page = (struct semaphore_page){.rows = arena_array(arena, count, sizeof *ret_page->rows)};
    if (!ret_page->rows)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        if (database_semaphore(ids[i]))
            ret_page->rows[ret_page->count++] = database_semaphore(ids[i])->row.semaphore;
    return call_leave(fake);
}

static struct due_position position_of(const struct request *request)
{
    struct due_position position = {.due_s = (uint64_t)(request->due_at / US_PER_SECOND), .block = request->id};
    for (size_t i = 0; i < request->permit_count; i++)
        if (position.semaphore_id == 0 || request->permits[i].semaphore_id < position.semaphore_id)
            position =
                (struct due_position){position.due_s, request->permits[i].semaphore_id, request->permits[i].token / 64};
    return position;
}

static int compare_positions(const void *a, const void *b)
{
    const struct due_position *left = &((const struct due_request *)a)->position;
    const struct due_position *right = &((const struct due_request *)b)->position;
    int order = (left->due_s > right->due_s) - (left->due_s < right->due_s);
    if (!order)
        order = (left->semaphore_id > right->semaphore_id) - (left->semaphore_id < right->semaphore_id);
    return order ? order : (left->block > right->block) - (left->block < right->block);
}

/* Ends the page after `limit` positions. */
static void end_page(struct due_page *page)
{
    size_t positions = 0;
    for (size_t i = 0; i < page->ret_count; i++) {
        bool another = i == 0 || compare_positions(&page->ret_requests[i - 1], &page->ret_requests[i]) != 0;
        if (another && positions++ == page->limit) {
            page->ret_count = i;
            break;
        }
    }
    page->ret_more = positions >= page->limit;
    if (page->ret_more)
        page->ret_end = page->ret_requests[page->ret_count - 1].position;
}

static enum permit_status due(struct store *store, struct due_page *page, struct arena *arena)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    struct db_key **keys;
    size_t count = fake_batch_sort_due(0, arena, &keys);
    const struct due_request after = {.position = page->after};
    page->ret_count = 0;
    page->ret_requests = arena_array(arena, count, sizeof *page->ret_requests);
    for (size_t i = 0; i < count; i++) {
        const struct request *request = &keys[i]->row.request;
        struct due_request due = {.due_at = request->due_at, .position = position_of(request)};
        if (compare_positions(&due, &after) <= 0)
            continue;
        due.external_id = arena_copy(arena, request->external_id);
        page->ret_requests[page->ret_count++] = due;
    }
    if (page->ret_count)
        qsort(page->ret_requests, page->ret_count, sizeof *page->ret_requests, compare_positions);
    end_page(page);
    page->ret_time = (struct query_time){.clock = database.globals.clock, .now = database_now()};
    return call_leave(fake);
}

/* By request id, as one bucket. */
static int compare_errands(const void *a, const void *b)
{
    return compare_u64(&((const struct errand_row *)a)->position.request_id,
                       &((const struct errand_row *)b)->position.request_id);
}

static enum permit_status errands(struct store *store, struct errand_page *page, struct arena *arena)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    page->ret_expected = true;
    page->ret_rows = arena_array(arena, database.held_count, sizeof *page->ret_rows);
    for (size_t i = 0; i < database.held_count; i++) {
        const struct request *request = &database.held[i]->row.request;
        if (request->errand && request->id > page->after.request_id)
            page->ret_rows[page->ret_count++] = (struct errand_row){{0, request->id}, request->external_id};
    }
    if (page->ret_count)
        qsort(page->ret_rows, page->ret_count, sizeof *page->ret_rows, compare_errands);
    page->ret_count = page->ret_count < page->limit ? page->ret_count : page->limit;
    return call_leave(fake);
}

static enum permit_status no_undo(struct store *store, struct doctor_undo *ret_undo)
{
    (void)store;
    *ret_undo = (struct doctor_undo){.history = -1, .oldest_s = -1};
    return PERMIT_OK;
}

const struct store_queries fake_queries = {.clock = clock_now,
                                           .undo = no_undo,
                                           .holders = holders,
                                           .fronts = fronts,
                                           .ahead = ahead,
                                           .request = read_request,
                                           .semaphores_of = semaphores_of,
                                           .due = due,
                                           .errands = errands};

/* ---- owners ---- */

static enum permit_status no_owners(struct store *store, utc_us before, struct arena *arena, struct owner **ret_owners,
                                    size_t *ret_count)
{
    (void)before, (void)arena;
    *ret_owners = NULL;
    *ret_count = 0;
    return read_nothing(store);
}

static enum permit_status no_lapsed(struct store *store, utc_us after_at, struct bytes after_name, struct arena *arena,
                                    struct owner **ret_owners, size_t *ret_count)
{
    (void)after_name;
    return no_owners(store, after_at, arena, ret_owners, ret_count);
}

static enum permit_status no_ends(struct store *store, const struct owner *owners, size_t count, struct arena *arena,
                                  struct owner_ends *ret_ends)
{
    (void)store, (void)owners, (void)count, (void)arena, (void)ret_ends;
    return PERMIT_OK;
}

static void rollback(struct store *store)
{
    (void)fake_session_rollback(store);
}

const struct store_owners fake_owners = {
    .due = no_owners, .lapsed = no_lapsed, .removable = no_owners, .ends = no_ends, .rollback = rollback};

/* ---- retention ---- */

static enum permit_status no_commits(struct store *store, uint64_t *ret_commits)
{
    (void)store;
    *ret_commits = 0;
    return PERMIT_OK;
}

static enum permit_status delete_nothing(struct store *store, const struct retention_task *task, struct arena *arena,
                                         struct retention_result *ret_result)
{
    (void)store, (void)task, (void)arena;
    *ret_result = (struct retention_result){.has_lock = true}; /* one page, which is the end of the table */
    return PERMIT_OK;
}

const struct store_retention fake_retention = {.batch = delete_nothing, .commits = no_commits};

/* Counts before the call takes its time, so that the count may be old, like that of a real query. */
static enum permit_status count_semaphores(struct store *store, uint64_t max, uint64_t *ret_count)
{
    uint64_t count = database_count_semaphores();
    *ret_count = count < max ? count : max;
    return read_nothing(store);
}

static enum permit_status count_slots(struct store *store, uint64_t *ret_count)
{
    *ret_count = database_count_slots();
    return read_nothing(store);
}

const struct store_templates fake_templates = {.count_semaphores = count_semaphores, .count_slots = count_slots};

/* ---- audit ---- */

static enum permit_status audit_begin(struct audit *audit, struct store *store, uint64_t after, struct arena *arena)
{
    (void)after;
    *audit = (struct audit){.store = store, .arena = arena, .step = AUDIT_DONE};
    return PERMIT_OK;
}

static enum permit_status audit_end(struct audit *audit, enum permit_status status, struct audit_result *ret_result)
{
    (void)audit;
    *ret_result = (struct audit_result){0};
    return status;
}

static enum permit_status audit_requests(struct store *store, uint64_t after, struct arena *arena,
                                         struct audit_result *ret_result, uint64_t *ret_last)
{
    (void)store, (void)after, (void)arena;
    *ret_result = (struct audit_result){0};
    *ret_last = 0;
    return PERMIT_OK;
}

const struct store_audit fake_audit = {.begin = audit_begin, .end = audit_end, .requests = audit_requests};
