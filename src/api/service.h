/* SPDX-License-Identifier: MIT */
/*
 * State shared by the handlers of one thread: one service for the loop, one for the thread that reads large bodies
 * (bodies.c). The two differ in `message`. Owned by permitd.c. The loop's thread changes settings while the other
 * thread reads them.
 */
#ifndef API_SERVICE_H
#define API_SERVICE_H

#include "base/config.h"
#include "engine/engine.h"

struct access;
struct availability_cache;
struct doctor_options;
struct readiness;
struct principals;
struct refusals;

struct service_settings {
    char *
        allowed_hosts; /* host names that URLs may have beside localhost, separated by commas; NULL: none. Only the loop
                            reads it */
    _Atomic int64_t max_wait_ms; /* longest wait of an acquire; 0: none waits */
    _Atomic int64_t max_streams; /* readers of the feed that wait; more are answered too_many */
    atomic_bool feed_tenants;    /* operators may set the feed of a semaphore to `all`; else the right admin may */
    int64_t metrics_semaphores;  /* that /metrics shows one by one; with more only sums */
};
extern const struct config_section service_section; /* settings.c */

struct service {
    const struct service_settings *settings; /* of all services */
    const struct engine_settings
        *engine_settings;  /* the same. Only the loop reads it; other threads: engine_settings_now */
    struct engine *engine; /* NULL while permitd starts */
    /* Returns true while the database cannot be used, with the reason. */
    bool (*is_unavailable)(void *context, char ret_sentence[STORE_MESSAGE_SIZE]);
    void *is_unavailable_context;
    struct buf message;                      /* buffer for messages of the handlers */
    struct access *access;                   /* counters of authentication */
    struct readiness *readiness;             /* of all services */
    struct refusals *refusals;               /* the same */
    struct availability_cache *availability; /* the same */
    mono_us started_at;
    /*
     * The principals and their rights. NULL: no credentials are configured, and every client may do everything. Only
     * the loop's thread reads or replaces this member. A call takes a reference if it uses the table for longer
     * (principals_ref).
     */
    struct principals *_Atomic principals;
    bool credentials_reload_failed; /* the last one: `principals` is older than the file. Only the loop reads it */
    const struct doctor_options *doctor;
    const char *database; /* "private" or "external"; for /healthz */
};
#endif
