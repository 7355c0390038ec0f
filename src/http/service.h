/* SPDX-License-Identifier: MIT */
/*
 * What all handlers of a thread share: one for the loop, one for the thread that reads large bodies (bodies.c), which
 * differ in `message`. Owned by permitd.c; the loop's thread changes settings while the other reads them.
 */
#ifndef HTTP_SERVICE_H
#define HTTP_SERVICE_H

#include "engine/engine.h"

struct budget;
struct doctor_options;
struct server;

struct service {
    struct engine *engine; /* NULL: permitd starts */
    /* True while the database cannot be asked anything, and a sentence why. */
    bool (*is_absent)(void *context, char ret_sentence[STORE_MESSAGE_SIZE]);
    void *is_absent_context;
    struct server *server;
    struct buf message;       /* scratch for sentences of the handlers */
    struct budget *receiving; /* counts the memory of requests that come in; NULL: it is not bounded */
    struct budget *answering; /* the same of those that are worked on, and of answers */
    mono_us started_at;
    _Atomic int64_t retention_ms;
    _Atomic int64_t retention_rows;
    int64_t tombstone_ms;
    _Atomic int64_t max_wait_ms;
    _Atomic int64_t failover_hold_ms;
    _Atomic int64_t default_ttl_ms; /* of a template that is made without one */
    unsigned metrics_semaphores;
    const char *allowed_hosts; /* names beside localhost that URLs may have, separated by commas; NULL: none.
                                  Only the loop reads it */
    const struct doctor_options *doctor;
    const char *database; /* "private" or the address without the password; for /healthz */
};
#endif
