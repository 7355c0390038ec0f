/* SPDX-License-Identifier: MIT */
#include "store/data_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* What permitd and its mariadbd make in DIR, patterns of fnmatch. The log may have been rotated. */
static const struct {
    const char *pattern;
    mode_t type;
} own_entries[] = {
    {"lock", S_IFREG}, {"mariadb.log*", S_IFREG}, {"mariadb.pid", S_IFREG}, {"mariadb.sock", S_IFSOCK},
    {"data", S_IFDIR}, {"data.new", S_IFDIR},     {"tmp", S_IFDIR},
};

/* What tells whose it is. */
struct contents {
    bool lock;     /* permitd makes this file first, */
    bool log;      /* and then this one */
    bool database; /* MariaDB's file in its directory of the database `permitd` */
    bool strange;  /* `shown` is none of own_entries; else it is any */
    char shown[NAME_MAX + 1];
};

static bool is_file(int fd, const char *path)
{
    struct stat info;
    return fstatat(fd, path, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode);
}

static bool is_own(int fd, const char *name)
{
    struct stat info;
    if (fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT; /* gone since it was listed */
    for (size_t i = 0; i < ARRAY_LENGTH(own_entries); i++)
        if (fnmatch(own_entries[i].pattern, name, 0) == 0)
            return (info.st_mode & S_IFMT) == own_entries[i].type;
    return false;
}

static bool is_passed_over(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "lost+found") == 0;
}

/* Names are other people's: they must not play with the terminal that shows them. */
static void show(struct contents *contents, const char *name)
{
    snprintf(contents->shown, sizeof contents->shown, "%s", name);
    for (char *byte = contents->shown; *byte; byte++)
        if (*byte < ' ' || *byte > '~')
            *byte = '?';
}

static bool contents_read(const char *directory, struct contents *ret_contents)
{
    struct contents contents = {0};
    DIR *stream = opendir(directory);
    if (!stream)
        return false;
    int fd = dirfd(stream);
    contents.lock = is_file(fd, "lock");
    contents.log = is_file(fd, "mariadb.log");
    contents.database = is_file(fd, "data/permitd/db.opt");
    for (struct dirent *entry = readdir(stream); entry && !contents.strange; entry = readdir(stream)) {
        if (is_passed_over(entry->d_name))
            continue;
        contents.strange = !is_own(fd, entry->d_name);
        show(&contents, entry->d_name);
    }
    closedir(stream);
    *ret_contents = contents;
    return true;
}

bool data_dir_is_free(const char *directory, struct buf *message)
{
    struct contents contents;
    if (!contents_read(directory, &contents)) {
        buf_printf(message, "cannot look into %s: %s", directory, strerrordesc_np(errno));
        return false;
    }
    bool empty = contents.shown[0] == '\0';
    bool begun = (contents.lock || contents.database) && !contents.strange;
    bool used = (contents.lock && contents.log) || contents.database;
    if (empty || begun || used)
        return true;
    buf_printf(message, "%s holds '%s', which is not permitd's: name an empty directory", directory, contents.shown);
    return false;
}

bool data_dir_has_database(const char *directory)
{
    char data[PATH_MAX];
    snprintf(data, sizeof data, "%s/data", directory);
    return access(data, F_OK) == 0;
}
