/* SPDX-License-Identifier: MIT */
/* One client wants 5 of 8 units, again and again, among many clients that want one. */
#include "waits.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 1000000, QUERY_SIZE = 1024, BODY_SIZE = 128 };

/* A permit as in its row; sorted by token. */
struct held {
    uint64_t token;
    unsigned count;
    int64_t from_us, to_us;
};

struct stream {
    const struct wide_numbers *numbers;
    struct fixture fixture;
    struct client_pool *client_pool;
    struct client *wide;
    int64_t start_us, end_us;           /* the measured window, on our clock */
    int64_t start_wall_us, end_wall_us; /* the same on the database's clock */
    struct held *held;
    size_t held_count, held_room;
};

/* ---- the stream ---- */

static void set_clients(struct stream *stream)
{
    const struct wide_numbers *numbers = stream->numbers;
    for (unsigned i = 0; i < stream->client_pool->count; i++) {
        struct client *client = &stream->client_pool->clients[i];
        client->semaphore = "eight";
        client->wait = "10m";
        client->rounds = ROUNDS;
        client->hold_ms = numbers->hold_ms;
    }
    stream->wide->count = numbers->count;
}

/* All clients ask again as soon as they are served; at the end they stop, and all are served. */
static void stream_run(struct stream *stream)
{
    struct client_pool *client_pool = stream->client_pool;
    set_clients(stream);
    client_pool_ask_all(client_pool);
    client_pool_run(client_pool, kit_now_us() + 2 * (int64_t)stream->numbers->hold_ms * 1000);
    stream->start_us = kit_now_us();
    stream->start_wall_us = fixture_clock_us(&stream->fixture);
    client_pool_run(client_pool, stream->start_us + (int64_t)stream->numbers->seconds * 1000000);
    stream->end_us = kit_now_us();
    stream->end_wall_us = fixture_clock_us(&stream->fixture);
    for (unsigned i = 0; i < client_pool->count; i++)
        client_pool->clients[i].rounds = 0;
    if (!client_pool_run(client_pool, kit_now_us() + (int64_t)WAITS_LOST_MS * 1000))
        kit_fail("wide: %u clients are not served", client_pool->busy);
    if (client_pool->gone || client_pool->failed ||
        client_pool_count(client_pool, 201, NULL) != client_pool->turn_count)
        kit_fail("wide: %u connections closed, %u releases failed, %zu of %zu turns granted", client_pool->gone,
                 client_pool->failed, client_pool_count(client_pool, 201, NULL), client_pool->turn_count);
}

/* ---- the rows ---- */

static void take_held(void *context, char **columns)
{
    struct stream *stream = context;
    if (stream->held_count == stream->held_room) {
        stream->held_room = stream->held_room ? 2 * stream->held_room : 1024;
        stream->held = realloc(stream->held, stream->held_room * sizeof(stream->held[0]));
        KIT_CHECK(stream->held);
    }
    stream->held[stream->held_count++] =
        (struct held){strtoull(columns[0], NULL, 10), (unsigned)strtoul(columns[1], NULL, 10),
                      strtoll(columns[2], NULL, 10), strtoll(columns[3], NULL, 10)};
}

static void read_held(struct stream *stream)
{
    kit_sql_each(stream->fixture.sql,
                 "SELECT p.id, p.count, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', r.acquired_at), "
                 "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', r.ended_at) FROM permit p JOIN permit_request r "
                 "ON r.id = p.permit_request_id ORDER BY p.id",
                 take_held, stream);
}

/* The overlap of two intervals. */
static int64_t overlap(int64_t from, int64_t to, int64_t start, int64_t end)
{
    from = from > start ? from : start;
    to = to < end ? to : end;
    return to > from ? to - from : 0;
}

static double used_rows(const struct stream *stream)
{
    int64_t sum = 0, start = stream->start_wall_us, end = stream->end_wall_us;
    for (size_t i = 0; i < stream->held_count; i++)
        sum += stream->held[i].count * overlap(stream->held[i].from_us, stream->held[i].to_us, start, end);
    return (double)sum / (double)(end - start) / stream->numbers->capacity;
}

static double used_seen(const struct stream *stream)
{
    int64_t sum = 0, start = stream->start_us, end = stream->end_us;
    for (size_t i = 0; i < stream->client_pool->turn_count; i++) {
        const struct turn *turn = &stream->client_pool->turns[i];
        sum += stream->client_pool->clients[turn->client].count *
               overlap(turn->answered_us, turn->releasing_us, start, end);
    }
    return (double)sum / (double)(end - start) / stream->numbers->capacity;
}

