/* SPDX-License-Identifier: MIT */
/* What all handlers share. One per process, owned by permitd.c; read on the loop's thread unless said otherwise. */
#ifndef HTTP_SERVICE_H
#define HTTP_SERVICE_H

#include "engine/engine.h"

struct doctor_options;
struct server;
struct wire;

struct service {
    struct engine *engine;
    struct server *server;
    struct wire *wire;
    struct buf message; /* scratch for sentences of the handlers */
    mono_us started_at;
    int64_t retention_ms;
    int64_t retention_rows;
    int64_t tombstone_ms;
    int64_t max_wait_ms;
    int64_t failover_hold_ms;
    int64_t default_ttl_ms; /* of a template that is made without one */
    unsigned metrics_semaphores;
    const struct doctor_options *doctor;
    const char *database; /* "private" or the address without the password; for /healthz */
};
#endif
