/* SPDX-License-Identifier: MIT */
/*
 * Rules for names (docs/protocol.md, Names). Names are never normalised: accents, spaces and other normal forms are
 * refused. "." and ".." are refused in every name that is part of a path: clients and proxies resolve them in any
 * encoding, so one client could create such a name and another could not reach it.
 */
#ifndef CORE_NAME_H
#define CORE_NAME_H

#include "base/base.h"

/*
 * Keys and owners of a namespace are stored as "\x01namespace\x01key" (docs/design.md, Namespaces). A key begins at
 * '!', so a stored key without this mark is one of the empty namespace.
 */
#define NAMESPACE_MARK '\x01'

enum {
    NAME_MAX_BYTES = 255, /* of a name as clients write it */
    NONCE_MAX_BYTES = 64,
    SQL_USER_MAX_BYTES = 128,
    NAMESPACE_MAX_BYTES = 32,
    SEAT_NAME_MAX_BYTES = 32,
    STORED_KEY_MAX_BYTES = 1 + NAMESPACE_MAX_BYTES + 1 + NAME_MAX_BYTES,
};

/* Checks a semaphore name or a template prefix: 1 to 255 bytes of A-Z a-z 0-9 . _ : @ - , not "." or "..". */
bool name_is_semaphore(struct bytes name);
/* Checks an external_id or owner: 1 to 255 bytes of printable ASCII without space, not "." or "..". */
bool name_is_key(struct bytes name);
/* Checks a namespace: 1 to 32 bytes of a-z 0-9 - . */
bool name_is_namespace(struct bytes name);
/* Returns true if a stored key or owner is one of a namespace that is not empty. */
bool name_has_namespace(struct bytes stored);
/* Returns a stored key or owner as its client wrote it, without its namespace: a slice of `stored`. */
struct bytes name_without_namespace(struct bytes stored);
/*
 * Checks the name of an SQL user without its host: 1 to 128 bytes of printable ASCII without space, quotes and backslash,
 * so that it can be written between quotes.
 */
bool name_is_sql_user(struct bytes name);
/* Checks the nonce of an acquire: 1 to 64 bytes of printable ASCII. */
bool name_is_nonce(struct bytes nonce);
/*
 * Checks the label of a slot: 1 to 255 bytes of UTF-8 without control characters (U+0000 to U+001F, U+007F to U+009F).
 */
bool name_is_label(struct bytes name);
/* Checks the section or row of a seat: like a label, 1 to 32 bytes. */
bool name_is_seat_name(struct bytes name);
/* Checks a tag of a seat: 1 to 32 bytes of printable ASCII without space. */
bool name_is_tag(struct bytes name);
#endif
