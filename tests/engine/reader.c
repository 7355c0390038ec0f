/* SPDX-License-Identifier: MIT */
/* A reader that serves the pending queries of its lane in this thread, until the engine stops with the last one. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/state.h"
#include "engine/task.h"

enum { ENTRIES_MAX = 400, SERVED_SIZE = 4 * ENTRIES_MAX };

static const struct task_kind kind = {.lane = QUERY_ROW};
static struct engine engine;
static struct task task;

/* A query, named by its principal and a number. */
static struct entry {
    struct query query;
    char name[8];
} entries[ENTRIES_MAX];
static size_t entry_count;
static size_t served_count;
static char served[SERVED_SIZE]; /* names in the order in which they were served */

static enum permit_status reconnect_fails;

static enum permit_status reconnect(struct store *store)
{
    (void)store;
    return reconnect_fails;
}

static enum permit_status keepalive(struct store *store)
{
    (void)store;
    return PERMIT_OK;
}

static const struct store_session session = {.reconnect = reconnect, .keepalive = keepalive};
static struct store store = {.session = &session, .message = ""};

static void begin(void)
{
    memset(&engine, 0, sizeof engine);
    mutex_init(&engine.mutex);
    for (size_t i = 0; i < QUERY_LANE_COUNT; i++) {
        turns_init(&engine.lanes[i].queries);
        pthread_cond_init(&engine.lanes[i].wake, NULL);
    }
    task = (struct task){.kind = &kind, .engine = &engine, .store = &store};
}

TestSuite(reader, .init = begin, .timeout = 60);

static void note(const struct entry *entry)
{
    strcat(served, served[0] ? " " : "");
    strcat(served, entry->name);
    if (++served_count == entry_count)
        atomic_store(&engine.stopping, true);
}

static void work(struct query *query, struct store *of, enum permit_status status)
{
    const struct entry *entry = CONTAINER_OF(query, struct entry, query);
    note(entry);
    if (reconnect_fails)
        cr_expect(!of && status == reconnect_fails);
    else
        cr_expect(of && status == PERMIT_OK);
}

/* The first letter of a name is the principal; '-' is none. */
static struct entry *entry_of(const char *name, struct bytes *ret_principal)
{
    struct entry *entry = &entries[entry_count++];
    cr_assert(entry_count <= ENTRIES_MAX && strlen(name) < sizeof entry->name);
    strcpy(entry->name, name);
    *ret_principal = (struct bytes){entry->name, name[0] != '-'};
    return entry;
}

static void ask(const char *name)
{
    struct bytes principal;
    struct entry *entry = entry_of(name, &principal);
    entry->query = (struct query){.work = work, .lane = QUERY_ROW, .deadline = NEVER, .turn.principal = principal};
    cr_assert_eq(engine_query(&engine, &entry->query), PERMIT_OK);
}

static void serve(const char *expected)
{
    reader_run(&task);
    cr_expect_str_eq(served, expected);
}

Test(reader, principals_take_turns)
{
    static const char *const names[] = {"a1", "a2", "a3", "a4", "b1", "b2", "c1", "a5", "b3"};
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        ask(names[i]);
    serve("a1 b1 c1 a2 b2 a3 b3 a4 a5");
}

Test(reader, queries_without_principals_are_served_in_order_of_arrival)
{
    static const char *const names[] = {"-1", "-2", "-3", "-4"};
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        ask(names[i]);
    serve("-1 -2 -3 -4");
}

/* A principal with hundreds of queries delays the query of another by one. */
Test(reader, query_waits_for_one_query_of_each_other_principal)
{
    char name[8];
    for (int i = 1; i < 300; i++) {
        snprintf(name, sizeof name, "a%d", i);
        ask(name);
    }
    ask("b1");
    ask("-1");
    reader_run(&task);
    cr_expect_eq(strncmp(served, "a1 b1 -1 a2 a3 ", 15), 0, "%.40s", served);
}

/* All queries fail with the first one if the database cannot be reached, whoever asks them. */
Test(reader, pending_queries_fail_together)
{
    static const char *const names[] = {"a1", "a2", "b1"};
    reconnect_fails = PERMIT_DATABASE_UNAVAILABLE;
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        ask(names[i]);
    serve("a1 b1 a2");
}
