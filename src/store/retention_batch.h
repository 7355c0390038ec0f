/* SPDX-License-Identifier: MIT */
/*
 * Retention: deletes ended requests, tombstones and events, one batch at a time. core/retention.h decides which rows
 * may be deleted; the retention task (tasks/retention.c) decides when and how many.
 *
 * Several permitd share the work: the one that gets the named lock permitd.cleaner.<hash of the database name> runs one
 * batch. Each walks for itself, by batches that read a page of permit_request along its primary key, without locks. A
 * batch of requests does not wait for row locks (NOWAIT). It locks only the rows it deletes, found by primary key, and
 * their index entries; so it takes part in no deadlock.
 */
#ifndef STORE_RETENTION_BATCH_H
#define STORE_RETENTION_BATCH_H

#include "base/arena.h"
#include "core/retention.h"
#include "permit/status.h"

struct store;

enum retention_kind {
    RETENTION_REQUESTS, /* ended requests and tombstones that are past due_at or beyond the newest retention_rows */
    RETENTION_EVENTS,   /* events of semaphores, after 30 days */
    RETENTION_KIND_COUNT
};

struct retention_task {
    enum retention_kind kind;
    uint64_t from;           /* first request id of the page (retention_walk); 0: the beginning. Not used for events */
    size_t rows;             /* maximum number of requests and permits in the batch (retention_next_rows) */
    uint64_t retention_rows; /* number of newest requests that are kept until they are due */
};

struct retention_result {
    bool has_lock;              /* false: another permitd has the named lock; this call read and deleted nothing */
    uint64_t deleted;           /* deleted requests or events; 0: none on this page, or no events */
    struct retention_page page; /* of requests */
    int64_t took_us;            /* from BEGIN to COMMIT */
    double behind;              /* retention_backlog of a deleted request; 0 for events */
};

/* The methods; store->retention. */
struct store_retention {
    /*
     * Runs one batch. PERMIT_LOCK_TIMEOUT, PERMIT_CONFLICT: another transaction holds one of the rows; nothing was
     * deleted. After any other failure the session is dropped, so that no transaction or named lock stays open.
     */
    enum permit_status (*batch)(struct store *store, const struct retention_task *task, struct arena *arena,
                                struct retention_result *ret_result);
    /* Reads the number of COMMIT statements of all clients since the server started. Takes the server about 1 ms. */
    enum permit_status (*commits)(struct store *store, uint64_t *ret_commits);
};
#endif
