/* SPDX-License-Identifier: MIT */
/* Many clients on a few units: order, idle time of units, CPU cost. */
#include "measure.h"
#include "waits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_PAGE = 1000, QUERY_SIZE = 1024 };

/* ---- CPU ---- */

struct cpu {
    int64_t permitd_us, database_us;
};

static struct cpu cpu_now(const struct fixture *fixture)
{
    struct cpu sum = {0, process_cpu_us(fixture->database->pid)};
    for (size_t i = 0; i < fixture->count; i++)
        sum.permitd_us += process_cpu_us(fixture->permitd[i]->pid);
    return sum;
}

static void cpu_add_since(struct cpu *sum, const struct fixture *fixture, struct cpu start)
{
    struct cpu now = cpu_now(fixture);
    sum->permitd_us += now.permitd_us - start.permitd_us;
    sum->database_us += now.database_us - start.database_us;
}

/* ---- clients that need not wait ---- */

/* Starts the next client when one is finished, so there are never more of them than units. */
static void start_next_client(struct client_pool *client_pool, struct client *client)
{
    unsigned *next = client_pool->context;
    (void)client;
    if (*next < client_pool->count)
        client_pool_ask(client_pool, &client_pool->clients[(*next)++]);
}

static void set_all(struct client_pool *client_pool, const char *semaphore, const char *wait, unsigned rounds,
                    unsigned hold_ms)
{
    for (unsigned i = 0; i < client_pool->count; i++) {
        struct client *client = &client_pool->clients[i];
        client->semaphore = semaphore;
        client->wait = wait;
        client->hold_ms = hold_ms;
        client->rounds = client->round + rounds;
    }
}

static void finish(struct client_pool *client_pool)
{
    if (!client_pool_run(client_pool, kit_now_us() + 5 * (int64_t)WAITS_LOST_MS * 1000))
        kit_fail("crowd: %u of %u clients are not done", client_pool->busy, client_pool->count);
    if (client_pool->gone || client_pool->failed)
        kit_fail("crowd: %u connections were closed, %u releases failed", client_pool->gone, client_pool->failed);
}

static struct cpu plain_run(struct fixture *fixture, struct client_pool *client_pool,
                            const struct crowd_numbers *numbers)
{
    struct cpu sum = {0, 0}, start = cpu_now(fixture);
    unsigned next = 0;
    set_all(client_pool, "plain", NULL, 1, numbers->hold_ms);
    client_pool->context = &next;
    client_pool->done = start_next_client;
    for (unsigned i = 0; i < numbers->capacity; i++)
        start_next_client(client_pool, NULL);
    finish(client_pool);
    client_pool->done = NULL;
    cpu_add_since(&sum, fixture, start);
    return sum;
}

/* ---- the waitlist ---- */

/* The numbers of the waiting clients, in order; as many as there are clients. */
static unsigned *queue_order(const struct fixture *fixture, const struct client_pool *client_pool)
{
    unsigned *order = malloc(client_pool->count * sizeof(order[0]));
    struct kit_http http = kit_http(fixture->permitd[0]->port);
    char path[128], mark[64], *next = strdup("");
    size_t count = 0;
    KIT_CHECK(order && next);
    snprintf(mark, sizeof(mark), "{\"external_id\":\"%s-", client_pool->name);
    while (next) {
        struct reply reply;
        snprintf(path, sizeof(path), "/v1/semaphores/hot/waiters?limit=%d%s%s", KEYS_PAGE, *next ? "&after=" : "",
                 next);
        if (!kit_http_get(&http, path, &reply) || reply.status != 200)
            kit_fail("crowd: GET %s: %d %.300s", path, reply.status, reply.body);
        for (const char *at = reply.body; (at = strstr(at, mark)) && count < client_pool->count;)
            order[count++] = (unsigned)strtoul(at += strlen(mark), NULL, 10);
        free(next);
        next = kit_json_text(reply.body, "next");
        reply_release(&reply);
    }
    kit_http_close(&http);
    if (count != client_pool->count)
        kit_fail("crowd: /waiters shows %zu of %u", count, client_pool->count);
    return order;
}

/* ---- judging ---- */

static int by_token(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    return (x->token > y->token) - (x->token < y->token);
}

/*
 * The turns from `from` on, in the order of their tokens. Ends the process if one is not granted or a token occurs
 * twice.
 */
