/* SPDX-License-Identifier: MIT */
#include "run.h"

#include <stdio.h>
#include <unistd.h>

#include "dice.h"
#include "fake_session.h"
#include "world.h"

enum {
    WATCH_US = 5000, /* interval of the check of waiters (P17) */
};
/* P17: 250 ms, plus the database calls. */
#define SERVED_WITHIN_US (300LL * US_PER_MS)
/* After a change of a semaphore each permitd looks at its own waiters once a second. */
#define NET_US           (1500LL * US_PER_MS)
/* After the last fault: until the dead are declared dead, and each permitd has looked at its waiters. */
#define SETTLED_US       (8LL * US_PER_SECOND)

struct world world;

static struct timer watch;

const struct list *run_calls(int process)
{
    return &world.servers[process].calls;
}

/* ---- P17: waiters that fit ---- */

/* Returns true if enough of the slots it accepts are free, adjacent if it wants that. */
static bool slots_are_free(const struct db_semaphore *semaphore, const struct want *want)
{
    int64_t free = 0;
    if (want->choice == CHOOSE_BEST)
        return seats_are_free(want, &semaphore->row);
    for (uint32_t number = 1; number <= semaphore->row.in_service && free < want->count; number++) {
        bool usable = !semaphore->row.slots[number] && want_lists(want, &semaphore->row, number);
        free = usable ? free + 1 : want->adjacent ? 0 : free;
    }
    return free >= want->count;
}

static bool waits(const struct call *call)
{
    return call->operation.kind == OP_ACQUIRE && call->wait_until > sim_now() && !call->other_payload &&
           !call->answered_late && !call->story->lost;
}

/* Returns true if it waits at its permitd, by its row. */
static bool waits_by_row(const struct call *call)
{
    const struct request_row *row = &call->story->key->row;
    return row_is_waiting(row) && oracle_server_process(row->request.server_id) == call->process &&
           memcmp(row->request.digest, call->operation.digest, DIGEST_SIZE) == 0;
}

static bool is_servable(const struct call *call)
{
    for (size_t i = 0; i < call->story->want_count; i++) {
        const struct want *want = &call->story->wants[i];
        const struct db_semaphore *semaphore = call->story->semaphores[i];
        const struct semaphore *row = &semaphore->row.semaphore;
        if (!row_in_service(&semaphore->row) || row->paused_reason.data || row->capacity - row->in_use < want->count ||
            (want_is_specific(want) && !slots_are_free(semaphore, want)))
            return false;
    }
    bool hold = database.globals.grants_from > lease_time(&database.globals.clock, database_now());
    return !hold && !database.down &&
           (story_is_specific(call->story) ? queue_is_first(call->story->key) : walk_would_grant(call->story->key));
}

/* True if it can never be granted as it is: it has to be refused, even if a semaphore it waits for is paused. */
static bool is_unsatisfiable(const struct call *call)
{
    for (size_t i = 0; i < call->story->want_count; i++)
        if (!row_in_service(&call->story->semaphores[i]->row) ||
            want_is_unsatisfiable(&call->story->wants[i], &call->story->semaphores[i]->row))
            return true;
    return false;
}

/* How long a condition has been true; 0 if it is not true now. */
static mono_us how_long(mono_us *since, bool now)
{
    if (!now)
        *since = 0;
    else if (!*since)
        *since = sim_now();
    return now ? sim_now() - *since : 0;
}

/* How long a waiter that fits may wait now. */
static int64_t served_within_us(const struct call *call)
{
    if (!profile.calm) /* a batch over the limit of a session is lost, and the next ones are halved */
        return profile.most_requests ? 3 * SETTLED_US : SETTLED_US;
    const mono_us since = sim_now() - 2 * NET_US;
    for (size_t i = 0; i < call->story->want_count; i++)
        if (call->story->semaphores[i]->set_at > since)
            return NET_US;
    return queue_is_first(call->story->key) ? SERVED_WITHIN_US : NET_US;
}

