/* SPDX-License-Identifier: MIT */
/*
 * Webhooks: the task that sends the events of the feed to the URLs that semaphores name (docs/design.md, "Webhooks"). The
 * permitd that won the clock tick looks for events behind the position of each URL, claims the row of one that has some,
 * and calls it (webhook_call.h). The claim keeps others from the same URL, also one that leads later while the call runs.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/name.h"
#include "engine/feed.h"
#include "engine/state.h"
#include "engine/webhooks.h"
#include "store/feed.h"
#include "tasks/tasks.h"
#include "tasks/webhook_call.h"

enum {
    POLL_MS = 200,              /* while there are URLs, and this permitd leads */
    IDLE_POLL_MS = 1000,        /* else */
    RUN_MS = 50,                /* calls run so long before it is seen whether the engine stops */
    PASS_MS = 200,              /* of a pass; the other URLs come first in the next one */
    SWEEP_MS = 10 * 1000,       /* between two deletions of rows that nobody names */
    PASS_OVER_MS = 5000,        /* a position is written so often, if the URL gets no event */
    PASS_OVER_EVENTS = 1000,    /* and after so many events */
    CHUNKS_MAX = 20,            /* pieces of the feed that are read for one call */
    CALL_WITHIN_MS = 10 * 1000, /* of the claim: the call takes as long again, and both less than CLAIM_US */
    CHUNK_MEMORY = 24 * 1024 * 1024,
    CHUNK_CHUNK = 64 * 1024,
    BODY_ENOUGH = 128 * 1024, /* bytes; no event is added to a body of this size */
    BODY_MAX = 16 * 1024 * 1024,
};
#define CLAIM_US (30LL * US_PER_SECOND)

/* A URL. */
struct hook {
    char text[WEBHOOK_STORED_URL_MAX];
    struct webhook_row row;       /* as read last; its URL is in `text`, its error is not kept. URL length 0: unused */
    struct feed_position scanned; /* the events up to there were looked at, since the row was read at its position */
    bool listed;                  /* it was in the last list */
    bool called;                  /* a call runs: it has the events up to `sent` */
    uint64_t claimed_by;          /* the id of this permitd in the claim of that */
    struct feed_position sent;
    unsigned events;
    mono_us written_at; /* when the position was written */
};

/* A piece of the feed, with the URL that each semaphore of its events names. */
struct chunk {
    struct arena arena;
    struct feed_page page;
    struct feed_permit **permits; /* of each row */
    size_t *permit_counts;
    struct bytes **urls;      /* of each permit of a row */
    struct feed_permit *kept; /* room for the permits of a row */
};

struct webhooks {
    struct task *task;
    struct engine *engine;
    struct webhook_policy policy;
    struct webhook_caller *caller;
    struct webhook_list list; /* as read last, without its rows */
    boot_us asked_at;         /* before that */
    struct hook hooks[WEBHOOKS_MAX];
    uint64_t own_id; /* of this permitd, as of the last claim */
    size_t turn;     /* the hook with which the next pass begins */
    struct chunk chunk;
    bool has_chunk; /* of this pass */
    mono_us sweep_at;
};

/* A call with events to a URL. */
struct delivery {
    struct hook *hook;
    struct buf body;
    struct feed_position first, last, end; /* of its events; behind all that were looked at */
    unsigned events;
};

/* ---- the feed ---- */

static int compare_names(const void *a, const void *b)
{
    return bytes_compare(*(const struct bytes *)a, *(const struct bytes *)b);
}

