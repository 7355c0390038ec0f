/* SPDX-License-Identifier: MIT */
/* Calls about one thing of the server that the first word of a verb names, and the answers. */
#ifndef CLI_RESOURCE_H
#define CLI_RESOURCE_H

#include "cli/cli.h"

enum { CLI_PATH_MAX = 4096 };

struct resource {
    const char *path; /* "/v1/owners/", before the word */
    const char *rule; /* a sentence for a word that is empty or too long */
};

extern const struct resource resource_request, resource_semaphore, resource_template, resource_owner,
    resource_sql_account;

/* Writes "<before>WORD<after>" with WORD percent-encoded. Returns false if it is too long or the word is empty. */
bool path_write(const char *before, const char *word, const char *after, char path[CLI_PATH_MAX]) MUST_CHECK;
/* Writes the path of the first word, with the suffix and --namespace. Returns false after an error message. */
bool resource_path(const struct cli *cli, const struct resource *resource, const char *suffix,
                   char path[CLI_PATH_MAX]) MUST_CHECK;
/* Runs one call about the first word, and prints its answer as cli_finish does. Returns the exit status. */
int resource_call(struct cli *cli, const struct resource *resource, const char *method, const char *suffix,
                  void (*print)(struct json_object *answer));
/* The same with a body, which it frees; NULL: out of memory. */
int resource_send(struct cli *cli, const struct resource *resource, const char *method, const char *suffix,
                  struct json_writer *body, void (*print)(struct json_object *answer));

/* Returns true if --reason was given and is not empty. False: an error has been printed. */
bool reason_is_given(const struct cli *cli) MUST_CHECK;
/* Returns the body {"reason":TEXT}, which the caller frees. */
struct json_writer *reason_new(const struct cli *cli) MUST_CHECK;

/*
 * After PERMIT_OK prints the answer: as JSON with --json, else with `print`. After a failure: cli_fail. Returns the
 * exit status.
 */
int cli_finish(struct cli *cli, enum permit_status status, void (*print)(struct json_object *answer));
#endif
