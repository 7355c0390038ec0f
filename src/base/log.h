/* SPDX-License-Identifier: MIT */
/*
 * Log lines on standard error, one per event. Only the edge (engine, HTTP, main) logs; libraries return a status. A
 * line has a time, a level, a constant message, and fields with the values:
 *
 *     log_write(LOG_WARN, "connection to the database lost", "worker", "1", "error", session->message, NULL);
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/base.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_TEXT, LOG_JSON };

/* Sets level and format; may be called again at any time (SIGHUP). Initially LOG_INFO, LOG_TEXT. */
void log_configure(enum log_level level, enum log_format format);
/* Parses a level: debug info warn error. False: unknown word; *ret_level is then untouched. */
bool log_level_from_word(const char *word, enum log_level *ret_level) MUST_CHECK;
/* Parses a format: text json. False: unknown word; *ret_format is then untouched. */
bool log_format_from_word(const char *word, enum log_format *ret_format) MUST_CHECK;

/*
 * Writes a line. The fields are pairs of name and value, both zero-terminated, ended by NULL. A NULL value prints as
 * null in JSON and as nothing in text. Thread-safe.
 */
void log_write(enum log_level level, const char *message, ...) __attribute__((sentinel));
#endif
