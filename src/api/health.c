/* SPDX-License-Identifier: MIT */
/* Endpoints for operators: health, metrics, API description. */
#include "api/access.h"
#include "api/json_out.h"
#include "api/openapi.h"
#include "api/principals.h"
#include "api/problem.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/service.h"
#include "api/webhooks.h"
#include "base/clock.h"
#include "base/metric.h"
#include "http/server.h"
#include "store/owners.h"

static void append_member(struct buf *out, const char *name, int64_t number)
{
    buf_append_text(out, ",\"");
    buf_append_text(out, name);
    buf_append_text(out, "\":");
    buf_append_i64(out, number);
}

/*
 * Answers that the process is alive, without asking the database; always in the same words to a client without a
 * credential. An authenticated client also gets the version and the times for which keys are kept.
 */
bool ops_health(struct exchange *exchange)
{
    const struct service *service = exchange->service;
    const struct engine_settings *settings = service->engine_settings;
    struct buf *out = &exchange->answer.body;
    if (!access_is_known(exchange)) {
        buf_append_text(out, "{\"status\":\"ok\"}");
        return true;
    }
    buf_append_text(out, "{\"status\":\"ok\",\"version\":\"" PERMIT_VERSION "\"");
    append_member(out, "uptime_ms", (clock_mono() - service->started_at) / US_PER_MS);
    append_member(out, "retention_ms", settings->plan.retention_us / US_PER_MS);
    append_member(out, "retention_rows", (int64_t)settings->retention_rows);
    append_member(out, "tombstone_ms", settings->plan.tombstone_us / US_PER_MS);
    append_member(out, "max_wait_ms", service->settings->max_wait_ms);
    write_member_text(out, "database", bytes_of(service->database));
    buf_append_char(out, '}');
    return true;
}

/* ---- metrics ---- */

static const struct {
    const char *metric;
    const char *help;
    size_t offset; /* of an int64_t of struct semaphore */
} semaphore_gauges[] = {
    {"permitd_semaphore_capacity", "Units of the semaphore.", offsetof(struct semaphore, capacity)},
    {"permitd_semaphore_in_use", "Units held.", offsetof(struct semaphore, in_use)},
    {"permitd_semaphore_waiting", "Requests waiting for it, at all permitd of the database.",
     offsetof(struct semaphore, waiting)},
};

/* Labels need no escaping: names have neither quote, backslash nor line end (name.h). */
static void append_semaphores(struct buf *out, const struct semaphore_row *rows, size_t count)
{
    for (size_t g = 0; g < ARRAY_LENGTH(semaphore_gauges); g++) {
        metric_head(out, semaphore_gauges[g].metric, "gauge", semaphore_gauges[g].help);
        for (size_t i = 0; i < count; i++) {
            const struct semaphore *semaphore = &rows[i].semaphore;
            int64_t value = *(const int64_t *)((const char *)semaphore + semaphore_gauges[g].offset);
            buf_printf(out, "%s{semaphore=\"%.*s\"} %lld\n", semaphore_gauges[g].metric, (int)semaphore->name.length,
                       semaphore->name.data, (long long)value);
        }
    }
}

/*
 * Writes the gauges of at most metrics_semaphores semaphores; only sums if there are more, because a scrape must stay
 * small and a part of them would mislead. The same if so many names are out of service that one query does not list all
 * the others.
 */
static void append_all_semaphores(struct exchange *exchange, struct store *store)
{
    unsigned limit = (unsigned)exchange->service->settings->metrics_semaphores;
    struct buf *out = &exchange->answer.body;
    struct page page = {.arena = &exchange->arena, .limit = limit};
    struct semaphore_sums sums = {0};
    if (store->queries->semaphore_sums(store, &sums) != PERMIT_OK)
        return;
    metric_write(out, "permitd_semaphores", "gauge", "Semaphores in service.", (uint64_t)sums.count);
    metric_write(out, "permitd_semaphores_capacity", "gauge", "Units of all semaphores together.",
                 (uint64_t)sums.capacity);
    metric_write(out, "permitd_semaphores_in_use", "gauge", "Units held of all semaphores together.",
                 (uint64_t)sums.in_use);
    if (sums.count <= (int64_t)limit && store->queries->semaphores(store, (struct bytes){0}, &page) == PERMIT_OK &&
        !page.more)
        append_semaphores(out, page.semaphores, page.count);
}

static void append_owners(struct buf *out, struct store *store)
{
    uint64_t counts[OWNER_LIFE_COUNT];
    if (store->owners->count(store, counts) != PERMIT_OK)
        return;
    metric_head(out, "permitd_owners", "gauge",
                "Owners that have sent heartbeats or were found dead by the liveness probe.");
    for (enum owner_life life = 0; life < OWNER_LIFE_COUNT; life++)
        buf_printf(out, "permitd_owners{state=\"%s\"} %llu\n", owner_life_word(life), (unsigned long long)counts[life]);
}

