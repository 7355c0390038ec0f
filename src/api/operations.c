/* SPDX-License-Identifier: MIT */
#include "api/operations.h"

#include "api/access.h"
#include "api/etag.h"
#include "api/json_in.h"
#include "api/json_out.h"
#include "api/not_found.h"
#include "api/problem.h"
#include "api/refusal.h"
#include "api/service.h"
#include "api/wants.h"
#include "base/clock.h"
#include "base/duration.h"
#include "base/log.h"
#include "base/uuid.h"
#include "core/name.h"

/* ---- from a body ---- */

#define KEY_EXPECTED      "a text of 1 to 255 bytes of printable ASCII without space, not . or .."
#define NONCE_EXPECTED    "a text of 1 to 64 bytes of printable ASCII"
#define PERMITS_EXPECTED  "an array of 1 to 64 objects such as {\"semaphore\", \"count\"}"
#define METADATA_EXPECTED "an object of at most 2048 bytes"
#define TTL_EXPECTED      "a duration above 0 such as \"90s\", a number of seconds, \"none\", or \"owner\""

struct acquire_form {
    struct bytes op;
    struct bytes external_id;
    struct bytes owner;
    struct bytes nonce;
    struct bytes metadata;
    struct ttl ttl;
    struct wire_list permits;
    int64_t wait_ms;
    int64_t priority;
};

/* One table for both forms: `op` is first, only in a batch; `wait` and `priority` are last, never in a batch. */
enum { ALONE_MEMBERS = 2 };
static const struct wire_member acquire_members[] = {
    /* name, type, required, value, given, min, max, choices, expected */
    {"op", WIRE_TEXT, true, offsetof(struct acquire_form, op), 0, 0, 64, NULL, "a text"},
    {"external_id", WIRE_KEY, false, offsetof(struct acquire_form, external_id), 0, 0, 0, NULL, KEY_EXPECTED},
    {"owner", WIRE_KEY, false, offsetof(struct acquire_form, owner), 0, 0, 0, NULL, KEY_EXPECTED},
    {"nonce", WIRE_NONCE, false, offsetof(struct acquire_form, nonce), 0, 0, 0, NULL, NONCE_EXPECTED},
    {"metadata", WIRE_OBJECT, false, offsetof(struct acquire_form, metadata), 0, 0, METADATA_MAX_BYTES, NULL,
     METADATA_EXPECTED},
    {"permits", WIRE_LIST, true, offsetof(struct acquire_form, permits), 0, 1, REQUEST_MAX_SEMAPHORES, NULL,
     PERMITS_EXPECTED},
    {"ttl", WIRE_HOLD, false, offsetof(struct acquire_form, ttl), 0, 1, DURATION_MAX_MS, NULL, TTL_EXPECTED},
    {"wait", WIRE_DURATION, false, offsetof(struct acquire_form, wait_ms), 0, 0, DURATION_MAX_MS, NULL,
     "a duration such as \"30s\", a number of seconds, or 0 for no wait"},
    {"priority", WIRE_INTEGER, false, offsetof(struct acquire_form, priority), 0, 0, PRIORITY_MAX, NULL,
     "a whole number from 0 to 9"},
};
static const struct wire_table acquire_alone = {acquire_members + 1, ARRAY_LENGTH(acquire_members) - 1};
static const struct wire_table acquire_batched = {acquire_members, ARRAY_LENGTH(acquire_members) - ALONE_MEMBERS};

struct key_form {
    struct bytes op;
    struct bytes external_id;
    struct bytes metadata;
    struct ttl ttl;
    bool confirmed;
};

/*
 * Slices of one table. In a batch release has the members from `confirmed` to `external_id`, confirm those from `op` to
 * `metadata`, renew those from `op` to `ttl`. Alone the key is in the path.
 */
