/* SPDX-License-Identifier: MIT */
/* GET /v1/semaphores/{name}/report: what a semaphore was used for, from the permits that are still there. */
#include "core/report.h"

#include "api/json_out.h"
#include "api/problem.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/service.h"
#include "base/clock.h"
#include "base/duration.h"
#include "store/store.h"

/* A report reads at most this many permits, for at most this long. */
enum { ROWS_MAX = 200000, PAGE_ROWS = 1000, PAGE_CHUNK = 64 * 1024, PAGE_BYTES = 4 * 1024 * 1024 };
#define TIME_MAX      (2 * (mono_us)US_PER_SECOND)
#define SINCE_DEFAULT (7 * 86400LL * 1000)
#define SINCE_MAX     (366 * 86400LL * 1000)

struct report_call {
    int64_t since_ms;
    struct report report;
    size_t rows;
    utc_us oldest; /* the earliest grant that was read */
    bool cut;      /* there are permits that were not read */
};

/* Adds the permits, page by page, until the first one or a limit. */
static enum permit_status read_permits(struct report_call *call, struct store *store, uint64_t semaphore_id,
                                       struct arena *arena)
{
    struct page page = {.arena = arena, .limit = PAGE_ROWS};
    mono_us until = clock_mono() + TIME_MAX;
    do {
        arena_clear(arena);
        page.after = page.next;
        enum permit_status status = store->queries->permits(store, semaphore_id, &page);
        if (status != PERMIT_OK)
            return status;
        for (size_t i = 0; i < page.count; i++) {
            report_add(&call->report, &page.permits[i]);
            call->oldest = min_i64(call->oldest, page.permits[i].acquired_at);
        }
        call->rows += page.count;
    } while (page.more && page.count && call->rows < ROWS_MAX && clock_mono() < until);
    call->cut = page.more;
    return PERMIT_OK;
}

static void write_spread(struct buf *out, const char *name, const struct spread *spread)
{
    if (!spread->count)
        return;
    buf_printf(out, ",\"%s_median_ms\":%lld,\"%s_p95_ms\":%lld,\"%s_longest_ms\":%lld", name,
               (long long)spread_percentile(spread, 50), name, (long long)spread_percentile(spread, 95), name,
               (long long)spread->longest_ms);
}

static void write_sum(struct buf *out, const struct report *report, const struct report_sum *sum)
{
    write_member_i64(out, "grants", sum->grants);
    write_member_i64(out, "units", sum->units);
    buf_printf(out, ",\"average_in_use\":%.3f", sum->unit_us / (double)(report->to - report->from));
}

/* Owners that the viewer may not see are part of the others. */
static void write_owners(struct buf *out, const struct viewer *viewer, struct report *report)
{
    struct report_sum others = report->others;
    bool first = true;
    report_sort(report);
    buf_append_text(out, ",\"owners\":[");
    for (size_t i = 0; i < report->owner_count; i++) {
        const struct report_owner *owner = &report->owners[i];
        struct bytes stored = {owner->text, owner->length};
        if (stored.length && !viewer_sees(viewer, stored)) {
            others.grants += owner->sum.grants;
            others.units = owner->sum.units > INT64_MAX - others.units ? INT64_MAX : others.units + owner->sum.units;
            others.unit_us += owner->sum.unit_us;
            continue;
        }
        buf_append_text(out, first ? "{\"owner\":" : ",{\"owner\":");
        first = false;
        if (stored.length)
            write_text(out, key_split(stored).key);
        else
            buf_append_text(out, "null");
        if (stored.length && viewer_needs_namespace(viewer, stored))
            write_member_text(out, "namespace", key_split(stored).namespace);
        write_sum(out, report, &owner->sum);
        buf_append_char(out, '}');
    }
    buf_append_text(out, "],\"others\":{");
    size_t begin = out->length;
    write_sum(out, report, &others);
    if (!out->broken)
        out->data[begin] = ' '; /* in place of its comma */
    buf_append_char(out, '}');
}

static void write_report(struct exchange *exchange, struct report_call *call, const struct semaphore_row *row,
                         const struct query_time *time)
{
    struct report *report = &call->report;
    struct buf *out = &exchange->answer.body;
    const struct viewer viewer = viewer_of(exchange);
    buf_append_text(out, "{\"semaphore\":");
    write_text(out, row->semaphore.name);
    buf_append_text(out, ",\"from\":");
    write_time(out, lease_to_wall(&time->clock, report->from));
    buf_append_text(out, ",\"to\":");
    write_time(out, lease_to_wall(&time->clock, report->to));
    write_member_bool(out, "complete", !call->cut);
    if (call->cut) {
        buf_append_text(out, ",\"read_from\":");
        write_time(out, lease_to_wall(&time->clock, call->oldest));
    }
    write_member_i64(out, "capacity", row->semaphore.capacity);
    write_member_i64(out, "in_use", row->semaphore.in_use);
    write_sum(out, report, &report->all);
    write_member_i64(out, "waited", report->waited);
    write_spread(out, "wait", &report->waits);
    write_member_i64(out, "confirmed", report->confirmed);
    write_spread(out, "hold", &report->holds);
    buf_append_text(out, ",\"ended\":[");
    for (unsigned i = 0, count = 0; i < PERMIT_END_COUNT; i++)
        if (report->ended[i] && end_reason_word((enum end_reason)i))
            buf_printf(out, "%s{\"end_reason\":\"%s\",\"count\":%lld}", count++ ? "," : "",
                       end_reason_word((enum end_reason)i), (long long)report->ended[i]);
    buf_append_text(out, "],\"use\":[");
    for (unsigned i = 0; i < REPORT_PARTS; i++) {
        utc_us begin = report_part(report, i), end = report_part(report, i + 1);
        buf_append_text(out, i ? ",{\"from\":" : "{\"from\":");
        write_time(out, lease_to_wall(&time->clock, begin));
        buf_printf(out, ",\"average_in_use\":%.3f}", report->unit_us[i] / (double)max_i64(1, end - begin));
    }
    buf_append_char(out, ']');
    write_owners(out, &viewer, report);
    buf_append_text(out, ",\"not_recorded\":[\"refusals\",\"abandoned_waits\"]}");
}

static enum permit_status answer_report(struct exchange *exchange, struct store *store)
{
    struct report_call *call = exchange->context;
    struct semaphore_row row;
    struct query_time time;
    struct arena arena;
    enum permit_status status =
        store->queries->semaphore(store, exchange->path_values[0], &exchange->arena, &row, &time);
    if (status != PERMIT_OK)
        return status;
    utc_us now = lease_time(&time.clock, time.now);
    report_init(&call->report, now - call->since_ms * US_PER_MS, now);
    call->oldest = now;
    arena_init(&arena, PAGE_CHUNK, PAGE_BYTES);
    status = read_permits(call, store, row.semaphore.id, &arena);
    arena_release(&arena);
    if (status == PERMIT_OK)
        write_report(exchange, call, &row, &time);
    return status;
}

bool semaphore_report(struct exchange *exchange)
{
    struct report_call *call = arena_alloc(&exchange->arena, sizeof *call);
    struct bytes since = query_param(exchange, "since");
    if (!call)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    call->since_ms = SINCE_DEFAULT;
    if (since.data &&
        (!duration_parse_any(since, &call->since_ms) || call->since_ms < 1000 || call->since_ms > SINCE_MAX))
        return problem_answer(exchange, PERMIT_INVALID, "since must be a time such as 12h or 7d, from 1s to 366d");
    return query_submit(exchange, QUERY_LIST, answer_report, call);
}
