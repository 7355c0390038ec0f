/* SPDX-License-Identifier: MIT */
/* The verbs about templates: put, get, list, delete. */
#include "cli/list_pages.h"
#include "cli/semaphore_settings.h"

static void print_template(const char *body)
{
    static const struct json_column lines[] = {
        {"template", "prefix"},
        {"kind", "kind"},
        {"capacity", "capacity"},
    };
    json_print_lines(body, lines, ARRAY_LENGTH(lines));
    settings_print(body);
}

static void print_removed(const char *body)
{
    static const struct json_column lines[] = {{"template", "prefix"}};
    json_print_lines(body, lines, ARRAY_LENGTH(lines));
    (void)printf("%-14s yes\n", "removed");
}

int verb_template_put(struct cli *cli)
{
    return resource_send(cli, &resource_template, "PUT", "", settings_new(&cli->options), print_template);
}

int verb_template_get(struct cli *cli)
{
    return resource_call(cli, &resource_template, "GET", "", print_template);
}

int verb_template_delete(struct cli *cli)
{
    return resource_call(cli, &resource_template, "DELETE", "", print_removed);
}

int verb_template_list(struct cli *cli)
{
    static const struct json_column columns[] = {
        {"PREFIX", "prefix"},      {"KIND", "kind"},   {"CAPACITY", "capacity"}, {"DEFAULT TTL", "default_ttl_ms"},
        {"MAX TTL", "max_ttl_ms"}, {"QUEUE", "queue"}, {"NOTE", "note"}};
    static const struct list_view view = {"templates", columns, ARRAY_LENGTH(columns)};
    char path[CLI_PATH_MAX];
    return list_path("/v1/templates", cli->options.prefix, path) ? list_print(cli, path, &view) : CLI_USAGE;
}
