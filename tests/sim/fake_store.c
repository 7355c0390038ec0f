/* SPDX-License-Identifier: MIT */
#include "fake_store.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/plant.h"
#include "database.h"
#include "dice.h"
#include "oracle.h"
#include "run.h"

struct fault_rates faults;
struct fault_counts fault_counts;
unsigned char *fault_ways;

/* Milliseconds from here are the epoch, as in src/store/epoch.c. */
#define EPOCH_ORIGIN_US (1767225600LL * US_PER_SECOND)

enum {
    CALL_US_MIN = 30,
    CALL_US_MAX = 250, /* of a call: both ways and its work */
    COMMIT_US_MAX = 60,
    FLUSH_US_MAX = 400,
    CONNECT_US = 1000,
    SLOW_US_MAX = 400 * 1000,
    LATE_US_MAX = 6000,
    NOTICED_US_MAX = 60 * 1000, /* until the server notices that a client has gone, as a rule */
    NOTICED_LATE_US = 5 * US_PER_SECOND,
};

struct fake_store {
    struct store store;
    struct list node; /* of all */
    int process;
    bool connected;
    uint64_t start; /* database.start when it connected */
    struct transaction *transaction;
    struct zombie *left; /* of the connection before, if the server may still have it */
    uint64_t call;       /* the number of its last one */
};

/* A transaction whose session is gone. */
struct zombie {
    struct timer timer;
    struct transaction *transaction;
    bool commits;
    struct fake_store *store; /* that may kill it; NULL: nobody will */
    struct arena arena;       /* what it writes */
};

static struct list stores = {&stores, &stores};

static struct fake_store *fake_of(struct store *store)
{
    return CONTAINER_OF(store, struct fake_store, store);
}

static enum permit_status report(struct fake_store *fake, enum permit_status status, const char *message)
{
    snprintf(fake->store.message, sizeof fake->store.message, "%s", message);
    return status;
}

/* --- what a lost connection leaves ------------------------------------------------------------------------------- */

static void end_zombie(struct timer *timer)
{
    struct zombie *zombie = CONTAINER_OF(timer, struct zombie, timer);
    struct transaction *transaction = zombie->transaction;
    bool open = transaction->state == TRANSACTION_OPEN;
    if (open && zombie->commits) {
        step("zombie %llu commits", (unsigned long long)transaction->number);
        fault_counts.zombies_committed++;
        transaction_commit(transaction);
        database_flushed(transaction->lsn);
    } else if (open) {
        step("zombie %llu ends", (unsigned long long)transaction->number);
        fault_counts.zombies_ended++;
        transaction_rollback(transaction);
    }
    if (zombie->store)
        zombie->store->left = NULL;
    transaction_free(transaction);
    arena_release(&zombie->arena);
    free(zombie);
}

static int64_t noticed_after(void)
{
    return dice_once_in(20) ? dice_between(0, NOTICED_LATE_US) : dice_between(0, NOTICED_US_MAX);
}

/* Copies of what outlives whoever asked. */
static struct changes *copy_changes(const struct changes *changes, struct arena *arena)
{
    struct changes *copy = arena_alloc(arena, sizeof *copy);
    *copy = *changes;
    copy->semaphores = arena_array(arena, changes->semaphore_count, sizeof *copy->semaphores);
    copy->requests = arena_array(arena, changes->request_count, sizeof *copy->requests);
    copy->slots = arena_array(arena, changes->slot_count, sizeof *copy->slots);
    for (size_t i = 0; i < changes->semaphore_count; i++) {
        copy->semaphores[i] = changes->semaphores[i];
        copy->semaphores[i].semaphore = arena_alloc(arena, sizeof(struct semaphore));
        *copy->semaphores[i].semaphore = *changes->semaphores[i].semaphore;
    }
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request_change *from = &changes->requests[i];
        struct request *request = arena_alloc(arena, sizeof *request);
        struct request *before = arena_alloc(arena, sizeof *before);
        *request = *from->request;
        request->external_id = arena_copy(arena, from->request->external_id);
        request->permits = arena_array(arena, request->permit_count, sizeof *request->permits);
        for (size_t j = 0; j < request->permit_count; j++) {
            struct permit *permit = &request->permits[j];
            *permit = from->request->permits[j];
            permit->slots.numbers = arena_array(arena, permit->slots.count, sizeof *permit->slots.numbers);
            for (uint32_t k = 0; k < permit->slots.count; k++)
                permit->slots.numbers[k] = from->request->permits[j].slots.numbers[k];
        }
        if (from->before)
            *before = *from->before; /* of its numbers and states only */
        copy->requests[i] = *from;
        copy->requests[i].request = request;
        copy->requests[i].before = from->before ? before : NULL;
    }
    if (changes->slot_count)
        memcpy(copy->slots, changes->slots, changes->slot_count * sizeof *copy->slots);
    return copy;
}

