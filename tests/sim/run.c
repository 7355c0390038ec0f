/* SPDX-License-Identifier: MIT */
#include "run.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/plant.h"
#include "dice.h"
#include "fake_store.h"

enum {
    DIRECTOR = PROCESSES_MAX - 1, /* the process of whoever directs the run */
    ENGINES_MAX = 4,
    CLIENTS_MAX = 40,
    STORIES_MAX = 64,
    WATCH_US = 5000, /* how often waiters are looked at (P17) */
    WAIT_MAX_MS = 3000,
    TTL_MAX_MS = 12000,
    GRACE_MAX_MS = 500,
    DEADLOCK_ONCE_IN = 1000, /* commits: more often is a fault */
};
/* P17: 250 ms, and what the calls to the database take. */
#define SERVED_WITHIN_US (300LL * US_PER_MS)
#define TAIL_MAX_US      (8LL * US_PER_SECOND)
/* What a failover loses is later than the first service of a database (docs/reliability.md). */
#define SERVED_SINCE_US  (2LL * US_PER_SECOND)

struct client {
    struct timer timer;
    struct call *call; /* that it waits for */
};

struct server {
    struct engine *engine; /* NULL: it is down */
    bool stopping;
    bool paused;
    mono_us paused_at;
    struct list calls; /* struct call */
    struct timer back; /* it is started again, or goes on */
};

static struct run {
    struct result *result;
    uint64_t wanted;
    struct server servers[ENGINES_MAX];
    struct client clients[CLIENTS_MAX];
    int client_count;
    struct story *stories[STORIES_MAX];
    int story_count;
    uint64_t keys, calls;
    bool quiet; /* nothing new begins, nothing fails any more */
    struct timer trouble, watch, database_back, second_failover;
    mono_us failed_over_at;
    bool forgetful; /* the second failover finds no permitd that remembers the first */
} run;

/* --- calls -----------------------------------------------------------------------------------------------------------
 */

const struct list *run_calls(int process)
{
    return &run.servers[process].calls;
}

static void client_next(struct client *client)
{
    if (run.quiet)
        return;
    int64_t think = dice_once_in(50) ? dice_between(0, 50000) : dice_between(0, 800);
    if (profile.sleepy)
        think = dice_between(0, 400000);
    timer_set(&client->timer, sim_now() + think);
}

/* The call is over, however it ended. */
static void call_free(struct call *call)
{
    struct client *client = call->client;
    list_remove(&call->node);
    run.result->operations++;
    if (client && client->call == call) {
        client->call = NULL;
        client_next(client);
    }
    free(call);
}

static void on_decided(struct op *op, const struct decision *decision)
{
    struct call *call = CONTAINER_OF(op, struct call, op);
    if (call->story)
        call->story->done++;
    oracle_told(call, decision);
    call_free(call);
}

static struct call *call_new(int process, struct story *story, enum operation_kind kind)
{
    struct call *call = calloc(1, sizeof *call);
    if (!call)
        abort();
    call->process = process;
    call->story = story;
    call->number = ++run.calls;
    call->sent_at = sim_now();
    call->operation.kind = kind;
    call->operation.change = &call->change;
    if (!story)
        return call;
    story->calls++;
    call->operation.external_id = story->key->external_id;
    if (kind != OP_ACQUIRE)
        return call;
    memcpy(call->wants, story->wants, sizeof call->wants);
    for (size_t i = 0; i < story->want_count; i++)
        call->wants[i].semaphore_id = 0;
    call->operation.wants = call->wants;
    call->operation.want_count = story->want_count;
    call->operation.ttl = story->ttl;
    memcpy(call->operation.digest, story->digest, DIGEST_SIZE);
    return call;
}

/* True: it is on its way. */
static bool send(struct call *call, int64_t wait_us)
{
    struct server *server = &run.servers[call->process];
    const int64_t timeout_us = 10 * US_PER_SECOND;
    op_init(&call->op, &call->operation, clock_mono() + wait_us + timeout_us, on_decided);
    if (wait_us) {
        call->op.wait_until = clock_mono() + wait_us;
        call->wait_until = sim_now() + wait_us;
    }
    list_append(&server->calls, &call->node);
    oracle_sent(call);
    enum permit_status status = engine_submit(server->engine, &call->op);
    if (status == PERMIT_OK)
        return true;
    on_decided(&call->op, &(struct decision){.status = status});
    return false;
}

