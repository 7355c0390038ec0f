/* SPDX-License-Identifier: MIT */
/*
 * The sweeper: one thread that ends what is due and that nobody needs yet. It locks nothing: it reads who is due, puts
 * an ordinary expire operation for each into the engine, and sleeps until the next deadline. (A sweeper that locks
 * requests first deadlocked with 4 % of the batches.) Of several permitd the one that moves served time sweeps at once,
 * the others what is left a second later.
 */
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/state.h"

enum {
    PAGE = 100,           /* requests a round; no query of the sweeper reads more rows */
    SWEEPING_MAX = 1000,  /* operations under way */
    SWEEPING_FEW = 400,   /* so many or fewer: the next page may be read, so that a batch gathers while one runs */
    LOOK_EVERY_MS = 2000, /* at deadlines that another permitd has set and left behind */
    STUCK_AFTER_MS = 200, /* a page that is not decided by then is passed over in this round */
    LEADS_FOR_MS = 1600,  /* after a tick that was won; ticks are 1 to 1.5 s apart */
    TRAIL_US = 1000000,   /* the others leave what is due so long to who leads */
    REFUSED_MS = 50,      /* until the engine may take operations again */
    DEADLINE_MS = 10000,  /* of an operation */
};

struct sweeper {
    struct engine *engine;
    struct store *store;
    struct arena arena;
    unsigned servers;
    bool more;           /* the last page was full of what is due */
    bool in_trouble;     /* said once */
    utc_us after_due_at; /* this round has come so far; 0: it begins */
    uint64_t after_id;
    utc_us now; /* served time at `now_at` */
    mono_us now_at;
};

/* An expire operation, with its key behind it. */
struct expiry {
    struct op op;
    struct operation operation;
    struct engine *engine;
    char key[];
};

/* ---- operations ---- */

static void on_decided(struct op *op, const struct decision *decision)
{
    struct expiry *expiry = CONTAINER_OF(op, struct expiry, op);
    struct engine *engine = expiry->engine;
    (void)decision; /* what was not ended is found again */
    pthread_mutex_lock(&engine->mutex);
    engine->sweeping--;
    if (engine->sweeping == 0 || engine->sweeping == SWEEPING_FEW)
        pthread_cond_signal(&engine->sweep);
    pthread_mutex_unlock(&engine->mutex);
    free(expiry);
}

static struct expiry *expiry_new(struct engine *engine, struct bytes external_id)
{
    struct expiry *expiry = malloc(sizeof *expiry + external_id.length);
    if (!expiry)
        return NULL;
    memcpy(expiry->key, external_id.data, external_id.length);
    expiry->engine = engine;
    expiry->operation = (struct operation){
        .kind = OP_EXPIRE, .external_id = {expiry->key, external_id.length}, .expire_as = END_EXPIRED};
    op_init(&expiry->op, &expiry->operation, clock_mono() + DEADLINE_MS * US_PER_MS, on_decided);
    return expiry;
}

/* False: the engine takes no more now. */
static bool submit(struct engine *engine, struct bytes external_id)
{
    struct expiry *expiry = expiry_new(engine, external_id);
    if (!expiry)
        return false;
    pthread_mutex_lock(&engine->mutex);
    engine->sweeping++;
    pthread_mutex_unlock(&engine->mutex);
    if (engine_submit(engine, &expiry->op) == PERMIT_OK)
        return true;
    on_decided(&expiry->op, NULL);
    return false;
}

/* ---- a round ---- */

static bool leads(const struct engine *engine)
{
    mono_us won_at = atomic_load(&engine->tick_won_at);
    return won_at && clock_mono() - won_at < LEADS_FOR_MS * US_PER_MS;
}

static bool read_page(struct sweeper *sweeper, size_t limit, struct due_page *ret_page)
{
    struct engine *engine = sweeper->engine;
    unsigned servers = atomic_load(&engine->servers);
    if (servers != sweeper->servers)
        store_disconnect(sweeper->store);
    sweeper->servers = servers;
    arena_clear(&sweeper->arena);
    *ret_page = (struct due_page){.after_due_at = sweeper->after_due_at, .after_id = sweeper->after_id, .limit = limit};
    enum permit_status status = store_reconnect(sweeper->store);
    if (status == PERMIT_OK)
        status = store_due(sweeper->store, ret_page, &sweeper->arena);
    if (status != PERMIT_OK && !sweeper->in_trouble)
        log_write(LOG_WARN, "cannot read due requests", "status", permit_status_word(status), "error",
                  sweeper->store->message, NULL);
    sweeper->in_trouble = status != PERMIT_OK;
    sweeper->now = ret_page->ret_now;
    sweeper->now_at = clock_mono();
    return status == PERMIT_OK;
}

/*
 * Ends what is due on the page. Returns the next deadline in served time: of the first request that is not due, now if
 * there may be more that is.
 */
