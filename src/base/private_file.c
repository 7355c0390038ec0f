/* SPDX-License-Identifier: MIT */
#include "base/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"

/* Checks the opened file, so that the file that is read is the one that was checked. */
static bool is_private(const char *path, int fd, uid_t user, struct buf *message)
{
    struct stat file;
    if (fstat(fd, &file) != 0) {
        buf_printf(message, "%s: cannot be read: %s", path, strerror(errno));
        return false;
    }
    if (!S_ISREG(file.st_mode)) {
        buf_printf(message, "%s: is not a regular file", path);
        return false;
    }
    if (file.st_mode & (S_IRWXG | S_IRWXO)) {
        buf_printf(message, "%s: users other than its owner have access (mode %04o): chmod 600 %s", path,
                   (unsigned)(file.st_mode & 07777), path);
        return false;
    }
    if (file.st_uid != user && file.st_uid != 0) {
        buf_printf(message, "%s: its owner is user %u; expected user %u or root", path, (unsigned)file.st_uid,
                   (unsigned)user);
        return false;
    }
    return true;
}

bool private_file_read_open(const char *path, int fd, uid_t user, size_t max, struct buf *ret_content,
                            struct buf *message)
{
    buf_init(ret_content, max);
    if (!is_private(path, fd, user, message))
        return false;
    if (io_read_all(fd, ret_content))
        return true;
    if (ret_content->broken == BUF_TOO_LONG)
        buf_printf(message, "%s: larger than %zu bytes", path, max);
    else if (ret_content->broken)
        buf_printf(message, "%s: no memory", path);
    else
        buf_printf(message, "%s: cannot be read: %s", path, strerror(errno));
    return false;
}

bool private_file_read(const char *path, uid_t user, size_t max, struct buf *ret_content, struct buf *message)
{
    buf_init(ret_content, max);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would block */
    if (fd < 0) {
        buf_printf(message, "%s: cannot be opened by user %u: %s", path, (unsigned)geteuid(), strerror(errno));
        return false;
    }
    bool good = private_file_read_open(path, fd, user, max, ret_content, message);
    close(fd);
    return good;
}