#include "engine/state.h"
void run_dump(int process, struct bytes semaphore)
{
    struct engine *engine = run.servers[process].engine;
    struct gate *gate = gates_find_name(&engine->queue.gates, semaphore);
    printf("room %lld version %llu db %llu doubtful %d fifo %d credit %lld left_out %d\n", (long long)gate->room,
           (unsigned long long)gate->version,
           (unsigned long long)database_semaphore_named(semaphore)->row.semaphore.version, gate->doubtful, gate->fifo,
           (long long)gate->credit, gate->left_out);
    list_for_each (node, next, &gate->waiters) {
        struct waiter *waiter = LIST_ENTRY(node, struct stand, node)->waiter;
        printf("  %.*s called %d queued %d asked %d arrival %llu place %d\n", (int)waiter->operation.external_id.length,
               waiter->operation.external_id.data, waiter->called, waiter->op.queued, waiter_is_asked(waiter),
               (unsigned long long)waiter->op.arrival, waiter->operation.place);
    }
}
/* --- clients ----------------------------------------------------------------------------------------------------- */

static struct story *new_story(void)
{
    char text[KEY_SIZE];
    snprintf(text, sizeof text, "k%llu", (unsigned long long)++run.keys);
    struct story *story = story_new(database_key(bytes_of(text)));
    int wants = dice_once_in(4) ? (int)dice_between(2, ROW_PERMITS_MAX) : 1;
    for (size_t i = 0; i < database.semaphore_count && story->want_count < (size_t)wants; i++) {
        size_t left = database.semaphore_count - i;
        if ((size_t)dice_between(1, (int64_t)left) > (size_t)wants - story->want_count)
            continue;
        const struct semaphore *row = &database.semaphores[i].row.semaphore;
        int64_t most = max_i64(1, min_i64(row->capacity, 3));
        story->wants[story->want_count++] = (struct want){
            .semaphore = row->name, .semaphore_id = row->id, .count = dice_once_in(3) ? dice_between(1, most) : 1};
    }
    if (PLANTED(10)) { /* nobody has looked at the wants */
        story->wants[1] = story->wants[0];
        story->want_count = 2;
    }
    story->ttl = (struct ttl){TTL_DURATION, dice_between(200, dice_once_in(4) ? 2000 : TTL_MAX_MS)};
    memcpy(story->digest, &run.keys, sizeof run.keys);
    return story;
}

static int any_server(void)
{
    int first = (int)dice_between(0, profile.engines - 1);
    for (int i = 0; i < profile.engines; i++) {
        const struct server *server = &run.servers[(first + i) % profile.engines];
        if (server->engine && !server->stopping && !server->paused)
            return (first + i) % profile.engines;
    }
    return -1;
}

/* What a client may do next, and how likely; by what is known of the key. */
enum action { ACQUIRE, ACQUIRE_WAIT, OTHER_PAYLOAD, RELEASE, RENEW, CONFIRM, FORGET, ACTION_COUNT };
static const unsigned chances[3][ACTION_COUNT] = {
    /*                    acquire  wait  other  release  renew  confirm  forget */
    /* nothing told */ {45, 40, 0, 6, 4, 1, 1},
    /* granted      */ {12, 4, 3, 55, 16, 2, 4},
    /* ended        */ {14, 6, 3, 24, 12, 3, 30},
};

static enum action choose_action(const struct story *story)
{
    const unsigned *row = chances[story->end_told || story->release_sent ? 2 : story->grant_told ? 1 : 0];
    unsigned sum = 0;
    for (int i = 0; i < ACTION_COUNT; i++)
        sum += row[i];
    unsigned at = (unsigned)(dice_u64() % sum);
    int action = 0;
    while (at >= row[action])
        at -= row[action++];
    if (action == CONFIRM && (story->confirm_sent || profile.calm))
        return RENEW;
    if (action == OTHER_PAYLOAD && (!story->key->row.exists || story->lost || !profile.calm))
        return ACQUIRE;
    return (enum action)action;
}

static int64_t choose_wait(void)
{
    if (dice_once_in(profile.sleepy ? 2 : 30))
        return dice_between(1, WAIT_MAX_MS) * US_PER_MS;
    return dice_once_in(4) ? dice_between(1000, 300000) : dice_between(1000, 30000);
}

