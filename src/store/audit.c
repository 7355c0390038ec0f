/* SPDX-License-Identifier: MIT */
/*
 * What makes up a semaphore's sums is read in pages within one transaction that sees the database as it was when it
 * began. It reads nothing else, so that the server does not have to keep old rows for it for long: the requests behind
 * the permits, three times the work, are looked at afterwards, each page in a view of its own.
 */
#include "store/audit.h"

#include <stdio.h>

#include "core/slots.h"
#include "store/rows.h"
#include "store/sql_text.h"

enum {
    SQL_MAX = 4096,
    PERMITS_PAGE = 2000, /* some 6 ms */
    SLOTS_PAGE = 5000,
    REQUESTS_PAGE = 500,
};

/* So that whoever looks at the server's log of statements sees who reads all the rows, a few at a time. */
#define AUDIT_SELECT "SELECT /* audit */ "

#define ONE_VIEW                                                                                                       \
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY;"

/* What apart[] counts. */
enum { UNITS, PERMITS_OF_ENDED, SLOTS_OF_OTHERS, SLOTS_OUT_OF_PLACE, PERMITS_WITH_ODD_SLOTS };

/* ---- sending ---- */

static enum permit_status send_text(struct session *session, struct buf *sql)
{
    enum permit_status status = session_send_buf(session, sql);
    buf_release(sql);
    return status;
}

/* ---- a semaphore ---- */

static enum permit_status read_semaphore(struct audit *audit, uint64_t after)
{
    struct buf sql;
    struct row_reader reader = {.arena = audit->arena};
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, ONE_VIEW AUDIT_SELECT
                    "id,name,kind,capacity,in_use FROM semaphore FORCE INDEX (PRIMARY) WHERE id>");
    buf_append_u64(&sql, after);
    buf_append_text(&sql, " ORDER BY id LIMIT 1");
    enum permit_status status = send_text(audit->session, &sql);
    for (int i = 0; i < 2 && status == PERMIT_OK; i++)
        status = session_next(audit->session);
    if (status == PERMIT_OK && row_step(&reader, audit->session)) {
        audit->semaphore.id = row_u64(&reader);
        audit->semaphore.name = row_bytes(&reader);
        audit->semaphore.kind = (enum semaphore_kind)row_u64(&reader);
        audit->semaphore.capacity = row_i64(&reader);
        audit->semaphore.in_use = row_i64(&reader);
    }
    return session_end(audit->session, reader.broken ? PERMIT_NO_MEMORY : status);
}

enum permit_status audit_begin(struct audit *audit, struct session *session, uint64_t after, struct arena *arena)
{
    *audit = (struct audit){.session = session, .arena = arena, .in_view = true};
    enum permit_status status = read_semaphore(audit, after);
    if (status != PERMIT_OK)
        return status;
    if (audit->semaphore.id == 0)
        audit->step = AUDIT_DONE;
    if (audit->semaphore.kind != KIND_SLOTTED)
        return PERMIT_OK;
    audit->holders = arena_array(arena, SLOTS_MAX_CAPACITY + 1, sizeof audit->holders[0]);
    audit->apart[SLOTS_OUT_OF_PLACE] = audit->semaphore.capacity; /* less one for each that is there */
    return audit->holders ? PERMIT_OK : PERMIT_NO_MEMORY;
}

/* Notes who names which slot; two permits that name the same one are odd, as is one that has not `count` of them. */
static void note_slots(struct audit *audit, const struct permit *permit)
{
    bool odd = permit->slots.count != permit->count;
    for (uint32_t i = 0; i < permit->slots.count; i++) {
        uint64_t *holder = &audit->holders[permit->slots.numbers[i]];
        odd |= *holder != 0;
        *holder = permit->token;
    }
    audit->apart[PERMITS_WITH_ODD_SLOTS] += odd;
}

static void note_permit(struct audit *audit, struct row_reader *reader)
{
    struct permit permit = {.token = row_u64(reader), .count = row_i64(reader)};
    struct bytes text = row_column(reader);
    audit->held += permit.count;
    audit->last = permit.token;
    if (!audit->holders)
        return;
    if (slots_parse(text, audit->arena, &permit.slots))
        note_slots(audit, &permit);
    else
        audit->apart[PERMITS_WITH_ODD_SLOTS]++;
}

