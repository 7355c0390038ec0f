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

/* `path` ends in a query to which more is added: "/v1/semaphores?" or "...?prefix=a&". The exit status. */
int list_print(struct cli *cli, const char *path, const struct list_view *view);
#endif
