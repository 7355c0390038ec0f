/* SPDX-License-Identifier: MIT */
/* The default owner of a request: USER@HOST. */
#ifndef CLI_DEFAULT_OWNER_H
#define CLI_DEFAULT_OWNER_H

enum { OWNER_SIZE = 256 };

/* Returns `owner`, or NULL if user and host do not form a name that the server accepts. */
const char *owner_default(char owner[OWNER_SIZE]);
#endif
