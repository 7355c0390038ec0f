/* SPDX-License-Identifier: MIT */
/* /v1/requests: acquire, get, list, renew, confirm, release, force-release. */
#include "api/access.h"
#include "api/json_out.h"
#include "api/lists.h"
#include "api/operations.h"
#include "api/owners.h"
#include "api/problem.h"
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
    if (service->settings->max_wait_ms == 0)
        buf_append_text(&service->message, "waiting is off at this permitd (max_wait is 0)");
    else
        buf_printf(
            &service->message,
            "wait must be at most %lld ms; to wait longer, repeat the request with the same key (it keeps its place)",
            (long long)service->settings->max_wait_ms);
    problem_head(&exchange->answer, PERMIT_INVALID, 0);
    problem_begin(out, PERMIT_INVALID, buf_text(&service->message));
    write_member_i64(out, "max_wait_ms", service->settings->max_wait_ms);
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
    return call_of(exchange)->wait_ms > service->settings->max_wait_ms ? refuse_wait(exchange)
                                                                       : operation_submit(exchange);
}

/* With ?confirmed=true also releases a confirmed request (a refund). */
bool request_release(struct exchange *exchange)
{
    bool confirmed;
    if (!param_flag(exchange, "confirmed", &confirmed))
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

static bool change_hold(struct exchange *exchange, enum operation_kind kind)
{
    struct operation *operation = &call_of(exchange)->first.operation;
    *operation = (struct operation){.kind = kind, .external_id = exchange->path_values[0]};
    enum permit_status status = operation_read_hold(exchange, operation);
    return status == PERMIT_OK ? operation_submit(exchange) : operation_refuse(exchange, status);
}

bool request_confirm(struct exchange *exchange)
{
    return change_hold(exchange, OP_CONFIRM);
}

/* Confirms several requests, all or none. */
bool request_confirm_all(struct exchange *exchange)
{
    struct operation *operation = &call_of(exchange)->first.operation;
    enum permit_status status = operation_read_confirm_all(exchange, operation);
    if (!quota_take(exchange, QUOTA_RATE, status == PERMIT_OK ? (int64_t)operation->key_count : 1))
        return true;
    return status == PERMIT_OK ? operation_submit(exchange) : operation_refuse(exchange, status);
}

bool request_renew(struct exchange *exchange)
{
    return change_hold(exchange, OP_RENEW);
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
    write_request_begin(out, &viewer, request, &(struct permit_facts){.names = names}, time);
    write_metadata(out, &viewer, request->external_id, request->metadata);
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
    write_metadata(&exchange->answer.body, &viewer, request->external_id, request->metadata);
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

/* ---- the list ---- */

/* Reads at most the limit; fewer if the rows need more memory than a piece has. */
enum permit_status requests_read(struct listing *listing, struct store *store)
{
    struct exchange *exchange = listing->exchange;
    const struct request_filter *filter = &listing->requests.filter;
    struct page *page = &listing->page;
    const unsigned limit = page->limit;
    utc_us *kept_until;
    enum permit_status status;
    do {
        arena_clear(page->arena);
        status = listing->requests.has_at ? store->queries->held_at(store, filter, page)
                                          : store->queries->requests(store, filter, page);
        page->limit /= 4;
    } while (status == PERMIT_NO_MEMORY && page->arena->refused && page->limit > 0);
    page->limit = limit;
    if (status != PERMIT_OK)
        return status;
    engine_judge(exchange->service->engine, &page->time);
    const struct request *requests = page->count ? &page->requests->request : NULL;
    status = suspects_find(exchange, store, requests, page->count, sizeof *page->requests, &listing->suspects);
    if (status == PERMIT_OK)
        status = store->queries->kept_until(store, requests, page->count, sizeof *page->requests, &page->time,
                                            page->arena, &kept_until);
    if (status == PERMIT_OK)
        listing->kept_until = kept_until;
    return status;
}

/* Returns true if the caller may see the request, and it is in the namespace that was asked for. */
bool requests_shows(const struct listing *listing, size_t index)
{
    struct exchange *exchange = listing->exchange;
    const struct listed_request *row = &listing->page.requests[index];
    const struct viewer viewer = viewer_of(exchange);
    struct bytes namespace = key_split(row->request.external_id).namespace;
    return viewer_sees(&viewer, row->request.external_id) &&
           (!listing->requests.has_namespace || bytes_equal(namespace, call_of(exchange)->namespace)) &&
           access_covers_request(exchange, &row->request, row->names);
}

void requests_write(struct listing *listing, size_t index)
{
    const struct listed_request *row = &listing->page.requests[index];
    if (row->request.state == REQUEST_WAITING)
        write_waiting(listing->exchange, &row->request, NULL, listing->kept_until[index], &listing->page.time);
    else
        write_queried(listing->exchange, &row->request, row->names, &listing->page.time, listing->suspects[index]);
}

static bool read_state(struct exchange *exchange, struct bytes word, int *ret_state)
{
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

bool requests_params(struct listing *listing)
{
    struct exchange *exchange = listing->exchange;
    struct request_filter *filter = &listing->requests.filter;
    struct bytes owner = query_param(exchange, "owner");
    struct bytes semaphore = query_param(exchange, "semaphore");
    struct bytes at = query_param(exchange, "at");
    if (owner.data && !name_is_key(owner))
        return !problem_answer(exchange, PERMIT_INVALID, "owner must be printable ASCII without space");
    if (semaphore.data && !name_is_semaphore(semaphore))
        return !problem_answer(exchange, PERMIT_INVALID, "semaphore must be a semaphore's name");
    if (semaphore.data &&
        access_check_semaphore(exchange, RIGHT_LOOK, semaphore, &exchange->service->message) != PERMIT_OK)
        return !problem_answer(exchange, PERMIT_FORBIDDEN, buf_text(&exchange->service->message));
    if (owner.data)
        filter->owner = namespace_store(exchange, owner);
    if (owner.data && !filter->owner.data)
        return !problem_answer(exchange, PERMIT_BUSY, NULL);
    filter->semaphore = semaphore;
    listing->requests.has_namespace = query_param(exchange, "namespace").data != NULL;
    listing->requests.has_at = at.data != NULL;
    if (!read_state(exchange, query_param(exchange, "state"), &filter->state))
        return false;
    if (at.data && !clock_parse_rfc3339(at, &filter->at))
        return !problem_answer(exchange, PERMIT_INVALID, "at must be a time such as 2026-11-21T02:14:00Z");
    if (at.data && !semaphore.data)
        return !problem_answer(exchange, PERMIT_INVALID, "at requires semaphore");
    if (at.data && filter->state)
        return !problem_answer(exchange, PERMIT_INVALID, "at cannot be combined with state");
    return true;
}
