/* SPDX-License-Identifier: MIT */
#include "cli/report.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

/* PATIENCE_MS limits the wait for a FIFO without a reader, or with one that does not read. */
enum { PATIENCE_MS = 2000, PAUSE_MS = 20 };

bool report_is_possible(const char *path)
{
    struct stat about;
    char copy[PATH_MAX];
    if (stat(path, &about) == 0) {
        if (!S_ISDIR(about.st_mode))
            return faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0;
        errno = EISDIR;
        return false;
    }
    if (errno != ENOENT || !*path)
        return false;
    if (snprintf(copy, sizeof(copy), "%s", path) < (int)sizeof(copy))
        return faccessat(AT_FDCWD, dirname(copy), W_OK | X_OK, AT_EACCESS) == 0;
    errno = ENAMETOOLONG;
    return false;
}

/* Opens the file. Waits until `end` for the reader of a FIFO, which may never come; then errno is ETIMEDOUT. */
static int open_until(const char *path, mono_us end)
{
    for (;;) {
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY | O_NONBLOCK | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != ENXIO)
            return fd;
        if (clock_mono() >= end)
            break;
        (void)poll(NULL, 0, PAUSE_MS);
    }
    errno = ETIMEDOUT;
    return -1;
}

/* Waits until `end` for room in a pipe; then errno is ETIMEDOUT. */
static bool write_until(int fd, const char *text, size_t length, mono_us end)
{
    struct pollfd writable = {.fd = fd, .events = POLLOUT};
    while (length) {
        ssize_t written = write(fd, text, length);
        if (written < 0 && errno != EAGAIN)
            return false;
        if (written < 0 && poll(&writable, 1, (int)max_i64(0, (end - clock_mono()) / US_PER_MS)) <= 0) {
            errno = ETIMEDOUT;
            return false;
        }
        text += max_i64(0, written);
        length -= (size_t)max_i64(0, written);
    }
    return true;
}

bool report_write(const char *path, const char *line)
{
    mono_us end = clock_mono() + (mono_us)PATIENCE_MS * US_PER_MS;
    int fd = open_until(path, end);
    if (fd < 0)
        return false;
    bool written = write_until(fd, line, strlen(line), end) && write_until(fd, "\n", 1, end);
    int error = errno;
    bool closed = close(fd) == 0;
    if (!written)
        errno = error;
    return written && closed;
}
