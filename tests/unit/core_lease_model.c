/* SPDX-License-Identifier: MIT */
/*
 * The lease clock in a small world: two permitd, their database, and a true clock beside its clock and the clocks of their
 * machines (P8). The world grants and ends permits as a batch does, and notes how much earlier or later than its ttl in
 * true time each one ends.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "core/lease_clock.h"
#include "random.h"

#define MS     ((int64_t)US_PER_MS)
#define SECOND ((int64_t)US_PER_SECOND)
#define START  (1795252471LL * SECOND)

enum { PERMITD = 2, PERMITS = 4096, HISTORY = 64 };

/* The events of a world; numbers are times a minute. */
struct weather {
    const char *name;
    int steps;         /* of the database's clock, by up to an hour either way */
    int small_steps;   /* the same by up to 6 s */
    bool wobbles;      /* two daemons step it by 4 s and back, each second */
    int freezes;       /* it stands still for up to 12 s */
    bool slews;        /* it runs up to 5 % too fast or too slow */
    int restarts;      /* of a permitd */
    int stops;         /* of a permitd, for 1 to 9 s */
    int outages;       /* of the database, for up to 20 s */
    int failovers;     /* to a copy that is up to 12 s behind, and whose clock is up to 5 s off */
    int lost_per_1000; /* answers */
    int latency_ms;    /* of an answer, at most */
    bool alone;        /* there is one permitd */
};

enum phase { IDLE, READING, TICKING };

struct permitd {
    struct own_clock own;
    struct served_clock served;
    int64_t boot_offset; /* of the clock of its machine, and its rate */
    double boot_rate;
    int64_t down_until, stopped_until;
    /* Its clock tick: a question, which the database does at done_at and answers at answer_at. */
    enum phase phase;
    int64_t next_at, done_at, answer_at;
    bool done, lost;
    boot_us asked_at;
    struct lease_row read; /* READING: what was read */
    utc_us read_now;
    struct lease_row written; /* TICKING: the row if it is still as read */
    bool won;
    /* Its batch in one packet, which commits at commit_at; 0: none. */
    int64_t commit_at;
    struct lease_clock plan;
    utc_us plan_now;
};

struct permit {
    int64_t granted_at, ttl;
    utc_us due_at;
};

/* Times without another note are by the true clock, in us since the world began. */
static struct world {
    const struct weather *weather;
    uint64_t random;
    int64_t t;
    /* The database's clock: */
    int64_t skew;
    double rate; /* in addition, since slewed_at */
    int64_t slewed_at;
    bool wobble;
    int64_t frozen_until;
    utc_us frozen_clock;
    /* The database: */
    int64_t away_until;
    uint64_t server;
    struct lease_row row;
    struct version {
        struct lease_row row;
        int64_t since;
    } history[HISTORY];
    size_t history_count;
    struct permitd permitd[PERMITD];
    struct permit permits[PERMITS];
    size_t permit_count;
    int64_t troubled_until; /* until then a permitd is stopped, or an answer is lost */
    int64_t unsure_at;      /* when an own clock was unsure last */
    int64_t quiet_from;     /* end of the last trouble; NEVER: it lasts */
    /* The earliest and the latest end of a permit, as time after its ttl: */
    int64_t earliest;       /* of all */
    int64_t quiet_earliest; /* of those that lasted while there was no trouble */
    int64_t latest;
    size_t ended;
} world;

/* Asked once a millisecond. */
static bool happens(int times_a_minute)
{
    return times_a_minute && random_below(&world.random, 60000) < (uint64_t)times_a_minute;
}

static int64_t between(int64_t least, int64_t most)
{
    return least + (int64_t)random_below(&world.random, (uint64_t)(most - least + 1));
}

static utc_us database_now(void)
{
    if (world.t < world.frozen_until)
        return world.frozen_clock;
    return START + world.t + world.skew + (int64_t)((double)(world.t - world.slewed_at) * world.rate) +
           (world.wobble ? 4 * SECOND : 0);
}

static boot_us boot(const struct permitd *permitd)
{
    return permitd->boot_offset + (int64_t)((double)world.t * permitd->boot_rate);
}

static void write_row(const struct lease_row *row)
{
    if (world.history_count == HISTORY) {
        memmove(world.history, world.history + 1, (HISTORY - 1) * sizeof *world.history);
        world.history_count--;
    }
    world.row = *row;
    world.history[world.history_count++] = (struct version){*row, world.t};
}

