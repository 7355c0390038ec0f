/* SPDX-License-Identifier: MIT */
/* The verbs that print a list of the server, all but requests: each is a row of the table. */
#include <inttypes.h>

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
    {"SLOT", "number"},        {"LABEL", "label"},         {"SECTION", "section"},     {"ROW", "row"},
    {"SEAT", "seat"},          {"RANK", "rank"},           {"TAGS", "tags"},           {"TOKEN", "token"},
    {"EXPIRES", "expires_at"}, {"CONFIRMED", "confirmed"}, {"NAMESPACE", "namespace"}, {"KEY", "external_id"}};

static const struct json_column waiters[] = {
    {"PLACE", "place"},     {"NAMESPACE", "namespace"}, {"KEY", "external_id"},  {"OWNER", "owner"},
    {"PERMITS", "permits"}, {"PRIORITY", "priority"},   {"WAITED", "waited_ms"}, {"UNTIL", "deadline"},
    {"SERVER", "server"},   {"KEPT", "kept"},           {"BEHIND", "behind"}};

static const struct json_column availability[] = {
    {"NAME", "name"}, {"AVAILABLE", "available"}, {"WAITING", "waiting"}, {"VERSION", "version"}};

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

static void print_report(struct json_object *answer)
{
    static const struct json_column lines[] = {{"semaphore", "semaphore"},
                                               {"from", "from"},
                                               {"to", "to"},
                                               {"complete", "complete"},
                                               {"read from", "read_from"},
                                               {"capacity", "capacity"},
                                               {"in use now", "in_use"},
                                               {"average in use", "average_in_use"},
                                               {"grants", "grants"},
                                               {"units", "units"},
                                               {"grants after a wait", "waited"},
                                               {"median wait", "wait_median_ms"},
                                               {"95 % wait at most", "wait_p95_ms"},
                                               {"longest wait", "wait_longest_ms"},
                                               {"confirmed", "confirmed"},
                                               {"median hold", "hold_median_ms"},
                                               {"95 % hold at most", "hold_p95_ms"},
                                               {"longest hold", "hold_longest_ms"},
                                               {"not recorded", "not_recorded"}};
    static const struct json_column ended[] = {{"ENDED AS", "end_reason"}, {"COUNT", "count"}};
    static const struct json_column use[] = {{"FROM", "from"}, {"AVERAGE IN USE", "average_in_use"}};
    static const struct json_column owners[] = {{"OWNER", "owner"},
                                                {"NAMESPACE", "namespace"},
                                                {"GRANTS", "grants"},
                                                {"UNITS", "units"},
                                                {"AVERAGE IN USE", "average_in_use"}};
    json_print_lines(answer, lines, ARRAY_LENGTH(lines));
    json_print_table(answer, "ended", ended, ARRAY_LENGTH(ended), 0);
    json_print_table(answer, "owners", owners, ARRAY_LENGTH(owners), 0);
    json_print_table(answer, "use", use, ARRAY_LENGTH(use), 0);
}

int verb_report(struct cli *cli)
{
    char path[CLI_PATH_MAX], after[64] = "/report";
    int64_t since_ms = cli->options.since_ms;
    if (since_ms != CLI_UNSET)
        (void)snprintf(after, sizeof(after), "/report?since=%" PRId64 "ms", since_ms);
    if (!cli->options.semaphore || !path_write("/v1/semaphores/", cli->options.semaphore, after, path))
        return cli_error(CLI_USAGE, "report needs -s NAME, of 1 to 255 bytes");
    return cli_finish(cli, permit_call(cli->client, "GET", path, NULL), print_report);
}

static void print_availability(struct json_object *answer)
{
    json_print_table(answer, "semaphores", availability, ARRAY_LENGTH(availability), 0);
}

int verb_availability(struct cli *cli)
{
    const struct list_view view = {"semaphores", availability, ARRAY_LENGTH(availability)};
    enum { PATH_MAX_BYTES = 16 * 1024 };
    char page[CLI_PATH_MAX];
    if (!cli->word_count == !cli->options.prefix || (cli->word_count && cli->options.limit != CLI_UNSET))
        return cli_error(CLI_USAGE, "availability needs names of semaphores, or --prefix TEXT, which may have --limit");
    if (cli->options.prefix)
        return list_path("/v1/availability", &cli->options, page) ? list_print(cli, page, &view) : CLI_USAGE;
    struct buf path;
    buf_init(&path, PATH_MAX_BYTES);
    for (int i = 0; i < cli->word_count; i++) {
        buf_append_text(&path, i ? "," : "/v1/availability?semaphore=");
        if (permit_path_encode(cli->words[i], page, sizeof(page)) > 0)
            buf_append_text(&path, page);
    }
    int code = path.broken
                   ? cli_error(CLI_USAGE, "too many names for one call: use --prefix TEXT")
                   : cli_finish(cli, permit_call(cli->client, "GET", buf_text(&path), NULL), print_availability);
    buf_release(&path);
    return code;
}
