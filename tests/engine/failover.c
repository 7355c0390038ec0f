/* SPDX-License-Identifier: MIT */
/*
 * Failovers and lost connections of an engine with its own threads, on a store that follows a script. The script has
 * one counted semaphore and no requests; all sessions see the same rows.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "checked_store.h"
#include "engine/engine.h"
#include "store/owners.h"
#include "store/query.h"
#include "store/retention_batch.h"
#include "store/servers.h"
#include "tasks/tasks.h"

enum { PATIENCE_S = 120, FIRST_IDS = 1, IDS_OF_THE_OTHER = 20000, IDS_SINCE_THE_RAISE = 40000, CAUSES = 3 };

static struct script {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct semaphore semaphore;
    uint64_t epoch;
    uint64_t next_id;
    uint64_t written_id; /* of the last request */
    bool same_server;    /* `cluster` has the identity of this server */
    bool fails_over;     /* the next batch that locks its rows loses its session */
    bool stuck;          /* a batch that locks its rows waits until this is false */
    bool loses_many;     /* a packet that writes more than one request loses the session */
    bool has_page;       /* expiry finds a page without a due request, and may find more behind it */
    unsigned raised[CAUSES];
    unsigned server; /* number of the server that serves; a failover changes it */
    unsigned ticks;
    unsigned pings;
    unsigned batches;                 /* batches that have locked rows, or wait to */
    unsigned losses;                  /* packets that were lost */
    unsigned first_pages, last_pages; /* that expiry has read: that page, and behind it */
} script;

/* ---- the store ---- */

struct script_store {
    struct store store;
    struct checked_store checked;
    unsigned server; /* of its session; 0: no session */
};

static struct script_store *script_store_of(struct store *store)
{
    return CONTAINER_OF(store, struct script_store, store);
}

static void change_begin(void)
{
    pthread_mutex_lock(&script.mutex);
}

static void change_end(void)
{
    pthread_cond_broadcast(&script.changed);
    pthread_mutex_unlock(&script.mutex);
}

static enum permit_status do_nothing(struct store *store)
{
    (void)store;
    return PERMIT_OK;
}

static enum permit_status reconnect(struct store *store)
{
    struct script_store *scripted = script_store_of(store);
    change_begin();
    if (scripted->server == 0)
        scripted->server = script.server;
    change_end();
    return PERMIT_OK;
}

static void disconnect(struct store *store)
{
    script_store_of(store)->server = 0;
}

static enum permit_status keepalive(struct store *store)
{
    (void)store;
    change_begin();
    script.pings++;
    change_end();
    return PERMIT_OK;
}

/* The server that served before a failover does not know the semaphore. */
static enum permit_status resolve(struct store *store, struct resolve *resolve, struct arena *arena)
{
    (void)arena;
    change_begin();
    bool knows = script_store_of(store)->server == script.server;
    for (size_t i = 0; knows && i < resolve->name_count; i++) {
        resolve->names[i].ret_id = script.semaphore.id;
        resolve->names[i].ret_kind = script.semaphore.kind;
        resolve->names[i].ret_floor = 1;
    }
    change_end();
    return PERMIT_OK;
}

static struct view view_now(struct arena *arena)
{
    struct view view = {
        .semaphores = arena_array(arena, 1, sizeof *view.semaphores),
        .free_slots = arena_array(arena, 1, sizeof *view.free_slots),
        .named_slots = arena_array(arena, 1, sizeof *view.named_slots),
        .next_due = arena_array(arena, 1, sizeof *view.next_due),
        .semaphore_count = 1,
        .clock = {.tick_at = US_PER_SECOND, .epoch = script.epoch},
        .now = US_PER_SECOND,
        .same_server = script.same_server,
    };
    view.semaphores[0] = script.semaphore;
    view.next_due[0] = NEVER;
    return view;
}

static enum permit_status lock(struct store *store, const struct lock_set *set, struct arena *arena,
                               struct view *ret_view)
{
    enum permit_status status = PERMIT_OK;
    (void)store, (void)set;
    change_begin();
    script.batches++;
    pthread_cond_broadcast(&script.changed);
    while (script.stuck)
        pthread_cond_wait(&script.changed, &script.mutex);
    if (script.fails_over) {
        script.fails_over = script.same_server = false;
        script.next_id = IDS_OF_THE_OTHER;
        status = PERMIT_DATABASE_LOST;
    } else {
        *ret_view = view_now(arena);
    }
    change_end();
    return status;
}

static enum permit_status read_due(struct store *store, const struct shortfall *shortfalls, size_t count,
                                   struct arena *arena, struct view *view)
{
    (void)store, (void)shortfalls, (void)count, (void)arena, (void)view;
    return PERMIT_OK;
}

