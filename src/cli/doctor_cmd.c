/* SPDX-License-Identifier: MIT */
/* The verb doctor: reports unsafe settings of the server's database and how to fix them. */
#include "cli/json_print.h"
#include "cli/resource.h"

static void print_findings(struct json_object *answer)
{
    static const struct json_column columns[] = {{"VERDICT", "verdict"}, {"CHECK", "check"}, {"FINDING", "sentence"}};
    json_print_table(answer, "findings", columns, ARRAY_LENGTH(columns), 0);
}

int verb_doctor(struct cli *cli)
{
    int code = cli_finish(cli, permit_call(cli->client, "GET", "/v1/doctor", NULL), print_findings);
    bool refused = code == CLI_OK && json_number(permit_client_answer(cli->client), "refusals") != 0;
    return refused ? CLI_REFUSED : code;
}
