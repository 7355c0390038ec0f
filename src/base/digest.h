/* SPDX-License-Identifier: MIT */
/* SHA-256, and HMAC with it (RFC 2104). Only digest.c uses OpenSSL's digests. */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H

#include "base/base.h"

enum { DIGEST_SIZE = 32 };

/* Computes the SHA-256 of message. False: the library failed (out of memory); ret_digest is then undefined. */
bool digest_sha256(struct bytes message, unsigned char ret_digest[DIGEST_SIZE]) MUST_CHECK;
/* Computes the HMAC-SHA256 of message. False as above. */
bool digest_hmac_sha256(struct bytes key, struct bytes message, unsigned char ret_digest[DIGEST_SIZE]) MUST_CHECK;
#endif
