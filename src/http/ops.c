/* SPDX-License-Identifier: MIT */
/* For whoever runs permitd: alive, ready, metrics, the description of the API. */
#include "base/clock.h"
#include "http/look.h"
#include "http/openapi.h"
#include "http/problem.h"
#include "http/routes.h"
#include "http/server.h"
#include "http/service.h"
#include "http/write.h"
#include "store/owners.h"

static void append_member(struct buf *out, const char *name, int64_t number)
{
    buf_append_text(out, ",\"");
    buf_append_text(out, name);
    buf_append_text(out, "\":");
    buf_append_i64(out, number);
}

/* The process is alive; says nothing of the database. Also how long a key is remembered. */
bool ops_health(struct exchange *exchange)
{
    const struct service *service = exchange->service;
    struct buf *out = &exchange->answer.body;
    buf_append_text(out, "{\"status\":\"ok\",\"version\":\"" PERMIT_VERSION "\"");
    append_member(out, "uptime_ms", (clock_mono() - service->started_at) / US_PER_MS);
    append_member(out, "retention_ms", service->retention_ms);
    append_member(out, "retention_rows", service->retention_rows);
    append_member(out, "tombstone_ms", service->tombstone_ms);
    append_member(out, "max_wait_ms", service->max_wait_ms);
    write_member_text(out, "database", bytes_of(service->database));
    buf_append_char(out, '}');
    return true;
}

static void ready_work(struct look *look, struct session *session, enum permit_status status)
{
    struct exchange *exchange = look_exchange(look);
    char refusal[STORE_MESSAGE_SIZE];
    struct query_time time;
    if (status == PERMIT_OK)
        status = query_clock(session, &time);
    if (engine_refusal(exchange->service->engine, refusal))
        problem_answer(exchange, PERMIT_DATABASE_UNAVAILABLE, refusal);
    else if (status == PERMIT_OK)
        buf_append_text(&exchange->answer.body, "{\"status\":\"ready\"}");
    else
        problem_answer(exchange, PERMIT_DATABASE_UNAVAILABLE, session ? session_message(session) : NULL);
    exchange_finish(exchange);
}

/* Can serve: the database is reachable, with our tables, and, as far as the engine has looked, safe (P14). */
bool ops_ready(struct exchange *exchange)
{
    return look_submit_always(exchange, LOOK_PROBE, ready_work, NULL);
}

/* ---- metrics ---- */

/* Label values escape what Prometheus wants escaped; names have neither quote, backslash nor line end (name.h). */
static void append_gauge(struct buf *out, const char *metric, struct bytes semaphore, int64_t value)
{
    buf_append_text(out, metric);
    buf_append_text(out, "{semaphore=\"");
    buf_append(out, semaphore.data, semaphore.length);
    buf_append_text(out, "\"} ");
    buf_append_i64(out, value);
    buf_append_char(out, '\n');
}

static void append_head(struct buf *out, const char *metric, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", metric, help, metric, type);
}

static int64_t capacity_of(struct engine *engine, const struct semaphore *semaphore)
{
    (void)engine;
    return semaphore->capacity;
}

static int64_t in_use_of(struct engine *engine, const struct semaphore *semaphore)
{
    (void)engine;
    return semaphore->in_use;
}

static int64_t waiting_of(struct engine *engine, const struct semaphore *semaphore)
{
    return (int64_t)engine_waiting(engine, semaphore->name).count;
}

static const struct {
    const char *metric;
    const char *help;
    int64_t (*value)(struct engine *engine, const struct semaphore *semaphore);
} semaphore_gauges[] = {
    {"permitd_semaphore_capacity", "Units of the semaphore.", capacity_of},
    {"permitd_semaphore_in_use", "Units held.", in_use_of},
    {"permitd_semaphore_waiting", "Requests waiting in this process.", waiting_of},
};

static void append_semaphores(struct buf *out, struct engine *engine, const struct semaphore_row *rows, size_t count)
{
    for (size_t g = 0; g < ARRAY_LENGTH(semaphore_gauges); g++) {
        append_head(out, semaphore_gauges[g].metric, "gauge", semaphore_gauges[g].help);
        for (size_t i = 0; i < count; i++)
            append_gauge(out, semaphore_gauges[g].metric, rows[i].semaphore.name,
                         semaphore_gauges[g].value(engine, &rows[i].semaphore));
    }
}

static void append_sums(struct buf *out, const struct semaphore_sums *sums)
{
    append_head(out, "permitd_semaphores", "gauge", "Semaphores in service.");
    buf_printf(out, "permitd_semaphores %lld\n", (long long)sums->count);
    append_head(out, "permitd_semaphores_capacity", "gauge", "Units of all semaphores together.");
    buf_printf(out, "permitd_semaphores_capacity %lld\n", (long long)sums->capacity);
    append_head(out, "permitd_semaphores_in_use", "gauge", "Units held of all semaphores together.");
    buf_printf(out, "permitd_semaphores_in_use %lld\n", (long long)sums->in_use);
}

/*
 * "At most metrics_semaphores, then only sums": a scrape must stay small, and some of many would mislead. The same if
 * so many names are out of service that one call does not pass them all.
 */
