/* SPDX-License-Identifier: MIT */
/* The only source of randomness in a run: everything random follows from the seed. */
#ifndef SIM_DICE_H
#define SIM_DICE_H

#include <stdbool.h>
#include <stdint.h>

extern uint64_t dice_state;

/* splitmix64 of Steele, Lea and Flood, applied to a state that grows by a constant with each throw. */
static inline uint64_t dice_mix(uint64_t word)
{
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
    word = (word ^ word >> 27) * 0x94d049bb133111eb;
    return word ^ word >> 31;
}

static inline uint64_t dice_u64(void)
{
    return dice_mix(dice_state += 0x9e3779b97f4a7c15);
}

/* Mixes the seed; otherwise adjacent seeds would give the same numbers, shifted by one throw. */
static inline void dice_seed(uint64_t seed)
{
    dice_state = dice_mix(dice_mix(seed) + 1);
}

/* A number from `from` to `to`, inclusive. */
static inline int64_t dice_between(int64_t from, int64_t to)
{
    return from + (int64_t)(dice_u64() % (uint64_t)(to - from + 1));
}

/* True once in `in` throws; never if `in` is 0. */
static inline bool dice_once_in(unsigned in)
{
    return in && dice_u64() % in == 0;
}
#endif
