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

/* Runs one call about the template. */
static int call(struct cli *cli, const char *method, const char *body, void (*print)(const char *))
{
    char path[CLI_PATH_MAX];
    if (!path_write("/v1/templates/", cli->words[0], "", path))
        return cli_error(CLI_USAGE, "the prefix must have 1 to 255 bytes");
    return cli_finish(cli, permit_call(cli->client, method, path, body), print);
}

int verb_template_put(struct cli *cli)
{
    struct json_writer *writer = settings_new(&cli->options);
    const char *body = json_text(writer);
    int code = body ? call(cli, "PUT", body, print_template) : cli_error(CLI_NO_START, "out of memory");
    json_writer_free(writer);
    return code;
}

int verb_template_get(struct cli *cli)
{
    return call(cli, "GET", NULL, print_template);
}

int verb_template_delete(struct cli *cli)
{
    return call(cli, "DELETE", NULL, print_removed);
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
