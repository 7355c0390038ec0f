/* SPDX-License-Identifier: MIT */
/* /v1/requests: acquire, get, list, renew, confirm, release, force-release. */
#include "api/access.h"
#include "api/json_out.h"
#include "api/operations.h"
#include "api/owners.h"
#include "api/problem.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/service.h"
#include "base/clock.h"
#include "core/name.h"

/*
 * Reads the Idempotency-Key header, with or without quotes; data NULL: absent. False: the exchange's answer is the
 * refusal.
 */
static bool read_header_key(struct exchange *exchange, struct bytes *ret_key)
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

/* Refuses a wait that is too long. The answer shows the longest wait, so that a client can wait in several requests. */
static bool refuse_wait(struct exchange *exchange)
{
    struct service *service = exchange->service;
    struct buf *out = &exchange->answer.body;
    buf_clear(&service->message);
    if (service->max_wait_ms == 0)
        buf_append_text(&service->message, "waiting is off at this permitd (max_wait is 0)");
    else
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
    if (!read_header_key(exchange, &header_key))
        return true;
    enum permit_status status = operation_read_acquire(exchange, header_key, &call_of(exchange)->first);
    if (status != PERMIT_OK)
        return operation_refuse(exchange, status);
    return call_of(exchange)->wait_ms > service->max_wait_ms ? refuse_wait(exchange) : operation_submit(exchange);
}

/* With ?confirmed=true also releases a confirmed request (a refund). */
bool request_release(struct exchange *exchange)
{
    bool confirmed;
    if (!param_flag(exchange, 0, "confirmed", &confirmed))
        return true;
    call_of(exchange)->first.operation =
        (struct operation){.kind = OP_RELEASE, .external_id = exchange->path_values[0], .allow_confirmed = confirmed};
    return operation_submit(exchange);
}

bool request_force_release(struct exchange *exchange)
{
    struct operation operation = {.kind = OP_FORCE_RELEASE, .external_id = exchange->path_values[0]};
    enum permit_status status = operation_read_reason(exchange, &operation.why);
    if (status != PERMIT_OK)
        return operation_refuse(exchange, status);
    call_of(exchange)->first.operation = operation;
    return operation_submit(exchange);
}

bool request_confirm(struct exchange *exchange)
{
    enum permit_status status = operation_read_nothing(exchange);
    if (status != PERMIT_OK)
        return operation_refuse(exchange, status);
    call_of(exchange)->first.operation =
        (struct operation){.kind = OP_CONFIRM, .external_id = exchange->path_values[0]};
    return operation_submit(exchange);
}

/* Without a ttl the request keeps its last one. */
bool request_renew(struct exchange *exchange)
{
    struct operation operation = {.kind = OP_RENEW, .external_id = exchange->path_values[0]};
    enum permit_status status = operation_read_renew(exchange, &operation.ttl);
    if (status != PERMIT_OK)
        return operation_refuse(exchange, status);
    call_of(exchange)->first.operation = operation;
    return operation_submit(exchange);
}

/* Writes the principal that made the request, for callers with the right operate. */
static void write_principal(struct exchange *exchange, const struct request *request)
{
    if (request->principal.length && access_has(exchange, RIGHT_OPERATE))
        write_member_text(&exchange->answer.body, "principal", request->principal);
}

static void write_queried(struct exchange *exchange, const struct request *request, const struct bytes *names,
                          const struct query_time *time, bool suspect)
{
    struct buf *out = &exchange->answer.body;
    const struct viewer viewer = viewer_of(exchange);
    write_request_begin(out, &viewer, request, names, NULL, &time->clock, time->now);
    write_overdue(out, request, &time->clock);
    write_suspect(out, request, suspect);
    write_principal(exchange, request);
    buf_append_char(out, '}');
}

static void write_waiting(struct exchange *exchange, const struct request *request,
                          const struct queue_position *positions, utc_us kept_until, const struct query_time *time)
{
    const struct viewer viewer = viewer_of(exchange);
    write_waiting_begin(&exchange->answer.body, &viewer, request, positions, kept_until, time);
    write_principal(exchange, request);
    buf_append_char(&exchange->answer.body, '}');
}

enum permit_status request_write(struct exchange *exchange, struct store *store, const struct request *request,
                                 const struct bytes *names, const struct query_time *time)
{
    struct queue_position *positions;
    const bool *suspect;
    bool kept;
    utc_us *kept_until;
    enum permit_status status;
    if (request->state == REQUEST_WAITING) {
        status = store->queries->ahead(store, request, &exchange->arena, &positions, &kept);
        if (status == PERMIT_OK)
            status = store->queries->kept_until(store, request, 1, 0, time, &exchange->arena, &kept_until);
        if (status == PERMIT_OK)
            write_waiting(exchange, request, positions, *kept_until, time);
    } else {
        status = suspects_find(exchange, store, request, 1, sizeof *request, &suspect);
        if (status == PERMIT_OK)
            write_queried(exchange, request, names, time, *suspect);
    }
    return status;
}

