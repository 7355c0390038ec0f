/* SPDX-License-Identifier: MIT */
#include "cli/list_pages.h"

#include <inttypes.h>

enum { NEXT_MAX_BYTES = 1024, PAGE_ROWS = 1000 };

bool list_add_parameter(struct buf *path, const char *name, const char *value)
{
    char encoded[1024];
    if (!value)
        return true;
    if (*value && !permit_path_encode(value, encoded, sizeof(encoded)))
        return false;
    buf_printf(path, "%s=%s&", name, *value ? encoded : "");
    return !path->broken;
}

bool list_path(const char *list, const struct cli_options *given, char path[CLI_PATH_MAX])
{
    char encoded[NEXT_MAX_BYTES] = "";
    const char *state = given->state ? given->state : "";
    const char *prefix = given->prefix ? given->prefix : "";
    if (strlen(prefix) > NEXT_MAX_BYTES / 3 - 1) {
        (void)cli_error(CLI_USAGE, "--prefix: at most 255 bytes");
        return false;
    }
    (void)permit_path_encode(prefix, encoded, sizeof(encoded));
    (void)snprintf(path, CLI_PATH_MAX, "%s?%s%s%s%s%s%s", list, *state ? "state=" : "", state, *state ? "&" : "",
                   given->prefix ? "prefix=" : "", encoded, given->prefix ? "&" : "");
    return true;
}

enum permit_status list_fetch(struct cli *cli, const char *path, const char *member, struct json_writer **ret_pages)
{
    char next[NEXT_MAX_BYTES] = "";
    int64_t limit = cli->options.limit == CLI_UNSET ? INT64_MAX : cli->options.limit;
    do {
        char encoded[NEXT_MAX_BYTES * 3] = "";
        char page[2 * CLI_PATH_MAX];
        int64_t have = *ret_pages ? (int64_t)json_length_of(json_written(*ret_pages), member) : 0;
        (void)permit_path_encode(next, encoded, sizeof(encoded));
        (void)snprintf(page, sizeof(page), "%slimit=%" PRId64 "%s%s", path, min_i64(limit - have, PAGE_ROWS),
                       *next ? "&after=" : "", encoded);
        enum permit_status status = permit_call(cli->client, "GET", page, NULL);
        if (status)
            return status;
        char before[NEXT_MAX_BYTES];
        memcpy(before, next, sizeof(before));
        if (!json_pages_add(ret_pages, permit_client_answer(cli->client), member, next, sizeof(next)))
            return PERMIT_INTERNAL; /* it is no list */
        if (*next && strcmp(before, next) == 0)
            return PERMIT_INTERNAL; /* the next page begins where this one did */
    } while (*next && (int64_t)json_length_of(json_written(*ret_pages), member) < limit);
    return PERMIT_OK;
}

int list_print(struct cli *cli, const char *path, const struct list_view *view)
{
    struct json_writer *pages = NULL;
    enum permit_status status = list_fetch(cli, path, view->member, &pages);
    if (!status && cli->options.flags[FLAG_JSON])
        json_print_text(json_text(pages));
    else if (!status)
        json_print_table(json_written(pages), view->member, view->columns, view->column_count, 0);
    json_writer_free(pages);
    if (status == PERMIT_INTERNAL && !*permit_client_message(cli->client))
        return cli_error(cli_exit_of(cli, status), "internal: the server's list cannot be read, or does not go on");
    return status ? cli_fail(cli, status) : CLI_OK;
}
