/* SPDX-License-Identifier: MIT */
/* Files with credentials: only their owner may read or change them. */
#ifndef BASE_PRIVATE_FILE_H
#define BASE_PRIVATE_FILE_H

#include <sys/types.h>

#include "base/buf.h"

/*
 * Reads a whole file of at most `max` bytes into `ret_content`, which it initialises; the caller releases it in any
 * case. False: `message` has the path and the reason. A file is refused unless it is a regular one, its mode is 0600 or
 * stricter, and its owner is `user` or root.
 */
bool private_file_read(const char *path, uid_t user, size_t max, struct buf *ret_content,
                       struct buf *message) MUST_CHECK;
/* As private_file_read, of a file that is open for reading; reads on from its position. The caller closes it. */
bool private_file_read_open(const char *path, int fd, uid_t user, size_t max, struct buf *ret_content,
                            struct buf *message) MUST_CHECK;
#endif
