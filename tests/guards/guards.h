/* SPDX-License-Identifier: MIT */
/* What is asked of every guard; each ends the process through kit_fail if it is not so. */
#ifndef GUARDS_H
#define GUARDS_H

#include "parts.h"
#include "stores.h"

/* Tables of calls, one after the other: what passes, and which marks stand afterwards. */
void guard_table(struct store *store);
/* A trigger on the rows that are written: which updates pass, and what is in the rows afterwards; for SQL stores. */
void guard_rows(struct store *store);
/* Two sessions in every order that matters, in every isolation; for stores with transactions. */
void guard_races(struct store *store);
/* Many sessions, any slots in any order: nobody deadlocks on slots that were used before, no slot goes back. */
void guard_crowd(struct store *store, uint64_t seed);
/* With a real permitd: a holder who is stopped; ten live ones for so long; fence bump; an empty store. */
void guard_live(struct store *store, unsigned port, int seconds);
/* Processes that are stopped at random while their permits run out, until so many writes were guarded. */
struct soak {
    uint64_t stale_accepted, live_refused; /* what must be 0 */
};
void guard_soak(struct store *store, unsigned port, uint64_t writes, uint64_t seed, struct soak *ret_soak);

/* Writes on these slots, without a history. */
#define ON_SLOTS(name, slots, number) (&(struct write){(name), PLACE_SLOTS, (slots), (number)})

/* How many lines a slot has, and how often one has a lower token than the one before. */
size_t look_at_history(struct session *session, const char *semaphore, unsigned slot, size_t *ret_back);
/* The same; kit_fail if it ever goes back. */
size_t check_history(struct session *session, const char *semaphore, unsigned slot);
/* Makes a slot's history possible (SQL stores need a row). */
void prepare_history(struct session *session, const char *semaphore, unsigned slots);

/* xorshift64*; the state must not be 0. */
static inline uint64_t dice(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (*state * UINT64_C(2685821657736338717)) >> 32;
}
#endif
