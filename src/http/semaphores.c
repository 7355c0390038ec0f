/* SPDX-License-Identifier: MIT */
/* /v1/semaphores: make, change, pause, look, list, who holds, who waits, what was done, is this token live. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/duration.h"
#include "http/labels.h"
#include "http/look.h"
#include "http/operations.h"
#include "http/owners.h"
#include "http/problem.h"
#include "http/routes.h"
#include "http/service.h"
#include "http/settings.h"
#include "http/wire.h"
#include "http/write.h"

/* ---- PUT ---- */

struct put_form {
    struct ttl max_ttl;
    int64_t kind;
    int64_t queue;
    struct wire_list labels;
    struct semaphore_change change; /* not first: a given_offset of 0 means that nobody asks */
};

#define CHANGE(member)    (offsetof(struct put_form, change) + offsetof(struct semaphore_change, member))
#define DURATION_EXPECTED "a duration such as \"10m\" or a number of seconds"

static const char *const kind_words[] = {"slotted", "counted", NULL};
static const enum semaphore_kind kinds[] = {KIND_SLOTTED, KIND_COUNTED};
static const char *const queue_words[] = {"backfill", "fifo", NULL};
static const enum semaphore_queue queues[] = {QUEUE_BACKFILL, QUEUE_FIFO};

enum { NOTE_MAX = 1000 };

static const struct wire_member put_members[] = {
    /* name, type, required, value, given, min, max, choices, expected */
    {"capacity", WIRE_INTEGER, false, CHANGE(capacity), CHANGE(has_capacity), 0, COUNTED_MAX_CAPACITY, NULL,
     "a whole number from 0 to 65536 (slotted) or 9007199254740991 (counted)"},
    {"kind", WIRE_CHOICE, false, offsetof(struct put_form, kind), CHANGE(has_kind), 0, 0, kind_words,
     "\"slotted\" or \"counted\""},
    {"default_ttl", WIRE_DURATION, false, CHANGE(default_ttl_ms), CHANGE(has_default_ttl), 1, DURATION_MAX_MS, NULL,
     DURATION_EXPECTED " above 0"},
    {"max_ttl", WIRE_TTL, false, offsetof(struct put_form, max_ttl), CHANGE(has_max_ttl), 1, DURATION_MAX_MS, NULL,
     DURATION_EXPECTED " above 0, or \"none\""},
    {"grace", WIRE_DURATION, false, CHANGE(grace_ms), CHANGE(has_grace), 0, DURATION_MAX_MS, NULL, DURATION_EXPECTED},
    {"max_hold", WIRE_DURATION, false, CHANGE(max_hold_ms), CHANGE(has_max_hold), 1, DURATION_MAX_MS, NULL,
     DURATION_EXPECTED " above 0"},
    {"queue", WIRE_CHOICE, false, offsetof(struct put_form, queue), CHANGE(has_queue), 0, 0, queue_words,
     "\"backfill\" or \"fifo\""},
    {"note", WIRE_TEXT, false, CHANGE(note), CHANGE(has_note), 0, NOTE_MAX, NULL, "a text of at most 1000 bytes"},
    {"labels", WIRE_LIST, false, offsetof(struct put_form, labels), 0, 0, SLOTS_MAX_CAPACITY, NULL, LABELS_EXPECTED},
};
/* A template has all of them but the last. */
static const struct wire_table put_table = {put_members, ARRAY_LENGTH(put_members)};
static const struct wire_table template_table = {put_members, ARRAY_LENGTH(put_members) - 1};

/* A config_version, "7" or 7. W/"7" is one that never matches: 0 (RFC 9110, 13.1.1). */
static bool parse_tag(struct bytes tag, uint64_t *ret_version)
{
    bool weak = bytes_begin_with(tag, BYTES("W/"));
    uint64_t version = 0;
    if (weak)
        tag = (struct bytes){tag.data + 2, tag.length - 2};
    if (tag.length >= 2 && tag.data[0] == '"' && tag.data[tag.length - 1] == '"')
        tag = (struct bytes){tag.data + 1, tag.length - 2};
    for (size_t i = 0; i < tag.length; i++) {
        if (tag.data[i] < '0' || tag.data[i] > '9')
            return false;
        version = version * 10 + (uint64_t)(tag.data[i] - '0');
    }
    *ret_version = weak ? 0 : version;
    return tag.length > 0 && tag.length <= 18;
}

