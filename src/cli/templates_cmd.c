/* SPDX-License-Identifier: MIT */
/* The verbs about templates: put, get, delete. */
#include "cli/json_print.h"
#include "cli/resource.h"
#include "cli/semaphore_settings.h"

static void print_template(struct json_object *answer)
{
    static const struct json_column lines[] = {
        {"template", "prefix"},
        {"kind", "kind"},
        {"capacity", "capacity"},
    };
    json_print_lines(answer, lines, ARRAY_LENGTH(lines));
    settings_print(answer);
}

static void print_removed(struct json_object *answer)
{
    static const struct json_column lines[] = {{"template", "prefix"}};
    json_print_lines(answer, lines, ARRAY_LENGTH(lines));
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
