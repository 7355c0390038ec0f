/* SPDX-License-Identifier: MIT */
/* The verb feed: prints the events behind a cursor, and with --follow those that come. */
#include "base/escape.h"
#include "cli/list_pages.h"

enum { CURSOR_MAX_BYTES = 64, LINE_MAX_BYTES = 64 * 1024 };
#define WAIT "3s" /* of one call, which may take longer: less than a third of its time-out */

/* Prints `28040550847-91  2026-11-21T09:14:31.123456Z  ended expired  cart-4711  hall:2 network:1  {"order":"4711"}`. */
static void print_event(struct json_object *event)
{
    static const char *const members[] = {"cursor", "at", "what", "end_reason", "external_id"};
    struct buf line;
    buf_init(&line, LINE_MAX_BYTES);
    for (size_t i = 0; i < ARRAY_LENGTH(members); i++) {
        const char *text = json_text_of(event, members[i]);
        if (text)
            buf_printf(&line, "%s%s", i == 0 ? "" : i == 3 ? " " : "  ", text);
    }
    for (size_t i = 0; i < json_length_of(event, "permits"); i++) {
        struct json_object *permit = json_item_of(event, "permits", i);
        const char *name = json_text_of(permit, "semaphore");
        buf_printf(&line, "%s%s:%lld", i ? " " : "  ", name ? name : "?", (long long)json_number_of(permit, "count"));
    }
    struct json_object *metadata = json_object_of(event, "metadata");
    buf_append_text(&line, metadata ? "  " : "");
    buf_append_text(&line, metadata ? json_string(metadata) : "");
    if (line.data)
        escape_control_chars(line.data, line.length);
    (void)printf("%s\n", buf_text(&line));
    buf_release(&line);
}

static void print_events(struct json_object *answer)
{
    for (size_t i = 0; i < json_length_of(answer, "events"); i++)
        print_event(json_item_of(answer, "events", i));
}

/* Prints the next page, and sets `after` to the cursor behind it. */
static int feed_page(struct cli *cli, const char *filters, bool wait, char after[CURSOR_MAX_BYTES], size_t *ret_count)
{
    struct buf path;
    buf_init(&path, CLI_PATH_MAX);
    buf_printf(&path, "/v1/feed?%slimit=1000&", filters);
    bool fits = list_add_parameter(&path, "after", *after ? after : NULL) &&
                list_add_parameter(&path, "wait", wait ? WAIT : NULL);
    int code = fits ? cli_finish(cli, permit_call(cli->client, "GET", buf_text(&path), NULL), print_events)
                    : cli_error(CLI_USAGE, "an option is too long");
    buf_release(&path);
    if (code)
        return code;
    (void)fflush(stdout);
    struct json_object *answer = json_read(permit_client_answer(cli->client));
    const char *next = json_text_of(answer, "next");
    bool good = next && strlen(next) < CURSOR_MAX_BYTES;
    if (good)
        (void)snprintf(after, CURSOR_MAX_BYTES, "%s", next);
    *ret_count = json_length_of(answer, "events");
    json_free(answer);
    return good ? CLI_OK : cli_error(CLI_REFUSED, "internal: the server's answer has no cursor");
}

int verb_feed(struct cli *cli)
{
    const struct cli_options *given = &cli->options;
    char after[CURSOR_MAX_BYTES] = "", before[CURSOR_MAX_BYTES];
    struct buf filters;
    size_t count = 0;
    int code = CLI_OK;
    if (given->after && strlen(given->after) >= sizeof after)
        return cli_error(CLI_USAGE, "--after %s: it is no cursor", given->after);
    (void)snprintf(after, sizeof after, "%s", given->after ? given->after : "");
    buf_init(&filters, CLI_PATH_MAX);
    bool fits = list_add_parameter(&filters, "semaphore", given->semaphore) &&
                list_add_parameter(&filters, "prefix", given->prefix) &&
                list_add_parameter(&filters, "owner", given->owner) &&
                list_add_parameter(&filters, "namespace", given->namespace);
    if (!fits)
        code = cli_error(CLI_USAGE, "an option is too long");
    do {
        memcpy(before, after, sizeof before);
        if (code == CLI_OK)
            code = feed_page(cli, buf_text(&filters), given->flags[FLAG_FOLLOW] && *after, after, &count);
    } while (code == CLI_OK && (given->flags[FLAG_FOLLOW] || count || strcmp(before, after) != 0));
    buf_release(&filters);
    return code;
}