static void watch_call(struct call *call)
{
    bool waiting = waits(call);
    bool by_row = waiting && waits_by_row(call);
    int64_t within_us = waiting ? served_within_us(call) : 0;
    mono_us fits = how_long(&call->servable_since, by_row && is_servable(call));
    mono_us hopeless = how_long(&call->unsatisfiable_since, by_row && is_unsatisfiable(call));
    mono_us decided = how_long(&call->decided_since, waiting && !by_row);
    counts.longest_servable = max_i64(counts.longest_servable, profile.calm ? fits : 0);
    if (fits > within_us)
        violation("P17", "#%llu (%s) waits and fits since %lld ms", (unsigned long long)call->number,
                  call->story->key->text, (long long)fits / US_PER_MS);
    if (hopeless > max_i64(within_us, NET_US))
        violation("P17", "#%llu (%s) has waited %lld ms for units that it can never get",
                  (unsigned long long)call->number, call->story->key->text, (long long)hopeless / US_PER_MS);
    if (decided > max_i64(within_us, NET_US))
        violation("P17", "#%llu (%s) does not wait by its row since %lld ms, and is not told",
                  (unsigned long long)call->number, call->story->key->text, (long long)decided / US_PER_MS);
}

static void watch_waiters(struct timer *timer)
{
    (void)timer;
    for (int i = 0; i < profile.engines; i++)
        list_for_each (node, next, &world.servers[i].calls)
            watch_call(LIST_ENTRY(node, struct call, node));
    if (profile.calm)
        queue_watch();
    if (profile.clocks)
        oracle_watch_late();
    timer_set(&watch, sim_now() + WATCH_US);
}

/* ---- the end ---- */

static size_t calls_left(void)
{
    size_t count = 0;
    for (int i = 0; i < profile.engines; i++)
        list_for_each (node, next, &world.servers[i].calls)
            count++;
    return count;
}

/* Batches over the limit of a session are halved until they are within it, and each try takes its time-out. */
static mono_us halving_takes(void)
{
    return profile.most_requests ? 8 * SESSION_TIME_OUT_US : 0;
}

/* 15 s after the faults end no call fails any more, and a waiter is answered when its wait ends. */
static void wait_for_calls(void)
{
    mono_us until = sim_now() + 15 * US_PER_SECOND + halving_takes() + profile.wait_max_ms * US_PER_MS;
    while (calls_left() && sim_now() < until)
        fiber_sleep(10000);
    if (calls_left())
        violation("P13", "%zu calls are not answered", calls_left());
}

enum { CAPACITY_AT_END = 4, TRIES_MAX = 1000 };

static bool is_usable(const struct db_semaphore_row *row, enum operation_kind kind)
{
    const struct semaphore *semaphore = &row->semaphore;
    bool usable = kind == OP_SEMAPHORE_PUT ? semaphore->capacity == CAPACITY_AT_END : !semaphore->paused_reason.data;
    return usable || !row_in_service(row);
}

/*
 * Makes each semaphore usable that operators may have paused or shrunk, or that a template created. A call may be
 * refused as busy while batches that are over the limit of a session are halved; then it is repeated.
 */
static void make_all_usable(enum operation_kind kind)
{
    for (size_t i = profile.capacity_changes ? 0 : world.made_count; i < database.semaphore_count; i++)
        for (int tries = 0; tries < TRIES_MAX && !is_usable(&database.semaphores[i].row, kind); tries++) {
            struct call *call = call_new(0, NULL, kind);
            call->operation.semaphore = database.semaphores[i].row.semaphore.name;
            call->change = (struct semaphore_change){.has_capacity = true, .capacity = CAPACITY_AT_END};
            (void)call_send(call, 0);
            wait_for_calls();
        }
}

/* Returns a request that is held until a client releases it; NULL: there is none. */
static const struct db_key *held_for_ever(void)
{
    for (size_t i = 0; i < database.held_count; i++)
        if (database.held[i]->row.request.due_at == NEVER)
            return database.held[i];
    return NULL;
}

static const struct db_key *with_errand(void)
{
    for (size_t i = 0; i < database.held_count; i++)
        if (database.held[i]->row.request.errand)
            return database.held[i];
    return NULL;
}

/* P25: what a shop has committed is settled. */
static void wait_for_errands(void)
{
    mono_us until = sim_now() + 5 * US_PER_SECOND + halving_takes();
    while (with_errand() && sim_now() < until)
        fiber_sleep(10000);
    if (with_errand())
        violation("P25", "the errand of %s is not settled", with_errand()->text);
}

