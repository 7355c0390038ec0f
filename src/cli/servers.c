/* SPDX-License-Identifier: MIT */
/* The verb servers: lists the permitd that run on the database. */
#include "cli/cli.h"
#include "cli/json.h"

static void print_servers(const char *body)
{
    static const struct json_column columns[] = {{"ID", "id"},       {"ADDRESS", "address"}, {"VERSION", "version"},
                                                 {"SINCE", "since"}, {"SEEN", "seen_at"},    {"WAITING", "waiting"},
                                                 {"ALIVE", "alive"}, {"THIS", "this"}};
    json_print_table(body, "servers", columns, ARRAY_LENGTH(columns));
}

int verb_servers(struct cli *cli)
{
    return cli_finish(cli, permit_call(cli->client, "GET", "/v1/servers", NULL), print_servers);
}
