/* SPDX-License-Identifier: MIT */
/* Reads the lines of a file that an option names. */
#ifndef CLI_TEXT_FILE_H
#define CLI_TEXT_FILE_H

#include "base/base.h"

struct text_file {
    char **lines; /* zero-terminated, without line feed, and carriage return before it */
    size_t count;
    char *text; /* the lines point into it */
};

/*
 * Reads a file (-: standard input), which has at most `max` bytes and no zero byte. Returns CLI_OK, or another exit
 * status after an error message. Call text_file_release in any case.
 */
int text_file_read(const char *path, size_t max, struct text_file *ret_file) MUST_CHECK;
void text_file_release(struct text_file *file);
#endif
