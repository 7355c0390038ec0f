/* SPDX-License-Identifier: MIT */
#include "client/wire.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/escape.h"

enum { JSON_DEPTH = 32, LONGEST_RETRY_MS = 86400 * 1000 };
#define LONGEST_TTL_MS (100LL * 366 * 86400 * 1000) /* 100 years, the longest ttl that permitd accepts */

/* ---- Writing ---- */

static bool add(struct json_object *object, const char *name, struct json_object *value)
{
    return value && json_object_object_add(object, name, value) == 0;
}

static bool add_text(struct json_object *object, const char *name, const char *text)
{
    return !text || add(object, name, json_object_new_string(text));
}

static bool add_duration(struct json_object *object, const char *name, int64_t ms)
{
    char text[32];
    if (ms == 0)
        return true;
    (void)snprintf(text, sizeof(text), "%lldms", (long long)ms);
    return add_text(object, name, ms == PERMIT_TTL_NONE ? "none" : ms == PERMIT_TTL_OWNER ? "owner" : text);
}

/* Appends the text of `object` if `whole`. Frees the object. Returns false if incomplete or out of memory. */
static bool finish(struct json_object *object, bool whole, struct buf *out)
{
    const char *text = whole ? json_object_to_json_string_ext(object, JSON_C_TO_STRING_NOSLASHESCAPE) : NULL;
    if (text)
        buf_append_text(out, text);
    json_object_put(object);
    return text && !out->broken;
}

/* "#12" is slot 12, "##12" the label #12, anything else a label. */
static struct json_object *slot_value(const char *slot)
{
    size_t digits = slot[0] == '#' ? strspn(slot + 1, "0123456789") : 0;
    if (digits && !slot[1 + digits])
        return json_object_new_int64(digits < 18 ? strtoll(slot + 1, NULL, 10) : INT64_MAX);
    return json_object_new_string(slot[0] == '#' && slot[1] == '#' ? slot + 1 : slot);
}

/* Appends a value to *array. On failure frees both and sets *array to NULL, which it then stays. */
static void append(struct json_object **array, struct json_object *value)
{
    if (*array && value && json_object_array_add(*array, value) == 0)
        return;
    json_object_put(value);
    json_object_put(*array);
    *array = NULL;
}

static struct json_object *slots_value(const struct permit_want *want)
{
    struct json_object *array = json_object_new_array();
    for (size_t i = 0; array && i < want->slot_count; i++)
        append(&array, slot_value(want->slots[i]));
    return array;
}

/*
 * Adds the number of units and the choice of slots. A count given together with PERMIT_THESE is sent too: the server
 * refuses it.
 */
static bool add_choice(struct json_object *value, const struct permit_want *want)
{
    if (want->count || want->choice != PERMIT_THESE)
        if (!add(value, "count", json_object_new_int64(want->count ? want->count : 1)))
            return false;
    if (want->choice != PERMIT_LOWEST &&
        !add(value, want->choice == PERMIT_THESE ? "slots" : "any_of", slots_value(want)))
        return false;
    return !want->adjacent || add(value, "adjacent", json_object_new_boolean(true));
}

static struct json_object *want_value(const struct permit_want *want)
{
    struct json_object *value = json_object_new_object();
    if (value && add_text(value, "semaphore", want->semaphore) && add_choice(value, want))
        return value;
    json_object_put(value);
    return NULL;
}

static struct json_object *wants_value(const struct permit_want *wants, size_t count)
{
    struct json_object *array = json_object_new_array();
    for (size_t i = 0; array && i < count; i++)
        append(&array, want_value(&wants[i]));
    return array;
}

bool wire_write_acquire(const struct permit_acquire_options *options, const char *external_id, const char *nonce,
                        int64_t wait_ms, struct buf *out)
{
    struct json_object *body = json_object_new_object();
    bool whole = body && add_text(body, "external_id", external_id) && add_text(body, "owner", options->owner) &&
                 add_text(body, "nonce", nonce) &&
                 add(body, "permits", wants_value(options->permits, options->permit_count)) &&
                 add_duration(body, "ttl", options->ttl_ms) && add_duration(body, "wait", wait_ms) &&
                 (!options->priority || add(body, "priority", json_object_new_int(options->priority)));
    return finish(body, whole, out);
}

bool wire_write_renew(int64_t ttl_ms, struct buf *out)
{
    struct json_object *body = json_object_new_object();
    return finish(body, body && add_duration(body, "ttl", ttl_ms), out);
}