static struct turn *turns_granted(const struct client_pool *client_pool, size_t from)
{
    size_t count = client_pool->turn_count - from;
    struct turn *turns = malloc(count * sizeof(turns[0]));
    KIT_CHECK(turns);
    memcpy(turns, client_pool->turns + from, count * sizeof(turns[0]));
    for (size_t i = 0; i < count; i++)
        if (turns[i].status != 201 || !turns[i].released_us)
            kit_fail("crowd: client %u was answered %d %s", turns[i].client, turns[i].status, turns[i].word);
    qsort(turns, count, sizeof(turns[0]), by_token);
    for (size_t i = 1; i < count; i++)
        if (turns[i].token == turns[i - 1].token)
            kit_fail("crowd: token %llu was given twice", (unsigned long long)turns[i].token);
    return turns;
}

static void check_queue(const struct turn *turns, const unsigned *order, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (turns[i].client != order[i])
            kit_fail("crowd: the %zu. grant went to client %u, but client %u had that place in the queue", i + 1,
                     turns[i].client, order[i]);
}

/* Checks that the rows have exactly the granted requests, each once. */
static void check_rows(struct fixture *fixture, const struct client_pool *client_pool, size_t granted)
{
    char message[MESSAGE_SIZE];
    int64_t rows = kit_sql_number(fixture->sql, "SELECT COUNT(*) FROM permit_request WHERE external_id LIKE '%s-%%'",
                                  client_pool->name);
    int64_t ended = kit_sql_number(fixture->sql,
                                   "SELECT COUNT(*) FROM permit_request WHERE external_id LIKE '%s-%%' AND "
                                   "end_reason = 1 AND replays = 0",
                                   client_pool->name);
    if (rows != (int64_t)granted || ended != rows)
        kit_fail("crowd: %zu grants, %lld rows, %lld of them released once", granted, (long long)rows,
                 (long long)ended);
    if (!rows_check(fixture->sql, message) || !rows_check_past(fixture->sql, message))
        kit_fail("crowd: %s", message);
}

/* By the turns, sorted by token. */
static void slots_seen(const struct turn *turns, size_t count, unsigned capacity, struct duration_set *seen,
                       struct duration_set *handed)
{
    const struct turn **last = calloc(capacity + 1, sizeof(last[0]));
    KIT_CHECK(last);
    for (size_t i = 0; i < count; i++) {
        const struct turn *turn = &turns[i];
        KIT_CHECK(turn->slot >= 1 && turn->slot <= capacity);
        const struct turn *before = last[turn->slot];
        if (before && turn->asked_us < before->releasing_us) {
            duration_set_add(seen, turn->answered_us - before->released_us);
            duration_set_add(handed, turn->answered_us - before->releasing_us);
        }
        last[turn->slot] = turn;
    }
    free(last);
}

/* From the end of a permit on a slot to the grant of the next; tokens from `from` on. */
static struct duration_set slots_rows(struct fixture *fixture, uint64_t from)
{
    char statement[QUERY_SIZE];
    snprintf(statement, sizeof(statement),
             "SELECT us FROM (SELECT TIMESTAMPDIFF(MICROSECOND, LAG(r.ended_at) OVER (PARTITION BY p.slots ORDER BY "
             "p.id), r.acquired_at) AS us FROM permit p JOIN permit_request r ON r.id = p.permit_request_id JOIN "
             "semaphore s ON s.id = p.semaphore_id WHERE s.name = 'hot' AND p.count = 1 AND p.id >= %llu) x "
             "WHERE us IS NOT NULL",
             (unsigned long long)from);
    return duration_set_read(fixture->sql, statement);
}

/* The largest age difference between a client and a younger one granted before it. */
static int64_t largest_pass_us(const struct turn *turns, size_t count)
{
    int64_t latest = 0, most = 0;
    for (size_t i = 0; i < count; i++) {
        most = latest - turns[i].asked_us > most ? latest - turns[i].asked_us : most;
        latest = turns[i].asked_us > latest ? turns[i].asked_us : latest;
    }
    return most;
}

static double seconds_of(const struct turn *turns, size_t count)
{
    return (double)(turns[count - 1].answered_us - turns[0].answered_us) / 1e6;
}

/* ---- the two halves ---- */

static void blocker_call(struct fixture *fixture, bool acquires, unsigned units)
{
    struct kit_http http = kit_http(fixture->permitd[0]->port);
    struct reply reply = {.status = 0};
    int status =
        acquires ? fixture_acquire(&http, "blocker", "hot", units, "1h", &reply) : fixture_release(&http, "blocker");
    if (status != (acquires ? 201 : 200))
        kit_fail("crowd: the first holder: %d", status);
    reply_release(&reply);
    kit_http_close(&http);
}

