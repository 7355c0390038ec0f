/* SPDX-License-Identifier: MIT */
/* The faults of a run: random ones one after the other, and provoked ones at critical moments. */
#include "dice.h"
#include "fake_store.h"
#include "world.h"

enum { ADMINISTER = 9 }; /* the last case of inject_fault: no fault */

#define TAIL_MAX_US (8LL * US_PER_SECOND)
static struct faults_state {
    struct timer next, database_back, second_failover, wobble;
    unsigned wobbles;              /* steps that are left */
    struct fiber *stranger, *shop; /* NULL: none */
    mono_us failed_over_at;
    bool forgetful; /* no permitd that remembers the first failover is alive at the second */
} faults_state;

static void database_up(struct timer *timer)
{
    (void)timer;
    step("the database is back");
    oracle_troubled();
    database_start();
}

static void crash_database(int64_t most_us)
{
    step("the database is killed");
    oracle_troubled();
    database_crash();
    timer_set(&faults_state.database_back, sim_now() + dice_between(1000, most_us));
}

/* A failover loses nothing before the first service of the database, which is durable by then (docs/reliability.md). */
static bool may_fail_over(void)
{
    return database.globals.identity && sim_now() - database.served_since > US_PER_SECOND;
}

static void fail_over(int64_t tail_us)
{
    tail_us = min_i64(tail_us, sim_now() - database.served_since);
    step("failover to a copy that is %lld ms behind", (long long)tail_us / US_PER_MS);
    oracle_troubled();
    database_fail_over(tail_us, server_any_skew());
}

/* The copy that takes over from the new server has seen neither of the two; sometimes no living permitd has either. */
static void fail_over_again(struct timer *timer)
{
    (void)timer;
    if (world.quiet || database.down)
        return;
    for (int i = 0; i < profile.engines && faults_state.forgetful; i++)
        if (world.servers[i].engine && !world.servers[i].stopping)
            server_kill(&world.servers[i]);
    fail_over(min_i64(TAIL_MAX_US, sim_now() - faults_state.failed_over_at + dice_between(0, US_PER_SECOND)));
}

static void fail_over_perhaps_twice(void)
{
    faults_state.failed_over_at = sim_now();
    faults_state.forgetful = dice_once_in(2);
    fail_over(dice_once_in(4) ? dice_between(0, TAIL_MAX_US) : dice_between(0, 1500000));
    if (dice_once_in(2))
        timer_set(&faults_state.second_failover,
                  sim_now() + profile.hold_ms * US_PER_MS + dice_between(0, 2 * US_PER_SECOND));
}

static void step_clock(void)
{
    int64_t by = dice_once_in(2) ? dice_between(-3600LL * US_PER_SECOND, 3600LL * US_PER_SECOND)
                                 : dice_between(-10 * US_PER_SECOND, 10 * US_PER_SECOND);
    step("the database's clock is stepped by %lld ms", (long long)by / US_PER_MS);
    world.result->steps_of_clock++;
    database_step(by);
}

/* Two time daemons that disagree: forward and back, about once a second. */
static void wobble(struct timer *timer)
{
    bool forward = faults_state.wobbles % 2 == 0;
    if (faults_state.wobbles == 0)
        return;
    faults_state.wobbles--;
    step("the database's clock is stepped 4 s %s", forward ? "forward" : "back");
    database_step(forward ? 4LL * US_PER_SECOND : -4LL * US_PER_SECOND);
    timer_set(timer, sim_now() + dice_between(900, 1100) * US_PER_MS);
}

/* The ways of the database's clock: with each of them a wrong rule of served time may add up. */
static void fault_of_clocks(void)
{
    struct server *server = &world.servers[dice_between(0, profile.engines - 1)];
    switch (dice_between(0, 15)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4: step_clock(); break;
    case 5:
    case 6:
        if (faults_state.wobbles == 0) {
            faults_state.wobbles = 2 * (unsigned)dice_between(2, 15);
            wobble(&faults_state.wobble);
        }
        break;
    case 7:
    case 8:
    case 9: {
        int64_t for_us = dice_between(0, 20 * US_PER_SECOND);
        step("the database's clock stands still for %lld ms", (long long)for_us / US_PER_MS);
        database_freeze(for_us);
        break;
    }
    case 10: database_slew(dice_between(-50000, 50000)); break;
    case 11:
    case 12:
        if (server->engine)
            server_kill(server);
        break;
    case 13:
        if (server->engine && !server->stopping && !server->paused && dice_once_in(2))
            server_pause(server);
        break;
    case 14:
        if (!database.down && dice_once_in(4))
            crash_database(20 * US_PER_SECOND);
        break;
    default:
        if (!database.down && may_fail_over() && dice_once_in(4))
            fail_over(dice_between(0, TAIL_MAX_US));
        break;
    }
}

static void administer_one(void)
{
    static const enum operation_kind kinds[] = {OP_SEMAPHORE_PUT,    OP_SEMAPHORE_PUT,    OP_SEMAPHORE_PAUSE,
                                                OP_SEMAPHORE_RESUME, OP_SEMAPHORE_RESUME, OP_SEMAPHORE_RESUME};
    int process = server_any();
    if (process < 0)
        return;
    const struct db_semaphore *semaphore = &database.semaphores[dice_between(0, (int64_t)world.made_count - 1)];
    struct call *call = call_new(process, NULL, kinds[dice_between(0, ARRAY_LENGTH(kinds) - 1)]);
    call->operation.semaphore = semaphore->row.semaphore.name;
    call->operation.why = BYTES("paused");
    if (call->operation.kind == OP_SEMAPHORE_PUT)
        call->change = (struct semaphore_change){.has_capacity = true, .capacity = dice_between(0, 8)};
    (void)call_send(call, 0);
}

