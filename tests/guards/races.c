/* SPDX-License-Identifier: MIT */
/*
 * Two sessions on one slot, in every order that matters and at every isolation level. A stale writer whose check came
 * before the newer one's commit must not commit after it. The newer waits for the older and then passes. No session
 * deadlocks. A stale token does not pass through an old snapshot.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guards.h"
#include "testkit.h"

enum {
    BLOCKED_MS = 30000,
    PATIENCE_S = 60,
    OLD = 5,
    NEW = 9,
    CROWD = 8,
    CROWD_WRITES = 60,
    CROWD_SLOTS = 5,
    CROWD_AGAIN = 1000
};

static const char *const mariadb_levels[] = {
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET SESSION innodb_snapshot_isolation = ON", NULL};
static const char *const postgresql_levels[] = {
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE", NULL};

struct race {
    struct store *store;
    struct session older, newer, watch;
    char semaphore[32]; /* a new one for every race, without a row */
    bool first_use;     /* no earlier write on the slot; else OLD has written */
};

/* A guard call that may have to wait, in its own thread. */
struct call {
    pthread_t thread;
    struct session *session;
    struct write write;
    enum verdict verdict;
    atomic_bool done;
};

static void *call_run(void *context)
{
    struct call *call = context;
    call->verdict = session_guard(call->session, &call->write);
    atomic_store(&call->done, true);
    return NULL;
}

static void call_start(struct call *call, struct session *session, const struct write *write)
{
    call->session = session;
    call->write = *write;
    atomic_init(&call->done, false);
    KIT_CHECK(!pthread_create(&call->thread, NULL, call_run, call));
}

static enum verdict call_join(struct call *call)
{
    pthread_join(call->thread, NULL);
    return call->verdict;
}

static bool is_waiting(void *context)
{
    struct session *watch = context;
    return watch->store->kind->waiting(watch) > 0;
}

static void await_blocked(struct race *race, struct call *call)
{
    if (!kit_wait_until(is_waiting, &race->watch, BLOCKED_MS) || atomic_load(&call->done))
        kit_fail("%s: the second session does not wait for the first", race->store->name);
}

#define OF(slots, token) ON_SLOTS(race->semaphore, slots, token)

/* Repeats the whole transaction after a conflict, as callers must. With two sessions the second attempt succeeds. */
static enum verdict retry_after_conflict(struct session *session, enum verdict verdict, const struct write *write)
{
    if (verdict != AGAIN)
        return verdict;
    session_run(session, "ROLLBACK");
    session_run(session, "BEGIN");
    return session_guard(session, write);
}

static void begin(struct session *session)
{
    session_run(session, "BEGIN");
}

/*
 * Sets how long the server lets this session idle inside a transaction. The default is a second, so that a stopped
 * writer of the soak does not keep its locks; a session that has to wait here must not be ended for that.
 */
static void set_idle_timeout(struct session *session, unsigned seconds)
{
    session_run(session,
                session->store->kind == &store_mariadb ? "SET SESSION idle_transaction_timeout = %u"
                                                       : "SET SESSION idle_in_transaction_session_timeout = '%us'",
                seconds);
}

/* A write of the caller after a guard has passed. Repeats both after a conflict. */
static void mark_stock(struct race *race, struct session *session, int64_t token)
{
    char text[100];
    snprintf(text, sizeof(text), "UPDATE stock SET number = %" PRIi64 " WHERE id = 1", token);
    if (race->store->kind->run(session, text) == AGAIN) {
        session_run(session, "ROLLBACK");
        begin(session);
        KIT_CHECK(session_guard(session, OF("3", token)) == PASSED);
        session_run(session, "%s", text);
    }
}

static int64_t stock(struct race *race)
{
    return race->store->kind->number(&race->watch, "SELECT number FROM stock WHERE id = 1");
}

/*
 * The first session is in a transaction and has passed; the second calls the guard in its own transaction, and waits.
 */
static void start_blocked(struct race *race, struct session *first, const struct write *first_write,
                          struct session *second, const struct write *second_write, struct call *ret_call)
{
    begin(first);
    KIT_CHECK(session_guard(first, first_write) == PASSED);
    begin(second);
    call_start(ret_call, second, second_write);
    await_blocked(race, ret_call);
}

/* ---- races ---- */

/* The older has checked and not committed: the newer waits, and writes last. */
static void newer_waits_for_older(struct race *race)
{
    struct call call;
    start_blocked(race, &race->older, OF("3", OLD), &race->newer, OF("3", NEW), &call);
    mark_stock(race, &race->older, OLD);
    session_run(&race->older, "COMMIT");
    KIT_CHECK(retry_after_conflict(&race->newer, call_join(&call), OF("3", NEW)) == PASSED);
    mark_stock(race, &race->newer, NEW);
    session_run(&race->newer, "COMMIT");
    KIT_CHECK(stock(race) == NEW);
    begin(&race->older);
    KIT_CHECK(session_guard(&race->older, OF("3", OLD)) == STALE);
    session_run(&race->older, "ROLLBACK");
}