static void append_all_semaphores(struct exchange *exchange, struct session *session)
{
    unsigned limit = exchange->service->metrics_semaphores;
    struct buf *out = &exchange->answer.body;
    struct semaphore_row *rows;
    struct bytes following;
    size_t count;
    struct query_time time;
    struct semaphore_sums sums = {0};
    if (query_semaphore_sums(session, &sums) != PERMIT_OK)
        return;
    append_sums(out, &sums);
    if (sums.count <= (int64_t)limit &&
        query_semaphores(session, (struct bytes){0}, (struct bytes){0}, limit, &exchange->arena, &rows, &count,
                         &following, &time) == PERMIT_OK &&
        !following.data)
        append_semaphores(out, exchange->service->engine, rows, count);
}

static void append_owners(struct buf *out, struct session *session)
{
    uint64_t counts[OWNER_LIFE_COUNT];
    if (owners_count(session, counts) != PERMIT_OK)
        return;
    append_head(out, "permitd_owners", "gauge",
                "Owners that have sent heartbeats or were found dead by the liveness probe.");
    for (enum owner_life life = 0; life < OWNER_LIFE_COUNT; life++)
        buf_printf(out, "permitd_owners{state=\"%s\"} %llu\n", owner_life_word(life), (unsigned long long)counts[life]);
}

static void append_waiting(struct buf *out, struct waiting waiting)
{
    append_head(out, "permitd_waiting", "gauge", "Requests waiting in this process, for any semaphore.");
    buf_printf(out, "permitd_waiting %zu\n", waiting.count);
    append_head(out, "permitd_oldest_wait_seconds", "gauge", "Age of the oldest wait.");
    buf_printf(out, "permitd_oldest_wait_seconds %.3f\n", (double)waiting.oldest_ms / (double)MS_PER_SECOND);
}

static void append_server(struct buf *out, const struct server_counts *counts)
{
    append_head(out, "permitd_http_connections", "gauge", "Client connections open.");
    buf_printf(out, "permitd_http_connections %llu\n", (unsigned long long)counts->connections);
    append_head(out, "permitd_http_connections_total", "counter", "Client connections accepted.");
    buf_printf(out, "permitd_http_connections_total %llu\n", (unsigned long long)counts->accepted);
    append_head(out, "permitd_http_full_total", "counter",
                "Times that accepting stopped at max_connections because no connection was idle.");
    buf_printf(out, "permitd_http_full_total %llu\n", (unsigned long long)counts->full);
    append_head(out, "permitd_http_yielded_total", "counter", "Idle connections closed to accept a new one.");
    buf_printf(out, "permitd_http_yielded_total %llu\n", (unsigned long long)counts->yielded);
    append_head(out, "permitd_http_crowded_total", "counter",
                "Connections refused with 429 (max_connections_per_address).");
    buf_printf(out, "permitd_http_crowded_total %llu\n", (unsigned long long)counts->crowded);
    append_head(out, "permitd_http_buffered_bytes", "gauge", "Memory of requests and answers, small pieces excluded.");
    buf_printf(out, "permitd_http_buffered_bytes %llu\n", (unsigned long long)counts->buffered);
    append_head(out, "permitd_http_memory_refused_total", "counter",
                "Requests and answers refused memory by max_memory.");
    buf_printf(out, "permitd_http_memory_refused_total %llu\n", (unsigned long long)counts->memory_refused);
    append_head(out, "permitd_http_answers_total", "counter", "Answers by class of status.");
    for (unsigned class = 2; class < ARRAY_LENGTH(counts->answers); class ++)
        buf_printf(out, "permitd_http_answers_total{class=\"%uxx\"} %llu\n", class,
                   (unsigned long long)counts->answers[class]);
    append_head(out, "permitd_http_late_total", "counter", "Requests answered because they timed out.");
    buf_printf(out, "permitd_http_late_total %llu\n", (unsigned long long)counts->late);
}

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

static void metrics_work(struct look *look, struct session *session, enum permit_status status)
{
    struct exchange *exchange = look_exchange(look);
    struct answer *answer = &exchange->answer;
    engine_metrics(exchange->service->engine, &answer->body);
    append_waiting(&answer->body, engine_waiting(exchange->service->engine, (struct bytes){0}));
    append_server(&answer->body, exchange->context);
    if (status == PERMIT_OK) {
        append_all_semaphores(exchange, session);
        append_owners(&answer->body, session);
    }
    answer->content_type = METRICS_TYPE;
    exchange_finish(exchange);
}

/* Of a permitd that starts. */
static bool answer_first_metrics(struct exchange *exchange, const struct server_counts *counts)
{
    struct buf *out = &exchange->answer.body;
    append_head(out, "permitd_database_up", "gauge", "1 while the database is usable.");
    buf_append_text(out, "permitd_database_up 0\n");
    append_server(out, counts);
    exchange->answer.content_type = METRICS_TYPE;
    return true;
}

bool ops_metrics(struct exchange *exchange)
{
    struct server_counts *counts = arena_alloc(&exchange->arena, sizeof *counts);
    if (!counts)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    server_counts(exchange->service->server, counts);
    return exchange->service->engine ? look_submit_always(exchange, LOOK_OPERATOR, metrics_work, counts)
                                     : answer_first_metrics(exchange, counts);
}

bool ops_openapi(struct exchange *exchange)
{
    buf_append(&exchange->answer.body, openapi_text, openapi_length);
    return true;
}
