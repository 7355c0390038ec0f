/* SPDX-License-Identifier: MIT */
/*
 * The permits and slots of a semaphore are read in pages within one transaction with one read view. That transaction
 * reads nothing else, so that the server need not keep old row versions for long. The requests of the permits, three
 * times the work, are read afterwards, each page in a read view of its own.
 */

#include <stdio.h>

#include "core/slots.h"
#include "store/held.h"
#include "store/packet.h"

enum {
    PERMITS_PAGE = 2000, /* about 10 ms */
    SLOTS_PAGE = 5000,
    REQUESTS_PAGE = 500,
};

/* Marks the statements of the audit in the server's logs, because they read all rows. */
#define AUDIT_SELECT "SELECT /* audit */ "

#define ONE_VIEW                                                                                                       \
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY;"

/* Indexes of differences[]. */
enum {
    UNITS,
    PERMITS_OF_ENDED,
    SLOTS_OF_OTHERS,
    SLOTS_OUT_OF_PLACE,
    PERMITS_WITH_ODD_SLOTS,
    BITS_WITHOUT_PERMIT,
    BITS_IN_OTHER_ROWS,
    CONFIRMED,
    PAST_PERMITS,
    PLACES
};

/* ---- a semaphore ---- */

/* Walks the whole queue, whose length is bounded, and the primary key of each request. */
#define PLACES_OF_SEMAPHORE                                                                                            \
    "SELECT STRAIGHT_JOIN COUNT(r.server_id) FROM waiter w FORCE INDEX (PRIMARY)"                                      \
    " JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=w.permit_request_id WHERE w.semaphore_id=s.id"

static enum permit_status read_semaphore(struct audit *audit, uint64_t after)
{
    struct packet packet = packet_begin(session_of(audit->store), audit->arena);
    struct row_reader *row = &packet.row;
    buf_append_text(&packet.sql, ONE_VIEW AUDIT_SELECT
                    "s.id,s.name,s.kind,s.capacity,s.in_use,s.confirmed,s.waiting,(" PLACES_OF_SEMAPHORE
                    ") FROM semaphore s FORCE INDEX (PRIMARY) WHERE s.id>");
    buf_append_u64(&packet.sql, after);
    buf_append_text(&packet.sql, " ORDER BY s.id LIMIT 1");
    packet_send(&packet);
    packet_next(&packet);
    packet_next(&packet);
    if (packet_row(&packet)) {
        audit->semaphore.id = row_u64(row);
        audit->semaphore.name = row_bytes(row);
        audit->semaphore.kind = (enum semaphore_kind)row_u64(row);
        audit->semaphore.capacity = row_i64(row);
        audit->semaphore.in_use = row_i64(row);
        audit->semaphore.confirmed = row_i64(row);
        audit->semaphore.waiting = row_i64(row);
        audit->places = row_i64(row);
    }
    return packet_end(&packet);
}

static enum permit_status audit_begin(struct audit *audit, struct store *store, uint64_t after, struct arena *arena)
{
    *audit = (struct audit){.store = store, .arena = arena, .in_view = true};
    enum permit_status status = read_semaphore(audit, after);
    if (status != PERMIT_OK)
        return status;
    if (audit->semaphore.id == 0)
        audit->step = AUDIT_DONE;
    if (audit->semaphore.kind != KIND_SLOTTED)
        return PERMIT_OK;
    audit->holders = arena_array(arena, SLOTS_MAX_CAPACITY + 1, sizeof audit->holders[0]);
    audit->differences[SLOTS_OUT_OF_PLACE] = audit->semaphore.capacity; /* check_slot subtracts the slots that exist */
    return audit->holders ? PERMIT_OK : PERMIT_NO_MEMORY;
}