/* Nobody thinks of it any more; what is confirmed is not forgotten. */
static bool may_forget(const struct story *story)
{
    return !story->confirm_sent || story->end_told || story->lost;
}

static struct call *make_call(struct story *story, int process, int64_t *ret_wait_us)
{
    struct call *call;
    enum action action = choose_action(story);
    if (story->confirm_sent && dice_once_in(3))
        action = RELEASE;
    *ret_wait_us = 0;
    switch (action) {
    case ACQUIRE_WAIT: *ret_wait_us = choose_wait(); return call_new(process, story, OP_ACQUIRE);
    case ACQUIRE: return call_new(process, story, OP_ACQUIRE);
    case OTHER_PAYLOAD:
        call = call_new(process, story, OP_ACQUIRE);
        call->other_payload = true;
        call->operation.digest[DIGEST_SIZE - 1] = 1;
        return call;
    case RELEASE:
        call = call_new(process, story, OP_RELEASE);
        call->operation.of_confirmed = story->confirm_sent;
        return call;
    case RENEW:
        call = call_new(process, story, OP_RENEW);
        if (dice_once_in(2))
            call->operation.ttl = (struct ttl){TTL_DURATION, dice_between(200, TTL_MAX_MS)};
        return call;
    case CONFIRM:
        call = call_new(process, story, OP_CONFIRM);
        story->confirm_sent = true;
        return call;
    default: return NULL;
    }
}

/* The client has gone; or it has had enough and comes back. */
struct leaving {
    struct timer timer;
    struct call *call;
    uint64_t number;
};

static void leave(struct timer *timer)
{
    struct leaving *leaving = CONTAINER_OF(timer, struct leaving, timer);
    for (int i = 0; i < profile.engines; i++)
        list_for_each (node, next, &run.servers[i].calls) {
            struct call *call = LIST_ENTRY(node, struct call, node);
            if (call->number != leaving->number || run.servers[i].paused)
                continue;
            if (engine_abandon(run.servers[i].engine, &call->op)) {
                oracle_left(call);
                call_free(call);
            }
        }
    free(leaving);
}

static void leave_later(const struct call *call, int64_t after_us)
{
    struct leaving *leaving = calloc(1, sizeof *leaving);
    leaving->timer.fire = leave;
    leaving->number = call->number;
    timer_set(&leaving->timer, sim_now() + after_us);
}

static void act(struct timer *timer)
{
    struct client *client = CONTAINER_OF(timer, struct client, timer);
    int process = any_server();
    if (run.quiet)
        return;
    if (process < 0) {
        timer_set(&client->timer, sim_now() + 5000);
        return;
    }
    struct story **place = &run.stories[dice_between(0, run.story_count - 1)];
    if ((*place)->calls > 12 && may_forget(*place))
        *place = new_story();
    int64_t wait_us;
    struct call *call = make_call(*place, process, &wait_us);
    if (!call) {
        if (may_forget(*place))
            *place = new_story();
        client_next(client);
        return;
    }
    call->client = client;
    client->call = call;
    uint64_t number = call->number;
    if (send(call, wait_us) && wait_us && dice_once_in(6) && number == run.calls)
        leave_later(call, dice_between(0, wait_us + 2000));
}

/* --- servers ----------------------------------------------------------------------------------------------------- */

/* "Server clocks within 5 s": or within the time for which nothing is granted after a failover. */
static int64_t any_skew(void)
{
    int64_t most = profile.hold_ms * US_PER_MS / 2 - 1000;
    return profile.calm ? 0 : dice_between(-most, most);
}

static void start_server(int process)
{
    struct server *server = &run.servers[process];
    struct buf message;
    buf_init(&message, 1024);
    const struct engine_settings settings = {
        .workers = 2,
        .max_pending = 1000,
        .max_pending_ends = 1000,
        .directory_entries = 2000,
        .request_timeout_ms = 10000,
        .failover_hold_ms = profile.hold_ms,
        .plan = {.retention_us = 7 * 86400LL * US_PER_SECOND,
                 .tombstone_us = 3600LL * US_PER_SECOND,
                 .default_ttl_ms = DEFAULT_TTL_MS},
        .retention_rows = 1000000,
        .open_store = fake_store_open,
        .max_waiters = 1000,
        .max_semaphore_waiters = 1000,
        .wait_poll_ms = 50,
        .backfill_bound_ms = 1500,
    };
    int before = process_current();
    process_enter(process, any_skew());
    if (!engine_start(&settings, &server->engine, &message))
        abort();
    process_enter(before, 0);
    server->stopping = server->paused = false;
    step("p%d starts", process);
    buf_release(&message);
}

