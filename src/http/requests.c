/* SPDX-License-Identifier: MIT */
/* /v1/requests: acquire, look, list, renew, confirm, release, force-release. */
#include "base/clock.h"
#include "core/name.h"
#include "http/look.h"
#include "http/operations.h"
#include "http/owners.h"
#include "http/problem.h"
#include "http/routes.h"
#include "http/service.h"
#include "http/write.h"

/* Reads the Idempotency-Key header, bare or quoted; data NULL if there is none. False: an answer says what is wrong. */
static bool take_header_key(struct exchange *exchange, struct bytes *ret_key)
{
    unsigned times;
    struct bytes key = bytes_of(exchange_header(exchange, "Idempotency-Key", &times));
    *ret_key = (struct bytes){0};
    if (times == 0)
        return true;
    if (times > 1)
        return !problem_answer(exchange, PERMIT_MALFORMED, "duplicate Idempotency-Key header");
    if (key.length >= 2 && key.data[0] == '"' && key.data[key.length - 1] == '"')
        key = (struct bytes){key.data + 1, key.length - 2};
    if (!name_is_key(key))
        return !problem_answer(exchange, PERMIT_INVALID,
                               "Idempotency-Key must be 1 to 255 bytes of printable ASCII without space");
    *ret_key = arena_copy(&exchange->arena, key);
    return ret_key->data || !problem_answer(exchange, PERMIT_BUSY, NULL);
}

/* With the longest one, so that a client can wait in pieces. */
static bool refuse_wait(struct exchange *exchange)
{
    struct service *service = exchange->service;
    struct buf *out = &exchange->answer.body;
    buf_clear(&service->message);
    buf_printf(
        &service->message,
        "wait must be at most %lld ms; to wait longer, repeat the request with the same key (it keeps its place)",
        (long long)service->max_wait_ms);
    problem_head(&exchange->answer, PERMIT_INVALID, 0);
    problem_begin(out, PERMIT_INVALID, buf_text(&service->message));
    write_member_i64(out, "max_wait_ms", service->max_wait_ms);
    problem_end(out);
    return true;
}

bool request_acquire(struct exchange *exchange)
{
    struct service *service = exchange->service;
    struct bytes header_key;
    if (!take_header_key(exchange, &header_key))
        return true;
    enum permit_status status = operation_read_acquire(exchange, header_key, &exchange->first);
    if (status != PERMIT_OK)
        return problem_answer(exchange, operation_public_status(status), buf_text(&service->message));
    return exchange->wait_ms > service->max_wait_ms ? refuse_wait(exchange) : operation_submit(exchange);
}

/* ?confirmed=true: also if it was confirmed (a refund). */
bool request_release(struct exchange *exchange)
{
    bool confirmed;
    if (!query_flag(exchange, 0, "confirmed", &confirmed))
        return true;
    exchange->first.operation =
        (struct operation){.kind = OP_RELEASE, .external_id = exchange->parts[0], .of_confirmed = confirmed};
    return operation_submit(exchange);
}

bool request_force_release(struct exchange *exchange)
{
    struct operation operation = {.kind = OP_FORCE_RELEASE, .external_id = exchange->parts[0]};
    enum permit_status status = operation_read_reason(exchange, &operation.why);
    if (status != PERMIT_OK)
        return problem_answer(exchange, operation_public_status(status), buf_text(&exchange->service->message));
    exchange->first.operation = operation;
    return operation_submit(exchange);
}

bool request_confirm(struct exchange *exchange)
{
    enum permit_status status = operation_read_nothing(exchange);
    if (status != PERMIT_OK)
        return problem_answer(exchange, operation_public_status(status), buf_text(&exchange->service->message));
    exchange->first.operation = (struct operation){.kind = OP_CONFIRM, .external_id = exchange->parts[0]};
    return operation_submit(exchange);
}

/* Without a ttl the request gets the one it had. */
bool request_renew(struct exchange *exchange)
{
    struct operation operation = {.kind = OP_RENEW, .external_id = exchange->parts[0]};
    enum permit_status status = operation_read_renew(exchange, &operation.ttl);
    if (status != PERMIT_OK)
        return problem_answer(exchange, operation_public_status(status), buf_text(&exchange->service->message));
    exchange->first.operation = operation;
    return operation_submit(exchange);
}

