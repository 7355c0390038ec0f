/* SPDX-License-Identifier: MIT */
/*
 * Log lines on standard error, one per event, written at the edge (engine, HTTP, main): libraries return and stay
 * quiet. A line has a time, a level, a message that never varies, and fields that do:
 *
 *     log_write(LOG_WARN, "connection to the database lost", "worker", "1", "error", session->message, NULL);
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/base.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_TEXT, LOG_JSON };

/* Both may be set again at any time (SIGHUP). Before that: LOG_INFO, LOG_TEXT. */
void log_configure(enum log_level level, enum log_format format);
/* False if there is no such word; then *ret_level is untouched. Words: debug info warn error. */
bool log_level_from_word(const char *word, enum log_level *ret_level) MUST_CHECK;
/* Words: text json. */
bool log_format_from_word(const char *word, enum log_format *ret_format) MUST_CHECK;

/* Pairs of name and value, both zero-terminated, closed by NULL. A NULL value is printed as nothing. Thread-safe. */
void log_write(enum log_level level, const char *message, ...) __attribute__((sentinel));
#endif
