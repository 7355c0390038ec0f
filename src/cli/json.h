/* SPDX-License-Identifier: MIT */
/*
 * JSON for permitctl: prints answers as tables, writes bodies member by member. The only file of permitctl that uses
 * json-c.
 */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdio.h>

#include "base/buf.h"
#include "permit/permit.h"

/*
 * A column of a table, or a line of a description: its heading and its member. Members that end in _ms are printed as
 * 10m; ages and times left (..._in_ms, waited_ms, oldest_wait_ms) by span_format; permits as "backups network:3
 * hall(A1,A2)". A table omits a column of labels, and that of kept places, if no row has one.
 */
struct json_column {
    const char *heading;
    const char *member;
};

/* Prints a "heading  value" line for each member that the body has. */
void json_print_lines(const char *body, const struct json_column *columns, size_t count);
/* Prints the array in `member` of the body as a table with headings. */
void json_print_table(const char *body, const char *member, const struct json_column *columns, size_t count);
/* Returns a number in the body; 0 if it is missing. */
int64_t json_number(const char *body, const char *member);

/* ---- Reading value by value ---- */

struct json_object; /* owned by the root that json_read returns; json_free frees it */
/* Parses a body. NULL: not JSON, or out of memory; the functions below treat NULL as an empty object. */
struct json_object *json_read(const char *body);
void json_free(struct json_object *whole);
/* Returns NULL if the member is missing or no text. */
const char *json_text_of(struct json_object *object, const char *member);
/*
 * Returns 0 if the member is missing or no number. Clamps to 2^53 in either direction, so that a few numbers can be
 * added up.
 */
int64_t json_number_of(struct json_object *object, const char *member);
bool json_true_of(struct json_object *object, const char *member);
/* Returns the number of values in the array; 0: the member is missing. */
size_t json_length_of(struct json_object *object, const char *member);
/* Returns NULL if the member is missing or no object. */
struct json_object *json_object_of(struct json_object *object, const char *member);
struct json_object *json_item_of(struct json_object *object, const char *member, size_t index);
/* Returns the text at this index of the array; "" if there is none. */
const char *json_item_text(struct json_object *object, const char *member, size_t index);
/*
 * Like json_print_lines and json_print_table, for an object of a parsed body; `indent` spaces precede each line of a
 * table.
 */
void json_print_lines_of(struct json_object *object, const struct json_column *columns, size_t count);
void json_print_table_of(struct json_object *object, const char *member, const struct json_column *columns,
                         size_t count, int indent);

/*
 * Prints a line of JSON that came from the server. Escapes control and format characters and invalid UTF-8 as in a
 * string: the meaning stays, and the terminal is safe from them.
 */
void json_print_text(const char *text);
/* Prints a problem made here, for a failure without an answer of a server. */
void json_print_problem(enum permit_status status, const char *detail);

/*
 * Appends the array in `member` of a page to *all. *all is NULL before the first page; the caller frees it with
 * json_pages_free. *ret_next: where the next page begins, "" after the last. Returns false if this is no such page, or
 * if out of memory.
 */
struct json_pages;
bool json_pages_add(struct json_pages **all, const char *body, const char *member, char *ret_next, size_t size);
size_t json_pages_count(const struct json_pages *pages, const char *member);
/* Returns the pages as one body, valid until the next call with them. */
const char *json_pages_text(struct json_pages *pages);
/* Returns the pages as one value, which they own. NULL: no page yet. */
struct json_object *json_pages_read(struct json_pages *pages);
void json_pages_free(struct json_pages *pages);

/* An object under construction. After a failure every call does nothing, and json_text returns NULL. */
struct json_writer;
struct json_writer *json_writer_new(void);
/* Starts from the object in the body. An added member replaces one of the same name. */
struct json_writer *json_writer_from(const char *body);
void json_add_text(struct json_writer *writer, const char *name, const char *text); /* NULL: left out */
void json_add_number(struct json_writer *writer, const char *name, int64_t number); /* CLI_UNSET: left out */
void json_add_duration(struct json_writer *writer, const char *name, int64_t ms);   /* CLI_UNSET: left out */
/* Adds an array of texts: null for "". Adds nothing if count is 0. */
void json_add_texts(struct json_writer *writer, const char *name, const char *const *texts, size_t count);
void json_add_bool(struct json_writer *writer, const char *name, bool value);
/* json_add_items adds an empty array. json_add_item appends the object that `item` holds to it. */
void json_add_items(struct json_writer *writer, const char *name);
void json_add_item(struct json_writer *writer, const char *name, struct json_writer *item);
void json_add_permits(struct json_writer *writer, const char *name, const struct permit_request *request);
/* Valid until json_writer_free. */
const char *json_text(struct json_writer *writer);
void json_writer_free(struct json_writer *writer);
#endif