/* Collects the names of the semaphores in the chunk, sorted, each once. NULL: out of memory. */
static struct bytes *chunk_names(struct chunk *chunk, size_t *ret_count)
{
    size_t count = 0, unique = 0;
    for (size_t i = 0; i < chunk->page.ret_count; i++)
        count += chunk->permit_counts[i];
    struct bytes *names = arena_array(&chunk->arena, count + 1, sizeof *names);
    if (!names)
        return NULL;
    count = 0;
    for (size_t i = 0; i < chunk->page.ret_count; i++)
        for (size_t j = 0; j < chunk->permit_counts[i]; j++)
            names[count++] = chunk->permits[i][j].semaphore;
    qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 0; i < count; i++)
        if (unique == 0 || !bytes_equal(names[unique - 1], names[i]))
            names[unique++] = names[i];
    *ret_count = unique;
    return names;
}

/* The URLs are read after the events: a change that names one comes before the events that it concerns. */
static enum permit_status read_urls(struct webhooks *work)
{
    enum { NAMES_A_STATEMENT = 500 };
    struct chunk *chunk = &work->chunk;
    struct store *store = work->task->store;
    size_t count = 0;
    struct bytes *names = chunk_names(chunk, &count);
    struct bytes *urls = arena_array(&chunk->arena, count + 1, sizeof *urls);
    enum permit_status status = names && urls ? PERMIT_OK : PERMIT_NO_MEMORY;
    for (size_t i = 0; status == PERMIT_OK && i < count; i += NAMES_A_STATEMENT) {
        size_t piece = count - i < NAMES_A_STATEMENT ? count - i : NAMES_A_STATEMENT;
        status = store->webhooks->urls(store, names + i, piece, &chunk->arena, urls + i);
    }
    for (size_t i = 0; status == PERMIT_OK && i < chunk->page.ret_count; i++)
        for (size_t j = 0; j < chunk->permit_counts[i]; j++) {
            const struct bytes *name =
                bsearch(&chunk->permits[i][j].semaphore, names, count, sizeof *names, compare_names);
            chunk->urls[i][j] = urls[name - names];
        }
    return status;
}

static bool parse_permits(struct chunk *chunk)
{
    size_t count = chunk->page.ret_count;
    chunk->permits = arena_array(&chunk->arena, count + 1, sizeof *chunk->permits);
    chunk->permit_counts = arena_array(&chunk->arena, count + 1, sizeof *chunk->permit_counts);
    chunk->urls = arena_array(&chunk->arena, count + 1, sizeof *chunk->urls);
    size_t most = 0;
    bool good = chunk->permits && chunk->permit_counts && chunk->urls;
    for (size_t i = 0; good && i < count; i++) {
        good = feed_permits_parse(chunk->page.ret_rows[i].permits, &chunk->arena, &chunk->permits[i],
                                  &chunk->permit_counts[i]) &&
               (chunk->urls[i] = arena_array(&chunk->arena, chunk->permit_counts[i] + 1, sizeof **chunk->urls));
        most = good && chunk->permit_counts[i] > most ? chunk->permit_counts[i] : most;
    }
    chunk->kept = arena_array(&chunk->arena, most + 1, sizeof *chunk->kept);
    return good && chunk->kept;
}

/* Reads what follows a position. Beside very large events it reads one alone. */
static enum permit_status read_chunk(struct webhooks *work, struct feed_position after)
{
    struct store *store = work->task->store;
    struct chunk *chunk = &work->chunk;
    enum permit_status status = PERMIT_NO_MEMORY;
    for (unsigned limit = FEED_ROWS_A_STEP; status == PERMIT_NO_MEMORY && limit; limit = limit > 1 ? 1 : 0) {
        arena_clear(&chunk->arena);
        chunk->page = (struct feed_page){.after = after, .limit = limit};
        status = store->feed->read(store, &chunk->page, &chunk->arena);
        if (status == PERMIT_OK && !parse_permits(chunk))
            status = PERMIT_NO_MEMORY;
        if (status == PERMIT_OK)
            status = read_urls(work);
    }
    work->has_chunk = status == PERMIT_OK;
    return status;
}

