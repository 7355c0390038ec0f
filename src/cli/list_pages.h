/* SPDX-License-Identifier: MIT */
/* Lists that the server sends in pages: fetched whole, printed as a table or as one JSON object. */
#ifndef CLI_LIST_PAGES_H
#define CLI_LIST_PAGES_H

#include "cli/json_print.h"
#include "cli/resource.h"

/* How a list is printed: the member with its rows, and the columns. */
struct list_view {
    const char *member;
    const struct json_column *columns;
    size_t column_count;
};

/* Appends "name=value&" with the value percent-encoded; nothing for NULL. Returns false if the path is full. */
bool list_add_parameter(struct buf *path, const char *name, const char *value) MUST_CHECK;
/*
 * Writes "LIST?state=STATE&prefix=TEXT&", with the options that were given. Returns false, after an error message, if
 * the prefix is longer than any name.
 */
bool list_path(const char *list, const struct cli_options *given, char path[CLI_PATH_MAX]) MUST_CHECK;
/*
 * Fetches the list page by page, at most --limit rows. `path` ends in a query that can be extended. The caller frees
 * *ret_pages with json_writer_free, also after a failure.
 */
enum permit_status list_fetch(struct cli *cli, const char *path, const char *member,
                              struct json_writer **ret_pages) MUST_CHECK;
/*
 * Fetches and prints a list. `path` ends in a query that can be extended: "/v1/semaphores?" or "...?prefix=a&". Returns
 * the exit status.
 */
int list_print(struct cli *cli, const char *path, const struct list_view *view);
#endif
