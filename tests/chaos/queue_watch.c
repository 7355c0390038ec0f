/* SPDX-License-Identifier: MIT */
/*
 * A waiter was there for all tokens granted between two successive samples if both have its row with the same permitd,
 * the same end of the wait, and that permitd alive. A sample is one statement, so one state of the database.
 */
#include "queue_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Between samples that are further apart, a permitd can die and come back under another id. */
enum { GAP_MAX_US = 1000000, PRIORITY_STEP_US = 30000000 };

/* One per place. */
struct watched_waiter {
    uint64_t request;
    uint64_t server;
    unsigned port; /* of that server */
    int64_t place_us;
    int64_t until_us;
    unsigned semaphore;
    uint64_t next_token;                /* of the semaphore */
    int64_t from_clock_us, to_clock_us; /* when the sample was read */
    char key[ORDER_KEY_SIZE];
};

#define MICROSECONDS(time) "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', " time ")"

static int queue_number(const struct order *order, const char *name)
{
    for (size_t i = 0; name && i < order->queue_count; i++)
        if (!strcmp(order->queues[i].name, name))
            return (int)i;
    return -1;
}

/* The port at the end of an address such as http://127.0.0.1:7070; 0: it has none. */
static unsigned port_of(const char *address)
{
    const char *colon = address ? strrchr(address, ':') : NULL;
    return colon ? (unsigned)strtoul(colon + 1, NULL, 10) : 0;
}

static int64_t number_or(const char *text, int64_t absent)
{
    return text ? strtoll(text, NULL, 10) : absent;
}

/* ---- samples ---- */

static int waiters_by_id(const void *a, const void *b)
{
    const struct watched_waiter *x = a, *y = b;
    if (x->request != y->request)
        return x->request > y->request ? 1 : -1;
    return (x->semaphore > y->semaphore) - (x->semaphore < y->semaphore);
}

static const struct watched_waiter *waiter_before(const struct queue_watch *watch, const struct watched_waiter *now)
{
    return watch->before_count
               ? bsearch(now, watch->before, watch->before_count, sizeof(watch->before[0]), waiters_by_id)
               : NULL;
}

/* Columns as in take_sample; one row per place. */
static void take_waiter(void *context, char **columns)
{
    struct queue_watch *watch = context;
    int queue = queue_number(&watch->order, columns[6]);
    if (queue < 0)
        return;
    struct watched_waiter waiter = {.request = strtoull(columns[0], NULL, 10),
                                    .server = strtoull(columns[2], NULL, 10),
                                    .place_us = number_or(columns[3], 0),
                                    .until_us = number_or(columns[5], 0),
                                    .semaphore = (unsigned)queue,
                                    .next_token = strtoull(columns[9], NULL, 10),
                                    .port = port_of(columns[10])};
    snprintf(waiter.key, sizeof(waiter.key), "%s", columns[1]);
    const struct watched_waiter *known = waiter_before(watch, &waiter);
    if (watch->now_count == watch->now_room) {
        watch->now_room = watch->now_room ? 2 * watch->now_room : 256;
        watch->now = realloc(watch->now, watch->now_room * sizeof(watch->now[0]));
        KIT_CHECK(watch->now);
    }
    watch->now[watch->now_count++] = waiter;
    if (known && known->place_us == waiter.place_us)
        return;
    struct place place = {.request = waiter.request,
                          .semaphore = waiter.semaphore,
                          .count = number_or(columns[7], 0),
                          .alone = !strcmp(columns[8], "1"),
                          .waited = true,
                          .place_us = waiter.place_us,
                          .since_us = number_or(columns[4], 0)};
    memcpy(place.key, waiter.key, sizeof(place.key));
    order_add_place(&watch->order, &place);
}

static void add_presence(struct queue_watch *watch, const struct watched_waiter *before,
                         const struct watched_waiter *now)
{
    struct presence presence = {.request = now->request,
                                .place_us = now->place_us,
                                .semaphore = now->semaphore,
                                .from_token = before->next_token,
                                .until_token = now->next_token,
                                .from_us = INT64_MIN,
                                .from_clock_us = before->from_clock_us,
                                .to_clock_us = now->to_clock_us,
                                .port = now->port,
                                .sample = watch->sample};
    memcpy(presence.key, now->key, sizeof(presence.key));
    order_add_presence(&watch->order, &presence);
}

static bool take_sample(struct queue_watch *watch, struct kit_sql *sql)
{
    int64_t from_clock_us = kit_now_us();
    watch->now_count = 0;
    watch->sample++;
    if (!kit_sql_try_each(
            sql,
            "SELECT r.id, r.external_id, r.server_id, " MICROSECONDS("r.place") ", " MICROSECONDS(
                "r.waiting_since") ", " MICROSECONDS("r.waiting_until") ", s.name, w.count, "
                                                                        "COUNT(*) OVER (PARTITION BY r.id), "
                                                                        "s.next_permit_id, v.address "
                                                                        "FROM waiter w JOIN permit_request r ON r.id = "
                                                                        "w.permit_request_id JOIN server v ON v.id = "
                                                                        "r.server_id JOIN cluster c ON c.id = 1 JOIN "
                                                                        "semaphore s ON s.id = w.semaphore_id WHERE "
                                                                        "r.state = 3 AND v.dead_at IS NULL AND v.ticks "
                                                                        "+ 4 > c.ticks",
            take_waiter, watch))
        return false;
    int64_t to_clock_us = kit_now_us();
    if (watch->now_count)
        qsort(watch->now, watch->now_count, sizeof(watch->now[0]), waiters_by_id);
    for (size_t i = 0; i < watch->now_count; i++) {
        struct watched_waiter *now = &watch->now[i];
        const struct watched_waiter *before = waiter_before(watch, now);
        now->from_clock_us = from_clock_us;
        now->to_clock_us = to_clock_us;
        if (before && before->server == now->server && before->place_us == now->place_us &&
            before->until_us == now->until_us && to_clock_us - before->from_clock_us < GAP_MAX_US)
            add_presence(watch, before, now);
    }
    return true;
}

