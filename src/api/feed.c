/* SPDX-License-Identifier: MIT */
/*
 * GET /v1/feed: the events behind a position that the caller may see, as a page. With `wait` a page without events waits for
 * some: its query ends, and the task feed has it run again (engine/feed.h).
 */
#include "api/feed.h"

#include "api/access.h"
#include "api/json_out.h"
#include "api/operations.h"
#include "api/problem.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/service.h"
#include "base/clock.h"
#include "base/duration.h"
#include "core/name.h"
#include "engine/feed.h"
#include "store/feed.h"

enum {
    DEFAULT_LIMIT = 100,
    MAX_LIMIT = 1000,
    WAIT_MAX_MS = 60 * 1000,
    LOOKED_AT_MAX = QUERY_WALK_MAX,  /* events that one call reads */
    PAGE_BYTES = 1024 * 1024,        /* approximate maximum size of an answer */
    PIECE_ROWS = 100,                /* read together */
    PIECE_MEMORY = 24 * 1024 * 1024, /* for them */
    PIECE_CHUNK = 16 * 1024,
    DETAIL_MAX = 400,
};

struct reading {
    struct exchange *exchange;
    struct feed_position after; /* where it goes on */
    bool from_oldest;           /* `after` is not set */
    unsigned limit;
    struct bytes semaphore, prefix, owner; /* filters; data NULL: none */
    bool has_namespace;                    /* only keys of the namespace of the call */
    struct feed_wait wait;
    bool waits; /* the call has `wait` */
};

/* ---- the page ---- */

static bool wants_semaphore(const struct reading *reading, struct bytes name)
{
    if (reading->semaphore.data)
        return bytes_equal(name, reading->semaphore);
    size_t length = reading->prefix.length;
    return name.length >= length && (length == 0 || memcmp(name.data, reading->prefix.data, length) == 0);
}

/*
 * Keeps the permits that the caller may see and asks for. Returns how many; 0: the event is not shown. A gap is shown to all,
 * because it tells that events lack.
 */
static size_t keep_permits(const struct reading *reading, const struct feed_row *row, struct feed_permit *permits,
                           size_t count)
{
    const struct viewer viewer = viewer_of(reading->exchange);
    const struct scope *scope = access_scope(reading->exchange);
    size_t kept = 0;
    if (!viewer_sees(&viewer, row->external_id) ||
        (reading->has_namespace &&
         !bytes_equal(key_split(row->external_id).namespace, call_of(reading->exchange)->namespace)) ||
        (reading->owner.data && !bytes_equal(row->owner, reading->owner)))
        return 0;
    for (size_t i = 0; i < count; i++)
        if (scope_covers(scope, permits[i].semaphore) && wants_semaphore(reading, permits[i].semaphore))
            permits[kept++] = permits[i];
    return kept;
}

static enum permit_status write_row(const struct reading *reading, const struct feed_row *row, uint64_t epoch,
                                    struct arena *arena, const char *between, bool *ret_written)
{
    const struct viewer viewer = viewer_of(reading->exchange);
    struct feed_permit *permits;
    size_t count;
    if (!feed_permits_parse(row->permits, arena, &permits, &count))
        return PERMIT_NO_MEMORY;
    count = row->what == FEED_GAP ? 0 : keep_permits(reading, row, permits, count);
    *ret_written = count || row->what == FEED_GAP;
    if (!*ret_written)
        return PERMIT_OK;
    buf_append_text(&reading->exchange->answer.body, between);
    write_feed_event(&reading->exchange->answer.body, &viewer, row, epoch, permits, count);
    return PERMIT_OK;
}

static void write_end(struct buf *out, struct feed_position next)
{
    buf_append_text(out, "],\"next\":\"");
    feed_position_format(next, out);
    buf_append_text(out, "\"}");
}