/* Repeated like the calls of make_all_usable. */
static void release_confirmed(void)
{
    const struct db_key *key;
    for (int i = 0; i < TRIES_MAX && (key = held_for_ever()); i++) {
        struct call *call = call_new(0, key->story, OP_RELEASE);
        call->operation.allow_confirmed = true;
        (void)call_send(call, 0);
        wait_for_calls();
    }
}

/* Acquires one unit, at one permitd after the other. */
static void acquire_unit(struct db_semaphore *semaphore, int64_t turn)
{
    struct story *story = story_begin();
    story->wants[0] = (struct want){.semaphore = semaphore->row.semaphore.name, .count = 1};
    story->semaphores[0] = semaphore;
    story->want_count = 1;
    story->ttl = (struct ttl){.kind = TTL_UNLIMITED};
    (void)call_send(call_new((int)(turn % profile.engines), story, OP_ACQUIRE), 0);
    wait_for_calls(); /* one at a time, because some permitd accept few */
}

/* C6: after ttl, grace and 7 s nothing is held without a client, and the full capacity can be acquired. */
static void check_quiet(void)
{
    fiber_sleep((profile.ttl_max_ms + GRACE_MAX_MS) * US_PER_MS + 7 * US_PER_SECOND + halving_takes());
    if (database.held_count)
        violation("P7", "%zu requests are still held without renewal, one of them %s", database.held_count,
                  database.held[0]->text);
    for (size_t i = 0; i < database.semaphore_count; i++)
        for (int64_t unit = 0; unit < database.semaphores[i].row.semaphore.capacity; unit++)
            if (row_in_service(&database.semaphores[i].row))
                acquire_unit(&database.semaphores[i], unit);
    for (size_t i = 0; i < database.semaphore_count; i++) {
        const struct semaphore *row = &database.semaphores[i].row.semaphore;
        if (row_in_service(&database.semaphores[i].row) && row->in_use != row->capacity)
            violation("P7", "%lld of %lld units of %.*s can be acquired when none is held", (long long)row->in_use,
                      (long long)row->capacity, (int)row->name.length, row->name.data);
    }
}

/* P19: after all faults, a name that a template covers is created by the first acquire. */
static void check_first_uses(void)
{
    operators_cover_all();
    for (size_t i = world.made_count; i < database.semaphore_count; i++) {
        struct db_semaphore *semaphore = &database.semaphores[i];
        const struct semaphore *row = &semaphore->row.semaphore;
        bool full = !semaphore->row.exists && database_count_semaphores() >= profile.max_semaphores;
        bool other_kind =
            semaphore->row.exists && row->kind != database_template_for(row->name)->row.settings.kind; /* 422 */
        if (row_in_service(&semaphore->row) || full || other_kind)
            continue;
        acquire_unit(semaphore, (int64_t)i);
        if (!row_in_service(&semaphore->row) || row->in_use != 1)
            violation("P19", "%s cannot be acquired, although there is a template for it", semaphore->name);
    }
}

static void *direct(void *context)
{
    (void)context;
    uint64_t before = 0;
    mono_us progress_at = sim_now();
    while (world.result->operations < world.wanted) {
        fiber_sleep(5000);
        if (world.result->operations != before)
            progress_at = sim_now();
        before = world.result->operations;
        if (sim_now() - progress_at > 60 * US_PER_SECOND)
            violation("P13", "nothing is answered any more");
    }
    world.quiet = true;
    (void)allocations_count(false);
    faults_end();
    servers_repair();
    if (!profile.calm && !profile.clocks)
        timer_set(&watch, sim_now());
    if (profile.failovers || profile.clocks)
        fiber_sleep(profile.hold_ms * US_PER_MS + US_PER_SECOND);
    wait_for_calls();
    make_all_usable(OP_SEMAPHORE_RESUME);
    make_all_usable(OP_SEMAPHORE_PUT);
    wait_for_calls();
    wait_for_errands();
    feed_settles();
    release_confirmed();
    wait_for_calls();
    queue_settles();
    check_quiet();
    if (profile.templates)
        check_first_uses();
    oracle_servers_settle();
    if (database.deadlocks > 0)
        violation("P13", "%llu deadlocks in %llu commits: locks are not taken in one order",
                  (unsigned long long)database.deadlocks, (unsigned long long)database.commits);
    scheduler_stop();
    return NULL;
}