/* The session is gone; its transaction, if there is one, is not yet. `commits`: its COMMIT is on its way. */
static void break_off(struct fake_store *fake, bool commits)
{
    struct transaction *transaction = fake->transaction;
    fake->connected = false;
    fake->transaction = NULL;
    if (!transaction)
        return;
    if (transaction->state == TRANSACTION_ENDED) {
        transaction_free(transaction);
        return;
    }
    struct zombie *zombie = calloc(1, sizeof *zombie);
    *zombie = (struct zombie){.timer.fire = end_zombie, .transaction = transaction, .commits = commits, .store = fake};
    arena_init(&zombie->arena, 4096, (size_t)1 << 30);
    if (fake->left)
        fake->left->store = NULL;
    transaction->waits_for = NULL;
    if (commits)
        transaction->changes = copy_changes(transaction->changes, &zombie->arena);
    fake->left = zombie;
    step("session of %llu is lost%s", (unsigned long long)transaction->number, commits ? ", its COMMIT is not" : "");
    timer_set(&zombie->timer, sim_now() + noticed_after());
}

/* KILL of what the connection before has left: it ends soon, either way. */
static void kill_left(struct fake_store *fake)
{
    if (!fake->left)
        return;
    timer_set(&fake->left->timer, sim_now() + dice_between(0, 2000));
    fake->left->store = NULL;
    fake->left = NULL;
}

static enum permit_status lose(struct fake_store *fake, bool commits)
{
    fault_counts.lost++;
    break_off(fake, commits);
    return report(fake, PERMIT_DATABASE_LOST, "lost connection");
}

void fake_store_process_died(int process)
{
    list_for_each (node, next, &stores) {
        struct fake_store *fake = LIST_ENTRY(node, struct fake_store, node);
        if (fake->process != process)
            continue;
        struct transaction *transaction = fake->transaction;
        bool sent = transaction && transaction->state == TRANSACTION_OPEN && transaction->changes &&
                    !transaction->waits_for && dice_once_in(2);
        break_off(fake, sent);
        if (fake->left)
            fake->left->store = NULL;
        list_remove(&fake->node);
    }
}

void fake_store_cut(int process)
{
    list_for_each (node, next, &stores) {
        struct fake_store *fake = LIST_ENTRY(node, struct fake_store, node);
        if (fake->process == process && fake->connected)
            fake->start = 0; /* which it finds out with its next word */
    }
}

struct idle {
    struct timer timer;
    int process;
};

/* idle_transaction_timeout. */
static void end_idle(struct timer *timer)
{
    struct idle *idle = CONTAINER_OF(timer, struct idle, timer);
    list_for_each (node, next, &stores) {
        struct fake_store *fake = LIST_ENTRY(node, struct fake_store, node);
        if (fake->process != idle->process || !fake->transaction || fake->transaction->waits_for)
            continue;
        transaction_rollback(fake->transaction);
        fake->start = 0;
    }
    free(idle);
}

void fake_store_time_out(int process, int64_t after_us)
{
    struct idle *idle = calloc(1, sizeof *idle);
    idle->process = process;
    idle->timer.fire = end_idle;
    timer_set(&idle->timer, sim_now() + after_us);
}

/* --- a call ------------------------------------------------------------------------------------------------------ */

static bool server_has(const struct fake_store *fake)
{
    return fake->connected && !database.down && fake->start == database.start;
}

