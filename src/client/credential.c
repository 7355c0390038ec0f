/* SPDX-License-Identifier: MIT */
#include "client/credential.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/io.h"

/* Users outside the owner and the group of the file; a group may read it (root:permit 0640), but not write it. */
enum { MODES_REFUSED = S_IRWXO | S_IWGRP };

/* Accepts printable ASCII without space, as in all credentials (RFC 6750, RFC 7235). */
static bool token_is_usable(const char *token, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (token[i] <= ' ' || token[i] >= 0x7f)
            return false;
    return length > 0 && length <= TOKEN_MAX_BYTES;
}

/* Opens a file that must be private, unless it is a pipe or a device. Returns -1 after a sentence about it. */
static int open_private(const char *what, const char *path, struct stat *ret_stat, struct buf *message)
{
    int fd = open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, ret_stat) != 0) {
        buf_printf(message, "the %s %s cannot be read: %s", what, path, strerror(errno));
    } else if (S_ISREG(ret_stat->st_mode) && (ret_stat->st_mode & MODES_REFUSED)) {
        buf_printf(message, "the %s %s can be read or changed by other users (mode %03o): chmod 600 %s", what, path,
                   (unsigned)ret_stat->st_mode & 0777, path);
    } else {
        return fd;
    }
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

/* Reads the token of the file: its only line. Updates the credential on success. */
static enum permit_status read_file(struct client_credential *credential, struct buf *message)
{
    char text[TOKEN_MAX_BYTES + 3]; /* with CR LF, and one byte that is too much */
    struct stat seen = {.st_size = 0};
    const char *path = credential->path;
    int fd = open_private("token file", path, &seen, message);
    if (fd < 0)
        return PERMIT_UNAUTHENTICATED;
    ssize_t got = io_read(fd, text, sizeof(text));
    int error = errno;
    (void)close(fd);
    if (got < 0) {
        buf_printf(message, "the token file %s cannot be read: %s", path, strerror(error));
        return PERMIT_UNAUTHENTICATED;
    }
    size_t length = (size_t)got;
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == '\r'))
        length--;
    if (!token_is_usable(text, length)) {
        buf_printf(message, "the token file %s %s", path,
                   length ? "must have one line of printable ASCII without space" : "is empty");
        return PERMIT_UNAUTHENTICATED;
    }
    char *token = strndup(text, length);
    explicit_bzero(text, sizeof(text));
    if (!token)
        return PERMIT_NO_MEMORY;
    free(credential->token);
    credential->token = token;
    credential->seen = seen;
    return PERMIT_OK;
}

enum permit_status credential_open(struct client_credential *credential, const struct permit_client_options *options,
                                   struct buf *message)
{
    const char *token = options->token && *options->token ? options->token : NULL;
    *credential = (struct client_credential){.token = NULL};
    if (token && options->token_file) {
        buf_append_text(message, "token and token_file exclude each other");
        return PERMIT_INVALID;
    }
    if (options->token_file) {
        credential->path = strdup(options->token_file);
        return credential->path ? read_file(credential, message) : PERMIT_NO_MEMORY;
    }
    if (!token)
        return PERMIT_OK;
    if (!token_is_usable(token, strlen(token))) {
        buf_append_text(message, "the token must be printable ASCII without space");
        return PERMIT_UNAUTHENTICATED;
    }
    credential->token = strdup(token);
    return credential->token ? PERMIT_OK : PERMIT_NO_MEMORY;
}

enum permit_status credential_copy(struct client_credential *credential, const struct client_credential *from)
{
    *credential = (struct client_credential){.seen = from->seen};
    credential->token = from->token ? strdup(from->token) : NULL;
    credential->path = from->path ? strdup(from->path) : NULL;
    return (from->token && !credential->token) || (from->path && !credential->path) ? PERMIT_NO_MEMORY : PERMIT_OK;
}

bool credential_refresh(struct client_credential *credential)
{
    const struct stat *seen = &credential->seen;
    struct stat now;
    if (!credential->path || stat(credential->path, &now) != 0 || !S_ISREG(now.st_mode) ||
        (now.st_dev == seen->st_dev && now.st_ino == seen->st_ino && now.st_size == seen->st_size &&
         now.st_mtim.tv_sec == seen->st_mtim.tv_sec && now.st_mtim.tv_nsec == seen->st_mtim.tv_nsec))
        return false;
    char *before = strdup(credential->token);
    struct buf unused;
    buf_init(&unused, 0);
    bool changed = before && !read_file(credential, &unused) && strcmp(before, credential->token) != 0;
    buf_release(&unused);
    free(before);
    return changed;
}

void credential_release(struct client_credential *credential)
{
    if (credential->token)
        explicit_bzero(credential->token, strlen(credential->token));
    free(credential->token);
    free(credential->path);
    *credential = (struct client_credential){.token = NULL};
}

static bool can_read(const char *what, const char *path, struct buf *message)
{
    int fd = path ? open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC) : -1;
    if (path && fd < 0)
        buf_printf(message, "the %s %s cannot be read: %s", what, path, strerror(errno));
    if (fd >= 0)
        (void)close(fd);
    return !path || fd >= 0;
}

enum permit_status credential_check_files(const struct permit_client_options *options, struct buf *message)
{
    struct stat about;
    if (!can_read("file of authorities (ca)", options->ca, message) ||
        !can_read("certificate (cert)", options->cert, message))
        return PERMIT_INVALID;
    if (options->key && !options->cert) {
        buf_printf(message, "the key %s needs its certificate (cert)", options->key);
        return PERMIT_INVALID;
    }
    if (!options->cert)
        return PERMIT_OK;
    int fd = options->key ? open_private("key", options->key, &about, message)
                          : open_private("certificate with its key", options->cert, &about, message);
    if (fd < 0)
        return PERMIT_INVALID;
    (void)close(fd);
    return PERMIT_OK;
}