static utc_us sweep_page(struct sweeper *sweeper, const struct due_page *page)
{
    utc_us due_until = page->ret_now - (leads(sweeper->engine) ? 0 : TRAIL_US);
    for (size_t i = 0; i < page->ret_count; i++) {
        const struct due_request *request = &page->ret_requests[i];
        if (request->due_at > due_until) {
            sweeper->after_due_at = 0;
            return request->due_at + (page->ret_now - due_until);
        }
        if (!submit(sweeper->engine, request->external_id))
            return page->ret_now + REFUSED_MS * US_PER_MS;
        sweeper->after_due_at = request->due_at;
        sweeper->after_id = request->id;
    }
    if (page->ret_count == page->limit)
        return page->ret_now;
    sweeper->after_due_at = 0;
    return NEVER;
}

/* The first row tells whether there is anything to do, if the last page did not; only then a page. */
static utc_us sweep(struct sweeper *sweeper)
{
    struct due_page page;
    if (!sweeper->more && !read_page(sweeper, 1, &page))
        return NEVER;
    bool due = sweeper->more || (page.ret_count && page.ret_requests[0].due_at <= page.ret_now);
    if (due && !read_page(sweeper, PAGE, &page))
        return NEVER;
    return sweep_page(sweeper, &page);
}

/* ---- sleeping ---- */

void sweeper_notice(struct engine *engine, utc_us due_at)
{
    if (due_at >= engine->sweep_at)
        return;
    engine->sweep_at = due_at;
    pthread_cond_signal(&engine->sweep);
}

static struct timespec timespec_of(mono_us time)
{
    return (struct timespec){.tv_sec = time / US_PER_SECOND, .tv_nsec = time % US_PER_SECOND * 1000};
}

/* Until all but so many of those that were put in are decided, or they seem to be stuck. Engine's mutex held. */
static void wait_for_decisions(struct engine *engine, unsigned rest)
{
    struct timespec until = timespec_of(clock_mono() + STUCK_AFTER_MS * US_PER_MS);
    int result = 0;
    while (engine->sweeping > rest && result == 0 && !atomic_load(&engine->stopping))
        result = pthread_cond_timedwait(&engine->sweep, &engine->mutex, &until);
}

/* When the deadline comes, by this machine's clock, but not after `latest`. Engine's mutex held. */
static mono_us wake_at(const struct sweeper *sweeper, mono_us latest)
{
    utc_us deadline = sweeper->engine->sweep_at;
    return deadline == NEVER ? latest : min_i64(latest, sweeper->now_at + max_i64(0, deadline - sweeper->now));
}

/* Until the next deadline; a shorter one may be noticed meanwhile. Engine's mutex held. */
static void wait_for_deadline(struct sweeper *sweeper)
{
    struct engine *engine = sweeper->engine;
    mono_us latest = clock_mono() + LOOK_EVERY_MS * US_PER_MS;
    while (!atomic_load(&engine->stopping)) {
        utc_us deadline = engine->sweep_at;
        struct timespec until = timespec_of(wake_at(sweeper, latest));
        int result = pthread_cond_timedwait(&engine->sweep, &engine->mutex, &until);
        if (result != 0 && engine->sweep_at == deadline)
            return;
    }
}

/* ---- the thread ---- */

static void sweep_and_sleep(struct sweeper *sweeper)
{
    struct engine *engine = sweeper->engine;
    pthread_mutex_lock(&engine->mutex);
    engine->sweep_at = NEVER; /* what is noticed from here on counts, what was before is read now */
    pthread_mutex_unlock(&engine->mutex);
    utc_us next = sweep(sweeper);
    sweeper->more = next <= sweeper->now;
    pthread_mutex_lock(&engine->mutex);
    wait_for_decisions(engine, sweeper->more ? SWEEPING_FEW : 0);
    if (engine->sweeping == 0 || engine->sweeping >= SWEEPING_MAX)
        sweeper->after_due_at = 0; /* nothing is stuck, or too much: from the beginning */
    if (!sweeper->more) {
        engine->sweep_at = min_i64(engine->sweep_at, next);
        wait_for_deadline(sweeper);
    }
    pthread_mutex_unlock(&engine->mutex);
}

void *sweeper_thread(void *context)
{
    enum { ARENA_CHUNK = 64 * 1024, ARENA_LIMIT = 1024 * 1024 };
    struct engine *engine = context;
    struct sweeper sweeper = {.engine = engine};
    session_thread_begin();
    arena_init(&sweeper.arena, ARENA_CHUNK, ARENA_LIMIT);
    sweeper.store = engine_open_store(engine, "sweeper");
    while (sweeper.store && !atomic_load(&engine->stopping))
        sweep_and_sleep(&sweeper);
    arena_release(&sweeper.arena);
    store_free(sweeper.store);
    session_thread_end();
    return NULL;
}
