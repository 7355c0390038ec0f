/* SPDX-License-Identifier: MIT */
#include "cli/credentials_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/private_file.h"
#include "core/credentials.h"

/* Reads the file with the section behind it as permitd would. Sets *ret_length to the length without the section. */
static bool is_valid_with(const char *path, int fd, struct bytes section, off_t *ret_length, struct buf *message)
{
    struct credentials credentials = {0};
    struct buf content;
    struct stat file;
    /* For root a file of any user is good: permitd may run as that user. */
    uid_t user = geteuid() == 0 && fstat(fd, &file) == 0 ? file.st_uid : geteuid();
    bool valid = private_file_read_open(path, fd, user, CREDENTIALS_MAX_BYTES, &content, message);
    if (valid) {
        *ret_length = (off_t)content.length;
        buf_append(&content, section.data, section.length);
        valid = !content.broken;
        if (!valid)
            buf_printf(message, "%s: larger than %d bytes, or no memory", path, CREDENTIALS_MAX_BYTES);
    }
    valid = valid && credentials_parse((struct bytes){buf_text(&content), content.length}, path, &credentials, message);
    credentials_release(&credentials);
    buf_release(&content);
    return valid;
}

bool credentials_file_append(const char *path, struct bytes section, struct credentials_file *ret_file,
                             struct buf *message)
{
    /* A pipe would block without O_NONBLOCK; it is refused when it is read. */
    struct credentials_file file = {.fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600)};
    bool appended = false;
    if (file.fd < 0 || flock(file.fd, LOCK_EX) != 0)
        buf_printf(message, "%s: cannot be opened by user %u: %s", path, (unsigned)geteuid(), strerror(errno));
    else if (is_valid_with(path, file.fd, section, &file.old_length, message)) {
        appended = io_write(file.fd, section.data, section.length) && fsync(file.fd) == 0;
        if (!appended) {
            buf_printf(message, "%s: cannot be written: %s", path, strerror(errno));
            (void)credentials_file_undo(&file);
        }
    }
    if (appended)
        *ret_file = file;
    else if (file.fd >= 0)
        credentials_file_close(&file);
    return appended;
}

bool credentials_file_undo(const struct credentials_file *file)
{
    return ftruncate(file->fd, file->old_length) == 0 && fsync(file->fd) == 0;
}

void credentials_file_close(struct credentials_file *file)
{
    (void)close(file->fd);
    file->fd = -1;
}
