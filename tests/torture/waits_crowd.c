/* SPDX-License-Identifier: MIT */
/* A crowd on a few units: who is served when, how long units lie idle, what it costs. */
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

static struct cpu cpu_now(const struct site *site)
{
    return (struct cpu){process_cpu_us(site->permitd[0]->pid), process_cpu_us(site->database->pid)};
}

static void cpu_add_since(struct cpu *sum, const struct site *site, struct cpu start)
{
    struct cpu now = cpu_now(site);
    sum->permitd_us += now.permitd_us - start.permitd_us;
    sum->database_us += now.database_us - start.database_us;
}

/* ---- clients that find room ---- */

/* When one is served the next one comes, so that there are never more of them than units. */
static void next_comes(struct throng *throng, struct client *client)
{
    unsigned *next = throng->context;
    (void)client;
    if (*next < throng->count)
        throng_ask(throng, &throng->clients[(*next)++]);
}

static void set_all(struct throng *throng, const char *semaphore, const char *wait, unsigned rounds, unsigned hold_ms)
{
    for (unsigned i = 0; i < throng->count; i++) {
        struct client *client = &throng->clients[i];
        client->semaphore = semaphore;
        client->wait = wait;
        client->hold_ms = hold_ms;
        client->rounds = client->round + rounds;
    }
}

static void finish(struct throng *throng)
{
    if (!throng_run(throng, kit_now_us() + 5 * (int64_t)WAITS_LOST_MS * 1000))
        kit_fail("crowd: %u of %u clients are not done", throng->busy, throng->count);
    if (throng->gone || throng->failed)
        kit_fail("crowd: %u connections were closed, %u releases failed", throng->gone, throng->failed);
}

static struct cpu plain_run(struct site *site, struct throng *throng, const struct crowd_numbers *numbers)
{
    struct cpu sum = {0, 0}, start = cpu_now(site);
    unsigned next = 0;
    set_all(throng, "plain", NULL, 1, numbers->hold_ms);
    throng->context = &next;
    throng->done = next_comes;
    for (unsigned i = 0; i < numbers->capacity; i++)
        next_comes(throng, NULL);
    finish(throng);
    throng->done = NULL;
    cpu_add_since(&sum, site, start);
    return sum;
}

/* ---- the queue ---- */

/* The numbers of the clients that wait, in order; as many as there are clients. */
static unsigned *queue_order(const struct site *site, const struct throng *throng)
{
    unsigned *order = malloc(throng->count * sizeof(order[0]));
    struct kit_http http = kit_http(site->permitd[0]->port);
    char path[128], mark[64], *next = strdup("");
    size_t count = 0;
    KIT_CHECK(order && next);
    snprintf(mark, sizeof(mark), "{\"external_id\":\"%s-", throng->name);
    while (next) {
        struct reply reply;
        snprintf(path, sizeof(path), "/v1/semaphores/hot/waiters?limit=%d%s%s", KEYS_PAGE, *next ? "&after=" : "",
                 next);
        if (!kit_http_get(&http, path, &reply) || reply.status != 200)
            kit_fail("crowd: GET %s: %d %.300s", path, reply.status, reply.body);
        for (const char *at = reply.body; (at = strstr(at, mark)) && count < throng->count;)
            order[count++] = (unsigned)strtoul(at += strlen(mark), NULL, 10);
        free(next);
        next = kit_json_text(reply.body, "next");
        reply_release(&reply);
    }
    kit_http_close(&http);
    if (count != throng->count)
        kit_fail("crowd: /waiters shows %zu of %u", count, throng->count);
    return order;
}

/* ---- judging ---- */

static int by_token(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    return (x->token > y->token) - (x->token < y->token);
}

