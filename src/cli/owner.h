/* SPDX-License-Identifier: MIT */
/* Who asks, when nobody said: USER@HOST. */
#ifndef CLI_OWNER_H
#define CLI_OWNER_H

enum { OWNER_SIZE = 256 };

/* Returns `owner`, or NULL if user and host do not make a name that the server takes. */
const char *owner_default(char owner[OWNER_SIZE]);
#endif
