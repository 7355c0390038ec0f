/* SPDX-License-Identifier: MIT */
/* Tests for every guard. Each ends the process through kit_fail if a check fails. */
#ifndef GUARDS_H
#define GUARDS_H

#include "stores.h"
#include "suite_parts.h"

/* A table of calls that runs from top to bottom: which calls pass, and the marks afterwards. */
void guard_table(struct store *store);
/* A trigger on the rows that are written: which updates pass, and the rows afterwards. For SQL stores. */
void guard_rows(struct store *store);
/* Two sessions in every order that matters and at every isolation level. For stores with transactions. */
void guard_races(struct store *store);
/* Many sessions, random slots in random order: no deadlock on slots that were used before, and no mark goes down. */
void guard_crowd(struct store *store, uint64_t seed);
/* With a real permitd: a stopped holder; ten live holders for `seconds`; fence bump; an empty store. */
void guard_live(struct store *store, unsigned port, int seconds);
/* Processes that are stopped at random while their permits expire, until `writes` guarded writes are done. */
struct soak {
    uint64_t stale_accepted, live_refused; /* both must be 0 */
};
void guard_soak(struct store *store, unsigned port, uint64_t writes, uint64_t seed, struct soak *ret_soak);

/* A write on these slots, without a history. */
#define ON_SLOTS(name, slots, number) (&(struct write){(name), PLACE_SLOTS, (slots), (number)})

/* Returns the number of lines of a slot. *ret_back: how often a line has a lower token than the line before. */
size_t count_history(struct session *session, const char *semaphore, unsigned slot, size_t *ret_back);
/* The same, with kit_fail if a token ever goes down. */
size_t check_history(struct session *session, const char *semaphore, unsigned slot);
/* Prepares a slot for a history (SQL stores need a row). */
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
