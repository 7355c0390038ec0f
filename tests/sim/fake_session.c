/* SPDX-License-Identifier: MIT */
#include "fake_session.h"

#include <stdio.h>

#include "dice.h"
#include "oracle.h"
#include "run.h"

struct fault_rates faults;
struct fault_counts fault_counts;
unsigned char *fault_ways;
bool (*fault_branch)(uint64_t number, int kind);

enum {
    CALL_US_MIN = 30,
    CALL_US_MAX = 250, /* of a call: both ways and its work */
    COMMIT_US_MAX = 60,
    FLUSH_US_MAX = 400,
    CONNECT_US = 1000,
    SLOW_US_MAX = 400 * 1000,
    LATE_US_MAX = 6000,
    NOTICED_US_MAX = 60 * 1000, /* usual time until the server notices a lost client */
    NOTICED_LATE_US = 5 * US_PER_SECOND,
};

/* A transaction whose session is lost. */
struct zombie {
    struct timer timer;
    struct transaction *transaction;
    bool commits;
    struct fake_store *store; /* the session that may kill it; NULL: none */
    struct arena arena;       /* memory of its writes */
};

static struct list stores = {&stores, &stores};

enum permit_status call_report(struct fake_store *fake, enum permit_status status, const char *message)
{
    snprintf(fake->message, sizeof fake->message, "%s", message);
    return status;
}

/* ---- lost connections ---- */

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

static int64_t notice_delay(void)
{
    return dice_once_in(20) ? dice_between(0, NOTICED_LATE_US) : dice_between(0, NOTICED_US_MAX);
}

static void copy_labels(const struct permit *permit, struct arena *arena, struct permit *copy)
{
    if (!permit->labels)
        return;
    copy->labels = arena_array(arena, permit->slots.count, sizeof *copy->labels);
    for (uint32_t i = 0; i < permit->slots.count; i++)
        if (permit->labels[i].length)
            copy->labels[i] = arena_copy(arena, permit->labels[i]);
}

/* Copies the changes of operators: labels, seats and events. */
static void copy_records(const struct changes *changes, struct arena *arena, struct changes *copy)
{
    struct label_change *labels = arena_array(arena, changes->label_count, sizeof *labels);
    struct event *events = arena_array(arena, changes->event_count, sizeof *events);
    for (size_t i = 0; i < changes->label_count; i++) {
        labels[i] = changes->labels[i];
        if (labels[i].label.data)
            labels[i].label = arena_copy(arena, labels[i].label);
    }
    for (size_t i = 0; i < changes->event_count; i++) {
        events[i] = changes->events[i];
        events[i].who = arena_copy(arena, changes->events[i].who);
        if (events[i].why.data)
            events[i].why = arena_copy(arena, changes->events[i].why);
    }
    struct seat_change *seats = arena_array(arena, changes->seat_count, sizeof *seats);
    for (size_t i = 0; i < changes->seat_count; i++) {
        seats[i] = changes->seats[i];
        seats[i].seat.section = arena_copy(arena, seats[i].seat.section);
        seats[i].seat.row = arena_copy(arena, seats[i].seat.row);
        seats[i].seat.tags = arena_copy(arena, seats[i].seat.tags);
    }
    copy->labels = labels;
    copy->seats = seats;
    copy->events = events;
}

static struct slots copy_slots(const struct slots *slots, struct arena *arena)
{
    struct slots copy = {arena_array(arena, slots->count, sizeof *copy.numbers), slots->count};
    for (uint32_t i = 0; i < slots->count; i++)
        copy.numbers[i] = slots->numbers[i];
    return copy;
}

static const struct feed_event *copy_feed(const struct changes *changes, struct arena *arena)
{
    struct feed_event *events = arena_array(arena, changes->feed_count, sizeof *events);
    for (size_t i = 0; i < changes->feed_count; i++) {
        const struct feed_event *from = &changes->feed[i];
        struct feed_permit *permits = arena_array(arena, from->permit_count, sizeof *permits);
        for (size_t j = 0; j < from->permit_count; j++) {
            permits[j] = from->permits[j];
            permits[j].semaphore = arena_copy(arena, from->permits[j].semaphore);
            permits[j].slots = copy_slots(&from->permits[j].slots, arena);
        }
        events[i] = *from;
        events[i].external_id = arena_copy(arena, from->external_id);
        events[i].owner = arena_copy(arena, from->owner);
        events[i].principal = arena_copy(arena, from->principal);
        events[i].permits = permits;
    }
    return events;
}

