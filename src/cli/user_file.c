/* SPDX-License-Identifier: MIT */
#include "cli/user_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config.h"
#include "base/io.h"

enum {
    LINE_MAX_BYTES = 190, /* inih splits a longer line */
    TEXT_MAX_BYTES = 5 * (LINE_MAX_BYTES + 2) + 256,
};

static const struct config_row rows[] = {
    {.name = "url", .type = CONFIG_TEXT, .offset = offsetof(struct user_file, url), .flags = CONFIG_SECRET},
    {.name = "token", .type = CONFIG_TEXT, .offset = offsetof(struct user_file, token), .flags = CONFIG_SECRET},
    {.name = "ca", .type = CONFIG_TEXT, .offset = offsetof(struct user_file, ca)},
    {.name = "cert", .type = CONFIG_TEXT, .offset = offsetof(struct user_file, cert)},
    {.name = "key", .type = CONFIG_TEXT, .offset = offsetof(struct user_file, key)},
};
static const struct config_table table = {.rows = rows, .count = ARRAY_LENGTH(rows), .environment_prefix = ""};

bool user_file_path(char path[USER_FILE_PATH_MAX])
{
    const char *base = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    int length = -1;
    if (base && *base == '/') /* its specification ignores a relative path */
        length = snprintf(path, USER_FILE_PATH_MAX, "%s/permit/config", base);
    else if (home && *home == '/')
        length = snprintf(path, USER_FILE_PATH_MAX, "%s/.config/permit/config", home);
    return length > 0 && length < USER_FILE_PATH_MAX;
}

bool user_file_load(struct user_file *file, const char *path, struct buf *message)
{
    struct stat about;
    *file = (struct user_file){.url = NULL};
    if (stat(path, &about) != 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            return true;
        buf_printf(message, "%s cannot be read: %s", path, strerror(errno));
        return false;
    }
    if (about.st_mode & (S_IRWXG | S_IRWXO)) {
        buf_printf(message, "%s can be read or changed by other users (mode %03o): chmod 600 %s", path,
                   (unsigned)about.st_mode & 0777, path);
        return false;
    }
    return config_load_file(&table, file, path, message);
}

void user_file_release(struct user_file *file)
{
    if (file->token)
        explicit_bzero(file->token, strlen(file->token));
    config_release(&table, file);
}

/* ---- Writing ---- */

static bool write_lines(const struct user_file *file, struct buf *text, struct buf *message)
{
    buf_append_text(text, "# Written by permitctl login, removed by permitctl logout.\n");
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        const char *name = rows[i].name, *value = *(char *const *)((const char *)file + rows[i].offset);
        if (!value)
            continue;
        size_t length = strlen(value), most = LINE_MAX_BYTES - strlen(" = ") - strlen(name);
        bool is_read_as_written = length > 0 && value[0] != ';' && length <= most;
        for (size_t j = 0; j < length; j++)
            if ((unsigned char)value[j] < ' ' ||
                (value[j] == ' ' && (j == 0 || j + 1 == length || value[j + 1] == ';')))
                is_read_as_written = false;
        if (!is_read_as_written) {
            buf_printf(message,
                       "%s cannot be written to the file: it is longer than %zu bytes, or has spaces at an end", name,
                       most);
            return false;
        }
        buf_printf(text, "%s = %s\n", name, value);
    }
    return !text->broken;
}

/* Creates the directories above the file, for this user only. */
static bool make_directories(const char *path)
{
    char copy[USER_FILE_PATH_MAX];
    (void)snprintf(copy, sizeof(copy), "%s", path);
    for (char *at = strchr(copy + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        if (mkdir(copy, 0700) != 0 && errno != EEXIST)
            return false;
        *at = '/';
    }
    return true;
}

/* Writes the text to a new file that only this user can read, and gives it the name `path`. */
static bool replace_file(const char *path, const struct buf *text)
{
    char temporary[USER_FILE_PATH_MAX + 8];
    (void)snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
    int fd = make_directories(path) ? mkostemp(temporary, O_CLOEXEC) : -1;
    if (fd < 0)
        return false;
    bool stored = io_write(fd, text->data, text->length) && fsync(fd) == 0 && rename(temporary, path) == 0;
    int error = errno;
    (void)close(fd);
    if (stored)
        return true;
    (void)unlink(temporary);
    errno = error;
    return false;
}

bool user_file_write(const struct user_file *file, const char *path, struct buf *message)
{
    struct buf text;
    buf_init(&text, TEXT_MAX_BYTES);
    bool written = write_lines(file, &text, message);
    if (written && !replace_file(path, &text)) {
        buf_printf(message, "%s cannot be written: %s", path, strerror(errno));
        written = false;
    }
    if (text.data)
        explicit_bzero(text.data, text.length);
    buf_release(&text);
    return written;
}

/* ---- Servers ---- */

/* Returns the length of the first entry of a list, without slashes at its end. */
static size_t entry_length(const char *list, size_t *ret_next)
{
    size_t length = strcspn(list, ",");
    *ret_next = length + (list[length] == ',');
    while (length > 0 && list[length - 1] == '/')
        length--;
    return length;
}

static bool list_has(const char *list, const char *entry, size_t length)
{
    for (size_t next; *list; list += next)
        if (entry_length(list, &next) == length && strncmp(list, entry, length) == 0)
            return true;
    return false;
}

bool user_file_covers(const struct user_file *file, const char *urls)
{
    for (size_t next; file->url && *urls; urls += next)
        if (!list_has(file->url, urls, entry_length(urls, &next)))
            return false;
    return true;
}
