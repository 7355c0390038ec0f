/* SPDX-License-Identifier: MIT */
/*
 * Access: finds the principal of each request and checks its rights (docs/security.md). A request is authenticated when
 * its headers are complete. Then routes.c checks the right of its route, and handlers check the names that only they
 * know. Without credentials (service->principals is NULL) every request may do everything.
 *
 * A reload exchanges the table of principals. A call keeps a reference to the table that has authenticated it, so that
 * its principal and scope live as long as its operations.
 */
#ifndef API_ACCESS_H
#define API_ACCESS_H

#include "api/principals.h"
#include "api/quota.h"
#include "core/plan.h"
#include "http/exchange.h"

enum { RIGHT_ALL = RIGHT_LOOK | RIGHT_USE | RIGHT_OPERATE | RIGHT_ADMIN | RIGHT_FENCE | RIGHT_METRICS };
/* Returns the word of one right, such as "operate". */
const char *right_word(unsigned right);

struct caller_counts;
struct route;

/* The principal of a call. */
struct caller {
    struct principals *table;          /* a reference; NULL: not authenticated */
    const struct principal *principal; /* of `table` */
    struct caller_counts *counts;      /* NULL: not authenticated, or no memory */
    struct quota_state *quotas;        /* of `counts` */
    int64_t bytes;                     /* taken of its quota, until the call ends */
    bool waits;                        /* the same of `waiting` */
    const char *address;               /* of the client, in the arena; NULL: not needed or no memory */
    const struct route *audited;       /* the request is a change that the log shows; NULL: it is not */
    struct bytes why;                  /* the reason that it gives, if no operation has it */
};

/* Counters of authentication, used on the loop's thread only. */
struct access;

struct access *access_new(void) MUST_CHECK;
/* Accepts NULL. */
void access_free(struct access *access);

/* ---- hooks of the server, on the loop's thread ---- */

/*
 * Authenticates the request. False: the exchange's answer is the refusal: it has no valid credential, or its principal
 * has too many connections. A request for an open route is then served without a principal.
 */
bool access_admit(struct exchange *exchange, bool open) MUST_CHECK;
/*
 * After a reload, for a request that is being received: if it was admitted, gives it the rights that its credential has
 * now. False: the credential is not valid any more, or is that of another principal.
 */
bool access_readmit(struct exchange *exchange) MUST_CHECK;
/* Returns true if the caller of a waiting exchange still has its rights: to acquire, or to read the feed. */
bool access_may_wait(struct exchange *exchange) MUST_CHECK;
/* The call is over: counts and logs it, and drops its reference to the table. */
void access_end_call(struct exchange *exchange);
/* The principal of a client. `until`: seconds since 1970 at which its credential ends; INT64_MAX: never. */
struct identity {
    const struct principal *principal;
    int64_t until;
};

/*
 * Finds the identity of a client. `value` is that of its header Authorization, which it has sent `times` times. A token
 * that is given must be valid. A certificate, or the user of a Unix socket, counts if there is no token. A certificate
 * of another principal than the token's is a conflict, and so is one with names of several principals.
 */
enum auth_result access_identify(const struct principals *table, const struct client *client, const char *value,
                                 unsigned times, int64_t now, struct identity *ret_identity) MUST_CHECK;
/* Frees client->session: the connection's accepted credential. */
void access_end_session(void *session);

/* ---- for handlers, on any thread ---- */

/* Returns the principal of the request; NULL: it is not authenticated, or there are no credentials. */
const struct principal *access_principal(const struct exchange *exchange);
/* Returns its name; length 0: none. */
struct bytes access_name(const struct exchange *exchange);
/* Returns the time in seconds since 1970 at which the credential of the request ends; INT64_MAX: never. On the loop. */
int64_t access_until(const struct exchange *exchange);
/* Returns true if the request is authenticated, or no request needs to be. */
bool access_is_known(const struct exchange *exchange) MUST_CHECK;
/* Returns true if the caller has one of these rights (bits of enum right). */
bool access_has(const struct exchange *exchange, unsigned rights) MUST_CHECK;
/* Returns the caller's scope; NULL: everything. Lives as long as the call. */
const struct scope *access_scope(const struct exchange *exchange);
/* Sets principal and scope of an operation of this call. */
void access_mark(const struct exchange *exchange, struct operation *operation);
/* PERMIT_FORBIDDEN: the caller has none of the rights; `message` says which it needs. */
enum permit_status access_check_right(const struct exchange *exchange, unsigned rights, struct buf *message) MUST_CHECK;
/* The same on this semaphore, or on all that begin with this prefix, which the scope of the caller must cover. */
enum permit_status access_check_semaphore(const struct exchange *exchange, unsigned rights, struct bytes name,
                                          struct buf *message) MUST_CHECK;
enum permit_status access_check_prefix(const struct exchange *exchange, unsigned rights, struct bytes prefix,
                                       struct buf *message) MUST_CHECK;
/* The same for all semaphores that an acquire wants. */
enum permit_status access_check_wants(const struct exchange *exchange, const struct operation *operation,
                                      struct buf *message) MUST_CHECK;
/*
 * Returns true if all semaphores of a request are in scope. `names` are those of its permits. A request without
 * permits is in scope if its namespace is in reach (namespaces_reach).
 */
bool access_covers_request(const struct exchange *exchange, const struct request *request,
                           const struct bytes *names) MUST_CHECK;
/* If the request is a change that needs one of these rights and the caller is an operator, logs it when it is over. */
void access_audit(struct exchange *exchange, const struct route *route, unsigned rights);

/* Writes the metrics of authentication. On the loop's thread. */
void access_write_metrics(const struct access *access, struct buf *out);
#endif