static const struct wire_member key_members[] = {
    {"confirmed", WIRE_BOOLEAN, false, offsetof(struct key_form, confirmed), 0, 0, 0, NULL, "true or false"},
    {"op", WIRE_TEXT, true, offsetof(struct key_form, op), 0, 0, 64, NULL, "a text"},
    {"external_id", WIRE_KEY, true, offsetof(struct key_form, external_id), 0, 0, 0, NULL, KEY_EXPECTED},
    {"metadata", WIRE_OBJECT, false, offsetof(struct key_form, metadata), 0, 0, METADATA_MAX_BYTES, NULL,
     METADATA_EXPECTED},
    {"ttl", WIRE_HOLD, false, offsetof(struct key_form, ttl), 0, 1, DURATION_MAX_MS, NULL, TTL_EXPECTED},
};
static const struct wire_table release_batched = {key_members, 3};
static const struct wire_table confirm_batched = {key_members + 1, 3};
static const struct wire_table confirm_alone = {key_members + 3, 1};
static const struct wire_table renew_batched = {key_members + 1, 4};
static const struct wire_table renew_alone = {key_members + 3, 2};

enum { REASON_MAX = 1000 };
#define REASON_EXPECTED "a text of 1 to 1000 bytes without control characters"

struct reason_form {
    struct bytes reason;
};

static const struct wire_member reason_members[] = {
    {"reason", WIRE_LINE, true, offsetof(struct reason_form, reason), 0, 1, REASON_MAX, NULL, REASON_EXPECTED},
};
static const struct wire_table reason_table = {reason_members, ARRAY_LENGTH(reason_members)};

struct wire_reading reading_of(struct exchange *exchange)
{
    return (struct wire_reading){&exchange->arena, &exchange->service->message};
}

/* Sets the key of an acquire: from the body, from the header, from both if they are equal, or generated. */
static enum permit_status choose_key(struct exchange *exchange, struct bytes in_body, struct bytes in_header,
                                     struct batch_item *item)
{
    struct operation *operation = &item->operation;
    if (in_body.data && in_header.data && !bytes_equal(in_body, in_header)) {
        buf_append_text(&exchange->service->message, "external_id and Idempotency-Key differ");
        return PERMIT_MALFORMED;
    }
    struct bytes key = in_body.data ? in_body : in_header;
    item->key_generated = !key.data;
    if (item->key_generated) {
        char made[UUID_TEXT_SIZE];
        uuid_make(made);
        key = arena_copy(&exchange->arena, bytes_of(made));
    }
    if (key.data)
        operation->external_id = namespace_store(exchange, key);
    return operation->external_id.data ? PERMIT_OK : PERMIT_NO_MEMORY;
}

static enum permit_status read_acquire(struct exchange *exchange, struct bytes object, bool in_batch,
                                       struct bytes header_key, struct batch_item *item)
{
    struct acquire_form form = {0};
    struct operation *operation = &item->operation;
    const struct wire_reading reading = reading_of(exchange);
    *operation = (struct operation){.kind = OP_ACQUIRE};
    enum permit_status status = wire_read(&reading, object, in_batch ? &acquire_batched : &acquire_alone, "", &form);
    if (status == PERMIT_OK)
        status = wants_read(&reading, &(struct wants_form){.name = "permits"}, &form.permits, &operation->wants,
                            &operation->want_count);
    if (status == PERMIT_OK)
        status = access_check_wants(exchange, operation, &exchange->service->message);
    if (status == PERMIT_OK)
        status = choose_key(exchange, form.external_id, header_key, item);
    if (status != PERMIT_OK)
        return status;
    if (form.owner.length)
        operation->owner = namespace_store(exchange, form.owner);
    if (form.owner.length && !operation->owner.data)
        return PERMIT_NO_MEMORY;
    operation->nonce = form.nonce;
    operation->metadata = form.metadata;
    operation->ttl = form.ttl;
    operation->priority = (int)form.priority;
    if (!in_batch)
        call_of(exchange)->wait_ms = form.wait_ms;
    if (form.ttl.kind == TTL_OWNER && !form.owner.length) {
        buf_append_text(&exchange->service->message, "ttl \"owner\" needs an owner");
        return PERMIT_INVALID;
    }
    bool digested =
        request_digest(form.owner, operation->ttl, operation->wants, operation->want_count, operation->digest);
    return digested ? PERMIT_OK : PERMIT_NO_MEMORY;
}

