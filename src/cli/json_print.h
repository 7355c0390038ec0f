/* SPDX-License-Identifier: MIT */
/* Prints answers as lines and tables, and merges the pages of a list. */
#ifndef CLI_JSON_PRINT_H
#define CLI_JSON_PRINT_H

#include <stdio.h>

#include "base/buf.h"
#include "client/json.h"
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

/* Prints a "heading  value" line for each member that the answer has. */
void json_print_lines(struct json_object *answer, const struct json_column *columns, size_t count);
/* Prints the array in `member` of the answer as a table with headings; `indent` spaces precede each line. */
void json_print_table(struct json_object *answer, const char *member, const struct json_column *columns, size_t count,
                      int indent);
/* Returns a number in the body; 0 if it is missing. */
int64_t json_number(const char *body, const char *member);

/*
 * Prints a line of JSON that came from the server. Escapes control and format characters and invalid UTF-8 as in a
 * string: the meaning stays, and the terminal is safe from them.
 */
void json_print_text(const char *text);
/* Prints a problem made here, for a failure without an answer of a server. */
void json_print_problem(enum permit_status status, const char *detail);

/*
 * Appends the array in `member` of a page to that of *all. *all is NULL before the first page; the caller frees it with
 * json_writer_free. *ret_next: where the next page begins, "" after the last. Returns false if this is no such page, or
 * if out of memory.
 */
bool json_pages_add(struct json_writer **all, const char *body, const char *member, char *ret_next, size_t size);

void json_add_permits(struct json_writer *writer, const char *name, const struct permit_request *request);
#endif
