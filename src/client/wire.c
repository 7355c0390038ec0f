/* SPDX-License-Identifier: MIT */
#include "client/wire.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/escape.h"

enum { LONGEST_RETRY_MS = 86400 * 1000, BODY_MAX_BYTES = 1024 * 1024 };
#define LONGEST_TTL_MS (100LL * 366 * 86400 * 1000) /* 100 years, the longest ttl that permitd accepts */

/* ---- Writing ---- */

const char *wire_text(struct json_writer *body)
{
    const char *text = json_text(body);
    return text && strlen(text) <= BODY_MAX_BYTES ? text : NULL;
}

/*
 * Appends a want to the list: the number of units and the choice of slots. A count given together with PERMIT_THESE is
 * sent too: the server refuses it.
 */
static void append_want(struct json_writer *body, const char *list, const struct permit_want *want)
{
    struct json_writer *item = json_writer_new();
    const char *slots = want->choice == PERMIT_THESE ? "slots" : "any_of";
    json_add_text(item, "semaphore", want->semaphore);
    if (want->count || want->choice != PERMIT_THESE)
        json_add_number(item, "count", want->count ? want->count : 1);
    if (want->choice != PERMIT_LOWEST)
        json_add_items(item, slots);
    for (size_t i = 0; want->choice != PERMIT_LOWEST && i < want->slot_count; i++) {
        /* "#12" is slot 12, "##12" the label #12, anything else a label. */
        const char *slot = want->slots[i];
        size_t digits = slot[0] == '#' ? strspn(slot + 1, "0123456789") : 0;
        if (digits && !slot[1 + digits])
            json_append_number(item, slots, digits < 18 ? strtoll(slot + 1, NULL, 10) : INT64_MAX);
        else
            json_append_text(item, slots, slot[0] == '#' && slot[1] == '#' ? slot + 1 : slot);
    }
    if (want->adjacent)
        json_add_bool(item, "adjacent", true);
    if (want->best)
        json_add_body(item, "best", want->best);
    json_add_item(body, list, item);
    json_writer_free(item);
}

/* Adds a list of wants. */
static void add_wants(struct json_writer *body, const char *list, const struct permit_want *wants, size_t count)
{
    json_add_items(body, list);
    for (size_t i = 0; i < count; i++)
        append_want(body, list, &wants[i]);
}

struct json_writer *wire_acquire(const struct permit_acquire_options *options, const char *external_id,
                                 const char *nonce, int64_t wait_ms)
{
    struct json_writer *body = json_writer_new();
    json_add_text(body, "external_id", external_id);
    json_add_text(body, "owner", options->owner);
    json_add_text(body, "nonce", nonce);
    add_wants(body, "permits", options->permits, options->permit_count);
    json_add_duration(body, "ttl", options->ttl_ms ? options->ttl_ms : JSON_ABSENT);
    json_add_duration(body, "wait", wait_ms ? wait_ms : JSON_ABSENT);
    if (options->priority)
        json_add_number(body, "priority", options->priority);
    if (options->metadata)
        json_add_body(body, "metadata", options->metadata);
    return body;
}

struct json_writer *wire_change(const struct permit_change *change, const char *give, const char *take,
                                const char *nonce)
{
    struct json_writer *body = json_writer_new();
    if (give)
        add_wants(body, give, change->give, change->give_count);
    if (take)
        add_wants(body, take, change->take, change->take_count);
    json_add_text(body, "nonce", nonce);
    json_add_number(body, "changes", change->changes);
    return body;
}

/* ---- Reading ---- */

bool wire_is_object(const char *body)
{
    struct json_object *object = json_read(body);
    json_free(object);
    return object != NULL;
}

/*
 * Returns `otherwise` if there is none. Clamps the number: an answer may hold any, and later arithmetic must not
 * overflow.
 */
static int64_t bounded_number_of(struct json_object *object, const char *name, int64_t otherwise, int64_t min,
                                 int64_t max)
{
    int64_t number = json_integer_of(object, name, INT64_MIN);
    return number == INT64_MIN ? otherwise : max_i64(min, min_i64(number, max));
}

/* Copies a text that may be missing. Returns false if out of memory. */
static bool copy_text(struct json_object *object, const char *name, char **ret_text)
{
    const char *text = json_text_of(object, name);
    *ret_text = text ? strdup(text) : NULL;
    return !text || *ret_text;
}

/*
 * Returns the first status with this HTTP code: a newer server may send problem types that this library does not know.
 */
static int status_of_code(int http_status)
{
    for (int status = PERMIT_MALFORMED; status < PERMIT_CONFLICT; status++)
        if (permit_status_http((enum permit_status)status) == http_status)
            return status;
    return http_status < 500 ? PERMIT_INVALID : PERMIT_INTERNAL;
}

