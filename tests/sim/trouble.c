/* SPDX-License-Identifier: MIT */
/* What goes wrong: one thing after another, and what is provoked at moments that matter. */
#include "dice.h"
#include "fake_store.h"
#include "site.h"

enum { ADMINISTER = 9 }; /* of what may go wrong, the last: nothing does */

#define TAIL_MAX_US (8LL * US_PER_SECOND)
static struct trouble {
    struct timer next, database_back, second_failover;
    mono_us failed_over_at;
    bool forgetful; /* the second failover finds no permitd that remembers the first */
} trouble;

static void database_up(struct timer *timer)
{
    (void)timer;
    step("the database is back");
    database_start();
}

static void crash_database(void)
{
    step("the database is killed");
    database_crash();
    timer_set(&trouble.database_back, sim_now() + dice_between(1000, 3 * US_PER_SECOND));
}

/*
 * What a failover loses is later than the first service of a database (docs/reliability.md), which is durable by now.
 */
static bool may_fail_over(void)
{
    return database.globals.identity && sim_now() - database.served_since > US_PER_SECOND;
}

static void fail_over(int64_t tail_us)
{
    tail_us = min_i64(tail_us, sim_now() - database.served_since);
    step("failover to a copy that is %lld ms behind", (long long)tail_us / US_PER_MS);
    oracle_clock_jumps();
    database_fail_over(tail_us, server_any_skew());
}

/* The copy that takes over from the one that has just taken over has seen neither; perhaps no permitd has, either. */
static void fail_over_again(struct timer *timer)
{
    (void)timer;
    if (site.quiet || database.down)
        return;
    for (int i = 0; i < profile.engines && trouble.forgetful; i++)
        if (site.servers[i].engine && !site.servers[i].stopping)
            server_kill(&site.servers[i]);
    fail_over(min_i64(TAIL_MAX_US, sim_now() - trouble.failed_over_at + dice_between(0, US_PER_SECOND)));
}

static void fail_over_perhaps_twice(void)
{
    trouble.failed_over_at = sim_now();
    trouble.forgetful = dice_once_in(2);
    fail_over(dice_once_in(4) ? dice_between(0, TAIL_MAX_US) : dice_between(0, 1500000));
    if (dice_once_in(2))
        timer_set(&trouble.second_failover,
                  sim_now() + profile.hold_ms * US_PER_MS + dice_between(0, 2 * US_PER_SECOND));
}

static void step_clock(void)
{
    int64_t by = dice_once_in(2) ? dice_between(-3600LL * US_PER_SECOND, 3600LL * US_PER_SECOND)
                                 : dice_between(-10 * US_PER_SECOND, 10 * US_PER_SECOND);
    step("the database's clock is stepped by %lld ms", (long long)by / US_PER_MS);
    site.result->steps_of_clock++;
    oracle_clock_jumps();
    database.skew_us += by;
}

static void administer_one(void)
{
    static const enum operation_kind kinds[] = {OP_SEMAPHORE_PUT,    OP_SEMAPHORE_PUT,    OP_SEMAPHORE_PAUSE,
                                                OP_SEMAPHORE_RESUME, OP_SEMAPHORE_RESUME, OP_SEMAPHORE_RESUME};
    int process = server_any();
    if (process < 0)
        return;
    const struct db_semaphore *semaphore = &database.semaphores[dice_between(0, (int64_t)site.made_count - 1)];
    struct call *call = call_new(process, NULL, kinds[dice_between(0, ARRAY_LENGTH(kinds) - 1)]);
    call->operation.semaphore = semaphore->row.semaphore.name;
    call->operation.why = BYTES("paused");
    if (call->operation.kind == OP_SEMAPHORE_PUT)
        call->change = (struct semaphore_change){.has_capacity = true, .capacity = dice_between(0, 8)};
    (void)call_send(call, 0);
}

/* One thing that goes wrong, and when the next one does. */
static void make_trouble(struct timer *timer)
{
    (void)timer;
    if (site.quiet)
        return;
    struct server *server = &site.servers[dice_between(0, profile.engines - 1)];
    bool can = server->engine && !server->stopping && !server->paused;
    switch (profile.calm ? ADMINISTER : dice_between(0, ADMINISTER)) {
    case 0:
    case 1:
        if (server->engine)
            server_kill(server);
        break;
    case 2:
        if (can)
            server_stop(server);
        break;
    case 3:
        if (can)
            server_pause(server);
        break;
    case 4:
        if (!database.down)
            crash_database();
        break;
    case 5:
        if (!database.down && profile.failovers && may_fail_over())
            fail_over_perhaps_twice();
        break;
    case 6:
        if (profile.clock_steps)
            step_clock();
        break;
    case 7:
        site.result->cuts++;
        fake_store_cut(server_number(server));
        break;
    default:
        if (profile.capacity_changes)
            administer_one();
    }
    timer_set(&trouble.next, sim_now() + dice_between(0, dice_once_in(4) ? 50000 : 1500000));
}

struct provocation {
    struct timer timer;
    struct story *story;
    enum operation_kind kind;
};

static void ask_again(struct timer *timer)
{
    struct provocation *provocation = CONTAINER_OF(timer, struct provocation, timer);
    int process = server_any();
    if (process >= 0 && !site.quiet)
        (void)call_send(call_new(process, provocation->story, provocation->kind), 0);
    free(provocation);
}

static void crash_now(struct timer *timer)
{
    if (!database.down && !site.quiet)
        crash_database();
    free(timer);
}

void run_not_flushed_yet(const struct changes *changes, int64_t us)
{
    for (int i = 0; i < 3 && changes->request_count; i++) {
        const struct request_change *change = &changes->requests[dice_between(0, (int64_t)changes->request_count - 1)];
        struct provocation *provocation = calloc(1, sizeof *provocation);
        provocation->timer.fire = ask_again;
        provocation->story = database_key(change->request->external_id)->story;
        provocation->kind = change->ends || dice_once_in(4) ? OP_RELEASE : OP_ACQUIRE;
        if (provocation->story->confirm_sent)
            provocation->kind = OP_ACQUIRE;
        timer_set(&provocation->timer, sim_now() + dice_between(0, us / 2));
    }
    if (dice_once_in(2))
        return;
    struct timer *crash = calloc(1, sizeof *crash);
    crash->fire = crash_now;
    timer_set(crash, sim_now() + dice_between(us / 2, us));
}

void trouble_begin(void)
{
    trouble.next.fire = make_trouble;
    trouble.database_back.fire = database_up;
    trouble.second_failover.fire = fail_over_again;
    timer_set(&trouble.next, dice_between(0, US_PER_SECOND));
}

void trouble_end(void)
{
    faults = (struct fault_rates){0};
    timer_drop(&trouble.next);
    timer_drop(&trouble.database_back);
    timer_drop(&trouble.second_failover);
    database_start();
}
