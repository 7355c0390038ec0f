/* SPDX-License-Identifier: MIT */
/* JSON for permitctl: answers printed as tables, bodies written member by member. The only file here that speaks to
 * json-c. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdio.h>

#include "base/buf.h"
#include "permit/permit.h"

/* A column of a table, or a line of a description: a heading and the member that stands under it. */
struct json_column {
    const char *heading;
    const char *member; /* ..._ms is shown as 10m, what passes (..._in_ms, waited_ms) as span_format does, permits as
                           "backups network:3 hall(A1,A2)"; a column of labels, or of a slot's label, is left out
                           if no row has one */
};

/* One "heading  value" line for each member that is there. */
void json_print_lines(const char *body, const struct json_column *columns, size_t count);
/* A table of the array in `member` of the body, with headings. */
void json_print_table(const char *body, const char *member, const struct json_column *columns, size_t count);
/* A number in the body; 0 if it is not there. */
int64_t json_number(const char *body, const char *member);

/* ---- Reading value by value ---- */

struct json_object; /* borrowed from the whole, which json_read returns and json_free frees */
/* NULL: not JSON, or no memory; all of the following take that for an empty object. */
struct json_object *json_read(const char *body);
void json_free(struct json_object *whole);
/* NULL: it is not there, or no text. */
const char *json_text_of(struct json_object *object, const char *member);
/* 0: it is not there, or no number. Beyond 2^53 in either direction: that, so that a few can be added up. */
int64_t json_number_of(struct json_object *object, const char *member);
bool json_true_of(struct json_object *object, const char *member);
/* How many values the array has; 0: it is not there. */
size_t json_length_of(struct json_object *object, const char *member);
struct json_object *json_item_of(struct json_object *object, const char *member, size_t index);
/* The text at that place of the array; "" if it is none. */
const char *json_item_text(struct json_object *object, const char *member, size_t index);
/* As json_print_lines and json_print_table, of an object of the whole; `indent` spaces come before each line. */
void json_print_lines_of(struct json_object *object, const struct json_column *columns, size_t count);
void json_print_table_of(struct json_object *object, const char *member, const struct json_column *columns,
                         size_t count, int indent);

/*
 * Prints a line of JSON of somebody else's. Control characters, and what is not UTF-8, are escaped as in a string: it
 * means the same and does nothing to a terminal.
 */
void json_print_text(const char *text);
/* A problem of our own, when no server said one. */
void json_print_problem(enum permit_status status, const char *detail);

/*
 * Puts the array in `member` of one page behind that of another: `all` is NULL for the first page and owned by the
 * caller, who frees it with json_pages_free. *ret_next: where the next page begins, "" after the last. False: not such
 * a page, or no memory.
 */
struct json_pages;
bool json_pages_add(struct json_pages **all, const char *body, const char *member, char *ret_next, size_t size);
size_t json_pages_count(const struct json_pages *pages, const char *member);
/* The pages as one body; valid until the next call with them. */
const char *json_pages_text(struct json_pages *pages);
/* The pages as one value; theirs. NULL: no page yet. */
struct json_object *json_pages_read(struct json_pages *pages);
void json_pages_free(struct json_pages *pages);

/* An object that is being written; after a failure every call does nothing, and json_text returns NULL. */
struct json_writer;
struct json_writer *json_writer_new(void);
/* Goes on with the object that the body is; what is added takes the place of what has that name. */
struct json_writer *json_writer_from(const char *body);
void json_add_text(struct json_writer *writer, const char *name, const char *text); /* NULL: left out */
void json_add_number(struct json_writer *writer, const char *name, int64_t number); /* CLI_UNSET: left out */
void json_add_duration(struct json_writer *writer, const char *name, int64_t ms);   /* CLI_UNSET: left out */
/* NULL in place of "", and no array at all if there are none. */
void json_add_texts(struct json_writer *writer, const char *name, const char *const *texts, size_t count);
void json_add_bool(struct json_writer *writer, const char *name, bool value);
/* An array without items yet, and what `item` has written so far at its end. */
void json_add_items(struct json_writer *writer, const char *name);
void json_add_item(struct json_writer *writer, const char *name, struct json_writer *item);
void json_add_permits(struct json_writer *writer, const char *name, const struct permit_request *request);
/* Valid until json_writer_free. */
const char *json_text(struct json_writer *writer);
void json_writer_free(struct json_writer *writer);
#endif
