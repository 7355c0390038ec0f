/* SPDX-License-Identifier: MIT */
/*
 * The rows of `webhook`: the URLs that semaphores and templates name, how far each is, and the permitd that sends to it
 * (docs/design.md, "Webhooks"). The change that names a URL makes its row, at the present end of the feed.
 */
#ifndef STORE_WEBHOOKS_H
#define STORE_WEBHOOKS_H

#include "core/feed.h"
#include "core/webhook.h"
#include "store/query.h"

struct scope;
struct store;

struct webhook_row {
    struct bytes url;              /* stored */
    uint64_t namings;              /* rises with each change that names it */
    struct feed_position position; /* the events up to there were taken, or are of other semaphores */
    uint64_t server_id;            /* of the permitd that sends to it; 0: none does */
    utc_us claimed_until;          /* lease clock, as retry_at; NEVER: not claimed */
    uint64_t failures;             /* calls that failed since the last that did not */
    utc_us retry_at;               /* no call before; NEVER: at once */
    uint32_t status;               /* of the last call; 0: none, or no answer */
    struct bytes error;            /* why it failed; empty: it did not */
    utc_us called_at;              /* the database's clock at its end, as failing_since; NEVER: no call yet */
    utc_us failing_since;          /* of the first of these failures; NEVER: none */
    utc_us behind_since; /* the time of the first event behind the position; NEVER: none. Only `show` sets it */
};

struct webhook_list {
    struct webhook_row *ret_rows; /* by URL, at most WEBHOOKS_MAX; in the arena */
    size_t ret_count;
    bool ret_more;     /* there are others, which nobody calls */
    uint64_t ret_head; /* the last number of the feed that readers see */
    struct query_time ret_time;
};

/* The result of a call. */
struct webhook_result {
    struct feed_position position; /* behind the events that were taken; of a failure the one before */
    unsigned status;
    struct bytes error; /* empty: they were taken */
    utc_us retry_at;    /* of a failure; lease clock */
};

/* The methods; store->webhooks. No transaction is open. */
struct store_webhooks {
    /* Reads all rows. */
    enum permit_status (*read)(struct store *store, struct arena *arena, struct webhook_list *list);
    /* The same of those that a semaphore or template of this scope names (NULL: of all), with behind_since. */
    enum permit_status (*show)(struct store *store, const struct scope *scope, struct arena *arena,
                               struct webhook_list *list);
    /* Reads the stored URLs that these semaphores name now, one for each; data NULL: none. */
    enum permit_status (*urls)(struct store *store, const struct bytes *names, size_t count, struct arena *arena,
                               struct bytes *ret_urls);
    /*
     * Claims the row for this permitd until a time of the lease clock, if it is as it was read, and no other one has
     * claimed it, or its claim has ended at `now`. An earlier claim of this permitd is no obstacle.
     */
    enum permit_status (*claim)(struct store *store, const struct webhook_row *row, uint64_t server_id, utc_us now,
                                utc_us until, bool *ret_won);
    /* Writes what a call came to, and ends the claim; nothing if another permitd has claimed the row since. */
    enum permit_status (*settle)(struct store *store, const struct webhook_row *row, uint64_t server_id,
                                 const struct webhook_result *result);
    /* Ends all claims of this permitd, whose calls came to nothing. */
    enum permit_status (*release)(struct store *store, uint64_t server_id);
    /* Moves rows that are as they were read, and that nobody has claimed, over events of other semaphores. */
    enum permit_status (*pass_over)(struct store *store, const struct webhook_row *rows,
                                    const struct feed_position *positions, size_t count);
    /* Deletes the rows that no semaphore, no template and no semaphore retired a day ago or later names. */
    enum permit_status (*delete_unnamed)(struct store *store, struct arena *arena);
};

/* Appends the INSERT of a row for a URL that a change names, or raises its `namings`. */
void webhook_name_sql(struct bytes url, struct buf *sql);
#endif