/* The turns from `from` on, all granted, in the order of their tokens; ends the process if one is not, or twice. */
static struct turn *turns_granted(const struct throng *throng, size_t from)
{
    size_t count = throng->turn_count - from;
    struct turn *turns = malloc(count * sizeof(turns[0]));
    KIT_CHECK(turns);
    memcpy(turns, throng->turns + from, count * sizeof(turns[0]));
    for (size_t i = 0; i < count; i++)
        if (turns[i].status != 201 || !turns[i].released_us)
            kit_fail("crowd: client %u was answered %d %s", turns[i].client, turns[i].status, turns[i].word);
    qsort(turns, count, sizeof(turns[0]), by_token);
    for (size_t i = 1; i < count; i++)
        if (turns[i].token == turns[i - 1].token)
            kit_fail("crowd: token %llu was given twice", (unsigned long long)turns[i].token);
    return turns;
}

static void check_order(const struct turn *turns, const unsigned *order, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (turns[i].client != order[i])
            kit_fail("crowd: the %zu. grant went to client %u, but client %u had that place in the queue", i + 1,
                     turns[i].client, order[i]);
}

/* Nobody whom permitd has not granted, and nobody twice. */
static void check_rows(struct site *site, const struct throng *throng, size_t granted)
{
    char message[MESSAGE_SIZE];
    int64_t rows =
        kit_sql_number(site->sql, "SELECT COUNT(*) FROM permit_request WHERE external_id LIKE '%s-%%'", throng->name);
    int64_t ended = kit_sql_number(site->sql,
                                   "SELECT COUNT(*) FROM permit_request WHERE external_id LIKE '%s-%%' AND "
                                   "end_reason = 1 AND replays = 0",
                                   throng->name);
    if (rows != (int64_t)granted || ended != rows)
        kit_fail("crowd: %zu grants, %lld rows, %lld of them released once", granted, (long long)rows,
                 (long long)ended);
    if (!rows_check(site->sql, message) || !rows_check_past(site->sql, message))
        kit_fail("crowd: %s", message);
}

/* By the turns in the order of tokens. */
static void slots_seen(const struct turn *turns, size_t count, unsigned capacity, struct spread *seen,
                       struct spread *handed)
{
    const struct turn **last = calloc(capacity + 1, sizeof(last[0]));
    KIT_CHECK(last);
    for (size_t i = 0; i < count; i++) {
        const struct turn *turn = &turns[i];
        KIT_CHECK(turn->slot >= 1 && turn->slot <= capacity);
        const struct turn *before = last[turn->slot];
        if (before && turn->asked_us < before->releasing_us) {
            spread_add(seen, turn->answered_us - before->released_us);
            spread_add(handed, turn->answered_us - before->releasing_us);
        }
        last[turn->slot] = turn;
    }
    free(last);
}

/* From the end of one permit on a slot to the grant of the next; tokens from `from` on. */
static struct spread slots_rows(struct site *site, uint64_t from)
{
    char statement[QUERY_SIZE];
    snprintf(statement, sizeof(statement),
             "SELECT us FROM (SELECT TIMESTAMPDIFF(MICROSECOND, LAG(r.ended_at) OVER (PARTITION BY p.slots ORDER BY "
             "p.id), r.acquired_at) AS us FROM permit p JOIN permit_request r ON r.id = p.permit_request_id JOIN "
             "semaphore s ON s.id = p.semaphore_id WHERE s.name = 'hot' AND p.count = 1 AND p.id >= %llu) x "
             "WHERE us IS NOT NULL",
             (unsigned long long)from);
    return spread_read(site->sql, statement);
}

/* The largest lead of somebody who had asked earlier and was granted later. */
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

static void blocker_call(struct site *site, bool acquires, unsigned units)
{
    struct kit_http http = kit_http(site->permitd[0]->port);
    struct reply reply = {.status = 0};
    int status = acquires ? site_acquire(&http, "blocker", "hot", units, "1h", &reply) : site_release(&http, "blocker");
    if (status != (acquires ? 201 : 200))
        kit_fail("crowd: the first holder: %d", status);
    reply_release(&reply);
    kit_http_close(&http);
}

