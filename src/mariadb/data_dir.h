/* SPDX-License-Identifier: MIT */
/*
 * The directory of a private MariaDB: its owner and its files. The directory is opened once. permitd creates, opens and
 * removes files through that descriptor only and follows no symbolic link, because the owner of the directory may put
 * one there at any time.
 */
#ifndef MARIADB_DATA_DIR_H
#define MARIADB_DATA_DIR_H

#include "base/base.h"
#include "base/buf.h"

struct data_dir {
    int fd;     /* -1: not open */
    char *path; /* absolute, without links; for messages and for mariadbd's options; malloc'ed */
};

/* The user that root becomes before it creates or opens a file in the directory. */
struct data_dir_user {
    const char *name; /* NULL: the owner of the directory; if it is new, the user permitd or mysql */
    bool allow_root;  /* root stays root if the directory is root's and no user is named */
};

/*
 * Takes the directory: creates it with mode 0700 if it is missing, opens it, and removes the access of other users.
 * Returns false, and changes nothing in it, unless it belongs to this user and is empty or permitd's own
 * (data_dir_is_usable). If permitd runs as root, the whole process first becomes the owner of the directory, for good:
 * from then on a link or file in it reaches no further than its owner could. A new or empty directory of root is given
 * to `user` first; one of root with contents is refused without allow_root. A missing one is made by root only where no
 * other user can change the directories above it, else by `user`. Release with data_dir_release.
 */
bool data_dir_take(const char *directory, const struct data_dir_user *user, struct data_dir *ret_dir,
                   struct buf *message) MUST_CHECK;
/*
 * Sets *ret_database to true if the directory contains a database; false also if it is missing. Returns false, with a
 * message, if data_dir_take would refuse the directory because of its contents or its owner. Changes nothing.
 */
bool data_dir_check(const char *directory, const struct data_dir_user *user, bool *ret_database,
                    struct buf *message) MUST_CHECK;
/* Closes the directory and frees the path. Accepts one that is not open. */
void data_dir_release(struct data_dir *dir);

/*
 * Returns true if permitd may use the open directory. That is so if
 * - it is empty (lost+found does not count);
 * - it has permitd's `lock` or a database, and no entry that permitd does not create;
 * - it has permitd's `lock` and log, or a database: then foreign entries are accepted too.
 * False: `message` names a foreign entry. Changes nothing.
 */
bool data_dir_is_usable(int fd, const char *directory, struct buf *message) MUST_CHECK;
/* Returns true if the open directory has a complete database. */
bool data_dir_has_database(int fd);

/*
 * Opens a plain file in the directory, created with mode 0600; `flags` are those of open(2). Returns -1 on failure;
 * `message` may be NULL.
 */
int data_dir_open(const struct data_dir *dir, const char *name, int flags, struct buf *message) MUST_CHECK;
/* Creates the subdirectory `name` with mode 0700 unless it exists. */
bool data_dir_make(const struct data_dir *dir, const char *name, struct buf *message) MUST_CHECK;
/* Removes the subdirectory `name` and its contents. It may be missing. */
bool data_dir_remove(const struct data_dir *dir, const char *name, struct buf *message) MUST_CHECK;
/* Renames a subdirectory after its contents are on the disk (syncfs). */
bool data_dir_commit_rename(const struct data_dir *dir, const char *from, const char *to,
                            struct buf *message) MUST_CHECK;
#endif
