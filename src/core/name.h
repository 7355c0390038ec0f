/* SPDX-License-Identifier: MIT */
/*
 * What may be a name (docs/protocol.md, Names). Names are never folded: accents, spaces and other normal forms are
 * refused. So are "." and "..", of everything that stands in a path: clients and proxies fold them away there, however
 * they are encoded, and what has such a name could be made by one client and not be reached by the next.
 */
#ifndef CORE_NAME_H
#define CORE_NAME_H

#include "base/base.h"

enum { NAME_MAX_BYTES = 255 };

/* Semaphores, and prefixes of templates: 1 to 255 bytes of A-Z a-z 0-9 . _ : @ - , not "." or "..". */
bool name_is_semaphore(struct bytes name);
/* external_id, owner: 1 to 255 bytes of printable ASCII without space, not "." or "..". */
bool name_is_key(struct bytes name);
/* Of a slot: 1 to 255 bytes of UTF-8 without control characters (U+0000 to U+001F, U+007F to U+009F). */
bool name_is_label(struct bytes name);
#endif