/* ---- the beginning ---- */

/* The last part of the profile of a seed, which takes no dice: the runs of all other seeds are as without it. */
static void choose_halls(uint64_t seed)
{
    profile.halls = seed % 5 == 2;
    profile.label_changes |= profile.halls && !faults.only_call;
}

static void choose_profile(void)
{
    profile = (struct profile){
        .calm = dice_once_in(4),
        .engines = (int)dice_between(1, 3),
    };
    profile.exchanges = world.seed % 5 == 2; /* no dice: the other seeds run as without */
    profile.ttl_max_ms = TTL_MAX_MS;
    profile.low_load = profile.calm && dice_once_in(3);
    profile.deaths = !profile.calm && !faults.only_call && dice_once_in(3);
    profile.lopsided = dice_once_in(4);
    profile.wait_max_ms = profile.deaths ? WAIT_LONG_MS : WAIT_MAX_MS;
    profile.short_path = !dice_once_in(4);
    profile.shared_pause_ms = dice_once_in(3) ? 1000 : 0;
    profile.few_waits = profile.short_path && dice_once_in(2);
    profile.plain_waits = profile.short_path && !profile.few_waits && dice_once_in(2);
    if (profile.plain_waits && !dice_once_in(3))
        profile.engines = 1;
    profile.backfill_bound_ms = dice_between(50, 2000);
    fake_queue_read_max = dice_once_in(3) ? (size_t)dice_between(1, 4) : QUEUE_READ_MAX;
    profile.hold_ms = dice_once_in(2) ? 5000 : dice_between(200, 2000);
    world.client_count = (int)dice_between(4, profile.low_load ? 10 : CLIENTS_MAX);
    world.story_count = (int)dice_between(8, STORIES_MAX);
    if (faults.only_call)
        profile.calm = false;
    profile.capacity_changes = !faults.only_call && dice_once_in(3);
    profile.label_changes = !faults.only_call && dice_once_in(3);
    profile.templates = faults.only_call || dice_once_in(2);
    if (profile.calm || faults.only_call)
        return;
    profile.max_packet = dice_once_in(3) ? (size_t)dice_between(12000, 24000) : 0; /* a grant takes 3000 at most */
    profile.most_requests = dice_once_in(8) ? (size_t)dice_between(10, 12) : 0;    /* an acquire alone may end nine */
    if (profile.deaths) {
        profile.engines = (int)dice_between(2, 3);
        return;
    }
    profile.clocks = dice_once_in(3);
    if (profile.clocks) {
        profile.ttl_max_ms = TTL_LONG_MS;
        profile.most_requests = 0; /* expiry would be late */
        return;
    }
    profile.clock_steps = dice_once_in(3);
    profile.failovers = !profile.clock_steps && dice_once_in(2);
    profile.strangers = profile.short_path && dice_once_in(3);
    profile.shops = dice_once_in(2);
    unsigned harsh = dice_once_in(3) ? 4 : 1;
    faults = (struct fault_rates){.lost_before = 400 / harsh,
                                  .lost_after = 400 / harsh,
                                  .commit_lost = 60 / harsh,
                                  .lock_timeout = 600 / harsh,
                                  .conflict = 300 / harsh,
                                  .unavailable = 30 / harsh,
                                  .full = dice_once_in(3) ? 2000 : 0,
                                  .slow = 500 / harsh,
                                  .late_flush = 150};
}

/* With events, what a packet has of an operation is larger. */
static void choose_feed(void)
{
    profile.feed_rows = (uint64_t)(dice_once_in(2) ? dice_between(10, 60) : 1500);
    if (profile.max_packet)
        profile.max_packet += 3 * ROW_PERMITS_MAX * PACKET_FEED;
}

