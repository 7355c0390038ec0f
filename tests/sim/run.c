/* SPDX-License-Identifier: MIT */
#include "run.h"

#include <stdio.h>
#include <unistd.h>

#include "dice.h"
#include "fake_store.h"
#include "site.h"

enum {
    DIRECTOR = PROCESSES_MAX - 1, /* the process of whoever directs the run */
    WATCH_US = 5000,              /* how often waiters are looked at (P17) */
    DEADLOCK_ONCE_IN = 1000,      /* commits: more often is a fault */
};
/* P17: 250 ms, and what the calls to the database take. */
#define SERVED_WITHIN_US (300LL * US_PER_MS)

struct site site;

static struct timer watch;

const struct list *run_calls(int process)
{
    return &site.servers[process].calls;
}

/* ---- P17: who waits and fits ---- */

/* "A waiter that is refused because a semaphore is paused or closed holds nobody up", nor one for certain slots. */
static bool holds_nobody_up(struct bytes external_id)
{
    const struct story *story = database_key(external_id)->story;
    for (size_t i = 0; story && i < story->want_count; i++) {
        const struct semaphore *row = &story->semaphores[i]->row.semaphore;
        if (!row_in_service(&story->semaphores[i]->row) || row->paused_reason.data || row->capacity == 0)
            return true;
    }
    return story && story_is_certain(story);
}

/* Nobody who may keep it from a unit stands before it, as its permitd says. */
static bool is_first(const struct call *call)
{
    static struct arena arena = {.chunk_size = 16384, .limit = (size_t)1 << 30};
    struct waiter_row row;
    struct waiter_place *places;
    bool first = true;
    arena_clear(&arena);
    if (engine_find_waiter(site.servers[call->process].engine, call->story->key->external_id, &arena, &row, &places) !=
        PERMIT_OK)
        return false;
    for (size_t i = 0; i < row.want_count; i++) {
        first &= places[i].ahead == places[i].ahead_key_count;
        for (size_t j = 0; j < places[i].ahead_key_count; j++)
            first &= holds_nobody_up(places[i].ahead_keys[j]);
    }
    return first;
}

/* As many of the slots that it means are free, or neighbours. */
static bool slots_are_free(const struct db_semaphore *semaphore, const struct want *want)
{
    int64_t free = 0;
    for (uint32_t number = 1; number <= semaphore->row.in_service && free < want->count; number++) {
        bool usable = !semaphore->row.slots[number] && want_lists(want, &semaphore->row, number);
        free = usable ? free + 1 : want->adjacent ? 0 : free;
    }
    return free >= want->count;
}

static bool waits(const struct call *call)
{
    return call->operation.kind == OP_ACQUIRE && call->wait_until >= sim_now() && !call->other_payload &&
           !call->story->key->row.exists;
}

static bool is_servable(const struct call *call)
{
    for (size_t i = 0; i < call->story->want_count; i++) {
        const struct want *want = &call->story->wants[i];
        const struct db_semaphore *semaphore = call->story->semaphores[i];
        const struct semaphore *row = &semaphore->row.semaphore;
        if (!row_in_service(&semaphore->row) || row->paused_reason.data || row->capacity - row->in_use < want->count ||
            (want_is_certain(want) && !slots_are_free(semaphore, want)))
            return false;
    }
    return is_first(call);
}

/* It can never be served as it is asked: it has to be told so, also if what it waits for is paused. */
static bool is_hopeless(const struct call *call)
{
    for (size_t i = 0; i < call->story->want_count; i++)
        if (!row_in_service(&call->story->semaphores[i]->row) ||
            want_is_hopeless(&call->story->wants[i], &call->story->semaphores[i]->row))
            return true;
    return false;
}

/* How long something has been so, which it is, or is not, now. */
static mono_us how_long(mono_us *since, bool now)
{
    if (!now)
        *since = 0;
    else if (!*since)
        *since = sim_now();
    return now ? sim_now() - *since : 0;
}

static void watch_call(struct call *call)
{
    bool waiting = waits(call);
    mono_us fits = how_long(&call->servable_since, waiting && is_servable(call));
    mono_us hopeless = how_long(&call->hopeless_since, waiting && is_hopeless(call));
    counts.longest_servable = max_i64(counts.longest_servable, fits);
    if (fits > SERVED_WITHIN_US)
        violation("P17", "#%llu (%s) waits and fits since %lld ms", (unsigned long long)call->number,
                  call->story->key->text, (long long)fits / US_PER_MS);
    if (hopeless > SERVED_WITHIN_US)
        violation("P17", "#%llu (%s) waits for what it can never get since %lld ms", (unsigned long long)call->number,
                  call->story->key->text, (long long)hopeless / US_PER_MS);
}

