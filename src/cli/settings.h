/* SPDX-License-Identifier: MIT */
/* What "semaphore put" and "template put" have in common (semaphores.c). */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H

#include "cli/cli.h"
#include "cli/json.h"

/* The body: the settings that were given. The caller frees it. */
struct json_writer *settings_new(const struct cli_options *given) MUST_CHECK;
#endif
