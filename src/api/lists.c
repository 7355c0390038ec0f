/* SPDX-License-Identifier: MIT */
#include "api/lists.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "api/access.h"
#include "api/json_out.h"
#include "api/owners.h"
#include "api/problem.h"
#include "api/service.h"
#include "http/router.h"
#include "store/servers.h"
#include "store/sql_accounts.h"
#include "store/templates.h"

enum {
    DEFAULT_LIMIT = 100,
    MAX_LIMIT = 1000,
    /* Of lists that are read in pieces. */
    PAGE_BYTES = 1024 * 1024,        /* approximate maximum size of an answer */
    FIRST_ROWS = 10,                 /* size of the first piece, which shows how large the rows are */
    PAGE_MEMORY = 4 * 1024 * 1024,   /* the same of the memory for its rows */
    PIECE_MEMORY = 24 * 1024 * 1024, /* for the first piece; the largest possible request needs 20 MiB */
    PIECE_CHUNK = 16 * 1024,
};

/* ---- readers and writers ---- */

typedef enum permit_status part_read(struct store *store, const struct scope_entry *part, struct page *page);

/* Reads the parts of the caller's scope one after the other, so that `next` is in scope too. */
static enum permit_status read_scope(struct listing *listing, struct store *store, part_read *read, size_t row_size)
{
    struct page *page = &listing->page;
    struct scope_walk walk = {.scope = access_scope(listing->exchange),
                              .prefix = query_param(listing->exchange, "prefix"),
                              .after = page->after.name};
    struct scope_entry part;
    char *rows = arena_array(page->arena, page->limit, row_size);
    if (!rows)
        return PERMIT_NO_MEMORY;
    page->rows = rows;
    while (!page->more && scope_walk_next(&walk, &part)) {
        unsigned room = page->limit - (unsigned)page->count;
        struct page piece = {.arena = page->arena, .limit = room ? room : 1, .after = page->after};
        enum permit_status status = read(store, &part, &piece);
        if (status != PERMIT_OK)
            return status;
        page->more = piece.more || (piece.count && !room);
        if (!room)
            continue;
        if (piece.count)
            memcpy(rows + page->count * row_size, piece.rows, piece.count * row_size);
        if (piece.count || piece.more)
            page->next = piece.next;
        page->count += piece.count;
        page->time = piece.time;
    }
    return PERMIT_OK;
}

/* An exact name is the first one that begins with it. */
static enum permit_status read_semaphore_part(struct store *store, const struct scope_entry *part, struct page *page)
{
    enum permit_status status = store->queries->semaphores(store, part->text, page);
    if (status != PERMIT_OK || part->is_prefix)
        return status;
    page->count = page->count && bytes_equal(page->semaphores->semaphore.name, part->text);
    page->more = false;
    return PERMIT_OK;
}

static enum permit_status read_semaphores(struct listing *listing, struct store *store)
{
    return read_scope(listing, store, read_semaphore_part, sizeof *listing->page.semaphores);
}

static void write_semaphore_of(struct listing *listing, size_t index)
{
    const struct viewer viewer = viewer_of(listing->exchange);
    write_semaphore_row(&listing->exchange->answer.body, &viewer, &listing->page.semaphores[index],
                        &listing->page.time);
}

/* A template is in scope if all names that begin with its prefix are: exact names of the scope have no templates. */
static enum permit_status read_template_part(struct store *store, const struct scope_entry *part, struct page *page)
{
    return part->is_prefix ? store->templates->list(store, part->text, page) : PERMIT_OK;
}

static enum permit_status read_templates(struct listing *listing, struct store *store)
{
    return read_scope(listing, store, read_template_part, sizeof *listing->page.templates);
}

static void write_template_of(struct listing *listing, size_t index)
{
    const struct viewer viewer = viewer_of(listing->exchange);
    write_template(&listing->exchange->answer.body, &viewer, &listing->page.templates[index]);
}

static enum permit_status read_holders(struct listing *listing, struct store *store)
{
    struct exchange *exchange = listing->exchange;
    struct page *page = &listing->page;
    enum permit_status status = store->queries->holders(store, exchange->path_values[0], page);
    if (status != PERMIT_OK)
        return status;
    engine_judge(exchange->service->engine, &page->time);
    return suspects_find(exchange, store, page->count ? &page->holders->request : NULL, page->count,
                         sizeof *page->holders, &listing->suspects);
}