static void watch_waiters(struct timer *timer)
{
    (void)timer;
    for (int i = 0; i < profile.engines; i++)
        list_for_each (node, next, &site.servers[i].calls)
            watch_call(LIST_ENTRY(node, struct call, node));
    timer_set(&watch, sim_now() + WATCH_US);
}

/* ---- the end ---- */

static size_t calls_left(void)
{
    size_t count = 0;
    for (int i = 0; i < profile.engines; i++)
        list_for_each (node, next, &site.servers[i].calls)
            count++;
    return count;
}

/* "15 s after the faults end nothing fails any more", and whoever waits is answered when its time is over. */
static void wait_for_calls(void)
{
    mono_us until = sim_now() + 15 * US_PER_SECOND + WAIT_MAX_MS * US_PER_MS;
    while (calls_left() && sim_now() < until)
        fiber_sleep(10000);
    if (calls_left())
        violation("P13", "%zu calls are not answered", calls_left());
}

/* To those that operators may have paused or made smaller, and to what templates made. */
static void send_to_all_semaphores(enum operation_kind kind)
{
    for (size_t i = profile.capacity_changes ? 0 : site.made_count; i < database.semaphore_count; i++) {
        if (!row_in_service(&database.semaphores[i].row))
            continue;
        struct call *call = call_new(0, NULL, kind);
        call->operation.semaphore = database.semaphores[i].row.semaphore.name;
        call->change = (struct semaphore_change){.has_capacity = true, .capacity = 4};
        (void)call_send(call, 0);
        wait_for_calls();
    }
}

static void release_confirmed(void)
{
    for (size_t i = database.held_count; i-- > 0;)
        if (i < database.held_count && database.held[i]->row.request.due_at == NEVER) {
            struct call *call = call_new(0, database.held[i]->story, OP_RELEASE);
            call->operation.of_confirmed = true;
            (void)call_send(call, 0);
            wait_for_calls();
        }
}

/* One unit of it, of a permitd that is asked in turn. */
static void acquire_unit(struct db_semaphore *semaphore, int64_t turn)
{
    struct story *story = story_begin();
    story->wants[0] = (struct want){.semaphore = semaphore->row.semaphore.name, .count = 1};
    story->semaphores[0] = semaphore;
    story->want_count = 1;
    story->ttl = (struct ttl){.kind = TTL_UNLIMITED};
    (void)call_send(call_new((int)(turn % profile.engines), story, OP_ACQUIRE), 0);
    wait_for_calls(); /* one by one: some permitd take but a few */
}

/* C6: after ttl, grace and 5 s nothing is held that nobody holds, and full capacity can be acquired. */
static void check_quiet(void)
{
    fiber_sleep((TTL_MAX_MS + GRACE_MAX_MS) * US_PER_MS + 5 * US_PER_SECOND);
    if (database.held_count)
        violation("P7", "%zu requests are held that nobody has renewed, one of them %s", database.held_count,
                  database.held[0]->text);
    for (size_t i = 0; i < database.semaphore_count; i++)
        for (int64_t unit = 0; unit < database.semaphores[i].row.semaphore.capacity; unit++)
            if (row_in_service(&database.semaphores[i].row))
                acquire_unit(&database.semaphores[i], unit);
    for (size_t i = 0; i < database.semaphore_count; i++) {
        const struct semaphore *row = &database.semaphores[i].row.semaphore;
        if (row_in_service(&database.semaphores[i].row) && row->in_use != row->capacity)
            violation("P7", "%lld of %lld units of %.*s can be acquired when nobody holds any", (long long)row->in_use,
                      (long long)row->capacity, (int)row->name.length, row->name.data);
    }
}