/* ---- the task `clock tick` ---- */

static int64_t latency(void)
{
    return between(100, max_i64(200, world.weather->latency_ms * MS / 2));
}

static void send(struct permitd *permitd, enum phase phase)
{
    permitd->phase = phase;
    permitd->done = false;
    permitd->lost = random_below(&world.random, 1000) < (uint64_t)world.weather->lost_per_1000;
    permitd->done_at = world.t + latency();
    permitd->answer_at = permitd->done_at + latency();
    if (phase == READING)
        permitd->asked_at = boot(permitd);
}

static bool same_row(const struct lease_row *a, const struct lease_row *b)
{
    return a->ticks == b->ticks && a->clock.epoch == b->clock.epoch && a->server == b->server &&
           a->clock.tick_at == b->clock.tick_at && a->clock.offset_us == b->clock.offset_us;
}

static void database_does(struct permitd *permitd)
{
    permitd->done = true;
    permitd->lost |= world.t < world.away_until;
    if (world.t < world.away_until)
        return;
    if (permitd->phase == READING) {
        permitd->read = world.row;
        permitd->read_now = database_now();
        return;
    }
    permitd->won = same_row(&world.row, &permitd->read) && world.row.server == world.server;
    if (permitd->won)
        write_row(&permitd->written);
}

static void trouble(int64_t until)
{
    world.troubled_until = max_i64(world.troubled_until, until);
    world.quiet_from = NEVER;
}

static bool is_unsure(const struct permitd *permitd)
{
    struct lease_clock clock = permitd->own.row.clock;
    own_clock_judge(&permitd->own, clock.tick_at, boot(permitd), &clock);
    return clock.from >= lease_ticked(&clock) + LEASE_LEAP_US + LEASE_MARGIN_US;
}

/* Trouble is over when the own clocks have been sure for as long as one may see a tick late. */
static void note_quiet(void)
{
    for (int i = 0; i < PERMITD; i++)
        if (world.t >= world.permitd[i].down_until && world.permitd[i].own.known && is_unsure(&world.permitd[i]))
            world.unsure_at = world.t;
    if (world.quiet_from == NEVER && world.t >= max_i64(world.troubled_until, world.unsure_at) + 1500 * MS)
        world.quiet_from = world.t;
}

static void answered(struct permitd *permitd)
{
    boot_us at = boot(permitd);
    enum phase phase = permitd->phase;
    permitd->phase = IDLE;
    permitd->next_at = world.t + 500 * MS;
    if (permitd->lost) {
        trouble(world.t);
        return;
    }
    if (phase == TICKING) {
        if (permitd->won)
            own_clock_won(&permitd->own, &permitd->written, at);
        return;
    }
    if (permitd->read.server != world.server) { /* a failover: it raises the epoch */
        struct lease_row raised = world.row;
        if (raised.server != world.server) {
            raised.server = world.server;
            raised.clock.epoch++;
            write_row(&raised);
        }
        return;
    }
    own_clock_read(&permitd->own, &permitd->read, permitd->asked_at, at);
    const struct served_read read = {
        .clock = &permitd->read.clock, .now = permitd->read_now, .asked_at = permitd->asked_at, .answered_at = at};
    served_clock_read(&permitd->served, &read, at);
    if (own_clock_may_tick(&permitd->own)) {
        permitd->written = own_clock_tick(&permitd->own, permitd->read_now);
        send(permitd, TICKING);
    }
}

static void tick_task(struct permitd *permitd)
{
    bool runs = world.t >= permitd->stopped_until && world.t >= permitd->down_until;
    if (permitd->phase != IDLE && !permitd->done && world.t >= permitd->done_at)
        database_does(permitd);
    if (!runs)
        return;
    if (permitd->phase != IDLE && permitd->done && world.t >= permitd->answer_at)
        answered(permitd);
    if (permitd->phase == IDLE && world.t >= permitd->next_at)
        send(permitd, READING);
}

/* ---- batches ---- */

static void add_permit(int64_t granted_at, utc_us from)
{
    cr_assert_lt(world.permit_count, PERMITS);
    int64_t ttl = between(1000, random_below(&world.random, 2) ? 10000 : 60000) * MS;
    world.permits[world.permit_count++] = (struct permit){granted_at, ttl, from + ttl};
}

static bool away(void)
{
    return world.t < world.away_until || world.row.server != world.server;
}