#define COUNT(member) offsetof(struct server_counts, member)
static const struct {
    const char *metric;
    const char *type;
    const char *help;
    size_t offset; /* of a uint64_t of struct server_counts */
} server_metrics[] = {
    {"permitd_http_connections", "gauge", "Client connections open.", COUNT(connections)},
    {"permitd_http_connections_total", "counter", "Client connections accepted.", COUNT(accepted)},
    {"permitd_http_full_total", "counter",
     "Times that accepting stopped at max_connections because no connection was idle.", COUNT(full)},
    {"permitd_http_yielded_total", "counter", "Idle connections closed to accept a new one.", COUNT(yielded)},
    {"permitd_http_crowded_total", "counter", "Connections refused with 429 (max_connections_per_address).",
     COUNT(crowded)},
    {"permitd_http_guessing_total", "counter",
     "Connections closed because their address sent ten requests with a wrong credential within a second.",
     COUNT(guessing)},
    {"permitd_http_buffered_bytes", "gauge", "Memory of requests and answers, small pieces excluded.", COUNT(buffered)},
    {"permitd_http_memory_refused_total", "counter", "Requests and answers refused memory by max_memory.",
     COUNT(memory_refused)},
    {"permitd_http_share_refused_total", "counter",
     "Requests and answers refused memory by the share of their address or principal.", COUNT(share_refused)},
};

static void append_server(struct buf *out, const struct server_counts *counts)
{
    for (size_t i = 0; i < ARRAY_LENGTH(server_metrics); i++)
        metric_write(out, server_metrics[i].metric, server_metrics[i].type, server_metrics[i].help,
                     *(const uint64_t *)((const char *)counts + server_metrics[i].offset));
    metric_head(out, "permitd_http_answers_total", "counter", "Answers by class of status.");
    for (unsigned class = 2; class < ARRAY_LENGTH(counts->answers); class ++)
        buf_printf(out, "permitd_http_answers_total{class=\"%uxx\"} %llu\n", class,
                   (unsigned long long)counts->answers[class]);
    metric_write(out, "permitd_http_late_total", "counter", "Requests answered because they timed out.", counts->late);
}

static void append_tls(struct buf *out, const struct server_counts *counts)
{
    if (!counts->tls_until)
        return;
    metric_head(out, "permitd_tls_certificate_until_seconds", "gauge",
                "Time in seconds since 1970 at which the certificate of the https listeners ends.");
    buf_printf(out, "permitd_tls_certificate_until_seconds %lld\n", (long long)counts->tls_until);
    metric_head(out, "permitd_tls_handshakes_total", "counter", "TLS handshakes by result.");
    for (enum handshake_result result = 0; result < HANDSHAKE_RESULTS; result++)
        buf_printf(out, "permitd_tls_handshakes_total{result=\"%s\"} %llu\n", handshake_result_word(result),
                   (unsigned long long)counts->handshakes[result]);
    metric_write(out, "permitd_tls_reload_failed_total", "counter",
                 "Failed reloads of the TLS files; the loaded files stay in use.", counts->tls_reload_failed);
}

/* On the loop's thread. */
static void append_credentials(struct buf *out, const struct service *service)
{
    const struct principals *principals = service->principals;
    if (!principals)
        return;
    int64_t now = clock_wall() / US_PER_SECOND;
    int64_t until = principals_until(principals, now);
    metric_write(out, "permitd_credentials_reload_failed", "gauge",
                 "1 while the credentials file has a mistake; the last good version is used.",
                 service->credentials_reload_failed);
    metric_write(out, "permitd_principals", "gauge", "Principals of the credentials file.",
                 principals_count(principals));
    if (until < INT64_MAX)
        metric_write(out, "permitd_credential_until_seconds", "gauge", "Time until the next token ends.",
                     (uint64_t)(until - now));
    access_write_metrics(service->access, out);
}

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

static void metrics_work(struct query *query, struct store *store, enum permit_status status)
{
    struct exchange *exchange = query_exchange(query);
    struct answer *answer = &exchange->answer;
    engine_metrics(exchange->service->engine, &answer->body);
    struct waiting waiting = engine_waiting(exchange->service->engine);
    metric_write(&answer->body, "permitd_waiting", "gauge",
                 "Requests whose clients wait at this permitd, for any semaphore.", waiting.count);
    metric_head(&answer->body, "permitd_oldest_wait_seconds", "gauge", "Age of the oldest wait at this permitd.");
    buf_printf(&answer->body, "permitd_oldest_wait_seconds %.3f\n", (double)waiting.oldest_ms / (double)MS_PER_SECOND);
    append_server(&answer->body, exchange->context);
    append_tls(&answer->body, exchange->context);
    if (status == PERMIT_OK) {
        append_all_semaphores(exchange, store);
        append_owners(&answer->body, store);
        webhooks_write_metrics(&answer->body, store, &exchange->arena);
    }
    answer->content_type = METRICS_TYPE;
    exchange_finish(exchange);
}

bool ops_metrics(struct exchange *exchange)
{
    struct server_counts *counts = arena_alloc(&exchange->arena, sizeof *counts);
    if (!counts)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    server_counts(exchange->server, counts);
    append_credentials(&exchange->answer.body, exchange->service);
    if (exchange->service->engine)
        return query_submit_always(exchange, QUERY_OPERATOR, metrics_work, counts);
    metric_write(&exchange->answer.body, "permitd_database_up", "gauge", "1 while the database is usable.", 0);
    append_server(&exchange->answer.body, counts);
    append_tls(&exchange->answer.body, counts);
    exchange->answer.content_type = METRICS_TYPE;
    return true;
}

bool ops_openapi(struct exchange *exchange)
{
    exchange->answer.constant = (struct bytes){openapi_text, openapi_length};
    return true;
}
