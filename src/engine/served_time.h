/* SPDX-License-Identifier: MIT */
/*
 * Served time in this process: its own clock, which says what has ended, and the database's lease clock as it was last
 * read, which gives the times that rows store (core/lease_clock.h). Each function takes the engine's mutex, unless it
 * says otherwise.
 */
#ifndef ENGINE_SERVED_TIME_H
#define ENGINE_SERVED_TIME_H

#include "engine/state.h"

/*
 * Takes the read of a tick, of the server that is recorded in `cluster`. Returns true if *ret_ticked is to be written.
 */
bool served_time_read(struct engine *engine, const struct tick *tick, boot_us asked_at, boot_us answered_at,
                      struct lease_row *ret_ticked);
/* Takes the answer that the tick was written. */
void served_time_won(struct engine *engine, const struct lease_row *ticked, boot_us answered_at);
/* Takes the clock that a batch has read under its locks, and judges it. The server is the one recorded in `cluster`. */
void served_time_locked(struct engine *engine, struct view *view, boot_us asked_at, boot_us answered_at);
/* Sets the judged clock of a view from caches. False: it is not known well enough. */
bool served_time_estimate(struct engine *engine, struct view *view) REQUIRES(engine_mutex);
/* A batch has found that the estimate was wrong: there is none until the clock is read again. */
void served_time_forget(struct engine *engine);
#endif
