/* SPDX-License-Identifier: MIT */
#include "http/wire.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "base/duration.h"
#include "base/utf8.h"
#include "core/name.h"
#include "http/server.h"

struct wire {
    struct json_tokener *tokener;
};

/*
 * Room for the longest string of a body, once and for all: json-c 0.16 does not notice when it has none, and what does
 * not fit is missing in the middle. False: no memory.
 */
static bool make_room(struct json_tokener *tokener)
{
    char part[4096];
    memset(part, 'a', sizeof part);
    errno = 0;
    (void)json_tokener_parse_ex(tokener, "\"", 1);
    for (size_t length = 0; length < SERVER_MAX_BODY; length += sizeof part)
        (void)json_tokener_parse_ex(tokener, part, sizeof part);
    json_tokener_reset(tokener);
    return errno != ENOMEM;
}

struct wire *wire_new(void)
{
    struct wire *wire = calloc(1, sizeof *wire);
    if (!wire)
        return NULL;
    wire->tokener = json_tokener_new_ex(WIRE_MAX_DEPTH);
    if (!wire->tokener || !make_room(wire->tokener)) {
        wire_free(wire);
        return NULL;
    }
    json_tokener_set_flags(wire->tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    return wire;
}

void wire_free(struct wire *wire)
{
    if (!wire)
        return;
    if (wire->tokener)
        json_tokener_free(wire->tokener);
    free(wire);
}

/* --- what json-c lets pass -------------------------------------------------------------------------------------- */

/* What a walk over a text has met. */
struct walk {
    size_t members;
    bool control; /* a control character in a string */
    bool nul;     /* the last string has an escaped NUL: json-c would cut a name there */
    bool nul_in_name;
    bool half; /* an escaped half of a surrogate pair stands alone */
};

enum { ESCAPED_UNIT_LENGTH = 6, NO_UNIT = -1 };

/* The UTF-16 unit of the \uXXXX that begins at `at`. */
static int32_t escaped_unit(struct bytes text, size_t at)
{
    if (text.length - at < ESCAPED_UNIT_LENGTH || memcmp(text.data + at, "\\u", 2) != 0)
        return NO_UNIT;
    int32_t unit = 0;
    for (size_t i = at + 2; i < at + ESCAPED_UNIT_LENGTH; i++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *digit = memchr(digits, text.data[i], sizeof digits - 1);
        if (!digit)
            return NO_UNIT;
        unit = unit << 4 | (int32_t)((digit - digits) & 0xF);
    }
    return unit;
}

/*
 * Skips the escape whose backslash stands at `at`; returns its last byte. Half a pair means nothing (RFC 8259, 8.2),
 * and json-c 0.16 remembers one at which a text breaks off until the next text it reads: somebody else's.
 */
static size_t skip_escape(struct bytes text, size_t at, struct walk *walk)
{
    int32_t unit = escaped_unit(text, at);
    walk->nul |= unit == 0;
    if (unit < 0xD800 || unit > 0xDFFF)
        return at + 1;
    int32_t low = escaped_unit(text, at + ESCAPED_UNIT_LENGTH);
    walk->half |= unit > 0xDBFF || low < 0xDC00 || low > 0xDFFF;
    return at + 2 * ESCAPED_UNIT_LENGTH - 1;
}

/* Skips a string that begins at `at`, behind its quote; the end of the text if it does not end. */
static size_t skip_string(struct bytes text, size_t at, struct walk *walk)
{
    walk->nul = false;
    for (; at < text.length && text.data[at] != '"'; at++) {
        if (text.data[at] == '\\') {
            at = skip_escape(text, at, walk);
        } else if ((unsigned char)text.data[at] < 0x20) {
            walk->control = true;
        }
    }
    return at < text.length ? at : text.length;
}

/* JSON allows neither 007 nor 1. nor .5; json-c takes some of them. `at` stands on the number's first byte. */
static bool number_is_plain(struct bytes text, size_t at)
{
    size_t digits = at + (text.data[at] == '-');
    if (digits >= text.length || text.data[digits] < '0' || text.data[digits] > '9')
        return false;
    if (text.data[digits] == '0' && digits + 1 < text.length && text.data[digits + 1] >= '0' &&
        text.data[digits + 1] <= '9')
        return false;
    for (size_t i = digits; i + 1 < text.length; i++)
        if (text.data[i] == '.' && (text.data[i + 1] < '0' || text.data[i + 1] > '9'))
            return false;
        else if (!strchr("0123456789.eE+-", text.data[i]))
            break;
    return true;
}

static size_t skip_word(struct bytes text, size_t at)
{
    while (at < text.length && text.data[at] && !strchr(" \t\r\n,:]}[{\"", text.data[at]))
        at++;
    return at;
}

static bool word_is_literal(struct bytes word)
{
    return bytes_equal(word, BYTES("true")) || bytes_equal(word, BYTES("false")) || bytes_equal(word, BYTES("null"));
}

/*
 * One walk over the text for what json-c does not refuse: control characters and half surrogate pairs in strings,
 * comments, odd numbers, TRUE and NaN. Counts the members: json-c keeps the last of two with one name, so its tree then
 * has fewer.
 */
static const char *scan(struct bytes text, size_t *ret_members)
{
    struct walk walk = {0};
    for (size_t at = 0; at < text.length; at++) {
        char byte = text.data[at];
        if (strchr(" \t\r\n,[]{}", byte) && byte)
            continue;
        if (byte == ':') {
            walk.members++;
            walk.nul_in_name |= walk.nul;
        } else if (byte == '"') {
            at = skip_string(text, at + 1, &walk);
        } else {
            size_t end = skip_word(text, at);
            if (byte == '-' || (byte >= '0' && byte <= '9')
                    ? !number_is_plain(text, at)
                    : !word_is_literal((struct bytes){text.data + at, end - at}))
                return "a value is neither a string, a number, true, false, null, an array nor an object";
            at = end - 1;
        }
    }
    *ret_members = walk.members;
    if (walk.half)
        return "an escaped half of a surrogate pair stands alone in a string";
    return walk.control || walk.nul_in_name ? "a control character stands in a string" : NULL;
}

static size_t count_members(struct json_object *value)
{
    size_t count = 0;
    if (json_object_is_type(value, json_type_array)) {
        size_t length = json_object_array_length(value);
        for (size_t i = 0; i < length; i++)
            count += count_members(json_object_array_get_idx(value, i));
    } else if (json_object_is_type(value, json_type_object)) {
        json_object_object_foreach(value, name, member)
        {
            (void)name;
            count += 1 + count_members(member);
        }
    }
    return count;
}

/* Only white space from `at` on. */
static bool ends_here(struct bytes text, size_t at)
{
    while (at < text.length && text.data[at] && strchr(" \t\r\n", text.data[at]))
        at++;
    return at == text.length;
}

static enum permit_status malformed(struct buf *message, const char *why)
{
    buf_printf(message, "the body is not one JSON object: %s", why);
    return PERMIT_MALFORMED;
}

enum permit_status wire_parse(struct wire *wire, struct bytes text, struct json_object **ret_object,
                              struct buf *message)
{
    buf_clear(message);
    if (ends_here(text, 0))
        return malformed(message, "it is empty");
    size_t members = 0;
    const char *odd = utf8_valid(text) ? scan(text, &members) : "it is not UTF-8";
    if (odd)
        return malformed(message, odd);
    json_tokener_reset(wire->tokener);
    errno = 0;
    struct json_object *object = json_tokener_parse_ex(wire->tokener, text.data, (int)text.length);
    enum json_tokener_error error = json_tokener_get_error(wire->tokener);
    const char *why = NULL;
    if (error == json_tokener_continue)
        why = "it ends too early";
    else if (error != json_tokener_success)
        why = json_tokener_error_desc(error);
    else if (!ends_here(text, json_tokener_get_parse_end(wire->tokener)))
        why = "something stands behind its end";
    else if (!json_object_is_type(object, json_type_object))
        why = "it is something else";
    else if (count_members(object) != members)
        why = "a member stands in it twice";
    if (errno == ENOMEM) { /* json-c 0.16 takes it for a fault of the text, or for none */
        json_object_put(object);
        buf_append_text(message, "no memory to read the body");
        return PERMIT_NO_MEMORY;
    }
    if (why) {
        json_object_put(object);
        return malformed(message, why);
    }
    *ret_object = object;
    return PERMIT_OK;
}

void wire_drop(struct json_object *object)
{
    json_object_put(object);
}

/* --- members ------------------------------------------------------------------------------------------------------ */

static struct bytes text_of(struct json_object *value)
{
    return (struct bytes){json_object_get_string(value), (size_t)json_object_get_string_len(value)};
}

static bool copy_text(struct json_object *value, void *place, struct arena *arena)
{
    struct bytes copy = arena_copy(arena, text_of(value));
    *(struct bytes *)place = copy;
    return copy.data != NULL;
}

/* A duration is a string with units or a number of seconds; json-c keeps how a double was written. */
static bool read_duration(struct json_object *value, const struct wire_member *member, int64_t *ret_ms)
{
    struct bytes text = bytes_of(json_object_get_string(value));
    int64_t ms;
    bool good = json_object_is_type(value, json_type_string) ? duration_parse(text_of(value), &ms)
                : json_object_is_type(value, json_type_int) || json_object_is_type(value, json_type_double)
                    ? duration_parse_seconds(text, &ms)
                    : false;
    if (!good || ms < member->min || ms > member->max)
        return false;
    *ret_ms = ms;
    return true;
}

static bool read_ttl(struct json_object *value, const struct wire_member *member, struct ttl *ret_ttl)
{
    if (json_object_is_type(value, json_type_string) && bytes_equal(text_of(value), BYTES("none"))) {
        *ret_ttl = (struct ttl){.kind = TTL_UNLIMITED};
        return true;
    }
    if (member->type == WIRE_HOLD && json_object_is_type(value, json_type_string) &&
        bytes_equal(text_of(value), BYTES("owner"))) {
        *ret_ttl = (struct ttl){.kind = TTL_OWNER};
        return true;
    }
    int64_t ms;
    if (!read_duration(value, member, &ms))
        return false;
    *ret_ttl = (struct ttl){.kind = TTL_DURATION, .ms = ms};
    return true;
}

/* json-c clamps what does not fit, to a number that is outside of every range of ours. */
static bool read_integer(struct json_object *value, const struct wire_member *member, int64_t *ret_number)
{
    if (!json_object_is_type(value, json_type_int))
        return false;
    int64_t number = json_object_get_int64(value);
    if (number < member->min || number > member->max)
        return false;
    *ret_number = number;
    return true;
}

static bool read_choice(struct json_object *value, const struct wire_member *member, int64_t *ret_index)
{
    if (!json_object_is_type(value, json_type_string))
        return false;
    for (int64_t i = 0; member->choices[i]; i++) {
        if (bytes_equal(text_of(value), bytes_of(member->choices[i]))) {
            *ret_index = i;
            return true;
        }
    }
    return false;
}

/* Of ASCII, and those of two bytes (U+0080 to U+009F). The text is UTF-8. */
static bool has_control(struct bytes text)
{
    for (size_t i = 0; i < text.length; i++) {
        unsigned char byte = (unsigned char)text.data[i];
        if (byte < ' ' || byte == 0x7F)
            return true;
        if (byte == 0xC2 && i + 1 < text.length && (unsigned char)text.data[i + 1] < 0xA0)
            return true;
    }
    return false;
}

bool wire_is_line(struct bytes text, size_t min, size_t max)
{
    return text.length >= min && text.length <= max && utf8_valid(text) && !has_control(text);
}

static bool read_boolean(struct json_object *value, bool *ret_flag)
{
    if (!json_object_is_type(value, json_type_boolean))
        return false;
    *ret_flag = json_object_get_boolean(value);
    return true;
}

static bool read_text(struct json_object *value, const struct wire_member *member, void *place, struct arena *arena)
{
    if (!json_object_is_type(value, json_type_string))
        return false;
    struct bytes text = text_of(value);
    if (memchr(text.data, '\0', text.length) || (member->type == WIRE_LINE && has_control(text)))
        return false;
    if (member->type == WIRE_SEMAPHORE ? !name_is_semaphore(text)
        : member->type == WIRE_KEY     ? !name_is_key(text)
                                       : (int64_t)text.length < member->min || (int64_t)text.length > member->max)
        return false;
    return copy_text(value, place, arena);
}

/* "1 to 255 bytes of UTF-8 without control characters" */
static bool read_label(struct json_object *value, struct arena *arena, struct bytes *ret_label)
{
    return name_is_label(text_of(value)) && copy_text(value, ret_label, arena);
}

/* "A number is a slot's number, a text always its label." */
static bool read_slot(struct json_object *value, const struct wire_member *member, struct arena *arena,
                      struct slot_name *ret_slot)
{
    struct slot_name slot = {0};
    int64_t number = 0;
    if (json_object_is_type(value, json_type_string) ? !read_label(value, arena, &slot.label)
                                                     : !read_integer(value, member, &number))
        return false;
    slot.number = (uint32_t)number;
    *ret_slot = slot;
    return true;
}

static bool read_list(struct json_object *value, const struct wire_member *member, struct json_object **ret_list)
{
    if (!json_object_is_type(value, json_type_array))
        return false;
    int64_t length = (int64_t)json_object_array_length(value);
    if (length < member->min || length > member->max)
        return false;
    *ret_list = value;
    return true;
}

static bool read_value(struct json_object *value, const struct wire_member *member, void *place, struct arena *arena)
{
    switch (member->type) {
    case WIRE_TEXT:
    case WIRE_LINE:
    case WIRE_SEMAPHORE:
    case WIRE_KEY: return read_text(value, member, place, arena);
    case WIRE_INTEGER: return read_integer(value, member, place);
    case WIRE_DURATION: return read_duration(value, member, place);
    case WIRE_TTL:
    case WIRE_HOLD: return read_ttl(value, member, place);
    case WIRE_BOOLEAN: return read_boolean(value, place);
    case WIRE_CHOICE: return read_choice(value, member, place);
    case WIRE_LIST: return read_list(value, member, place);
    case WIRE_SLOT: return read_slot(value, member, arena, place);
    case WIRE_LABEL: return json_object_is_type(value, json_type_string) && read_label(value, arena, place);
    }
    return false;
}

static const struct wire_member *find_member(const struct wire_table *table, const char *name)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->members[i].name, name) == 0)
            return &table->members[i];
    return NULL;
}

