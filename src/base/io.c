/* SPDX-License-Identifier: MIT */
#include "base/io.h"

#include <errno.h>
#include <unistd.h>

ssize_t io_read(int fd, char *text, size_t size)
{
    size_t length = 0;
    while (length < size) {
        ssize_t got = read(fd, text + length, size - length);
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            return -1;
        length += got > 0 ? (size_t)got : 0;
    }
    return (ssize_t)length;
}

bool io_read_all(int fd, struct buf *content)
{
    char piece[8192];
    ssize_t length;
    do {
        length = io_read(fd, piece, sizeof piece);
        buf_append(content, piece, length > 0 ? (size_t)length : 0);
    } while (length == sizeof piece && !content->broken);
    return length >= 0 && !content->broken;
}

bool io_write(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t written = write(fd, text, length);
        if (written < 0 && errno != EINTR)
            return false;
        text += written > 0 ? written : 0;
        length -= written > 0 ? (size_t)written : 0;
    }
    return true;
}
