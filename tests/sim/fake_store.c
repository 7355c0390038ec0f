/* SPDX-License-Identifier: MIT */
/* The small transactions besides the batches, and the table of methods. */
#include "fake_store.h"

#include "base/clock.h"
#include "fake_servers.h"
#include "fake_session.h"
#include "fake_tasks.h"
#include "oracle.h"
#include "store/procedures.h"

/* An epoch counts milliseconds since then, as in src/store/epoch.c. */
#define EPOCH_ORIGIN_US (1767225600LL * US_PER_SECOND)

static void disconnect(struct store *store)
{
    fake_session_break_off(fake_of(store), false);
}

static enum permit_status check_safety(struct store *store)
{
    enum permit_status status = call_enter(fake_of(store));
    return status == PERMIT_OK ? call_leave(fake_of(store)) : status;
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

/* As in src/store/epoch.c. */
static uint64_t next_epoch(void)
{
    utc_us now = max_i64(database_now(), clock_wall());
    int64_t unit = US_PER_MS;
    uint64_t by_clock = (uint64_t)max_i64(0, (now - EPOCH_ORIGIN_US) / unit);
    return by_clock > database.globals.clock.epoch ? by_clock : database.globals.clock.epoch + 1;
}

/* The rows of feed_epoch; the oldest two are one, with the smaller head, when there is no room. */
static void add_feed_epoch(struct globals *globals)
{
    struct feed_position *epochs = globals->feed_epochs;
    if (globals->feed_epoch_count == FEED_EPOCHS_MAX) {
        epochs[1].seq = epochs[0].seq < epochs[1].seq ? epochs[0].seq : epochs[1].seq;
        memmove(&epochs[0], &epochs[1], (FEED_EPOCHS_MAX - 1) * sizeof *epochs);
        globals->feed_epoch_count--;
    }
    epochs[globals->feed_epoch_count++] = (struct feed_position){globals->clock.epoch, globals->feed_seq};
}

static enum permit_status advance_epoch(struct store *store, struct epoch_advance *advance)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    struct globals globals = database.globals;
    bool same = globals.identity == database.server;
    if (advance->cause == EPOCH_SERVER ? same : advance->cause == EPOCH_TOKENS && globals.clock.epoch != advance->seen)
        return call_leave(fake);
    bool raises = !(globals.identity == 0 && advance->cause == EPOCH_SERVER);
    globals.identity = database.server;
    if (raises) {
        globals.clock.epoch = next_epoch();
        add_feed_epoch(&globals);
        globals.grants_from = lease_time(&globals.clock, database_now()) + advance->hold_ms * US_PER_MS;
    }
    if (globals.next_id <= globals.last_id)
        globals.next_id = globals.last_id + 1;
    step("epoch %llu", (unsigned long long)globals.clock.epoch);
    return call_flush(fake, database_commit_globals(&globals));
}

static const struct store_session session_methods = {
    .reconnect = fake_session_reconnect,
    .disconnect = disconnect,
    .check_safety = check_safety,
    .keepalive = check_safety,
    .free = fake_store_free,
};
static const struct store_batch batch_methods = {
    .resolve = fake_batch_resolve,
    .reserve_ids = reserve_ids,
    .await = fake_batch_await,
    .lock = fake_batch_lock,
    .read_due = fake_batch_read_due,
    .lock_requests = fake_batch_lock_requests,
    .read_waiters = fake_batch_read_waiters,
    .read_seats = fake_batch_read_seats,
    .read_glimpses = fake_batch_read_glimpses,
    .prepare = fake_batch_prepare,
    .commit = fake_batch_commit_changes,
    .commit_if_unchanged = fake_batch_commit_if_unchanged,
    .rollback = fake_session_rollback,
};
static const struct store_clock clock_methods = {
    .floors = floors, .read_tick = read_tick, .write_tick = write_tick, .advance_epoch = advance_epoch};

/* The simulated requests are marked without procedures. */
static enum permit_status no_procedures(struct store *store, struct procedures_result *ret_result, struct buf *message)
{
    (void)store, (void)message;
    *ret_result = (struct procedures_result){.state = PROCEDURES_CURRENT};
    return PERMIT_OK;
}

static const struct store_schema schema_methods = {.procedures = no_procedures};

struct store *fake_store_open(void *context, enum store_use use)
{
    struct fake_store *fake = fake_session_open();
    (void)context, (void)use;
    if (!fake)
        return NULL;
    fake->store.session = &session_methods;
    fake->store.batch = &batch_methods;
    fake->store.clock = &clock_methods;
    fake->store.schema = &schema_methods;
    fake->store.queries = &fake_queries;
    fake->store.owners = &fake_owners;
    fake->store.templates = &fake_templates;
    fake->store.retention = &fake_retention;
    fake->store.audit = &fake_audit;
    fake->store.servers = &fake_servers;
    fake->store.feed = &fake_feed;
    fake->store.message = fake->message;
    checked_store_init(&fake->checked, &fake->store);
    return &fake->store;
}