static int by_end_descending(const void *a, const void *b)
{
    const struct held *x = a, *y = b;
    return (x->to_us < y->to_us) - (x->to_us > y->to_us);
}

/*
 * The time at which the wide permit `at` could be granted: the last grant before it, or, if later, the time at which
 * the permits granted before left enough units free.
 */
static int64_t grantable_since_us(const struct stream *stream, size_t at)
{
    struct held *before = malloc((at + 1) * sizeof(before[0]));
    int64_t came_us = 0;
    unsigned held = 0, leaves = stream->numbers->capacity - stream->numbers->count;
    KIT_CHECK(before);
    for (size_t i = 0; i < at; i++) {
        before[i] = stream->held[i];
        came_us = before[i].from_us > came_us ? before[i].from_us : came_us;
    }
    qsort(before, at, sizeof(before[0]), by_end_descending);
    for (size_t i = 0; i < at && held <= leaves; i++) {
        held += before[i].count;
        if (held > leaves && before[i].to_us > came_us)
            came_us = before[i].to_us;
    }
    free(before);
    return came_us;
}

/* The number of grants to requests that arrived after the wide one and were granted before it. */
static size_t passed_by(const struct stream *stream, const struct turn *wide)
{
    size_t count = 0;
    for (size_t i = 0; i < stream->client_pool->turn_count; i++) {
        const struct turn *turn = &stream->client_pool->turns[i];
        count += turn->asked_us > wide->asked_us && turn->token < wide->token;
    }
    return count;
}

static void judge_wide(const struct stream *stream, struct wide_figures *figures)
{
    const struct client_pool *client_pool = stream->client_pool;
    for (size_t i = 0; i < client_pool->turn_count; i++) {
        const struct turn *turn = &client_pool->turns[i];
        if (turn->client != stream->wide->number)
            continue;
        duration_set_add(&figures->waited, turn->answered_us - turn->asked_us);
        figures->passed += passed_by(stream, turn);
    }
    for (size_t i = 0; i < stream->held_count; i++)
        if (stream->held[i].count > 1)
            duration_set_add(&figures->late, stream->held[i].from_us - grantable_since_us(stream, i));
}

/* The largest age difference between a client and a younger one granted before it. */
static int64_t largest_pass_us(const struct stream *stream)
{
    const struct client_pool *client_pool = stream->client_pool;
    int64_t most = 0;
    for (size_t i = 0; i < client_pool->turn_count; i++)
        for (size_t k = i + 1; k < client_pool->turn_count; k++)
            if (client_pool->turns[k].token < client_pool->turns[i].token &&
                client_pool->turns[k].asked_us - client_pool->turns[i].asked_us > most)
                most = client_pool->turns[k].asked_us - client_pool->turns[i].asked_us;
    return most;
}

void wide_measure(const struct wide_numbers *numbers, struct wide_figures *ret_figures)
{
    char bound[32], body[BODY_SIZE], message[MESSAGE_SIZE];
    const char *const flags[] = {"--backfill-bound", bound, NULL};
    snprintf(bound, sizeof(bound), "%ums", numbers->bound_ms);
    snprintf(body, sizeof(body), "{\"capacity\":%u,\"queue\":\"%s\"}", numbers->capacity,
             numbers->fifo ? "fifo" : "backfill");
    struct stream stream = {.numbers = numbers, .fixture = fixture_start_with(1, flags)};
    fixture_semaphore(&stream.fixture, "eight", body);
    stream.client_pool = client_pool_open("wide", stream.fixture.permitd[0]->port, numbers->clients + 1);
    stream.wide = &stream.client_pool->clients[numbers->clients / 2];

    stream_run(&stream);
    read_held(&stream);
    *ret_figures = (struct wide_figures){.used_rows = used_rows(&stream), .used_seen = used_seen(&stream)};
    judge_wide(&stream, ret_figures);
    ret_figures->passed_us = largest_pass_us(&stream);
    if (!rows_check(stream.fixture.sql, message) || !rows_check_past(stream.fixture.sql, message))
        kit_fail("wide: %s", message);
    free(stream.held);
    client_pool_close(stream.client_pool);
    fixture_stop(&stream.fixture);
}

void wide_release(struct wide_figures *figures)
{
    duration_set_release(&figures->waited);
    duration_set_release(&figures->late);
}