/* Makes the chunk that which begins at this position, or has it inside: URLs that are at the end share one. */
static enum permit_status find_chunk(struct webhooks *work, struct feed_position after)
{
    const struct feed_page *page = &work->chunk.page;
    bool inside = work->has_chunk && page->ret_verdict == FEED_KNOWN && page->ret_next.epoch == after.epoch &&
                  page->after.seq <= after.seq && after.seq < page->ret_next.seq;
    return inside ? PERMIT_OK : read_chunk(work, after);
}

/* ---- what is sent ---- */

static void add_event(struct webhooks *work, struct delivery *delivery, const struct feed_row *row,
                      const struct feed_permit *permits, size_t count)
{
    uint64_t epoch = work->chunk.page.ret_next.epoch;
    delivery->last = (struct feed_position){epoch, row->seq};
    if (delivery->events++ == 0)
        delivery->first = delivery->last;
    buf_append_text(&delivery->body, delivery->body.length ? "," : "{\"events\":[");
    work->engine->settings.write_webhook(&delivery->body, delivery->hook->row.url, row, epoch, permits, count);
}

/* Adds the event of a row with the permits of semaphores that name the URL. A gap is for all. */
static void add_row(struct webhooks *work, struct delivery *delivery, size_t index)
{
    struct chunk *chunk = &work->chunk;
    const struct feed_row *row = &chunk->page.ret_rows[index];
    size_t count = 0;
    for (size_t i = 0; i < chunk->permit_counts[index]; i++)
        if (bytes_equal(chunk->urls[index][i], delivery->hook->row.url))
            chunk->kept[count++] = chunk->permits[index][i];
    if (count || row->what == FEED_GAP)
        add_event(work, delivery, row, chunk->kept, count);
}

static bool is_full(const struct delivery *delivery)
{
    return delivery->events == WEBHOOK_EVENTS_MAX || delivery->body.length >= BODY_ENOUGH || delivery->body.broken;
}

/* Events behind the position are gone: one event says so, and what is there follows. */
static void add_gap(struct webhooks *work, struct delivery *delivery)
{
    struct feed_position go_on = work->chunk.page.ret_next;
    const struct feed_row gap = {.seq = go_on.seq, .at = work->list.ret_time.now, .what = FEED_GAP};
    add_event(work, delivery, &gap, NULL, 0);
    delivery->end = go_on;
    work->has_chunk = false;
}

static void add_chunk(struct webhooks *work, struct delivery *delivery)
{
    const struct feed_page *page = &work->chunk.page;
    size_t i = 0;
    while (i < page->ret_count && page->ret_rows[i].seq <= delivery->end.seq)
        i++;
    for (; i < page->ret_count && !is_full(delivery); i++) {
        add_row(work, delivery, i);
        delivery->end = (struct feed_position){page->ret_next.epoch, page->ret_rows[i].seq};
    }
    if (i == page->ret_count)
        delivery->end = page->ret_next;
}

/* Gathers the next events for a URL, and where the search for them has come to. */
static enum permit_status gather(struct webhooks *work, struct delivery *delivery)
{
    enum permit_status status = PERMIT_OK;
    delivery->end = delivery->hook->scanned;
    for (int i = 0; i < CHUNKS_MAX && delivery->end.seq != work->list.ret_head && !is_full(delivery); i++) {
        status = find_chunk(work, delivery->end);
        if (status != PERMIT_OK)
            break;
        if (work->chunk.page.ret_verdict == FEED_KNOWN)
            add_chunk(work, delivery);
        else if (delivery->events)
            break; /* deleted meanwhile: the next call says so */
        else
            add_gap(work, delivery);
        if (work->has_chunk && work->chunk.page.ret_count == 0)
            break;
    }
    return status == PERMIT_OK && delivery->body.broken ? PERMIT_NO_MEMORY : status;
}

/* ---- calls ---- */

static utc_us served_now(const struct webhooks *work)
{
    return work->list.ret_time.clock.due + (clock_boot() - work->asked_at);
}

