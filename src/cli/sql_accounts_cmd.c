/* SPDX-License-Identifier: MIT */
/* The verbs about SQL accounts: put, delete. */
#include "base/escape.h"
#include "cli/json_print.h"
#include "cli/resource.h"

enum { GRANT_MAX = 1024 };

static void print_account(struct json_object *answer)
{
    static const struct json_column lines[] = {{"user", "user"}, {"namespace", "namespace"}};
    json_print_lines(answer, lines, ARRAY_LENGTH(lines));
}

static void print_put(struct json_object *answer)
{
    print_account(answer);
    for (size_t i = 0; i < json_length_of(answer, "grants"); i++) {
        char grant[GRANT_MAX];
        (void)snprintf(grant, sizeof(grant), "%s", json_string(json_item(json_member(answer, "grants"), i)));
        escape_control_chars(grant, strlen(grant));
        (void)printf("%s;\n", grant);
    }
}

static void print_removed(struct json_object *answer)
{
    print_account(answer);
    (void)printf("%-14s yes\n", "removed");
}

int verb_sql_account_put(struct cli *cli)
{
    return resource_call(cli, &resource_sql_account, "PUT", "", print_put);
}

int verb_sql_account_delete(struct cli *cli)
{
    return resource_call(cli, &resource_sql_account, "DELETE", "", print_removed);
}