static void newer_goes_on_after_rollback(struct race *race)
{
    struct call call;
    start_blocked(race, &race->older, OF("3", OLD), &race->newer, OF("3", NEW), &call);
    session_run(&race->older, "ROLLBACK");
    KIT_CHECK(retry_after_conflict(&race->newer, call_join(&call), OF("3", NEW)) == PASSED);
    session_run(&race->newer, "COMMIT");
}

/* The older calls the guard during the newer's transaction: refused when the newer has committed. */
static void older_is_refused_after_commit(struct race *race)
{
    struct call call;
    start_blocked(race, &race->newer, OF("3", NEW), &race->older, OF("3", OLD), &call);
    session_run(&race->newer, "COMMIT");
    KIT_CHECK(retry_after_conflict(&race->older, call_join(&call), OF("3", OLD)) == STALE);
    session_run(&race->older, "ROLLBACK");
}

/* The newer rolls back: the older is not stale. */
static void older_passes_after_rollback(struct race *race)
{
    struct call call;
    start_blocked(race, &race->newer, OF("3", NEW), &race->older, OF("3", OLD), &call);
    session_run(&race->newer, "ROLLBACK");
    KIT_CHECK(retry_after_conflict(&race->older, call_join(&call), OF("3", OLD)) == PASSED);
    session_run(&race->older, "COMMIT");
}

/* The older's transaction has read before the newer wrote, so its snapshot is old. */
static void old_view_does_not_pass(struct race *race)
{
    begin(&race->older);
    race->store->kind->number(&race->older, "SELECT number FROM stock WHERE id = 2");
    begin(&race->newer);
    KIT_CHECK(session_guard(&race->newer, OF("3", NEW)) == PASSED);
    session_run(&race->newer, "COMMIT");
    enum verdict verdict = session_guard(&race->older, OF("3", OLD));
    KIT_CHECK(verdict == STALE || verdict == AGAIN);
    KIT_CHECK(retry_after_conflict(&race->older, verdict, OF("3", OLD)) == STALE);
    session_run(&race->older, "ROLLBACK");
}

/* One holder on two connections. */
static void same_token_waits_and_passes(struct race *race)
{
    struct call call;
    start_blocked(race, &race->older, OF("3", NEW), &race->newer, OF("3", NEW), &call);
    session_run(&race->older, "COMMIT");
    KIT_CHECK(retry_after_conflict(&race->newer, call_join(&call), OF("3", NEW)) == PASSED);
    session_run(&race->newer, "COMMIT");
}

/* Two slots in opposite order: the second session waits, and there is no deadlock. */
static void opposite_order_does_not_deadlock(struct race *race)
{
    struct call call;
    start_blocked(race, &race->older, OF("3,4", OLD), &race->newer, OF("4,3", NEW), &call);
    session_run(&race->older, "COMMIT");
    KIT_CHECK(retry_after_conflict(&race->newer, call_join(&call), OF("4,3", NEW)) == PASSED);
    session_run(&race->newer, "COMMIT");
}

/* A session on another slot of the same semaphore does not wait. */
static void other_slot_does_not_wait(struct race *race)
{
    begin(&race->older);
    KIT_CHECK(session_guard(&race->older, OF("3", OLD)) == PASSED);
    begin(&race->newer);
    KIT_CHECK(session_guard(&race->newer, OF("4", NEW)) == PASSED);
    KIT_CHECK(session_guard(&race->newer, OF("2", NEW)) == PASSED);
    session_run(&race->newer, "COMMIT");
    session_run(&race->older, "COMMIT");
}

/* Refused on its second slot: nothing stays, even if the caller commits in spite of it where the server allows that. */
static void refused_leaves_nothing(struct race *race)
{
    KIT_CHECK(session_guard(&race->newer, OF("4", NEW)) == PASSED);
    begin(&race->older);
    KIT_CHECK(session_guard(&race->older, OF("2,3,4", OLD + 1)) == STALE);
    session_run(&race->older, "COMMIT");
    KIT_CHECK(race->store->kind->mark(&race->watch, OF("2", 0)) == 0);
    KIT_CHECK(race->store->kind->mark(&race->watch, OF("3", 0)) == (race->first_use ? 0 : OLD));
}

