/* SPDX-License-Identifier: MIT */
/*
 * Sums up what a semaphore was used for, from its permits: grants, waits, holds, use over time, by owner. Pure; the
 * memory is that of the struct, however many permits are added.
 */
#ifndef CORE_REPORT_H
#define CORE_REPORT_H

#include "core/name.h"
#include "core/request.h"

enum {
    REPORT_PARTS = 24,       /* of the time, for the use */
    REPORT_OWNERS_MAX = 100, /* the first that are added; the others are one sum */
    SPREAD_EXACT = 32, /* spans below this many ms are counted exactly, larger ones in 32 steps for each doubling */
    SPREAD_STEPS = SPREAD_EXACT * 59,
};

/* Units of a permit that were granted, held and ended together. Times are lease clock. */
struct report_permit {
    uint64_t token;
    int64_t count;
    bool is_part;       /* these were given back before the rest of its permit, which counts the grant */
    struct bytes owner; /* stored; length 0: none */
    enum end_reason end_reason;
    utc_us acquired_at;
    utc_us ended_at;      /* NEVER: held */
    utc_us confirmed_at;  /* NEVER: not confirmed */
    utc_us waiting_since; /* NEVER: it was granted without a wait, or by an exchange */
};

/* How long things took. */
struct spread {
    uint64_t count;
    int64_t longest_ms;
    uint32_t steps[SPREAD_STEPS];
};

void spread_add(struct spread *spread, int64_t ms);
/* Returns the span that `percent` of all do not exceed, rounded up by at most a 32nd; 0: there is none. */
int64_t spread_percentile(const struct spread *spread, unsigned percent);

struct report_sum {
    int64_t grants; /* tokens */
    int64_t units;  /* of these grants */
    double unit_us; /* units held * time, of all permits, granted in the time or before it */
};

struct report {
    utc_us from, to; /* the time that it is about: from <= t < to */
    struct report_sum all;
    int64_t waited;    /* grants after a wait */
    int64_t confirmed; /* permits confirmed in the time */
    int64_t ended[PERMIT_END_COUNT];
    struct spread waits; /* of the grants; 0 without a wait */
    struct spread holds; /* of permits, and parts of them, that ended in the time */
    double unit_us[REPORT_PARTS];
    struct report_owner {
        char text[STORED_KEY_MAX_BYTES];
        size_t length; /* 0: no owner */
        struct report_sum sum;
    } owners[REPORT_OWNERS_MAX];
    size_t owner_count;
    struct report_sum others; /* of owners without a place in `owners` */
};

/* `from` is before `to`. */
void report_init(struct report *report, utc_us from, utc_us to);
void report_add(struct report *report, const struct report_permit *permit);
/* The begin of a part of the time; REPORT_PARTS: its end. */
utc_us report_part(const struct report *report, unsigned part);
/* Orders the owners: most grants first. */
void report_sort(struct report *report);
#endif
