/* SPDX-License-Identifier: MIT */
/* The verb locks: which transactions lock permitd's rows, and the last deadlock. */
#include "base/escape.h"
#include "cli/json_print.h"
#include "cli/resource.h"

enum { LINE_MAX_BYTES = 8 * 1024 };

/* Prints "  1  shop@db7 waited for a row of semaphore (PRIMARY) in: UPDATE ...". */
static void print_part(struct json_object *part)
{
    const char *account = json_text_of(part, "account"), *statement = json_text_of(part, "statement");
    const char *table = json_text_of(part, "table"), *index = json_text_of(part, "index");
    struct buf line;
    buf_init(&line, LINE_MAX_BYTES);
    buf_printf(&line, "  %lld  %s", (long long)json_number_of(part, "number"), account ? account : "?");
    if (table)
        buf_printf(&line, " waited for a row of %s (%s)", table, index ? index : "?");
    if (statement)
        buf_printf(&line, " in: %s", statement);
    escape_control_chars(line.data, line.length);
    (void)printf("%s\n", buf_text(&line));
    buf_release(&line);
}

static void print_locks(struct json_object *answer)
{
    static const struct json_column columns[] = {
        {"OPEN", "open_ms"},        {"ACCOUNT", "account"},  {"CONNECTION", "connection"}, {"SEMAPHORE", "semaphore"},
        {"NAMESPACE", "namespace"}, {"KEY", "external_id"},  {"TABLE", "table"},           {"ROWS", "rows_locked"},
        {"WAITING", "waiting"},     {"WAITED", "waited_ms"}, {"RUNS", "running"},          {"STATEMENT", "statement"}};
    struct json_object *deadlock = json_object_of(answer, "deadlock");
    if (json_length_of(answer, "locks"))
        json_print_table(answer, "locks", columns, ARRAY_LENGTH(columns), 0);
    else if (json_array_of(answer, "locks"))
        (void)printf("no transaction has locked rows of permitd for longer than a second\n");
    if (json_true_of(answer, "more"))
        (void)printf("there are more\n");
    if (!deadlock)
        return;
    const char *at = json_text_of(deadlock, "at");
    (void)printf("\nlast deadlock, at %s of the database's machine:\n", at ? at : "?");
    for (size_t i = 0; i < json_length_of(deadlock, "transactions"); i++)
        print_part(json_item_of(deadlock, "transactions", i));
    if (json_number_of(deadlock, "rolled_back"))
        (void)printf("  the server rolled back %lld\n", (long long)json_number_of(deadlock, "rolled_back"));
}

int verb_locks(struct cli *cli)
{
    int code = cli_finish(cli, permit_call(cli->client, "GET", "/v1/locks", NULL), print_locks);
    struct json_object *answer = code == CLI_OK ? json_read(permit_client_answer(cli->client)) : NULL;
    const char *grant = json_text_of(answer, "grant");
    if (grant)
        code = cli_error(CLI_REFUSED,
                         "permitd's database account may not read locks; as the database's administrator: %s", grant);
    json_free(answer);
    return code;
}