static enum permit_status prepare(struct store *store, const struct changes *changes, const struct assumed *assumed)
{
    (void)store, (void)changes, (void)assumed;
    return PERMIT_OK;
}

static enum permit_status lock_requests(struct store *store, const uint64_t *ids, size_t count, struct view *view)
{
    (void)store, (void)ids, (void)count, (void)view;
    return PERMIT_OK;
}

static enum permit_status commit(struct store *store, const struct changes *changes)
{
    (void)store;
    change_begin();
    bool lost = script.loses_many && changes->request_count > 1;
    script.losses += lost;
    if (!lost) {
        script.semaphore = *changes->semaphores[0].semaphore;
        script.semaphore.name = BYTES("a");
        if (changes->request_count)
            script.written_id = changes->requests[0].request->id;
    }
    change_end();
    return lost ? PERMIT_DATABASE_LOST : PERMIT_OK;
}

static enum permit_status reserve_ids(struct store *store, uint64_t count, struct id_range *ret_range,
                                      uint64_t *ret_epoch)
{
    (void)store;
    change_begin();
    *ret_range = (struct id_range){script.next_id, script.next_id + count};
    *ret_epoch = script.epoch;
    script.next_id += count;
    change_end();
    return PERMIT_OK;
}

static enum permit_status floors(struct store *store, const uint64_t *ids, size_t count, uint64_t *ret_floors)
{
    (void)store, (void)ids;
    for (size_t i = 0; i < count; i++)
        ret_floors[i] = 1;
    return PERMIT_OK;
}

static enum permit_status read_tick(struct store *store, struct tick *tick)
{
    (void)store;
    change_begin();
    script.ticks++;
    tick->ret_row = (struct lease_row){.clock = {.tick_at = US_PER_SECOND, .epoch = script.epoch}};
    tick->ret_now = US_PER_SECOND;
    tick->ret_same_server = script.same_server;
    for (size_t i = 0; i < tick->seen_count; i++) {
        cr_assert_eq(tick->seen[i].semaphore_id, script.semaphore.id);
        tick->ret_tokens_behind |= semaphore_next_token(script.semaphore.next_token, script.epoch) < tick->seen[i].next;
    }
    change_end();
    return PERMIT_OK;
}

static enum permit_status write_tick(struct store *store, const struct lease_row *read, const struct lease_row *ticked,
                                     bool *ret_won)
{
    (void)store, (void)read, (void)ticked;
    *ret_won = false; /* another permitd is always first */
    return PERMIT_OK;
}

/* A page of one second that has begun, without a due request, and the end behind it; or nothing at all. */
static enum permit_status due(struct store *store, struct due_page *page, struct arena *arena)
{
    static struct due_request later = {.external_id = {"later", 5}, .due_at = 3 * US_PER_SECOND, .position = {0, 1, 1}};
    (void)store, (void)arena;
    change_begin();
    bool first = page->after.block == 0;
    page->ret_requests = &later;
    page->ret_more = script.has_page && first;
    page->ret_count = page->ret_more;
    page->ret_end = later.position;
    page->ret_time =
        (struct query_time){.clock = {.tick_at = US_PER_SECOND, .epoch = script.epoch}, .now = US_PER_SECOND};
    script.first_pages += page->ret_more && page->limit > 1 && script.last_pages == 0;
    script.last_pages += script.has_page && !first;
    change_end();
    return PERMIT_OK;
}

static enum permit_status semaphores_of(struct store *store, const uint64_t *ids, size_t count, struct arena *arena,
                                        struct semaphore_page *ret_page)
{
    (void)store, (void)ids, (void)count, (void)arena;
    *ret_page = (struct semaphore_page){0};
    return PERMIT_OK;
}

/* As in src/store/epoch.c: one of the sessions that notice it raises the epoch, and no ids are issued again. */
static enum permit_status advance_epoch(struct store *store, struct epoch_advance *advance)
{
    (void)store;
    change_begin();
    if (advance->cause == EPOCH_SERVER ? !script.same_server : script.epoch == advance->seen) {
        script.raised[advance->cause]++;
        script.epoch++;
        script.same_server = true;
        script.server++;
        script.next_id = IDS_SINCE_THE_RAISE;
    }
    change_end();
    return PERMIT_OK;
}

static void store_end(struct store *store)
{
    free(script_store_of(store));
}

static const struct store_session session = {
    .reconnect = reconnect,
    .disconnect = disconnect,
    .check_safety = do_nothing,
    .keepalive = keepalive,
    .free = store_end,
};
static const struct store_batch batch = {
    .resolve = resolve,
    .reserve_ids = reserve_ids,
    .lock = lock,
    .read_due = read_due,
    .lock_requests = lock_requests,
    .prepare = prepare,
    .commit = commit,
    .rollback = do_nothing,
};
static const struct store_clock clock_methods = {
    .floors = floors, .read_tick = read_tick, .write_tick = write_tick, .advance_epoch = advance_epoch};

