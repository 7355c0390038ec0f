/* SPDX-License-Identifier: MIT */
#include "mariadb/data_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/user.h"

/* Appends "cannot open DIR/NAME: No such file or directory" for errno. `name` NULL: DIR itself. Returns false. */
static bool append_errno(struct buf *message, const char *doing, const char *directory, const char *name)
{
    buf_printf(message, "cannot %s %s%s%s: %s", doing, directory, name ? "/" : "", name ? name : "",
               strerrordesc_np(errno));
    return false;
}

/* ---- contents ---- */

/* The entries that permitd and its mariadbd create in the directory, as fnmatch patterns; a log may be rotated. */
static const struct {
    const char *pattern;
    mode_t type;
} own_entries[] = {
    {"lock", S_IFREG}, {"mariadb.log*", S_IFREG}, {"mariadb.pid", S_IFREG}, {"mariadb.sock", S_IFSOCK},
    {"data", S_IFDIR}, {"data.new", S_IFDIR},     {"tmp", S_IFDIR},
};

/* The entries that show whether the directory is permitd's. */
struct contents {
    bool lock;                      /* it has `lock`, the first file that permitd creates */
    bool log;                       /* it has `mariadb.log`, the second one */
    bool database;                  /* it has MariaDB's db.opt of the database `permitd` */
    bool foreign;                   /* `entry_shown` matches no own_entries */
    char entry_shown[NAME_MAX + 1]; /* a printable entry name; "": the directory is empty */
};

/* Returns true if the entry belongs to root or to the owner of the directory, not to another user. */
static bool is_trusted(int fd, const struct stat *info)
{
    struct stat directory;
    return info->st_uid == 0 || (fstat(fd, &directory) == 0 && info->st_uid == directory.st_uid);
}

static bool is_file(int fd, const char *path)
{
    struct stat info;
    return fstatat(fd, path, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) && is_trusted(fd, &info);
}

static bool is_own(int fd, const char *name)
{
    struct stat info;
    if (fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT; /* removed since it was listed */
    for (size_t i = 0; i < ARRAY_LENGTH(own_entries); i++)
        if (fnmatch(own_entries[i].pattern, name, 0) == 0)
            return (info.st_mode & S_IFMT) == own_entries[i].type && is_trusted(fd, &info);
    return false;
}

static bool contents_read(int fd, struct contents *ret_contents)
{
    struct contents contents = {0};
    int listed = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = listed >= 0 ? fdopendir(listed) : NULL;
    if (!stream)
        return false;
    contents.lock = is_file(fd, "lock");
    contents.log = is_file(fd, "mariadb.log");
    contents.database = is_file(fd, "data/permitd/db.opt");
    for (struct dirent *entry = readdir(stream); entry && !contents.foreign; entry = readdir(stream)) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") || !strcmp(entry->d_name, "lost+found"))
            continue;
        contents.foreign = !is_own(fd, entry->d_name);
        snprintf(contents.entry_shown, sizeof contents.entry_shown, "%s", entry->d_name);
        for (char *byte = contents.entry_shown; *byte; byte++) /* it comes from outside, and is shown on terminals */
            if (*byte < ' ' || *byte > '~')
                *byte = '?';
    }
    closedir(stream);
    *ret_contents = contents;
    return true;
}

bool data_dir_is_usable(int fd, const char *directory, struct buf *message)
{
    struct contents contents;
    if (!contents_read(fd, &contents))
        return append_errno(message, "look into", directory, NULL);
    bool empty = contents.entry_shown[0] == '\0';
    bool begun = (contents.lock || contents.database) && !contents.foreign;
    bool used = (contents.lock && contents.log) || contents.database;
    if (empty || begun || used)
        return true;
    buf_printf(message, "%s contains '%s', which permitd did not create; use an empty directory", directory,
               contents.entry_shown);
    return false;
}

bool data_dir_has_database(int fd)
{
    return faccessat(fd, "data", F_OK, 0) == 0;
}

/* ---- owner ---- */

static int directory_open(const char *directory, struct stat *ret_info, struct buf *message)
{
    if (geteuid() == 0 && lstat(directory, ret_info) == 0 && S_ISLNK(ret_info->st_mode) && ret_info->st_uid != 0) {
        /* it may lead into the directory of a third user */
        buf_printf(message, "%s is a symbolic link of user %u: name the directory itself", directory, ret_info->st_uid);
        return -1;
    }
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, ret_info) == 0)
        return fd;
    if (fd < 0 && errno == ENOTDIR)
        buf_printf(message, "%s is not a directory", directory);
    else
        (void)append_errno(message, "look at", directory, NULL);
    if (fd >= 0)
        close(fd);
    return -1;
}

