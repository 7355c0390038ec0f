/* SPDX-License-Identifier: MIT */
/*
 * Reads an INI text, strictly: the first line with a mistake ends the reading. Only sections.c uses inih.
 *
 *     [section]
 *     word = value      ; a comment after a space
 *     # a comment
 *
 * Only blank lines and comments may begin with a space, and further values of a word if the handler allows them.
 */
#ifndef BASE_SECTIONS_H
#define BASE_SECTIONS_H

#include "base/buf.h"

/* Called for each part of the text in its order. False: `why` has the reason; the reading ends. */
struct sections_handler {
    /* NULL: the text has no sections; a heading is a mistake. */
    bool (*section)(void *context, struct bytes name, int line, struct buf *why);
    /* word and value are zero-terminated, without spaces around them. */
    bool (*word)(void *context, const char *word, const char *value, int line, struct buf *why);
    void *context;
    bool values_continue; /* a line that begins with a space is another value of the word before it */
};

/* False: `message` has path, line and reason. A line of words has at most 197 bytes. */
bool sections_read(struct bytes text, const char *path, const struct sections_handler *handler,
                   struct buf *message) MUST_CHECK;
#endif
