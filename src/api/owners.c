/* SPDX-License-Identifier: MIT */
/* /v1/owners: heartbeat, delete, get; and the search for suspect owners. */
#include "api/owners.h"

#include <stdlib.h>

#include "api/json_in.h"
#include "api/json_out.h"
#include "api/not_found.h"
#include "api/operations.h"
#include "api/problem.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/service.h"
#include "base/duration.h"
#include "store/owners.h"

/* ---- answers ---- */

/* Writes an owner without its closing brace. A row that only the liveness probe has created has no ttl. */
static void write_owner_begin(struct exchange *exchange, const struct owner *owner, const struct lease_clock *clock)
{
    struct buf *out = &exchange->answer.body;
    const struct viewer viewer = viewer_of(exchange);
    buf_append_text(out, "{\"owner\":");
    write_text(out, key_split(owner->name).key);
    if (viewer_needs_namespace(&viewer, owner->name))
        write_member_text(out, "namespace", key_split(owner->name).namespace);
    write_member_text(out, "state", bytes_of(owner_life_word(owner_life(owner, clock->due))));
    if (owner->ttl_ms > 0)
        buf_printf(out, ",\"ttl_ms\":%lld", (long long)owner->ttl_ms);
    if (owner->lapsed_at != NEVER) {
        buf_append_text(out, ",\"lapsed_at\":");
        write_time(out, lease_to_wall(clock, owner->lapsed_at));
    } else {
        buf_append_text(out, ",\"expires_at\":");
        write_time(out, lease_to_wall(clock, owner->due_at));
        buf_printf(out, ",\"expires_in_ms\":%lld", (long long)(lease_left_us(clock, owner->due_at) / US_PER_MS));
    }
}

static void write_refused(struct exchange *exchange, const struct owner_decision *decision)
{
    enum permit_status status = operation_public_status(decision->status);
    if (status != PERMIT_ENDED) {
        problem_answer(exchange, status, decision->detail);
        return;
    }
    struct buf *out = &exchange->answer.body;
    problem_head(&exchange->answer, status, 0);
    problem_begin(
        out, status,
        "the owner was found dead; heartbeats are accepted again when all requests that end with it have ended");
    write_member_text(out, "end_reason", bytes_of(end_reason_word(END_OWNER_DEAD)));
    buf_append_text(out, ",\"ended_at\":");
    write_time(out, lease_to_wall(decision->clock, decision->outcome->owner.lapsed_at));
    problem_end(out);
}

static void owner_decided(struct owner_op *op, const struct owner_decision *decision)
{
    struct exchange *exchange = &CONTAINER_OF(op, struct call, owner)->exchange;
    if (decision->status == PERMIT_OK) {
        write_owner_begin(exchange, &decision->outcome->owner, decision->clock);
        buf_append_char(&exchange->answer.body, '}');
        exchange->answer.http_status = decision->outcome->created ? 201 : 200;
    } else {
        write_refused(exchange, decision);
    }
    if (decision->status == PERMIT_UNKNOWN_OWNER)
        not_found_finish(exchange, decision->status);
    else
        exchange_finish(exchange);
}

/* ---- routes ---- */

static bool owner_submit(struct exchange *exchange, enum owner_call_kind kind, int64_t ttl_ms)
{
    struct call *call = call_of(exchange);
    struct owner_op *op = &call->owner;
    call->of_owner = true;
    op->call = (struct owner_call){.kind = kind, .name = exchange->path_values[0], .ttl_ms = ttl_ms};
    op->decided = owner_decided;
    op->deadline = exchange->deadline;
    list_init(&op->node);
    enum permit_status status = engine_submit_owner(exchange->service->engine, op);
    if (status == PERMIT_OK)
        return false;
    return operation_reject(exchange, status, BOUND_PENDING);
}

struct beat_form {
    int64_t ttl_ms;
};

static const struct wire_member beat_members[] = {
    /* name, type, required, value, given, min, max, choices, expected */
    {"ttl", WIRE_DURATION, true, offsetof(struct beat_form, ttl_ms), 0, 1, DURATION_MAX_MS, NULL,
     "a duration above 0 such as \"30s\", or a number of seconds"},
};
static const struct wire_table beat_table = {beat_members, ARRAY_LENGTH(beat_members)};