/* By the dice, or because it is the one that is to fail. */
static bool fails(const struct fake_store *fake, enum fault_kind kind, unsigned once_in)
{
    if (fake->call < CALLS_MAX)
        fault_ways[fake->call] |= (unsigned char)(1 << kind);
    bool chosen = faults.only_call == fake->call && faults.only_kind == kind;
    fault_counts.struck += chosen;
    return chosen || dice_once_in(once_in);
}

/* On its way to the server. */
static enum permit_status enter(struct fake_store *fake)
{
    fake->call = ++fault_counts.calls;
    if (!fake->connected)
        return report(fake, PERMIT_DATABASE_LOST, "not connected");
    fiber_sleep(dice_once_in(faults.slow) ? dice_between(0, SLOW_US_MAX) : dice_between(CALL_US_MIN, CALL_US_MAX));
    if (!server_has(fake) || fails(fake, FAULT_BEFORE, faults.lost_before))
        return lose(fake, false);
    return PERMIT_OK;
}

/* Its answer. */
static enum permit_status leave(struct fake_store *fake)
{
    if (!server_has(fake) || fails(fake, FAULT_AFTER, faults.lost_after))
        return lose(fake, false);
    return PERMIT_OK;
}

static enum permit_status reconnect(struct store *store)
{
    struct fake_store *fake = fake_of(store);
    if (fake->connected)
        return PERMIT_OK;
    fiber_sleep(dice_between(CONNECT_US / 2, CONNECT_US));
    if (database.down || dice_once_in(faults.unavailable)) {
        fault_counts.refused++;
        return report(fake, PERMIT_DATABASE_UNAVAILABLE, "connection refused");
    }
    kill_left(fake);
    fake->connected = true;
    fake->start = database.start;
    return PERMIT_OK;
}

static void disconnect(struct store *store)
{
    break_off(fake_of(store), false);
}

/* M7: what was not rolled back. */
static struct arena forgotten = {.chunk_size = 4096, .limit = (size_t)1 << 30};

static enum permit_status rollback(struct store *store)
{
    struct fake_store *fake = fake_of(store);
    if (!fake->connected)
        return PERMIT_OK;
    if (PLANTED(7) && fake->transaction && fake->transaction->changes) {
        fake->transaction->changes = copy_changes(fake->transaction->changes, &forgotten);
        return PERMIT_OK;
    }
    enum permit_status status = enter(fake);
    if (status != PERMIT_OK)
        return PERMIT_DATABASE_LOST;
    transaction_free(fake->transaction);
    fake->transaction = NULL;
    return leave(fake);
}

static enum permit_status examine(struct store *store)
{
    enum permit_status status = enter(fake_of(store));
    return status == PERMIT_OK ? leave(fake_of(store)) : status;
}

static enum permit_status ping(struct store *store)
{
    return examine(store);
}

static void fake_store_free(struct store *store)
{
    struct fake_store *fake = fake_of(store);
    break_off(fake, false);
    if (fake->left)
        fake->left->store = NULL;
    list_remove(&fake->node);
    free(fake);
}

/* --- step 0 ------------------------------------------------------------------------------------------------------ */

static uint64_t floor_of(const struct db_semaphore *semaphore)
{
    uint64_t lowest = semaphore->row.semaphore.next_permit_id;
    for (size_t i = 0; i < database.held_count; i++) {
        const struct request *request = &database.held[i]->row.request;
        for (size_t j = 0; j < request->permit_count; j++)
            if (request->permits[j].semaphore_id == semaphore->row.semaphore.id && request->permits[j].token < lowest)
                lowest = request->permits[j].token;
    }
    return lowest;
}

static void resolve_key(struct resolve_key *key, struct arena *arena)
{
    const struct request_row *row = &database_key(key->external_id)->row;
    if (!row->exists)
        return;
    uint64_t *ids = arena_array(arena, row->request.permit_count, sizeof *ids);
    for (size_t i = 0; i < row->request.permit_count; i++)
        ids[i] = row->request.permits[i].semaphore_id;
    qsort(ids, row->request.permit_count, sizeof *ids, compare_u64);
    key->ret_semaphore_ids = ids;
    key->ret_count = row->request.permit_count;
}