static enum permit_status answer_get(struct exchange *exchange, struct store *store)
{
    struct request request;
    struct bytes *names;
    struct query_time time;
    enum permit_status status =
        store->queries->request(store, exchange->path_values[0], &exchange->arena, &request, &names, &time);
    if (status == PERMIT_OK)
        engine_judge(exchange->service->engine, &time);
    if (status == PERMIT_OK && !access_covers_request(exchange, &request, names))
        status = PERMIT_UNKNOWN_REQUEST;
    return status == PERMIT_OK ? request_write(exchange, store, &request, names, &time) : status;
}

bool request_get(struct exchange *exchange)
{
    return query_submit(exchange, QUERY_ROW, answer_get, NULL);
}

/* The parameters of GET /v1/requests. */
struct list_params {
    struct request_filter filter;
    bool has_namespace; /* list only requests of the namespace of the call */
    bool has_at;
    utc_us at; /* list the requests that held the semaphore at this time */
};

enum {
    PAGE_BYTES = 1024 * 1024,        /* approximate maximum size of an answer */
    FIRST_ROWS = 10,                 /* size of the first piece, which shows how large the rows are */
    PIECE_MEMORY = 24 * 1024 * 1024, /* for the rows of a piece; the largest possible request needs 20 MiB */
    PIECE_CHUNK = 16 * 1024,
};

/* Some rows of a page, with their own memory. */
struct piece {
    struct arena arena;
    struct request *requests;
    struct bytes **names;
    size_t count;
    uint64_t next; /* `after` of the next piece; 0: no more rows */
    struct query_time time;
};

/* Reads the requests that held the semaphore at question->at, by token, newest first. */
static enum permit_status read_held_at(struct store *store, const struct list_params *question, unsigned limit,
                                       struct piece *piece)
{
    const struct held_filter filter = {
        .semaphore = question->filter.semaphore,
        .owner = question->filter.owner,
        .at = question->at,
        .before = question->filter.after,
        .limit = limit,
    };
    return store->queries->held_at(store, &filter, &piece->arena, &piece->requests, &piece->names, &piece->count,
                                   &piece->next, &piece->time);
}

static enum permit_status read_list(struct store *store, const struct list_params *question, unsigned limit,
                                    struct piece *piece)
{
    struct request_filter filter = question->filter;
    filter.limit = limit;
    return store->queries->requests(store, &filter, &piece->arena, &piece->requests, &piece->names, &piece->count,
                                    &piece->next, &piece->time);
}

/* Reads at most `limit` rows; fewer if they need more memory than a piece has. */
static enum permit_status read_piece(struct store *store, const struct list_params *question, unsigned limit,
                                     struct piece *piece)
{
    enum permit_status status;
    do {
        arena_clear(&piece->arena);
        status =
            question->has_at ? read_held_at(store, question, limit, piece) : read_list(store, question, limit, piece);
        limit /= 4;
    } while (status == PERMIT_NO_MEMORY && piece->arena.refused && limit > 0);
    return status;
}

/* Returns true if the list has this request: the caller may see it, and it is in the namespace that was asked for. */
static bool is_listed(struct exchange *exchange, const struct list_params *question, const struct request *request,
                      const struct bytes *names)
{
    const struct viewer viewer = viewer_of(exchange);
    struct bytes namespace = key_split(request->external_id).namespace;
    return viewer_sees(&viewer, request->external_id) &&
           (!question->has_namespace || bytes_equal(namespace, call_of(exchange)->namespace)) &&
           access_covers_request(exchange, request, names);
}

/* Writes the requests of a piece that are listed. *first: none has been written yet. */
static enum permit_status write_piece(struct exchange *exchange, struct store *store,
                                      const struct list_params *question, struct piece *piece, bool *first)
{
    const bool *suspects;
    utc_us *kept_until = NULL;
    enum permit_status status =
        suspects_find(exchange, store, piece->requests, piece->count, sizeof *piece->requests, &suspects);
    if (status == PERMIT_OK)
        status = store->queries->kept_until(store, piece->requests, piece->count, sizeof *piece->requests, &piece->time,
                                            &piece->arena, &kept_until);
    for (size_t i = 0; status == PERMIT_OK && i < piece->count; i++) {
        const struct request *request = &piece->requests[i];
        if (!is_listed(exchange, question, request, piece->names[i]))
            continue;
        if (!*first)
            buf_append_char(&exchange->answer.body, ',');
        *first = false;
        if (request->state == REQUEST_WAITING)
            write_waiting(exchange, request, NULL, kept_until[i], &piece->time);
        else
            write_queried(exchange, request, piece->names[i], &piece->time, suspects[i]);
    }
    return status;
}