static int server_number(const struct server *server)
{
    return (int)(server - run.servers);
}

static void server_back(struct timer *timer)
{
    struct server *server = CONTAINER_OF(timer, struct server, back);
    if (!server->engine) {
        start_server(server_number(server));
    } else if (server->paused) {
        step("p%d goes on", server_number(server));
        server->paused = false;
        process_resume(server_number(server));
        list_for_each (node, next, &server->calls)
            LIST_ENTRY(node, struct call, node)->excused_us += sim_now() - server->paused_at;
    }
}

static void kill_server(struct server *server)
{
    int process = server_number(server);
    step("p%d is killed", process);
    run.result->kills++;
    timer_drop(&server->back);
    process_kill(process);
    fake_store_process_died(process);
    server->engine = NULL;
    server->stopping = server->paused = false;
    list_for_each (node, next, &server->calls) {
        struct call *call = LIST_ENTRY(node, struct call, node);
        oracle_forgotten(call);
        call_free(call);
    }
    timer_set(&server->back, sim_now() + dice_between(0, 2 * US_PER_SECOND));
}

static void *stop_body(void *context)
{
    struct server *server = context;
    engine_stop(server->engine);
    engine_free(server->engine);
    if (!list_empty(&server->calls))
        violation("P13", "an operation is not decided when its permitd has stopped");
    step("p%d has stopped", server_number(server));
    server->engine = NULL;
    server->stopping = false;
    timer_set(&server->back, sim_now() + dice_between(0, US_PER_SECOND));
    return NULL;
}

static void stop_server(struct server *server)
{
    step("p%d is told to stop", server_number(server));
    run.result->stops++;
    server->stopping = true;
    process_spawn(server_number(server), stop_body, server);
}

static void pause_server(struct server *server)
{
    int64_t us = dice_once_in(6) ? dice_between(US_PER_SECOND, 8 * US_PER_SECOND) : dice_between(50000, US_PER_SECOND);
    step("p%d is paused for %lld ms", server_number(server), (long long)us / US_PER_MS);
    run.result->pauses++;
    server->paused = true;
    server->paused_at = sim_now();
    process_pause(server_number(server));
    if (us > 5 * US_PER_SECOND)
        fake_store_time_out(server_number(server), 5 * US_PER_SECOND);
    timer_set(&server->back, sim_now() + us);
}

/* --- trouble ----------------------------------------------------------------------------------------------------- */

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
    timer_set(&run.database_back, sim_now() + dice_between(1000, 3 * US_PER_SECOND));
}

static void fail_over(int64_t tail_us)
{
    tail_us = min_i64(tail_us, sim_now() - SERVED_SINCE_US);
    step("failover to a copy that is %lld ms behind", (long long)tail_us / US_PER_MS);
    oracle_clock_jumps();
    database_fail_over(tail_us, any_skew());
}

/* The copy that takes over from the one that has just taken over has seen neither; perhaps no permitd has, either. */
static void fail_over_again(struct timer *timer)
{
    (void)timer;
    if (run.quiet || database.down)
        return;
    for (int i = 0; i < profile.engines && run.forgetful; i++)
        if (run.servers[i].engine && !run.servers[i].stopping)
            kill_server(&run.servers[i]);
    fail_over(min_i64(TAIL_MAX_US, sim_now() - run.failed_over_at + dice_between(0, US_PER_SECOND)));
}

static void fail_over_perhaps_twice(void)
{
    run.failed_over_at = sim_now();
    run.forgetful = dice_once_in(2);
    fail_over(dice_once_in(4) ? dice_between(0, TAIL_MAX_US) : dice_between(0, 1500000));
    if (dice_once_in(2))
        timer_set(&run.second_failover, sim_now() + profile.hold_ms * US_PER_MS + dice_between(0, 2 * US_PER_SECOND));
}

