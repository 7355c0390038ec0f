/* SPDX-License-Identifier: MIT */
/*
 * Measures when requests that are not renewed end, by the monotonic clock of the test. A grant lies between sending and
 * answer, an end between two queries of the rows.
 */
#ifndef WATCH_H
#define WATCH_H

#include "fixture.h"

enum { WATCHED_MAX = 64 };

struct watched {
    char key[48];
    int64_t ttl_us;
    int64_t granted_from_us, granted_to_us;
    int64_t ended_from_us, ended_to_us; /* 0: not seen ended */
};

struct watch {
    struct fixture *fixture;
    struct watched list[WATCHED_MAX];
    size_t count;
    int64_t looked_us; /* start of the last query */
};

/* Acquires one unit of the semaphore under a new key, which is never renewed. */
void watch_acquire(struct watch *watch, struct kit_http *http, const char *semaphore, unsigned ttl_ms);
/* Reads the rows once. Returns the number still held. */
size_t watch_query(struct watch *watch);
/* Reads the rows until all have ended; ends the process after `ms`. */
void watch_until_ended(struct watch *watch, int ms);
/*
 * Prints the least and the greatest difference between the life of a request and its ttl, where `uncounted_us` (an
 * outage) does not count. Ends the process if a request surely ended more than `early_ms` early, or was surely held
 * more than `late_ms` longer.
 */
void watch_judge(const struct watch *watch, int64_t uncounted_us, int early_ms, int late_ms, const char *what);
#endif