/* The next of a list of tags, without the space around it. */
static struct bytes next_tag(struct bytes *list)
{
    const char *comma = memchr(list->data, ',', list->length);
    struct bytes tag = {list->data, comma ? (size_t)(comma - list->data) : list->length};
    *list = (struct bytes){tag.data + tag.length + (comma != NULL), list->length - tag.length - (comma != NULL)};
    while (tag.length && strchr(" \t", tag.data[0]))
        tag = (struct bytes){tag.data + 1, tag.length - 1};
    while (tag.length && strchr(" \t", tag.data[tag.length - 1]))
        tag.length--;
    return tag;
}

/* "*", or config_versions such as "3", "4". */
static bool parse_if_match(struct bytes list, struct semaphore_change *change)
{
    change->if_exists = bytes_equal(list, BYTES("*"));
    if (change->if_exists)
        return true;
    while (list.length) {
        struct bytes tag = next_tag(&list);
        if (!tag.length)
            continue; /* "A recipient MUST accept empty list elements" */
        if (change->match_count == MATCH_MAX || !parse_tag(tag, &change->config_versions[change->match_count++]))
            return false;
    }
    return change->match_count > 0;
}

bool take_preconditions(struct exchange *exchange, struct semaphore_change *change)
{
    unsigned times;
    struct bytes match = bytes_of(exchange_header(exchange, "If-Match", &times));
    bool matches = times > 0;
    if (times > 1 || (times == 1 && !parse_if_match(match, change)))
        return !problem_answer(exchange, PERMIT_INVALID,
                               "If-Match must be *, or at most 16 config_versions such as \"3\", \"4\"");
    struct bytes none_match = bytes_of(exchange_header(exchange, "If-None-Match", &times));
    if (times > 1 || (times == 1 && !bytes_equal(none_match, BYTES("*"))))
        return !problem_answer(exchange, PERMIT_INVALID, "If-None-Match must be *");
    change->if_none_match = times == 1;
    if (matches && change->if_none_match)
        return !problem_answer(exchange, PERMIT_INVALID, "If-Match and If-None-Match exclude each other");
    return true;
}

static enum permit_status read_put(struct exchange *exchange, const struct wire_table *table, struct put_form *form)
{
    enum permit_status status =
        wire_read_body(exchange->body, &labels_limit, table, form, &exchange->arena, &exchange->service->message);
    if (status == PERMIT_OK && form->labels.count)
        status = labels_read(exchange, &form->labels, 1, &form->change);
    struct semaphore_change *change = &form->change;
    change->kind = kinds[form->kind];
    change->queue = queues[form->queue];
    change->max_ttl_ms = form->max_ttl.kind == TTL_DURATION ? form->max_ttl.ms : -1;
    return status;
}

enum permit_status semaphore_read_settings(struct exchange *exchange, struct semaphore_change *ret_change)
{
    struct put_form form = {0};
    enum permit_status status = read_put(exchange, &template_table, &form);
    if (status == PERMIT_OK)
        *ret_change = form.change;
    return status;
}

bool semaphore_put(struct exchange *exchange)
{
    struct put_form *form = arena_alloc(&exchange->arena, sizeof *form);
    if (!form)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    enum permit_status status = read_put(exchange, &put_table, form);
    if (status != PERMIT_OK)
        return problem_answer(exchange, operation_public_status(status), buf_text(&exchange->service->message));
    if (!take_preconditions(exchange, &form->change))
        return true;
    exchange->first.operation = (struct operation){
        .kind = OP_SEMAPHORE_PUT,
        .semaphore = exchange->parts[0],
        .change = &form->change,
    };
    return operation_submit(exchange);
}

/* ---- pause and resume ---- */

bool semaphore_pause(struct exchange *exchange)
{
    struct operation operation = {.kind = OP_SEMAPHORE_PAUSE, .semaphore = exchange->parts[0]};
    enum permit_status status = operation_read_reason(exchange, &operation.why);
    if (status != PERMIT_OK)
        return problem_answer(exchange, operation_public_status(status), buf_text(&exchange->service->message));
    exchange->first.operation = operation;
    return operation_submit(exchange);
}

bool semaphore_resume(struct exchange *exchange)
{
    enum permit_status status = operation_read_nothing(exchange);
    if (status != PERMIT_OK)
        return problem_answer(exchange, operation_public_status(status), buf_text(&exchange->service->message));
    exchange->first.operation = (struct operation){.kind = OP_SEMAPHORE_RESUME, .semaphore = exchange->parts[0]};
    return operation_submit(exchange);
}

/* ---- looks ---- */

