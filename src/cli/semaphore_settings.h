/* SPDX-License-Identifier: MIT */
/*
 * The settings of a semaphore or template, by the table in core/semaphore.h: options in, a body out, an answer in
 * lines.
 */
#ifndef CLI_SEMAPHORE_SETTINGS_H
#define CLI_SEMAPHORE_SETTINGS_H

#include "cli/cli.h"
#include "cli/json_print.h"

/* Marks all settings as not given. */
void settings_unset(struct cli_options *options);
/* Returns a body with the settings that were given. The caller frees it. */
struct json_writer *settings_new(const struct cli_options *given) MUST_CHECK;
/* Prints a line for each setting of the answer, except kind and capacity. */
void settings_print(struct json_object *answer);
#endif