static bool belongs_to_another(const char *directory, const struct stat *info, struct buf *message)
{
    if (geteuid() == 0 || info->st_uid == geteuid())
        return false;
    buf_printf(message, "%s belongs to user %u, not to the one permitd runs as (%u)", directory, info->st_uid,
               geteuid());
    return true;
}

/* Returns true if the directory has no entry but lost+found. */
static bool is_empty(int fd)
{
    struct contents contents;
    return contents_read(fd, &contents) && contents.entry_shown[0] == '\0';
}

struct user_ids {
    uid_t uid;
    gid_t gid;
};

/* Finds the user that gets a new directory of root. False, without a message: there is none. */
static bool new_owner(const struct data_dir_user *user, struct user_ids *ret_owner, struct buf *message)
{
    static const char *const usual[] = {"permitd", "mysql"};
    struct buf ignored;
    bool found = false;
    if (user->name)
        return user_find(user->name, &ret_owner->uid, &ret_owner->gid, message);
    buf_init(&ignored, 1000);
    for (size_t i = 0; i < ARRAY_LENGTH(usual) && !found; i++)
        found = user_find(usual[i], &ret_owner->uid, &ret_owner->gid, &ignored);
    buf_release(&ignored);
    return found;
}

/*
 * For root: decides which user permitd and mariadbd run as. `info` is NULL if the directory is missing; `is_new`: it is
 * missing or empty. ret_owner->uid is 0 only with allow_root.
 */
static bool choose_user(const char *directory, const struct stat *info, bool is_new, const struct data_dir_user *user,
                        struct user_ids *ret_owner, struct buf *message)
{
    uid_t owner = info ? info->st_uid : 0;
    struct user_ids named = {0};
    *ret_owner = (struct user_ids){owner, info ? info->st_gid : 0};
    if (user->name && !user_find(user->name, &named.uid, &named.gid, message))
        return false;
    if (user->name && named.uid == 0)
        buf_append_text(message, "user must not be root: MariaDB does not run as root");
    else if (owner != 0 && user->name && owner != named.uid)
        buf_printf(message, "%s belongs to user %u, not to %s", directory, owner, user->name);
    else if (owner != 0 || (user->allow_root && !user->name))
        return true;
    else if (!is_new)
        buf_printf(message,
                   "%s belongs to root, and MariaDB does not run as root: give it to a user (chown -R %s %s), or, in a "
                   "container, start permitd with --allow-root",
                   directory, user->name ? user->name : "NAME", directory);
    else if (new_owner(user, ret_owner, message) && ret_owner->uid != 0)
        return true;
    else
        buf_append_text(message, "MariaDB does not run as root: name a user with --user NAME (useradd --system permitd "
                                 "makes one), or, in a container, start permitd with --allow-root");
    return false;
}

/* For root: gives a new directory to the user, and becomes the user. Nothing happens with allow_root. */
static bool become_owner(const struct data_dir *dir, const struct stat *info, const struct data_dir_user *user,
                         struct buf *message)
{
    struct user_ids owner;
    if (geteuid() != 0)
        return true;
    if (!choose_user(dir->path, info, is_empty(dir->fd), user, &owner, message))
        return false;
    if (owner.uid == 0)
        return true;
    if (owner.uid != info->st_uid && fchown(dir->fd, owner.uid, owner.gid) != 0)
        return append_errno(message, "change the owner of", dir->path, NULL);
    if (!user_become(owner.uid, owner.gid, message))
        return false;
    if (access(dir->path, R_OK | W_OK | X_OK) == 0)
        return true;
    buf_printf(message, "user %u cannot use %s: %s; the directories above it must be open to this user", geteuid(),
               dir->path, strerrordesc_np(errno));
    return false;
}

/*
 * For root, before it makes the directory: becomes the user already if another user can change the directories above
 * it. Then the user makes it.
 */
static bool become_maker(const char *directory, uid_t uid, gid_t gid, struct buf *message)
{
    if (user_only_root_changes(directory))
        return true;
    if (uid != 0)
        return user_become(uid, gid, message);
    if (errno != EPERM)
        return append_errno(message, "make the directory", directory, NULL);
    buf_printf(message, "other users than root can change the directories above %s: make it first", directory);
    return false;
}

