/* SPDX-License-Identifier: MIT */
/*
 * Rows of the tables as the core's structs: the columns to select and the functions that read them, in the same order.
 * A reader takes the columns of one row from left to right; after the row, `broken` says whether memory ran out.
 */
#ifndef STORE_ROWS_H
#define STORE_ROWS_H

#include "core/request.h"
#include "store/session.h"
#include "store/sql_text.h"

/*
 * Times come as the text of a DATETIME(6) and are read here: the server would take longer to turn them into numbers.
 */

/* Of `semaphore` s. */
#define ROW_SEMAPHORE_COLUMNS                                                                                          \
    "s.id,s.name,s.kind,s.queue,s.capacity,s.in_use,s.next_permit_id,s.version,s.config_version,s.next_due_at,"        \
    "s.first_free,s.default_ttl_ms,s.max_ttl_ms,s.grace_ms,s.max_hold_ms,s.paused_reason,s.note,s.retired_at"

/* Of `permit_request` r. */
#define ROW_REQUEST_COLUMNS                                                                                            \
    "r.id,r.external_id,r.digest,r.owner,r.principal,r.state,r.end_reason,r.ttl_ms,r.due_at,r.grace_ms,"               \
    "r.confirmed_at,r.renewals,r.replays,r.acquired_at,r.ended_at,r.nonce"

/* Of `permit` p. */
#define ROW_PERMIT_COLUMNS "p.semaphore_id,p.id,p.count,p.slots,p.labels"

/*
 * The floor of `semaphore` s: its smallest live token, or the next one. Walks permit_state, which ends in the primary
 * key: the first entry is it. MIN() would read them all, 240 ms with a million holders.
 */
#define ROW_FLOOR                                                                                                      \
    "COALESCE((SELECT f.id FROM permit f FORCE INDEX (permit_state) WHERE f.semaphore_id=s.id AND f.state=1"           \
    " ORDER BY f.id LIMIT 1),s.next_permit_id)"

enum { ROW_REQUEST_COUNT = 16, ROW_PERMIT_COUNT = 5 };

struct row_reader {
    struct session_row row;
    unsigned at;
    struct arena *arena; /* takes the copies */
    bool broken;
};

/* Steps to the next row of the session's current statement. */
bool row_step(struct row_reader *reader, struct session *session);
struct bytes row_column(struct row_reader *reader);
uint64_t row_u64(struct row_reader *reader);
int64_t row_i64(struct row_reader *reader);
int64_t row_i64_or(struct row_reader *reader, int64_t if_null);
/* NEVER for NULL, and for what stands for it in ended_at. */
utc_us row_time(struct row_reader *reader);
/* A copy; data NULL for NULL. */
struct bytes row_bytes(struct row_reader *reader);

void row_semaphore(struct row_reader *reader, struct semaphore *ret_semaphore);
/* Leaves its permits empty. */
void row_request(struct row_reader *reader, struct request *ret_request);
void row_permit(struct row_reader *reader, struct permit *ret_permit);
#endif
