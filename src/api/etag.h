/* SPDX-License-Identifier: MIT */
/* Entity tags (RFC 9110, 8.8.3): those of answers, and those that a client knows. */
#ifndef API_ETAG_H
#define API_ETAG_H

#include "core/semaphore.h"
#include "http/exchange.h"

/* Sets the tag of a semaphore: "CONFIG_VERSION.VERSION". */
void etag_of_semaphore(struct answer *answer, const struct semaphore *semaphore);
/* Returns the next tag of If-None-Match, without its W/, and moves `list` past it; length 0: the end. */
struct bytes etag_next(struct bytes *list);
/* Digests of pages, for their tags. FNV-1a, since no client can choose what a page shows so that two collide. */
#define ETAG_DIGEST_BEGIN UINT64_C(0xcbf29ce484222325)
uint64_t etag_digest_add(uint64_t digest, uint64_t value);
uint64_t etag_digest(struct bytes text);
/* Turns the answer into a 304 with this tag. */
void etag_not_modified(struct answer *answer, struct bytes tag);
#endif