static void log_change(const struct hook *hook, const struct webhook_answer *answer)
{
    char id[WEBHOOK_ID_SIZE], status[12];
    bool fails = answer->error[0] != '\0';
    if (fails == (hook->row.failures > 0))
        return;
    webhook_id(hook->row.url, id);
    snprintf(status, sizeof status, "%u", answer->status);
    if (fails)
        log_write(LOG_WARN, "webhook does not take its events, retrying", "webhook", id, "http_status", status, NULL);
    else
        log_write(LOG_INFO, "webhook takes its events again", "webhook", id, NULL);
}

/* Writes what the call came to. If that fails, the claim ends by itself, and the events are sent again. */
static enum permit_status settle(struct webhooks *work, struct hook *hook, const struct webhook_answer *answer)
{
    struct store *store = work->task->store;
    struct metrics *metrics = &work->engine->metrics;
    bool taken = answer->error[0] == '\0';
    int64_t pause_ms = jittered_ms(webhook_backoff_ms(hook->row.failures + 1));
    const struct webhook_result result = {.position = taken ? hook->sent : hook->row.position,
                                          .status = answer->status,
                                          .error = bytes_of(answer->error),
                                          .retry_at = served_now(work) + pause_ms * US_PER_MS};
    hook->called = false;
    metrics_count(&metrics->webhook_calls[taken ? WEBHOOK_TAKEN : answer->status ? WEBHOOK_REFUSED : WEBHOOK_FAILED]);
    metrics_add(&metrics->webhook_events, taken ? hook->events : 0);
    log_change(hook, answer);
    enum permit_status status = task_connect(work->task);
    return status == PERMIT_OK ? store->webhooks->settle(store, &hook->row, hook->claimed_by, &result) : status;
}

/* Begins the call of a claimed row. Returns why it cannot; NULL: it runs, or has no memory and is tried again. */
static const char *begin_call(struct webhooks *work, struct delivery *delivery)
{
    struct hook *hook = delivery->hook;
    struct buf signature, cursor;
    struct webhook_request request = {.url = name_without_namespace(hook->row.url), .context = hook};
    const char *fault = webhook_url_fault(request.url, &request.host);
    if (!fault && !webhook_allows_host(&work->policy, request.host))
        fault = "the host is not in webhook_hosts";
    if (fault)
        return fault;
    buf_append_text(&delivery->body, "],\"next\":\"");
    feed_position_format(delivery->end, &delivery->body);
    buf_append_text(&delivery->body, "\"}");
    buf_init(&signature, 256);
    buf_init(&cursor, 128);
    feed_position_format(delivery->first, &cursor);
    buf_append_text(&cursor, "..");
    feed_position_format(delivery->last, &cursor);
    request.body = delivery->body;
    hook->called = !request.body.broken && !cursor.broken &&
                   webhook_sign(&work->policy, hook->row.url, clock_wall() / US_PER_SECOND,
                                (struct bytes){request.body.data, request.body.length}, &signature);
    request.signature = buf_text(&signature);
    request.cursor = buf_text(&cursor);
    if (hook->called) {
        delivery->body = (struct buf){0};
        hook->called = webhook_call_begin(work->caller, &request);
    }
    buf_release(&signature);
    buf_release(&cursor);
    return NULL;
}

static enum permit_status send(struct webhooks *work, struct delivery *delivery)
{
    struct store *store = work->task->store;
    struct hook *hook = delivery->hook;
    const struct lease_clock *clock = &work->list.ret_time.clock;
    bool won = false;
    enum permit_status status = store->webhooks->claim(store, &hook->row, work->own_id, clock->due,
                                                       max_i64(clock->due, clock->from) + CLAIM_US, &won);
    if (status != PERMIT_OK || !won || clock_boot() - work->asked_at > CALL_WITHIN_MS * US_PER_MS)
        return status;
    hook->claimed_by = work->own_id;
    hook->sent = delivery->end;
    hook->events = delivery->events;
    const char *fault = begin_call(work, delivery);
    if (!fault)
        return PERMIT_OK;
    struct webhook_answer answer = {.context = hook};
    snprintf(answer.error, sizeof answer.error, "%s", fault);
    return settle(work, hook, &answer);
}

