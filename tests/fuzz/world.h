/* SPDX-License-Identifier: MIT */
/*
 * What surrounds the handlers of HTTP requests in the target `request`, in place of server.c, the engine and the
 * database. What the engine is given is checked and kept; when the handler has returned, and what it must not keep has
 * been freed, world_decide answers it as the fate says. Rows of the database are made up, with hostile texts in them.
 */
#ifndef FUZZ_WORLD_H
#define FUZZ_WORLD_H

#include "http/exchange.h"
#include "http/service.h"

enum { WORLD_HEADERS_MAX = 8, WORLD_OPS_MAX = 1000, MAX_WAIT_MS = 600000, TIMEOUT_MS = 10000 };

struct world_header {
    const char *name;
    char *value;
};

struct world {
    /* What becomes of what the engine is given. */
    enum permit_status taken;   /* PERMIT_OK: it takes it; else what it refuses with (in a batch: every other one) */
    enum permit_status decided; /* how it ends then */
    bool at_once;               /* before the handler goes on, as by a quick thread of the engine */
    struct bytes text;          /* any bytes: what stands in rows */

    struct world_header headers[WORLD_HEADERS_MAX];
    size_t header_count;

    /* What the engine was given. */
    struct op *ops[WORLD_OPS_MAX];
    size_t op_count;
    struct look *look;
    struct owner_op *owner;
    bool paused;                       /* it has paused a semaphore */
    bool holders_read;                 /* it has looked at who holds */
    bool deciding;                     /* it is telling what it has decided */
    size_t submits;                    /* of all three */
    unsigned char digest[DIGEST_SIZE]; /* of the last acquire */
    unsigned finished;                 /* calls of exchange_finish */

    /* What the client said and must read in its answer; member NULL: nothing. */
    const char *said_member;
    struct bytes said;
};

extern struct world world;

/* Of the service that all handlers share. */
void world_open(struct service *service);
/* Answers what was given and not answered yet. */
void world_decide(void);

/* The rows of world_rows.c. */
extern const struct served_clock world_clock;
extern const utc_us world_now;
/* world.text, at most `max` bytes of it. */
struct bytes world_text(size_t max);
#endif
