/* SPDX-License-Identifier: MIT */
/* Requests that two readers could interpret differently, and permitd's answers. */
#ifndef SMUGGLING_CASES_H
#define SMUGGLING_CASES_H

#include <stdbool.h>
#include <stddef.h>

struct smuggling_case {
    const char *name;
    const char *bytes; /* LAST, which is answered 200 and ends the connection, is sent after these */
    size_t length;
    const char *answers; /* permitd's statuses, including that of LAST if it is read as a request */
    bool alone;          /* not through a proxy, which would wait a minute for the rest */
};

extern const struct smuggling_case smuggling_cases[];
extern const size_t smuggling_case_count;
#endif
