/* SPDX-License-Identifier: MIT */
#include "client/json.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>

#include "permit/permit.h"

enum { JSON_DEPTH = 32, TEXT_FLAGS = JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE };

/* Largest integer that every JSON parser represents exactly. */
#define NUMBER_MAX (1LL << 53)

/* ---- Reading ---- */

struct json_object *json_read(const char *body)
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

void json_free(struct json_object *whole)
{
    json_object_put(whole);
}

enum json_kind json_kind(struct json_object *value)
{
    switch (json_object_get_type(value)) {
    case json_type_null: return JSON_NULL;
    case json_type_boolean: return JSON_BOOL;
    case json_type_int:
    case json_type_double: return JSON_NUMBER;
    case json_type_string: return JSON_TEXT;
    case json_type_array: return JSON_ARRAY;
    case json_type_object: break;
    }
    return JSON_OBJECT;
}

const char *json_string(struct json_object *value)
{
    return json_object_get_string(value);
}

bool json_is_true(struct json_object *value)
{
    return json_object_is_type(value, json_type_boolean) && json_object_get_boolean(value);
}

size_t json_length(struct json_object *value)
{
    if (json_object_is_type(value, json_type_object))
        return (size_t)json_object_object_length(value);
    return json_object_is_type(value, json_type_array) ? json_object_array_length(value) : 0;
}

struct json_object *json_item(struct json_object *array, size_t index)
{
    /* json-c aborts if the value is no array */
    return json_object_is_type(array, json_type_array) ? json_object_array_get_idx(array, index) : NULL;
}

bool json_has(struct json_object *object, const char *member)
{
    return json_object_object_get_ex(object, member, NULL);
}

struct json_object *json_member(struct json_object *object, const char *member)
{
    struct json_object *value = NULL;
    (void)json_object_object_get_ex(object, member, &value);
    return value;
}

/* Returns the member if it has that type, else NULL. */
static struct json_object *member_of(struct json_object *object, const char *member, enum json_type type)
{
    struct json_object *value = json_member(object, member);
    return json_object_is_type(value, type) ? value : NULL;
}

const char *json_text_of(struct json_object *object, const char *member)
{
    struct json_object *value = member_of(object, member, json_type_string);
    return value ? json_object_get_string(value) : NULL;
}

int64_t json_integer_of(struct json_object *object, const char *member, int64_t otherwise)
{
    struct json_object *value = member_of(object, member, json_type_int);
    return value ? json_object_get_int64(value) : otherwise;
}

int64_t json_number_of(struct json_object *object, const char *member)
{
    return max_i64(-NUMBER_MAX, min_i64(json_integer_of(object, member, 0), NUMBER_MAX));
}

bool json_true_of(struct json_object *object, const char *member)
{
    return json_is_true(json_member(object, member));
}

struct json_object *json_object_of(struct json_object *object, const char *member)
{
    return member_of(object, member, json_type_object);
}

struct json_object *json_array_of(struct json_object *object, const char *member)
{
    return member_of(object, member, json_type_array);
}

size_t json_length_of(struct json_object *object, const char *member)
{
    return json_length(json_array_of(object, member));
}

struct json_object *json_item_of(struct json_object *object, const char *member, size_t index)
{
    return json_item(json_array_of(object, member), index);
}

const char *json_item_text(struct json_object *object, const char *member, size_t index)
{
    struct json_object *item = json_item_of(object, member, index);
    return json_object_is_type(item, json_type_string) ? json_object_get_string(item) : "";
}

int64_t json_item_number(struct json_object *object, const char *member, size_t index)
{
    struct json_object *item = json_item_of(object, member, index);
    return json_object_is_type(item, json_type_int) ? json_object_get_int64(item) : 0;
}

/* ---- Writing ---- */

struct json_writer {
    struct json_object *object;
    bool broken;
};

struct json_writer *json_writer_from(const char *body)
{
    struct json_writer *writer = calloc(1, sizeof(*writer));
    if (!writer)
        return NULL;
    writer->object = json_read(body);
    writer->broken = !writer->object;
    return writer;
}

struct json_writer *json_writer_new(void)
{
    return json_writer_from("{}");
}

static void add(struct json_writer *writer, const char *name, struct json_object *value)
{
    if (writer && !writer->broken && value && json_object_object_add(writer->object, name, value) == 0)
        return;
    json_object_put(value);
    if (writer)
        writer->broken = true;
}

void json_add_body(struct json_writer *writer, const char *name, const char *body)
{
    add(writer, name, json_read(body));
}

void json_add_text(struct json_writer *writer, const char *name, const char *text)
{
    if (text)
        add(writer, name, json_object_new_string(text));
}

void json_add_number(struct json_writer *writer, const char *name, int64_t number)
{
    if (number != JSON_ABSENT)
        add(writer, name, json_object_new_int64(number));
}

void json_add_duration(struct json_writer *writer, const char *name, int64_t ms)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%lldms", (long long)ms);
    if (ms != JSON_ABSENT)
        json_add_text(writer, name, ms == PERMIT_TTL_NONE ? "none" : ms == PERMIT_TTL_OWNER ? "owner" : text);
}

void json_add_bool(struct json_writer *writer, const char *name, bool value)
{
    add(writer, name, json_object_new_boolean(value));
}

void json_add_items(struct json_writer *writer, const char *name)
{
    add(writer, name, json_object_new_array());
}

/* Appends the value, whose reference it takes over. `good` false: there was no memory for it. */
static void append(struct json_writer *writer, const char *name, struct json_object *value, bool good)
{
    struct json_object *array = writer && !writer->broken ? json_array_of(writer->object, name) : NULL;
    if (good && array && json_object_array_add(array, value) == 0)
        return;
    json_object_put(value);
    if (writer)
        writer->broken = true;
}

void json_append_text(struct json_writer *writer, const char *name, const char *text)
{
    struct json_object *value = text ? json_object_new_string(text) : NULL;
    append(writer, name, value, value || !text);
}

void json_add_texts(struct json_writer *writer, const char *name, const char *const *texts, size_t count)
{
    if (count)
        json_add_items(writer, name);
    for (size_t i = 0; i < count; i++)
        json_append_text(writer, name, *texts[i] ? texts[i] : NULL);
}

void json_append_number(struct json_writer *writer, const char *name, int64_t number)
{
    struct json_object *value = json_object_new_int64(number);
    append(writer, name, value, value);
}

void json_add_item(struct json_writer *writer, const char *name, struct json_writer *item)
{
    struct json_object *value = json_object_get(json_written(item));
    append(writer, name, value, value);
}

void json_append_value(struct json_writer *writer, const char *name, struct json_object *value)
{
    append(writer, name, json_object_get(value), true);
}

struct json_object *json_written(struct json_writer *writer)
{
    return writer && !writer->broken ? writer->object : NULL;
}

const char *json_text(struct json_writer *writer)
{
    struct json_object *object = json_written(writer);
    return object ? json_object_to_json_string_ext(object, TEXT_FLAGS) : NULL;
}

void json_writer_free(struct json_writer *writer)
{
    if (!writer)
        return;
    json_object_put(writer->object);
    free(writer);
}
