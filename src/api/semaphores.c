/* SPDX-License-Identifier: MIT */
/* /v1/semaphores: put, pause, resume and get semaphores; check tokens. */
#include <stdlib.h>

#include "api/access.h"
#include "api/etag.h"
#include "api/json_in.h"
#include "api/json_out.h"
#include "api/labels.h"
#include "api/operations.h"
#include "api/owners.h"
#include "api/problem.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/semaphores.h"
#include "api/service.h"
#include "api/webhooks.h"

/* ---- PUT ---- */

struct put_form {
    struct wire_list labels;
    struct semaphore_change change; /* not first: a given_offset of 0 means none */
};

#define CHANGE(member) (offsetof(struct put_form, change) + offsetof(struct semaphore_change, member))
#define PUT_MEMBER(name, c_type, member, type, flags, min, max, initial, words, expected, ...)                         \
    {#name, WIRE_##type, false, CHANGE(member), CHANGE(has_##name), min, max, words, expected},

static const struct wire_member put_members[] = {
    SEMAPHORE_SETTINGS(PUT_MEMBER) /* a template has only these */
    {"labels", WIRE_LIST, false, offsetof(struct put_form, labels), 0, 0, SLOTS_MAX_CAPACITY, NULL, LABELS_EXPECTED},
};
static const struct wire_table put_table = {put_members, ARRAY_LENGTH(put_members)};
static const struct wire_table template_table = {put_members, SETTING_COUNT};

/*
 * Parses an ETag, of which only the config_version counts: "7.117", "7" or 7. The weak tag W/"7" becomes 0, which never
 * matches (RFC 9110, 13.1.1).
 */
static bool parse_tag(struct bytes tag, uint64_t *ret_version)
{
    bool weak = bytes_begin_with(tag, BYTES("W/"));
    if (weak)
        tag = (struct bytes){tag.data + 2, tag.length - 2};
    if (tag.length >= 2 && tag.data[0] == '"' && tag.data[tag.length - 1] == '"')
        tag = (struct bytes){tag.data + 1, tag.length - 2};
    const char *point = tag.length ? memchr(tag.data, '.', tag.length) : NULL;
    struct bytes config = {tag.data, point ? (size_t)(point - tag.data) : tag.length};
    uint64_t config_version, version;
    if (!bytes_read_u64(config, INT64_MAX, &config_version) ||
        (point && !bytes_read_u64((struct bytes){point + 1, tag.length - config.length - 1}, UINT64_MAX, &version)))
        return false;
    *ret_version = weak ? 0 : config_version;
    return true;
}

/* Returns the next of a list of tags, without the white space around it. */
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

/* Parses "*", or ETags such as "3.11", "4". */
static bool parse_if_match(struct bytes list, struct semaphore_change *change)
{
    change->if_exists = bytes_equal(list, BYTES("*"));
    if (change->if_exists)
        return true;
    while (list.length) {
        struct bytes tag = next_tag(&list);
        if (!tag.length)
            continue; /* RFC 9110, 5.6.1: a recipient accepts empty list elements */
        if (change->match_count == MATCH_MAX || !parse_tag(tag, &change->config_versions[change->match_count++]))
            return false;
    }
    return change->match_count > 0;
}

bool semaphore_read_preconditions(struct exchange *exchange, struct semaphore_change *change)
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
    const struct wire_reading reading = reading_of(exchange);
    enum permit_status status = wire_read_body(&reading, exchange->body, &labels_limit, table, form);
    if (status == PERMIT_OK && form->labels.count)
        status = labels_read(&reading, &form->labels, 1, &form->change);
    return status;
}

enum permit_status semaphore_read_template(struct exchange *exchange, struct semaphore_change *ret_change)
{
    struct put_form form = {0};
    enum permit_status status = read_put(exchange, &template_table, &form);
    if (status == PERMIT_OK)
        *ret_change = form.change;
    return status;
}

/*
 * Returns how many rows the PUT may make or change: that of the semaphore at least, and those of its slots. A counted
 * semaphore has none.
 */
