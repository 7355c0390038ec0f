/* SPDX-License-Identifier: MIT */
#include "api/operations.h"

#include <stdio.h>

#include "api/access.h"
#include "api/json_in.h"
#include "api/json_out.h"
#include "api/not_found.h"
#include "api/problem.h"
#include "api/service.h"
#include "api/wants.h"
#include "base/clock.h"
#include "base/duration.h"
#include "base/log.h"
#include "base/uuid.h"
#include "core/name.h"

/* ---- from a body ---- */

#define KEY_EXPECTED     "a text of 1 to 255 bytes of printable ASCII without space, not . or .."
#define NONCE_EXPECTED   "a text of 1 to 64 bytes of printable ASCII"
#define PERMITS_EXPECTED "an array of 1 to 64 objects such as {\"semaphore\", \"count\"}"
#define TTL_EXPECTED     "a duration above 0 such as \"90s\", a number of seconds, \"none\", or \"owner\""

struct acquire_form {
    struct bytes op;
    struct bytes external_id;
    struct bytes owner;
    struct bytes nonce;
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
    struct ttl ttl;
    bool confirmed;
};

/* Slices of one table: release has the first three members, confirm the middle two, renew the last three. */
static const struct wire_member key_members[] = {
    {"confirmed", WIRE_BOOLEAN, false, offsetof(struct key_form, confirmed), 0, 0, 0, NULL, "true or false"},
    {"op", WIRE_TEXT, true, offsetof(struct key_form, op), 0, 0, 64, NULL, "a text"},
    {"external_id", WIRE_KEY, true, offsetof(struct key_form, external_id), 0, 0, 0, NULL, KEY_EXPECTED},
    {"ttl", WIRE_HOLD, false, offsetof(struct key_form, ttl), 0, 1, DURATION_MAX_MS, NULL, TTL_EXPECTED},
};
static const struct wire_table release_batched = {key_members, 3};
static const struct wire_table confirm_batched = {key_members + 1, 2};
static const struct wire_table renew_batched = {key_members + 1, 3};
static const struct wire_table renew_alone = {key_members + 3, 1};

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
        status = wants_read(&reading, &form.permits, operation);
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

enum permit_status operation_read_batched_acquire(struct exchange *exchange, struct bytes object,
                                                  struct batch_item *item)
{
    return read_acquire(exchange, object, true, (struct bytes){0}, item);
}

static enum permit_status read_keyed(struct exchange *exchange, struct bytes object, const struct wire_table *table,
                                     enum operation_kind kind, struct batch_item *item)
{
    struct key_form form = {0};
    const struct wire_reading reading = reading_of(exchange);
    enum permit_status status = wire_read(&reading, object, table, "", &form);
    if (status != PERMIT_OK)
        return status;
    item->operation = (struct operation){
        .kind = kind,
        .external_id = namespace_store(exchange, form.external_id),
        .ttl = form.ttl,
        .allow_confirmed = form.confirmed,
    };
    return item->operation.external_id.data ? PERMIT_OK : PERMIT_NO_MEMORY;
}

