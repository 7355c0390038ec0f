/* SPDX-License-Identifier: MIT */
/*
 * A suite made of parts. Each runs in a process of its own with servers of its own, prints lines of figures, and ends
 * that process through kit_fail if a promise is broken.
 */
#ifndef PARTS_H
#define PARTS_H

#include "testkit.h"

struct form {
    bool full; /* --long: the numbers that were asked for instead of those for every day */
    uint64_t seed;
};

/* Parts of the same group run at once: those that mostly sleep. Groups run in their order, from 0. */
struct part {
    const char *name;
    void (*run)(const struct form *form);
    int group;
};

/*
 * main of `SUITE [--long] [--seed N] [PART ...]`: without names all parts. The last line says how many passed; returns
 * the exit status.
 */
int parts_main(const char *suite, const struct part *parts, size_t count, int argc, char **argv);
#endif
