/* SPDX-License-Identifier: MIT */
/* GET /v1/availability: free units and waiters of many semaphores, from memory (availability_cache.h). */
#include <inttypes.h>
#include <stdio.h>

#include "api/access.h"
#include "api/availability_cache.h"
#include "api/etag.h"
#include "api/json_out.h"
#include "api/operations.h"
#include "api/problem.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/service.h"
#include "base/clock.h"

struct question {
    struct availability_ask ask;
    struct bytes known; /* If-None-Match */
};

/* ---- parameters ---- */

/* Reads names with commas between them. Those that are not in scope are as unknown ones: they are left out. */
static bool read_names(struct exchange *exchange, struct bytes list, struct availability_ask *ask)
{
    const struct scope *scope = access_scope(exchange);
    size_t count = 1;
    for (size_t i = 0; i < list.length; i++)
        count += list.data[i] == ',';
    if (count > AVAILABILITY_ROWS)
        return !problem_answer(exchange, PERMIT_INVALID, "semaphore: at most 1000 names; use prefix, or several calls");
    struct scope_entry *parts = arena_array(&exchange->arena, count, sizeof *parts);
    if (!parts)
        return !problem_answer(exchange, PERMIT_BUSY, NULL);
    for (size_t i = 0; i < count; i++) {
        const char *comma = list.length ? memchr(list.data, ',', list.length) : NULL;
        struct bytes name = {list.data, comma ? (size_t)(comma - list.data) : list.length};
        if (!name_is_semaphore(name))
            return !problem_answer(exchange, PERMIT_INVALID,
                                   "semaphore must be names with commas between them, each 1 to 255 bytes of "
                                   "A-Z a-z 0-9 . _ : @ - , not . or ..");
        if (scope_covers(scope, name))
            parts[ask->part_count++] = (struct scope_entry){.text = name};
        list = (struct bytes){name.data + name.length + 1, list.length - name.length - (comma != NULL)};
    }
    ask->parts = parts;
    ask->limit = AVAILABILITY_ROWS;
    return true;
}

/* Finds the names and prefixes of the caller's scope that begin with `prefix`. */
static bool read_prefix(struct exchange *exchange, struct bytes prefix, struct availability_ask *ask)
{
    struct scope_walk walk = {
        .scope = access_scope(exchange), .prefix = prefix, .after = query_param(exchange, "after")};
    struct scope_entry part;
    uint64_t limit;
    size_t count = 0;
    if (prefix.length > NAME_MAX_BYTES || walk.after.length > NAME_MAX_BYTES)
        return !problem_answer(exchange, PERMIT_INVALID, "prefix and after: at most 255 bytes");
    if (!param_number(exchange, "limit", 1, AVAILABILITY_ROWS, AVAILABILITY_ROWS, &limit))
        return false;
    for (struct scope_walk counted = walk; scope_walk_next(&counted, &part);)
        count++;
    struct scope_entry *parts = count ? arena_array(&exchange->arena, count, sizeof *parts) : NULL;
    if (count && !parts)
        return !problem_answer(exchange, PERMIT_BUSY, NULL);
    while (ask->part_count < count && scope_walk_next(&walk, &parts[ask->part_count]))
        ask->part_count++;
    ask->parts = parts;
    ask->after = walk.after;
    ask->limit = (size_t)limit;
    return true;
}

static bool read_question(struct exchange *exchange, struct question *question)
{
    struct bytes names = query_param(exchange, "semaphore");
    struct bytes prefix = query_param(exchange, "prefix");
    const char *known = exchange_header(exchange, "If-None-Match", NULL);
    bool pages = query_param(exchange, "after").data || query_param(exchange, "limit").data;
    if (!names.data == !prefix.data || (names.data && pages))
        return !problem_answer(exchange, PERMIT_INVALID,
                               "needs either semaphore, or prefix, which may have after and limit");
    if (known)
        question->known = arena_copy(&exchange->arena, bytes_of(known));
    question->ask.since = clock_mono() - AVAILABILITY_FRESH_US;
    return names.data ? read_names(exchange, names, &question->ask) : read_prefix(exchange, prefix, &question->ask);
}

/* ---- the answer ---- */

static void begin_page(struct buf *out)
{
    buf_append_text(out, "{\"semaphores\":[");
}

static void end_page(struct exchange *exchange, struct bytes known, const struct availability_page *page)
{
    struct answer *answer = &exchange->answer;
    struct bytes tag;
    buf_append_char(&answer->body, ']');
    if (page->next_length)
        write_member_text(&answer->body, "next", (struct bytes){page->next, page->next_length});
    buf_append_char(&answer->body, '}');
    answer->cache_control = "private, max-age=1";
    snprintf(answer->etag, sizeof answer->etag, "\"%016" PRIx64 "\"", page->digest);
    do
        tag = etag_next(&known);
    while (tag.length && !bytes_equal(tag, bytes_of(answer->etag)));
    if (tag.length)
        etag_not_modified(answer, tag);
}

static enum permit_status answer_read(struct exchange *exchange, struct store *store)
{
    const struct question *question = exchange->context;
    struct availability_page page;
    begin_page(&exchange->answer.body);
    enum permit_status status =
        availability_cache_find(exchange->service->availability, store, &question->ask, &exchange->answer.body, &page);
    if (status == PERMIT_OK)
        end_page(exchange, question->known, &page);
    return status;
}

bool availability_get(struct exchange *exchange)
{
    struct question *question = arena_alloc(&exchange->arena, sizeof *question);
    struct buf *out = &exchange->answer.body;
    struct availability_page page;
    if (!question)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    bool valid = read_question(exchange, question);
    if (valid)
        begin_page(out);
    bool found = valid && availability_cache_get(exchange->service->availability, &question->ask, out, &page);
    if (!quota_take(exchange, QUOTA_RATE, valid && !found ? COST_LIST : COST_ONE) || !valid)
        return true;
    if (found) {
        end_page(exchange, question->known, &page);
        return true;
    }
    buf_clear(out);
    return query_submit(exchange, QUERY_ROW, answer_read, question);
}
