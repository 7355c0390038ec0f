/* SPDX-License-Identifier: MIT */
/*
 * What may be a name (docs/protocol.md, Names). Names are never folded: accents, spaces and other normal forms are
 * refused. So are "." and "..", of everything that stands in a path: clients and proxies fold them away there, however
 * they are encoded, and what has such a name could be made by one client and not be reached by the next.
 */
#ifndef CORE_NAME_H
#define CORE_NAME_H

#include "base/base.h"

enum { NAME_MAX_BYTES = 255, NONCE_MAX_BYTES = 64 };

/* Semaphores, and prefixes of templates: 1 to 255 bytes of A-Z a-z 0-9 . _ : @ - , not "." or "..". */
bool name_is_semaphore(struct bytes name);
/* external_id, owner: 1 to 255 bytes of printable ASCII without space, not "." or "..". */
bool name_is_key(struct bytes name);
/* nonce of an acquire: 1 to 64 bytes of printable ASCII. */
bool name_is_nonce(struct bytes nonce);
/* Of a slot: 1 to 255 bytes of UTF-8 without control characters (U+0000 to U+001F, U+007F to U+009F). */
bool name_is_label(struct bytes name);

enum { NAME_FAR = 4 };
/*
 * How many bytes are missing, too many, wrong, or swapped with their neighbour, if one was meant for the other: at most
 * three, and at most one in three. NAME_FAR: it is another name.
 */
unsigned name_distance(struct bytes a, struct bytes b);
#endif