static void write_holder_of(struct listing *listing, size_t index)
{
    const struct viewer viewer = viewer_of(listing->exchange);
    write_holder(&listing->exchange->answer.body, &viewer, &listing->page.holders[index], &listing->page.time,
                 listing->suspects[index]);
}

static enum permit_status read_waiters(struct listing *listing, struct store *store)
{
    struct exchange *exchange = listing->exchange;
    struct page *page = &listing->page;
    utc_us *kept_until;
    enum permit_status status = store->queries->waiters(store, exchange->path_values[0], page);
    if (status != PERMIT_OK)
        return status;
    if (page->count == 0)
        return PERMIT_OK;
    engine_judge(exchange->service->engine, &page->time);
    status = store->queries->kept_until(store, &page->waiters->request, page->count, sizeof *page->waiters, &page->time,
                                        page->arena, &kept_until);
    if (status == PERMIT_OK)
        listing->kept_until = kept_until;
    return status;
}

/* A waiter is shown with the semaphores that the caller may see. */
static void write_waiter_of(struct listing *listing, size_t index)
{
    const struct viewer viewer = viewer_of(listing->exchange);
    const struct scope *scope = access_scope(listing->exchange);
    struct waiter_row *waiter = &listing->page.waiters[index];
    struct request *request = &waiter->request;
    size_t count = 0;
    for (size_t i = 0; i < request->want_count; i++)
        if (scope_covers(scope, request->wants[i].semaphore))
            request->wants[count++] = request->wants[i];
    request->want_count = count;
    write_waiter(&listing->exchange->answer.body, &viewer, waiter, listing->kept_until[index], &listing->page.time);
}

/* Newest first, because an operator asks for the latest changes. */
static enum permit_status read_events(struct listing *listing, struct store *store)
{
    return store->queries->events(store, listing->exchange->path_values[0], &listing->page);
}

/* The changes of SQL accounts are for those that may list them. */
static bool event_shows(const struct listing *listing, size_t index)
{
    return !bytes_equal(listing->page.events[index].what, BYTES("sql_account")) ||
           access_has(listing->exchange, RIGHT_ADMIN);
}

static void write_event_of(struct listing *listing, size_t index)
{
    const struct viewer viewer = viewer_of(listing->exchange);
    write_event(&listing->exchange->answer.body, &viewer, &listing->page.events[index]);
}

static enum permit_status read_servers(struct listing *listing, struct store *store)
{
    return store->servers->list(store, &listing->page);
}

static void write_server_of(struct listing *listing, size_t index)
{
    struct buf *out = &listing->exchange->answer.body;
    const struct server_row *row = &listing->page.servers[index];
    buf_append_text(out, "{\"id\":");
    buf_append_u64(out, row->id);
    write_member_text(out, "address", row->address);
    write_member_text(out, "version", row->version);
    buf_append_text(out, ",\"since\":");
    write_time(out, row->since);
    buf_append_text(out, ",\"seen_at\":");
    write_time(out, row->seen_at);
    write_member_i64(out, "waiting", (int64_t)row->waiting);
    write_member_bool(out, "alive", row->alive);
    write_member_bool(out, "this", row->id == engine_server_id(listing->exchange->service->engine));
    buf_append_char(out, '}');
}

static enum permit_status read_sql_accounts(struct listing *listing, struct store *store)
{
    return store->sql_accounts->list(store, &listing->page);
}

static void write_sql_account_of(struct listing *listing, size_t index)
{
    write_sql_account(&listing->exchange->answer.body, &listing->page.sql_accounts[index]);
}

/* ---- the table ---- */

/* The kind of value of `after` and `next` in a list. */
enum cursor_kind {
    CURSOR_NONE, /* all rows are one page */
    CURSOR_NAME,
    CURSOR_NUMBER,
    CURSOR_SLOT,  /* a number below 2^32 */
    CURSOR_PLACE, /* of a queue: PLACE.ID.NUMBER, with PLACE in microseconds */
};

/* How a list is read and written. `shows`, if not NULL, tells whether a row is written. The others are in lists.h. */
struct list_route {
    const char *path;
    const char *begin; /* of the answer */
    enum cursor_kind cursor;
    bool in_pieces; /* a page is read and written in pieces, because its rows may be large */
    enum permit_status (*read)(struct listing *listing, struct store *store);
    void (*write)(struct listing *listing, size_t index);
    bool (*params)(struct listing *listing);
    bool (*shows)(const struct listing *listing, size_t index);
    void (*end)(struct listing *listing);
};

#define OF_SEMAPHORE "/v1/semaphores/{semaphore}"

