/* SPDX-License-Identifier: MIT */
/* Reads and writes whole files and descriptors; goes on after a signal. */
#ifndef BASE_IO_H
#define BASE_IO_H

#include <sys/types.h>

#include "base/buf.h"

/* Reads until the text is full or the file ends. Returns the bytes that were read; -1: errno is set. */
ssize_t io_read(int fd, char *text, size_t size) MUST_CHECK;
/* Appends the whole file. False: errno is set, or the buf is broken: too long, or no memory. */
bool io_read_all(int fd, struct buf *content) MUST_CHECK;
/* Writes the whole text. False: errno is set. */
bool io_write(int fd, const char *text, size_t length) MUST_CHECK;
#endif
