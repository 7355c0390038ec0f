/* SPDX-License-Identifier: MIT */
/* The cost of many requests that few clients renew continuously, in batches. */
#ifndef RENEWALS_H
#define RENEWALS_H

#include <stdint.h>

struct renewals_settings {
    long requests;
    unsigned clients;
    int every_ms; /* of each request */
    int ttl_ms;
    int window_ms; /* of the measurement */
};

struct renewals {
    int64_t longest_us; /* longest time from sending a renewal to the answer of the next one of the same request */
    long failed;        /* answers other than 200 */
    double rate;        /* renewals per second */
    double permitd_cores, database_cores;
};

void renewals_measure(const struct renewals_settings *settings, struct renewals *ret_renewals);
#endif