static enum permit_status resolve(struct store *store, struct resolve *what, struct arena *arena)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = enter(fake);
    if (status != PERMIT_OK)
        return status;
    for (size_t i = 0; i < what->name_count; i++) {
        const struct db_semaphore *semaphore = database_semaphore_named(what->names[i].name);
        if (!semaphore)
            continue;
        what->names[i].ret_id = semaphore->row.semaphore.id;
        what->names[i].ret_kind = semaphore->row.semaphore.kind;
        what->names[i].ret_floor = floor_of(semaphore);
    }
    for (size_t i = 0; i < what->key_count; i++)
        resolve_key(&what->keys[i], arena);
    return leave(fake);
}

/* --- step 1 ------------------------------------------------------------------------------------------------------ */

static int compare_keys(const void *a, const void *b)
{
    return bytes_compare(((const struct request *)a)->external_id, ((const struct request *)b)->external_id);
}

static void copy_request(const struct request_row *row, struct arena *arena, struct request *ret_request)
{
    *ret_request = row->request;
    ret_request->permits = arena_array(arena, row->request.permit_count, sizeof *ret_request->permits);
    for (size_t i = 0; i < row->request.permit_count; i++) {
        ret_request->permits[i] = row->permits[i];
        uint32_t *numbers = arena_array(arena, row->permits[i].slots.count, sizeof *numbers);
        memcpy(numbers, row->numbers[i], row->permits[i].slots.count * sizeof *numbers);
        ret_request->permits[i].slots.numbers = numbers;
    }
}

static void read_keys(const struct lock_set *set, struct arena *arena, struct view *view)
{
    view->requests = arena_array(arena, set->key_count, sizeof *view->requests);
    for (size_t i = 0; i < set->key_count; i++) {
        bool there = false; /* the contract says each once; twice is harmless to the SQL, too */
        for (size_t j = 0; j < view->request_count && !there; j++)
            there = bytes_equal(view->requests[j].external_id, set->keys[i]);
        const struct request_row *row = &database_key(set->keys[i])->row;
        if (row->exists && !there)
            copy_request(row, arena, &view->requests[view->request_count++]);
    }
    if (view->request_count > 1)
        qsort(view->requests, view->request_count, sizeof *view->requests, compare_keys);
}

static void read_slots(const struct semaphore_row *row, int64_t wanted, struct arena *arena, struct free_slots *ret)
{
    ret->numbers = arena_array(arena, SLOTS_MAX, sizeof *ret->numbers);
    for (uint32_t number = row->semaphore.first_free; number <= row->in_service && (int64_t)ret->count < wanted;
         number++)
        if (number > 0 && row->slots[number] == 0)
            ret->numbers[ret->count++] = number;
    ret->complete = (int64_t)ret->count < wanted;
}

static void read_semaphore(const struct db_semaphore *semaphore, int64_t wanted, struct arena *arena, struct view *view)
{
    size_t at = view->semaphore_count++;
    view->semaphores[at] = semaphore->row.semaphore;
    view->next_due[at] = semaphore->row.semaphore.next_due_at;
    if (wanted > 0)
        read_slots(&semaphore->row, wanted, arena, &view->free_slots[at]);
}

static void read_clock(struct view *view)
{
    view->now = database_now();
    view->clock = database.globals.clock;
    view->epoch = database.globals.epoch;
    view->grants_from = database.globals.grants_from;
    view->same_server = database.globals.identity == database.server;
}

/* M18: what is due is locked before its semaphores. */
static enum permit_status lock_due_first(struct fake_store *fake, const struct lock_set *set)
{
    enum permit_status status = PERMIT_OK;
    for (size_t i = 0; i < set->key_count && status == PERMIT_OK; i++) {
        struct db_key *key = database_key(set->keys[i]);
        if (row_is_held(&key->row) && key->row.request.due_at <= served_time(&database.globals.clock, database_now()))
            status = transaction_lock_key(fake->transaction, key);
    }
    return status;
}

