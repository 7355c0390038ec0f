/* SPDX-License-Identifier: MIT */
/*
 * A suite made of parts. Each part runs in its own process with its own servers, prints its figures, and ends that
 * process through kit_fail if a promise is broken.
 */
#ifndef SUITE_PARTS_H
#define SUITE_PARTS_H

#include "testkit.h"

struct part_options {
    bool full; /* --long: full numbers; else small ones for every day */
    uint64_t seed;
};

/* Parts of one group run in parallel: those that mostly sleep. Groups run in order, from 0. */
struct part {
    const char *name;
    void (*run)(const struct part_options *options);
    int group;
};

/*
 * The main function of `SUITE [--long] [--seed N] [PART ...]`. Without names it runs all parts. The last line it prints
 * has the number that passed. Returns the exit status.
 */
int suite_parts_main(const char *suite, const struct part *parts, size_t count, int argc, char **argv);
#endif
