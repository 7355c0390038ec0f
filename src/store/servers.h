/* SPDX-License-Identifier: MIT */
/*
 * The permitd that run on this database: rows of `server`. Each permitd joins with a new id, sends a heartbeat about
 * once a second, and leaves when it stops.
 *
 * A heartbeat copies cluster.ticks, which rises with each tick of the lease clock. A permitd whose copy is
 * SERVER_DEAD_TICKS behind is dead. So while the database is away no permitd dies, and a jump of a clock kills none.
 * Death is written: another permitd declares it by compare-and-set on the ticks that it has read. A permitd that finds
 * itself dead, or its row gone, joins again and gets a new id. PLACE_KEPT_US later its old row is deleted.
 */
#ifndef STORE_SERVERS_H
#define STORE_SERVERS_H

#include "base/arena.h"
#include "base/base.h"
#include "core/request.h"
#include "permit/status.h"
#include "store/query.h"

struct store;

enum {
    SERVER_DEAD_TICKS = 4,
    SERVER_ADDRESS_MAX = 255,
    SERVER_VERSION_MAX = 64,
    SERVERS_OTHERS_MAX = 100, /* rows that one call reads, declares dead or deletes */
};

/*
 * Names the row of one permitd. `since` tells it from a row that has the same id after an older copy of the database
 * was restored.
 */
struct server_self {
    uint64_t id;  /* 0: none */
    utc_us since; /* the database's clock */
};

/* Another permitd that is not declared dead. */
struct server_other {
    uint64_t id;
    uint64_t ticks; /* as its last heartbeat wrote them */
};

struct server_heartbeat {
    uint64_t waiting; /* requests that wait at this permitd */

    bool ret_alive;     /* false: declared dead, or the row is gone; then nothing was written */
    uint64_t ret_ticks; /* cluster.ticks, read before the rows of the others */
    struct query_time ret_time;
    struct server_other ret_others[SERVERS_OTHERS_MAX]; /* the furthest behind first */
    size_t ret_other_count;
    utc_us ret_oldest_death; /* lease clock; NEVER: no row of a dead permitd */
};

/* A row, for lists. Times are the database's clock. */
struct server_row {
    uint64_t id;
    struct bytes address, version;
    utc_us since, seen_at;
    uint64_t ticks, waiting;
    bool alive;
};

/* The methods; store->servers. */
struct store_servers {
    /*
     * Inserts a row with a new id, on a STORE_WORKER. ret_self->id is 0 if the database is another server than the one
     * in `cluster`, and in the hold after the epoch has risen: as a token, an id could be given twice then.
     * PERMIT_DATABASE_LOST: a row may be left behind, which then dies.
     */
    enum permit_status (*join)(struct store *store, struct bytes address, struct bytes version,
                               struct server_self *ret_self);
    /* Writes the ticks and the number of waiting requests, if the permitd is alive, and reads the others. */
    enum permit_status (*heartbeat)(struct store *store, const struct server_self *self,
                                    struct server_heartbeat *heartbeat);
    /*
     * Declares the permitd dead unless it has written other ticks meanwhile. `at`: lease clock, from which
     * PLACE_KEPT_US counts. *ret_declared: this call did it.
     */
    enum permit_status (*declare_dead)(struct store *store, const struct server_other *other, utc_us at,
                                       bool *ret_declared);
    /* Deletes at most SERVERS_OTHERS_MAX rows that were declared dead until this time of the lease clock. */
    enum permit_status (*remove_dead)(struct store *store, utc_us until);
    /*
     * Reads the keys of at most `limit` requests that wait at a permitd that was declared dead until this time of the
     * lease clock, or whose row is gone; in the arena. The caller removes their places by OP_EXPIRE with expire_as
     * END_NEVER_HELD.
     */
    enum permit_status (*abandoned)(struct store *store, utc_us until, size_t limit, struct arena *arena,
                                    struct bytes **ret_external_ids, size_t *ret_count);
    /* Deletes the row. */
    enum permit_status (*leave)(struct store *store, const struct server_self *self);
    /* Lists the permitd in order of their ids, the dead ones included. */
    enum permit_status (*list)(struct store *store, struct page *page);
    /*
     * Reads at most page->limit request ids above page->after.number from the mail of this server: rows and count;
     * ascending.
     */
    enum permit_status (*mail)(struct store *store, uint64_t server_id, struct page *page);
    /* Deletes mail of this server. Mail that is gone already is no failure. At least one id. */
    enum permit_status (*drop_mail)(struct store *store, uint64_t server_id, const uint64_t *request_ids, size_t count);
};
#endif