/* ---- what the other tasks find: nothing that answers ---- */

static enum permit_status unavailable(struct store *store)
{
    (void)store;
    return PERMIT_DATABASE_UNAVAILABLE;
}

static enum permit_status no_clock(struct store *store, struct query_time *ret_time)
{
    (void)ret_time;
    return unavailable(store);
}

static enum permit_status no_commits(struct store *store, uint64_t *ret_commits)
{
    (void)ret_commits;
    return unavailable(store);
}

static enum permit_status no_servers(struct store *store, struct bytes address, struct bytes version,
                                     struct server_self *ret_self)
{
    (void)address, (void)version, (void)ret_self;
    return unavailable(store);
}

static void end_nothing(struct store *store)
{
    (void)store;
}

static enum permit_status no_errands(struct store *store, struct errand_page *page, struct arena *arena)
{
    (void)page, (void)arena;
    return unavailable(store);
}

static const struct store_session absent = {.reconnect = unavailable, .disconnect = disconnect, .free = store_end};
static const struct store_queries queries = {
    .clock = no_clock, .semaphores_of = semaphores_of, .due = due, .errands = no_errands};
static const struct store_owners owners = {.rollback = end_nothing};
static const struct store_retention retention = {.commits = no_commits};
static const struct store_servers servers = {.join = no_servers};

static struct store *open_store(void *context, enum store_use use)
{
    struct script_store *scripted = calloc(1, sizeof *scripted);
    (void)context;
    if (!scripted)
        return NULL;
    scripted->store = (struct store){.session = use == STORE_WORKER ? &session : &absent,
                                     .batch = &batch,
                                     .clock = &clock_methods,
                                     .queries = &queries,
                                     .owners = &owners,
                                     .retention = &retention,
                                     .servers = &servers,
                                     .message = ""};
    checked_store_init(&scripted->checked, &scripted->store);
    return &scripted->store;
}

/* ---- the engine ---- */

static struct engine *engine;

static void begin(void)
{
    const struct engine_settings settings = {.workers = 1,
                                             .max_pending = 100,
                                             .max_pending_ends = 100,
                                             .row_bytes = 1024 * 1024,
                                             .request_timeout_ms = PATIENCE_S * MS_PER_SECOND,
                                             .plan = {.retention_us = US_PER_SECOND, .tombstone_us = US_PER_SECOND},
                                             .open_store = open_store,
                                             .address = "",
                                             .version = "",
                                             .tasks = tasks_all,
                                             .task_count = TASK_COUNT -
                                                           2, /* without feed and webhooks, which these stores lack */
                                             .liveness_interval_ms = 1000,
                                             .wait_poll_ms = 1000};
    struct buf message;
    script = (struct script){
        .semaphore = {.id = 1,
                      .name = BYTES("a"),
                      .kind = KIND_COUNTED,
                      .next_token = 1,
                      .version = 1,
                      .next_due_at = NEVER,
                      .retired_at = NEVER},
        .next_id = FIRST_IDS,
        .same_server = true,
        .server = 1,
    };
    semaphore_reset(&script.semaphore, 1000);
    script.semaphore.capacity = 10;
    pthread_mutex_init(&script.mutex, NULL);
    pthread_cond_init(&script.changed, NULL);
    log_configure((enum log_level)(LOG_ERROR + 1), LOG_TEXT);
    buf_init(&message, 1000);
    cr_assert(engine_start(&settings, &engine, &message), "%s", buf_text(&message));
    buf_release(&message);
}

static void end(void)
{
    engine_stop(engine);
    engine_free(engine);
    pthread_cond_destroy(&script.changed);
    pthread_mutex_destroy(&script.mutex);
}

TestSuite(failover, .init = begin, .fini = end, .timeout = 300);
TestSuite(losses, .init = begin, .fini = end, .timeout = 300);
TestSuite(expiry, .init = begin, .fini = end, .timeout = 300);

/* Waits until the condition is true of the script. Caller holds its mutex. Returns false if it does not become true. */
static bool wait_for(bool (*condition)(const void *context), const void *context)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    int result = 0;
    while (!condition(context) && result == 0)
        result = pthread_cond_timedwait(&script.changed, &script.mutex, &until);
    return condition(context);
}

static bool is_raised(const void *cause)
{
    return script.raised[*(const enum epoch_cause *)cause] > 0;
}

static bool has_ticked(const void *ticks)
{
    return script.ticks >= *(const unsigned *)ticks;
}

