/* SPDX-License-Identifier: MIT */
/*
 * The directory of a private MariaDB: whose it is, and the files in it. The directory is opened once. Whatever permitd
 * makes, opens or removes in it goes through that descriptor and follows no symbolic link, as its owner may put one
 * there at any time.
 */
#ifndef STORE_DATA_DIR_H
#define STORE_DATA_DIR_H

#include "base/base.h"
#include "base/buf.h"

struct data_dir {
    int fd;     /* -1: not open */
    char *path; /* absolute, without links; for sentences and for mariadbd */
};

/*
 * Makes DIR with mode 0700 if it is missing, opens it and closes it to others. Refused, and then left as it is, unless
 * it belongs to this user and is empty or permitd's already (data_dir_is_free). Root becomes the owner of DIR first,
 * with the whole process and for good: from then on no link or file in DIR reaches further than its owner does.
 */
bool data_dir_take(const char *directory, struct data_dir *ret_dir, struct buf *message) MUST_CHECK;
/*
 * Whether there is a database in DIR; false, with a sentence in `message`, if data_dir_take refuses DIR for what is in
 * it or whose it is. Changes nothing, and makes nothing.
 */
bool data_dir_look(const char *directory, bool *ret_database, struct buf *message) MUST_CHECK;
/* Accepts one that is not open. */
void data_dir_release(struct data_dir *dir);

/*
 * True if the open directory is empty (lost+found, as at the root of a file system, does not count) or permitd's
 * already: it has permitd's `lock` or a copy of its database, and nothing that permitd does not make; or it is in use
 * by permitd since long, and then whatever else its owner keeps there. False: `message` names what is strange in it.
 * Only looks.
 */
bool data_dir_is_free(int fd, const char *directory, struct buf *message) MUST_CHECK;
/* True if a database was made in it, whole. */
bool data_dir_has_database(int fd);

/* A plain file in it, mode 0600; flags as of open. -1: `message`, which may be NULL, says why. */
int data_dir_open(const struct data_dir *dir, const char *name, int flags, struct buf *message) MUST_CHECK;
/* The directory `name` in it, mode 0700, unless it is there. */
bool data_dir_make(const struct data_dir *dir, const char *name, struct buf *message) MUST_CHECK;
/* Removes the directory `name` with all that is in it; it may be missing. */
bool data_dir_remove(const struct data_dir *dir, const char *name, struct buf *message) MUST_CHECK;
/* Renames a directory in it, once all that is in it is on the disk. */
bool data_dir_put_in_place(const struct data_dir *dir, const char *from, const char *to,
                           struct buf *message) MUST_CHECK;
#endif