bool data_dir_take(const char *directory, const struct data_dir_user *user, struct data_dir *ret_dir,
                   struct buf *message)
{
    struct stat info;
    struct user_ids owner;
    if (geteuid() == 0 && access(directory, F_OK) != 0 && errno == ENOENT &&
        (!choose_user(directory, NULL, true, user, &owner, message) ||
         !become_maker(directory, owner.uid, owner.gid, message)))
        return false; /* before the directory is there */
    if (mkdir(directory, 0700) != 0 && errno != EEXIST)
        return append_errno(message, "make the directory", directory, NULL);
    struct data_dir dir = {.fd = directory_open(directory, &info, message)};
    if (dir.fd < 0)
        return false;
    dir.path = realpath(directory, NULL);
    if (!dir.path) {
        (void)append_errno(message, "look at", directory, NULL);
        goto opened;
    }
    if (belongs_to_another(dir.path, &info, message) || !become_owner(&dir, &info, user, message) ||
        !data_dir_is_usable(dir.fd, dir.path, message))
        goto opened;
    /* MariaDB's root account needs no password over the socket. */
    if (info.st_mode & 077 && fchmod(dir.fd, 0700) != 0) {
        (void)append_errno(message, "close to others", dir.path, NULL);
        goto opened;
    }
    if (data_dir_is_usable(dir.fd, dir.path, message)) { /* again, now that no other user can add entries */
        *ret_dir = dir;
        return true;
    }
opened:
    data_dir_release(&dir);
    return false;
}

bool data_dir_check(const char *directory, const struct data_dir_user *user, bool *ret_database, struct buf *message)
{
    struct stat info;
    struct user_ids owner;
    if (access(directory, F_OK) != 0 && errno == ENOENT) {
        *ret_database = false;
        return geteuid() != 0 || choose_user(directory, NULL, true, user, &owner, message);
    }
    int fd = directory_open(directory, &info, message);
    bool fit = fd >= 0 && !belongs_to_another(directory, &info, message) &&
               data_dir_is_usable(fd, directory, message) &&
               (geteuid() != 0 || choose_user(directory, &info, is_empty(fd), user, &owner, message));
    if (fit)
        *ret_database = data_dir_has_database(fd);
    if (fd >= 0)
        close(fd);
    return fit;
}

void data_dir_release(struct data_dir *dir)
{
    if (dir->fd >= 0)
        close(dir->fd);
    free(dir->path);
    *dir = (struct data_dir){.fd = -1};
}

/* ---- files ---- */

int data_dir_open(const struct data_dir *dir, const char *name, int flags, struct buf *message)
{
    struct stat info;
    int fd = openat(dir->fd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
        return fd;
    if (message && fd < 0 && errno != ELOOP)
        (void)append_errno(message, "open", dir->path, name);
    else if (message)
        buf_printf(message, "cannot open %s/%s: it is %s", dir->path, name,
                   fd >= 0 ? "not a plain file" : "a symbolic link");
    if (fd >= 0)
        close(fd);
    return -1;
}

bool data_dir_make(const struct data_dir *dir, const char *name, struct buf *message)
{
    struct stat info;
    if (mkdirat(dir->fd, name, 0700) != 0 && errno != EEXIST)
        return append_errno(message, "make the directory", dir->path, name);
    if (fstatat(dir->fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return append_errno(message, "look at", dir->path, name);
    if (S_ISDIR(info.st_mode))
        return true;
    buf_printf(message, "cannot use %s/%s: it is %s", dir->path, name,
               S_ISLNK(info.st_mode) ? "a symbolic link" : "not a directory");
    return false;
}

/* Removes a file or a directory tree. False: errno has the cause. */
static bool tree_remove(int parent, const char *name)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return true;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    if (!stream)
        return false;
    bool removed = true;
    for (struct dirent *entry = readdir(stream); entry && removed; entry = readdir(stream))
        removed = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 || tree_remove(fd, entry->d_name);
    closedir(stream);
    return removed && unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

bool data_dir_remove(const struct data_dir *dir, const char *name, struct buf *message)
{
    return tree_remove(dir->fd, name) || append_errno(message, "remove", dir->path, name);
}

bool data_dir_commit_rename(const struct data_dir *dir, const char *from, const char *to, struct buf *message)
{
    int fd = openat(dir->fd, from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool done = fd >= 0 && syncfs(fd) == 0 && renameat(dir->fd, from, dir->fd, to) == 0 && syncfs(dir->fd) == 0;
    if (!done)
        (void)append_errno(message, "put in place", dir->path, to);
    if (fd >= 0)
        close(fd);
    return done;
}