static enum permit_status unknown_member(const struct wire_table *table, const char *where, const char *name,
                                         struct buf *message)
{
    buf_printf(message, "%s%.64s is not a member that is known here; known are", where, name);
    for (size_t i = 0; i < table->count; i++)
        buf_printf(message, "%s %s", i ? "," : "", table->members[i].name);
    return PERMIT_INVALID;
}

/* It was not read: there was no memory for a copy, or it is not what it must be. */
static enum permit_status refuse_member(const struct wire_member *member, const char *where, const struct arena *arena,
                                        struct buf *message)
{
    if (arena->refused)
        return PERMIT_NO_MEMORY;
    buf_printf(message, "%s%s must be %s", where, member->name, member->expected);
    return PERMIT_INVALID;
}

static enum permit_status read_members(struct json_object *object, const struct wire_table *table, const char *where,
                                       void *form, struct arena *arena, struct buf *message)
{
    json_object_object_foreach(object, name, value)
    {
        const struct wire_member *member = find_member(table, name);
        if (!member)
            return unknown_member(table, where, name, message);
        if (!value || !read_value(value, member, (char *)form + member->offset, arena))
            return refuse_member(member, where, arena, message);
        if (member->given_offset)
            *(bool *)((char *)form + member->given_offset) = true;
    }
    return PERMIT_OK;
}

