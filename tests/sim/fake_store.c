/* SPDX-License-Identifier: MIT */
/* The small transactions besides the batches, and the table of methods. */
#include "fake_store.h"

#include "base/clock.h"
#include "fake_servers.h"
#include "fake_session.h"
#include "fake_tasks.h"
#include "oracle.h"

/* An epoch counts milliseconds since then, as in src/store/epoch.c. */
#define EPOCH_ORIGIN_US (1767225600LL * US_PER_SECOND)

static void disconnect(struct store *store)
{
    fake_session_break_off(fake_of(store), false);
}

static enum permit_status examine(struct store *store)
{
    enum permit_status status = call_enter(fake_of(store));
    return status == PERMIT_OK ? call_leave(fake_of(store)) : status;
}

static enum permit_status ping(struct store *store)
{
    return examine(store);
}

static void fake_store_free(struct store *store)
{
    fake_session_free(fake_of(store));
}

/* ---- small transactions ---- */

static enum permit_status reserve_ids(struct store *store, uint64_t count, struct id_range *ret_range,
                                      uint64_t *ret_epoch)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    struct globals globals = database.globals;
    struct id_range range = {globals.next_id, globals.next_id + count};
    globals.next_id += count;
    status = call_flush(fake, database_commit_globals(&globals));
    if (status != PERMIT_OK)
        return status;
    *ret_range = range;
    *ret_epoch = globals.clock.epoch;
    return PERMIT_OK;
}

static enum permit_status floors(struct store *store, const uint64_t *ids, size_t count, uint64_t *ret_floors)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    for (size_t i = 0; i < count && status == PERMIT_OK; i++)
        ret_floors[i] = database_semaphore(ids[i]) ? fake_batch_floor_of(database_semaphore(ids[i])) : 0;
    return status == PERMIT_OK ? call_leave(fake) : status;
}

static bool is_behind(const struct tokens_seen *seen)
{
    const struct db_semaphore *semaphore = database_semaphore(seen->semaphore_id);
    uint64_t next = semaphore ? semaphore->row.semaphore.next_token : 0;
    return semaphore_next_token(next, database.globals.clock.epoch) < seen->next;
}

static enum permit_status read_tick(struct store *store, struct tick *tick)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    tick->ret_row = (struct lease_row){
        .clock = database.globals.clock, .ticks = database.globals.ticks, .server = database.globals.identity};
    tick->ret_now = database_now();
    tick->ret_same_server = database.globals.identity == database.server;
    tick->ret_tokens_behind = false;
    for (size_t i = 0; i < tick->seen_count; i++)
        tick->ret_tokens_behind |= is_behind(&tick->seen[i]);
    return call_leave(fake);
}

static enum permit_status write_tick(struct store *store, const struct lease_row *read, const struct lease_row *ticked,
                                     bool *ret_won)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    const struct lease_clock *clock = &database.globals.clock;
    bool wins = clock->tick_at == read->clock.tick_at && clock->offset_us == read->clock.offset_us &&
                clock->epoch == read->clock.epoch && database.globals.ticks == read->ticks &&
                database.globals.identity == read->server;
    if (!wins) {
        status = call_leave(fake);
    } else {
        struct globals globals = database.globals;
        globals.clock.tick_at = ticked->clock.tick_at;
        globals.clock.offset_us = ticked->clock.offset_us;
        globals.ticks = ticked->ticks;
        step("tick at %lld ms, the database's clock is %lld ms ahead",
             (long long)(lease_ticked(&globals.clock) - SIM_WALL_BASE) / US_PER_MS,
             (long long)(database_now() - SIM_WALL_BASE - sim_now()) / US_PER_MS);
        status = call_flush(fake, database_commit_globals(&globals));
    }
    if (status == PERMIT_OK)
        *ret_won = wins;
    return status;
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

static enum permit_status semaphores(struct store *store, const uint64_t *ids, size_t count, struct arena *arena,
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

static enum permit_status mail(struct store *store, uint64_t server_id, uint64_t after, size_t limit,
                               struct arena *arena, uint64_t **ret_request_ids, size_t *ret_count)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    uint64_t *ids = arena_array(arena, MAIL_MAX, sizeof *ids);
    size_t count = 0;
    for (size_t i = 0; i < MAIL_MAX; i++)
        if (database.mail[i].exists && database.mail[i].server_id == server_id && database.mail[i].request_id > after)
            ids[count++] = database.mail[i].request_id;
    qsort(ids, count, sizeof *ids, compare_u64);
    status = call_leave(fake);
    if (status != PERMIT_OK)
        return status;
    *ret_request_ids = ids;
    *ret_count = count < limit ? count : limit;
    return PERMIT_OK;
}

static enum permit_status drop_mail(struct store *store, uint64_t server_id, const uint64_t *request_ids, size_t count)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    return status == PERMIT_OK ? call_flush(fake, database_drop_mail(server_id, request_ids, count)) : status;
}

/* As in src/store/epoch.c. */
static uint64_t next_epoch(void)
{
    utc_us now = max_i64(database_now(), clock_wall());
    int64_t unit = US_PER_MS;
    uint64_t by_clock = (uint64_t)max_i64(0, (now - EPOCH_ORIGIN_US) / unit);
    return by_clock > database.globals.clock.epoch ? by_clock : database.globals.clock.epoch + 1;
}

static enum permit_status raise_epoch(struct store *store, enum epoch_cause cause, uint64_t seen, int64_t hold_ms)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    struct globals globals = database.globals;
    bool same = globals.identity == database.server;
    if (cause == EPOCH_SERVER ? same : cause == EPOCH_TOKENS && globals.clock.epoch != seen)
        return call_leave(fake);
    bool raises = !(globals.identity == 0 && cause == EPOCH_SERVER);
    globals.identity = database.server;
    if (raises) {
        globals.clock.epoch = next_epoch();
        globals.grants_from = lease_time(&globals.clock, database_now()) + hold_ms * US_PER_MS;
    }
    if (globals.next_id <= globals.last_id)
        globals.next_id = globals.last_id + 1;
    step("epoch %llu", (unsigned long long)globals.clock.epoch);
    return call_flush(fake, database_commit_globals(&globals));
}

static const struct store_methods methods = {
    .reconnect = fake_session_reconnect,
    .disconnect = disconnect,
    .examine = examine,
    .resolve = fake_batch_resolve,
    .await = fake_batch_await,
    .lock = fake_batch_lock,
    .read_due = fake_batch_read_due,
    .lock_requests = fake_batch_lock_requests,
    .read_waiters = fake_batch_read_waiters,
    .read_glimpses = fake_batch_read_glimpses,
    .prepare = fake_batch_prepare,
    .apply = fake_batch_apply,
    .rollback = fake_session_rollback,
    .reserve_ids = reserve_ids,
    .floors = floors,
    .commit_cached = fake_batch_commit_cached,
    .read_tick = read_tick,
    .write_tick = write_tick,
    .due = due,
    .semaphores = semaphores,
    .mail = mail,
    .drop_mail = drop_mail,
    .raise_epoch = raise_epoch,
    .ping = ping,
    .free = fake_store_free,
};

struct store *fake_store_open(void *context, enum store_use use)
{
    struct fake_store *fake = fake_session_open();
    (void)context, (void)use;
    if (!fake)
        return NULL;
    fake->store.methods = &methods;
    fake->store.queries = &fake_queries;
    fake->store.owners = &fake_owners;
    fake->store.templates = &fake_templates;
    fake->store.retention = &fake_retention;
    fake->store.audit = &fake_audit;
    fake->store.servers = &fake_servers;
    fake->store.message = fake->message;
    return &fake->store;
}
