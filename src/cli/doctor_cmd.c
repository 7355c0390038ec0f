/* SPDX-License-Identifier: MIT */
/* The verb doctor: reports unsafe settings of the server's database and how to fix them. */
#include "cli/json_print.h"
#include "cli/resource.h"

static void print_findings(const char *body)
{
    static const struct json_column columns[] = {{"VERDICT", "verdict"}, {"CHECK", "check"}, {"FINDING", "sentence"}};
    json_print_table(body, "findings", columns, ARRAY_LENGTH(columns));
}

int verb_doctor(struct cli *cli)
{
    int code = cli_finish(cli, permit_call(cli->client, "GET", "/v1/doctor", NULL), print_findings);
    bool refused = code == CLI_OK && json_number(permit_client_answer(cli->client), "refusals") != 0;
    return refused ? CLI_REFUSED : code;
}
