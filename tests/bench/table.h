/* SPDX-License-Identifier: MIT */
/* Results of several rounds, their medians, and the Markdown for docs/performance.md. */
#ifndef TABLE_H
#define TABLE_H

#include "instance.h"

enum { ROUNDS_MAX = 32 };

/* Sorts the values. 0 if there are none. */
double median(double *values, size_t count);

/* The results of a repeated measurement. */
struct series {
    struct result results[ROUNDS_MAX];
    size_t count;
};

void series_add(struct series *series, struct result result);
/* Median over the rounds of the member at this offset of struct result. */
double series_median(const struct series *series, size_t member);
#define MEDIAN(series, member) series_median(series, offsetof(struct result, member))
/* Median over the rounds of a's member divided by b's member of the same round. */
double series_ratio(const struct series *a, const struct series *b, size_t member);
#define RATIO(a, b, member) series_ratio(a, b, offsetof(struct result, member))
/* Failed operations and missing answers, over all rounds. */
double series_failures(const struct series *series);

/* Formats a text, cut to 511 bytes. It is valid until the eighth call from now. One thread only. */
__attribute__((format(printf, 1, 2))) const char *text(const char *format, ...);

/* Prints date and processor as a list. */
void print_machine_alone(void);
/* The same, then the versions and the settings of the database. */
void print_machine(struct instance *instance);
/* The head of the table of targets and figures. */
void print_target_head(void);
/* A figure with failed operations is not reached, whatever its value. */
void print_target(const char *what, const char *asked, const char *measured, bool reached, double failures);
void print_rates_head(void);
void print_rates(const char *what, const struct series *series, bool with_permitd);
#endif
