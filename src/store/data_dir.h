/* SPDX-License-Identifier: MIT */
/* Whose a directory is, before permitd makes it the home of a private MariaDB. Only looks. */
#ifndef STORE_DATA_DIR_H
#define STORE_DATA_DIR_H

#include "base/base.h"
#include "base/buf.h"

/*
 * True if DIR is empty (lost+found, as at the root of a file system, does not count) or permitd's already: it has
 * permitd's `lock` or a copy of its database, and nothing that permitd does not make; or it is in use by permitd since
 * long, and then whatever else its owner keeps there. False: `message` names what is strange in it.
 */
bool data_dir_is_free(const char *directory, struct buf *message) MUST_CHECK;
/* True if a database was made in it, whole. */
bool data_dir_has_database(const char *directory);
#endif
