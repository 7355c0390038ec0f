/* SPDX-License-Identifier: MIT */
/* GET /v1/doctor: the doctor's findings about the database server, and permitd's findings about itself. */
#include "store/doctor.h"
#include "api/json_out.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/service.h"
#include "api/webhooks.h"
#include "base/clock.h"
#include "store/locks.h"

/* ---- our own findings ---- */

/* An unsure permitd, as each one is after a start or a failover, leaves the first 5 s to others, and then ticks. */
enum { TICK_LATE_S = 10 };

/* Deadlines are times of the lease clock (docs/design.md), which stops while no permitd advances it. */
static enum permit_status find_served_time(const struct service *service, struct store *store,
                                           struct doctor_report *report)
{
    struct query_time time;
    enum permit_status status = store->queries->clock(store, &time);
    if (status != PERMIT_OK)
        return status;
    long long offset_ms = time.clock.offset_us / US_PER_MS;
    long long age_s = (time.now - time.clock.tick_at) / US_PER_SECOND;
    mono_us up = clock_mono() - service->started_at;
    if (age_s <= TICK_LATE_S || up <= TICK_LATE_S * US_PER_SECOND)
        doctor_add(report, "served_time", DOCTOR_OK,
                   "served time is the database's clock less %lld ms lost to clock jumps and outages", offset_ms);
    else
        doctor_add(report, "served_time", DOCTOR_WARN,
                   "served time has not advanced for %lld s, so no permit expires; it resumes when a permitd serves "
                   "this database",
                   age_s);
    return PERMIT_OK;
}

enum { DRIFTS_NAMED = 5 };

/*
 * Reports the mismatches that this process's audit has found. Reads nothing here, because an audit of all semaphores
 * takes long.
 */
static enum permit_status find_usage(const struct service *service, struct store *store, struct doctor_report *report)
{
    struct audit_drift drifts[DRIFTS_NAMED];
    (void)store;
    size_t count = engine_drifts(service->engine, drifts, DRIFTS_NAMED);
    for (size_t i = 0; i < count && i < DRIFTS_NAMED; i++) {
        struct key_parts subject = key_split(bytes_of(drifts[i].subject));
        doctor_add(report, "usage", DOCTOR_WARN,
                   "%s %.100s%s%.*s does not match its rows: %s; only permitd may write to its tables; if nothing else "
                   "did, please report this as a bug",
                   drifts[i].is_request ? "request" : "semaphore", subject.key.data,
                   subject.namespace.length ? " of namespace " : "", (int)subject.namespace.length,
                   subject.namespace.length ? subject.namespace.data : "", drifts[i].sentence);
    }
    if (count > DRIFTS_NAMED)
        doctor_add(report, "usage", DOCTOR_WARN, "%zu more mismatches; see the log", count - DRIFTS_NAMED);
    if (count == 0)
        doctor_add(report, "usage", DOCTOR_OK, "the audit has found no mismatch");
    return PERMIT_OK;
}

/* The right to read locks is optional: permitd itself needs it for nothing. */
static enum permit_status find_locks(const struct service *service, struct store *store, struct doctor_report *report)
{
    char grant[LOCK_GRANT_SIZE];
    (void)service;
    enum permit_status status = store->queries->locks_missing_grant(store, grant);
    if (status == PERMIT_OK)
        doctor_add(report, "locks", DOCTOR_OK, "permitctl locks %s%s",
                   grant[0] ? "is not set up; to use it: " : "has its rights", grant);
    return status;
}

static enum permit_status find_plans(const struct service *service, struct store *store, struct doctor_report *report)
{
    (void)service;
    return store->queries->plans(store, report);
}

/* Each row examines our own tables and adds its findings to the report. */
static enum permit_status (*const own_findings[])(const struct service *service, struct store *store,
                                                  struct doctor_report *report) = {
    find_served_time, find_usage, find_locks, find_plans, webhooks_find,
};

/* ---- the answer ---- */

static void write_report(struct buf *out, const struct doctor_report *report)
{
    buf_append_text(out, "{\"findings\":[");
    for (size_t i = 0; i < report->count; i++) {
        const struct doctor_finding *finding = &report->findings[i];
        buf_append_text(out, i ? ",{\"check\":" : "{\"check\":");
        write_text(out, bytes_of(finding->check));
        write_member_text(out, "verdict", bytes_of(doctor_verdict_word(finding->verdict)));
        write_member_text(out, "sentence", bytes_of(finding->sentence));
        buf_append_char(out, '}');
    }
    buf_append_text(out, "],\"refusals\":");
    buf_append_u64(out, report->refusals);
    buf_append_text(out, ",\"warnings\":");
    buf_append_u64(out, report->warnings);
    buf_append_char(out, '}');
}

static void doctor_work(struct query *query, struct store *store, enum permit_status status)
{
    struct exchange *exchange = query_exchange(query);
    struct doctor_report report;
    if (status == PERMIT_OK)
        status = store->session->doctor(store, &report);
    for (size_t i = 0; status == PERMIT_OK && i < ARRAY_LENGTH(own_findings); i++)
        status = own_findings[i](exchange->service, store, &report);
    if (status == PERMIT_OK)
        write_report(&exchange->answer.body, &report);
    else
        query_refuse(exchange, store, status);
    exchange_finish(exchange);
}

/* Accepted also while permitd refuses the database: then the report is needed most. */
bool ops_doctor(struct exchange *exchange)
{
    return query_submit_always(exchange, QUERY_OPERATOR, doctor_work, NULL);
}
