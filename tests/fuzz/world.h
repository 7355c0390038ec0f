/* SPDX-License-Identifier: MIT */
/*
 * The environment of HTTP handlers in the target `request`, in place of server.c, the engine and the database.
 * Operations are checked and kept; when the handler has returned, and the data it must not keep is freed, world_decide
 * answers them with the chosen decision. Rows of the database are invented, with hostile texts in them.
 */
#ifndef FUZZ_WORLD_H
#define FUZZ_WORLD_H

#include "api/call.h"
#include "api/service.h"

enum { WORLD_HEADERS_MAX = 8, WORLD_OPS_MAX = 1000, MAX_WAIT_MS = 600000, TIMEOUT_MS = 10000 };

struct world_header {
    const char *name;
    char *value;
};

struct world {
    /* The treatment of operations. */
    enum permit_status taken;   /* PERMIT_OK: accepted; else the refusal (in a batch: of every other one) */
    enum permit_status decided; /* decision of an accepted one */
    bool at_once;               /* decided before the handler continues, as by a quick engine thread */
    struct bytes text;          /* any bytes, for texts in rows */

    struct world_header headers[WORLD_HEADERS_MAX];
    size_t header_count;

    /* The operations submitted. */
    struct op *ops[WORLD_OPS_MAX];
    size_t op_count;
    struct query *look;
    struct owner_op *owner;
    bool paused;                       /* a semaphore was paused */
    bool holders_read;                 /* holders were read */
    bool deciding;                     /* a decision is being reported */
    size_t submits;                    /* of all three kinds */
    unsigned char digest[DIGEST_SIZE]; /* of the last acquire */
    unsigned finished;                 /* calls of exchange_finish */

    /* A text of the client that the answer must repeat; member NULL: none. */
    const char *said_member;
    struct bytes said;
};

extern struct world world;

/* Opens the service that all handlers share. */
void world_open(struct service *service);
/* Answers the operations submitted and not yet answered. */
void world_decide(void);

/* The rows of world_rows.c. */
extern const struct lease_clock world_clock;
extern const utc_us world_now;
/* Returns world.text, at most `max` bytes of it. */
struct bytes world_text(size_t max);
/* A store that answers queries with these rows. */
struct store *world_store(void);
#endif
