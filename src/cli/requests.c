/* SPDX-License-Identifier: MIT */
/* The verbs about one request: acquire, release, renew, show. */
#include "cli/cli.h"
#include "cli/json.h"
#include "cli/owner.h"

static void print_request(const char *body)
{
    static const struct json_column lines[] = {
        {"key", "external_id"},
        {"state", "state"},
        {"ended as", "end_reason"},
        {"owner", "owner"},
        {"replayed", "replayed"},
        {"acquired", "acquired_at"},
        {"expires", "expires_at"},
        {"overdue", "overdue"},
        {"confirmed", "confirmed_at"},
        {"ended", "ended_at"},
        {"ended before", "already_released"},
    };
    static const struct json_column permits[] = {
        {"SEMAPHORE", "semaphore"}, {"COUNT", "count"}, {"TOKEN", "token"}, {"SLOTS", "slots"}};
    json_print_lines(body, lines, ARRAY_LENGTH(lines));
    json_print_table(body, "permits", permits, ARRAY_LENGTH(permits));
}

int verb_acquire(struct cli *cli)
{
    const struct cli_options *given = &cli->options;
    char owner[OWNER_SIZE];
    struct permit_acquire_options options = {
        .external_id = given->id,
        .owner = given->owner || given->id ? given->owner : owner_default(owner),
        .permits = given->wants,
        .permit_count = given->want_count,
        .ttl_ms = given->ttl_ms == CLI_UNSET ? 0 : given->ttl_ms,
        .wait_ms = given->wait_ms == CLI_UNSET ? 0 : given->wait_ms,
    };
    struct permit_request *request = NULL;
    enum permit_status status = permit_acquire(cli->client, &options, &request);
    permit_request_free(request);
    return cli_finish(cli, status, print_request);
}

int verb_release(struct cli *cli)
{
    return cli_finish(cli, permit_release(cli->client, cli->words[0], NULL), print_request);
}

int verb_renew(struct cli *cli)
{
    int64_t ttl_ms = cli->options.ttl_ms == CLI_UNSET ? 0 : cli->options.ttl_ms;
    return cli_finish(cli, permit_renew(cli->client, cli->words[0], ttl_ms, NULL), print_request);
}

int verb_show(struct cli *cli)
{
    return cli_finish(cli, permit_show(cli->client, cli->words[0], NULL), print_request);
}