static void step_clock(void)
{
    int64_t by = dice_once_in(2) ? dice_between(-3600LL * US_PER_SECOND, 3600LL * US_PER_SECOND)
                                 : dice_between(-10 * US_PER_SECOND, 10 * US_PER_SECOND);
    step("the database's clock is stepped by %lld ms", (long long)by / US_PER_MS);
    run.result->steps_of_clock++;
    oracle_clock_jumps();
    database.skew_us += by;
}

static void administer_one(void)
{
    static const enum operation_kind kinds[] = {OP_SEMAPHORE_PUT,    OP_SEMAPHORE_PUT,    OP_SEMAPHORE_PAUSE,
                                                OP_SEMAPHORE_RESUME, OP_SEMAPHORE_RESUME, OP_SEMAPHORE_RESUME};
    int process = any_server();
    if (process < 0)
        return;
    const struct db_semaphore *semaphore = &database.semaphores[dice_between(0, (int64_t)database.semaphore_count - 1)];
    struct call *call = call_new(process, NULL, kinds[dice_between(0, ARRAY_LENGTH(kinds) - 1)]);
    call->operation.semaphore = semaphore->row.semaphore.name;
    call->operation.why = BYTES("paused");
    if (call->operation.kind == OP_SEMAPHORE_PUT)
        call->change = (struct semaphore_change){.has_capacity = true, .capacity = dice_between(0, 8)};
    (void)send(call, 0);
}

/* One thing that goes wrong, and when the next one does. */
static void make_trouble(struct timer *timer)
{
    (void)timer;
    if (run.quiet)
        return;
    struct server *server = &run.servers[dice_between(0, profile.engines - 1)];
    bool can = server->engine && !server->stopping && !server->paused;
    last_trouble_at = sim_now();
    switch (dice_between(0, 9)) {
    case 0:
    case 1:
        if (server->engine)
            kill_server(server);
        break;
    case 2:
        if (can)
            stop_server(server);
        break;
    case 3:
        if (can)
            pause_server(server);
        break;
    case 4:
        if (!database.down)
            crash_database();
        break;
    case 5:
        if (!database.down && profile.failovers && sim_now() > SERVED_SINCE_US)
            fail_over_perhaps_twice();
        break;
    case 6:
        if (profile.clock_steps)
            step_clock();
        break;
    case 7:
        run.result->cuts++;
        fake_store_cut(server_number(server));
        break;
    default:
        if (profile.capacity_changes)
            administer_one();
    }
    timer_set(&run.trouble, sim_now() + dice_between(0, dice_once_in(4) ? 50000 : 1500000));
}

struct provocation {
    struct timer timer;
    struct story *story;
    enum operation_kind kind;
};

static void ask_again(struct timer *timer)
{
    struct provocation *provocation = CONTAINER_OF(timer, struct provocation, timer);
    int process = any_server();
    if (process >= 0 && !run.quiet)
        (void)send(call_new(process, provocation->story, provocation->kind), 0);
    free(provocation);
}

