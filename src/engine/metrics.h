/* SPDX-License-Identifier: MIT */
/* Counters of the engine, written by any thread without locks, printed in the Prometheus text format. */
#ifndef ENGINE_METRICS_H
#define ENGINE_METRICS_H

#include <stdatomic.h>

#include "base/buf.h"
#include "core/owner.h"
#include "core/plan.h"

enum { HISTOGRAM_MAX = 20 };

/* Bounds are given once, ascending; a last bucket takes the rest. */
struct histogram {
    const double *bounds;
    size_t bound_count;
    atomic_uint_fast64_t buckets[HISTOGRAM_MAX + 1];
    atomic_uint_fast64_t count;
    atomic_uint_fast64_t sum_us; /* thousandths of thousandths of the unit */
};

enum batch_retry {
    BATCH_RETRY_CONFLICT,
    BATCH_RETRY_LOCK_TIMEOUT,
    BATCH_RETRY_LOST,
    BATCH_RETRY_UNAVAILABLE,
    BATCH_RETRY_COUNT
};

/* What the cleaner has deleted. */
enum cleaned { CLEANED_REQUESTS, CLEANED_EVENTS, CLEANED_COUNT };

/* How waits have ended. */
enum wait_end { WAIT_GRANTED, WAIT_GIVEN_UP, WAIT_ABANDONED, WAIT_FAILED, WAIT_END_COUNT };

struct metrics {
    atomic_uint_fast64_t operations[OP_KIND_COUNT][PERMIT_STATUS_COUNT];
    atomic_uint_fast64_t ended[END_REASON_COUNT];
    atomic_uint_fast64_t retries[BATCH_RETRY_COUNT];
    atomic_uint_fast64_t put_backs;
    atomic_uint_fast64_t cleaned[CLEANED_COUNT];
    atomic_uint_fast64_t cleaned_longest_us; /* the longest of its transactions; written by one thread */
    atomic_uint_fast64_t audit_rounds;
    atomic_uint_fast64_t usage_drift; /* what does not match now, as the auditor has seen it */
    struct histogram operation_seconds[OP_KIND_COUNT];
    struct histogram batch_operations;
    struct histogram wait_seconds; /* of acquires that waited, until they were granted */
    atomic_uint_fast64_t waits[WAIT_END_COUNT];
    atomic_uint_fast64_t owner_calls[OWNER_CALL_KIND_COUNT][PERMIT_STATUS_COUNT];
    atomic_uint_fast64_t probes[3];      /* by enum probe_answer */
    atomic_uint_fast64_t owners_suspect; /* in whose life the probe leaves doubt */
    atomic_bool database_up;             /* it answers; whether it is safe is the engine's to say */
};

void metrics_init(struct metrics *metrics);
void metrics_count(atomic_uint_fast64_t *counter);
void metrics_add(atomic_uint_fast64_t *counter, uint64_t count);
/* took_us below 0: it waited, which says nothing about how fast we are. */
void metrics_operation(struct metrics *metrics, enum operation_kind kind, enum permit_status status, int64_t took_us);
/* An acquire that waited `waited_us`, and how that ended. */
void metrics_wait(struct metrics *metrics, enum wait_end end, int64_t waited_us);
void metrics_batch(struct metrics *metrics, size_t operations);
void metrics_cleaned(struct metrics *metrics, enum cleaned what, uint64_t count, int64_t took_us);
void metrics_print(struct metrics *metrics, bool database_up, struct buf *out);
#endif
