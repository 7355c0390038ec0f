/* SPDX-License-Identifier: MIT */
/* The user that the process runs as. */
#ifndef BASE_USER_H
#define BASE_USER_H

#include <sys/types.h>

#include "base/base.h"
#include "base/buf.h"

/* Finds a user by its name. Returns false, with a message, if there is none. */
bool user_find(const char *name, uid_t *ret_uid, gid_t *ret_gid, struct buf *message) MUST_CHECK;
/*
 * Changes the process to this user and its groups, permanently; only root can. A user without a passwd entry gets only
 * the group `gid`.
 */
bool user_become(uid_t uid, gid_t gid, struct buf *message) MUST_CHECK;
/*
 * Returns true if only root can change the directories of this path, and a sticky one, as /tmp, may be among them. Then
 * root may create or remove the last part; in a directory of another user it could be led to any other place. False:
 * errno is EPERM, or says why they cannot be looked at.
 */
bool user_only_root_changes(const char *path) MUST_CHECK;
#endif