/* Appends FROM: the next `count` tokens t with a bit, and their permits p. */
static void tokens_sql(const struct audit *audit, unsigned count, struct buf *sql)
{
    char semaphore_id[24];
    snprintf(semaphore_id, sizeof semaphore_id, "%llu", (unsigned long long)audit->semaphore.id);
    buf_append_text(sql, " FROM ");
    held_tokens_sql(semaphore_id, audit->last, count, sql);
    buf_append_text(sql, " LEFT JOIN permit p FORCE INDEX (PRIMARY) ON p.semaphore_id=t.semaphore_id AND p.id=t.id");
}

/* A confirmed request is never due. */
#define IS_CONFIRMED                                                                                                   \
    "t.due_s=4294967295 AND EXISTS (SELECT 1 FROM permit_request r FORCE INDEX (PRIMARY)"                              \
    " WHERE r.id=p.permit_request_id AND r.confirmed_at IS NOT NULL)"

static void permits_sql(const struct audit *audit, struct buf *sql)
{
    buf_append_text(sql, AUDIT_SELECT "t.id,p.count,p.slots," IS_CONFIRMED);
    tokens_sql(audit, PERMITS_PAGE, sql);
    buf_append_text(sql, " ORDER BY t.id");
}

static void check_permit(struct audit *audit, struct row_reader *reader)
{
    struct permit permit = {.token = row_u64(reader), .count = row_i64(reader)};
    struct bytes text = row_column(reader);
    bool is_confirmed = row_u64(reader) != 0;
    audit->last = permit.token;
    if (permit.count == 0) { /* NULL: no permit has this token */
        audit->differences[BITS_WITHOUT_PERMIT]++;
        return;
    }
    audit->held += permit.count;
    audit->confirmed += is_confirmed ? permit.count : 0;
    if (!audit->holders)
        return;
    /* A permit is odd if another one names the same slot, or if it does not name `count` slots. */
    bool odd = !slots_parse(text, audit->arena, &permit.slots) || permit.slots.count != permit.count;
    for (uint32_t i = 0; i < permit.slots.count; i++) {
        uint64_t *holder = &audit->holders[permit.slots.numbers[i]];
        odd |= *holder != 0;
        *holder = permit.token;
    }
    audit->differences[PERMITS_WITH_ODD_SLOTS] += odd;
}

static void slots_sql(const struct audit *audit, struct buf *sql)
{
    buf_printf(sql,
               AUDIT_SELECT "number,permit_id,retired FROM slot FORCE INDEX (PRIMARY) WHERE semaphore_id=%llu"
                            " AND number>%llu ORDER BY number LIMIT %d",
               (unsigned long long)audit->semaphore.id, (unsigned long long)audit->last, SLOTS_PAGE);
}

/*
 * Checks a slot: its permit_id must be the permit that names it, or 0; it must be retired if and only if its number is
 * above the capacity.
 */
static void check_slot(struct audit *audit, struct row_reader *reader)
{
    uint64_t number = row_u64(reader);
    uint64_t token = row_u64(reader);
    bool retired = row_u64(reader) != 0;
    audit->last = number;
    if (number > SLOTS_MAX_CAPACITY) {
        audit->differences[SLOTS_OUT_OF_PLACE]++;
        return;
    }
    audit->differences[SLOTS_OF_OTHERS] += audit->holders[number] != token;
    audit->holders[number] = 0;
    audit->differences[SLOTS_OUT_OF_PLACE] += retired != ((int64_t)number > audit->semaphore.capacity);
    audit->differences[SLOTS_OUT_OF_PLACE] -= (int64_t)number <= audit->semaphore.capacity;
}

static void requests_sql(const struct audit *audit, struct buf *sql)
{
    buf_append_text(sql, AUDIT_SELECT "t.id,p.id,r.state,r.owner=t.owner AND t.due_s=" HELD_DUE_S);
    tokens_sql(audit, REQUESTS_PAGE, sql);
    buf_append_text(sql, " LEFT JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=p.permit_request_id ORDER BY t.id");
}