static bool has_pinged(const void *context)
{
    (void)context;
    return script.pings > 0;
}

static bool has_begun(const void *batches)
{
    return script.batches >= *(const unsigned *)batches;
}

/* An acquire of one unit. */
struct asked {
    struct op op;
    struct operation operation;
    struct want want;
    bool decided; /* guarded by the script's mutex, like the status */
    enum permit_status status;
};

static bool is_decided(const void *asked)
{
    return ((const struct asked *)asked)->decided;
}

static void note_decided(struct op *op, const struct decision *decision)
{
    struct asked *asked = CONTAINER_OF(op, struct asked, op);
    change_begin();
    asked->status = decision->status;
    asked->decided = true;
    change_end();
}

static void ask(struct asked *asked, const char *key)
{
    *asked = (struct asked){.want = {.semaphore = BYTES("a"), .count = 1}};
    asked->operation =
        (struct operation){.kind = OP_ACQUIRE, .external_id = bytes_of(key), .wants = &asked->want, .want_count = 1};
    op_init(&asked->op, &asked->operation, clock_mono() + PATIENCE_S * US_PER_SECOND, note_decided);
    cr_assert_eq(engine_submit(engine, &asked->op), PERMIT_OK);
}

static void is_granted(const struct asked *asked)
{
    change_begin();
    cr_assert(wait_for(is_decided, asked));
    cr_assert_eq(asked->status, PERMIT_OK);
    change_end();
}

static void acquire(const char *key)
{
    static struct asked asked;
    ask(&asked, key);
    is_granted(&asked);
}

Test(failover, tick_detects_another_server)
{
    const enum epoch_cause cause = EPOCH_SERVER;
    change_begin();
    script.same_server = false;
    cr_assert(wait_for(is_raised, &cause));
    cr_assert_eq(script.batches, 0);
    change_end();
}

Test(failover, tick_detects_an_older_copy_once)
{
    const enum epoch_cause cause = EPOCH_TOKENS;
    acquire("k1");
    change_begin();
    cr_assert_eq(script.raised[cause], 0);
    script.semaphore.next_token = 1;
    cr_assert(wait_for(is_raised, &cause));
    unsigned ticks = script.ticks + 3;
    cr_assert(wait_for(has_ticked, &ticks));
    cr_assert_eq(script.raised[cause], 1);
    cr_assert_eq(script.batches, 1);
    change_end();
}

/* The worker has never finished a batch, and has reserved ids for its first. */
Test(failover, ids_of_the_previous_server_are_not_used)
{
    change_begin();
    script.fails_over = true;
    change_end();
    acquire("k1");
    cr_assert_geq(script.written_id, IDS_SINCE_THE_RAISE);
}

/* The worker has a session to the previous server, and runs no batch before it resolves. */
Test(failover, names_are_not_resolved_by_the_previous_server)
{
    const enum epoch_cause cause = EPOCH_SERVER;
    change_begin();
    cr_assert(wait_for(has_pinged, NULL));
    script.same_server = false;
    cr_assert(wait_for(is_raised, &cause));
    unsigned ticks = script.ticks + 1; /* the clock tick has told the worker */
    cr_assert(wait_for(has_ticked, &ticks));
    change_end();
    acquire("k1");
}

/* P23: a batch too large for one transaction is not retried as a whole for ever. */
Test(losses, batch_lost_twice_runs_one_by_one)
{
    enum { TOGETHER = 5 };
    static const char *const keys[TOGETHER] = {"k1", "k2", "k3", "k4", "k5"};
    static struct asked first, others[TOGETHER];
    const unsigned one = 1;
    change_begin();
    script.stuck = script.loses_many = true;
    change_end();
    ask(&first, "k0");
    change_begin();
    cr_assert(wait_for(has_begun, &one));
    change_end();
    for (size_t i = 0; i < TOGETHER; i++) /* they gather while the only worker is stuck */
        ask(&others[i], keys[i]);
    change_begin();
    script.stuck = false;
    change_end();
    is_granted(&first);
    for (size_t i = 0; i < TOGETHER; i++)
        is_granted(&others[i]);
    change_begin();
    cr_assert_eq(script.losses, 2);
    cr_assert_eq(script.semaphore.in_use, 1 + TOGETHER);
    change_end();
}

static bool has_passed_page(const void *context)
{
    (void)context;
    return script.last_pages > 0;
}

/* Positions are seconds: a page of the present one may have no due request, while the next page of it has some. */
Test(expiry, page_without_due_requests_is_read_once)
{
    change_begin();
    script.has_page = true;
    cr_assert(wait_for(has_passed_page, NULL), "%u", script.first_pages);
    cr_assert_eq(script.first_pages, 1);
    change_end();
}