/* Copies of data that must outlive the caller. */
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
        copy->semaphores[i].semaphore->name = arena_copy(arena, changes->semaphores[i].semaphore->name);
    }
    copy_records(changes, arena, copy);
    copy->feed = copy_feed(changes, arena);
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request_change *from = &changes->requests[i];
        struct request *request = arena_alloc(arena, sizeof *request);
        struct request *before = arena_alloc(arena, sizeof *before);
        *request = *from->request;
        request->external_id = arena_copy(arena, from->request->external_id);
        request->nonce = arena_copy(arena, from->request->nonce);
        request->change_nonce = arena_copy(arena, from->request->change_nonce);
        if (request->metadata.data)
            request->metadata = arena_copy(arena, from->request->metadata);
        if (request->wanted.data)
            request->wanted = arena_copy(arena, from->request->wanted);
        request->wants = NULL;
        request->want_count = 0;
        request->permits = arena_array(arena, request->permit_count, sizeof *request->permits);
        for (size_t j = 0; j < request->permit_count; j++) {
            struct permit *permit = &request->permits[j];
            *permit = from->request->permits[j];
            permit->slots = copy_slots(&from->request->permits[j].slots, arena);
            copy_labels(&from->request->permits[j], arena, permit);
        }
        if (from->before) { /* its numbers and states, and the tokens of its permits */
            *before = *from->before;
            before->permits = arena_array(arena, before->permit_count, sizeof *before->permits);
            for (size_t j = 0; j < before->permit_count; j++)
                before->permits[j] = from->before->permits[j];
        }
        copy->requests[i] = *from;
        copy->requests[i].request = request;
        copy->requests[i].before = from->before ? before : NULL;
    }
    if (changes->slot_count)
        memcpy(copy->slots, changes->slots, changes->slot_count * sizeof *copy->slots);
    struct place_change *places = arena_array(arena, changes->place_count, sizeof *places);
    struct mail *mail = arena_array(arena, changes->mail_count, sizeof *mail);
    if (changes->place_count)
        memcpy(places, changes->places, changes->place_count * sizeof *places);
    if (changes->mail_count)
        memcpy(mail, changes->mail, changes->mail_count * sizeof *mail);
    copy->places = places;
    copy->mail = mail;
    return copy;
}

/* Ends the session; its transaction, if any, lives on. `commits`: its COMMIT was sent. */
void fake_session_break_off(struct fake_store *fake, bool commits)
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
    if (commits && transaction->changes)
        transaction->changes = copy_changes(transaction->changes, &zombie->arena);
    fake->left = zombie;
    step("session of %llu is lost%s", (unsigned long long)transaction->number, commits ? ", its COMMIT is not" : "");
    timer_set(&zombie->timer, sim_now() + notice_delay());
}

/* KILL of the previous connection's transaction: it ends soon, committed or not. */
static void kill_old_transaction(struct fake_store *fake)
{
    if (!fake->left)
        return;
    timer_set(&fake->left->timer, sim_now() + dice_between(0, 2000));
    fake->left->store = NULL;
    fake->left = NULL;
}

enum permit_status call_lose(struct fake_store *fake, bool commits)
{
    fault_counts.lost++;
    oracle_troubled();
    fake_session_break_off(fake, commits);
    return call_report(fake, PERMIT_DATABASE_LOST, "lost connection");
}