static void check_request_of(struct audit *audit, struct row_reader *reader)
{
    audit->last = row_u64(reader);
    bool has_permit = row_u64(reader) != 0;
    bool held = row_u64(reader) == REQUEST_ACQUIRED; /* NULL: the request does not exist */
    bool fits = row_u64(reader) != 0;
    audit->differences[PERMITS_OF_ENDED] += has_permit && !held;
    audit->differences[BITS_IN_OTHER_ROWS] += held && !fits;
}

static void past_sql(const struct audit *audit, struct buf *sql)
{
    unsigned long long id = audit->semaphore.id, last = audit->last;
    buf_printf(sql,
               AUDIT_SELECT "q.id,q.changes,r.id IS NULL OR r.state=3 OR q.changes NOT BETWEEN 1 AND r.changes"
                            " OR q.id>=s.next_permit_id OR (p.id IS NOT NULL AND (q.end_reason<>1"
                            " OR p.permit_request_id<>q.permit_request_id OR p.count>=q.count))"
                            " FROM past_permit q FORCE INDEX (PRIMARY) STRAIGHT_JOIN semaphore s FORCE INDEX (PRIMARY)"
                            " ON s.id=q.semaphore_id LEFT JOIN permit_request r FORCE INDEX (PRIMARY)"
                            " ON r.id=q.permit_request_id LEFT JOIN permit p FORCE INDEX (PRIMARY)"
                            " ON p.semaphore_id=q.semaphore_id AND p.id=q.id WHERE q.semaphore_id=%llu"
                            " AND (q.id>%llu OR (q.id=%llu AND q.changes>%lu)) ORDER BY q.id,q.changes LIMIT %d",
               id, last, last, (unsigned long)audit->changes, REQUESTS_PAGE);
}

static void check_past(struct audit *audit, struct row_reader *reader)
{
    audit->last = row_u64(reader);
    audit->changes = (uint32_t)row_u64(reader);
    audit->differences[PAST_PERMITS] += row_u64(reader) != 0;
}

/* The steps of an audit, in this order. */
static const struct {
    void (*sql)(const struct audit *audit, struct buf *sql); /* appends the SELECT of the page after audit->last */
    int page;                                                /* rows of a page that is not the last */
    void (*check)(struct audit *audit, struct row_reader *reader); /* checks one row */
    bool in_view;                                                  /* runs in the read view of audit_begin */
    bool slotted;                                                  /* only for slotted semaphores */
} steps[] = {
    [AUDIT_PERMITS] = {permits_sql, PERMITS_PAGE, check_permit, true, false},
    [AUDIT_SLOTS] = {slots_sql, SLOTS_PAGE, check_slot, true, true},
    [AUDIT_REQUESTS] = {requests_sql, REQUESTS_PAGE, check_request_of, false, false},
    [AUDIT_PAST] = {past_sql, REQUESTS_PAGE, check_past, false, false},
};

/*
 * Ends the read view with ROLLBACK: retention counts COMMITs as load, and this transaction wrote nothing. Keeps the
 * message of a step that failed.
 */
static enum permit_status close_view(struct audit *audit)
{
    if (!audit->in_view)
        return PERMIT_OK;
    audit->in_view = false;
    return session_rollback(session_of(audit->store));
}

static enum permit_status next_step(struct audit *audit)
{
    audit->last = 0;
    do
        audit->step++;
    while (audit->step != AUDIT_DONE && steps[audit->step].slotted && !audit->holders);
    return audit->step == AUDIT_DONE || steps[audit->step].in_view ? PERMIT_OK : close_view(audit);
}

static enum permit_status audit_step(struct audit *audit)
{
    struct packet packet = packet_begin(session_of(audit->store), audit->arena);
    int rows = 0;
    int page = steps[audit->step].page;
    steps[audit->step].sql(audit, &packet.sql);
    packet_send(&packet);
    for (; packet_row(&packet); rows++)
        steps[audit->step].check(audit, &packet.row);
    enum permit_status status = packet_end(&packet);
    return status == PERMIT_OK && rows < page ? next_step(audit) : status;
}