enum permit_status operation_read_acquire(struct exchange *exchange, struct bytes header_key, struct batch_item *item)
{
    static const struct wire_limit limit = {REQUEST_MAX_SEMAPHORES, PERMIT_INVALID,
                                            "permits must be " PERMITS_EXPECTED};
    struct bytes object;
    size_t read;
    enum permit_status status = wire_check(exchange->body, &limit, &read, &object, &exchange->service->message);
    return status == PERMIT_OK ? read_acquire(exchange, object, false, header_key, item) : status;
}

enum permit_status operation_read_batched(struct exchange *exchange, struct bytes object, enum operation_kind kind,
                                          struct batch_item *item)
{
    static const struct wire_table *const tables[] = {
        [OP_RELEASE] = &release_batched, [OP_CONFIRM] = &confirm_batched, [OP_RENEW] = &renew_batched};
    struct key_form form = {0};
    const struct wire_reading reading = reading_of(exchange);
    if (kind == OP_ACQUIRE)
        return read_acquire(exchange, object, true, (struct bytes){0}, item);
    enum permit_status status = wire_read(&reading, object, tables[kind], "", &form);
    if (status != PERMIT_OK)
        return status;
    item->operation = (struct operation){
        .kind = kind,
        .external_id = namespace_store(exchange, form.external_id),
        .metadata = form.metadata,
        .ttl = form.ttl,
        .allow_confirmed = form.confirmed,
    };
    return item->operation.external_id.data ? PERMIT_OK : PERMIT_NO_MEMORY;
}

/* Reads a body into a form. An absent body is read as {}, so that the error names the missing member. */
static enum permit_status read_form(struct exchange *exchange, const struct wire_table *table, void *form)
{
    struct bytes body = exchange->body.length ? exchange->body : BYTES("{}");
    const struct wire_reading reading = reading_of(exchange);
    return wire_read_body(&reading, body, &wire_no_lists, table, form);
}

enum permit_status operation_read_reason(struct exchange *exchange, struct bytes *ret_reason)
{
    struct reason_form form = {0};
    enum permit_status status = read_form(exchange, &reason_table, &form);
    if (status == PERMIT_OK)
        *ret_reason = form.reason;
    return status;
}

enum permit_status operation_read_nothing(struct exchange *exchange)
{
    static const struct wire_table no_members;
    char form;
    return read_form(exchange, &no_members, &form);
}

enum permit_status operation_read_hold(struct exchange *exchange, struct operation *operation)
{
    struct key_form form = {0};
    enum permit_status status = read_form(exchange, operation->kind == OP_RENEW ? &renew_alone : &confirm_alone, &form);
    operation->ttl = form.ttl;
    operation->metadata = form.metadata;
    return status;
}

/* Reads the keys of the list into the operation. */
static enum permit_status read_keys(struct exchange *exchange, struct wire_list *list, struct operation *operation)
{
    static const struct wire_member element = {.type = WIRE_KEY, .expected = KEY_EXPECTED};
    const struct wire_reading reading = reading_of(exchange);
    size_t count = list->count;
    struct bytes *keys = arena_array(reading.arena, count, sizeof *keys);
    enum permit_status status =
        keys ? wire_read_elements(&reading, list, &element, "external_ids", keys) : PERMIT_NO_MEMORY;
    for (size_t i = 0; status == PERMIT_OK && i < count; i++) {
        keys[i] = namespace_store(exchange, keys[i]);
        if (!keys[i].data)
            return PERMIT_NO_MEMORY;
        for (size_t j = 0; j < i; j++)
            if (bytes_equal(keys[i], keys[j])) {
                buf_printf(reading.message, "external_ids[%zu] is the same as external_ids[%zu]", i, j);
                return PERMIT_INVALID;
            }
    }
    if (status == PERMIT_OK)
        *operation = (struct operation){.kind = OP_CONFIRM, .external_id = keys[0], .keys = keys, .key_count = count};
    return status;
}

