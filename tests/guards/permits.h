/* SPDX-License-Identifier: MIT */
/* Permits of a real permitd, for the holders in the tests of guards. */
#ifndef PERMITS_H
#define PERMITS_H

#include "testkit.h"

enum { SLOTS_MAX = 8, SLOTS_TEXT = 64 };

struct permit {
    char key[80];
    int64_t token;
    int64_t floor;
    char slots[SLOTS_TEXT]; /* "3,4", as in PERMIT_SLOTS; "" for a counted semaphore */
    uint32_t numbers[SLOTS_MAX];
    size_t count;
};

/* kit_fail if it cannot be created. */
void permits_semaphore(struct kit_http *http, const char *name, const char *kind, unsigned capacity);
/* Waits up to wait_ms for capacity. Returns false if there was none in that time, or permitd was busy. */
bool permits_acquire(struct kit_http *http, const char *semaphore, unsigned count, int ttl_ms, int wait_ms,
                     struct permit *ret_permit);
void permits_release(struct kit_http *http, const struct permit *permit);
#endif