static void make_semaphores(void)
{
    world.made_count = (size_t)dice_between(1, SEMAPHORES_CREATED);
    for (size_t i = 0; i < world.made_count; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%u", (unsigned)i + 1);
        struct semaphore like = {.kind = dice_once_in(3) ? KIND_COUNTED : KIND_SLOTTED};
        semaphore_reset(&like, 1000);
        like.queue = dice_once_in(2) ? QUEUE_FIFO : QUEUE_BACKFILL;
        like.capacity = dice_between(1, dice_once_in(3) ? 1 : 12);
        like.max_waiters = dice_once_in(5) ? dice_between(0, 4) : SETTING_NONE;
        like.max_priority = dice_once_in(3) ? dice_between(0, PRIORITY_MAX) : PRIORITY_MAX;
        like.grace_ms = dice_between(0, GRACE_MAX_MS);
        like.max_hold_ms = TTL_MAX_MS;
        if (run_with_feed)
            like.feed = (enum semaphore_feed)dice_between(FEED_NONE, FEED_ALL);
        struct db_semaphore *semaphore = database_add_semaphore(name, &like);
        for (uint32_t number = 1; profile.halls && number <= semaphore->row.in_service; number++)
            operators_make_seat(&semaphore->row, number);
        step("%s: %s, %s, capacity %lld, grace %lld ms", name, semaphore_kind_word(like.kind),
             semaphore_queue_word(like.queue), (long long)like.capacity, (long long)like.grace_ms);
    }
}

static void begin(uint64_t seed)
{
    choose_profile();
    choose_halls(seed);
    if (run_with_feed)
        choose_feed();
    scheduler_begin();
    database_begin();
    make_semaphores();
    operators_begin();
    servers_begin();
    clients_begin();
    watch.fire = watch_waiters;
    if (profile.calm || profile.clocks)
        timer_set(&watch, 0);
    if (!faults.only_call && (!profile.calm || profile.capacity_changes))
        faults_begin();
    process_spawn(DIRECTOR, direct, NULL);
    (void)allocations_count(true);
}

static void collect(void)
{
    struct result *result = world.result;
    result->at_operation = result->operations;
    result->waits = counts.waited;
    result->served_after_wait = counts.served_after_wait;
    result->abandoned = counts.abandoned;
    result->grants = counts.told[OP_ACQUIRE][PERMIT_OK];
    result->refusals = counts.told[OP_ACQUIRE][PERMIT_NO_CAPACITY];
    result->commits = database.commits;
    result->made = counts.made + counts.revived;
    result->labelled = counts.labelled;
    result->exchanges = counts.exchanges;
    result->exchanges_refused = counts.exchanges_refused;
    result->exchanges_repeated = counts.exchanges_repeated;
    result->templates_changed = counts.templates_changed;
    result->crashes = database.crashes;
    result->deadlocks = database.deadlocks;
    result->cached = database.cached;
    result->cached_grants = database.cached_grants;
    result->mismatches = database.mismatches;
    result->too_large = database.too_large;
    result->duplicates = database.duplicates;
    result->failovers = database.failovers;
    result->faults = fault_counts.lost + fault_counts.lock_timeouts + fault_counts.conflicts + fault_counts.refused;
    result->calls = fault_counts.calls;
    result->allocations = allocations.made;
    result->struck = fault_counts.struck + allocations.struck;
    result->switches = scheduler_switches();
    result->simulated = sim_now();
    result->longest_servable = counts.longest_servable;
    result->order_judged = counts.order_judged;
    result->refusals_judged = counts.refusals_judged;
    result->seats_judged = counts.seats_judged;
    result->events = counts.events;
    result->omitted = counts.omitted;
}

bool run_is_contract(void)
{
    return !world.result;
}

bool run_with_tenants, run_with_feed;

void run_violated(const char *promise, const char *text)
{
    collect();
    snprintf(world.result->promise, sizeof world.result->promise, "%s", promise);
    snprintf(world.result->text, sizeof world.result->text, "%s", text);
    world.result->violated = true;
    fflush(stdout);
    _exit(1);
}

void run_seed(uint64_t seed, uint64_t operations, struct result *result)
{
    dice_seed(seed);
    world.seed = seed;
    world.result = result;
    fault_ways = result->ways;
    world.wanted = operations;
    begin(seed);
    scheduler_run();
    collect();
}
