/* SPDX-License-Identifier: MIT */
/*
 * The credentials file: principals with their rights and credentials. docs/security.md has its form. permitd reads it
 * for its services (api/principals.h), permitctl checks it.
 */
#ifndef CORE_CREDENTIALS_H
#define CORE_CREDENTIALS_H

#include <sys/types.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/digest.h"
#include "core/quotas.h"
#include "core/scope.h"

/* The rights, one bit each. A client needs one of the rights of its route; a role has some of them. */
enum right {
    RIGHT_OPEN = 0,         /* no credential needed */
    RIGHT_LOOK = 1 << 0,    /* see what is in scope */
    RIGHT_USE = 1 << 1,     /* acquire, renew, confirm, release */
    RIGHT_OPERATE = 1 << 2, /* change semaphores and templates, force-release */
    RIGHT_ADMIN = 1 << 3,   /* fence bump, doctor, servers */
    RIGHT_FENCE = 1 << 4,   /* GET .../fence only, for stores */
    RIGHT_METRICS = 1 << 5,
};

/* One row for each word that `role` may have. */
struct role {
    const char *word;
    unsigned rights;  /* bits of enum right */
    bool needs_scope; /* `semaphores` must be given; other roles have all semaphores and must not give it */
};
/* Returns the role of this word; NULL: none. */
const struct role *role_of_word(const char *word);

enum {
    PRINCIPAL_NAME_MAX = 255,
    TOKEN_SIZE = 4 + 43, /* "pmt_" and 256 random bits in base64url */
    CREDENTIALS_MAX_BYTES = 16 * 1024 * 1024,
};

/* Owned by its table. */
struct principal {
    const char *name; /* 1 to PRINCIPAL_NAME_MAX bytes of A-Z a-z 0-9 . _ @ - */
    unsigned rights;  /* bits of enum right: those of its role, and of each role before it */
    struct scope scope;
    struct bytes namespace; /* of its keys and owners; length 0: the empty one */
    const struct role *role;
    struct quotas quotas;
};

/* One credential of a principal, or the principal's section (credentials.principals). */
struct credential {
    struct bytes key; /* digest of a token, name of a certificate, text of a user id, or name of a principal */
    struct principal *principal;
    int line;
    int64_t until; /* seconds since 1970 at which a token ends; INT64_MAX: never */
};

struct credential_list {
    struct credential *items; /* in the order of bytes_compare of their keys, which are all different */
    size_t count;
    size_t capacity;
};

struct credentials {
    struct arena arena; /* of principals and texts */
    struct credential_list principals;
    struct credential_list tokens;
    struct credential_list certificates;
    struct credential_list users;
};

/*
 * Reads the text of a file; `path` is for messages. The credentials must be zeroed. False: `message` has path, line and
 * reason; the credentials are released.
 */
bool credentials_parse(struct bytes text, const char *path, struct credentials *ret_credentials,
                       struct buf *message) MUST_CHECK;
/* Reads a file of mode 0600 or stricter that belongs to `user` or to root. As credentials_parse. */
bool credentials_load(const char *path, uid_t user, struct credentials *ret_credentials,
                      struct buf *message) MUST_CHECK;
/* Accepts zeroed credentials. */
void credentials_release(struct credentials *credentials);

/* Returns true for the name of a principal: 1 to PRINCIPAL_NAME_MAX of A-Z a-z 0-9 . _ @ - */
bool principal_name_is_valid(struct bytes name) MUST_CHECK;
/* Returns true for a name in `semaphores`: that of a semaphore, a prefix of one with * behind it, or "*". */
bool scope_name_is_valid(struct bytes name) MUST_CHECK;
/* Reads the date of `until`, "2027-01-31", as the end of that day in UTC, in seconds since 1970. */
bool credential_parse_date(const char *text, int64_t *ret_until) MUST_CHECK;

/* The soonest time after `now` (seconds since 1970) at which a token ends; INT64_MAX: none does. */
int64_t credentials_until(const struct credentials *credentials, int64_t now);

/* Returns true for a well-formed token: "pmt_" and 43 characters of base64url. */
bool token_is_well_formed(struct bytes token) MUST_CHECK;
/* Finds a token by its digest; it may have ended. The time of each comparison does not depend on the digests. */
const struct credential *credentials_of_digest(const struct credentials *credentials,
                                               const unsigned char digest[DIGEST_SIZE]) MUST_CHECK;
/*
 * Finds the principal of a certificate by its names; NULL: none. "CN=..." counts only if the certificate has no other
 * name. False: the names belong to different principals.
 */
bool credentials_of_certificate(const struct credentials *credentials, const char *const *names, size_t count,
                                const struct principal **ret_principal) MUST_CHECK;
/* Finds the principal of a user of this machine. NULL: none. */
const struct principal *credentials_of_user(const struct credentials *credentials, uid_t uid) MUST_CHECK;
#endif