/* Holders of a counted permit run in parallel; raising the floor waits for the holders it will refuse. */
static void floor_waits_for_holders(struct race *race)
{
    struct call call;
    const struct write raise_old = {race->semaphore, PLACE_RAISE, NULL, OLD},
                       raise_new = {race->semaphore, PLACE_RAISE, NULL, NEW},
                       old = {race->semaphore, PLACE_FLOOR, NULL, OLD}, new = {race->semaphore, PLACE_FLOOR, NULL, NEW};
    KIT_CHECK(session_guard(&race->watch, &raise_old) == PASSED);
    begin(&race->older);
    KIT_CHECK(session_guard(&race->older, &old) == PASSED);
    KIT_CHECK(session_guard(&race->watch, &new) == PASSED); /* another holder in parallel */
    call_start(&call, &race->newer, &raise_new);
    await_blocked(race, &call);
    session_run(&race->older, "COMMIT");
    KIT_CHECK(call_join(&call) == PASSED);
    KIT_CHECK(session_guard(&race->older, &old) == STALE);
    KIT_CHECK(session_guard(&race->older, &new) == PASSED);
}

/*
 * A holder is stopped inside its transaction: the server ends it, the newer continues, and the older's writes are lost.
 */
static void stopped_inside_is_ended(struct race *race)
{
    struct call call;
    begin(&race->older);
    KIT_CHECK(session_guard(&race->older, OF("3", OLD)) == PASSED);
    mark_stock(race, &race->older, OLD);
    set_idle_timeout(&race->older, 1);
    begin(&race->newer);
    call_start(&call, &race->newer, OF("3", NEW));
    KIT_CHECK(retry_after_conflict(&race->newer, call_join(&call), OF("3", NEW)) == PASSED);
    mark_stock(race, &race->newer, NEW);
    session_run(&race->newer, "COMMIT");
    KIT_CHECK(session_guard(&race->older, OF("3", OLD)) == LOST);
    KIT_CHECK(stock(race) == NEW);
    KIT_CHECK(session_guard(&race->older, OF("3", OLD)) == STALE);
}

/*
 * After waiting for the older, the newer sees the older's writes if its snapshot begins only then. If the snapshot is
 * older (innodb_snapshot_isolation, on by default since MariaDB 11.6), the server makes it run the transaction again.
 */
static void newer_sees_what_older_wrote(struct race *race)
{
    struct call call;
    session_run(&race->watch, "UPDATE stock SET number = 0 WHERE id = 1");
    start_blocked(race, &race->older, OF("3", OLD), &race->newer, OF("3", NEW), &call);
    mark_stock(race, &race->older, OLD);
    session_run(&race->older, "COMMIT");
    KIT_CHECK(retry_after_conflict(&race->newer, call_join(&call), OF("3", NEW)) == PASSED);
    if (race->store->kind->run(&race->newer, "SELECT number FROM stock WHERE id = 1") == AGAIN) {
        session_run(&race->newer, "ROLLBACK");
        begin(&race->newer);
        KIT_CHECK(session_guard(&race->newer, OF("3", NEW)) == PASSED);
    }
    int64_t seen = race->store->kind->number(&race->newer, "SELECT number FROM stock WHERE id = 1");
    KIT_CHECK(seen == OLD);
    session_run(&race->newer, "COMMIT");
}

/*
 * once: at the first isolation level only. views: not where PostgreSQL takes its snapshot before the wait
 * (docs/fencing.md).
 */
static const struct {
    void (*run)(struct race *race);
    bool once, views;
} races[] = {
    {newer_waits_for_older, false, false},
    {newer_goes_on_after_rollback, false, false},
    {older_is_refused_after_commit, false, false},
    {older_passes_after_rollback, false, false},
    {old_view_does_not_pass, false, false},
    {same_token_waits_and_passes, false, false},
    {opposite_order_does_not_deadlock, false, false},
    {other_slot_does_not_wait, false, false},
    {refused_leaves_nothing, false, false},
    {floor_waits_for_holders, false, false},
    {stopped_inside_is_ended, true, false},
    {newer_sees_what_older_wrote, false, true},
};
enum { RACES = sizeof(races) / sizeof(races[0]) };

static void race_run(struct store *store, size_t number, const char *level, unsigned at)
{
    for (int first_use = 0; first_use < 2; first_use++) {
        struct race race = {.store = store, .first_use = first_use};
        snprintf(race.semaphore, sizeof(race.semaphore), "race-%zu-%u-%d", number, at, first_use);
        session_open(&race.older, store);
        session_open(&race.newer, store);
        session_open(&race.watch, store);
        session_run(&race.older, "%s", level);
        session_run(&race.newer, "%s", level);
        set_idle_timeout(&race.older, PATIENCE_S);
        set_idle_timeout(&race.newer, PATIENCE_S);
        if (!first_use)
            KIT_CHECK(session_guard(&race.watch, ON_SLOTS(race.semaphore, "3", OLD)) == PASSED);
        races[number].run(&race);
        session_close(&race.older);
        session_close(&race.newer);
        session_close(&race.watch);
    }
}