enum permit_status operation_read_batched_confirm(struct exchange *exchange, struct bytes object,
                                                  struct batch_item *item)
{
    return read_keyed(exchange, object, &confirm_batched, OP_CONFIRM, item);
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

enum permit_status operation_read_renew(struct exchange *exchange, struct ttl *ret_ttl)
{
    struct key_form form = {0};
    enum permit_status status = read_form(exchange, &renew_alone, &form);
    if (status == PERMIT_OK)
        *ret_ttl = form.ttl;
    return status;
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

enum permit_status operation_read_batched_release(struct exchange *exchange, struct bytes object,
                                                  struct batch_item *item)
{
    return read_keyed(exchange, object, &release_batched, OP_RELEASE, item);
}

enum permit_status operation_read_batched_renew(struct exchange *exchange, struct bytes object, struct batch_item *item)
{
    return read_keyed(exchange, object, &renew_batched, OP_RENEW, item);
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

static void write_ended(struct buf *out, const struct decision *decision)
{
    const struct request *request = decision->outcome ? decision->outcome->request : NULL;
    if (!request || request->state != REQUEST_RELEASED)
        return;
    write_member_text(out, "end_reason", bytes_of(end_reason_word(request->end_reason)));
    buf_append_text(out, ",\"ended_at\":");
    write_time(out, lease_to_wall(decision->clock, request->ended_at));
}

enum {
    SENTENCE_MAX = 1024,
    BATCH_NAMES_MAX = 256 * 1024, /* bytes of a batch's answers; above it, refusals do not list holders and waiters */
};

/*
 * Writes "hall: A1 is held until 2026-11-21T12:00:03Z, and 2 more of 5 asked": the first held slot of those requested.
 */
static void held_slot_sentence(const struct blocking *first, const struct lease_clock *clock, struct buf *out)
{
    const struct taken_slot *slot = &first->taken[0];
    buf_printf(out, "%.*s: ", (int)first->semaphore.length, first->semaphore.data);
    if (slot->label.length)
        buf_append(out, slot->label.data, slot->label.length);
    else
        buf_printf(out, "slot %u", slot->number);
    if (slot->expires_at == NEVER) {
        buf_append_text(out, " is held until it is released");
    } else {
        char text[RFC3339_SIZE];
        clock_format_rfc3339(lease_to_wall(clock, slot->expires_at), text);
        buf_printf(out, " is held until %.*sZ", (int)strlen("2026-11-21T12:00:03"), text);
    }
    if (first->taken_count > 1)
        buf_printf(out, ", and %zu more of %lld asked", first->taken_count - 1, (long long)first->requested);
}

/* Writes "hall: no 3 adjacent free slots among the 10 named": enough units are free, but not of the requested slots. */
static void free_slots_sentence(const struct want *want, struct buf *out)
{
    bool plural = want->count > 1;
    buf_printf(out, "%.*s: no %lld %sfree slot%s", (int)want->semaphore.length, want->semaphore.data,
               (long long)want->count, want->adjacent && plural ? "adjacent " : "", plural ? "s" : "");
    if (want->choice == CHOOSE_ANY_OF)
        buf_printf(out, " among the %zu named", want->named_count);
}

/*
 * Describes the first semaphore that lacks units: "backups: 2 of 2 in use, 1 asked, 3 wait before it", "backups: 2 of 2
 * in use, 1 asked, held longest by job-42", or, if units are free but earlier waiters have priority, "backups: 1 of 2
 * in use, 1 asked, but 3 wait before it".
 */
static void units_sentence(const struct viewer *viewer, const struct blocking *first, struct buf *out)
{
    bool others_first = first->capacity - first->in_use >= first->requested;
    buf_printf(out, "%.*s: %lld of %lld in use, %lld asked", (int)first->semaphore.length, first->semaphore.data,
               (long long)first->in_use, (long long)first->capacity, (long long)first->requested);
    if (first->ahead)
        buf_printf(out, ",%s %zu wait%s before it", others_first ? " but" : "", first->ahead,
                   first->ahead == 1 ? "s" : "");
    else if (others_first)
        buf_append_text(out, ", but others wait before it");
    if (first->holder_count && !others_first && viewer_sees(viewer, first->holders[0].external_id)) {
        struct bytes key = key_split(first->holders[0].external_id).key;
        buf_printf(out, ", held longest by %.*s", (int)key.length, key.data);
    }
}

static const struct want *want_of(const struct operation *operation, struct bytes semaphore)
{
    for (size_t i = 0; i < operation->want_count; i++)
        if (bytes_equal(operation->wants[i].semaphore, semaphore))
            return &operation->wants[i];
    return NULL;
}

static void no_capacity_sentence(const struct batch_item *item, const struct decision *decision, struct buf *out)
{
    const struct viewer viewer = viewer_of(item->exchange);
    const struct blocking *first = &decision->blocking[0];
    const struct want *want = want_of(&item->operation, first->semaphore);
    bool has_units = first->capacity - first->in_use >= first->requested;
    if (first->taken_count)
        held_slot_sentence(first, decision->clock, out);
    else if (want && want_is_specific(want) && want->choice != CHOOSE_NAMED && has_units && !first->ahead)
        free_slots_sentence(want, out);
    else
        units_sentence(&viewer, first, out);
}

/* Writes the detail of a refusal; writes nothing if the status's title is enough. */
static void refusal_sentence(const struct batch_item *item, const struct decision *decision, enum permit_status status,
                             struct buf *out)
{
    const struct outcome *outcome = decision->outcome;
    struct bytes key = key_split(item->operation.external_id).key;
    struct bytes owner = key_split(item->operation.owner).key;
    if (status == PERMIT_NO_CAPACITY && decision->blocking_count)
        no_capacity_sentence(item, decision, out);
    else if (status == PERMIT_ENDED && outcome && outcome->request && outcome->request->state == REQUEST_RELEASED)
        buf_printf(out, "%.*s has ended (%s)%s", (int)key.length, key.data,
                   end_reason_word(outcome->request->end_reason),
                   item->operation.kind == OP_ACQUIRE ? "; use a new key" : "");
    else if (status == PERMIT_UNKNOWN_REQUEST && key.length)
        buf_printf(out, "there is no request \"%.*s\"", (int)key.length, key.data);
    else if (status == PERMIT_UNKNOWN_OWNER)
        buf_printf(out, "the owner \"%.*s\" has no valid heartbeat", (int)owner.length, owner.data);
}

static void write_refusal(struct buf *out, const struct batch_item *item, const struct decision *decision,
                          enum permit_status status)
{
    const struct viewer viewer = viewer_of(item->exchange);
    const char *detail = decision->detail;
    if (!detail && decision->outcome)
        detail = decision->outcome->detail;
    struct buf sentence;
    buf_init(&sentence, SENTENCE_MAX);
    if (!detail)
        refusal_sentence(item, decision, status, &sentence);
    problem_begin(out, status, sentence.length ? buf_text(&sentence) : detail);
    buf_release(&sentence);
    if (status == PERMIT_ENDED)
        write_ended(out, decision);
    if (decision->outcome && decision->outcome->max_ttl_ms)
        write_member_i64(out, "max_ttl_ms", decision->outcome->max_ttl_ms);
    if (status == PERMIT_NO_CAPACITY && !(call_of(item->exchange)->batch && out->length > BATCH_NAMES_MAX))
        write_blocking(out, &viewer, decision->blocking, decision->blocking_count, decision->clock, decision->now);
    if (status == PERMIT_OUTCOME_UNKNOWN && item->operation.external_id.data)
        write_member_text(out, "external_id", key_split(item->operation.external_id).key);
    if (status == PERMIT_INTERNAL)
        write_member_text(out, "request_id", bytes_of(item->exchange->id));
    problem_retry_after(out, problem_retry_ms(status, decision->retry_after_ms));
    problem_end(out);
}

/* Writes the request without its closing brace. */
static void write_held_begin(struct buf *out, const struct batch_item *item, const struct decision *decision)
{
    const struct viewer viewer = viewer_of(item->exchange);
    write_request_begin(out, &viewer, decision->outcome->request, decision->semaphore_names, decision->floors,
                        decision->clock, decision->now);
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

/*
 * Writes the answer to a successful operation. False: the decision lacks the required data, which is an internal error.
 */
static bool write_success(struct buf *out, const struct batch_item *item, const struct decision *decision)
{
    const struct outcome *outcome = decision->outcome;
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
        write_held_begin(out, item, decision);
        buf_append_char(out, '}');
        break;
    case OP_SEMAPHORE_PUT:
    case OP_SEMAPHORE_LABELS:
    case OP_SEMAPHORE_PAUSE:
    case OP_SEMAPHORE_RESUME:
    case OP_SEMAPHORE_RETIRE: write_semaphore(out, outcome->semaphore); break;
    case OP_EXPIRE:
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
        write_refusal(out, item, decision, status);
    if (status == PERMIT_INTERNAL)
        log_write(LOG_ERROR, "operation failed", "request_id", item->exchange->id, "detail", decision->detail, NULL);
    *ret_status = status;
    *ret_code = status == PERMIT_OK && decision->outcome->created ? 201 : permit_status_http(status);
}

void operation_write_refusal(struct buf *out, const struct batch_item *item, enum permit_status status,
                             const char *detail)
{
    struct decision decision = {.status = status, .detail = detail && detail[0] ? detail : NULL};
    write_refusal(out, item, &decision, operation_public_status(status));
}

bool operation_refuse(struct exchange *exchange, enum permit_status status)
{
    return problem_answer(exchange, operation_public_status(status), buf_text(&exchange->service->message));
}

const char *operation_reject_reason(struct exchange *exchange, enum permit_status status, enum engine_bound bound)
{
    char sentence[STORE_MESSAGE_SIZE] = "";
    struct engine *engine = exchange->service->engine;
    struct buf *message = &exchange->service->message;
    if (status == PERMIT_TOO_MANY)
        engine_bound_sentence(engine, bound, sentence);
    else if (status != PERMIT_DATABASE_UNAVAILABLE || !engine_refusal(engine, sentence))
        return NULL;
    buf_clear(message);
    buf_append_text(message, sentence);
    return buf_text(message);
}

bool operation_reject(struct exchange *exchange, enum permit_status status, enum engine_bound bound)
{
    return problem_answer(exchange, operation_public_status(status), operation_reject_reason(exchange, status, bound));
}

void operation_decided(struct op *op, const struct decision *decision)
{
    struct batch_item *item = CONTAINER_OF(op, struct batch_item, op);
    struct exchange *exchange = item->exchange;
    struct answer *answer = &exchange->answer;
    enum permit_status status;
    int code;
    operation_write_decision(&answer->body, item, decision, &status, &code);
    if (status != PERMIT_OK)
        problem_head(answer, status, decision->retry_after_ms);
    else if (item->operation.kind == OP_SEMAPHORE_PUT || item->operation.kind == OP_SEMAPHORE_LABELS)
        snprintf(answer->etag, sizeof answer->etag, "\"%llu\"",
                 (unsigned long long)decision->outcome->semaphore->config_version);
    answer->http_status = code;
    item->http_status = code;
    answer->must_arrive = item_is_generated_grant(item);
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
