/* SPDX-License-Identifier: MIT */
#include "cli/resource.h"

#include <stdio.h>

#include "cli/json_print.h"

const struct resource resource_request = {"/v1/requests/", "the key must have 1 to 255 bytes"};
const struct resource resource_semaphore = {"/v1/semaphores/", "the name must have 1 to 255 bytes"};
const struct resource resource_template = {"/v1/templates/", "the prefix must have 1 to 255 bytes"};
const struct resource resource_sql_account = {"/v1/sql-accounts/", "an SQL user has 1 to 128 bytes"};
const struct resource resource_owner = {"/v1/owners/", "an owner has 1 to 255 bytes"};

bool path_write(const char *before, const char *word, const char *after, char path[CLI_PATH_MAX])
{
    char encoded[CLI_PATH_MAX / 2] = "";
    return permit_path_encode(word, encoded, sizeof(encoded)) > 0 &&
           snprintf(path, CLI_PATH_MAX, "%s%s%s", before, encoded, after) < CLI_PATH_MAX;
}

bool resource_path(const struct cli *cli, const struct resource *resource, const char *suffix, char path[CLI_PATH_MAX])
{
    const char *namespace = cli->options.namespace; /* of a verb whose suffix has no query */
    char after[CLI_PATH_MAX];
    (void)snprintf(after, sizeof(after), "%s%s%s", suffix, namespace ? "?namespace=" : "", namespace ? namespace : "");
    if (path_write(resource->path, cli->words[0], after, path))
        return true;
    (void)cli_error(CLI_USAGE, "%s", resource->rule);
    return false;
}

static int call(struct cli *cli, const struct resource *resource, const char *method, const char *suffix,
                const char *body, void (*print)(struct json_object *answer))
{
    char path[CLI_PATH_MAX];
    if (!resource_path(cli, resource, suffix, path))
        return CLI_USAGE;
    return cli_finish(cli, permit_call(cli->client, method, path, body), print);
}

int resource_call(struct cli *cli, const struct resource *resource, const char *method, const char *suffix,
                  void (*print)(struct json_object *answer))
{
    return call(cli, resource, method, suffix, NULL, print);
}

int resource_send(struct cli *cli, const struct resource *resource, const char *method, const char *suffix,
                  struct json_writer *body, void (*print)(struct json_object *answer))
{
    const char *text = json_text(body);
    int code = text ? call(cli, resource, method, suffix, text, print) : cli_error(CLI_NO_START, "out of memory");
    json_writer_free(body);
    return code;
}

bool reason_is_given(const struct cli *cli)
{
    if (cli->options.reason && *cli->options.reason)
        return true;
    (void)cli_error(CLI_USAGE, "%s needs --reason TEXT, which is recorded", cli->verb->name);
    return false;
}

struct json_writer *reason_new(const struct cli *cli)
{
    struct json_writer *body = json_writer_new();
    json_add_text(body, "reason", cli->options.reason);
    return body;
}

int cli_finish(struct cli *cli, enum permit_status status, void (*print)(struct json_object *answer))
{
    if (status)
        return cli_fail(cli, status);
    if (cli->options.flags[FLAG_JSON]) {
        json_print_text(permit_client_answer(cli->client));
    } else {
        struct json_object *answer = json_read(permit_client_answer(cli->client));
        print(answer);
        json_free(answer);
    }
    return CLI_OK;
}