/* clang-format off */
static const struct list_route lists[] = {
    /*
     * path                     begin                                        cursor         pieces read
     * write               params           shows           end
     */
    {"/v1/requests",            "{\"requests\":[",                           CURSOR_NUMBER, true,  requests_read,   requests_write,     requests_params, requests_shows, NULL},
    {"/v1/semaphores",          "{\"semaphores\":[",                         CURSOR_NAME,   false, read_semaphores, write_semaphore_of, NULL,            NULL,           NULL},
    {OF_SEMAPHORE "/holders",   "{\"holders\":[",                            CURSOR_NUMBER, false, read_holders,    write_holder_of,    NULL,            NULL,           NULL},
    {OF_SEMAPHORE "/waiters",   "{\"scope\":\"database\",\"waiters\":[",     CURSOR_PLACE,  true,  read_waiters,    write_waiter_of,    NULL,            NULL,           NULL},
    {OF_SEMAPHORE "/slots",     "{\"slots\":[",                              CURSOR_SLOT,   false, slots_read,      slots_write,        slots_params,    NULL,           slots_end},
    {OF_SEMAPHORE "/events",    "{\"events\":[",                             CURSOR_NUMBER, false, read_events,     write_event_of,     NULL,            event_shows,    NULL},
    {"/v1/templates",           "{\"templates\":[",                          CURSOR_NAME,   false, read_templates,  write_template_of,  NULL,            NULL,           NULL},
    {"/v1/sql-accounts",        "{\"sql_accounts\":[",                       CURSOR_NAME,   false, read_sql_accounts, write_sql_account_of, NULL,        NULL,           NULL},
    {"/v1/servers",             "{\"servers\":[",                            CURSOR_NONE,   false, read_servers,    write_server_of,    NULL,            NULL,           NULL},
};
/* clang-format on */

/* ---- cursors ---- */

enum { PLACE_TEXT = 3 * 20 + 3 };
#define PLACE_LEAST (1000000000LL * US_PER_SECOND) /* in 2001: no queue has an earlier place */

static struct bytes format_place(const struct cursor *cursor, char ret_text[PLACE_TEXT])
{
    snprintf(ret_text, PLACE_TEXT, "%" PRIu64 ".%" PRIu64 ".%" PRIu64, (uint64_t)cursor->place, cursor->number,
             cursor->waiters);
    return bytes_of(ret_text);
}

/* Parses `after` of a page of waiters, exactly as format_place writes it; absent: the first page. */
static bool parse_place(struct bytes after, struct cursor *ret_cursor)
{
    char text[PLACE_TEXT];
    uint64_t numbers[3] = {0};
    size_t parts = 0, digits = 0;
    for (size_t i = 0; i <= after.length; i++) {
        char byte = i < after.length ? after.data[i] : '.';
        if (byte == '.' && digits > 0 && parts < ARRAY_LENGTH(numbers)) {
            parts++;
            digits = 0;
        } else if (byte >= '0' && byte <= '9' && ++digits < 19 && parts < ARRAY_LENGTH(numbers)) {
            numbers[parts] = numbers[parts] * 10 + (uint64_t)(byte - '0');
        } else {
            return !after.data;
        }
    }
    *ret_cursor = (struct cursor){.place = (utc_us)numbers[0], .number = numbers[1], .waiters = numbers[2]};
    bool plausible = ret_cursor->place >= PLACE_LEAST && ret_cursor->number > 0;
    return parts == ARRAY_LENGTH(numbers) && plausible && bytes_equal(after, format_place(ret_cursor, text));
}

/* Reads `after`. False: the exchange's answer is the refusal. */
static bool read_cursor(struct exchange *exchange, enum cursor_kind kind, struct cursor *ret_after)
{
    uint64_t most = kind == CURSOR_SLOT ? UINT32_MAX : INT64_MAX;
    switch (kind) {
    case CURSOR_NONE: break;
    case CURSOR_NAME: ret_after->name = query_param(exchange, "after"); break;
    case CURSOR_NUMBER:
    case CURSOR_SLOT: return param_number(exchange, "after", 0, most, 0, &ret_after->number);
    case CURSOR_PLACE:
        return parse_place(query_param(exchange, "after"), ret_after) ||
               !problem_answer(exchange, PERMIT_INVALID,
                               "after must be the next of a page of waiters, as it was given");
    }
    return true;
}

