/* SPDX-License-Identifier: MIT */
/* Random identities. Only uuid.c uses libuuid. */
#ifndef BASE_UUID_H
#define BASE_UUID_H

#include "base/base.h"

enum { UUID_TEXT_SIZE = 37 };

/* Writes a random (version 4) UUID in lower case, zero-terminated. */
void uuid_make(char text[UUID_TEXT_SIZE]);
/* Returns random bits from the kernel. Aborts if there are none. */
uint64_t random_u64(void);
#endif
