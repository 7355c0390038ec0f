/* SPDX-License-Identifier: MIT */
/* Clients that each own a part of the requests and renew them in batches, evenly spread over time. */
#include "renewals.h"
#include "instance.h"
#include "measure.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 500, CLIENTS_MAX = 16, OPERATION_SIZE = 160 };

struct work {
    const struct renewals_settings *settings;
    unsigned port;
    atomic_int phase; /* of the measured window */
};

enum { WARMING, MEASURING, OVER };

struct renewer {
    pthread_t thread;
    struct work *work;
    long from, to;       /* its requests */
    int64_t *renewed_us; /* per batch: just before its last renewal was sent */
    int64_t longest_us;
    long renewals, failed; /* in the window */
};

static char *batch_body(const struct renewer *renewer, long from, long to, bool acquire)
{
    char *body = malloc(32 + (size_t)(to - from) * OPERATION_SIZE);
    KIT_CHECK(body);
    int length = sprintf(body, "{\"operations\":[");
    for (long i = from; i < to; i++) {
        const char *comma = i > from ? "," : "";
        if (acquire)
            length += sprintf(body + length,
                              "%s{\"op\":\"acquire\",\"external_id\":\"live-%ld\",\"ttl\":\"%dms\",\"permits\":"
                              "[{\"semaphore\":\"live\"}]}",
                              comma, i, renewer->work->settings->ttl_ms);
        else
            length += sprintf(body + length, "%s{\"op\":\"renew\",\"external_id\":\"live-%ld\"}", comma, i);
    }
    sprintf(body + length, "]}");
    return body;
}

/* Number of answers without the expected status. Does not parse the JSON, to keep the client cheap. */
static long count_failed(const char *answer, long count, int status)
{
    char text[32];
    size_t length = (size_t)snprintf(text, sizeof(text), "{\"status\":%d,", status);
    long good = 0;
    for (const char *at = answer; (at = strstr(at, text)); at += length)
        good++;
    return count - good;
}

static void send_batch(struct renewer *renewer, struct kit_http *http, long batch, bool acquire)
{
    long from = renewer->from + batch * BATCH, to = from + BATCH < renewer->to ? from + BATCH : renewer->to;
    char *body = batch_body(renewer, from, to, acquire);
    struct reply reply;
    int64_t sent_us = kit_now_us();
    kit_http_post(http, "/v1/batch", body, &reply);
    int64_t answered_us = kit_now_us();
    long failed = count_failed(reply.body, to - from, acquire ? 201 : 200);
    if (failed)
        fprintf(stderr, "bench: a batch with %ld failures: %d %.300s\n", failed, reply.status, reply.body);
    if (!acquire && answered_us - renewer->renewed_us[batch] > renewer->longest_us)
        renewer->longest_us = answered_us - renewer->renewed_us[batch];
    renewer->renewed_us[batch] = sent_us;
    if (atomic_load(&renewer->work->phase) == MEASURING) {
        renewer->renewals += to - from;
        renewer->failed += failed;
    } else if (failed)
        kit_fail("the requests cannot be granted or renewed");
    reply_release(&reply);
    free(body);
}

static void *renewer_run(void *context)
{
    struct renewer *renewer = context;
    struct work *work = renewer->work;
    struct kit_http http = kit_http(work->port);
    long batches = (renewer->to - renewer->from + BATCH - 1) / BATCH;
    int64_t step_us = (int64_t)work->settings->every_ms * 1000 / batches;
    for (long i = 0; i < batches; i++)
        send_batch(renewer, &http, i, true);
    int64_t next_us = kit_now_us();
    for (long i = 0; atomic_load(&work->phase) != OVER; i = (i + 1) % batches) {
        send_batch(renewer, &http, i, false);
        next_us += step_us;
        int64_t left_us = next_us - kit_now_us();
        if (left_us > 0)
            kit_sleep_ms((int)(left_us / 1000));
    }
    kit_http_close(&http);
    return NULL;
}

static void start_renewers(struct work *work, struct renewer *renewers)
{
    long share = work->settings->requests / work->settings->clients;
    for (unsigned i = 0; i < work->settings->clients; i++) {
        struct renewer *renewer = &renewers[i];
        *renewer = (struct renewer){.work = work, .from = share * i, .to = share * (i + 1)};
        renewer->renewed_us = calloc((size_t)(share / BATCH + 1), sizeof(renewer->renewed_us[0]));
        KIT_CHECK(renewer->renewed_us && !pthread_create(&renewer->thread, NULL, renewer_run, renewer));
    }
}

static void join_renewers(struct work *work, struct renewer *renewers, struct renewals *renewals)
{
    for (unsigned i = 0; i < work->settings->clients; i++) {
        struct renewer *renewer = &renewers[i];
        pthread_join(renewer->thread, NULL);
        renewals->failed += renewer->failed;
        renewals->rate += (double)renewer->renewals;
        if (renewer->longest_us > renewals->longest_us)
            renewals->longest_us = renewer->longest_us;
        free(renewer->renewed_us);
    }
}

void renewals_measure(const struct renewals_settings *settings, struct renewals *ret_renewals)
{
    static struct renewer renewers[CLIENTS_MAX];
    KIT_CHECK(settings->clients <= CLIENTS_MAX);
    struct instance instance = instance_start();
    instance_semaphore(&instance, "live", "counted", 10 * settings->requests);
    struct work work = {.settings = settings, .port = instance.permitd->port};
    start_renewers(&work, renewers);
    /* All requests are granted and renewed at least once. */
    kit_sleep_ms(2 * settings->every_ms);
    *ret_renewals = (struct renewals){.failed = 0};
    int64_t permitd_us = process_cpu_us(instance.permitd->pid), database_us = process_cpu_us(instance.database_pid);
    int64_t start_us = kit_now_us();
    atomic_store(&work.phase, MEASURING);
    kit_sleep_ms(settings->window_ms);
    double took_us = (double)(kit_now_us() - start_us);
    ret_renewals->permitd_cores = (double)(process_cpu_us(instance.permitd->pid) - permitd_us) / took_us;
    ret_renewals->database_cores = (double)(process_cpu_us(instance.database_pid) - database_us) / took_us;
    atomic_store(&work.phase, OVER);
    join_renewers(&work, renewers, ret_renewals);
    ret_renewals->rate /= took_us / 1e6;
    struct kit_sql *sql = kit_sql_open(instance.socket, "permitd");
    int64_t held = kit_sql_number(sql, "SELECT in_use FROM semaphore WHERE name = 'live'");
    if (held != settings->requests / settings->clients * settings->clients)
        ret_renewals->failed += settings->requests - held;
    kit_sql_close(sql);
    instance_stop(&instance);
}
