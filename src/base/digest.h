/* SPDX-License-Identifier: MIT */
/* SHA-256; the only file that speaks to OpenSSL's digests. */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H

#include "base/base.h"

enum { DIGEST_SIZE = 32 };

/* False if the library failed (no memory); then ret_digest is undefined. */
bool digest_sha256(struct bytes message, unsigned char ret_digest[DIGEST_SIZE]) MUST_CHECK;
#endif