bool wire_write_reason(const char *reason, struct buf *out)
{
    struct json_object *body = json_object_new_object();
    return finish(body, body && add_text(body, "reason", reason), out);
}

bool wire_write_semaphore(const struct permit_semaphore_options *options, struct buf *out)
{
    struct json_object *body = json_object_new_object();
    bool whole = body && (options->capacity < 0 || add(body, "capacity", json_object_new_int64(options->capacity))) &&
                 add_text(body, "kind", options->kind) && add_duration(body, "default_ttl", options->default_ttl_ms);
    return finish(body, whole, out);
}

/* ---- Reading ---- */

/* Returns the object in the body, or NULL. The caller frees it with json_object_put. */
static struct json_object *parse(const char *body)
{
    struct json_tokener *tokener = json_tokener_new_ex(JSON_DEPTH);
    if (!tokener)
        return NULL;
    struct json_object *object = json_tokener_parse_ex(tokener, body, -1);
    json_tokener_free(tokener);
    if (json_object_is_type(object, json_type_object))
        return object;
    json_object_put(object);
    return NULL;
}

bool wire_is_object(const char *body)
{
    struct json_object *object = parse(body);
    json_object_put(object);
    return object != NULL;
}

/* Returns the member if it has that type, else NULL. The object owns it. */
static struct json_object *member(struct json_object *object, const char *name, enum json_type type)
{
    struct json_object *value;
    return json_object_object_get_ex(object, name, &value) && json_object_is_type(value, type) ? value : NULL;
}

static const char *text_of(struct json_object *object, const char *name)
{
    struct json_object *value = member(object, name, json_type_string);
    return value ? json_object_get_string(value) : NULL;
}

static int64_t number_of(struct json_object *object, const char *name, int64_t otherwise)
{
    struct json_object *value = member(object, name, json_type_int);
    return value ? json_object_get_int64(value) : otherwise;
}

/* Clamps the number: the answer may hold any value, and later arithmetic must not overflow. */
static int64_t bounded_number_of(struct json_object *object, const char *name, int64_t otherwise, int64_t min,
                                 int64_t max)
{
    if (!member(object, name, json_type_int))
        return otherwise;
    return max_i64(min, min_i64(number_of(object, name, otherwise), max));
}

static bool true_of(struct json_object *object, const char *name)
{
    struct json_object *value = member(object, name, json_type_boolean);
    return value && json_object_get_boolean(value);
}

/* Copies a text that may be missing. Returns false if out of memory. */
static bool copy_text(struct json_object *object, const char *name, char **ret_text)
{
    const char *text = text_of(object, name);
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
    struct json_object *problem = parse(body);
    const char *type = problem ? text_of(problem, "type") : NULL;
    if (!type) {
        json_object_put(problem);
        return false;
    }
    const char *slash = strrchr(type, '/'); /* "/problems/no_capacity" */
    int status = slash ? permit_status_from_word(slash + 1) : -1;
    *ret_status = (enum permit_status)(status > 0 ? status : status_of_code(http_status));
    *ret_retry_after_ms = bounded_number_of(problem, "retry_after_ms", *ret_retry_after_ms, 0, LONGEST_RETRY_MS);
    const char *sentence = text_of(problem, "detail");
    if (!sentence)
        sentence = text_of(problem, "title");
    buf_append_text(detail, sentence ? sentence : permit_status_title(*ret_status));
    escape_control_chars(detail->data, detail->length);
    json_object_put(problem);
    return true;
}

bool wire_read_max_wait(const char *body, int64_t *ret_max_wait_ms)
{
    struct json_object *problem = parse(body);
    bool said = problem && member(problem, "max_wait_ms", json_type_int);
    if (said)
        *ret_max_wait_ms = number_of(problem, "max_wait_ms", 0);
    json_object_put(problem);
    return said;
}

bool wire_is_expired(const char *body)
{
    struct json_object *problem = parse(body);
    const char *reason = problem ? text_of(problem, "end_reason") : NULL;
    bool expired = reason && strcmp(reason, "expired") == 0;
    json_object_put(problem);
    return expired;
}

static bool read_slots(struct json_object *array, struct permit_held *held)
{
    size_t count = array ? json_object_array_length(array) : 0;
    if (count == 0)
        return true;
    held->slots = calloc(count, sizeof(*held->slots));
    if (!held->slots)
        return false;
    held->slot_count = count;
    for (size_t i = 0; i < count; i++)
        held->slots[i] = (uint32_t)json_object_get_int64(json_object_array_get_idx(array, i));
    return true;
}

