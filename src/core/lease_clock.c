/* SPDX-License-Identifier: MIT */
#include "core/lease_clock.h"

#include <assert.h>

#define TICK_AFTER_US  (1LL * US_PER_SECOND) /* a tick raises V by at least this */
#define SEEN_WITHIN_US (1LL * US_PER_SECOND) /* two reads this near each other see a tick between them in time */
#define FRESH_US       (4LL * US_PER_SECOND)
/* The lease clock of the database is behind the latest one by more than this: its clock was stepped. */
#define STEP_US        (125LL * US_PER_MS)

utc_us lease_time(const struct lease_clock *clock, utc_us now)
{
    return max_i64(clock->tick_at, min_i64(now, clock->tick_at + LEASE_LEAP_US)) - clock->offset_us;
}

utc_us lease_to_wall(const struct lease_clock *clock, utc_us served)
{
    return served == NEVER ? NEVER : served + clock->offset_us;
}

int64_t lease_left_us(const struct lease_clock *clock, utc_us deadline)
{
    assert(clock->from);
    return max_i64(0, deadline - clock->from);
}

/* ---- the own clock ---- */

static utc_us unbounded(const struct own_clock *own, boot_us at)
{
    return own->anchor + (at - own->anchored_at);
}

static utc_us limit(const struct own_clock *own)
{
    return lease_ticked(&own->row.clock) + LEASE_LEAP_US;
}

static utc_us own_time(const struct own_clock *own, boot_us at)
{
    return min_i64(unbounded(own, at), limit(own));
}

static void become_unsure(struct own_clock *own, boot_us at)
{
    if (!own->unsure)
        own->unsure_since = at;
    own->unsure = true;
}

/* Anchors the clock where it is, but not before the row, nor further than 5 s behind it. */
static void see_row(struct own_clock *own, const struct lease_row *row, boot_us at)
{
    utc_us ticked = lease_ticked(&row->clock);
    own->anchor = min_i64(max_i64(own_time(own, at), ticked), ticked + LEASE_LEAP_US);
    own->anchored_at = at;
    own->row = *row;
}

void own_clock_read(struct own_clock *own, const struct lease_row *row, boot_us asked_at, boot_us answered_at)
{
    bool same_life = own->known && row->clock.epoch == own->row.clock.epoch && row->server == own->row.server;
    if (!same_life) {
        *own = (struct own_clock){.known = true,
                                  .row = *row,
                                  .anchor = lease_ticked(&row->clock),
                                  .anchored_at = answered_at,
                                  .unsure = true,
                                  .unsure_since = answered_at};
    } else {
        bool seen = row->ticks != own->row.ticks && answered_at - own->asked_at <= SEEN_WITHIN_US;
        if (unbounded(own, answered_at) > limit(own))
            become_unsure(own, answered_at);
        else if (seen)
            own->unsure = false;
        see_row(own, row, answered_at);
    }
    own->asked_at = asked_at;
    own->answered_at = answered_at;
}

bool own_clock_may_tick(const struct own_clock *own)
{
    bool waits = own->unsure && own->answered_at - own->unsure_since < LEASE_LEAP_US;
    return !waits && own->anchor - lease_ticked(&own->row.clock) >= TICK_AFTER_US;
}

struct lease_row own_clock_tick(const struct own_clock *own, utc_us now)
{
    struct lease_row row = own->row;
    utc_us earliest = own->anchor - (own->answered_at - own->asked_at);
    utc_us served = max_i64(earliest, lease_time(&row.clock, now));
    row.clock.offset_us = now - served;
    row.clock.tick_at = own->anchor + row.clock.offset_us;
    row.ticks++;
    return row;
}

void own_clock_won(struct own_clock *own, const struct lease_row *row, boot_us answered_at)
{
    see_row(own, row, answered_at);
    own->unsure = false;
}

bool own_clock_is_fresh(const struct own_clock *own, boot_us at)
{
    return own->known && at - own->answered_at <= FRESH_US;
}

void own_clock_judge(const struct own_clock *own, utc_us now, boot_us at, struct lease_clock *clock)
{
    utc_us ticked = lease_ticked(clock);
    bool same_life = own->known && own->row.clock.epoch == clock->epoch;
    bool unsure = !same_life || own->unsure || unbounded(own, at) > limit(own);
    clock->due = same_life ? max_i64(ticked, min_i64(own_time(own, at), ticked + LEASE_LEAP_US)) : ticked;
    utc_us latest = max_i64(clock->due, lease_time(clock, now));
    clock->from = LEASE_MARGIN_US + (unsure ? max_i64(latest, ticked + LEASE_LEAP_US) : latest);
}

/* ---- the database's lease clock between two reads ---- */

void served_clock_read(struct served_clock *served, const struct served_read *read, boot_us at)
{
    utc_us time = lease_time(read->clock, read->now);
    /* A slow answer is only old. It is a step if the clock was behind whenever it was read after the question. */
    bool step = time + (at - read->asked_at) < served->latest - STEP_US;
    bool goes_back = read->clock->epoch != served->clock.epoch || step;
    *served = (struct served_clock){.known = true,
                                    .clock = *read->clock,
                                    .now = read->now,
                                    .read_at = read->answered_at,
                                    .latest = goes_back ? time : max_i64(served->latest, time)};
}

utc_us served_clock_estimate(const struct served_clock *served, boot_us at)
{
    return served->now + (at - served->read_at);
}

bool served_clock_give(struct served_clock *served, utc_us now, struct lease_clock *clock)
{
    utc_us time = lease_time(clock, now);
    bool same_epoch = clock->epoch == served->clock.epoch;
    int64_t behind = same_epoch ? max_i64(served->latest - time, 0) : 0;
    if (behind > STEP_US)
        return false;
    clock->offset_us -= behind;
    clock->from = max_i64(clock->from, time + behind + LEASE_MARGIN_US);
    if (same_epoch)
        served->latest = time + behind;
    return true;
}
