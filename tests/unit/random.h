/* SPDX-License-Identifier: MIT */
/* Random numbers for generated cases, the same in every run, so that a failure can be repeated. */
#ifndef UNIT_RANDOM_H
#define UNIT_RANDOM_H

#include <stdint.h>

/* Returns the next number: splitmix64 of Steele, Lea and Flood. */
static inline uint64_t next_random(uint64_t *state)
{
    uint64_t word = *state += 0x9e3779b97f4a7c15;
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
    word = (word ^ word >> 27) * 0x94d049bb133111eb;
    return word ^ word >> 31;
}

/* Returns a number from 0 to below - 1. */
static inline uint64_t random_below(uint64_t *state, uint64_t below)
{
    return next_random(state) % below;
}
#endif