bool wire_read_problem(const char *body, int http_status, enum permit_status *ret_status, int64_t *ret_retry_after_ms,
                       struct buf *detail)
{
    struct json_object *problem = json_read(body);
    const char *type = json_text_of(problem, "type");
    if (!type) {
        json_free(problem);
        return false;
    }
    const char *slash = strrchr(type, '/'); /* "/problems/no_capacity" */
    int status = slash ? permit_status_from_word(slash + 1) : -1;
    *ret_status = (enum permit_status)(status > 0 ? status : status_of_code(http_status));
    *ret_retry_after_ms = bounded_number_of(problem, "retry_after_ms", *ret_retry_after_ms, 0, LONGEST_RETRY_MS);
    const char *sentence = json_text_of(problem, "detail");
    if (!sentence)
        sentence = json_text_of(problem, "title");
    buf_append_text(detail, sentence ? sentence : permit_status_title(*ret_status));
    escape_control_chars(detail->data, detail->length);
    json_free(problem);
    return true;
}

bool wire_is_expired(const char *body)
{
    struct json_object *problem = json_read(body);
    const char *reason = json_text_of(problem, "end_reason");
    bool expired = reason && strcmp(reason, "expired") == 0;
    json_free(problem);
    return expired;
}

/* Reads at most one label for each slot; further ones in the answer are ignored. Returns false if out of memory. */
static bool read_held(struct json_object *value, struct permit_held *held)
{
    if (!json_text_of(value, "semaphore") || !copy_text(value, "semaphore", &held->semaphore))
        return false;
    held->count = json_integer_of(value, "count", 1);
    held->token = (uint64_t)json_integer_of(value, "token", 0);
    held->floor = (uint64_t)json_integer_of(value, "floor", 0);
    held->available = json_integer_of(value, "available", -1);
    size_t slots = json_length_of(value, "slots"), labels = json_length_of(value, "labels");
    held->slots = slots ? calloc(slots, sizeof(*held->slots)) : NULL;
    held->slot_count = held->slots ? slots : 0;
    for (size_t i = 0; i < held->slot_count; i++)
        held->slots[i] = (uint32_t)json_item_number(value, "slots", i);
    held->labels = held->slots && labels ? calloc(slots, sizeof(*held->labels)) : NULL;
    for (size_t i = 0; held->labels && i < slots && i < labels; i++) {
        struct json_object *label = json_item_of(value, "labels", i);
        if (json_kind(label) != JSON_TEXT)
            continue;
        held->labels[i] = strdup(json_string(label));
        if (!held->labels[i])
            return false;
    }
    return !slots || (held->slots && (!labels || held->labels));
}

static bool read_permits(struct json_object *object, struct permit_request *request)
{
    size_t count = json_length_of(object, "permits");
    request->permits = calloc(count ? count : 1, sizeof(*request->permits));
    if (!request->permits)
        return false;
    request->permit_count = count;
    for (size_t i = 0; i < count; i++)
        if (!read_held(json_item_of(object, "permits", i), &request->permits[i]))
            return false;
    return true;
}

static bool read_request(struct json_object *object, boot_us sent, struct permit_request *request)
{
    const char *state = json_text_of(object, "state");
    if (!state || !json_text_of(object, "external_id"))
        return false;
    request->held = strcmp(state, "ACQUIRED") == 0;
    request->replayed = json_true_of(object, "replayed");
    request->yours = !request->replayed || json_true_of(object, "yours");
    request->already_released = json_true_of(object, "already_released");
    /* A duration or a word: {"ttl":"owner","ttl_ms":null}. */
    const char *word = json_text_of(object, "ttl");
    request->ttl_ms = bounded_number_of(
        object, "ttl_ms", word && strcmp(word, "owner") == 0 ? PERMIT_TTL_OWNER : PERMIT_TTL_NONE, 1, LONGEST_TTL_MS);
    request->max_hold_ms = bounded_number_of(object, "max_hold_ms", 0, 1, LONGEST_TTL_MS);
    request->changes = bounded_number_of(object, "changes", 0, 0, UINT32_MAX);
    /* By the local clock: the time left by the server's, counted from before the call was sent. */
    int64_t left_ms = json_integer_of(object, "expires_in_ms", request->max_hold_ms ? request->max_hold_ms : INT64_MAX);
    request->held_until_us = request->held ? moment_after(sent, max_i64(left_ms, 0)) : 0;
    return copy_text(object, "external_id", &request->external_id) && copy_text(object, "owner", &request->owner) &&
           copy_text(object, "end_reason", &request->end_reason) &&
           copy_text(object, "acquired_at", &request->acquired_at) &&
           copy_text(object, "confirmed_at", &request->confirmed_at) &&
           copy_text(object, "expires_at", &request->expires_at) && copy_text(object, "ended_at", &request->ended_at) &&
           read_permits(object, request);
}

struct permit_request *wire_read_request(const char *body, boot_us sent)
{
    struct json_object *object = json_read(body);
    struct permit_request *request = object ? calloc(1, sizeof(*request)) : NULL;
    if (request && !read_request(object, sent, request)) {
        permit_request_free(request);
        request = NULL;
    }
    json_free(object);
    return request;
}

bool wire_read_fence(const char *body, struct permit_fence *ret_fence)
{
    struct json_object *object = json_read(body);
    bool known = json_kind(json_member(object, "live")) == JSON_BOOL;
    if (known)
        *ret_fence = (struct permit_fence){.live = json_true_of(object, "live"),
                                           .floor = (uint64_t)json_integer_of(object, "floor", 0)};
    json_free(object);
    return known;
}
