/* SPDX-License-Identifier: MIT */
/* Reads the text files that an option names. */
#ifndef CLI_TEXT_FILE_H
#define CLI_TEXT_FILE_H

#include "base/base.h"

/*
 * Reads the whole file (-: standard input), which has at most `max` bytes and no zero byte; zero-terminated. The caller
 * frees *ret_text. Returns CLI_OK, or another exit status after an error message.
 */
int text_file_read(const char *path, size_t max, char **ret_text, size_t *ret_length) MUST_CHECK;
#endif
