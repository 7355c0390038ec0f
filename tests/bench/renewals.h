/* SPDX-License-Identifier: MIT */
/* Many live requests that few clients renew all the time, in batches, and what that costs. */
#ifndef RENEWALS_H
#define RENEWALS_H

#include <stdint.h>

struct renewals_settings {
    long requests;
    unsigned clients;
    int every_ms; /* each request */
    int ttl_ms;
    int window_ms; /* measured */
};

struct renewals {
    int64_t longest_us; /* from before a renewal was sent to the answer of the next one of that request */
    long failed;        /* answers other than 200 */
    double rate;        /* renewals per second */
    double permitd_cores, database_cores;
};

void renewals_measure(const struct renewals_settings *settings, struct renewals *ret_renewals);
#endif
