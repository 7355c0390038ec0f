/* SPDX-License-Identifier: MIT */
/*
 * Two sessions on one slot, in every order that matters, in every isolation. What must hold: a stale writer whose check
 * came before the newer one's commit does not commit after it; who is newer waits for who is older and is in; nobody
 * deadlocks; and an older transaction's view of the past does not let a stale token pass.
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
    char semaphore[32]; /* its own for every race: no row is there yet */
    bool first_use;     /* nobody has written on the slot before; else OLD has */
};

/* A guard that may have to wait, on a thread of its own. */
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

/* The whole transaction again after a conflict, as its caller must; two sessions need no third time. */
static enum verdict settled(struct session *session, enum verdict verdict, const struct write *write)
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
 * How long the server lets this session be idle inside a transaction. By itself it is a second, so that a writer of the
 * soak that is stopped does not keep his locks; whoever is made to wait here must not be ended for that.
 */
static void set_patience(struct session *session, unsigned seconds)
{
    session_run(session,
                session->store->kind == &store_mariadb ? "SET SESSION idle_transaction_timeout = %u"
                                                       : "SET SESSION idle_in_transaction_session_timeout = '%us'",
                seconds);
}

/* A write of the caller's own behind a guard that has passed; both again after a conflict. */
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

/* The first is in its transaction and has passed; the second asks in its own, and waits for it. */
static void blocked(struct race *race, struct session *first, const struct write *first_write, struct session *second,
                    const struct write *second_write, struct call *ret_call)
{
    begin(first);
    KIT_CHECK(session_guard(first, first_write) == PASSED);
    begin(second);
    call_start(ret_call, second, second_write);
    await_blocked(race, ret_call);
}

/* ---- races ---- */

/* The older has checked and not committed: the newer waits, and then writes last. */
static void newer_waits_for_older(struct race *race)
{
    struct call call;
    blocked(race, &race->older, OF("3", OLD), &race->newer, OF("3", NEW), &call);
    mark_stock(race, &race->older, OLD);
    session_run(&race->older, "COMMIT");
    KIT_CHECK(settled(&race->newer, call_join(&call), OF("3", NEW)) == PASSED);
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
    blocked(race, &race->older, OF("3", OLD), &race->newer, OF("3", NEW), &call);
    session_run(&race->older, "ROLLBACK");
    KIT_CHECK(settled(&race->newer, call_join(&call), OF("3", NEW)) == PASSED);
    session_run(&race->newer, "COMMIT");
}

/* The older asks while the newer is in: refused as soon as that has committed. */
static void older_is_refused_after_commit(struct race *race)
{
    struct call call;
    blocked(race, &race->newer, OF("3", NEW), &race->older, OF("3", OLD), &call);
    session_run(&race->newer, "COMMIT");
    KIT_CHECK(settled(&race->older, call_join(&call), OF("3", OLD)) == STALE);
    session_run(&race->older, "ROLLBACK");
}

/* The newer has written nothing after all: the older is not stale. */
static void older_passes_after_rollback(struct race *race)
{
    struct call call;
    blocked(race, &race->newer, OF("3", NEW), &race->older, OF("3", OLD), &call);
    session_run(&race->newer, "ROLLBACK");
    KIT_CHECK(settled(&race->older, call_join(&call), OF("3", OLD)) == PASSED);
    session_run(&race->older, "COMMIT");
}

/* The older's transaction has looked at the database before the newer wrote: its view is of the past. */
static void old_view_does_not_pass(struct race *race)
{
    begin(&race->older);
    race->store->kind->number(&race->older, "SELECT number FROM stock WHERE id = 2");
    begin(&race->newer);
    KIT_CHECK(session_guard(&race->newer, OF("3", NEW)) == PASSED);
    session_run(&race->newer, "COMMIT");
    enum verdict verdict = session_guard(&race->older, OF("3", OLD));
    KIT_CHECK(verdict == STALE || verdict == AGAIN);
    KIT_CHECK(settled(&race->older, verdict, OF("3", OLD)) == STALE);
    session_run(&race->older, "ROLLBACK");
}

/* One holder on two connections. */
static void same_token_waits_and_passes(struct race *race)
{
    struct call call;
    blocked(race, &race->older, OF("3", NEW), &race->newer, OF("3", NEW), &call);
    session_run(&race->older, "COMMIT");
    KIT_CHECK(settled(&race->newer, call_join(&call), OF("3", NEW)) == PASSED);
    session_run(&race->newer, "COMMIT");
}

/* Two slots, named in opposite order: the second waits, nobody is a victim. */
static void opposite_order_does_not_deadlock(struct race *race)
{
    struct call call;
    blocked(race, &race->older, OF("3,4", OLD), &race->newer, OF("4,3", NEW), &call);
    session_run(&race->older, "COMMIT");
    KIT_CHECK(settled(&race->newer, call_join(&call), OF("4,3", NEW)) == PASSED);
    session_run(&race->newer, "COMMIT");
}