enum permit_status wire_read(struct json_object *object, const struct wire_table *table, const char *where, void *form,
                             struct arena *arena, struct buf *message)
{
    buf_clear(message);
    if (!json_object_is_type(object, json_type_object)) {
        buf_printf(message, "%.*s must be an object", where[0] ? (int)strlen(where) - 1 : 0, where);
        return PERMIT_INVALID;
    }
    enum permit_status status = read_members(object, table, where, form, arena, message);
    for (size_t i = 0; status == PERMIT_OK && i < table->count; i++) {
        if (table->members[i].required && !json_object_object_get_ex(object, table->members[i].name, NULL)) {
            buf_printf(message, "%s%s is missing; it must be %s", where, table->members[i].name,
                       table->members[i].expected);
            status = PERMIT_INVALID;
        }
    }
    return status;
}

enum permit_status wire_read_at(const struct json_object *list, size_t index, const struct wire_member *element,
                                const char *where, void *place, struct arena *arena, struct buf *message)
{
    struct json_object *value = json_object_array_get_idx(list, index);
    if (!value && element->type == WIRE_LABEL) {
        *(struct bytes *)place = (struct bytes){0};
        return PERMIT_OK;
    }
    if (value && read_value(value, element, place, arena))
        return PERMIT_OK;
    if (arena->refused)
        return PERMIT_NO_MEMORY;
    buf_printf(message, "%s[%zu] must be %s", where, index, element->expected);
    return PERMIT_INVALID;
}

size_t wire_list_length(const struct json_object *list)
{
    return json_object_array_length(list);
}

struct json_object *wire_list_at(const struct json_object *list, size_t index)
{
    return json_object_array_get_idx(list, index);
}

struct bytes wire_peek_text(struct json_object *object, const char *name)
{
    struct json_object *value;
    if (!json_object_is_type(object, json_type_object) || !json_object_object_get_ex(object, name, &value) ||
        !json_object_is_type(value, json_type_string))
        return (struct bytes){0};
    return text_of(value);
}