/* A batch that locks and reads. */
static void grant_long(struct permitd *permitd)
{
    struct lease_clock clock = world.row.clock;
    utc_us now = database_now();
    own_clock_judge(&permitd->own, now, boot(permitd), &clock);
    (void)served_clock_give(&permitd->served, now, &clock);
    add_permit(world.t, clock.from);
}

/* A batch in one packet: planned on what is known, proven when it commits. */
static void plan_short(struct permitd *permitd)
{
    boot_us at = boot(permitd);
    permitd->plan = permitd->served.clock;
    permitd->plan_now = served_clock_estimate(&permitd->served, at);
    own_clock_judge(&permitd->own, permitd->plan_now, at, &permitd->plan);
    if (!served_clock_give(&permitd->served, permitd->plan_now, &permitd->plan)) {
        grant_long(permitd);
        return;
    }
    permitd->commit_at = world.t + between(0, 400) * MS;
}

static void commit_short(struct permitd *permitd)
{
    utc_us planned = lease_time(&permitd->plan, permitd->plan_now);
    utc_us served = lease_time(&world.row.clock, database_now());
    permitd->commit_at = 0;
    if (!away() && world.row.clock.epoch == permitd->plan.epoch && served >= planned && served <= planned + 250 * MS)
        add_permit(world.t, permitd->plan.from);
}

static void end_due(const struct permitd *permitd)
{
    struct lease_clock clock = world.row.clock;
    own_clock_judge(&permitd->own, database_now(), boot(permitd), &clock);
    size_t kept = 0;
    for (size_t i = 0; i < world.permit_count; i++) {
        const struct permit *permit = &world.permits[i];
        if (permit->due_at > clock.due) {
            world.permits[kept++] = *permit;
            continue;
        }
        int64_t late = world.t - permit->granted_at - permit->ttl;
        world.ended++;
        world.earliest = min_i64(world.earliest, late);
        if (permit->granted_at >= world.quiet_from)
            world.quiet_earliest = min_i64(world.quiet_earliest, late);
        world.latest = max_i64(world.latest, late);
    }
    world.permit_count = kept;
}

static void batches(struct permitd *permitd)
{
    if (world.t < permitd->stopped_until || world.t < permitd->down_until)
        return;
    if (permitd->commit_at && world.t >= permitd->commit_at)
        commit_short(permitd);
    if (away())
        return;
    if (random_below(&world.random, 200) == 0)
        grant_long(permitd);
    if (!permitd->commit_at && permitd->served.known && own_clock_is_fresh(&permitd->own, boot(permitd)) &&
        random_below(&world.random, 200) == 0)
        plan_short(permitd);
    if (random_below(&world.random, 50) == 0)
        end_due(permitd);
}

/* ---- the weather ---- */

static void fail_over(void)
{
    int64_t tail = between(0, 12000) * MS;
    size_t count = world.history_count;
    while (count > 1 && world.history[count - 1].since > world.t - tail)
        count--;
    world.history_count = count;
    world.row = world.history[count - 1].row;
    world.server++;
    world.skew += between(-5000, 5000) * MS;
    size_t kept = 0;
    for (size_t i = 0; i < world.permit_count; i++)
        if (world.permits[i].granted_at <= world.t - tail)
            world.permits[kept++] = world.permits[i];
    world.permit_count = kept;
}

static void blow(void)
{
    const struct weather *weather = world.weather;
    if (happens(weather->steps))
        world.skew += between(-3600000, 3600000) * MS;
    if (happens(weather->small_steps))
        world.skew += between(-6000, 6000) * MS;
    if (weather->wobbles && world.t % SECOND == 0)
        world.wobble = !world.wobble;
    if (happens(weather->freezes) && world.t >= world.frozen_until) {
        world.frozen_clock = database_now();
        world.frozen_until = world.t + between(0, 12000) * MS;
    }
    if (weather->slews && world.t % (10 * SECOND) == 0) {
        world.skew += (int64_t)((double)(world.t - world.slewed_at) * world.rate);
        world.slewed_at = world.t;
        world.rate = (double)between(-50, 50) / 1000;
    }
    if (happens(weather->outages))
        world.away_until = world.t + between(0, 20000) * MS;
    if (happens(weather->failovers)) {
        fail_over();
        world.quiet_from = max_i64(world.quiet_from, world.t);
    }
    if (world.t < world.away_until)
        trouble(world.away_until);
    struct permitd *any = &world.permitd[random_below(&world.random, PERMITD)];
    if (happens(weather->stops))
        trouble(any->stopped_until = world.t + between(1000, 9000) * MS);
    if (happens(weather->restarts)) {
        *any = (struct permitd){.boot_offset = any->boot_offset, .boot_rate = any->boot_rate};
        any->down_until = any->next_at = world.t + between(0, 4000) * MS;
    }
}