/* A slot is as it should be if the permit that names it has it, or nobody; see follow_capacity for `retired`. */
static void note_slot(struct audit *audit, struct row_reader *reader)
{
    uint64_t number = row_u64(reader);
    uint64_t token = row_u64(reader);
    bool retired = row_u64(reader) != 0;
    audit->last = number;
    if (number > SLOTS_MAX_CAPACITY) {
        audit->apart[SLOTS_OUT_OF_PLACE]++;
        return;
    }
    audit->apart[SLOTS_OF_OTHERS] += audit->holders[number] != token;
    audit->holders[number] = 0;
    audit->apart[SLOTS_OUT_OF_PLACE] += retired != ((int64_t)number > audit->semaphore.capacity);
    audit->apart[SLOTS_OUT_OF_PLACE] -= (int64_t)number <= audit->semaphore.capacity;
}

static void note_request_of(struct audit *audit, struct row_reader *reader)
{
    audit->last = row_u64(reader);
    audit->apart[PERMITS_OF_ENDED] += row_u64(reader) != REQUEST_ACQUIRED; /* or it is gone */
}

/* The pages of a semaphore, in this order; slots only if it has them. */
static const struct {
    const char *sql; /* the index that it walks is named */
    const char *from;
    int page;
    void (*note)(struct audit *audit, struct row_reader *reader);
    bool in_view;
    bool slotted;
} steps[] = {
    [AUDIT_PERMITS] = {AUDIT_SELECT
                       "id,count,slots FROM permit p FORCE INDEX (permit_state) WHERE state=1 AND semaphore_id=",
                       "id", PERMITS_PAGE, note_permit, true, false},
    [AUDIT_SLOTS] = {AUDIT_SELECT "number,permit_id,retired FROM slot p FORCE INDEX (PRIMARY) WHERE semaphore_id=",
                     "number", SLOTS_PAGE, note_slot, true, true},
    [AUDIT_REQUESTS] = {AUDIT_SELECT
                        "p.id,r.state FROM permit p FORCE INDEX (permit_state) LEFT JOIN permit_request r"
                        " FORCE INDEX (PRIMARY) ON r.id=p.permit_request_id WHERE p.state=1 AND p.semaphore_id=",
                        "id", REQUESTS_PAGE, note_request_of, false, false},
};

/* Nothing was written: ROLLBACK, so that the cleaner, which counts COMMITs, does not take this for work. */
static enum permit_status close_view(struct audit *audit)
{
    if (!audit->in_view)
        return PERMIT_OK;
    audit->in_view = false;
    return session_run(audit->session, "ROLLBACK");
}

static enum permit_status next_step(struct audit *audit)
{
    audit->last = 0;
    do
        audit->step++;
    while (audit->step != AUDIT_DONE && steps[audit->step].slotted && !audit->holders);
    return audit->step == AUDIT_DONE || steps[audit->step].in_view ? PERMIT_OK : close_view(audit);
}

enum permit_status audit_step(struct audit *audit)
{
    struct buf sql;
    struct row_reader reader = {.arena = audit->arena};
    int rows = 0;
    int page = steps[audit->step].page;
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, steps[audit->step].sql);
    buf_append_u64(&sql, audit->semaphore.id);
    buf_printf(&sql, " AND p.%s>%llu ORDER BY p.%s LIMIT %d", steps[audit->step].from, (unsigned long long)audit->last,
               steps[audit->step].from, page);
    enum permit_status status = send_text(audit->session, &sql);
    for (; status == PERMIT_OK && row_step(&reader, audit->session); rows++)
        steps[audit->step].note(audit, &reader);
    status = session_end(audit->session, status);
    return status == PERMIT_OK && rows < page ? next_step(audit) : status;
}

static const char *const texts[AUDIT_NUMBERS] = {
    [PERMITS_OF_ENDED] = "held permits of ended requests",
    [SLOTS_OF_OTHERS] = "slots that are not with the permit that names them",
    [SLOTS_OUT_OF_PLACE] = "slots missing, or in service against the capacity",
    [PERMITS_WITH_ODD_SLOTS] = "permits whose slots are not theirs alone, or not as many as they count",
};