static enum permit_status lock_all(struct fake_store *fake, const struct lock_set *set)
{
    struct db_semaphore *named = set->semaphore_name.data ? database_semaphore_named(set->semaphore_name) : NULL;
    if (named)
        return transaction_lock_semaphore(fake->transaction, named);
    enum permit_status status = PLANTED(18) ? lock_due_first(fake, set) : PERMIT_OK;
    for (size_t i = 0; i < set->semaphore_count && status == PERMIT_OK; i++) {
        struct db_semaphore *semaphore = database_semaphore(set->semaphore_ids[i]);
        if (semaphore && !PLANTED(1))
            status = transaction_lock_semaphore(fake->transaction, semaphore);
    }
    return status;
}

static void read_view(const struct lock_set *set, struct arena *arena, struct view *view)
{
    size_t room = set->semaphore_count + 1;
    view->semaphores = arena_array(arena, room, sizeof *view->semaphores);
    view->free_slots = arena_array(arena, room, sizeof *view->free_slots);
    view->next_due = arena_array(arena, room, sizeof *view->next_due);
    struct db_semaphore *named = set->semaphore_name.data ? database_semaphore_named(set->semaphore_name) : NULL;
    if (named)
        read_semaphore(named, 0, arena, view);
    for (size_t i = 0; i < set->semaphore_count; i++)
        if (database_semaphore(set->semaphore_ids[i]))
            read_semaphore(database_semaphore(set->semaphore_ids[i]), set->slots_wanted[i], arena, view);
}

/* An error of the server, by the dice. */
static enum permit_status strike(struct fake_store *fake)
{
    if (fails(fake, FAULT_LOCK_TIMEOUT, faults.lock_timeout)) {
        fault_counts.lock_timeouts++;
        return report(fake, PERMIT_LOCK_TIMEOUT, "1205");
    }
    if (fails(fake, FAULT_CONFLICT, faults.conflict)) {
        fault_counts.conflicts++;
        transaction_rollback(fake->transaction); /* by the server */
        return report(fake, PERMIT_CONFLICT, "1213");
    }
    return PERMIT_OK;
}

/* BEGIN ends what is open by a COMMIT. */
static void begin(struct fake_store *fake)
{
    struct transaction *open = fake->transaction;
    if (PLANTED(7) && open && open->state == TRANSACTION_OPEN &&
        open->changes) { /* the first of its statements had run */
        struct changes part = *open->changes;
        part.request_count = part.slot_count = 0;
        open->changes = &part;
        transaction_commit(open);
        database_flushed(open->lsn);
    }
    transaction_free(open);
    fake->transaction = transaction_begin();
}

static enum permit_status lock(struct store *store, const struct lock_set *set, struct arena *arena,
                               struct view *ret_view)
{
    struct fake_store *fake = fake_of(store);
    struct view view = {0};
    enum permit_status status = enter(fake);
    if (status != PERMIT_OK)
        return status;
    begin(fake);
    struct free_slots *slots = NULL;
    if (PLANTED(2)) {
        read_view(set, arena, &view);
        slots = view.free_slots;
        view = (struct view){0};
    }
    if (PLANTED(2) || PLANTED(3))
        read_keys(set, arena, &view);
    status = lock_all(fake, set);
    if (status == PERMIT_DATABASE_LOST)
        return lose(fake, false);
    if (status == PERMIT_CONFLICT)
        transaction_rollback(fake->transaction);
    if (status == PERMIT_OK)
        status = strike(fake);
    if (status != PERMIT_OK)
        return report(fake, status, "locks");
    read_view(set, arena, &view);
    if (slots)
        view.free_slots = slots;
    if (!PLANTED(2) && !PLANTED(3))
        read_keys(set, arena, &view);
    read_clock(&view);
    fake->transaction->read_at = sim_now();
    fake->transaction->jumps = oracle_jumps_over();
    status = leave(fake);
    if (status == PERMIT_OK)
        *ret_view = view;
    return status;
}

