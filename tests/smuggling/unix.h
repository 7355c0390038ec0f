/* SPDX-License-Identifier: MIT */
#ifndef SMUGGLING_UNIX_H
#define SMUGGLING_UNIX_H

/* Returns a connected blocking socket; -1 on failure. */
int unix_connect(const char *path);
#endif
