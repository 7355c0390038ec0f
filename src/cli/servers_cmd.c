/* SPDX-License-Identifier: MIT */
/* The verb servers: tries each URL of a list, and lists the permitd that run on the database. */
#include <stdlib.h>

#include "cli/json_print.h"
#include "cli/resource.h"

enum { REASON_MAX = 4096 };

static void print_servers(struct json_object *answer)
{
    static const struct json_column columns[] = {{"ID", "id"},       {"ADDRESS", "address"}, {"VERSION", "version"},
                                                 {"SINCE", "since"}, {"SEEN", "seen_at"},    {"WAITING", "waiting"},
                                                 {"ALIVE", "alive"}, {"THIS", "this"}};
    json_print_table(answer, "servers", columns, ARRAY_LENGTH(columns), 0);
}

/* Tries one URL, and adds its row. Returns true if a permitd answers there, and its database serves. */
static bool add_url(const struct cli *cli, const char *url, struct json_writer *writer)
{
    struct server_options one = cli->found;
    struct permit_client *client = NULL;
    struct json_writer *item = json_writer_new();
    struct buf reason;
    buf_init(&reason, REASON_MAX);
    one.client.url = url;
    one.client.retry_ms = -1;
    enum permit_status status = PERMIT_INTERNAL;
    if (server_options_connect(&one, &client) == CLI_OK) {
        status = permit_call(client, "GET", "/readyz", NULL);
        json_add_text(item, "url", permit_client_url(client));
        json_add_bool(item, "ready", status == PERMIT_OK);
        if (status != PERMIT_OK) {
            /* "no_server: Connection refused", without the URL that begins the message of a failed connection. */
            const char *message = permit_client_message(client);
            size_t length = strlen(permit_client_url(client));
            if (strncmp(message, permit_client_url(client), length) == 0 && message[length] == ':')
                message += length + strspn(message + length, ": ");
            buf_printf(&reason, "%s: %s", permit_status_word(status), message);
            json_add_text(item, "reason", buf_text(&reason));
        }
        json_add_item(writer, "urls", item);
    }
    permit_client_free(client);
    json_writer_free(item);
    buf_release(&reason);
    return status == PERMIT_OK;
}

/* Tries each URL, and prints their rows with the answer. */
static int finish_with_urls(struct cli *cli, enum permit_status status)
{
    static const struct json_column columns[] = {{"URL", "url"}, {"READY", "ready"}, {"REASON", "reason"}};
    bool is_answered = status == PERMIT_OK;
    struct json_writer *writer = is_answered ? json_writer_from(permit_client_answer(cli->client)) : json_writer_new();
    int code = CLI_OK;
    char *list = strdup(cli->found.client.url);
    char *rest = list;
    json_add_items(writer, "urls");
    for (char *url; (url = strsep(&rest, ","));)
        if (!add_url(cli, url, writer))
            code = CLI_NO_SERVER;
    struct json_object *answer = json_written(writer);
    const char *body = list ? json_text(writer) : NULL;
    if (!body) {
        code = cli_error(CLI_NO_START, "out of memory");
    } else if (!cli->options.flags[FLAG_JSON]) {
        json_print_table(answer, "urls", columns, ARRAY_LENGTH(columns), 0);
        if (is_answered) {
            (void)putchar('\n');
            print_servers(answer);
        }
    } else if (is_answered) {
        json_print_text(body);
    }
    json_writer_free(writer);
    free(list);
    return is_answered ? code : cli_fail(cli, status);
}

int verb_servers(struct cli *cli)
{
    const char *url = cli->found.client.url;
    enum permit_status status = permit_call(cli->client, "GET", "/v1/servers", NULL);
    bool is_list = url && strchr(url, ',');
    return is_list ? finish_with_urls(cli, status) : cli_finish(cli, status, print_servers);
}