/* Reads at most one label for each slot; further ones in the answer are ignored. */
static bool read_labels(struct json_object *array, struct permit_held *held)
{
    size_t count = array ? json_object_array_length(array) : 0;
    if (count == 0 || held->slot_count == 0)
        return true;
    held->labels = calloc(held->slot_count, sizeof(*held->labels));
    if (!held->labels)
        return false;
    for (size_t i = 0; i < count && i < held->slot_count; i++) {
        struct json_object *label = json_object_array_get_idx(array, i);
        if (!json_object_is_type(label, json_type_string))
            continue;
        held->labels[i] = strdup(json_object_get_string(label));
        if (!held->labels[i])
            return false;
    }
    return true;
}

static bool read_held(struct json_object *value, struct permit_held *held)
{
    if (!text_of(value, "semaphore") || !copy_text(value, "semaphore", &held->semaphore))
        return false;
    held->count = number_of(value, "count", 1);
    held->token = (uint64_t)number_of(value, "token", 0);
    held->floor = (uint64_t)number_of(value, "floor", 0);
    return read_slots(member(value, "slots", json_type_array), held) &&
           read_labels(member(value, "labels", json_type_array), held);
}

static bool read_permits(struct json_object *array, struct permit_request *request)
{
    size_t count = array ? json_object_array_length(array) : 0;
    request->permits = calloc(count ? count : 1, sizeof(*request->permits));
    if (!request->permits)
        return false;
    request->permit_count = count;
    for (size_t i = 0; i < count; i++)
        if (!read_held(json_object_array_get_idx(array, i), &request->permits[i]))
            return false;
    return true;
}

/* Reads the ttl, which is a duration or a word: {"ttl":"owner","ttl_ms":null}. */
static int64_t ttl_of(struct json_object *object)
{
    const char *word = text_of(object, "ttl");
    int64_t without = word && strcmp(word, "owner") == 0 ? PERMIT_TTL_OWNER : PERMIT_TTL_NONE;
    return bounded_number_of(object, "ttl_ms", without, 1, LONGEST_TTL_MS);
}

static bool read_request(struct json_object *object, boot_us sent, struct permit_request *request)
{
    const char *state = text_of(object, "state");
    if (!state || !text_of(object, "external_id"))
        return false;
    request->held = strcmp(state, "ACQUIRED") == 0;
    request->replayed = true_of(object, "replayed");
    request->yours = !request->replayed || true_of(object, "yours");
    request->already_released = true_of(object, "already_released");
    request->ttl_ms = ttl_of(object);
    request->max_hold_ms = bounded_number_of(object, "max_hold_ms", 0, 1, LONGEST_TTL_MS);
    /* By the local clock: the time left by the server's, counted from before the call was sent. */
    int64_t left_ms = number_of(object, "expires_in_ms", request->max_hold_ms ? request->max_hold_ms : INT64_MAX);
    request->held_until_us = request->held ? moment_after(sent, max_i64(left_ms, 0)) : 0;
    return copy_text(object, "external_id", &request->external_id) && copy_text(object, "owner", &request->owner) &&
           copy_text(object, "end_reason", &request->end_reason) &&
           copy_text(object, "acquired_at", &request->acquired_at) &&
           copy_text(object, "confirmed_at", &request->confirmed_at) &&
           copy_text(object, "expires_at", &request->expires_at) && copy_text(object, "ended_at", &request->ended_at) &&
           read_permits(member(object, "permits", json_type_array), request);
}

struct permit_request *wire_read_request(const char *body, boot_us sent)
{
    struct json_object *object = parse(body);
    struct permit_request *request = object ? calloc(1, sizeof(*request)) : NULL;
    if (request && !read_request(object, sent, request)) {
        permit_request_free(request);
        request = NULL;
    }
    json_object_put(object);
    return request;
}

bool wire_read_fence(const char *body, struct permit_fence *ret_fence)
{
    struct json_object *object = parse(body);
    bool known = object && member(object, "live", json_type_boolean);
    if (known)
        *ret_fence =
            (struct permit_fence){.live = true_of(object, "live"), .floor = (uint64_t)number_of(object, "floor", 0)};
    json_object_put(object);
    return known;
}