static const char *const drift_texts[AUDIT_NUMBERS] = {
    [PERMITS_OF_ENDED] = "held permits of ended requests",
    [SLOTS_OF_OTHERS] = "slots that are not with the permit that names them",
    [SLOTS_OUT_OF_PLACE] = "slots missing, or in service against the capacity",
    [PERMITS_WITH_ODD_SLOTS] = "permits whose slots are not theirs alone, or not as many as they count",
    [BITS_WITHOUT_PERMIT] = "bits of permits that do not exist",
    [BITS_IN_OTHER_ROWS] = "held permits whose bit has another owner or deadline",
    [CONFIRMED] = "units too many in `confirmed`",
    [PAST_PERMITS] = "past permits that no exchange of their request has left",
};

static enum permit_status report_drift(struct audit *audit, struct audit_result *ret_result)
{
    bool drifts = false;
    for (uint32_t number = 1; audit->holders && number <= SLOTS_MAX_CAPACITY; number++)
        audit->differences[SLOTS_OF_OTHERS] += audit->holders[number] != 0; /* a permit names it, but it has no row */
    audit->differences[UNITS] = audit->semaphore.in_use - audit->held;
    audit->differences[CONFIRMED] = audit->semaphore.confirmed - audit->confirmed;
    audit->differences[PLACES] = audit->semaphore.waiting - audit->places;
    for (size_t i = 0; i < AUDIT_NUMBERS; i++)
        drifts |= audit->differences[i] != 0;
    struct audit_drift *drift = drifts ? arena_alloc(audit->arena, sizeof *drift) : NULL;
    if (drifts && !drift)
        return PERMIT_NO_MEMORY;
    *ret_result = (struct audit_result){.drift_count = drifts, .drifts = drift};
    if (!drift)
        return PERMIT_OK;
    drift->id = audit->semaphore.id;
    memcpy(drift->differences, audit->differences, sizeof drift->differences);
    snprintf(drift->subject, sizeof drift->subject, "%s", audit->semaphore.name.data);
    int length = snprintf(drift->sentence, sizeof drift->sentence, "in_use is %lld, its held permits have %lld units",
                          (long long)audit->semaphore.in_use, (long long)audit->held);
    if (audit->differences[PLACES])
        length += snprintf(drift->sentence + length, sizeof drift->sentence - (size_t)length,
                           "; waiting is %lld, clients ask for %lld places in its queue",
                           (long long)audit->semaphore.waiting, (long long)audit->places);
    for (size_t i = UNITS + 1; i < PLACES; i++)
        if (audit->differences[i])
            length += snprintf(drift->sentence + length, sizeof drift->sentence - (size_t)length, "; %lld %s",
                               (long long)audit->differences[i], drift_texts[i]);
    return PERMIT_OK;
}

static enum permit_status audit_end(struct audit *audit, enum permit_status status, struct audit_result *ret_result)
{
    (void)close_view(audit);
    if (status != PERMIT_OK)
        return status;
    *ret_result = (struct audit_result){0};
    return audit->semaphore.id ? report_drift(audit, ret_result) : PERMIT_OK;
}

/* ---- requests ---- */

/*
 * Checks one request: adds a drift if it is held and has no permits, or some of them without a bit, or if it waits
 * without its row of waiting_due; or it has an errand without its row of `errand`.
 */
