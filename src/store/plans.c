/* SPDX-License-Identifier: MIT */
#include "store/plans.h"

#include "store/doctor.h"
#include "store/query_packet.h"

/* A scan of fewer rows is the quickest plan, and harms nobody. */
enum { SCAN_ROWS = 1000 };

/*
 * How the batches and tasks find their rows: the tables, indexes and conditions of their statements, with values that
 * no row has. Each names the index that it walks, so the server refuses it if that index is gone.
 */
static const struct {
    const char *finds;
    const char *sql;
} statements[] = {
    {"semaphores by name", "SELECT id FROM semaphore FORCE INDEX (semaphore_name) WHERE name IN (x'00',x'01',x'02')"},
    {"semaphores by id", "SELECT id FROM semaphore FORCE INDEX (PRIMARY) WHERE id IN (1,2,3) ORDER BY id FOR UPDATE"},
    {"requests by key", "SELECT id FROM permit_request FORCE INDEX (permit_request_external_id)"
                        " WHERE external_id IN (x'00',x'01',x'02')"},
    {"permits of requests", "SELECT STRAIGHT_JOIN p.id FROM permit_request r FORCE INDEX (PRIMARY)"
                            " JOIN permit p FORCE INDEX (permit_request) ON p.permit_request_id=r.id"
                            " WHERE r.id IN (1,2,3)"},
    {"permits by token", "SELECT permit_request_id FROM permit FORCE INDEX (PRIMARY) WHERE semaphore_id=1"
                         " AND id IN (1,2,3)"},
    {"free slots", "SELECT number FROM slot FORCE INDEX (PRIMARY) WHERE semaphore_id=1 AND number>=1 AND permit_id=0"
                   " ORDER BY number LIMIT 64"},
    {"slots by label", "SELECT number FROM slot FORCE INDEX (slot_label) WHERE semaphore_id=1"
                       " AND label IN (x'00',x'01',x'02')"},
    {"the queue", "SELECT STRAIGHT_JOIN r.id FROM waiter w FORCE INDEX (PRIMARY)"
                  " JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=w.permit_request_id"
                  " WHERE w.semaphore_id=1 ORDER BY w.place,w.permit_request_id LIMIT 64"},
    {"waiters of a slot", "SELECT permit_request_id FROM waiter FORCE INDEX (waiter_watch) WHERE semaphore_id=1"
                          " AND watch IN (1,2,3)"},
    {"due holds", "SELECT block FROM held FORCE INDEX (held_due) WHERE due_s<1 ORDER BY due_s,semaphore_id,block"
                  " LIMIT 64"},
    {"holds of an owner", "SELECT block FROM held FORCE INDEX (held_owner) WHERE owner=x'00'"},
    {"waits that end", "SELECT permit_request_id FROM waiting_due FORCE INDEX (PRIMARY) WHERE due_s<1"
                       " ORDER BY due_s,permit_request_id LIMIT 64"},
    {"owners that lapse", "SELECT name FROM owner FORCE INDEX (owner_due) WHERE lapsed_at IS NULL"
                          " AND due_at<'1971-01-01' ORDER BY due_at LIMIT 64"},
};

/* Reads the rows of EXPLAIN. Returns the number of rows of the first table that is scanned; 0: none is. */
static uint64_t read_scan(struct packet *packet)
{
    uint64_t scanned = 0;
    unsigned partitions = session_is_mariadb(packet->session) ? 0 : 1; /* MySQL has this column before the type */
    while (packet_row(packet)) {
        const struct bytes *columns = packet->row.row.columns;
        struct bytes type = columns[3 + partitions];
        uint64_t rows = column_u64(columns[8 + partitions]);
        bool scans = bytes_equal(type, BYTES("ALL")) || bytes_equal(type, BYTES("index"));
        if (scans && rows >= SCAN_ROWS && !scanned)
            scanned = rows;
    }
    return scanned;
}

enum permit_status plans_check(struct store *store, struct doctor_report *report)
{
    struct session *session = session_of(store);
    size_t bad = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(statements); i++) {
        struct packet packet = packet_begin(session, NULL);
        buf_printf(&packet.sql, "EXPLAIN FORMAT=TRADITIONAL %s", statements[i].sql);
        packet_send(&packet);
        uint64_t scanned = read_scan(&packet);
        enum permit_status status = packet_end(&packet);
        bool refused = status == PERMIT_INTERNAL && session_errno(session) != 0;
        if (status != PERMIT_OK && !refused)
            return status;
        bad += refused || scanned;
        if (refused)
            doctor_add(report, "plans", DOCTOR_WARN, "the statement that finds %s fails: %s", statements[i].finds,
                       session_message(session));
        else if (scanned)
            doctor_add(report, "plans", DOCTOR_WARN,
                       "the statement that finds %s scans about %llu rows; run ANALYZE TABLE on permitd's tables",
                       statements[i].finds, (unsigned long long)scanned);
    }
    if (!bad)
        doctor_add(report, "plans", DOCTOR_OK, "the %zu statements that find rows use their indexes",
                   ARRAY_LENGTH(statements));
    return PERMIT_OK;
}