static void next_sample(struct queue_watch *watch, bool good)
{
    free(watch->before);
    watch->before = good ? watch->now : NULL;
    watch->before_count = good ? watch->now_count : 0;
    if (!good)
        free(watch->now);
    watch->now = NULL;
    watch->now_room = watch->now_count = 0;
}

static struct kit_sql *try_session(const struct kit_database *database)
{
    struct kit_sql *sql = kit_sql_try_open(database->socket, "permitd");
    if (sql && (kit_sql_try(sql, "SET time_zone = '+00:00'") ||
                kit_sql_try(sql, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"))) {
        kit_sql_close(sql);
        sql = NULL;
    }
    return sql;
}

static void *watch_run(void *context)
{
    struct queue_watch *watch = context;
    struct kit_sql *sql = NULL;
    while (!atomic_load(&watch->stopping)) {
        if (!sql)
            sql = try_session(watch->database);
        bool good = sql && take_sample(watch, sql);
        next_sample(watch, good);
        watch->failures += !good;
        if (!good) {
            kit_sql_close(sql);
            sql = NULL;
        }
        kit_sleep_ms(watch->every_ms);
    }
    kit_sql_close(sql);
    return NULL;
}

void queue_watch_start(struct queue_watch *watch, const struct kit_database *database, const struct queue_facts *queues,
                       size_t queue_count, int every_ms)
{
    *watch = (struct queue_watch){
        .database = database, .every_ms = every_ms, .order = {.queues = queues, .queue_count = queue_count}};
    KIT_CHECK(!pthread_create(&watch->thread, NULL, watch_run, watch));
}

/* ---- the grants ---- */

/* Columns as in read_grants. A request that never waited stands where it would have stood at its grant. */
static void take_grant(void *context, char **columns)
{
    struct order *order = context;
    int queue = queue_number(order, columns[6]);
    if (queue < 0)
        return;
    int64_t granted_us = number_or(columns[5], 0);
    struct place place = {.request = strtoull(columns[0], NULL, 10),
                          .semaphore = (unsigned)queue,
                          .count = number_or(columns[8], 0),
                          .alone = !strcmp(columns[9], "1"),
                          .waited = columns[4] != NULL,
                          .place_us = number_or(columns[3], granted_us - number_or(columns[2], 0) * PRIORITY_STEP_US),
                          .since_us = number_or(columns[4], granted_us),
                          .token = strtoull(columns[7], NULL, 10),
                          .granted_us = granted_us};
    snprintf(place.key, sizeof(place.key), "%s", columns[1]);
    order_add_place(order, &place);
}

static void read_grants(struct kit_sql *sql, struct order *order)
{
    kit_sql_each(sql,
                 "SELECT r.id, r.external_id, r.priority, " MICROSECONDS("r.place") ", " MICROSECONDS(
                     "r.waiting_since") ", " MICROSECONDS("r.acquired_at") ", s.name, p.id, p.count, "
                                                                           "COUNT(*) OVER (PARTITION BY r.id) "
                                                                           "FROM permit p JOIN permit_request r ON "
                                                                           "r.id = p.permit_request_id "
                                                                           "JOIN semaphore s ON s.id = p.semaphore_id "
                                                                           "WHERE r.acquired_at IS NOT NULL",
                 take_grant, order);
}

/*
 * A waiter that was granted is in the list by its place and by its grant. The grant says all that the place said, so the
 * place is dropped; unless they differ, which check_places judges.
 */
static void drop_granted(struct order *order)
{
    size_t kept = 0;
    for (size_t i = 0; i < order->place_count; i++) {
        const struct place *place = &order->places[i];
        bool told_twice = false;
        for (size_t k = i + 1; k < order->place_count && order->places[k].request == place->request; k++)
            told_twice = told_twice ||
                         (order->places[k].semaphore == place->semaphore &&
                          order->places[k].place_us == place->place_us && order->places[k].since_us == place->since_us);
        if (!told_twice)
            order->places[kept++] = *place;
    }
    order->place_count = kept;
}

static int places_by_request(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->request != y->request)
        return x->request > y->request ? 1 : -1;
    return (x->token > 0) - (y->token > 0); /* the grant after the places */
}

struct order order_of_grants(const struct kit_database *database, const struct queue_facts *queues, size_t queue_count)
{
    struct order order = {.queues = queues, .queue_count = queue_count};
    struct kit_sql *sql = try_session(database);
    KIT_CHECK(sql);
    read_grants(sql, &order);
    kit_sql_close(sql);
    return order;
}

struct order queue_watch_stop(struct queue_watch *watch)
{
    atomic_store(&watch->stopping, true);
    pthread_join(watch->thread, NULL);
    struct kit_sql *sql = try_session(watch->database);
    KIT_CHECK(sql);
    read_grants(sql, &watch->order);
    kit_sql_close(sql);
    free(watch->before);
    free(watch->now);
    if (watch->order.place_count)
        qsort(watch->order.places, watch->order.place_count, sizeof(watch->order.places[0]), places_by_request);
    drop_granted(&watch->order);
    return watch->order;
}
