/* SPDX-License-Identifier: MIT */
/* Lists that come in pages: fetched whole, printed as a table or as one JSON object. */
#ifndef CLI_LISTS_H
#define CLI_LISTS_H

#include "cli/cli.h"
#include "cli/json.h"

enum { CLI_PATH_MAX = 4096 };

/* A list: where it is, what its rows are called, and its columns. */
struct list_view {
    const char *member;
    const struct json_column *columns;
    size_t column_count;
};

/* Writes "<before>WORD<after>", WORD percent-encoded. False: too long, or an empty word. */
bool path_write(const char *before, const char *word, const char *after, char path[CLI_PATH_MAX]) MUST_CHECK;
/* Appends "name=value&", value percent-encoded; nothing for NULL. False: the path is full. */
bool list_add_parameter(struct buf *path, const char *name, const char *value) MUST_CHECK;
/*
 * Writes "LIST?prefix=TEXT&", or "LIST?" without a prefix (NULL): a list of what begins so. False: the prefix is longer
 * than any name; a complaint has been written.
 */
bool list_path(const char *list, const char *prefix, char path[CLI_PATH_MAX]) MUST_CHECK;
/*
 * Asks for page after page of the list, --limit rows at most. `path` ends in a query to which more is added. *ret_pages
 * is freed with json_pages_free, whatever is returned.
 */
enum permit_status list_fetch(struct cli *cli, const char *path, const char *member,
                              struct json_pages **ret_pages) MUST_CHECK;
/* `path` ends in a query to which more is added: "/v1/semaphores?" or "...?prefix=a&". The exit status. */
int list_print(struct cli *cli, const char *path, const struct list_view *view);
#endif
