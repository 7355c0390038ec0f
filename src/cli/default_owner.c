/* SPDX-License-Identifier: MIT */
#include "cli/default_owner.h"

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

#include "core/name.h"

const char *owner_default(char owner[OWNER_SIZE])
{
    char host[128];
    const struct passwd *user = getpwuid(getuid());
    if (gethostname(host, sizeof(host)) != 0)
        return NULL;
    host[sizeof(host) - 1] = '\0';
    int length = user ? snprintf(owner, OWNER_SIZE, "%s@%s", user->pw_name, host)
                      : snprintf(owner, OWNER_SIZE, "%u@%s", (unsigned)getuid(), host);
    return length > 0 && length < OWNER_SIZE && name_is_key(bytes_of(owner)) ? owner : NULL;
}
