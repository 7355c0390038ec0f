/* SPDX-License-Identifier: MIT */
/* The verbs about owners: beat, show, gone. */
#include "cli/json_print.h"
#include "cli/resource.h"

enum { BEAT_TTL_MS = 30000 };

static void print_owner(struct json_object *answer)
{
    static const struct json_column lines[] = {
        {"owner", "owner"},        {"namespace", "namespace"}, {"state", "state"},        {"ttl", "ttl_ms"},
        {"expires", "expires_at"}, {"lapsed", "lapsed_at"},    {"requests held", "held"}, {"suspect", "suspect"},
    };
    json_print_lines(answer, lines, ARRAY_LENGTH(lines));
}

int verb_owner_beat(struct cli *cli)
{
    int64_t ttl_ms = cli->options.ttl_ms == CLI_UNSET ? BEAT_TTL_MS : cli->options.ttl_ms;
    if (ttl_ms < 0)
        return cli_error(CLI_USAGE, "--ttl: a heartbeat counts for a time such as 30s");
    struct json_writer *body = json_writer_new();
    json_add_duration(body, "ttl", ttl_ms);
    return resource_send(cli, &resource_owner, "PUT", "", body, print_owner);
}

int verb_owner_show(struct cli *cli)
{
    return resource_call(cli, &resource_owner, "GET", "", print_owner);
}

int verb_owner_gone(struct cli *cli)
{
    return resource_call(cli, &resource_owner, "DELETE", "", print_owner);
}
