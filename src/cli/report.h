/* SPDX-License-Identifier: MIT */
/* The file of `run --report`: checked before the command runs, written after it. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include "base/base.h"

/*
 * Returns true if the file can be written, as far as this can be checked without creating or opening it: an existing
 * file would mean that the command has run, and the reader of a FIFO must get nothing but the report. False: errno is
 * set.
 */
bool report_is_possible(const char *path) MUST_CHECK;
/*
 * Writes a line. Returns false with errno set, to ETIMEDOUT if a FIFO has no reader or its reader does not read. Ends
 * within seconds.
 */
bool report_write(const char *path, const char *line) MUST_CHECK;
#endif