static void get_work(struct look *look, struct session *session, enum permit_status status)
{
    struct exchange *exchange = look_exchange(look);
    struct answer *answer = &exchange->answer;
    struct semaphore_row row;
    struct query_time time;
    if (status == PERMIT_OK)
        status = query_semaphore(session, exchange->parts[0], &exchange->arena, &row, &time);
    if (status == PERMIT_OK) {
        write_semaphore(&answer->body, &row.semaphore, row.floor,
                        engine_waiting(exchange->service->engine, row.semaphore.name));
        snprintf(answer->etag, sizeof answer->etag, "\"%" PRIu64 "\"", row.semaphore.config_version);
    } else {
        look_refuse(exchange, session, status);
    }
    exchange_finish(exchange);
}

bool semaphore_get(struct exchange *exchange)
{
    return look_submit(exchange, LOOK_ROW, get_work, NULL);
}

/* A page: what comes after `after` (a name or a number), at most `limit`. */
struct page {
    struct bytes prefix;
    struct bytes after;
    uint64_t after_number;
    uint64_t limit;
};

static void list_work(struct look *look, struct session *session, enum permit_status status)
{
    struct exchange *exchange = look_exchange(look);
    const struct page *page = exchange->context;
    struct semaphore_row *rows;
    struct bytes following;
    size_t count;
    struct query_time time;
    if (status == PERMIT_OK)
        status = query_semaphores(session, page->prefix, page->after, (unsigned)page->limit, &exchange->arena, &rows,
                                  &count, &following, &time);
    if (status == PERMIT_OK) {
        list_begin(exchange, "semaphores");
        for (size_t i = 0; i < count; i++) {
            if (i)
                buf_append_char(&exchange->answer.body, ',');
            write_semaphore(&exchange->answer.body, &rows[i].semaphore, rows[i].floor,
                            engine_waiting(exchange->service->engine, rows[i].semaphore.name));
        }
        if (following.data)
            list_next_text(exchange, following);
        else
            list_end(exchange);
    } else {
        look_refuse(exchange, session, status);
    }
    exchange_finish(exchange);
}

bool semaphore_list(struct exchange *exchange)
{
    struct page *page = arena_alloc(&exchange->arena, sizeof *page);
    if (!page)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    page->prefix = exchange->values[0];
    page->after = exchange->values[1];
    if (!query_number(exchange, 2, "limit", 1, LIST_MAX_LIMIT, LIST_DEFAULT_LIMIT, &page->limit))
        return true;
    return look_submit(exchange, LOOK_LIST, list_work, page);
}

static void holders_work(struct look *look, struct session *session, enum permit_status status)
{
    struct exchange *exchange = look_exchange(look);
    const struct page *page = exchange->context;
    struct holder_row *rows;
    size_t count;
    struct query_time time;
    const bool *suspects;
    if (status == PERMIT_OK)
        status = query_holders(session, exchange->parts[0], page->after_number, (unsigned)page->limit + 1,
                               &exchange->arena, &rows, &count, &time);
    if (status == PERMIT_OK)
        status = suspects_find(exchange, session, count ? &rows->request : NULL, count, sizeof *rows, &suspects);
    if (status == PERMIT_OK) {
        list_begin(exchange, "holders");
        for (size_t i = 0; i < count && i < page->limit; i++) {
            if (i)
                buf_append_char(&exchange->answer.body, ',');
            write_holder(&exchange->answer.body, &rows[i], &time, suspects[i]);
        }
        if (count > page->limit)
            list_next_number(exchange, rows[page->limit - 1].permit.token);
        else
            list_end(exchange);
    } else {
        look_refuse(exchange, session, status);
    }
    exchange_finish(exchange);
}

/* The queue is in memory; whether there is such a semaphore only the database knows. */
static enum permit_status read_waiters(struct exchange *exchange, struct session *session, struct waiter_row **ret_rows,
                                       size_t *ret_count, bool *ret_more)
{
    const struct page *page = exchange->context;
    struct semaphore_row semaphore;
    struct query_time time;
    enum permit_status status = query_semaphore(session, exchange->parts[0], &exchange->arena, &semaphore, &time);
    if (status != PERMIT_OK)
        return status;
    return engine_waiters(exchange->service->engine, exchange->parts[0], page->after_number, page->limit,
                          &exchange->arena, ret_rows, ret_count, ret_more)
               ? PERMIT_OK
               : PERMIT_NO_MEMORY;
}

