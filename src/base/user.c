/* SPDX-License-Identifier: MIT */
#include "base/user.h"

#include <errno.h>
#include <grp.h>
#include <libgen.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

bool user_find(const char *name, uid_t *ret_uid, gid_t *ret_gid, struct buf *message)
{
    errno = 0;
    const struct passwd *user = getpwnam(name);
    if (!user) {
        buf_printf(message, "there is no user %s%s%s", name, errno ? ": " : "", errno ? strerrordesc_np(errno) : "");
        return false;
    }
    *ret_uid = user->pw_uid;
    *ret_gid = user->pw_gid;
    return true;
}

bool user_become(uid_t uid, gid_t gid, struct buf *message)
{
    const struct passwd *user = getpwuid(uid);
    bool grouped = user ? initgroups(user->pw_name, user->pw_gid) == 0 && setgid(user->pw_gid) == 0
                        : setgroups(0, NULL) == 0 && setgid(gid) == 0;
    if (grouped && setuid(uid) == 0)
        return true;
    buf_printf(message, "cannot become user %u: %s", uid, strerrordesc_np(errno));
    return false;
}

/* Returns true if the directory belongs to root, and others cannot replace what root has put there. */
static bool is_roots(const char *directory)
{
    struct stat info;
    return lstat(directory, &info) == 0 && info.st_uid == 0 && (!(info.st_mode & S_IWOTH) || info.st_mode & S_ISVTX);
}

bool user_only_root_changes(const char *path)
{
    char *copy = strdup(path);
    char *at = copy ? realpath(dirname(copy), NULL) : NULL;
    bool only_root = at && is_roots("/");
    for (char *end; only_root && (end = strrchr(at, '/')) && end[1]; *end = '\0')
        only_root = is_roots(at);
    if (at && !only_root)
        errno = EPERM;
    free(at);
    free(copy);
    return only_root;
}
