/* SPDX-License-Identifier: MIT */
/* A scope: the semaphores that a principal may see or use, as exact names and prefixes. */
#ifndef CORE_SCOPE_H
#define CORE_SCOPE_H

#include "base/base.h"

struct scope_entry {
    struct bytes text;
    bool is_prefix; /* it covers every name that begins with `text`; an empty prefix covers all names */
};

/* Entries in the order of bytes_compare; no entry is covered by another one. The strings belong to the owner. */
struct scope {
    const struct scope_entry *entries;
    size_t count;
};

/*
 * Sorts the entries and removes those that another one covers. Returns the new count. After it the array is a scope.
 */
size_t scope_normalize(struct scope_entry *entries, size_t count) MUST_CHECK;
/* Returns true if the scope covers this name. scope NULL: everything is covered. */
bool scope_covers(const struct scope *scope, struct bytes name) MUST_CHECK;
/* Returns true if the scope covers every name that begins with this prefix. scope NULL: it does. */
bool scope_covers_prefix(const struct scope *scope, struct bytes prefix) MUST_CHECK;
/* Returns true if the scope covers every name that the other one covers. */
bool scope_covers_scope(const struct scope *scope, const struct scope *other) MUST_CHECK;
/*
 * Sets *ret_prefix to the prefix of the scope that covers this name; length 0 for scope NULL. False: no prefix covers
 * it, at most an exact name.
 */
bool scope_find_prefix(const struct scope *scope, struct bytes name, struct bytes *ret_prefix) MUST_CHECK;
/*
 * A walk through the names of a scope that begin with `prefix` and come after the name `after`, in the order of names.
 * Set the members and zero the rest.
 */
struct scope_walk {
    const struct scope *scope; /* NULL: everything */
    struct bytes prefix;
    struct bytes after; /* length 0: from the first name on */
    size_t index;       /* the walk's own */
};
/* Sets *ret_part to the next name, or to a prefix of names, of the walk. False: there is none. */
bool scope_walk_next(struct scope_walk *walk, struct scope_entry *ret_part) MUST_CHECK;
/* Covers no name. */
extern const struct scope scope_of_nothing;
#endif