static void waiters_work(struct look *look, struct session *session, enum permit_status status)
{
    struct exchange *exchange = look_exchange(look);
    struct waiter_row *rows;
    size_t count;
    bool more;
    if (status == PERMIT_OK)
        status = read_waiters(exchange, session, &rows, &count, &more);
    if (status == PERMIT_OK) {
        utc_us now = clock_wall();
        buf_append_text(&exchange->answer.body, "{\"scope\":\"process\",\"waiters\":[");
        for (size_t i = 0; i < count; i++) {
            if (i)
                buf_append_char(&exchange->answer.body, ',');
            write_waiter(&exchange->answer.body, &rows[i], now);
        }
        if (more)
            list_next_number(exchange, rows[count - 1].number);
        else
            list_end(exchange);
    } else {
        look_refuse(exchange, session, status);
    }
    exchange_finish(exchange);
}

/* The newest first: an operator asks what has changed. */
static void events_work(struct look *look, struct session *session, enum permit_status status)
{
    struct exchange *exchange = look_exchange(look);
    const struct page *page = exchange->context;
    struct event_row *rows;
    size_t count;
    if (status == PERMIT_OK)
        status = query_events(session, exchange->parts[0], page->after_number, (unsigned)page->limit + 1,
                              &exchange->arena, &rows, &count);
    if (status == PERMIT_OK) {
        list_begin(exchange, "events");
        for (size_t i = 0; i < count && i < page->limit; i++) {
            if (i)
                buf_append_char(&exchange->answer.body, ',');
            write_event(&exchange->answer.body, &rows[i]);
        }
        if (count > page->limit)
            list_next_number(exchange, rows[page->limit - 1].id);
        else
            list_end(exchange);
    } else {
        look_refuse(exchange, session, status);
    }
    exchange_finish(exchange);
}

/* A page of /holders, /waiters or /events: they go on behind a number. */
static bool numbered_page(struct exchange *exchange,
                          void (*work)(struct look *look, struct session *session, enum permit_status status))
{
    struct page *page = arena_alloc(&exchange->arena, sizeof *page);
    if (!page)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    if (!query_number(exchange, 0, "after", 0, INT64_MAX, 0, &page->after_number) ||
        !query_number(exchange, 1, "limit", 1, LIST_MAX_LIMIT, LIST_DEFAULT_LIMIT, &page->limit))
        return true;
    return look_submit(exchange, LOOK_LIST, work, page);
}

bool semaphore_holders(struct exchange *exchange)
{
    return numbered_page(exchange, holders_work);
}

bool semaphore_waiters(struct exchange *exchange)
{
    return numbered_page(exchange, waiters_work);
}

bool semaphore_events(struct exchange *exchange)
{
    return numbered_page(exchange, events_work);
}

/* ---- fence ---- */

struct fence_question {
    uint64_t token;
    uint64_t slot; /* 0: the semaphore as a whole */
};

static void write_fence(struct buf *out, uint64_t token, const struct fence_row *row)
{
    const char *state = row->known ? request_state_word(row->state) : "UNKNOWN";
    buf_append_text(out, "{\"token\":");
    buf_append_u64(out, token);
    buf_append_text(out, row->live ? ",\"live\":true" : ",\"live\":false");
    write_member_text(out, "state", bytes_of(state));
    if (row->known && row->end_reason != END_NONE)
        write_member_text(out, "end_reason", bytes_of(end_reason_word(row->end_reason)));
    buf_append_text(out, ",\"floor\":");
    buf_append_u64(out, row->floor);
    buf_append_char(out, '}');
}

static void fence_work(struct look *look, struct session *session, enum permit_status status)
{
    struct exchange *exchange = look_exchange(look);
    const struct fence_question *question = exchange->context;
    struct fence_row row;
    if (status == PERMIT_OK)
        status = query_fence(session, exchange->parts[0], question->token, (uint32_t)question->slot, &row);
    if (status == PERMIT_OK)
        write_fence(&exchange->answer.body, question->token, &row);
    else
        look_refuse(exchange, session, status);
    exchange_finish(exchange);
}

bool semaphore_fence(struct exchange *exchange)
{
    struct fence_question *question = arena_alloc(&exchange->arena, sizeof *question);
    if (!question)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    if (!exchange->values[0].data)
        return problem_answer(exchange, PERMIT_INVALID, "missing query parameter: token");
    if (!query_number(exchange, 0, "token", 1, INT64_MAX, 0, &question->token) ||
        !query_number(exchange, 1, "slot", 1, SLOTS_MAX_CAPACITY, 0, &question->slot))
        return true;
    return look_submit(exchange, LOOK_ROW, fence_work, question);
}
