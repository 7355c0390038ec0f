/* SPDX-License-Identifier: MIT */
/*
 * All statuses of calls, for the server and for its clients: one row per status. Success is PERMIT_OK, 0, always.
 * Programs decide by the status; the message beside it is for people.
 */
#ifndef PERMIT_STATUS_H
#define PERMIT_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* How a caller may repeat the call with the same key. */
enum permit_retry {
    PERMIT_RETRY_NEVER, /* final: change the request, or accept the answer */
    PERMIT_RETRY_LATER, /* after Retry-After; the call changed nothing */
    PERMIT_RETRY_SAME,  /* the call may be done, or partly done: repeating it gives the result, or completes it */
};

/*
 *   name                         word in problem types and logs  HTTP  retry  title
 *
 * The words never change. The numbers follow the order of the table and may change with each version before 1.0. The
 * rows from PERMIT_CONFLICT on never leave the server: the engine acts on them or turns them into another status.
 */
#define PERMIT_STATUS_MAP(X)                                                                                           \
    X(PERMIT_OK, "ok", 200, NEVER, "Done")                                                                             \
    X(PERMIT_MALFORMED, "malformed", 400, NEVER, "Malformed request")                                                  \
    X(PERMIT_UNAUTHENTICATED, "unauthenticated", 401, NEVER, "No valid credential")                                    \
    X(PERMIT_FORBIDDEN, "forbidden", 403, NEVER, "Not allowed")                                                        \
    X(PERMIT_UNKNOWN_SEMAPHORE, "unknown_semaphore", 404, NEVER, "No such semaphore")                                  \
    X(PERMIT_UNKNOWN_REQUEST, "unknown_request", 404, NEVER, "No such request")                                        \
    X(PERMIT_UNKNOWN_OWNER, "unknown_owner", 404, NEVER, "No such owner")                                              \
    X(PERMIT_UNKNOWN_TEMPLATE, "unknown_template", 404, NEVER, "No such template")                                     \
    X(PERMIT_UNKNOWN_ACCOUNT, "unknown_account", 404, NEVER, "No such SQL account")                                    \
    X(PERMIT_UNKNOWN_PATH, "unknown_path", 404, NEVER, "No such path")                                                 \
    X(PERMIT_METHOD_NOT_ALLOWED, "method_not_allowed", 405, NEVER, "Method not allowed")                               \
    X(PERMIT_IN_USE, "in_use", 409, NEVER, "Permits are still held")                                                   \
    X(PERMIT_CONFIRMED, "confirmed", 409, NEVER, "The request is confirmed")                                           \
    X(PERMIT_IN_TRANSACTION, "in_transaction", 409, LATER, "A transaction in the database works on the request")       \
    X(PERMIT_ENDED, "ended", 410, NEVER, "The request has ended")                                                      \
    X(PERMIT_FEED_GONE, "feed_gone", 410, NEVER, "Events were deleted or lost")                                        \
    X(PERMIT_VERSION_MISMATCH, "version_mismatch", 412, NEVER, "Precondition failed")                                  \
    X(PERMIT_TOO_LARGE, "too_large", 413, NEVER, "Too large")                                                          \
    X(PERMIT_NOT_JSON, "not_json", 415, NEVER, "The body must be application/json")                                    \
    X(PERMIT_MISDIRECTED, "misdirected", 421, NEVER, "Host not served by this server")                                 \
    X(PERMIT_KEY_REUSED, "key_reused", 422, NEVER, "Key already used with a different request")                        \
    X(PERMIT_NEVER_SATISFIABLE, "never_satisfiable", 422, NEVER, "Request can never be granted")                       \
    X(PERMIT_INVALID, "invalid", 422, NEVER, "Invalid content")                                                        \
    X(PERMIT_NO_CAPACITY, "no_capacity", 423, LATER, "No capacity")                                                    \
    X(PERMIT_PAUSED, "paused", 423, LATER, "The semaphore is paused")                                                  \
    X(PERMIT_TOO_MANY, "too_many", 429, LATER, "Too many requests")                                                    \
    X(PERMIT_INTERNAL, "internal", 500, SAME, "Internal error")                                                        \
    X(PERMIT_BUSY, "busy", 503, LATER, "The server is busy")                                                           \
    X(PERMIT_OUTCOME_UNKNOWN, "outcome_unknown", 503, SAME, "Outcome unknown")                                         \
    X(PERMIT_UNFINISHED, "unfinished", 503, SAME, "Partially completed")                                               \
    X(PERMIT_DATABASE_UNAVAILABLE, "database_unavailable", 503, LATER, "Database unavailable")                         \
    X(PERMIT_SHUTTING_DOWN, "shutting_down", 503, LATER, "The server is stopping")                                     \
    X(PERMIT_NO_SERVER, "no_server", 503, SAME, "No server reachable")                                                 \
    X(PERMIT_CONFLICT, "conflict", 503, LATER, "Transaction conflict")                                                 \
    X(PERMIT_LOCK_TIMEOUT, "lock_timeout", 503, LATER, "Row lock wait timed out")                                      \
    X(PERMIT_DATABASE_LOST, "database_lost", 503, SAME, "Database connection lost")                                    \
    X(PERMIT_DATABASE_FULL, "database_full", 503, LATER, "Database storage full")                                      \
    X(PERMIT_NO_MEMORY, "no_memory", 503, LATER, "No memory")

enum permit_status {
#define X(name, word, http, retry, title) name,
    PERMIT_STATUS_MAP(X)
#undef X
        PERMIT_STATUS_COUNT
};

/* Returns the word, such as "no_capacity": the last part of the problem type. Never NULL. */
const char *permit_status_word(enum permit_status status);
/* Returns a short title for people. Never NULL. */
const char *permit_status_title(enum permit_status status);
/* Returns the HTTP status code of the status. */
int permit_status_http(enum permit_status status);
enum permit_retry permit_status_retry(enum permit_status status);
/* Returns the status with this word, or -1. */
int permit_status_from_word(const char *word);

#ifdef __cplusplus
}
#endif
#endif