/* Another slot of the same semaphore does not wait. */
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

/* Refused on its second slot: nothing stays, even if the caller commits in spite of it where the server lets him. */
static void refused_leaves_nothing(struct race *race)
{
    KIT_CHECK(session_guard(&race->newer, OF("4", NEW)) == PASSED);
    begin(&race->older);
    KIT_CHECK(session_guard(&race->older, OF("2,3,4", OLD + 1)) == STALE);
    session_run(&race->older, "COMMIT");
    KIT_CHECK(race->store->kind->mark(&race->watch, OF("2", 0)) == 0);
    KIT_CHECK(race->store->kind->mark(&race->watch, OF("3", 0)) == (race->first_use ? 0 : OLD));
}

/* Holders of a counted permit are in side by side; a floor waits for those whom it will refuse. */
static void floor_waits_for_holders(struct race *race)
{
    struct call call;
    const struct write raise_old = {race->semaphore, PLACE_RAISE, NULL, OLD},
                       raise_new = {race->semaphore, PLACE_RAISE, NULL, NEW},
                       old = {race->semaphore, PLACE_FLOOR, NULL, OLD}, new = {race->semaphore, PLACE_FLOOR, NULL, NEW};
    KIT_CHECK(session_guard(&race->watch, &raise_old) == PASSED);
    begin(&race->older);
    KIT_CHECK(session_guard(&race->older, &old) == PASSED);
    KIT_CHECK(session_guard(&race->watch, &new) == PASSED); /* a holder beside him */
    call_start(&call, &race->newer, &raise_new);
    await_blocked(race, &call);
    session_run(&race->older, "COMMIT");
    KIT_CHECK(call_join(&call) == PASSED);
    KIT_CHECK(session_guard(&race->older, &old) == STALE);
    KIT_CHECK(session_guard(&race->older, &new) == PASSED);
}

/* A holder that is stopped inside his transaction: the server ends it, the newer goes on, the older has lost all. */
static void stopped_inside_is_ended(struct race *race)
{
    struct call call;
    begin(&race->older);
    KIT_CHECK(session_guard(&race->older, OF("3", OLD)) == PASSED);
    mark_stock(race, &race->older, OLD);
    set_patience(&race->older, 1);
    begin(&race->newer);
    call_start(&call, &race->newer, OF("3", NEW));
    KIT_CHECK(settled(&race->newer, call_join(&call), OF("3", NEW)) == PASSED);
    mark_stock(race, &race->newer, NEW);
    session_run(&race->newer, "COMMIT");
    KIT_CHECK(session_guard(&race->older, OF("3", OLD)) == LOST);
    KIT_CHECK(stock(race) == NEW);
    KIT_CHECK(session_guard(&race->older, OF("3", OLD)) == STALE);
}

/*
 * After it has waited for the older one, the newer sees what that has written: if its view begins only then. Where that
 * began before (innodb_snapshot_isolation, which is on from MariaDB 11.6 on), the server has it run again.
 */
static void newer_sees_what_older_wrote(struct race *race)
{
    struct call call;
    session_run(&race->watch, "UPDATE stock SET number = 0 WHERE id = 1");
    blocked(race, &race->older, OF("3", OLD), &race->newer, OF("3", NEW), &call);
    mark_stock(race, &race->older, OLD);
    session_run(&race->older, "COMMIT");
    KIT_CHECK(settled(&race->newer, call_join(&call), OF("3", NEW)) == PASSED);
    if (race->store->kind->run(&race->newer, "SELECT number FROM stock WHERE id = 1") == AGAIN) {
        session_run(&race->newer, "ROLLBACK");
        begin(&race->newer);
        KIT_CHECK(session_guard(&race->newer, OF("3", NEW)) == PASSED);
    }
    int64_t seen = race->store->kind->number(&race->newer, "SELECT number FROM stock WHERE id = 1");
    KIT_CHECK(seen == OLD);
    session_run(&race->newer, "COMMIT");
}

/* once: in the first isolation only. views: not where PostgreSQL takes its view before the wait (docs/fencing.md). */
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
        set_patience(&race.older, PATIENCE_S);
        set_patience(&race.newer, PATIENCE_S);
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

/* ---- a crowd ---- */

struct member {
    pthread_t thread;
    struct store *store;
    const char *semaphore;
    _Atomic int64_t *token;
    uint64_t dice;
    unsigned again, passed, stale;
};

/* Any of the slots, named in any order. */
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
 * On slots that have been written before nobody meets a deadlock. When their rows are made, InnoDB may see one: who
 * waits for a row whose insert is rolled back is left with a lock on the gap (docs/fencing.md).
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