enum permit_status operation_read_confirm_all(struct exchange *exchange, struct operation *operation)
{
    static const struct wire_member member = {
        "external_ids", WIRE_LIST, true, 0, 0, 1, CONFIRM_MAX_KEYS, NULL, "an array of 1 to 64 keys"};
    static const struct wire_table table = {&member, 1};
    static const struct wire_limit limit = {CONFIRM_MAX_KEYS, PERMIT_INVALID,
                                            "external_ids must be an array of 1 to 64 keys"};
    const struct wire_reading reading = reading_of(exchange);
    struct wire_list list = {.count = 0};
    enum permit_status status = wire_read_body(&reading, exchange->body, &limit, &table, &list);
    return status == PERMIT_OK ? read_keys(exchange, &list, operation) : status;
}

enum permit_status operation_check_reason(struct exchange *exchange, struct bytes reason)
{
    struct buf *message = &exchange->service->message;
    if (wire_is_line(reason, 1, REASON_MAX))
        return PERMIT_OK;
    buf_clear(message);
    buf_append_text(message,
                    reason.data ? "reason must be " REASON_EXPECTED : "reason is missing; it must be " REASON_EXPECTED);
    return PERMIT_INVALID;
}

/* ---- to an answer ---- */

enum permit_status operation_public_status(enum permit_status status)
{
    switch (status) {
    case PERMIT_NO_MEMORY:
    case PERMIT_CONFLICT:
    case PERMIT_LOCK_TIMEOUT: return PERMIT_BUSY;
    case PERMIT_DATABASE_LOST:
    case PERMIT_DATABASE_FULL:
    case PERMIT_NO_SERVER: return PERMIT_DATABASE_UNAVAILABLE;
    default: return status;
    }
}

/* Writes the request without its closing brace. */
static void write_held_begin(struct buf *out, const struct batch_item *item, const struct decision *decision)
{
    const struct viewer viewer = viewer_of(item->exchange);
    const struct query_time time = {*decision->clock, decision->now};
    const struct permit_facts facts = {.names = decision->semaphore_names,
                                       .floors = decision->floors,
                                       .available = item->operation.kind == OP_ACQUIRE ? decision->available : NULL};
    write_request_begin(out, &viewer, decision->outcome->request, &facts, &time);
    if (decision->outcome->max_hold_ms)
        write_member_i64(out, "max_hold_ms", decision->outcome->max_hold_ms);
}

/* Writes a granted acquire. The replay of an acquire with a nonce shows whether its client made the grant. */
static void write_acquired(struct buf *out, const struct batch_item *item, const struct decision *decision)
{
    const struct outcome *outcome = decision->outcome;
    write_held_begin(out, item, decision);
    write_member_bool(out, "replayed", outcome->replayed);
    if (outcome->replayed && item->operation.nonce.length)
        write_member_bool(out, "yours", bytes_equal(item->operation.nonce, outcome->request->nonce));
    buf_append_char(out, '}');
}

/* Writes when each key of a confirm of several was confirmed. */
static void write_confirmed(struct buf *out, const struct batch_item *item, const struct decision *decision)
{
    const struct viewer viewer = viewer_of(item->exchange);
    buf_append_text(out, "{\"confirmed\":[");
    for (size_t i = 0; i < item->operation.key_count; i++) {
        buf_append_text(out, i ? "," : "");
        write_key_begin(out, &viewer, item->operation.keys[i]);
        buf_append_text(out, ",\"confirmed_at\":");
        write_time(out, lease_to_wall(decision->clock, decision->outcome->confirmed_at[i]));
        buf_append_char(out, '}');
    }
    buf_append_text(out, "]}");
}

/*
 * Writes the answer to a successful operation. False: the decision lacks the required data, which is an internal error.
 */
