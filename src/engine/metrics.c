/* SPDX-License-Identifier: MIT */
#include "engine/metrics.h"

#include <stdio.h>

#include "base/metric.h"

static const double second_bounds[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10};
static const double batch_bounds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 500};

static const double wait_bounds[] = {0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                     2.5,   5,     10,   30,    60,   120, 300,  600};

static void histogram_init(struct histogram *histogram, const double *bounds, size_t bound_count)
{
    histogram->bounds = bounds;
    histogram->bound_count = bound_count;
}

static void histogram_add(struct histogram *histogram, double value)
{
    size_t bucket = 0;
    while (bucket < histogram->bound_count && value > histogram->bounds[bucket])
        bucket++;
    metrics_count(&histogram->buckets[bucket]);
    metrics_count(&histogram->count);
    atomic_fetch_add_explicit(&histogram->sum_us, (uint_fast64_t)(value * 1e6), memory_order_relaxed);
}

void metrics_init(struct metrics *metrics)
{
    *metrics = (struct metrics){.history = -1, .oldest_transaction_s = -1};
    for (int kind = 0; kind < OP_KIND_COUNT; kind++)
        histogram_init(&metrics->operation_seconds[kind], second_bounds, ARRAY_LENGTH(second_bounds));
    histogram_init(&metrics->batch_operations, batch_bounds, ARRAY_LENGTH(batch_bounds));
    histogram_init(&metrics->wait_seconds, wait_bounds, ARRAY_LENGTH(wait_bounds));
}