static void answer_gone(const struct reading *reading, const struct feed_page *page)
{
    struct answer *answer = &reading->exchange->answer;
    bool lost = page->ret_verdict == FEED_LOST;
    struct buf detail;
    buf_init(&detail, DETAIL_MAX);
    buf_append_text(&detail, lost ? "a server has lost events before this cursor, and others may have their numbers now"
                                  : "events behind this cursor were deleted (feed_retention, feed_rows)");
    buf_append_text(&detail, "; go on from ");
    feed_position_format(page->ret_next, &detail);
    buf_clear(&answer->body);
    problem_head(answer, PERMIT_FEED_GONE, 0);
    problem_begin(&answer->body, PERMIT_FEED_GONE, buf_text(&detail));
    buf_release(&detail);
    buf_append_text(&answer->body, ",\"oldest\":\"");
    feed_position_format(page->ret_next, &answer->body);
    buf_append_char(&answer->body, '"');
    if (lost)
        write_member_bool(&answer->body, "lost", true);
    problem_end(&answer->body);
}

/*
 * Reads pieces, and writes what is shown of them, until the page is full or the feed ends. *ret_waits: nothing is shown, and
 * nothing follows yet. The position moves on, so that a page that waits does not read the same again.
 */
static enum permit_status write_page(struct reading *reading, struct store *store, struct arena *arena, bool *ret_waits)
{
    struct buf *out = &reading->exchange->answer.body;
    unsigned shown = 0, looked_at = 0, piece = PIECE_ROWS;
    struct feed_page page;
    buf_append_text(out, "{\"events\":[");
    do {
        page = (struct feed_page){.after = reading->after, .from_oldest = reading->from_oldest, .limit = piece};
        arena_clear(arena);
        enum permit_status status = store->feed->read(store, &page, arena);
        if (status == PERMIT_OK && page.ret_verdict != FEED_KNOWN) {
            answer_gone(reading, &page);
            return PERMIT_OK;
        }
        for (size_t i = 0; status == PERMIT_OK && i < page.ret_count && shown < reading->limit; i++) {
            bool written;
            status = write_row(reading, &page.ret_rows[i], page.ret_next.epoch, arena, shown ? "," : "", &written);
            if (status != PERMIT_OK)
                break;
            shown += written;
            looked_at++;
            reading->from_oldest = false;
            reading->after = (struct feed_position){page.ret_next.epoch, page.ret_rows[i].seq};
        }
        if (status == PERMIT_NO_MEMORY && piece > 1) {
            piece = 1;
            page.ret_count = piece; /* there is more */
            continue;
        }
        if (status != PERMIT_OK)
            return status;
        if (page.ret_count == 0)
            reading->after = page.ret_next;
        reading->from_oldest = false;
    } while (page.ret_count == piece && shown < reading->limit && looked_at < LOOKED_AT_MAX &&
             out->length < PAGE_BYTES);
    write_end(out, reading->after);
    *ret_waits = shown == 0 && page.ret_count < piece;
    return PERMIT_OK;
}

/* ---- the query ---- */

static void run_query(struct query *query, struct store *store, enum permit_status status)
{
    struct exchange *exchange = query_exchange(query);
    struct reading *reading = exchange->context;
    struct engine *engine = exchange->service->engine;
    bool waits = false;
    if (status == PERMIT_OK) {
        struct arena arena;
        arena_init(&arena, PIECE_CHUNK, PIECE_MEMORY);
        status = write_page(reading, store, &arena, &waits);
        arena_release(&arena);
    }
    if (status == PERMIT_OK && waits && reading->waits) {
        reading->wait.seq = reading->after.seq;
        buf_clear(&exchange->answer.body);
        if (feed_wait_begin(engine, &reading->wait))
            return; /* from now on it belongs to the task feed */
        buf_append_text(&exchange->answer.body, "{\"events\":[");
        write_end(&exchange->answer.body, reading->after);
    }
    if (status != PERMIT_OK)
        query_refuse(exchange, store, status);
    exchange_finish(exchange);
}