static enum permit_status judge(struct audit *audit, struct audit_result *ret_result)
{
    bool drifts = false;
    for (uint32_t number = 1; audit->holders && number <= SLOTS_MAX_CAPACITY; number++)
        audit->apart[SLOTS_OF_OTHERS] += audit->holders[number] != 0; /* named by a permit, and there is no such row */
    audit->apart[UNITS] = audit->semaphore.in_use - audit->held;
    for (size_t i = 0; i < AUDIT_NUMBERS; i++)
        drifts |= audit->apart[i] != 0;
    struct audit_drift *drift = drifts ? arena_alloc(audit->arena, sizeof *drift) : NULL;
    if (drifts && !drift)
        return PERMIT_NO_MEMORY;
    *ret_result = (struct audit_result){.drift_count = drifts, .drifts = drift};
    if (!drift)
        return PERMIT_OK;
    drift->id = audit->semaphore.id;
    memcpy(drift->apart, audit->apart, sizeof drift->apart);
    snprintf(drift->subject, sizeof drift->subject, "%s", audit->semaphore.name.data);
    int length = snprintf(drift->sentence, sizeof drift->sentence, "in_use is %lld, its held permits have %lld units",
                          (long long)audit->semaphore.in_use, (long long)audit->held);
    for (size_t i = UNITS + 1; i < AUDIT_NUMBERS; i++)
        if (audit->apart[i])
            length += snprintf(drift->sentence + length, sizeof drift->sentence - (size_t)length, "; %lld %s",
                               (long long)audit->apart[i], texts[i]);
    return PERMIT_OK;
}

enum permit_status audit_end(struct audit *audit, enum permit_status status, struct audit_result *ret_result)
{
    enum permit_status closed = close_view(audit);
    if (closed != PERMIT_OK)
        session_drop(audit->session);
    if (status != PERMIT_OK)
        return status;
    *ret_result = (struct audit_result){0};
    return audit->semaphore.id ? judge(audit, ret_result) : PERMIT_OK;
}

/* ---- requests ---- */

/* Walks permit_request_due among the ACQUIRED, and permit_request for each. One statement: one read view. */
static void requests_sql(const struct audit_place *from, struct buf *sql)
{
    buf_append_text(sql, AUDIT_SELECT
                    "r.id,r.due_at,r.external_id,"
                    "(SELECT COUNT(*) FROM permit p FORCE INDEX (permit_request) WHERE p.permit_request_id=r.id),"
                    "(SELECT COUNT(*) FROM permit p FORCE INDEX (permit_request) WHERE p.permit_request_id=r.id AND"
                    " p.state<>1) FROM permit_request r FORCE INDEX (permit_request_due) WHERE r.state=1 AND ");
    if (from->dated) {
        buf_append_text(sql, "(r.due_at>");
        sql_time(sql, from->due_at);
        buf_append_text(sql, " OR (r.due_at=");
        sql_time(sql, from->due_at);
        buf_append_text(sql, " AND r.id>");
    } else {
        buf_append_text(sql, "((r.due_at IS NULL AND r.id>");
    }
    buf_append_u64(sql, from->id);
    buf_printf(sql, ")) ORDER BY r.due_at,r.id LIMIT %d", AUDIT_PAGE);
}

/* Notes one that has no permits, or some that ended. */
static void note_request(struct row_reader *reader, struct audit_result *result, struct audit_place *place)
{
    uint64_t id = place->id = row_u64(reader);
    place->due_at = row_time(reader);
    struct bytes key = row_column(reader);
    int64_t permits = row_i64(reader);
    int64_t ended = row_i64(reader);
    if (permits > 0 && ended == 0)
        return;
    struct audit_drift *drift = &result->drifts[result->drift_count++];
    *drift = (struct audit_drift){.is_request = true, .id = id, .apart = {permits, ended}};
    snprintf(drift->subject, sizeof drift->subject, "%.*s", (int)key.length, key.data);
    snprintf(drift->sentence, sizeof drift->sentence,
             permits ? "it is held, and %lld of its %lld permits are not" : "it is held and has no permits",
             (long long)ended, (long long)permits);
}

enum permit_status audit_requests(struct session *session, const struct audit_place *from, struct arena *arena,
                                  struct audit_result *ret_result, struct audit_place *ret_place)
{
    struct buf sql;
    struct row_reader reader = {.arena = arena};
    struct audit_place place = *from;
    struct audit_result result = {.drifts = arena_array(arena, AUDIT_PAGE, sizeof *result.drifts)};
    if (!result.drifts)
        return PERMIT_NO_MEMORY;
    buf_init(&sql, SQL_MAX);
    requests_sql(from, &sql);
    enum permit_status status = send_text(session, &sql);
    size_t count = 0;
    for (; status == PERMIT_OK && count < AUDIT_PAGE && row_step(&reader, session); count++)
        note_request(&reader, &result, &place);
    status = session_end(session, status);
    if (status != PERMIT_OK)
        return status;
    if (count < AUDIT_PAGE)
        place = from->dated ? (struct audit_place){.dated = true, .at_end = true} : (struct audit_place){.dated = true};
    *ret_result = result;
    *ret_place = place;
    return PERMIT_OK;
}