void metrics_count(atomic_uint_fast64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

void metrics_add(atomic_uint_fast64_t *counter, uint64_t count)
{
    if (count)
        atomic_fetch_add_explicit(counter, count, memory_order_relaxed);
}

void metrics_operation(struct metrics *metrics, enum operation_kind kind, enum permit_status status, int64_t took_us)
{
    metrics_count(&metrics->operations[kind][status]);
    if (took_us >= 0)
        histogram_add(&metrics->operation_seconds[kind], (double)took_us / 1e6);
}

void metrics_wait(struct metrics *metrics, enum wait_end end, int64_t waited_us)
{
    metrics_count(&metrics->waits[end]);
    if (end == WAIT_GRANTED)
        histogram_add(&metrics->wait_seconds, (double)waited_us / 1e6);
}

void metrics_batch(struct metrics *metrics, size_t operations, enum batch_path path)
{
    metrics_count(&metrics->batches[path]);
    histogram_add(&metrics->batch_operations, (double)operations);
}

void metrics_cleaned(struct metrics *metrics, enum cleaned what, uint64_t count, int64_t took_us)
{
    atomic_fetch_add_explicit(&metrics->cleaned[what], count, memory_order_relaxed);
    if (took_us > (int64_t)atomic_load_explicit(&metrics->cleaned_longest_us, memory_order_relaxed))
        atomic_store_explicit(&metrics->cleaned_longest_us, (uint_fast64_t)took_us, memory_order_relaxed);
}

static unsigned long long load(atomic_uint_fast64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* `label` is "" or a label such as `op="acquire"`. */
static void print_histogram(struct buf *out, const char *name, const char *label, struct histogram *histogram)
{
    unsigned long long total = 0;
    const char *comma = label[0] ? "," : "";
    for (size_t i = 0; i <= histogram->bound_count; i++) {
        total += load(&histogram->buckets[i]);
        if (i < histogram->bound_count)
            buf_printf(out, "%s_bucket{%s%sle=\"%g\"} %llu\n", name, label, comma, histogram->bounds[i], total);
        else
            buf_printf(out, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", name, label, comma, total);
    }
    const char *open = label[0] ? "{" : "";
    const char *close = label[0] ? "}" : "";
    buf_printf(out, "%s_sum%s%s%s %g\n", name, open, label, close, (double)load(&histogram->sum_us) / 1e6);
    buf_printf(out, "%s_count%s%s%s %llu\n", name, open, label, close, total);
}

static void print_operations(struct metrics *metrics, struct buf *out)
{
    metric_head(out, "permitd_operations_total", "counter", "Operations by kind and outcome.");
    for (enum operation_kind kind = 0; kind < OP_KIND_COUNT; kind++) /* none is counted of a look or leave */
        for (enum permit_status status = 0; status < PERMIT_STATUS_COUNT; status++)
            if (load(&metrics->operations[kind][status]))
                buf_printf(out, "permitd_operations_total{op=\"%s\",outcome=\"%s\"} %llu\n", operation_kind_word(kind),
                           permit_status_word(status), load(&metrics->operations[kind][status]));
    metric_head(out, "permitd_operation_seconds", "histogram", "From arrival to decision, by kind.");
    for (enum operation_kind kind = 0; kind < OP_KIND_COUNT; kind++) {
        if (kind == OP_LOOK || kind == OP_LEAVE)
            continue; /* their clients are counted instead */
        char label[64];
        snprintf(label, sizeof label, "op=\"%s\"", operation_kind_word(kind));
        print_histogram(out, "permitd_operation_seconds", label, &metrics->operation_seconds[kind]);
    }
}

static void print_waits(struct metrics *metrics, struct buf *out)
{
    static const char *const end_words[WAIT_END_COUNT] = {"granted", "given_up", "abandoned", "failed"};
    metric_head(out, "permitd_waits_total", "counter",
                "Waits that ended: granted, timed out, abandoned by the client, failed.");
    for (int end = 0; end < WAIT_END_COUNT; end++)
        buf_printf(out, "permitd_waits_total{end=\"%s\"} %llu\n", end_words[end], load(&metrics->waits[end]));
    metric_head(out, "permitd_wait_seconds", "histogram", "From arrival to grant, of acquires that had to wait.");
    print_histogram(out, "permitd_wait_seconds", "", &metrics->wait_seconds);
}

static void print_tasks(struct metrics *metrics, struct buf *out)
{
    static const char *const cleaned_words[CLEANED_COUNT] = {"requests", "events"};
    metric_head(out, "permitd_cleaned_total", "counter", "Ended requests and events deleted by retention.");
    for (int i = 0; i < CLEANED_COUNT; i++)
        buf_printf(out, "permitd_cleaned_total{what=\"%s\"} %llu\n", cleaned_words[i], load(&metrics->cleaned[i]));
    metric_head(out, "permitd_cleaner_longest_seconds", "gauge", "Longest retention transaction since the start.");
    buf_printf(out, "permitd_cleaner_longest_seconds %g\n", (double)load(&metrics->cleaned_longest_us) / 1e6);
    metric_write(out, "permitd_audit_rounds_total", "counter", "Completed audits of everything held.",
                 load(&metrics->audit_rounds));
    metric_write(out, "permitd_usage_drift", "gauge",
                 "Semaphores, and requests without their permits, whose rows do not match; anything but 0 is a bug.",
                 load(&metrics->usage_drift));
}

static void print_feed(struct metrics *metrics, struct buf *out)
{
    metric_write(out, "permitd_feed_events_total", "counter", "Events of the feed that this permitd has numbered.",
                 load(&metrics->feed_numbered));
    metric_head(out, "permitd_feed_deleted_total", "counter",
                "Events deleted after feed_retention, or earlier because there are more than feed_rows.");
    buf_printf(out, "permitd_feed_deleted_total{why=\"old\"} %llu\n", load(&metrics->feed_deleted[0]));
    buf_printf(out, "permitd_feed_deleted_total{why=\"rows\"} %llu\n", load(&metrics->feed_deleted[1]));
    metric_write(out, "permitd_feed_rows", "gauge", "Events that are stored, about; of the permitd that leads.",
                 load(&metrics->feed_stored));
    metric_write(out, "permitd_feed_full", "gauge", "1 while the feed is full and events are left out.",
                 atomic_load(&metrics->feed_full));
    static const char *const ends[] = {"taken", "refused", "failed"};
    metric_head(out, "permitd_webhook_calls_total", "counter",
                "Calls of webhooks: their events were taken, they had another status, or no answer.");
    for (enum webhook_end end = 0; end < WEBHOOK_END_COUNT; end++)
        buf_printf(out, "permitd_webhook_calls_total{result=\"%s\"} %llu\n", ends[end],
                   load(&metrics->webhook_calls[end]));
    metric_write(out, "permitd_webhook_events_total", "counter", "Events that webhooks of this permitd have taken.",
                 load(&metrics->webhook_events));
}

static void print_owners(struct metrics *metrics, struct buf *out)
{
    static const char *const answer_words[ARRAY_LENGTH(metrics->probes)] = {"unknown", "alive", "dead"};
    metric_head(
        out, "permitd_owner_calls_total", "counter",
        "Heartbeats (beat), owners that ended themselves (gone), and results of the liveness probe, by outcome.");
    for (enum owner_call_kind kind = 0; kind < OWNER_CALL_KIND_COUNT; kind++)
        for (enum permit_status status = 0; status < PERMIT_STATUS_COUNT; status++)
            if (load(&metrics->owner_calls[kind][status]))
                buf_printf(out, "permitd_owner_calls_total{call=\"%s\",outcome=\"%s\"} %llu\n", owner_call_word(kind),
                           permit_status_word(status), load(&metrics->owner_calls[kind][status]));
    metric_head(out, "permitd_probes_total", "counter", "Calls of liveness_url, by answer.");
    for (size_t i = 0; i < ARRAY_LENGTH(answer_words); i++)
        buf_printf(out, "permitd_probes_total{answer=\"%s\"} %llu\n", answer_words[i], load(&metrics->probes[i]));
    metric_write(out, "permitd_owners_suspect", "gauge",
                 "Owners of held requests that liveness_url does not report alive.", load(&metrics->owners_suspect));
}

static void print_batches(struct metrics *metrics, struct buf *out)
{
    static const char *const path_words[PATH_COUNT] = {"short", "long"};
    static const char *const mismatch_words[MISMATCH_COUNT] = {
        [MISMATCH_VERSION] = "version", [MISMATCH_KEY] = "key", [MISMATCH_GUARD] = "guard", [MISMATCH_ROW] = "row"};
    metric_head(out, "permitd_batches_total", "counter",
                "Batches by path: short, in one packet on cached rows; long, with the rows locked and read first.");
    for (int i = 0; i < PATH_COUNT; i++)
        buf_printf(out, "permitd_batches_total{path=\"%s\"} %llu\n", path_words[i], load(&metrics->batches[i]));
    metric_head(
        out, "permitd_short_path_mismatches_total", "counter",
        "Batches whose cached rows were not as in the database, so that they went the long way: the version of "
        "a semaphore, a key that was taken for new, a guard (time, server, epoch), or a locked row of a request "
        "that is ended.");
    for (int i = MISMATCH_VERSION; i < MISMATCH_COUNT; i++)
        buf_printf(out, "permitd_short_path_mismatches_total{reason=\"%s\"} %llu\n", mismatch_words[i],
                   load(&metrics->mismatches[i]));
}

void metrics_print(struct metrics *metrics, bool database_up, struct buf *out)
{
    static const char *const retry_words[BATCH_RETRY_COUNT] = {"conflict", "lock_timeout", "lost", "unavailable"};
    print_operations(metrics, out);
    metric_head(out, "permitd_batch_operations", "histogram", "Operations per database transaction.");
    print_histogram(out, "permitd_batch_operations", "", &metrics->batch_operations);
    metric_head(out, "permitd_batch_retries_total", "counter", "Transactions that were retried, by reason.");
    for (int i = 0; i < BATCH_RETRY_COUNT; i++)
        buf_printf(out, "permitd_batch_retries_total{reason=\"%s\"} %llu\n", retry_words[i],
                   load(&metrics->retries[i]));
    print_batches(metrics, out);
    metric_write(out, "permitd_put_backs_total", "counter", "Operations requeued because they needed more semaphores.",
                 load(&metrics->put_backs));
    metric_head(out, "permitd_ended_total", "counter", "Requests that ended, by reason.");
    for (int reason = END_RELEASED; reason <= END_NEVER_HELD; reason++)
        buf_printf(out, "permitd_ended_total{reason=\"%s\"} %llu\n", end_reason_word((enum end_reason)reason),
                   load(&metrics->ended[reason]));
    print_waits(metrics, out);
    print_tasks(metrics, out);
    print_feed(metrics, out);
    print_owners(metrics, out);
    if (atomic_load(&metrics->history) >= 0)
        metric_write(out, "permitd_database_history_length", "gauge",
                     "Length of the history list of InnoDB, which grows behind an open transaction.",
                     (uint64_t)atomic_load(&metrics->history));
    if (atomic_load(&metrics->oldest_transaction_s) >= 0)
        metric_write(out, "permitd_database_oldest_transaction_seconds", "gauge",
                     "Age of the oldest open transaction of the database server.",
                     (uint64_t)atomic_load(&metrics->oldest_transaction_s));
    metric_write(out, "permitd_database_up", "gauge", "1 while the database is usable.", database_up);
}
