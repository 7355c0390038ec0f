/* SPDX-License-Identifier: MIT */
/* Requests that two readers could read differently, and what permitd answers to each. */
#ifndef SMUGGLING_CASES_H
#define SMUGGLING_CASES_H

#include <stdbool.h>
#include <stddef.h>

struct smuggling_case {
    const char *name;
    const char *bytes; /* LAST, which is answered 200 and ends the connection, is sent behind them */
    size_t length;
    const char *answers; /* the statuses of permitd, of LAST too if it is read as a request */
    bool alone;          /* a proxy would wait a minute for the rest of it */
};

extern const struct smuggling_case smuggling_cases[];
extern const size_t smuggling_case_count;
#endif
