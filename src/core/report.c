/* SPDX-License-Identifier: MIT */
#include "core/report.h"

#include <assert.h>
#include <stdlib.h>

/* ---- spans ---- */

/* The step of a span: itself below SPREAD_EXACT; then each doubling has 32 steps, by the five bits below the highest. */
static unsigned spread_step(uint64_t ms)
{
    unsigned shift = ms < SPREAD_EXACT ? 0 : 63 - 5 - (unsigned)__builtin_clzll(ms);
    return shift * SPREAD_EXACT + (unsigned)(ms >> shift);
}

void spread_add(struct spread *spread, int64_t ms)
{
    int64_t span = max_i64(0, ms);
    unsigned step = spread_step((uint64_t)span);
    assert(step < SPREAD_STEPS);
    spread->steps[step]++;
    spread->count++;
    spread->longest_ms = max_i64(spread->longest_ms, span);
}

int64_t spread_percentile(const struct spread *spread, unsigned percent)
{
    uint64_t rank = (spread->count * percent + 99) / 100, seen = 0;
    for (unsigned step = 0; step < SPREAD_STEPS; step++) {
        seen += spread->steps[step];
        if (seen < rank || !spread->count)
            continue;
        unsigned shift = step < 2 * SPREAD_EXACT ? 0 : step / SPREAD_EXACT - 1;
        uint64_t last = ((uint64_t)(step - shift * SPREAD_EXACT + 1) << shift) - 1;
        return last < (uint64_t)spread->longest_ms ? (int64_t)last : spread->longest_ms;
    }
    return 0;
}

/* ---- the report ---- */

void report_init(struct report *report, utc_us from, utc_us to)
{
    assert(from < to);
    *report = (struct report){.from = from, .to = to};
}

utc_us report_part(const struct report *report, unsigned part)
{
    utc_us span = report->to - report->from;
    return report->from + span / REPORT_PARTS * part + span % REPORT_PARTS * part / REPORT_PARTS;
}

static struct report_sum *sum_of_owner(struct report *report, struct bytes owner)
{
    for (size_t i = 0; i < report->owner_count; i++)
        if (bytes_equal(owner, (struct bytes){report->owners[i].text, report->owners[i].length}))
            return &report->owners[i].sum;
    if (report->owner_count == REPORT_OWNERS_MAX || owner.length > STORED_KEY_MAX_BYTES)
        return &report->others;
    struct report_owner *place = &report->owners[report->owner_count++];
    if (owner.length)
        memcpy(place->text, owner.data, owner.length);
    place->length = owner.length;
    return &place->sum;
}

static void sum_add(struct report_sum *sum, const struct report_permit *permit, bool granted, double unit_us)
{
    sum->unit_us += unit_us;
    if (!granted)
        return;
    sum->grants += !permit->is_part;
    sum->units = permit->count > INT64_MAX - sum->units ? INT64_MAX : sum->units + permit->count;
}

/* The time of the permit that lies between two moments. */
static int64_t overlap(const struct report_permit *permit, utc_us from, utc_us to)
{
    return max_i64(0, min_i64(permit->ended_at, to) - max_i64(permit->acquired_at, from));
}

static bool is_within(const struct report *report, utc_us at)
{
    return at >= report->from && at < report->to;
}

void report_add(struct report *report, const struct report_permit *permit)
{
    bool granted = is_within(report, permit->acquired_at);
    double unit_us = 0;
    if (permit->acquired_at == NEVER)
        return;
    for (unsigned i = 0; i < REPORT_PARTS; i++) {
        double part =
            (double)overlap(permit, report_part(report, i), report_part(report, i + 1)) * (double)permit->count;
        report->unit_us[i] += part;
        unit_us += part;
    }
    if (!granted && unit_us == 0 && !is_within(report, permit->ended_at))
        return;
    sum_add(&report->all, permit, granted, unit_us);
    sum_add(sum_of_owner(report, permit->owner), permit, granted, unit_us);
    if (granted && !permit->is_part) {
        bool waited = permit->waiting_since != NEVER;
        report->waited += waited;
        spread_add(&report->waits, waited ? (permit->acquired_at - permit->waiting_since) / US_PER_MS : 0);
    }
    report->confirmed += is_within(report, permit->confirmed_at);
    if (is_within(report, permit->ended_at)) {
        if ((unsigned)permit->end_reason < PERMIT_END_COUNT)
            report->ended[permit->end_reason]++;
        spread_add(&report->holds, (permit->ended_at - permit->acquired_at) / US_PER_MS);
    }
}

static int compare_owners(const void *left, const void *right)
{
    const struct report_owner *a = left, *b = right;
    if (a->sum.grants != b->sum.grants)
        return a->sum.grants < b->sum.grants ? 1 : -1;
    return bytes_compare((struct bytes){a->text, a->length}, (struct bytes){b->text, b->length});
}

void report_sort(struct report *report)
{
    qsort(report->owners, report->owner_count, sizeof *report->owners, compare_owners);
}
