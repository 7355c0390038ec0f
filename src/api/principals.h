/* SPDX-License-Identifier: MIT */
/*
 * The table of principals, with the rights and credentials of each. It is read from the credentials file
 * (docs/security.md has its form) and never changes afterwards; a reload makes another table. A file with a mistake
 * makes none. All functions may be called on any thread.
 */
#ifndef API_PRINCIPALS_H
#define API_PRINCIPALS_H

#include "core/credentials.h"

struct principals;

/* The result of an authentication; also the label `result` of permitd_auth_total. */
enum auth_result {
    AUTH_OK,
    AUTH_MISSING,   /* no credential */
    AUTH_MALFORMED, /* not one well-formed Authorization: Bearer */
    AUTH_UNKNOWN,
    AUTH_EXPIRED,
    AUTH_CONFLICT, /* token and certificate, or the names of the certificate, belong to different principals */
    AUTH_RESULTS,
};
/* Returns the word of a result, such as "unknown". */
const char *auth_result_word(enum auth_result result);

/*
 * Reads the file. The table has one reference, the caller's. NULL: `message` has file, line and reason; a file that
 * others than its owner may read or write is refused.
 */
struct principals *principals_load(const char *path, struct buf *message) MUST_CHECK;
/* As principals_load, for a file that must belong to this user or to root, instead of the user of the process. */
struct principals *principals_load_of(const char *path, uid_t user, struct buf *message) MUST_CHECK;
struct principals *principals_ref(struct principals *principals);
/* Drops a reference, and frees the table with the last one. Accepts NULL. */
void principals_unref(struct principals *principals);

/* Returns true if a principal has this namespace. */
bool principals_have_namespace(const struct principals *principals, struct bytes namespace) MUST_CHECK;
size_t principals_count(const struct principals *principals);
/* A different number for every table of this process, never 0. */
uint64_t principals_generation(const struct principals *principals);
/* The soonest time after `now` (seconds since 1970) at which a token of the table ends; INT64_MAX: none does. */
int64_t principals_until(const struct principals *principals, int64_t now);

/*
 * Finds the principal of a token such as "pmt_..." at this time (seconds since 1970). *ret_until is the time at which
 * the token ends; INT64_MAX: never. NULL: *ret_result says why.
 */
const struct principal *principals_of_token(const struct principals *principals, struct bytes token, int64_t now,
                                            int64_t *ret_until, enum auth_result *ret_result) MUST_CHECK;
/*
 * Reads the value of a header Authorization, "Bearer pmt_..." with the scheme in any case, and returns its token. data
 * NULL: it is malformed.
 */
struct bytes principals_token_of_header(const char *value) MUST_CHECK;
/*
 * Finds the principal of a certificate by its names, such as "DNS:shop.example". "CN=shop" counts only if there is no
 * other name. AUTH_MISSING: there is no name; AUTH_UNKNOWN: no principal has one of them; AUTH_CONFLICT: several do.
 */
enum auth_result principals_of_certificate(const struct principals *principals, const char *const *names, size_t count,
                                           const struct principal **ret_principal) MUST_CHECK;
/* Finds the principal of the peer of a Unix socket. NULL: none. */
const struct principal *principals_of_user(const struct principals *principals, uid_t uid) MUST_CHECK;
#endif