/* One random fault; sets the timer of the next. */
static void inject_fault(struct timer *timer)
{
    (void)timer;
    if (world.quiet)
        return;
    if (profile.clocks) {
        fault_of_clocks();
        timer_set(&faults_state.next, sim_now() + dice_between(0, 8 * US_PER_SECOND));
        return;
    }
    struct server *server = &world.servers[dice_between(0, profile.engines - 1)];
    bool can = server->engine && !server->stopping && !server->paused;
    int64_t kind = profile.deaths ? dice_between(0, 3) : dice_between(0, ADMINISTER);
    switch (profile.calm || (profile.deaths && dice_once_in(4)) ? ADMINISTER : kind) {
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
            crash_database(3 * US_PER_SECOND);
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
        world.result->cuts++;
        fake_store_cut(server_number(server));
        break;
    default:
        if (profile.capacity_changes)
            administer_one();
    }
    int64_t most = profile.deaths ? 6 * US_PER_SECOND : 1500000;
    timer_set(&faults_state.next, sim_now() + dice_between(0, dice_once_in(4) ? 50000 : most));
}

struct provocation {
    struct timer timer;
    struct story *story;
    enum operation_kind kind;
};

static void repeat_call(struct timer *timer)
{
    struct provocation *provocation = CONTAINER_OF(timer, struct provocation, timer);
    int process = server_any();
    if (process >= 0 && !world.quiet)
        (void)call_send(call_new(process, provocation->story, provocation->kind), 0);
    free(provocation);
}

static void crash_now(struct timer *timer)
{
    if (!database.down && !world.quiet)
        crash_database(3 * US_PER_SECOND);
    free(timer);
}

void run_not_flushed_yet(const struct changes *changes, int64_t us)
{
    for (int i = 0; i < 3 && changes->request_count; i++) {
        const struct request_change *change = &changes->requests[dice_between(0, (int64_t)changes->request_count - 1)];
        struct provocation *provocation = calloc(1, sizeof *provocation);
        provocation->timer.fire = repeat_call;
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

/* Locks rows of semaphores for longer than the slack of the short path, changes nothing and gives them up, again and again. */
static void *be_stranger(void *context)
{
    (void)context;
    while (!world.quiet) {
        fiber_sleep(dice_between(0, 2 * US_PER_SECOND));
        if (database.down || world.quiet)
            continue;
        struct transaction *transaction = transaction_begin();
        if (transaction_lock_semaphore(
                transaction, &database.semaphores[dice_between(0, (int64_t)world.made_count - 1)]) == PERMIT_OK)
            fiber_sleep(dice_between(100000, 1500000));
        transaction_free(transaction);
    }
    return NULL;
}

/* ---- shops ---- */

/* The errand of a procedure that a shop calls for a held request, whose row it has locked; 0: it is refused. */
static uint32_t any_errand(const struct db_key *key)
{
    const struct request *request = &key->row.request;
    struct story *story = key->story;
    bool sold = request->confirmed_at != NEVER;
    if (!row_is_held(&key->row) || !story || story->lost)
        return 0;
    if (!sold && !request->errand && !story->basket && !dice_once_in(4)) {
        story->confirm_sent = true;
        return ERRAND_CONFIRM;
    }
    story->release_sent = true;
    return ERRAND_RELEASE;
}

/* A held request; one that is due soon more often than others. */
static struct db_key *any_held(void)
{
    struct db_key *key = NULL;
    for (int i = 0; i < 4; i++) {
        struct db_key *other = database.held[dice_between(0, (int64_t)database.held_count - 1)];
        if (!key || other->row.request.due_at < key->row.request.due_at)
            key = other;
    }
    return key;
}

/* A shop locks the row of a request in a transaction of its own, calls a procedure, and commits or rolls back. */
static void *be_shop(void *context)
{
    (void)context;
    while (!world.quiet) {
        fiber_sleep(dice_between(0, 40000));
        if (database.down || world.quiet || database.held_count == 0)
            continue;
        struct transaction *transaction = transaction_begin();
        struct db_key *key = any_held();
        if (transaction_lock_key(transaction, key) == PERMIT_OK) {
            uint32_t errand = dice_once_in(4) ? 0 : any_errand(key);
            fiber_sleep(dice_once_in(8) ? dice_between(100000, 1500000) : dice_between(0, 6000));
            if (errand && transaction->state == TRANSACTION_OPEN)
                database_flushed(database_commit_errand(transaction, key, errand));
        }
        transaction_free(transaction);
    }
    return NULL;
}

void faults_begin(void)
{
    faults_state.stranger = profile.strangers ? fiber_spawn(DIRECTOR, be_stranger, NULL) : NULL;
    faults_state.shop = profile.shops ? fiber_spawn(DIRECTOR, be_shop, NULL) : NULL;
    faults_state.next.fire = inject_fault;
    faults_state.database_back.fire = database_up;
    faults_state.second_failover.fire = fail_over_again;
    faults_state.wobble.fire = wobble;
    timer_set(&faults_state.next, dice_between(0, US_PER_SECOND));
}

void faults_end(void)
{
    faults = (struct fault_rates){0};
    fault_branch = NULL;
    timer_drop(&faults_state.next);
    timer_drop(&faults_state.database_back);
    timer_drop(&faults_state.second_failover);
    timer_drop(&faults_state.wobble);
    database_slew(0);
    database_start();
    if (faults_state.stranger)
        fiber_join(faults_state.stranger);
    if (faults_state.shop)
        fiber_join(faults_state.shop);
}
