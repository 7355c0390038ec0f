/* SPDX-License-Identifier: MIT */
/* The file of `run --report`: tried before the command runs, written after it. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include "base/base.h"

/*
 * True if it can be written, as far as can be told without making or opening it: a file that is there says that the
 * command has run, and a FIFO's reader gets nothing but the report. Else errno says why not.
 */
bool report_is_possible(const char *path) MUST_CHECK;
/* Writes a line. False: errno says why, ETIMEDOUT that of a FIFO nobody reads. Ends within seconds. */
bool report_write(const char *path, const char *line) MUST_CHECK;
#endif