static void run(const struct weather *weather, uint64_t seed, int64_t seconds)
{
    world = (struct world){.weather = weather, .random = seed, .server = 1, .unsure_at = -NEVER / 2};
    write_row(&(struct lease_row){.clock = {.tick_at = START}, .server = 1});
    for (int i = 0; i < PERMITD; i++) {
        struct permitd *permitd = &world.permitd[i];
        permitd->boot_offset = between(1, 1000000) * MS;
        permitd->boot_rate = 1 + (double)between(-100, 100) / 1e6;
        permitd->next_at = between(0, 500) * MS;
        permitd->down_until = weather->alone && i > 0 ? NEVER : 0;
    }
    for (world.t = 0; world.t < seconds * SECOND; world.t += MS) {
        blow();
        note_quiet();
        for (int i = 0; i < PERMITD; i++) {
            tick_task(&world.permitd[i]);
            batches(&world.permitd[i]);
        }
    }
}

/* P8, and P7 where nothing fails. */
static void judge(const struct weather *weather, bool late)
{
    enum { SEEDS = 20 };
    size_t ended = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        run(weather, seed, 120);
        ended += world.ended;
        cr_assert_geq(world.quiet_earliest, -1 * SECOND, "%s, seed %llu: a permit ended %lld ms early", weather->name,
                      (unsigned long long)seed, (long long)(-world.quiet_earliest / MS));
        cr_assert_geq(world.earliest, -5 * SECOND, "%s, seed %llu: a permit ended %lld ms early", weather->name,
                      (unsigned long long)seed, (long long)(-world.earliest / MS));
        cr_assert(!late || world.latest <= 7 * SECOND, "%s, seed %llu: a permit ended %lld ms late", weather->name,
                  (unsigned long long)seed, (long long)(world.latest / MS));
    }
    cr_assert_gt(ended, 5000, "%s: %zu", weather->name, ended);
}

Test(lease_model, permits_end_in_time_whatever_the_clock_of_the_database_does)
{
    static const struct weather weathers[] = {
        {.name = "right clock", .latency_ms = 20},
        {.name = "slow answers", .latency_ms = 300},
        {.name = "alone", .latency_ms = 20, .alone = true},
        {.name = "4 s and back", .wobbles = true, .latency_ms = 20},
        {.name = "steps", .steps = 10, .small_steps = 20, .latency_ms = 20},
        {.name = "steps, alone", .steps = 10, .small_steps = 20, .latency_ms = 20, .alone = true},
        {.name = "frozen", .freezes = 6, .latency_ms = 20},
        {.name = "slewed", .slews = true, .latency_ms = 20},
        {.name = "all", .steps = 6, .small_steps = 10, .freezes = 4, .slews = true, .latency_ms = 200},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(weathers); i++)
        judge(&weathers[i], true);
}

Test(lease_model, permits_do_not_end_early_after_restarts_stops_outages_and_failovers)
{
    static const struct weather weathers[] = {
        {.name = "restarts", .restarts = 6, .latency_ms = 20},
        {.name = "steps, restarts", .steps = 10, .small_steps = 10, .restarts = 10, .latency_ms = 20},
        {.name = "outages", .outages = 2, .latency_ms = 20},
        {.name = "stops", .stops = 4, .latency_ms = 20},
        {.name = "stops, steps", .steps = 10, .small_steps = 10, .stops = 4, .latency_ms = 20},
        {.name = "stops, 4 s and back", .wobbles = true, .stops = 4, .latency_ms = 20},
        {.name = "failovers", .failovers = 6, .latency_ms = 20},
        {.name = "all but outages",
         .steps = 4,
         .small_steps = 4,
         .freezes = 1,
         .slews = true,
         .restarts = 2,
         .stops = 2,
         .failovers = 1,
         .lost_per_1000 = 50,
         .latency_ms = 100},
        {.name = "all",
         .steps = 4,
         .small_steps = 4,
         .freezes = 1,
         .slews = true,
         .restarts = 2,
         .stops = 2,
         .outages = 1,
         .failovers = 1,
         .lost_per_1000 = 50,
         .latency_ms = 100},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(weathers); i++)
        judge(&weathers[i], false);
}
