/* SPDX-License-Identifier: MIT */
/* The verbs about owners: beat, show, gone. */
#include <inttypes.h>

#include "cli/cli.h"
#include "cli/json_print.h"

enum { PATH_MAX_BYTES = 2048, BODY_MAX_BYTES = 64, BEAT_TTL_MS = 30000 };

static void print_owner(const char *body)
{
    static const struct json_column lines[] = {
        {"owner", "owner"},        {"namespace", "namespace"}, {"state", "state"},        {"ttl", "ttl_ms"},
        {"expires", "expires_at"}, {"lapsed", "lapsed_at"},    {"requests held", "held"}, {"suspect", "suspect"},
    };
    json_print_lines(body, lines, ARRAY_LENGTH(lines));
}

static int call(struct cli *cli, const char *method, const char *body)
{
    char path[PATH_MAX_BYTES] = "/v1/owners/";
    char namespace[CLI_NAMESPACE_SIZE];
    size_t used = strlen(path);
    if (!permit_path_encode(cli->words[0], path + used, sizeof(path) - used - sizeof(namespace)))
        return cli_error(CLI_USAGE, "an owner has 1 to 255 bytes");
    cli_namespace_parameter(cli, '?', namespace);
    (void)strcat(path, namespace);
    return cli_finish(cli, permit_call(cli->client, method, path, body), print_owner);
}

int verb_owner_beat(struct cli *cli)
{
    char body[BODY_MAX_BYTES];
    int64_t ttl_ms = cli->options.ttl_ms == CLI_UNSET ? BEAT_TTL_MS : cli->options.ttl_ms;
    if (ttl_ms < 0)
        return cli_error(CLI_USAGE, "--ttl: a heartbeat counts for a time such as 30s");
    (void)snprintf(body, sizeof(body), "{\"ttl\":\"%" PRId64 "ms\"}", ttl_ms);
    return call(cli, "PUT", body);
}

int verb_owner_show(struct cli *cli)
{
    return call(cli, "GET", NULL);
}

int verb_owner_gone(struct cli *cli)
{
    return call(cli, "DELETE", NULL);
}