/* ---- a pass ---- */

static struct hook *find_hook(struct webhooks *work, struct bytes url)
{
    struct hook *unused = NULL;
    for (size_t i = 0; i < WEBHOOKS_MAX; i++) {
        if (bytes_equal(work->hooks[i].row.url, url))
            return &work->hooks[i];
        if (!unused && work->hooks[i].row.url.length == 0)
            unused = &work->hooks[i];
    }
    return unused;
}

static void take_row(struct hook *hook, const struct webhook_row *row, mono_us now)
{
    bool moved = hook->row.url.length == 0 || hook->row.position.epoch != row->position.epoch ||
                 hook->row.position.seq != row->position.seq;
    hook->listed = true;
    if (hook->called)
        return; /* the row as it was claimed is needed to settle it */
    if (moved) {
        hook->scanned = row->position;
        hook->written_at = now;
    }
    memcpy(hook->text, row->url.data, row->url.length);
    hook->row = *row;
    hook->row.url = (struct bytes){hook->text, row->url.length};
    hook->row.error = (struct bytes){0};
}

static enum permit_status read_list(struct webhooks *work)
{
    struct task *task = work->task;
    struct webhook_list list = {.ret_count = 0};
    work->asked_at = clock_boot();
    arena_clear(&task->arena);
    enum permit_status status = task_connect(task);
    if (status == PERMIT_OK)
        status = task->store->webhooks->read(task->store, &task->arena, &list);
    if (status != PERMIT_OK)
        return status;
    engine_note_webhooks(work->engine, &list);
    for (size_t i = 0; i < WEBHOOKS_MAX; i++)
        work->hooks[i].listed = false;
    for (size_t i = 0; i < list.ret_count; i++) {
        struct hook *hook = find_hook(work, list.ret_rows[i].url);
        if (hook)
            take_row(hook, &list.ret_rows[i], clock_mono());
    }
    for (size_t i = 0; i < WEBHOOKS_MAX; i++)
        if (!work->hooks[i].listed && !work->hooks[i].called)
            work->hooks[i] = (struct hook){0};
    list.ret_rows = NULL;
    engine_judge(work->engine, &list.ret_time);
    work->list = list;
    return PERMIT_OK;
}

static bool is_ready(const struct webhooks *work, const struct hook *hook)
{
    utc_us now = work->list.ret_time.clock.due;
    return hook->listed && !hook->called && hook->scanned.seq != work->list.ret_head &&
           (hook->row.retry_at == NEVER || hook->row.retry_at <= now) &&
           (hook->row.server_id == 0 || hook->row.server_id == work->own_id || hook->row.claimed_until <= now);
}

static enum permit_status serve(struct webhooks *work, struct hook *hook)
{
    struct delivery delivery = {.hook = hook};
    buf_init(&delivery.body, BODY_MAX);
    enum permit_status status = gather(work, &delivery);
    if (status == PERMIT_OK && delivery.events)
        status = send(work, &delivery);
    else if (status == PERMIT_OK)
        hook->scanned = delivery.end;
    buf_release(&delivery.body);
    return status;
}