static void wake(struct feed_wait *wait)
{
    struct exchange *exchange = CONTAINER_OF(wait, struct reading, wait)->exchange;
    enum permit_status status = engine_query(exchange->service->engine, &call_of(exchange)->engine_query);
    if (status == PERMIT_OK)
        return;
    query_refuse(exchange, NULL, status);
    exchange_finish(exchange);
}

bool feed_is_read(const struct exchange *exchange)
{
    const struct route *route = CONTAINER_OF(exchange, const struct call, exchange)->route;
    return route && route->handle == feed_get;
}

bool feed_abandon(struct exchange *exchange)
{
    struct reading *reading = exchange->context;
    return feed_wait_abandon(exchange->service->engine, &reading->wait);
}

/* ---- parameters ---- */

static bool read_filters(struct exchange *exchange, struct reading *reading)
{
    struct bytes owner = query_param(exchange, "owner");
    reading->semaphore = query_param(exchange, "semaphore");
    reading->prefix = query_param(exchange, "prefix");
    reading->has_namespace = query_param(exchange, "namespace").data != NULL;
    if (owner.data && !name_is_key(owner))
        return !problem_answer(exchange, PERMIT_INVALID, "owner must be printable ASCII without space");
    if (reading->semaphore.data && !name_is_semaphore(reading->semaphore))
        return !problem_answer(exchange, PERMIT_INVALID, "semaphore must be a semaphore's name");
    if (reading->semaphore.data && reading->prefix.data)
        return !problem_answer(exchange, PERMIT_INVALID, "semaphore cannot be combined with prefix");
    if (reading->semaphore.data &&
        access_check_semaphore(exchange, RIGHT_LOOK, reading->semaphore, &exchange->service->message) != PERMIT_OK)
        return !problem_answer(exchange, PERMIT_FORBIDDEN, buf_text(&exchange->service->message));
    if (owner.data)
        reading->owner = namespace_store(exchange, owner);
    return !owner.data || reading->owner.data || !problem_answer(exchange, PERMIT_BUSY, NULL);
}

/* Reads `wait`. A reader that waits is one of max_streams, and counts in the quota `waiting`. */
static bool read_wait(struct exchange *exchange, struct reading *reading)
{
    struct bytes text = query_param(exchange, "wait");
    const struct service *service = exchange->service;
    int64_t wait_ms = 0;
    if (text.data && (!duration_parse_any(text, &wait_ms) || wait_ms > WAIT_MAX_MS))
        return !problem_answer(exchange, PERMIT_INVALID, "wait must be a duration up to 1m, such as 20s");
    if (wait_ms == 0)
        return true;
    if (feed_waiting(service->engine) >= (size_t)service->settings->max_streams)
        return !problem_answer(exchange, PERMIT_TOO_MANY, "max_streams readers of the feed wait at this permitd");
    if (!quota_take(exchange, QUOTA_WAITING, 1))
        return false;
    reading->waits = exchange->may_wait = true;
    exchange->deadline += wait_ms * US_PER_MS;
    feed_wait_init(&reading->wait, wake, clock_mono() + wait_ms * US_PER_MS);
    return true;
}

bool feed_get(struct exchange *exchange)
{
    struct reading *reading = arena_alloc(&exchange->arena, sizeof *reading);
    struct bytes after = query_param(exchange, "after");
    uint64_t limit;
    if (!reading)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    *reading = (struct reading){.exchange = exchange, .from_oldest = !after.data};
    if (after.data && !feed_position_parse(after, &reading->after))
        return problem_answer(exchange, PERMIT_INVALID, "after must be a cursor of the feed, as it was given");
    if (!param_number(exchange, "limit", 1, MAX_LIMIT, DEFAULT_LIMIT, &limit) || !read_filters(exchange, reading) ||
        !read_wait(exchange, reading))
        return true;
    reading->limit = (unsigned)limit;
    return query_submit_work(exchange, QUERY_LIST, run_query, reading);
}
