/* SPDX-License-Identifier: MIT */
/* Shared by sale.c, its shops and its judge. */
#ifndef SALE_H
#define SALE_H

#include <stdatomic.h>

#include "testkit.h"

enum {
    SHOPS_MAX = 256,
    SEMAPHORES = 200, /* those with an odd number are slotted */
    PERMITDS = 2,
    RECORDS_MAX = 8000000, /* of purchases */
    KEY_SIZE = 64,
};

/* The points at which something can be killed: each statement once it is sent, and once it is answered. */
enum point {
    ACQUIRE_SENT,
    ACQUIRED,
    BEGIN_SENT,
    BEGUN,
    WRITE_SENT, /* INSERT or DELETE of the order */
    WRITTEN,
    CALL_SENT,
    CALLED,
    COMMIT_SENT,
    COMMITTED,
    POINTS
};
enum victim { SHOP, PERMITD, DATABASE, VICTIMS };

/* What is known of a purchase, by its number. Memory of all processes, so it survives the shop. */
enum record {
    NOT_SOLD,  /* no COMMIT was sent, or the transaction is known to have failed: there is no order */
    UNCERTAIN, /* COMMIT of the order was sent: order and sale, or neither */
    SOLD,      /* COMMIT was answered: the order and its sale are there */
    REFUNDING, /* COMMIT of the refund was sent: as UNCERTAIN */
    REFUNDED,  /* there is no order, and the hold has ended */
    RELEASED,  /* as REFUNDED; it was never sold */
    RECORDS
};

/* The last event of a purchase that the reader of the feed has seen. */
enum told { TOLD_NOTHING, TOLD_SOLD, TOLD_ENDED };

/* What is counted for the last lines. */
enum tally {
    GRANTS,
    FULL,       /* acquires without capacity */
    SALES,      /* orders that were committed */
    REFUNDS,    /* of those */
    RELEASES,   /* by permit_release */
    ROLLBACKS,  /* also to a savepoint */
    EXPIRED,    /* calls that met an expired hold */
    SLOW,       /* sold by a transaction that stayed open for longer than the ttl */
    RACED,      /* renewals and releases over HTTP beside an open transaction */
    KEPT_OUT,   /* those answered 409 */
    CONFLICTS,  /* transactions repeated after a deadlock or conflict */
    RECONNECTS, /* transactions repeated after a lost connection */
    TALLIES
};

/* In memory that all processes share. */
struct hall {
    atomic_uint claimed; /* purchases begun */
    atomic_uint tallies[TALLIES];
    atomic_uint complaints; /* lines of violations that shops have printed */
    atomic_bool closing;
    atomic_int armed;          /* number of the kill that the next shop at its point does; -1: none */
    atomic_int struck;         /* number of the last kill that was done; -1: none yet */
    atomic_int struck_permitd; /* its victim, if that is a permitd */
    atomic_int permitd_pids[PERMITDS];
    atomic_uint ports[PERMITDS];
    atomic_int database_pid;
    _Atomic uint8_t records[RECORDS_MAX];
    _Atomic uint8_t told[RECORDS_MAX];
    atomic_ullong feed_read; /* the last number of the feed that its reader has seen */
};

struct sale {
    struct hall *hall;
    struct kit_database *database;
    uint64_t seed;
    unsigned orders; /* to be sold */
};

static inline enum point kill_point(int number)
{
    return (enum point)(number % POINTS);
}

static inline enum victim kill_victim(int number)
{
    return (enum victim)(number % VICTIMS);
}

/* The key of a purchase, "s<seed>-<number>". */
void sale_key(const struct sale *sale, unsigned number, char key[KEY_SIZE]);

/* The process of a shop: buys until the hall closes. random: its dice. */
void shop_run(struct sale *sale, uint64_t random);

/* Prints a violation. */
void sale_complain(const struct sale *sale, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The process that reads the feed, until it is killed. */
_Noreturn void feed_run(const struct sale *sale);

/* Waits until all is settled, prints one line for each violation, and returns their number. */
unsigned sale_judge(const struct sale *sale);
#endif