/* P19: whatever went wrong, a name that a template is for is made by whoever asks for it. */
static void check_first_uses(void)
{
    operators_cover_all();
    for (size_t i = site.made_count; i < database.semaphore_count; i++) {
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
    while (site.result->operations < site.wanted) {
        fiber_sleep(5000);
        if (site.result->operations != before)
            progress_at = sim_now();
        before = site.result->operations;
        if (sim_now() - progress_at > 60 * US_PER_SECOND)
            violation("P13", "nothing is answered any more");
    }
    site.quiet = true;
    (void)allocations_count(false);
    trouble_end();
    servers_mend();
    if (profile.failovers)
        fiber_sleep(profile.hold_ms * US_PER_MS + US_PER_SECOND);
    wait_for_calls();
    send_to_all_semaphores(OP_SEMAPHORE_RESUME);
    send_to_all_semaphores(OP_SEMAPHORE_PUT);
    wait_for_calls();
    release_confirmed();
    wait_for_calls();
    check_quiet();
    if (profile.templates)
        check_first_uses();
    if (database.deadlocks > 2 + database.commits / DEADLOCK_ONCE_IN)
        violation("P13", "%llu deadlocks in %llu commits: locks are not taken in one order",
                  (unsigned long long)database.deadlocks, (unsigned long long)database.commits);
    scheduler_stop();
    return NULL;
}

/* ---- the beginning ---- */

static void choose_profile(void)
{
    profile = (struct profile){
        .calm = dice_once_in(4),
        .engines = (int)dice_between(1, 3),
    };
    profile.sleepy = profile.calm && dice_once_in(3);
    profile.hold_ms = dice_once_in(2) ? 5000 : dice_between(200, 2000);
    site.client_count = (int)dice_between(4, profile.sleepy ? 10 : CLIENTS_MAX);
    site.story_count = (int)dice_between(8, STORIES_MAX);
    if (faults.only_call)
        profile.calm = false;
    profile.capacity_changes = !faults.only_call && dice_once_in(3);
    profile.label_changes = !faults.only_call && dice_once_in(3);
    profile.templates = faults.only_call || dice_once_in(2);
    if (profile.calm || faults.only_call)
        return;
    profile.most_requests = dice_once_in(8) ? (size_t)dice_between(10, 12) : 0; /* an acquire alone may end nine */
    profile.clock_steps = dice_once_in(3);
    profile.failovers = !profile.clock_steps && dice_once_in(2);
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

static void make_semaphores(void)
{
    site.made_count = (size_t)dice_between(1, SEMAPHORES_MADE);
    for (size_t i = 0; i < site.made_count; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%u", (unsigned)i + 1);
        const struct semaphore like = {
            .kind = dice_once_in(3) ? KIND_COUNTED : KIND_SLOTTED,
            .queue = dice_once_in(2) ? QUEUE_FIFO : QUEUE_BACKFILL,
            .capacity = dice_between(1, dice_once_in(3) ? 1 : 12),
            .default_ttl_ms = 1000,
            .max_ttl_ms = -1,
            .grace_ms = dice_between(0, GRACE_MAX_MS),
            .max_hold_ms = TTL_MAX_MS,
        };
        (void)database_add_semaphore(name, &like);
        step("%s: %s, %s, capacity %lld, grace %lld ms", name, semaphore_kind_word(like.kind),
             semaphore_queue_word(like.queue), (long long)like.capacity, (long long)like.grace_ms);
    }
}

static void begin(void)
{
    choose_profile();
    scheduler_begin();
    database_begin();
    make_semaphores();
    operators_begin();
    servers_begin();
    clients_begin();
    watch.fire = watch_waiters;
    if (profile.calm)
        timer_set(&watch, 0);
    if (!faults.only_call && (!profile.calm || profile.capacity_changes))
        trouble_begin();
    process_spawn(DIRECTOR, direct, NULL);
    (void)allocations_count(true);
}

static void collect(void)
{
    struct result *result = site.result;
    result->at_operation = result->operations;
    result->waits = counts.waited;
    result->served_after_wait = counts.served_after_wait;
    result->abandoned = counts.abandoned;
    result->grants = counts.told[OP_ACQUIRE][PERMIT_OK];
    result->refusals = counts.told[OP_ACQUIRE][PERMIT_NO_CAPACITY];
    result->commits = database.commits;
    result->made = counts.made + counts.revived;
    result->labelled = counts.labelled;
    result->templates_changed = counts.templates_changed;
    result->crashes = database.crashes;
    result->deadlocks = database.deadlocks;
    result->duplicates = database.duplicates;
    result->failovers = database.failovers;
    result->faults = fault_counts.lost + fault_counts.lock_timeouts + fault_counts.conflicts + fault_counts.refused;
    result->calls = fault_counts.calls;
    result->allocations = allocations.made;
    result->struck = fault_counts.struck + allocations.struck;
    result->switches = scheduler_switches();
    result->simulated = sim_now();
    result->longest_servable = counts.longest_servable;
}

void run_violated(const char *promise, const char *text)
{
    collect();
    snprintf(site.result->promise, sizeof site.result->promise, "%s", promise);
    snprintf(site.result->text, sizeof site.result->text, "%s", text);
    site.result->violated = true;
    fflush(stdout);
    _exit(1);
}

void run_seed(uint64_t seed, uint64_t operations, struct result *result)
{
    dice_seed(seed);
    site.result = result;
    fault_ways = result->ways;
    site.wanted = operations;
    begin();
    scheduler_run();
    collect();
}
