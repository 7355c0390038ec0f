/* SPDX-License-Identifier: MIT */
/*
 * Expiry: the task that ends due requests that no acquire has ended already. It takes no locks: it reads the due
 * requests, submits an ordinary expire operation for each to the engine, and sleeps until the next deadline. (A task
 * that locks the requests first deadlocked with 4 % of the batches.) The server that won the clock tick expires
 * requests immediately. The other servers expire the remaining ones one second later.
 */
#include <assert.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/map.h"
#include "engine/expire_op.h"
#include "engine/state.h"
#include "tasks/tasks.h"

enum {
    PAGE = 50,            /* positions per page, each with at most 64 requests */
    UNDECIDED_MAX = 1000, /* undecided operations at which a round starts again from the beginning */
    UNDECIDED_FEW = 400,  /* undecided operations at which the next page is read: a batch gathers while one runs */
    MAX_SLEEP_MS = 2000,  /* longest sleep: deadlines set by another server are not announced here */
    STUCK_AFTER_MS = 200, /* longest wait for the decisions of a page; the round then goes on behind it */
    LEADER_FOR_MS = 1600, /* time as leader after a clock tick was won; ticks are 1 to 1.5 s apart */
    FOLLOWER_DELAY_US = 1000000, /* a server that does not lead leaves due requests to the leader for this time */
    REFUSED_PAUSE_MS = 50,       /* pause after the engine has refused an operation */
    LONG_ROUND_PAUSE_MS = 100,   /* least pause after a round of several pages, which the next one may read again */
    LOCKED_PAUSE_MS = 50, /* pause after an operation whose row another session had locked; it doubles each time */
    LOCKED_PAUSE_MAX_MS = 2000,
};

struct expiry_round {
    struct task *task;
    struct engine *engine;
    bool more;                 /* due requests may follow the last page */
    struct due_position after; /* the round continues behind it; all 0: it begins */
    utc_us next;               /* earliest deadline in this round that has not passed; NEVER: none yet */
    unsigned pages;            /* read in this round */
    utc_us now;                /* deadlines until then had passed at `now_at` */
    mono_us now_at;
};

/* ---- keys that are tried again later ---- */

static struct expiry_pause *pause_of(struct engine *engine, uint64_t key_hash)
{
    return &engine->expiry_pauses[key_hash % EXPIRY_PAUSES];
}

/* Records how an operation ended, for the back-off of its key. */
static void note_decision(struct engine *engine, struct bytes key, enum permit_status status) REQUIRES(engine_mutex)
{
    uint64_t hash = map_hash(key);
    struct expiry_pause *pause = pause_of(engine, hash);
    bool known = pause->until && pause->key_hash == hash;
    if (status == PERMIT_BUSY) {
        int64_t us =
            known ? min_i64(2 * pause->pause_us, LOCKED_PAUSE_MAX_MS * US_PER_MS) : LOCKED_PAUSE_MS * US_PER_MS;
        *pause = (struct expiry_pause){.key_hash = hash, .pause_us = us, .until = clock_mono() + us};
    } else if (known) {
        *pause = (struct expiry_pause){0};
    }
}

static bool is_paused(struct engine *engine, struct bytes key)
{
    uint64_t hash = map_hash(key);
    engine_lock(engine);
    const struct expiry_pause *pause = pause_of(engine, hash);
    bool paused = pause->key_hash == hash && pause->until > clock_mono();
    engine_unlock(engine);
    return paused;
}

/* Returns when the first key is to be tried again; `latest`: none before. */
static mono_us next_retry(const struct engine *engine, mono_us latest) REQUIRES(engine_mutex)
{
    mono_us now = clock_mono();
    for (size_t i = 0; i < EXPIRY_PAUSES; i++)
        if (engine->expiry_pauses[i].until > now)
            latest = min_i64(latest, engine->expiry_pauses[i].until);
    return latest;
}

/* ---- operations ---- */

static void expiry_decided(struct op *op, const struct decision *decision)
{
    struct expire_op *expiry = CONTAINER_OF(op, struct expire_op, op);
    struct engine *engine = expiry->context;
    engine_lock(engine);
    if (decision) /* a request that was not ended is found again */
        note_decision(engine, expiry->operation.external_id, decision->status);
    assert(engine->expiring > 0);
    engine->expiring--;
    if (engine->expiring == 0 || engine->expiring == UNDECIDED_FEW)
        pthread_cond_signal(&engine->expiry_wake);
    engine_unlock(engine);
    free(expiry);
}

bool expiry_submit(struct engine *engine, struct bytes external_id, enum end_reason expire_as)
{
    struct expire_op *expiry = expire_op_new(external_id, expire_as, engine, expiry_decided);
    if (!expiry)
        return false;
    engine_lock(engine);
    engine->expiring++;
    engine_unlock(engine);
    if (engine_submit(engine, &expiry->op) == PERMIT_OK)
        return true;
    expiry_decided(&expiry->op, NULL);
    return false;
}

/* ---- a round ---- */

