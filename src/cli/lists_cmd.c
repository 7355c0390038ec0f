/* SPDX-License-Identifier: MIT */
/* The verbs that print a list of the server, all but requests: each is a row of the table. */
#include "cli/list_pages.h"

static const struct json_column semaphores[] = {{"NAME", "name"},
                                                {"KIND", "kind"},
                                                {"CAPACITY", "capacity"},
                                                {"IN USE", "in_use"},
                                                {"AVAILABLE", "available"},
                                                {"WAITING", "waiting"},
                                                {"NEXT TOKEN", "next_token"},
                                                {"PAUSED", "paused_reason"},
                                                {"NOTE", "note"}};

static const struct json_column events[] = {
    {"AT", "at"},   {"WHAT", "what"}, {"FROM", "from"}, {"TO", "to"}, {"NEXT TOKEN", "next_permit_id"},
    {"WHO", "who"}, {"WHY", "why"}};

static const struct json_column templates[] = {
    {"PREFIX", "prefix"},      {"KIND", "kind"},   {"CAPACITY", "capacity"}, {"DEFAULT TTL", "default_ttl_ms"},
    {"MAX TTL", "max_ttl_ms"}, {"QUEUE", "queue"}, {"NOTE", "note"}};

static const struct json_column sql_accounts[] = {{"USER", "user"}, {"NAMESPACE", "namespace"}};

static const struct json_column holders[] = {
    {"TOKEN", "token"},     {"COUNT", "count"},         {"SLOTS", "slots"},        {"LABELS", "labels"},
    {"OWNER", "owner"},     {"SINCE", "acquired_at"},   {"EXPIRES", "expires_at"}, {"OVERDUE", "overdue"},
    {"SUSPECT", "suspect"}, {"NAMESPACE", "namespace"}, {"KEY", "external_id"}};

static const struct json_column slots[] = {
    {"SLOT", "number"},         {"LABEL", "label"},         {"TOKEN", "token"},    {"EXPIRES", "expires_at"},
    {"CONFIRMED", "confirmed"}, {"NAMESPACE", "namespace"}, {"KEY", "external_id"}};

static const struct json_column waiters[] = {
    {"PLACE", "place"},     {"NAMESPACE", "namespace"}, {"KEY", "external_id"},  {"OWNER", "owner"},
    {"PERMITS", "permits"}, {"PRIORITY", "priority"},   {"WAITED", "waited_ms"}, {"UNTIL", "deadline"},
    {"SERVER", "server"},   {"KEPT", "kept"},           {"BEHIND", "behind"}};

/*
 * verb  path, of what the first word names  view: member, columns
 */
static const struct {
    const char *verb;
    const struct resource *of; /* NULL: of no word */
    const char *path;
    struct list_view view;
} lists[] = {
    {"semaphore list", NULL, "/v1/semaphores", {"semaphores", semaphores, ARRAY_LENGTH(semaphores)}},
    {"semaphore events", &resource_semaphore, "/events", {"events", events, ARRAY_LENGTH(events)}},
    {"template list", NULL, "/v1/templates", {"templates", templates, ARRAY_LENGTH(templates)}},
    {"sql-account list", NULL, "/v1/sql-accounts", {"sql_accounts", sql_accounts, ARRAY_LENGTH(sql_accounts)}},
    {"holders", &resource_semaphore, "/holders", {"holders", holders, ARRAY_LENGTH(holders)}},
    {"slots", &resource_semaphore, "/slots", {"slots", slots, ARRAY_LENGTH(slots)}},
    {"waiters", &resource_semaphore, "/waiters", {"waiters", waiters, ARRAY_LENGTH(waiters)}},
};

int verb_list(struct cli *cli)
{
    size_t i = 0;
    while (strcmp(lists[i].verb, cli->verb->name) != 0)
        i++;
    char list[CLI_PATH_MAX] = "", path[CLI_PATH_MAX];
    if (lists[i].of && !resource_path(cli, lists[i].of, lists[i].path, list))
        return CLI_USAGE;
    if (!list_path(lists[i].of ? list : lists[i].path, &cli->options, path))
        return CLI_USAGE;
    return list_print(cli, path, &lists[i].view);
}
