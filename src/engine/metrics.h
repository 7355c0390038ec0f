/* SPDX-License-Identifier: MIT */
/* Counters of the engine: any thread writes them without locks. Printed in the Prometheus text format. */
#ifndef ENGINE_METRICS_H
#define ENGINE_METRICS_H

#include <stdatomic.h>

#include "base/buf.h"
#include "core/owner.h"
#include "core/plan.h"
#include "store/store.h"

enum { HISTOGRAM_MAX = 20 };

/* `bounds` is ascending and constant; one more bucket counts the values above the last bound. */
struct histogram {
    const double *bounds;
    size_t bound_count;
    atomic_uint_fast64_t buckets[HISTOGRAM_MAX + 1];
    atomic_uint_fast64_t count;
    atomic_uint_fast64_t sum_us; /* sum of the values, in millionths of the unit */
};

/* Why a transaction was retried. */
enum batch_retry {
    BATCH_RETRY_CONFLICT,
    BATCH_RETRY_LOCK_TIMEOUT,
    BATCH_RETRY_LOST,
    BATCH_RETRY_UNAVAILABLE,
    BATCH_RETRY_COUNT
};

/* How a batch ran: in one packet on cached rows, or with its rows locked and read first. */
enum batch_path { PATH_SHORT, PATH_LONG, PATH_COUNT };

/* Kinds of rows that retention deletes. */
enum cleaned { CLEANED_REQUESTS, CLEANED_EVENTS, CLEANED_COUNT };

/* How a wait ended. */
enum wait_end { WAIT_GRANTED, WAIT_GIVEN_UP, WAIT_ABANDONED, WAIT_FAILED, WAIT_END_COUNT };

/* How a call of a webhook ended: its events were taken; it has another status; it was not answered, or not made. */
enum webhook_end { WEBHOOK_TAKEN, WEBHOOK_REFUSED, WEBHOOK_FAILED, WEBHOOK_END_COUNT };

struct metrics {
    atomic_uint_fast64_t operations[OP_KIND_COUNT][PERMIT_STATUS_COUNT];
    atomic_uint_fast64_t ended[END_REASON_COUNT];
    atomic_uint_fast64_t retries[BATCH_RETRY_COUNT];
    atomic_uint_fast64_t batches[PATH_COUNT];
    atomic_uint_fast64_t mismatches[MISMATCH_COUNT];
    atomic_uint_fast64_t put_backs;
    atomic_uint_fast64_t cleaned[CLEANED_COUNT];
    atomic_uint_fast64_t cleaned_longest_us; /* longest retention transaction; written by one task */
    atomic_uint_fast64_t audit_rounds;
    atomic_uint_fast64_t usage_drift; /* drifts that the audit has found and that are not resolved */
    struct histogram operation_seconds[OP_KIND_COUNT];
    struct histogram batch_operations;
    struct histogram wait_seconds; /* acquires that waited: arrival to grant */
    atomic_uint_fast64_t waits[WAIT_END_COUNT];
    atomic_uint_fast64_t owner_calls[OWNER_CALL_KIND_COUNT][PERMIT_STATUS_COUNT];
    atomic_uint_fast64_t probes[3];           /* by enum probe_answer */
    atomic_uint_fast64_t owners_suspect;      /* owners that the probe does not report alive */
    atomic_int_fast64_t history;              /* struct doctor_undo; -1: unknown */
    atomic_int_fast64_t oldest_transaction_s; /* the same */
    atomic_uint_fast64_t feed_numbered;       /* events that this permitd has numbered */
    atomic_uint_fast64_t feed_deleted[2];     /* after their retention; before, because there were too many */
    atomic_uint_fast64_t feed_stored;         /* rows, about; as last read by the permitd that leads */
    atomic_bool feed_full;                    /* the same */
    atomic_uint_fast64_t webhook_calls[WEBHOOK_END_COUNT];
    atomic_uint_fast64_t webhook_events; /* that were taken */
    atomic_bool database_up;             /* the database answers; engine_database_up adds whether it is safe */
};

void metrics_init(struct metrics *metrics);
/* Adds 1. */
void metrics_count(atomic_uint_fast64_t *counter);
void metrics_add(atomic_uint_fast64_t *counter, uint64_t count);
/* Counts an operation. took_us < 0: it waited, so its duration is not recorded. */
void metrics_operation(struct metrics *metrics, enum operation_kind kind, enum permit_status status, int64_t took_us);
/* Counts a wait that has ended; records waited_us if it was granted. */
void metrics_wait(struct metrics *metrics, enum wait_end end, int64_t waited_us);
void metrics_batch(struct metrics *metrics, size_t operations, enum batch_path path);
void metrics_cleaned(struct metrics *metrics, enum cleaned what, uint64_t count, int64_t took_us);
void metrics_print(struct metrics *metrics, bool database_up, struct buf *out);
#endif