static int64_t units_of(const struct semaphore_change *change)
{
    bool has_slots = !(change->has_kind && change->kind == KIND_COUNTED);
    int64_t slots = change->has_capacity && has_slots ? min_i64(change->capacity, SLOTS_MAX_CAPACITY) : 0;
    return max_i64(max_i64(slots, (int64_t)change->label_count), 1);
}

bool semaphore_take_units(struct exchange *exchange, const struct semaphore_change *change)
{
    return quota_take(exchange, QUOTA_UNITS, units_of(change));
}

bool semaphore_check_feed(struct exchange *exchange, struct semaphore_change *change)
{
    if (!change->has_feed || change->feed != FEED_ALL || exchange->service->settings->feed_tenants ||
        access_has(exchange, RIGHT_ADMIN))
        return webhook_enter(exchange, change);
    return !problem_answer(exchange, PERMIT_FORBIDDEN,
                           "feed \"all\" needs the right admin, or the setting feed_tenants");
}

bool semaphore_put(struct exchange *exchange)
{
    struct put_form *form = arena_alloc(&exchange->arena, sizeof *form);
    if (!form)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    enum permit_status status = read_put(exchange, &put_table, form);
    if (status != PERMIT_OK)
        return operation_refuse(exchange, status);
    if (!semaphore_check_feed(exchange, &form->change) || !semaphore_read_preconditions(exchange, &form->change) ||
        !semaphore_take_units(exchange, &form->change))
        return true;
    call_of(exchange)->first.operation = (struct operation){
        .kind = OP_SEMAPHORE_PUT,
        .semaphore = exchange->path_values[0],
        .change = &form->change,
    };
    return operation_submit(exchange);
}

/* ---- pause and resume ---- */

bool semaphore_pause(struct exchange *exchange)
{
    struct operation operation = {.kind = OP_SEMAPHORE_PAUSE, .semaphore = exchange->path_values[0]};
    enum permit_status status = operation_read_reason(exchange, &operation.why);
    if (status != PERMIT_OK)
        return operation_refuse(exchange, status);
    call_of(exchange)->first.operation = operation;
    return operation_submit(exchange);
}

bool semaphore_resume(struct exchange *exchange)
{
    enum permit_status status = operation_read_nothing(exchange);
    if (status != PERMIT_OK)
        return operation_refuse(exchange, status);
    call_of(exchange)->first.operation =
        (struct operation){.kind = OP_SEMAPHORE_RESUME, .semaphore = exchange->path_values[0]};
    return operation_submit(exchange);
}

/* ---- GET ---- */

static enum permit_status answer_get(struct exchange *exchange, struct store *store)
{
    struct answer *answer = &exchange->answer;
    struct semaphore_row row;
    struct query_time time;
    enum permit_status status =
        store->queries->semaphore(store, exchange->path_values[0], &exchange->arena, &row, &time);
    if (status != PERMIT_OK)
        return status;
    const struct viewer viewer = viewer_of(exchange);
    write_semaphore_row(&answer->body, &viewer, &row, &time);
    etag_of_semaphore(answer, &row.semaphore);
    return PERMIT_OK;
}

bool semaphore_get(struct exchange *exchange)
{
    return query_submit(exchange, QUERY_ROW, answer_get, NULL);
}

/* ---- fence ---- */

struct fence_params {
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

static enum permit_status answer_fence(struct exchange *exchange, struct store *store)
{
    const struct fence_params *question = exchange->context;
    struct fence_row row;
    enum permit_status status =
        store->queries->fence(store, exchange->path_values[0], question->token, (uint32_t)question->slot, &row);
    if (status == PERMIT_OK)
        write_fence(&exchange->answer.body, question->token, &row);
    return status;
}

bool semaphore_fence(struct exchange *exchange)
{
    struct fence_params *question = arena_alloc(&exchange->arena, sizeof *question);
    if (!question)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    if (!query_param(exchange, "token").data)
        return problem_answer(exchange, PERMIT_INVALID, "missing query parameter: token");
    if (!param_number(exchange, "token", 1, INT64_MAX, 0, &question->token) ||
        !param_number(exchange, "slot", 1, SLOTS_MAX_CAPACITY, 0, &question->slot))
        return true;
    return query_submit(exchange, QUERY_ROW, answer_fence, question);
}