static void check_request(struct row_reader *reader, struct audit_result *result)
{
    uint64_t id = row_u64(reader);
    bool held = row_u64(reader) == REQUEST_ACQUIRED;
    struct bytes key = row_column(reader);
    int64_t permits = row_i64(reader);
    int64_t missing = row_i64(reader); /* bits of its permits, or its row; 0 of an ended request */
    bool lost = row_u64(reader) != 0;  /* the row of its errand */
    if ((missing == 0 && !lost && (!held || permits > 0)) || result->drift_count == AUDIT_PAGE_DRIFTS)
        return;
    struct audit_drift *drift = &result->drifts[result->drift_count++];
    *drift = (struct audit_drift){.is_request = true, .id = id, .differences = {permits, missing, lost}};
    snprintf(drift->subject, sizeof drift->subject, "%.*s", (int)key.length, key.data);
    const char *sentence = lost      ? "it has an errand that no row of errand names"
                           : !held   ? "it waits, and has no row of its deadline in waiting_due"
                           : permits ? "it is held, and %lld of its %lld permits are not"
                                     : "it is held and has no permits";
    snprintf(drift->sentence, sizeof drift->sentence, sentence, (long long)missing, (long long)permits);
}

/* The permits of request r; those of them without a bit in the row of `held` that its owner and deadline name. */
#define PERMITS_OF_REQUEST "(SELECT COUNT(*) FROM permit p FORCE INDEX (permit_request) WHERE p.permit_request_id=r.id)"
#define PERMITS_WITHOUT_BIT                                                                                            \
    "(SELECT COUNT(*) FROM permit p FORCE INDEX (permit_request) WHERE p.permit_request_id=r.id"                       \
    " AND NOT EXISTS (SELECT 1 FROM held h FORCE INDEX (PRIMARY) WHERE h.semaphore_id=p.semaphore_id"                  \
    " AND h.block=p.id DIV 64 AND h.due_s=" HELD_DUE_S " AND h.owner=r.owner AND h.bits&(1<<(p.id&63))))"

#define WITHOUT_ROW_OF_DEADLINE                                                                                        \
    "NOT EXISTS (SELECT 1 FROM waiting_due w FORCE INDEX (PRIMARY) WHERE w.due_s=" HELD_DUE_S                          \
    " AND w.permit_request_id=r.id)"

/* A row of `errand` without an errand is harmless: the poll passes it over. */
#define WITHOUT_ROW_OF_ERRAND                                                                                          \
    "NOT EXISTS (SELECT 1 FROM held_bit b STRAIGHT_JOIN errand e FORCE INDEX (PRIMARY) ON e.bucket=b.n"                \
    " AND e.permit_request_id=r.id)"

/* Walks PRIMARY over requests of any state, because no index has the held ones. One statement has one read view. */
static enum permit_status audit_requests(struct store *store, uint64_t after, struct arena *arena,
                                         struct audit_result *ret_result, uint64_t *ret_last)
{
    struct packet packet = packet_begin(session_of(store), arena);
    struct audit_result result = {.drifts = arena_array(arena, AUDIT_PAGE_DRIFTS, sizeof *result.drifts)};
    if (!result.drifts)
        return PERMIT_NO_MEMORY;
    buf_printf(&packet.sql,
               AUDIT_SELECT "r.id,r.state,IF(r.state<>2,r.external_id,''),IF(r.state=1," PERMITS_OF_REQUEST
                            ",0),CASE r.state WHEN 1 THEN " PERMITS_WITHOUT_BIT " WHEN 3 THEN " WITHOUT_ROW_OF_DEADLINE
                            " ELSE 0 END,IF(r.errand," WITHOUT_ROW_OF_ERRAND ",0)"
                            " FROM permit_request r FORCE INDEX (PRIMARY) WHERE r.id>%llu ORDER BY r.id LIMIT %d",
               (unsigned long long)after, AUDIT_PAGE);
    packet_send(&packet);
    uint64_t last = 0;
    size_t count = 0;
    for (; packet_row(&packet); count++) {
        last = column_u64(packet.row.row.columns[0]);
        check_request(&packet.row, &result);
    }
    enum permit_status status = packet_end(&packet);
    if (status != PERMIT_OK)
        return status;
    *ret_result = result;
    *ret_last = count == AUDIT_PAGE ? last : 0;
    return PERMIT_OK;
}

const struct store_audit mysql_audit = {
    .begin = audit_begin,
    .step = audit_step,
    .end = audit_end,
    .requests = audit_requests,
};