static void crash_now(struct timer *timer)
{
    if (!database.down && !run.quiet)
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

/* --- P17: who waits and fits ------------------------------------------------------------------------------------- */

/* Nobody stands before it, as its permitd says. */
static bool is_first(const struct call *call)
{
    static struct arena arena = {.chunk_size = 16384, .limit = (size_t)1 << 30};
    struct waiter_row row;
    struct waiter_place *places;
    bool first = true;
    arena_clear(&arena);
    if (engine_find_waiter(run.servers[call->process].engine, call->story->key->external_id, &arena, &row, &places) !=
        PERMIT_OK)
        return false;
    for (size_t i = 0; i < row.want_count; i++)
        first &= places[i].ahead == 0;
    return first;
}

static bool is_servable(const struct call *call)
{
    if (call->operation.kind != OP_ACQUIRE || call->wait_until < sim_now() || call->other_payload ||
        call->story->key->row.exists)
        return false;
    for (size_t i = 0; i < call->story->want_count; i++) {
        const struct semaphore *row = &database_semaphore(call->story->wants[i].semaphore_id)->row.semaphore;
        if (row->paused_reason.data || row->capacity - row->in_use < call->story->wants[i].count)
            return false;
    }
    return is_first(call);
}

static void watch_waiters(struct timer *timer)
{
    (void)timer;
    for (int i = 0; i < profile.engines; i++)
        list_for_each (node, next, &run.servers[i].calls) {
            struct call *call = LIST_ENTRY(node, struct call, node);
            if (!is_servable(call)) {
                call->servable_since = 0;
                continue;
            }
            if (!call->servable_since)
                call->servable_since = sim_now();
            mono_us since = sim_now() - call->servable_since;
            counts.longest_servable = max_i64(counts.longest_servable, since);
            if (since > SERVED_WITHIN_US)
                for (size_t k = 0; k < call->story->want_count; k++)
                    run_dump(i, call->story->wants[k].semaphore);
            if (since > SERVED_WITHIN_US)
                violation("P17", "#%llu (%s) waits and fits since %lld ms", (unsigned long long)call->number,
                          call->story->key->text, (long long)since / US_PER_MS);
        }
    timer_set(&run.watch, sim_now() + WATCH_US);
}

/* --- the end ----------------------------------------------------------------------------------------------------- */

static size_t calls_left(void)
{
    size_t count = 0;
    for (int i = 0; i < profile.engines; i++)
        list_for_each (node, next, &run.servers[i].calls)
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

static void end_trouble(void)
{
    faults = (struct fault_rates){0};
    timer_drop(&run.trouble);
    timer_drop(&run.database_back);
    timer_drop(&run.second_failover);
    database_start();
    for (int i = 0; i < profile.engines; i++) {
        struct server *server = &run.servers[i];
        while (server->stopping)
            fiber_sleep(10000);
        if (server->back.node.place) {
            timer_drop(&server->back);
            server_back(&server->back);
        }
    }
    last_trouble_at = sim_now();
}

static void send_to_all_semaphores(enum operation_kind kind)
{
    for (size_t i = 0; i < database.semaphore_count; i++) {
        struct call *call = call_new(0, NULL, kind);
        call->operation.semaphore = database.semaphores[i].row.semaphore.name;
        call->change = (struct semaphore_change){.has_capacity = true, .capacity = 4};
        (void)send(call, 0);
    }
}

static void release_confirmed(void)
{
    for (size_t i = database.held_count; i-- > 0;)
        if (database.held[i]->row.request.due_at == NEVER) {
            struct call *call = call_new(0, database.held[i]->story, OP_RELEASE);
            call->operation.of_confirmed = true;
            (void)send(call, 0);
        }
}

/* C6: after ttl, grace and 5 s nothing is held that nobody holds, and full capacity can be acquired. */
static void check_quiet(void)
{
    fiber_sleep((TTL_MAX_MS + GRACE_MAX_MS) * US_PER_MS + 5 * US_PER_SECOND);
    if (database.held_count)
        violation("P7", "%zu requests are held that nobody has renewed, one of them %s", database.held_count,
                  database.held[0]->text);
    for (size_t i = 0; i < database.semaphore_count; i++)
        for (int64_t unit = 0; unit < database.semaphores[i].row.semaphore.capacity; unit++) {
            struct story *story = new_story();
            const struct semaphore *row = &database.semaphores[i].row.semaphore;
            story->wants[0] = (struct want){.semaphore = row->name, .semaphore_id = row->id, .count = 1};
            story->want_count = 1;
            (void)send(call_new((int)(unit % profile.engines), story, OP_ACQUIRE), 0);
        }
    wait_for_calls();
    for (size_t i = 0; i < database.semaphore_count; i++) {
        const struct semaphore *row = &database.semaphores[i].row.semaphore;
        if (row->in_use != row->capacity)
            violation("P7", "%lld of %lld units of %.*s can be acquired when nobody holds any", (long long)row->in_use,
                      (long long)row->capacity, (int)row->name.length, row->name.data);
    }
}

static void *direct(void *context)
{
    (void)context;
    uint64_t before = 0;
    mono_us progress_at = sim_now();
    while (run.result->operations < run.wanted) {
        fiber_sleep(5000);
        if (run.result->operations != before)
            progress_at = sim_now();
        before = run.result->operations;
        if (sim_now() - progress_at > 60 * US_PER_SECOND)
            violation("P13", "nothing is answered any more");
    }
    run.quiet = true;
    end_trouble();
    if (profile.failovers)
        fiber_sleep(profile.hold_ms * US_PER_MS + US_PER_SECOND);
    wait_for_calls();
    if (profile.capacity_changes) {
        send_to_all_semaphores(OP_SEMAPHORE_RESUME);
        send_to_all_semaphores(OP_SEMAPHORE_PUT);
        wait_for_calls();
    }
    release_confirmed();
    wait_for_calls();
    check_quiet();
    if (database.deadlocks > 2 + database.commits / DEADLOCK_ONCE_IN)
        violation("P13", "%llu deadlocks in %llu commits: locks are not taken in one order",
                  (unsigned long long)database.deadlocks, (unsigned long long)database.commits);
    scheduler_stop();
    return NULL;
}

/* --- the beginning ----------------------------------------------------------------------------------------------- */

static void choose_profile(void)
{
    profile = (struct profile){
        .calm = dice_once_in(4),
        .engines = (int)dice_between(1, 3),
    };
    profile.sleepy = profile.calm && dice_once_in(3);
    profile.hold_ms = dice_once_in(2) ? 5000 : dice_between(200, 2000);
    run.client_count = (int)dice_between(4, profile.sleepy ? 10 : CLIENTS_MAX);
    run.story_count = (int)dice_between(8, STORIES_MAX);
    if (profile.calm)
        return;
    profile.capacity_changes = dice_once_in(3);
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
    size_t count = (size_t)dice_between(2, 6);
    for (size_t i = 0; i < count; i++) {
        char name[8];
        snprintf(name, sizeof name, "s%zu", i + 1);
        const struct semaphore like = {
            .kind = dice_once_in(3) ? KIND_COUNTED : KIND_SLOTTED,
            .queue = dice_once_in(2) ? QUEUE_FIFO : QUEUE_BACKFILL,
            .capacity = dice_between(1, 8),
            .default_ttl_ms = 1000,
            .max_ttl_ms = -1,
            .grace_ms = dice_between(0, GRACE_MAX_MS),
            .max_hold_ms = DEFAULT_MAX_HOLD_MS,
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
    for (int i = 0; i < profile.engines; i++) {
        list_init(&run.servers[i].calls);
        run.servers[i].back.fire = server_back;
        start_server(i);
    }
    for (int i = 0; i < run.story_count; i++)
        run.stories[i] = new_story();
    for (int i = 0; i < run.client_count; i++) {
        run.clients[i].timer.fire = act;
        timer_set(&run.clients[i].timer, dice_between(0, 20000));
    }
    run.trouble.fire = make_trouble;
    run.watch.fire = watch_waiters;
    run.database_back.fire = database_up;
    run.second_failover.fire = fail_over_again;
    if (profile.calm)
        timer_set(&run.watch, 0);
    else
        timer_set(&run.trouble, dice_between(0, US_PER_SECOND));
    process_spawn(DIRECTOR, direct, NULL);
}

static void collect(void)
{
    struct result *result = run.result;
    result->at_operation = result->operations;
    result->waits = counts.waited;
    result->served_after_wait = counts.served_after_wait;
    result->abandoned = counts.abandoned;
    result->grants = counts.told[OP_ACQUIRE][PERMIT_OK];
    result->refusals = counts.told[OP_ACQUIRE][PERMIT_NO_CAPACITY];
    result->commits = database.commits;
    result->crashes = database.crashes;
    result->deadlocks = database.deadlocks;
    result->duplicates = database.duplicates;
    result->failovers = database.failovers;
    result->faults = fault_counts.lost + fault_counts.lock_timeouts + fault_counts.conflicts + fault_counts.refused;
    result->switches = scheduler_switches();
    result->simulated = sim_now();
    result->longest_servable = counts.longest_servable;
}

void run_violated(const char *promise, const char *text)
{
    collect();
    snprintf(run.result->promise, sizeof run.result->promise, "%s", promise);
    snprintf(run.result->text, sizeof run.result->text, "%s", text);
    run.result->violated = true;
    fflush(stdout);
    _exit(1);
}

void run_seed(uint64_t seed, uint64_t operations, struct result *result)
{
    dice_state = seed * 0x9e3779b97f4a7c15 + 1;
    run.result = result;
    run.wanted = operations;
    begin();
    scheduler_run();
    collect();
}