static int compare_due(const void *a, const void *b)
{
    const struct request *left = &(*(struct db_key *const *)a)->row.request;
    const struct request *right = &(*(struct db_key *const *)b)->row.request;
    int order = (left->due_at > right->due_at) - (left->due_at < right->due_at);
    return order ? order : compare_u64(&left->id, &right->id);
}

static bool row_has(const struct request *request, uint64_t semaphore_id)
{
    for (size_t i = 0; i < request->permit_count; i++)
        if (request->permits[i].semaphore_id == semaphore_id)
            return true;
    return false;
}

/* Held requests with a deadline, in order of it; of one semaphore, or all. */
static size_t sort_due(uint64_t semaphore_id, struct arena *arena, struct db_key ***ret_keys)
{
    size_t count = 0;
    struct db_key **keys = arena_array(arena, database.held_count, sizeof *keys);
    for (size_t i = 0; i < database.held_count; i++) {
        const struct request *request = &database.held[i]->row.request;
        if (request->due_at != NEVER && (semaphore_id == 0 || row_has(request, semaphore_id)))
            keys[count++] = database.held[i];
    }
    qsort(keys, count, sizeof(struct db_key *), compare_due);
    *ret_keys = keys;
    return count;
}

static bool in_view(const struct view *view, size_t count, struct bytes external_id)
{
    for (size_t i = 0; i < count; i++)
        if (bytes_equal(view->requests[i].external_id, external_id))
            return true;
    return false;
}

/* As batch_due.c while there are few holders: all deadlines of the semaphore, as many as are needed and one more. */
static enum permit_status read_due(struct store *store, const struct shortfall *shortfalls, size_t count,
                                   struct arena *arena, struct view *view)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = enter(fake);
    if (status != PERMIT_OK)
        return status;
    utc_us now = served_time(&view->clock, view->now);
    struct request *all = arena_array(arena, view->request_count + database.held_count, sizeof *all);
    if (view->request_count)
        memcpy(all, view->requests, view->request_count * sizeof *all);
    view->requests = all;
    for (size_t i = 0; i < count; i++) {
        struct db_key **keys;
        utc_us bound = NEVER;
        int64_t room = min_i64(shortfalls[i].units, SLOTS_MAX_COUNT);
        size_t due = sort_due(view->semaphores[shortfalls[i].semaphore].id, arena, &keys);
        for (size_t j = 0; j < due && bound == NEVER; j++) {
            const struct request_row *row = &keys[j]->row;
            if (row->request.due_at > now || room-- <= 0)
                bound = row->request.due_at;
            else if (!in_view(view, view->request_count, row->request.external_id))
                copy_request(row, arena, &view->requests[view->request_count++]);
        }
        view->next_due[shortfalls[i].semaphore] = bound;
    }
    if (view->request_count > 1)
        qsort(view->requests, view->request_count, sizeof *view->requests, compare_keys);
    return leave(fake);
}

/* --- step 3 ------------------------------------------------------------------------------------------------------ */

/* COMMIT, on its way: visible first, and then durable. */
static int64_t flush_us(void)
{
    return dice_once_in(faults.slow) ? dice_between(0, SLOW_US_MAX) : dice_between(0, FLUSH_US_MAX);
}

static enum permit_status commit(struct fake_store *fake)
{
    struct transaction *transaction = fake->transaction;
    const struct changes *changes = transaction->changes;
    int64_t us = flush_us();
    bool lost = fails(fake, FAULT_COMMIT_DONE, faults.commit_lost);
    transaction_commit(transaction);
    uint64_t lsn = transaction->lsn;
    if (dice_once_in(faults.late_flush)) {
        us = dice_between(1000, LATE_US_MAX);
        run_not_flushed_yet(changes, us);
    }
    fiber_sleep(us);
    if (fake->start == database.start && !database.down && !PLANTED(12))
        database_flushed(lsn);
    if (PLANTED(12) && server_has(fake))
        database_flushed(lsn > 2000 ? lsn - 2000 : 0);
    if (lost || !server_has(fake)) {
        fault_counts.commits_lost += lost;
        return lose(fake, false);
    }
    transaction_free(transaction);
    fake->transaction = NULL;
    return leave(fake);
}