/*
 * Returns how many more rows fit into the page if they are as large as the rows so far. Rows out of scope count as
 * rows, so that a page is a bounded amount of work.
 */
static unsigned rows_to_read(const struct buf *page, unsigned rows, unsigned left)
{
    if (rows == 0)
        return left < FIRST_ROWS ? left : FIRST_ROWS;
    size_t row = page->length / rows > 0 ? page->length / rows : 1;
    size_t fit = page->length < PAGE_BYTES ? (PAGE_BYTES - page->length) / row : 0;
    return fit < left ? (unsigned)fit : left;
}

/*
 * Reads and writes a page in pieces, because requests with many labels are large. A piece with fewer rows than asked
 * for ends the page: it was the last one, or the query has examined as many requests as it may.
 */
static enum permit_status answer_list(struct exchange *exchange, struct store *store)
{
    const struct list_params *asked = exchange->context;
    struct list_params question = *asked;
    struct buf *out = &exchange->answer.body;
    enum permit_status status = PERMIT_OK;
    struct piece piece = {.next = 1};
    bool first = true;
    unsigned rows = 0;
    unsigned limit = 0;
    arena_init(&piece.arena, PIECE_CHUNK, PIECE_MEMORY);
    list_begin(exchange, "requests");
    while (status == PERMIT_OK && piece.next && piece.count == limit) {
        limit = rows_to_read(out, rows, asked->filter.limit - rows);
        if (limit == 0)
            break;
        status = read_piece(store, &question, limit, &piece);
        if (status == PERMIT_OK)
            engine_judge(exchange->service->engine, &piece.time);
        if (status == PERMIT_OK)
            status = write_piece(exchange, store, &question, &piece, &first);
        rows += (unsigned)piece.count;
        question.filter.after = piece.next;
    }
    arena_release(&piece.arena);
    if (question.filter.after)
        list_end_with_next_number(exchange, question.filter.after);
    else
        list_end(exchange);
    return status;
}

static bool read_state(struct exchange *exchange, struct bytes word, int *ret_state)
{
    *ret_state = 0;
    if (bytes_equal(word, BYTES("ACQUIRED")))
        *ret_state = REQUEST_ACQUIRED;
    else if (bytes_equal(word, BYTES("RELEASED")))
        *ret_state = REQUEST_RELEASED;
    else if (bytes_equal(word, BYTES("WAITING")))
        *ret_state = REQUEST_WAITING;
    else if (word.data)
        return !problem_answer(exchange, PERMIT_INVALID, "state must be WAITING, ACQUIRED or RELEASED");
    return true;
}

static bool read_at(struct exchange *exchange, struct bytes at, struct list_params *question)
{
    question->has_at = at.data != NULL;
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
    struct bytes owner = exchange->query_values[0];
    struct bytes semaphore = exchange->query_values[1];
    struct list_params *question = arena_alloc(&exchange->arena, sizeof *question);
    uint64_t after, limit;
    if (!question)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    if (owner.data && !name_is_key(owner))
        return problem_answer(exchange, PERMIT_INVALID, "owner must be printable ASCII without space");
    if (semaphore.data && !name_is_semaphore(semaphore))
        return problem_answer(exchange, PERMIT_INVALID, "semaphore must be a semaphore's name");
    if (semaphore.data &&
        access_check_semaphore(exchange, RIGHT_LOOK, semaphore, &exchange->service->message) != PERMIT_OK)
        return problem_answer(exchange, PERMIT_FORBIDDEN, buf_text(&exchange->service->message));
    if (owner.data)
        question->filter.owner = namespace_store(exchange, owner);
    if (owner.data && !question->filter.owner.data)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    question->has_namespace = exchange->query_values[6].data != NULL;
    question->filter.semaphore = semaphore;
    if (!read_state(exchange, exchange->query_values[2], &question->filter.state) ||
        !read_at(exchange, exchange->query_values[3], question) ||
        !param_number(exchange, 4, "after", 0, INT64_MAX, 0, &after) ||
        !param_number(exchange, 5, "limit", 1, LIST_MAX_LIMIT, LIST_DEFAULT_LIMIT, &limit))
        return true;
    question->filter.after = after;
    question->filter.limit = (unsigned)limit;
    return query_submit(exchange, QUERY_LIST, answer_list, question);
}