/* Writes the positions of URLs that got no event for some time, so that they are not behind. */
static enum permit_status pass_over(struct webhooks *work)
{
    struct store *store = work->task->store;
    struct webhook_row rows[WEBHOOKS_MAX];
    struct feed_position positions[WEBHOOKS_MAX];
    size_t count = 0;
    mono_us now = clock_mono();
    for (size_t i = 0; i < WEBHOOKS_MAX; i++) {
        struct hook *hook = &work->hooks[i];
        uint64_t events = hook->scanned.seq - hook->row.position.seq;
        bool due = now - hook->written_at >= PASS_OVER_MS * US_PER_MS ||
                   (events >= PASS_OVER_EVENTS && now - hook->written_at >= MS_PER_SECOND * US_PER_MS);
        if (!hook->listed || hook->called || hook->row.server_id || events == 0 || !due)
            continue;
        hook->written_at = now;
        rows[count] = hook->row;
        positions[count++] = hook->scanned;
    }
    return count ? store->webhooks->pass_over(store, rows, positions, count) : PERMIT_OK;
}

static enum permit_status delete_unnamed(struct webhooks *work)
{
    struct task *task = work->task;
    mono_us now = clock_mono();
    if (now < work->sweep_at)
        return PERMIT_OK;
    work->sweep_at = now + SWEEP_MS * US_PER_MS;
    arena_clear(&task->arena);
    return task->store->webhooks->delete_unnamed(task->store, &task->arena);
}

/* Reads the rows; if this permitd leads, begins the calls of those that have events. Returns how long to pause. */
static int64_t run_pass(struct webhooks *work)
{
    mono_us began_at = clock_mono();
    enum permit_status status = read_list(work);
    uint64_t own_id = engine_server_id(work->engine);
    bool sends = status == PERMIT_OK && work->list.ret_count && task_leads(work->engine) && own_id;
    work->own_id = own_id ? own_id : work->own_id;
    engine_webhook_policy(work->engine, &work->policy);
    work->has_chunk = false;
    for (size_t i = 0; sends && work->policy.secret_count && status == PERMIT_OK && i < WEBHOOKS_MAX; i++) {
        struct hook *hook = &work->hooks[work->turn++ % WEBHOOKS_MAX];
        if (is_ready(work, hook))
            status = serve(work, hook);
        if (clock_mono() - began_at > PASS_MS * US_PER_MS)
            break;
    }
    if (sends && status == PERMIT_OK)
        status = pass_over(work);
    if (sends && status == PERMIT_OK)
        status = delete_unnamed(work);
    (void)task_record_status(work->task, status);
    return sends ? POLL_MS : IDLE_POLL_MS;
}

/* Lets the calls run for so long, and settles those that end; events that were taken are followed by the next at once. */
static void run_calls(struct webhooks *work, int64_t pause_ms)
{
    mono_us until = clock_mono() + pause_ms * US_PER_MS;
    bool taken = false;
    for (mono_us now; !taken && !task_stopping(work->task) && (now = clock_mono()) < until;) {
        struct webhook_answer answer;
        webhook_caller_run(work->caller, (int)min_i64(RUN_MS, (until - now) / US_PER_MS + 1));
        while (webhook_caller_next(work->caller, &answer)) {
            (void)task_record_status(work->task, settle(work, answer.context, &answer));
            taken |= answer.error[0] == '\0';
        }
    }
}

static void release_claims(struct webhooks *work)
{
    struct store *store = work->task->store;
    bool called = false;
    for (size_t i = 0; i < WEBHOOKS_MAX; i++)
        called |= work->hooks[i].called;
    if (called && task_connect(work->task) == PERMIT_OK)
        (void)store->webhooks->release(store, work->own_id);
}

void webhooks_run(struct task *task)
{
    struct webhooks *work = task->engine->settings.write_webhook ? calloc(1, sizeof *work) : NULL;
    if (!work)
        return;
    work->task = task;
    work->engine = task->engine;
    arena_init(&work->chunk.arena, CHUNK_CHUNK, CHUNK_MEMORY);
    while (!task_stopping(task) && !(work->caller = webhook_caller_new(&work->policy)))
        task_sleep(task, US_PER_SECOND);
    while (!task_stopping(task))
        run_calls(work, run_pass(work));
    webhook_caller_free(work->caller);
    release_claims(work);
    arena_release(&work->chunk.arena);
    free(work);
}