static void write_looked_up(struct buf *out, const struct request *request, const struct bytes *names,
                            const struct query_time *time, bool suspect)
{
    write_request_begin(out, request, names, NULL, &time->clock, time->now);
    write_overdue(out, request, &time->clock, time->now);
    write_suspect(out, request, suspect);
    buf_append_char(out, '}');
}

enum permit_status request_show(struct exchange *exchange, struct session *session)
{
    struct request request;
    struct bytes *names;
    struct query_time time;
    const bool *suspect;
    enum permit_status status = query_request(session, exchange->parts[0], &exchange->arena, &request, &names, &time);
    if (status == PERMIT_OK)
        status = suspects_find(exchange, session, &request, 1, sizeof request, &suspect);
    if (status == PERMIT_OK)
        write_looked_up(&exchange->answer.body, &request, names, &time, *suspect);
    return status;
}

static void get_work(struct look *look, struct session *session, enum permit_status status)
{
    struct exchange *exchange = look_exchange(look);
    if (status == PERMIT_OK)
        status = request_show(exchange, session);
    if (status != PERMIT_OK)
        look_refuse(exchange, session, status);
    exchange_finish(exchange);
}

bool request_get(struct exchange *exchange)
{
    return look_submit(exchange, LOOK_ROW, get_work, NULL);
}

/* What GET /v1/requests asks for. */
struct list_question {
    struct request_filter filter;
    bool at_given;
    utc_us at; /* who held the semaphore then */
};

enum {
    PAGE_BYTES = 1024 * 1024,        /* of an answer; about so many a page has at most */
    FIRST_ROWS = 10,                 /* read at first, to see how large they are */
    PIECE_MEMORY = 24 * 1024 * 1024, /* for rows; the largest request that there can be needs 20 MiB */
    PIECE_CHUNK = 16 * 1024,
};

/* Some rows of a page, in memory of their own. */
struct piece {
    struct arena arena;
    struct request *requests;
    struct bytes **names;
    size_t count;
    uint64_t next; /* where the next piece goes on; 0: nowhere */
    struct query_time time;
};

/* By token, the newest first. */
static enum permit_status read_held_at(struct session *session, const struct list_question *question, unsigned limit,
                                       struct piece *piece)
{
    const struct held_filter filter = {
        .semaphore = question->filter.semaphore,
        .owner = question->filter.owner,
        .at = question->at,
        .before = question->filter.after,
        .limit = limit,
    };
    return query_held_at(session, &filter, &piece->arena, &piece->requests, &piece->names, &piece->count, &piece->next,
                         &piece->time);
}

static enum permit_status read_list(struct session *session, const struct list_question *question, unsigned limit,
                                    struct piece *piece)
{
    struct request_filter filter = question->filter;
    filter.limit = limit;
    return query_requests(session, &filter, &piece->arena, &piece->requests, &piece->names, &piece->count, &piece->next,
                          &piece->time);
}

/* At most `limit` rows, and fewer where so many need more memory than a piece has. */
static enum permit_status read_piece(struct session *session, const struct list_question *question, unsigned limit,
                                     struct piece *piece)
{
    enum permit_status status;
    do {
        arena_clear(&piece->arena);
        status = question->at_given ? read_held_at(session, question, limit, piece)
                                    : read_list(session, question, limit, piece);
        limit /= 4;
    } while (status == PERMIT_NO_MEMORY && piece->arena.refused && limit > 0);
    return status;
}

static enum permit_status write_piece(struct exchange *exchange, struct session *session, const struct piece *piece,
                                      bool first)
{
    const bool *suspects;
    struct buf *out = &exchange->answer.body;
    enum permit_status status =
        suspects_find(exchange, session, piece->requests, piece->count, sizeof *piece->requests, &suspects);
    for (size_t i = 0; status == PERMIT_OK && i < piece->count; i++) {
        if (i || !first)
            buf_append_char(out, ',');
        write_looked_up(out, &piece->requests[i], piece->names[i], &piece->time, suspects[i]);
    }
    return status;
}