bool owner_put(struct exchange *exchange)
{
    struct beat_form form = {0};
    const struct wire_reading reading = reading_of(exchange);
    enum permit_status status = wire_read_body(&reading, exchange->body, &wire_no_lists, &beat_table, &form);
    if (status != PERMIT_OK)
        return operation_refuse(exchange, status);
    return owner_submit(exchange, OWNER_BEAT, form.ttl_ms);
}

bool owner_delete(struct exchange *exchange)
{
    return owner_submit(exchange, OWNER_GONE, 0);
}

static enum permit_status answer_get(struct exchange *exchange, struct store *store)
{
    struct owner owner;
    uint64_t held = 0;
    struct query_time time;
    enum permit_status status =
        store->owners->get(store, exchange->path_values[0], &exchange->arena, &owner, &held, &time);
    if (status != PERMIT_OK)
        return status;
    engine_judge(exchange->service->engine, &time);
    bool late = owner_life(&owner, time.clock.due) == OWNER_LATE;
    bool suspect = late || engine_owner_in_doubt(exchange->service->engine, owner.name);
    write_owner_begin(exchange, &owner, &time.clock);
    buf_printf(&exchange->answer.body, ",\"held\":%llu,\"suspect\":%s}", (unsigned long long)held,
               suspect ? "true" : "false");
    return PERMIT_OK;
}

bool owner_get(struct exchange *exchange)
{
    return query_submit(exchange, QUERY_ROW, answer_get, NULL);
}

/* ---- suspects ---- */

static int compare_owners(const void *name, const void *owner)
{
    return bytes_compare(*(const struct bytes *)name, ((const struct owner *)owner)->name);
}

static bool is_suspect(struct engine *engine, const struct request *request, const struct owner *owner, utc_us due)
{
    if (owner && (owner_life(owner, due) == OWNER_LATE || owner_lapse_ends(owner, request)))
        return true;
    return engine_owner_in_doubt(engine, request->owner);
}

static bool may_be_suspect(const struct request *request)
{
    return request->state == REQUEST_ACQUIRED && request->owner.length && request->confirmed_at == NEVER;
}

/* An array of requests `stride` bytes apart: plain, or as members of larger rows. */
struct request_array {
    const struct request *first;
    size_t stride;
};

static const struct request *request_at(const struct request_array *row, size_t index)
{
    return (const struct request *)(const void *)((const char *)row->first + index * row->stride);
}

/* Finds the suspects in [first, end), at most as many as one statement reads. */
static enum permit_status find_suspects_between(struct exchange *exchange, struct store *store,
                                                const struct request_array *row, size_t first, size_t end,
                                                bool *ret_suspects)
{
    struct bytes names[OWNERS_MAX];
    size_t asked = 0;
    struct page page = {.arena = &exchange->arena};
    for (size_t i = first; i < end; i++)
        if (may_be_suspect(request_at(row, i)))
            names[asked++] = request_at(row, i)->owner;
    if (asked == 0)
        return PERMIT_OK;
    enum permit_status status = store->owners->read(store, names, asked, &page);
    if (status != PERMIT_OK)
        return status;
    engine_judge(exchange->service->engine, &page.time);
    for (size_t i = first; i < end; i++) {
        const struct request *request = request_at(row, i);
        if (!may_be_suspect(request))
            continue;
        const struct owner *owner =
            page.count ? bsearch(&request->owner, page.owners, page.count, sizeof *page.owners, compare_owners) : NULL;
        ret_suspects[i] = is_suspect(exchange->service->engine, request, owner, page.time.clock.due);
    }
    return PERMIT_OK;
}

enum permit_status suspects_find(struct exchange *exchange, struct store *store, const struct request *requests,
                                 size_t count, size_t stride, const bool **ret_suspects)
{
    struct request_array row = {requests, stride};
    bool *suspects = arena_array(&exchange->arena, count, sizeof *suspects);
    if (!suspects && count)
        return PERMIT_NO_MEMORY;
    for (size_t first = 0; first < count; first += OWNERS_MAX) {
        size_t end = count - first < OWNERS_MAX ? count : first + OWNERS_MAX;
        enum permit_status status = find_suspects_between(exchange, store, &row, first, end, suspects);
        if (status != PERMIT_OK)
            return status;
    }
    *ret_suspects = suspects;
    return PERMIT_OK;
}