void guard_races(struct store *store)
{
    const char *const *levels = store->kind == &store_mariadb ? mariadb_levels : postgresql_levels;
    struct session session;
    unsigned count = 0;
    session_open(&session, store);
    session_run(&session, "INSERT INTO stock VALUES (1, 0), (2, 0)");
    session_close(&session);
    for (unsigned at = 0; levels[at]; at++)
        for (size_t i = 0; i < RACES; i++) {
            if ((races[i].once && at) || (races[i].views && at && store->kind == &store_postgresql))
                continue;
            race_run(store, i, levels[at], at);
            count += 2;
        }
    printf("%-10s %u races of two sessions, in %s isolation\n", store->name, count, "every");
}

/* ---- many sessions ---- */

struct member {
    pthread_t thread;
    struct store *store;
    const char *semaphore;
    _Atomic int64_t *token;
    uint64_t dice;
    unsigned again, passed, stale;
};

/* Random slots in random order. */
static void any_slots(uint64_t *state, char *to, size_t size)
{
    unsigned from = (unsigned)dice(state) % CROWD_SLOTS, step = 1 + (unsigned)dice(state) % (CROWD_SLOTS - 1);
    unsigned count = 1 + (unsigned)dice(state) % CROWD_SLOTS;
    size_t at = 0;
    for (unsigned i = 0; i < count; i++)
        at += (size_t)snprintf(to + at, size - at, "%s%u", i ? "," : "", 1 + (from + i * step) % CROWD_SLOTS);
}

static void *member_run(void *context)
{
    struct member *member = context;
    struct session session;
    char slots[32];
    session_open(&session, member->store);
    for (unsigned i = 0; i < CROWD_WRITES; i++) {
        any_slots(&member->dice, slots, sizeof(slots));
        int64_t token = atomic_fetch_add(member->token, 1) + 1 - (int64_t)(dice(&member->dice) % 4);
        enum verdict verdict;
        while ((verdict = session_write(&session, ON_SLOTS(member->semaphore, slots, token < 1 ? 1 : token))) == AGAIN)
            if (++member->again > CROWD_AGAIN)
                kit_fail("%s: no end of conflicts", member->store->name);
        member->passed += verdict == PASSED;
        member->stale += verdict == STALE;
    }
    session_close(&session);
    return NULL;
}

static void crowd_run(struct store *store, struct session *session, const char *semaphore, uint64_t seed,
                      struct member *ret_sum)
{
    struct member members[CROWD] = {0}, sum = {0};
    _Atomic int64_t token = 1;
    size_t lines = 0;
    for (unsigned i = 0; i < CROWD; i++) {
        members[i] =
            (struct member){.store = store, .semaphore = semaphore, .token = &token, .dice = seed * 31 + i + 1};
        KIT_CHECK(!pthread_create(&members[i].thread, NULL, member_run, &members[i]));
    }
    for (unsigned i = 0; i < CROWD; i++) {
        pthread_join(members[i].thread, NULL);
        sum.again += members[i].again;
        sum.passed += members[i].passed;
        sum.stale += members[i].stale;
    }
    for (unsigned slot = 1; slot <= CROWD_SLOTS; slot++)
        lines += check_history(session, semaphore, slot);
    if (!sum.passed || !sum.stale || lines < sum.passed)
        kit_fail("%s: of a crowd %u passed, %u were stale; %zu lines", store->name, sum.passed, sum.stale, lines);
    *ret_sum = sum;
}

/*
 * Slots that were written before cause no deadlocks. When their rows are first inserted, InnoDB may report one: a
 * session that waits for a row whose insert is rolled back gets a lock on the gap (docs/fencing.md).
 */
void guard_crowd(struct store *store, uint64_t seed)
{
    struct member first, sum;
    struct session session;
    session_open(&session, store);
    prepare_history(&session, "first-crowd", CROWD_SLOTS);
    prepare_history(&session, "crowd", CROWD_SLOTS);
    crowd_run(store, &session, "first-crowd", seed, &first);
    KIT_CHECK(session_guard(&session, ON_SLOTS("crowd", "1,2,3,4,5", 1)) == PASSED);
    crowd_run(store, &session, "crowd", seed, &sum);
    session_close(&session);
    if (sum.again)
        kit_fail("%s: %u conflicts in a crowd", store->name, sum.again);
    printf("%-10s a crowd on any slots in any order: %u passed, %u stale, no slot went back, no conflict; %u conflicts "
           "at the first use of its slots\n",
           store->name, sum.passed, sum.stale, first.again);
}
