/* SPDX-License-Identifier: MIT */
/* Random identities; the only file that speaks to libuuid. */
#ifndef BASE_UUID_H
#define BASE_UUID_H

#include "base/base.h"

enum { UUID_TEXT_SIZE = 37 };

/* A random (version 4) UUID in lower case, zero-terminated. */
void uuid_make(char text[UUID_TEXT_SIZE]);
/* Random bits from the kernel. */
uint64_t random_u64(void);
#endif