static bool read_page(struct expiry_round *round, size_t limit, struct due_page *ret_page)
{
    struct task *task = round->task;
    arena_clear(&task->arena);
    *ret_page = (struct due_page){.after = round->after, .limit = limit};
    enum permit_status status = task_connect(task);
    if (status == PERMIT_OK)
        status = task->store->queries->due(task->store, ret_page, &task->arena);
    (void)task_record_status(task, status);
    if (status != PERMIT_OK)
        return false;
    engine_judge(round->engine, &ret_page->ret_time);
    round->now = ret_page->ret_time.clock.due;
    round->now_at = clock_mono();
    return true;
}

static void begin_round(struct expiry_round *round)
{
    round->after = (struct due_position){0};
    round->next = NEVER;
    round->pages = 0;
}

/* Returns the time at which the first request at the position or behind it may be due. */
static utc_us position_time(const struct due_position *position)
{
    return (utc_us)position->due_s * US_PER_SECOND;
}

/*
 * Submits the due requests of the page. Returns the next deadline (lease clock): of the first request that is not due;
 * the present time if more due requests may follow; NEVER if no request follows.
 */
static utc_us expire_page(struct expiry_round *round, const struct due_page *page)
{
    mono_us won_at = atomic_load(&round->engine->tick_won_at);
    bool leads = won_at && clock_mono() - won_at < LEADER_FOR_MS * US_PER_MS;
    utc_us delay = leads ? 0 : FOLLOWER_DELAY_US;
    for (size_t i = 0; i < page->ret_count; i++) {
        const struct due_request *request = &page->ret_requests[i];
        if (i > 0 && memcmp(&request->position, &request[-1].position, sizeof request->position) != 0)
            round->after = request[-1].position; /* all requests there are submitted, or not due */
        if (request->due_at > round->now - delay)
            round->next = min_i64(round->next, request->due_at);
        else if (!is_paused(round->engine, request->external_id) &&
                 !expiry_submit(round->engine, request->external_id, END_EXPIRED))
            return round->now + REFUSED_PAUSE_MS * US_PER_MS;
    }
    round->pages++;
    if (page->ret_more && position_time(&page->ret_end) <= round->now - delay) {
        round->after = page->ret_end;
        return round->now;
    }
    utc_us next = page->ret_more ? min_i64(round->next, position_time(&page->ret_end)) : round->next;
    int64_t pause_us = round->pages > 1 ? LONG_ROUND_PAUSE_MS * US_PER_MS : 1;
    begin_round(round);
    return next == NEVER ? NEVER : max_i64(next + delay, round->now + pause_us);
}

/* Runs one page. Reads the first position alone before, unless more may be due: most rounds find nothing due. */
static utc_us expire_due(struct expiry_round *round)
{
    struct due_page page;
    if (!round->more && !read_page(round, 1, &page))
        return NEVER;
    bool due = round->more || (page.ret_more && position_time(&page.ret_end) <= round->now);
    if (due && !read_page(round, PAGE, &page))
        return NEVER;
    return expire_page(round, &page);
}

/* ---- sleeping ---- */

static struct timespec timespec_of(mono_us time)
{
    return (struct timespec){.tv_sec = time / US_PER_SECOND, .tv_nsec = time % US_PER_SECOND * 1000};
}

/* Waits until at most `rest` operations are undecided, at most STUCK_AFTER_MS. */
static void wait_for_decisions(struct engine *engine, unsigned rest) REQUIRES(engine_mutex)
{
    struct timespec until = timespec_of(clock_mono() + STUCK_AFTER_MS * US_PER_MS);
    int result = 0;
    while (engine->expiring > rest && result == 0 && !atomic_load(&engine->stopping))
        result = engine_wait_until(engine, &engine->expiry_wake, &until);
}

/* Sleeps until the next deadline; the engine may learn an earlier one meanwhile. */
static void wait_for_deadline(struct expiry_round *round) REQUIRES(engine_mutex)
{
    struct engine *engine = round->engine;
    mono_us latest = next_retry(engine, clock_mono() + MAX_SLEEP_MS * US_PER_MS);
    while (!atomic_load(&engine->stopping)) {
        utc_us deadline = engine->next_expiry_at;
        mono_us wake_at =
            deadline == NEVER ? latest : min_i64(latest, round->now_at + max_i64(0, deadline - round->now));
        struct timespec until = timespec_of(wake_at);
        int result = engine_wait_until(engine, &engine->expiry_wake, &until);
        if (result != 0 && engine->next_expiry_at == deadline)
            return;
    }
}

/* ---- the task ---- */

void expiry_run(struct task *task)
{
    struct engine *engine = task->engine;
    struct expiry_round round = {.task = task, .engine = engine, .next = NEVER};
    while (!task_stopping(task)) {
        engine_lock(engine);
        engine->next_expiry_at = NEVER; /* the read below finds earlier deadlines; later ones are announced again */
        engine_unlock(engine);
        utc_us next = expire_due(&round);
        round.more = next <= round.now;
        engine_lock(engine);
        wait_for_decisions(engine, round.more ? UNDECIDED_FEW : 0);
        /* At the end of a round none is stuck, or too many are: start again from the beginning. */
        if (engine->expiring >= UNDECIDED_MAX || (engine->expiring == 0 && !round.more))
            begin_round(&round);
        if (!round.more) {
            engine->next_expiry_at = min_i64(engine->next_expiry_at, next);
            wait_for_deadline(&round);
        }
        engine_unlock(engine);
    }
}
