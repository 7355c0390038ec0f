/* SPDX-License-Identifier: MIT */
/* The verb webhooks: the URLs to which events of the feed are sent. */
#include "cli/json_print.h"
#include "cli/resource.h"

static void print_webhooks(struct json_object *answer)
{
    static const struct json_column columns[] = {
        {"WEBHOOK", "webhook"},    {"NAMESPACE", "namespace"}, {"BEHIND", "behind"},
        {"SINCE", "behind_since"}, {"FAILURES", "failures"},   {"HTTP", "http_status"},
        {"ERROR", "error"},        {"NEXT CALL", "retry_at"},  {"URL", "url"}};
    if (json_length_of(answer, "webhooks"))
        json_print_table(answer, "webhooks", columns, ARRAY_LENGTH(columns), 0);
    else
        (void)printf("no semaphore and no template names a URL\n");
}

int verb_webhooks(struct cli *cli)
{
    return cli_finish(cli, permit_call(cli->client, "GET", "/v1/webhooks", NULL), print_webhooks);
}
