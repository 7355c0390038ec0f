/* SPDX-License-Identifier: MIT */
/* Summary of a history for each key: the input of the checkers. */
#ifndef KEY_SUMMARY_H
#define KEY_SUMMARY_H

#include "checkers.h"

/*
 * Times are of the clients' clock. An event that did not happen is INT64_MAX; for the last of several events it is
 * INT64_MIN.
 */
struct key_summary {
    int64_t first_asked;      /* first acquire sent */
    int64_t first_known;      /* first answer with SAYS_HELD */
    int64_t last_held_sent;   /* sent time of the last call answered with SAYS_HELD */
    int64_t last_absent_sent; /* sent time of the last call whose answer says not held and not ended */
    int64_t release_sent;     /* first release sent that may have taken effect */
    int64_t confirm_sent;     /* first confirm sent */
    int64_t end_known;        /* first answer that says ended */
    int64_t lease_end;        /* the request does not expire before this time */
    int64_t lease_us;         /* 0: held until released */
    int64_t ended_unheard;    /* first answer of an acquire that says ended */
    int64_t held_until;       /* surely held from first_known until this time */
    bool open;                /* an acquire without an answer may have been granted */
    bool waited;              /* an acquire asked to wait, so that it may have been granted unclaimed */
    bool refused;             /* an acquire was answered "no capacity" */
    bool claimed;             /* a call that claims such a grant was answered with SAYS_HELD */
    const struct call *held;  /* the call answered at first_known */
    const struct call *asked; /* any acquire */
};

/* One entry per key. The caller frees the list. */
struct key_summary *key_summaries(const struct history *history, const struct facts *facts, size_t *ret_count);
#endif