void fake_store_process_died(int process)
{
    list_for_each (node, next, &stores) {
        struct fake_store *fake = LIST_ENTRY(node, struct fake_store, node);
        if (fake->process != process)
            continue;
        struct transaction *transaction = fake->transaction;
        bool sent = transaction && transaction->state == TRANSACTION_OPEN && transaction_is_written(transaction) &&
                    !transaction->waits_for && dice_once_in(2);
        fake_session_break_off(fake, sent);
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
            fake->start = 0; /* it notices at its next call */
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

/* ---- a call ---- */

bool call_reaches(const struct fake_store *fake)
{
    return fake->connected && !database.down && fake->start == database.start;
}

/* Fails at random, or because it is the chosen call. */
bool call_fails(const struct fake_store *fake, enum fault_kind kind, unsigned once_in)
{
    bool chosen = faults.only_call == fake->call && faults.only_kind == kind;
    if (fake->call < CALLS_MAX) {
        bool is_new = !(fault_ways[fake->call] & 1 << kind);
        fault_ways[fake->call] |= (unsigned char)(1 << kind);
        chosen |= is_new && fault_branch && fault_branch(fake->call, kind);
    }
    fault_counts.struck += chosen;
    return chosen || dice_once_in(once_in);
}

/* The way to the server. */
enum permit_status call_enter(struct fake_store *fake)
{
    fake->call = ++fault_counts.calls;
    if (!fake->connected)
        return call_report(fake, PERMIT_DATABASE_LOST, "not connected");
    fiber_sleep(dice_once_in(faults.slow) ? dice_between(0, SLOW_US_MAX) : dice_between(CALL_US_MIN, CALL_US_MAX));
    if (!call_reaches(fake) || call_fails(fake, FAULT_BEFORE, faults.lost_before))
        return call_lose(fake, false);
    return PERMIT_OK;
}

/* The way back. */
enum permit_status call_leave(struct fake_store *fake)
{
    if (!call_reaches(fake) || call_fails(fake, FAULT_AFTER, faults.lost_after))
        return call_lose(fake, false);
    return PERMIT_OK;
}

/* A random error of the server. */
enum permit_status call_random_error(struct fake_store *fake)
{
    if (call_fails(fake, FAULT_LOCK_TIMEOUT, faults.lock_timeout)) {
        fault_counts.lock_timeouts++;
        return call_report(fake, PERMIT_LOCK_TIMEOUT, "1205");
    }
    if (call_fails(fake, FAULT_CONFLICT, faults.conflict)) {
        fault_counts.conflicts++;
        transaction_rollback(fake->transaction); /* by the server */
        return call_report(fake, PERMIT_CONFLICT, "1213");
    }
    return PERMIT_OK;
}

int64_t call_flush_us(void)
{
    return dice_once_in(faults.slow) ? dice_between(0, SLOW_US_MAX) : dice_between(0, FLUSH_US_MAX);
}

enum permit_status fake_session_reconnect(struct store *store)
{
    struct fake_store *fake = fake_of(store);
    if (fake->connected)
        return PERMIT_OK;
    fiber_sleep(dice_between(CONNECT_US / 2, CONNECT_US));
    if (database.down || dice_once_in(faults.unavailable)) {
        fault_counts.refused++;
        oracle_troubled();
        return call_report(fake, PERMIT_DATABASE_UNAVAILABLE, "connection refused");
    }
    kill_old_transaction(fake);
    fake->connected = true;
    fake->start = database.start;
    store->sessions++;
    store->max_packet = profile.max_packet;
    return PERMIT_OK;
}

enum permit_status fake_session_rollback(struct store *store)
{
    struct fake_store *fake = fake_of(store);
    if (!fake->connected)
        return PERMIT_OK;
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return PERMIT_DATABASE_LOST;
    transaction_free(fake->transaction);
    fake->transaction = NULL;
    return call_leave(fake);
}

enum permit_status call_flush(struct fake_store *fake, uint64_t lsn)
{
    fiber_sleep(call_flush_us());
    if (call_reaches(fake))
        database_flushed(lsn);
    return call_leave(fake);
}

struct fake_store *fake_session_open(void)
{
    struct fake_store *fake = calloc(1, sizeof *fake);
    if (!fake)
        return NULL;
    fake->process = process_current();
    list_append(&stores, &fake->node);
    return fake;
}

void fake_session_free(struct fake_store *fake)
{
    fake_session_break_off(fake, false);
    if (fake->left)
        fake->left->store = NULL;
    list_remove(&fake->node);
    free(fake);
}
