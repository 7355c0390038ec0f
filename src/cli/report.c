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

/* How long a FIFO may have no reader, or a reader that does not read. */
enum { PATIENCE_MS = 2000, PAUSE_MS = 20 };

static bool can_write(const char *path, int mode)
{
    return faccessat(AT_FDCWD, path, mode, AT_EACCESS) == 0;
}

static bool can_make(const char *path)
{
    char copy[PATH_MAX];
    if (snprintf(copy, sizeof(copy), "%s", path) < (int)sizeof(copy))
        return can_write(dirname(copy), W_OK | X_OK);
    errno = ENAMETOOLONG;
    return false;
}

bool report_is_possible(const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return errno == ENOENT && *path && can_make(path);
    if (!S_ISDIR(about.st_mode))
        return can_write(path, W_OK);
    errno = EISDIR;
    return false;
}

/* Does not wait for the reader of a FIFO: there may never be one. */
static int open_once(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY | O_NONBLOCK | O_CLOEXEC, 0666);
}

/* The reader of a FIFO may be just about to come. */
static int open_by(const char *path, mono_us end)
{
    int fd = open_once(path);
    while (fd < 0 && errno == ENXIO && clock_mono() < end) {
        (void)poll(NULL, 0, PAUSE_MS);
        fd = open_once(path);
    }
    if (fd < 0 && errno == ENXIO)
        errno = ETIMEDOUT;
    return fd;
}

/* True: some of it can be written. */
static bool has_room_by(int fd, mono_us end)
{
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    if (poll(&room, 1, (int)max_i64(0, (end - clock_mono()) / US_PER_MS)) > 0)
        return true;
    errno = ETIMEDOUT;
    return false;
}

static bool write_by(int fd, const char *text, size_t length, mono_us end)
{
    while (length) {
        ssize_t written = write(fd, text, length);
        if (written < 0 && (errno != EAGAIN || !has_room_by(fd, end)))
            return false;
        text += max_i64(0, written);
        length -= (size_t)max_i64(0, written);
    }
    return true;
}

bool report_write(const char *path, const char *line)
{
    mono_us end = clock_mono() + (mono_us)PATIENCE_MS * US_PER_MS;
    int fd = open_by(path, end);
    if (fd < 0)
        return false;
    bool written = write_by(fd, line, strlen(line), end) && write_by(fd, "\n", 1, end);
    int error = errno;
    bool closed = close(fd) == 0;
    if (!written)
        errno = error;
    return written && closed;
}