static bool write_success(struct buf *out, const struct batch_item *item, const struct decision *decision)
{
    const struct outcome *outcome = decision->outcome;
    const struct viewer viewer = viewer_of(item->exchange);
    if (!outcome || (operation_is_administrative(item->operation.kind) ? !outcome->semaphore : !outcome->request))
        return false;
    switch (item->operation.kind) {
    case OP_ACQUIRE: write_acquired(out, item, decision); break;
    case OP_RELEASE:
    case OP_FORCE_RELEASE:
        write_held_begin(out, item, decision);
        write_member_bool(out, "already_released", outcome->already_released);
        buf_append_char(out, '}');
        break;
    case OP_RENEW:
    case OP_CONFIRM:
        if (outcome->confirmed_at) {
            write_confirmed(out, item, decision);
            break;
        }
        write_held_begin(out, item, decision);
        buf_append_char(out, '}');
        break;
    case OP_EXCHANGE:
        write_held_begin(out, item, decision);
        write_member_bool(out, "replayed", outcome->replayed);
        buf_append_char(out, '}');
        break;
    case OP_SEMAPHORE_PUT:
    case OP_SEMAPHORE_LABELS:
    case OP_SEMAPHORE_PAUSE:
    case OP_SEMAPHORE_RESUME:
    case OP_SEMAPHORE_RETIRE: write_semaphore(out, &viewer, outcome->semaphore); break;
    case OP_EXPIRE:
    case OP_SETTLE:
    case OP_LOOK:
    case OP_LEAVE:
    case OP_KIND_COUNT: return false;
    }
    return true;
}

void operation_write_decision(struct buf *out, const struct batch_item *item, const struct decision *decision,
                              enum permit_status *ret_status, int *ret_code)
{
    enum permit_status status = operation_public_status(decision->status);
    if (status == PERMIT_OK && !write_success(out, item, decision))
        status = PERMIT_INTERNAL;
    if (status != PERMIT_OK)
        refusal_write(out, item, decision, status);
    if (status == PERMIT_INTERNAL)
        log_write(LOG_ERROR, "operation failed", "request_id", item->exchange->id, "detail", decision->detail, NULL);
    *ret_status = status;
    *ret_code = status == PERMIT_OK && decision->outcome->created ? 201 : permit_status_http(status);
}

void operation_write_refusal(struct buf *out, const struct batch_item *item, enum permit_status status,
                             const char *detail)
{
    struct decision decision = {.status = status, .detail = detail && detail[0] ? detail : NULL};
    refusal_write(out, item, &decision, operation_public_status(status));
}

bool operation_refuse(struct exchange *exchange, enum permit_status status)
{
    return problem_answer(exchange, operation_public_status(status), buf_text(&exchange->service->message));
}

bool operation_reject(struct exchange *exchange, enum permit_status status, enum engine_bound bound)
{
    return problem_answer(exchange, operation_public_status(status), refusal_reason(exchange, status, bound));
}

void operation_decided(struct op *op, const struct decision *decision)
{
    struct batch_item *item = CONTAINER_OF(op, struct batch_item, op);
    struct exchange *exchange = item->exchange;
    struct answer *answer = &exchange->answer;
    enum permit_status status;
    int code;
    if (refusal_begin(item, decision))
        return;
    operation_write_decision(&answer->body, item, decision, &status, &code);
    if (status != PERMIT_OK)
        problem_head(answer, status, decision->retry_after_ms);
    else if (item->operation.kind == OP_SEMAPHORE_PUT || item->operation.kind == OP_SEMAPHORE_LABELS)
        etag_of_semaphore(answer, decision->outcome->semaphore);
    answer->http_status = code;
    item->http_status = code;
    answer->must_arrive = item_is_generated_grant(item);
    refusal_end(item);
    if (status == PERMIT_UNKNOWN_SEMAPHORE)
        not_found_finish(exchange, status);
    else
        exchange_finish(exchange);
}

bool operation_submit_to(struct exchange *exchange, void (*decided)(struct op *op, const struct decision *decision))
{
    struct call *call = call_of(exchange);
    struct batch_item *item = &call->first;
    if (call->wait_ms > 0 && !quota_take(exchange, QUOTA_WAITING, 1))
        return true;
    access_mark(exchange, &item->operation);
    item->exchange = exchange;
    call->item_count = 1;
    exchange->may_wait = call->wait_ms > 0;
    exchange->deadline += call->wait_ms * US_PER_MS;
    op_init(&item->op, &item->operation, exchange->deadline, decided);
    if (exchange->may_wait)
        item->op.wait_until = exchange->arrived_at + call->wait_ms * US_PER_MS;
    enum permit_status status = engine_submit(exchange->service->engine, &item->op);
    return status == PERMIT_OK ? false : operation_reject(exchange, status, item->op.bound);
}

bool operation_submit(struct exchange *exchange)
{
    return operation_submit_to(exchange, operation_decided);
}