/* All clients wait, then the units are released. The cost of reading the waitlist is not counted. */
static struct cpu once_run(struct fixture *fixture, struct client_pool *client_pool,
                           const struct crowd_numbers *numbers, struct crowd_figures *figures)
{
    struct cpu sum = {0, 0};
    size_t from = client_pool->turn_count;
    blocker_call(fixture, true, numbers->capacity);
    set_all(client_pool, "hot", "10m", 1, numbers->hold_ms);
    struct cpu start = cpu_now(fixture);
    client_pool_ask_all(client_pool);
    fixture_await_waiting(fixture, "hot", client_pool->count, WAITS_LOST_MS);
    cpu_add_since(&sum, fixture, start);
    unsigned *order = queue_order(fixture, client_pool);
    start = cpu_now(fixture);
    blocker_call(fixture, false, numbers->capacity);
    finish(client_pool);
    cpu_add_since(&sum, fixture, start);

    struct turn *turns = turns_granted(client_pool, from);
    check_queue(turns, order, client_pool->count);
    slots_seen(turns, client_pool->count, numbers->capacity, &figures->idle_seen, &figures->handed);
    for (unsigned i = 0; i < client_pool->count; i++)
        duration_set_add(&figures->waited, turns[i].answered_us - turns[i].asked_us);
    figures->idle_rows = slots_rows(fixture, turns[0].token);
    figures->seconds = seconds_of(turns, client_pool->count);
    free(turns);
    free(order);
    return sum;
}

static struct cpu steady_run(struct fixture *fixture, struct client_pool *client_pool,
                             const struct crowd_numbers *numbers, struct crowd_figures *figures)
{
    struct cpu sum = {0, 0};
    size_t from = client_pool->turn_count;
    set_all(client_pool, "hot", "10m", numbers->rounds, numbers->hold_ms);
    struct cpu start = cpu_now(fixture);
    client_pool_ask_all(client_pool);
    finish(client_pool);
    cpu_add_since(&sum, fixture, start);

    size_t count = client_pool->turn_count - from;
    struct turn *turns = turns_granted(client_pool, from);
    slots_seen(turns, count, numbers->capacity, &figures->steady_seen, &figures->steady_handed);
    figures->steady_rows = slots_rows(fixture, turns[0].token);
    figures->passed_us = largest_pass_us(turns, count);
    figures->steady_seconds = seconds_of(turns, count);
    free(turns);
    return sum;
}

static void measure_all(struct fixture *fixture, struct client_pool *client_pool, const struct crowd_numbers *numbers,
                        struct crowd_figures *figures)
{
    double clients = numbers->clients, steady = clients * (numbers->rounds ? numbers->rounds : 1);
    struct cpu plain = plain_run(fixture, client_pool, numbers);
    struct cpu once = once_run(fixture, client_pool, numbers, figures);
    struct cpu again = {0, 0};
    if (numbers->rounds)
        again = steady_run(fixture, client_pool, numbers, figures);
    figures->plain_permitd_us = (double)plain.permitd_us / clients;
    figures->plain_database_us = (double)plain.database_us / clients;
    figures->permitd_us = (double)once.permitd_us / clients;
    figures->database_us = (double)once.database_us / clients;
    figures->steady_permitd_us = (double)again.permitd_us / steady;
    figures->steady_database_us = (double)again.database_us / steady;
    check_rows(fixture, client_pool, client_pool->turn_count);
}

void crowd_measure(const struct crowd_numbers *numbers, struct crowd_figures *ret_figures)
{
    size_t permitds = numbers->permitds ? numbers->permitds : 1;
    struct fixture fixture = fixture_start(permitds, false);
    unsigned ports[PERMITD_MAX];
    char body[64];
    *ret_figures = (struct crowd_figures){.seconds = 0};
    snprintf(body, sizeof(body), "{\"capacity\":%u}", numbers->capacity);
    fixture_semaphore(&fixture, "hot", body);
    fixture_semaphore(&fixture, "plain", body);
    for (size_t i = 0; i < permitds; i++)
        ports[i] = fixture.permitd[i]->port;
    struct client_pool *client_pool = client_pool_open_at("crowd", ports, permitds, numbers->clients);
    measure_all(&fixture, client_pool, numbers, ret_figures);
    client_pool_close(client_pool);
    fixture_stop(&fixture);
}

void crowd_release(struct crowd_figures *figures)
{
    struct duration_set *spreads[] = {&figures->idle_rows,    &figures->idle_seen,   &figures->handed,
                                      &figures->waited,       &figures->steady_rows, &figures->steady_seen,
                                      &figures->steady_handed};
    for (size_t i = 0; i < sizeof(spreads) / sizeof(spreads[0]); i++)
        duration_set_release(spreads[i]);
}