/* How many more rows have room in the page, if they are as large as those before. */
static unsigned rows_that_fit(const struct buf *page, unsigned rows, unsigned left)
{
    if (rows == 0)
        return left < FIRST_ROWS ? left : FIRST_ROWS;
    size_t fit = page->length < PAGE_BYTES ? (PAGE_BYTES - page->length) / (page->length / rows) : 0;
    return fit < left ? (unsigned)fit : left;
}

/*
 * A page is read and written in pieces: requests with many labels are large. A piece that is not full ends the page:
 * it was the last, or so many requests were looked at for it that a page may not look at more.
 */
static void list_work(struct look *look, struct session *session, enum permit_status status)
{
    struct exchange *exchange = look_exchange(look);
    const struct list_question *asked = exchange->context;
    struct list_question question = *asked;
    struct buf *out = &exchange->answer.body;
    struct piece piece = {.next = 1};
    unsigned rows = 0;
    unsigned limit = 0;
    arena_init(&piece.arena, PIECE_CHUNK, PIECE_MEMORY);
    list_begin(exchange, "requests");
    while (status == PERMIT_OK && piece.next && piece.count == limit) {
        limit = rows_that_fit(out, rows, asked->filter.limit - rows);
        if (limit == 0)
            break;
        status = read_piece(session, &question, limit, &piece);
        if (status == PERMIT_OK)
            status = write_piece(exchange, session, &piece, rows == 0);
        rows += (unsigned)piece.count;
        question.filter.after = piece.next;
    }
    arena_release(&piece.arena);
    if (status != PERMIT_OK)
        look_refuse(exchange, session, status);
    else if (question.filter.after)
        list_next_number(exchange, question.filter.after);
    else
        list_end(exchange);
    exchange_finish(exchange);
}

static bool take_state(struct exchange *exchange, struct bytes word, int *ret_state)
{
    *ret_state = 0;
    if (bytes_equal(word, BYTES("ACQUIRED")))
        *ret_state = REQUEST_ACQUIRED;
    else if (bytes_equal(word, BYTES("RELEASED")))
        *ret_state = REQUEST_RELEASED;
    else if (word.data)
        return !problem_answer(exchange, PERMIT_INVALID, "state must be ACQUIRED or RELEASED");
    return true;
}

static bool take_at(struct exchange *exchange, struct bytes at, struct list_question *question)
{
    question->at_given = at.data != NULL;
    if (!at.data)
        return true;
    if (!clock_parse_rfc3339(at, &question->at))
        return !problem_answer(exchange, PERMIT_INVALID, "at must be a time such as 2026-11-21T02:14:00Z");
    if (!question->filter.semaphore.data)
        return !problem_answer(exchange, PERMIT_INVALID, "at requires semaphore");
    if (question->filter.state)
        return !problem_answer(exchange, PERMIT_INVALID, "at cannot be combined with state");
    return true;
}

bool request_list(struct exchange *exchange)
{
    struct bytes owner = exchange->values[0];
    struct bytes semaphore = exchange->values[1];
    struct list_question *question = arena_alloc(&exchange->arena, sizeof *question);
    uint64_t after, limit;
    if (!question)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    if (owner.data && !name_is_key(owner))
        return problem_answer(exchange, PERMIT_INVALID, "owner must be printable ASCII without space");
    if (semaphore.data && !name_is_semaphore(semaphore))
        return problem_answer(exchange, PERMIT_INVALID, "semaphore must be a semaphore's name");
    question->filter.owner = owner;
    question->filter.semaphore = semaphore;
    if (!take_state(exchange, exchange->values[2], &question->filter.state) ||
        !take_at(exchange, exchange->values[3], question) ||
        !query_number(exchange, 4, "after", 0, INT64_MAX, 0, &after) ||
        !query_number(exchange, 5, "limit", 1, LIST_MAX_LIMIT, LIST_DEFAULT_LIMIT, &limit))
        return true;
    question->filter.after = after;
    question->filter.limit = (unsigned)limit;
    return look_submit(exchange, LOOK_LIST, list_work, question);
}