/* M5: what is ended is written in a transaction of its own, after the units have been given back. */
static void commit_in_two(struct fake_store *fake, const struct changes *changes)
{
    struct changes part = *changes;
    part.request_count = part.slot_count = 0;
    fake->transaction->changes = &part;
    transaction_commit(fake->transaction);
    database_flushed(fake->transaction->lsn);
    begin(fake);
    part = *changes;
    part.semaphore_count = 0;
    fake->transaction->changes = changes;
}

static bool ends_something(const struct changes *changes)
{
    for (size_t i = 0; i < changes->request_count; i++)
        if (changes->requests[i].ends)
            return true;
    return false;
}

static enum permit_status apply(struct store *store, const struct changes *changes)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = enter(fake);
    if (status != PERMIT_OK)
        return status;
    if (!fake->transaction || fake->transaction->state == TRANSACTION_ENDED)
        return report(fake, PERMIT_INTERNAL, "no transaction");
    if (PLANTED(15))
        for (size_t i = 0; i < changes->semaphore_count; i++)
            if (changes->semaphores[i].changed)
                database_semaphore(changes->semaphores[i].semaphore->id)->row.semaphore.in_use =
                    changes->semaphores[i].semaphore->in_use;
    status = transaction_write(fake->transaction, changes);
    if (status == PERMIT_INTERNAL)
        violation("P1", "a guard of the statements raised: rows are not what they were when they were locked");
    if (status == PERMIT_DATABASE_LOST)
        return lose(fake, false);
    if (status == PERMIT_OK)
        status = strike(fake);
    if (status == PERMIT_OK && fails(fake, FAULT_FULL, faults.full))
        status = PERMIT_DATABASE_FULL;
    if (status != PERMIT_OK) {
        if (!PLANTED(7))
            fake->transaction->changes = NULL; /* the packet stopped before its COMMIT */
        return report(fake, status, "write");
    }
    if (PLANTED(5) && ends_something(changes) && dice_once_in(8)) {
        commit_in_two(fake, changes);
        return lose(fake, false);
    }
    fiber_sleep(dice_between(0, COMMIT_US_MAX));
    if (!server_has(fake))
        return lose(fake, false);
    bool later = fails(fake, FAULT_COMMIT_LATER, 2 * faults.commit_lost);
    if (later || fails(fake, FAULT_COMMIT_NOT, 2 * faults.commit_lost)) {
        fault_counts.commits_lost++;
        return lose(fake, later);
    }
    return commit(fake);
}

/* --- small transactions ------------------------------------------------------------------------------------------ */

static enum permit_status flush(struct fake_store *fake, uint64_t lsn)
{
    fiber_sleep(flush_us());
    if (server_has(fake))
        database_flushed(lsn);
    return leave(fake);
}

static enum permit_status reserve_ids(struct store *store, uint64_t count, struct id_range *ret_range)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = enter(fake);
    if (status != PERMIT_OK)
        return status;
    struct globals globals = database.globals;
    struct id_range range = {globals.next_id, globals.next_id + count};
    globals.next_id += count;
    status = flush(fake, database_commit_globals(&globals));
    if (status == PERMIT_OK)
        *ret_range = range;
    return status;
}

static enum permit_status floors(struct store *store, const uint64_t *ids, size_t count, uint64_t *ret_floors)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = enter(fake);
    for (size_t i = 0; i < count && status == PERMIT_OK; i++)
        ret_floors[i] = database_semaphore(ids[i]) ? floor_of(database_semaphore(ids[i])) : 0;
    return status == PERMIT_OK ? leave(fake) : status;
}

static enum permit_status tick(struct store *store, bool *ret_won)
{
    struct fake_store *fake = fake_of(store);
    *ret_won = false;
    enum permit_status status = enter(fake);
    if (status != PERMIT_OK)
        return status;
    struct served_clock before = database.globals.clock;
    utc_us now = database_now();
    if (now >= before.tick_at && now - before.tick_at < US_PER_SECOND)
        return leave(fake);
    status = enter(fake);
    if (status != PERMIT_OK)
        return status;
    if (database.globals.clock.tick_at != before.tick_at || database.globals.clock.offset_us != before.offset_us)
        return leave(fake);
    struct globals globals = database.globals;
    globals.clock = served_clock_tick(&before, now);
    step("tick %lld offset %lld", (long long)(globals.clock.tick_at - SIM_WALL_BASE),
         (long long)globals.clock.offset_us);
    status = flush(fake, database_commit_globals(&globals));
    *ret_won = status == PERMIT_OK;
    return status;
}

