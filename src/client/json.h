/* SPDX-License-Identifier: MIT */
/*
 * JSON of the client side, read as values and written member by member. The only file of libpermit and permitctl that
 * uses json-c.
 */
#ifndef CLIENT_JSON_H
#define CLIENT_JSON_H

#include "base/base.h"

/* ---- Reading ---- */

/* A value of a body. NULL stands for null, and for a value that is missing; it is an empty object to all functions. */
struct json_object;

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_TEXT, JSON_ARRAY, JSON_OBJECT };

/* Parses a body. NULL: not one JSON object, or out of memory. json_free frees it with its values, and accepts NULL. */
struct json_object *json_read(const char *body);
void json_free(struct json_object *whole);

enum json_kind json_kind(struct json_object *value);
/* Returns a text as it is, and any other value as JSON. */
const char *json_string(struct json_object *value);
bool json_is_true(struct json_object *value);
/* Returns the number of members of an object, or values of an array; 0: neither. */
size_t json_length(struct json_object *value);
/* Returns a value of an array. */
struct json_object *json_item(struct json_object *array, size_t index);

/* Returns true if the object has the member, even if it is null. */
bool json_has(struct json_object *object, const char *member);
struct json_object *json_member(struct json_object *object, const char *member);
/* Returns NULL if the member is missing or no text. */
const char *json_text_of(struct json_object *object, const char *member);
/* Returns `otherwise` if the member is missing or no whole number. */
int64_t json_integer_of(struct json_object *object, const char *member, int64_t otherwise);
/*
 * Returns 0 if the member is missing or no whole number. Clamps to 2^53 in either direction, so that a few numbers can
 * be added up.
 */
int64_t json_number_of(struct json_object *object, const char *member);
bool json_true_of(struct json_object *object, const char *member);
/* Returns NULL if the member is missing or no object. */
struct json_object *json_object_of(struct json_object *object, const char *member);
/* Returns NULL if the member is missing or no array. */
struct json_object *json_array_of(struct json_object *object, const char *member);
/* Returns the number of values in the array; 0: the member is missing. */
size_t json_length_of(struct json_object *object, const char *member);
struct json_object *json_item_of(struct json_object *object, const char *member, size_t index);
/* Returns the text at this index of the array; "" if there is none. */
const char *json_item_text(struct json_object *object, const char *member, size_t index);
/* Returns the whole number at this index of the array; 0 if there is none. */
int64_t json_item_number(struct json_object *object, const char *member, size_t index);

/* ---- Writing ---- */

#define JSON_ABSENT INT64_MIN /* a number or duration that is left out */

/* An object under construction. After a failure every call does nothing, and json_text returns NULL. */
struct json_writer;
struct json_writer *json_writer_new(void);
/* Starts from the object in the body. An added member replaces one of the same name. */
struct json_writer *json_writer_from(const char *body);
void json_add_text(struct json_writer *writer, const char *name, const char *text); /* NULL: left out */
void json_add_number(struct json_writer *writer, const char *name, int64_t number);
/* Adds "30000ms", "none" for PERMIT_TTL_NONE, or "owner" for PERMIT_TTL_OWNER. */
void json_add_duration(struct json_writer *writer, const char *name, int64_t ms);
void json_add_bool(struct json_writer *writer, const char *name, bool value);
/* Adds an array of texts: null for "". Adds nothing if count is 0. */
void json_add_texts(struct json_writer *writer, const char *name, const char *const *texts, size_t count);
/* Adds the object in the body. A body that is no object is a failure. */
void json_add_body(struct json_writer *writer, const char *name, const char *body);
/* json_add_items adds an empty array. The others append a value to it. */
void json_add_items(struct json_writer *writer, const char *name);
void json_append_text(struct json_writer *writer, const char *name, const char *text); /* NULL: null */
void json_append_number(struct json_writer *writer, const char *name, int64_t number);
/* Appends the object that `item` holds. */
void json_add_item(struct json_writer *writer, const char *name, struct json_writer *item);
/* Appends a value that was read, which may be freed afterwards. */
void json_append_value(struct json_writer *writer, const char *name, struct json_object *value);
/* Returns the object, which the writer owns; NULL after a failure, and for NULL. */
struct json_object *json_written(struct json_writer *writer);
/* Valid until the next call with the writer. */
const char *json_text(struct json_writer *writer);
void json_writer_free(struct json_writer *writer);
#endif
