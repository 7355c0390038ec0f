/* SPDX-License-Identifier: MIT */
#include "base/user.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
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