static enum permit_status due(struct store *store, struct due_page *page, struct arena *arena)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = enter(fake);
    if (status != PERMIT_OK)
        return status;
    struct db_key **keys;
    size_t count = sort_due(0, arena, &keys);
    page->ret_count = 0;
    page->ret_requests = arena_array(arena, page->limit, sizeof *page->ret_requests);
    for (size_t i = 0; i < count && page->ret_count < page->limit; i++) {
        const struct request *request = &keys[i]->row.request;
        bool after = request->due_at > page->after_due_at ||
                     (request->due_at == page->after_due_at && request->id > page->after_id);
        if (after)
            page->ret_requests[page->ret_count++] =
                (struct due_request){arena_copy(arena, request->external_id), request->id, request->due_at};
    }
    page->ret_now = served_time(&database.globals.clock, database_now());
    return leave(fake);
}

static enum permit_status semaphores(struct store *store, const uint64_t *ids, size_t count, struct arena *arena,
                                     struct semaphore_page *ret_page)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = enter(fake);
    if (status != PERMIT_OK)
        return status;
    *ret_page = (struct semaphore_page){.rows = arena_array(arena, count, sizeof *ret_page->rows)};
    for (size_t i = 0; i < count; i++)
        if (database_semaphore(ids[i]))
            ret_page->rows[ret_page->count++] = database_semaphore(ids[i])->row.semaphore;
    ret_page->now = served_time(&database.globals.clock, database_now());
    return leave(fake);
}

/* As src/store/epoch.c. */
static uint64_t next_epoch(void)
{
    utc_us now = max_i64(database_now(), clock_wall());
    int64_t unit = PLANTED(25) ? 3600LL * US_PER_SECOND : US_PER_MS;
    uint64_t by_clock = (uint64_t)max_i64(0, (now - EPOCH_ORIGIN_US) / unit);
    return by_clock > database.globals.epoch ? by_clock : database.globals.epoch + 1;
}

static enum permit_status raise_epoch(struct store *store, enum epoch_cause cause, uint64_t seen, int64_t hold_ms)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = enter(fake);
    if (status != PERMIT_OK)
        return status;
    struct globals globals = database.globals;
    bool same = globals.identity == database.server;
    if (cause == EPOCH_SERVER ? same : cause == EPOCH_TOKENS && globals.epoch != seen)
        return leave(fake);
    bool raises = !(globals.identity == 0 && cause == EPOCH_SERVER) && !PLANTED(13);
    globals.identity = database.server;
    if (raises) {
        globals.epoch = next_epoch();
        globals.grants_from = served_time(&globals.clock, database_now()) + hold_ms * US_PER_MS;
    }
    if (globals.next_id <= globals.last_id)
        globals.next_id = globals.last_id + 1;
    step("epoch %llu", (unsigned long long)globals.epoch);
    return flush(fake, database_commit_globals(&globals));
}

static const struct store_methods methods = {
    .reconnect = reconnect,
    .disconnect = disconnect,
    .examine = examine,
    .resolve = resolve,
    .lock = lock,
    .read_due = read_due,
    .apply = apply,
    .rollback = rollback,
    .reserve_ids = reserve_ids,
    .floors = floors,
    .tick = tick,
    .due = due,
    .semaphores = semaphores,
    .raise_epoch = raise_epoch,
    .ping = ping,
    .free = fake_store_free,
};

struct store *fake_store_open(void *context)
{
    struct fake_store *fake = calloc(1, sizeof *fake);
    if (!fake)
        return NULL;
    (void)context;
    fake->store.methods = &methods;
    fake->process = process_current();
    list_append(&stores, &fake->node);
    return &fake->store;
}
