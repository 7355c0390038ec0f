/* SPDX-License-Identifier: MIT */
/*
 * The lease clock ("served time" in the protocol): the clock of all deadlines (P8; docs/design.md, "Time").
 *
 * The `cluster` row has its value at the last tick, V = tick_at - offset_us. One of the permitd ticks about once a
 * second. Between two ticks it goes on in two ways, and at most to V + 5 s in both:
 *
 * - by the database's clock (lease_time): all permitd read the same, under the locks, so it gives the times that rows
 *   store. That clock may be stepped, so nothing ends by it;
 * - by CLOCK_BOOTTIME of a permitd's own machine (struct own_clock), which cannot be stepped: it says what has ended, and
 *   by how much a tick raises V.
 *
 * The former goes back only with the database's clock and in another epoch, because rows are in the order of their times,
 * also those that two permitd write one after the other. A step of that clock, or a tick that waited in its COMMIT, may put
 * it ahead by up to 5 s, until the next epoch.
 */
#ifndef CORE_LEASE_CLOCK_H
#define CORE_LEASE_CLOCK_H

#include "base/base.h"

#define LEASE_LEAP_US   (5LL * US_PER_SECOND)
/* Deadlines count from this long after the decision: the ticks of another permitd may be seen late. */
#define LEASE_MARGIN_US (500LL * US_PER_MS)

/* The lease clock as it was read, and what the own clock says of it. */
struct lease_clock {
    utc_us tick_at;    /* the database's clock at the last tick */
    int64_t offset_us; /* lease clock = database's clock - this */
    uint64_t epoch;    /* of the tokens; another one is another life of the database */
    utc_us due;        /* deadlines until then have passed (own_clock_judge); 0: not judged */
    utc_us from;       /* deadlines that are set now count from then */
};

/* Returns the lease clock at the last tick (V). */
static inline utc_us lease_ticked(const struct lease_clock *clock)
{
    return clock->tick_at - clock->offset_us;
}

/* Returns the lease clock at `now`, the database's clock. */
utc_us lease_time(const struct lease_clock *clock, utc_us now);
/* Converts a stored time to the database's clock, for people; NEVER stays NEVER. */
utc_us lease_to_wall(const struct lease_clock *clock, utc_us served);
/* Returns how long a deadline is away, by a judged clock: the whole ttl if it is set now; 0: it has passed. */
int64_t lease_left_us(const struct lease_clock *clock, utc_us deadline);

/* ---- the own clock ---- */

/* The `cluster` row as a tick reads it. */
struct lease_row {
    struct lease_clock clock; /* not judged */
    uint64_t ticks;           /* number of ticks so far */
    uint64_t server;          /* which database server it is, as a hash of its identity */
};

/*
 * The lease clock by CLOCK_BOOTTIME of this machine. It goes on from its anchor, but not beyond V + 5 s of the row that
 * was seen last. So an outage, a stop of this process and a restart add at most 5 s, and steps of the database's clock
 * nothing.
 *
 * It is unsure while another permitd may be ahead by more than LEASE_MARGIN_US: at first, in another life of the
 * database, and after 5 s without a tick. Then deadlines count from V + 5 s, which is ahead of all.
 */
struct own_clock {
    bool known;
    struct lease_row row; /* as seen last */
    utc_us anchor;        /* its value at anchored_at */
    boot_us anchored_at;
    boot_us asked_at;    /* before the last read was sent */
    boot_us answered_at; /* after its answer */
    bool unsure;
    boot_us unsure_since;
};

/* Takes the answer to a read of the row. The server is the one recorded in `cluster`. */
void own_clock_read(struct own_clock *own, const struct lease_row *row, boot_us asked_at, boot_us answered_at);
/* Returns true if it is time for a tick, after a read. An unsure clock leaves the first 5 s to others. */
bool own_clock_may_tick(const struct own_clock *own);
/*
 * Returns the row after a tick, to be written unless the row has changed since the read, at `now` of the database's
 * clock: V is the own clock. The database's lease clock goes on; if it is behind, it is set to the own clock.
 */
struct lease_row own_clock_tick(const struct own_clock *own, utc_us now);
/* Takes the answer that this tick was written. */
void own_clock_won(struct own_clock *own, const struct lease_row *row, boot_us answered_at);
/* Returns true if the row was read in the last 4 s. */
bool own_clock_is_fresh(const struct own_clock *own, boot_us at);
/* Sets `due` and `from` of a clock that was read at `now` of the database's clock. `at`: the present. */
void own_clock_judge(const struct own_clock *own, utc_us now, boot_us at, struct lease_clock *clock);

/* ---- the database's lease clock between two reads ---- */

/*
 * The lease clock by the database's clock, as this process last read it. Times that it gives never go back, but by a
 * step.
 */
struct served_clock {
    bool known;
    struct lease_clock clock; /* not judged */
    utc_us now;               /* the database's clock when it was read */
    boot_us read_at;          /* after the answer */
    utc_us latest;            /* latest lease time that was given or read in this epoch */
};

/* A read of the clock, which was sent after asked_at and answered before answered_at. */
struct served_read {
    const struct lease_clock *clock;
    utc_us now;
    boot_us asked_at, answered_at;
};

/* `at`: the present. */
void served_clock_read(struct served_clock *served, const struct served_read *read, boot_us at);
/* Estimates the database's clock: never more than it is, because it was read before the answer arrived. */
utc_us served_clock_estimate(const struct served_clock *served, boot_us at);
/*
 * Gives a batch its lease time: moves its judged clock ahead to the latest one that was given. False: it is further
 * behind, so the database's clock was stepped, and stays as it is.
 */
bool served_clock_give(struct served_clock *served, utc_us now, struct lease_clock *clock);
#endif