/* Everybody waits; then the units are let go. What the list of the queue costs is not counted. */
static struct cpu once_run(struct site *site, struct throng *throng, const struct crowd_numbers *numbers,
                           struct crowd_figures *figures)
{
    struct cpu sum = {0, 0};
    size_t from = throng->turn_count;
    blocker_call(site, true, numbers->capacity);
    set_all(throng, "hot", "10m", 1, numbers->hold_ms);
    struct cpu start = cpu_now(site);
    throng_ask_all(throng);
    site_await_waiting(site, "hot", throng->count, WAITS_LOST_MS);
    cpu_add_since(&sum, site, start);
    unsigned *order = queue_order(site, throng);
    start = cpu_now(site);
    blocker_call(site, false, numbers->capacity);
    finish(throng);
    cpu_add_since(&sum, site, start);

    struct turn *turns = turns_granted(throng, from);
    check_order(turns, order, throng->count);
    slots_seen(turns, throng->count, numbers->capacity, &figures->idle_seen, &figures->handed);
    for (unsigned i = 0; i < throng->count; i++)
        spread_add(&figures->waited, turns[i].answered_us - turns[i].asked_us);
    figures->idle_rows = slots_rows(site, turns[0].token);
    figures->seconds = seconds_of(turns, throng->count);
    free(turns);
    free(order);
    return sum;
}

static struct cpu steady_run(struct site *site, struct throng *throng, const struct crowd_numbers *numbers,
                             struct crowd_figures *figures)
{
    struct cpu sum = {0, 0};
    size_t from = throng->turn_count;
    set_all(throng, "hot", "10m", numbers->rounds, numbers->hold_ms);
    struct cpu start = cpu_now(site);
    throng_ask_all(throng);
    finish(throng);
    cpu_add_since(&sum, site, start);

    size_t count = throng->turn_count - from;
    struct turn *turns = turns_granted(throng, from);
    slots_seen(turns, count, numbers->capacity, &figures->steady_seen, &figures->steady_handed);
    figures->steady_rows = slots_rows(site, turns[0].token);
    figures->passed_us = largest_pass_us(turns, count);
    figures->steady_seconds = seconds_of(turns, count);
    free(turns);
    return sum;
}

static void measure_all(struct site *site, struct throng *throng, const struct crowd_numbers *numbers,
                        struct crowd_figures *figures)
{
    double clients = numbers->clients, steady = clients * numbers->rounds;
    struct cpu plain = plain_run(site, throng, numbers);
    struct cpu once = once_run(site, throng, numbers, figures);
    struct cpu again = steady_run(site, throng, numbers, figures);
    figures->plain_permitd_us = (double)plain.permitd_us / clients;
    figures->plain_database_us = (double)plain.database_us / clients;
    figures->permitd_us = (double)once.permitd_us / clients;
    figures->database_us = (double)once.database_us / clients;
    figures->steady_permitd_us = (double)again.permitd_us / steady;
    figures->steady_database_us = (double)again.database_us / steady;
    check_rows(site, throng, throng->turn_count);
}

void crowd_measure(const struct crowd_numbers *numbers, struct crowd_figures *ret_figures)
{
    struct site site = site_start(1, false);
    char body[64];
    *ret_figures = (struct crowd_figures){.seconds = 0};
    snprintf(body, sizeof(body), "{\"capacity\":%u}", numbers->capacity);
    site_semaphore(&site, "hot", body);
    site_semaphore(&site, "plain", body);
    struct throng *throng = throng_open("crowd", site.permitd[0]->port, numbers->clients);
    measure_all(&site, throng, numbers, ret_figures);
    throng_close(throng);
    site_stop(&site);
}

void crowd_release(struct crowd_figures *figures)
{
    struct spread *spreads[] = {&figures->idle_rows,   &figures->idle_seen,   &figures->handed,       &figures->waited,
                                &figures->steady_rows, &figures->steady_seen, &figures->steady_handed};
    for (size_t i = 0; i < sizeof(spreads) / sizeof(spreads[0]); i++)
        spread_release(spreads[i]);
}
