/* SPDX-License-Identifier: MIT */
/* The verbs about semaphores: put, get, list, delete, holders, fence check. */
#include <inttypes.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/json.h"

enum { PATH_MAX_BYTES = 4096, NEXT_MAX_BYTES = 1024, PAGE_ROWS = 1000 };

static void print_semaphore(const char *body)
{
    static const struct json_column lines[] = {
        {"semaphore", "name"},        {"kind", "kind"},           {"capacity", "capacity"},
        {"in use", "in_use"},         {"available", "available"}, {"waiting", "waiting"},
        {"next token", "next_token"}, {"floor", "floor"},         {"default ttl ms", "default_ttl_ms"},
        {"max ttl ms", "max_ttl_ms"}, {"grace ms", "grace_ms"},   {"max hold ms", "max_hold_ms"},
        {"queue", "queue"},           {"note", "note"},
    };
    json_print_lines(body, lines, ARRAY_LENGTH(lines));
}

static void print_nothing(const char *body)
{
    (void)body;
}

/* Writes "/v1/semaphores/NAME<suffix>". */
static void semaphore_path(const char *name, const char *suffix, char path[PATH_MAX_BYTES])
{
    char encoded[PATH_MAX_BYTES / 2] = "";
    (void)permit_path_encode(name, encoded, sizeof(encoded));
    (void)snprintf(path, PATH_MAX_BYTES, "/v1/semaphores/%s%s", encoded, suffix);
}

/* One call about one semaphore. */
static int call(struct cli *cli, const char *method, const char *suffix, const char *body, void (*print)(const char *))
{
    char path[PATH_MAX_BYTES];
    if (!*cli->words[0])
        return cli_complain(CLI_USAGE, "the name is empty");
    semaphore_path(cli->words[0], suffix, path);
    return cli_finish(cli, permit_call(cli->client, method, path, body), print);
}

int verb_semaphore_put(struct cli *cli)
{
    const struct cli_options *given = &cli->options;
    struct json_writer *writer = json_writer_new();
    json_add_number(writer, "capacity", given->capacity);
    json_add_text(writer, "kind", given->kind);
    json_add_duration(writer, "default_ttl", given->default_ttl_ms);
    json_add_duration(writer, "max_ttl", given->max_ttl_ms);
    json_add_duration(writer, "grace", given->grace_ms);
    json_add_duration(writer, "max_hold", given->max_hold_ms);
    json_add_text(writer, "queue", given->queue);
    json_add_text(writer, "note", given->note);
    const char *body = json_text(writer);
    int code = body ? call(cli, "PUT", "", body, print_semaphore) : cli_complain(CLI_NO_START, "no memory");
    json_writer_free(writer);
    return code;
}

int verb_semaphore_get(struct cli *cli)
{
    return call(cli, "GET", "", NULL, print_semaphore);
}

int verb_semaphore_delete(struct cli *cli)
{
    return call(cli, "DELETE", "", NULL, print_nothing);
}

static void print_fence(const char *body)
{
    static const struct json_column lines[] = {
        {"token", "token"}, {"live", "live"}, {"state", "state"}, {"ended as", "end_reason"}, {"floor", "floor"}};
    json_print_lines(body, lines, ARRAY_LENGTH(lines));
}

int verb_fence_check(struct cli *cli)
{
    char *end;
    uint64_t token = strtoull(cli->words[1], &end, 10);
    struct permit_fence fence = {.live = false};
    if (cli->words[1][0] < '0' || cli->words[1][0] > '9' || *end)
        return cli_complain(CLI_USAGE, "%s: expected a token, which is a number", cli->words[1]);
    enum permit_status status =
        permit_fence_check(cli->client, cli->words[0], token, (uint32_t)cli->options.slot, &fence);
    int code = cli_finish(cli, status, print_fence);
    return code == CLI_OK && !fence.live ? CLI_LOST : code;
}

/* ---- Lists ---- */

/* A list: where it is, what its rows are called, and its columns. */
struct list_view {
    const char *member;
    const struct json_column *columns;
    size_t column_count;
};

/* Asks for page after page. `path` has a query already. */
static enum permit_status fetch(struct cli *cli, const char *path, const char *member, struct json_pages **pages)
{
    char next[NEXT_MAX_BYTES] = "";
    int64_t limit = cli->options.limit == CLI_UNSET ? INT64_MAX : cli->options.limit;
    do {
        char encoded[NEXT_MAX_BYTES * 3] = "";
        char page[2 * PATH_MAX_BYTES];
        int64_t have = *pages ? (int64_t)json_pages_count(*pages, member) : 0;
        (void)permit_path_encode(next, encoded, sizeof(encoded));
        (void)snprintf(page, sizeof(page), "%slimit=%" PRId64 "%s%s", path, min_i64(limit - have, PAGE_ROWS),
                       *next ? "&after=" : "", encoded);
        enum permit_status status = permit_call(cli->client, "GET", page, NULL);
        if (status)
            return status;
        if (!json_pages_add(pages, permit_client_answer(cli->client), member, next, sizeof(next)))
            return PERMIT_INTERNAL;
    } while (*next && (int64_t)json_pages_count(*pages, member) < limit);
    return PERMIT_OK;
}

static int list(struct cli *cli, const char *path, const struct list_view *view)
{
    struct json_pages *pages = NULL;
    enum permit_status status = fetch(cli, path, view->member, &pages);
    if (!status && cli->options.json)
        (void)printf("%s\n", json_pages_text(pages));
    else if (!status)
        json_print_table(json_pages_text(pages), view->member, view->columns, view->column_count);
    json_pages_free(pages);
    return status ? cli_fail(cli, status) : CLI_OK;
}

int verb_semaphore_list(struct cli *cli)
{
    static const struct json_column columns[] = {
        {"NAME", "name"},     {"KIND", "kind"},           {"CAPACITY", "capacity"},
        {"IN USE", "in_use"}, {"AVAILABLE", "available"}, {"NEXT TOKEN", "next_token"},
        {"NOTE", "note"}};
    static const struct list_view view = {"semaphores", columns, ARRAY_LENGTH(columns)};
    char prefix[NEXT_MAX_BYTES] = "";
    char path[PATH_MAX_BYTES];
    const char *wanted = cli->options.prefix ? cli->options.prefix : "";
    if (strlen(wanted) > NEXT_MAX_BYTES / 3 - 1)
        return cli_complain(CLI_USAGE, "--prefix: longer than any name");
    (void)permit_path_encode(wanted, prefix, sizeof(prefix));
    (void)snprintf(path, sizeof(path), "/v1/semaphores?%s%s%s", *prefix ? "prefix=" : "", prefix, *prefix ? "&" : "");
    return list(cli, path, &view);
}

int verb_holders(struct cli *cli)
{
    static const struct json_column columns[] = {
        {"TOKEN", "token"},       {"COUNT", "count"},        {"SLOTS", "slots"},     {"OWNER", "owner"},
        {"SINCE", "acquired_at"}, {"EXPIRES", "expires_at"}, {"OVERDUE", "overdue"}, {"KEY", "external_id"}};
    static const struct list_view view = {"holders", columns, ARRAY_LENGTH(columns)};
    char path[PATH_MAX_BYTES];
    if (!*cli->words[0])
        return cli_complain(CLI_USAGE, "the name is empty");
    semaphore_path(cli->words[0], "/holders?", path);
    return list(cli, path, &view);
}