static void write_cursor(struct buf *out, enum cursor_kind kind, const struct cursor *next)
{
    char text[PLACE_TEXT];
    switch (kind) {
    case CURSOR_NONE: break;
    case CURSOR_NAME: write_member_text(out, "next", next->name); break;
    case CURSOR_NUMBER:
    case CURSOR_SLOT: buf_printf(out, ",\"next\":\"%" PRIu64 "\"", next->number); break;
    case CURSOR_PLACE: write_member_text(out, "next", format_place(next, text)); break;
    }
}

/* ---- the runner ---- */

/* Returns how many more rows have room if they are as large as these, which have `used` of it. */
static size_t rows_with_room(size_t used, size_t room, unsigned rows)
{
    return used < room ? (room - used) / (used / rows + 1) : 0;
}

/*
 * Returns how many more rows fit into the page. Rows that are not shown count as rows, so that a page is a bounded
 * amount of work.
 */
static unsigned rows_to_read(const struct listing *listing, unsigned rows, unsigned left)
{
    if (rows == 0)
        return left < FIRST_ROWS ? left : FIRST_ROWS;
    size_t fit = rows_with_room(listing->exchange->answer.body.length, PAGE_BYTES, rows);
    size_t held = rows_with_room(listing->page.arena->used, PAGE_MEMORY, rows);
    return (unsigned)(fit < left || held < left ? (fit < held ? fit : held) : left);
}

/*
 * Reads and writes a page. A piece with fewer rows than asked for ends the page: it was the last one, or the query has
 * examined as many rows as it may. So does a piece that has no room, because its rows are larger than those before it;
 * of the first piece a single row is read then.
 */
static enum permit_status answer_page(struct listing *listing, struct store *store)
{
    const struct list_route *list = listing->list;
    struct page *page = &listing->page;
    struct buf *out = &listing->exchange->answer.body;
    const char *between = "";
    const unsigned most = page->limit;
    unsigned rows = 0;
    buf_append_text(out, list->begin);
    if (list->in_pieces)
        page->limit = rows_to_read(listing, 0, most);
    for (;;) {
        enum permit_status status = list->read(listing, store);
        if (status == PERMIT_NO_MEMORY && rows) {
            page->next = page->after;
            page->more = true;
            break;
        }
        if (status == PERMIT_NO_MEMORY && page->limit > 1 && list->in_pieces) {
            arena_clear(page->arena);
            page->limit = 1;
            continue;
        }
        if (status != PERMIT_OK || listing->answered)
            return status;
        for (size_t i = 0; i < page->count; i++) {
            if (list->shows && !list->shows(listing, i))
                continue;
            buf_append_text(out, between);
            between = ",";
            list->write(listing, i);
        }
        rows += (unsigned)page->count;
        bool full = page->count == page->limit;
        page->limit = list->in_pieces && page->more && full ? rows_to_read(listing, rows, most - rows) : 0;
        if (page->limit == 0)
            break;
        page->after = page->next;
        page->arena->limit = PAGE_MEMORY;
    }
    buf_append_char(out, ']');
    if (page->more)
        write_cursor(out, list->cursor, &page->next);
    buf_append_char(out, '}');
    if (list->end)
        list->end(listing);
    return PERMIT_OK;
}

static enum permit_status answer_list(struct exchange *exchange, struct store *store)
{
    struct listing *listing = exchange->context;
    struct arena pieces;
    if (!listing->list->in_pieces)
        return answer_page(listing, store);
    arena_init(&pieces, PIECE_CHUNK, PIECE_MEMORY);
    listing->page.arena = &pieces;
    enum permit_status status = answer_page(listing, store);
    arena_release(&pieces);
    return status;
}

bool list_answer(struct exchange *exchange)
{
    struct listing *listing = arena_alloc(&exchange->arena, sizeof *listing);
    const struct list_route *list = lists;
    uint64_t limit;
    if (!listing)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    while (strcmp(list->path, call_of(exchange)->route->path) != 0) {
        list++;
        assert(list < lists + ARRAY_LENGTH(lists));
    }
    listing->exchange = exchange;
    listing->list = list;
    listing->page.arena = &exchange->arena;
    if ((list->params && !list->params(listing)) || !read_cursor(exchange, list->cursor, &listing->page.after) ||
        !param_number(exchange, "limit", 1, MAX_LIMIT, list->cursor == CURSOR_NONE ? MAX_LIMIT : DEFAULT_LIMIT, &limit))
        return true;
    listing->page.limit = (unsigned)limit;
    return query_submit(exchange, QUERY_LIST, answer_list, listing);
}
