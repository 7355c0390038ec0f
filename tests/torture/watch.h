/* SPDX-License-Identifier: MIT */
/*
 * When requests that nobody renews end, by the monotonic clock of the test: grants are known to lie between sending and
 * answer, ends between two looks at the rows.
 */
#ifndef WATCH_H
#define WATCH_H

#include "site.h"

enum { WATCHED_MAX = 64 };

struct watched {
    char key[48];
    int64_t ttl_us;
    int64_t granted_from_us, granted_to_us;
    int64_t ended_from_us, ended_to_us; /* 0: not seen to have ended */
};

struct watch {
    struct site *site;
    struct watched list[WATCHED_MAX];
    size_t count;
    int64_t looked_us; /* when the last look began */
};

/* One unit of the semaphore under a new key, which nobody will renew. */
void watch_acquire(struct watch *watch, struct kit_http *http, const char *semaphore, unsigned ttl_ms);
/* Reads the rows once; how many are still held. */
size_t watch_look(struct watch *watch);
/* Looks all the time until all have ended; ends the process after `ms`. */
void watch_until_ended(struct watch *watch, int ms);
/*
 * The time from grant to end less the ttl less what of it does not count (an outage), at the least and at the most.
 * Ends the process if a request surely ended more than `early_ms` before that, or was surely held more than `late_ms`
 * after.
 */
void watch_judge(const struct watch *watch, int64_t uncounted_us, int early_ms, int late_ms, const char *what);
#endif
