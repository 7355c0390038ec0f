/* SPDX-License-Identifier: MIT */
/*
 * The feed in the engine: readers that wait for events, what a batch knows of a full feed, and the wake-up of the task
 * (tasks/feed.c), which numbers events and wakes the readers.
 */
#ifndef ENGINE_FEED_H
#define ENGINE_FEED_H

#include "engine/engine.h"

/* A reader of the feed that waits. It belongs to its creator, but for the members below the line. */
struct feed_wait {
    void (*wake)(struct feed_wait *wait); /* on the task's thread: there are events, or the wait is over. Called once */
    uint64_t seq;                         /* it has read up to this number */
    mono_us until;
    /* ---- */
    struct list node;
    bool abandoned;
};

void feed_wait_init(struct feed_wait *wait, void (*wake)(struct feed_wait *wait), mono_us until);
/* False: it does not wait, because its time is over, its client has left, or permitd stops. */
bool feed_wait_begin(struct engine *engine, struct feed_wait *wait) EXCLUDES(engine_mutex) MUST_CHECK;
/* The client has left. True: it waited, and `wake` will not be called. False: its query runs, and finds no wait. */
bool feed_wait_abandon(struct engine *engine, struct feed_wait *wait) EXCLUDES(engine_mutex) MUST_CHECK;
/* Wakes those that wait for a number up to `head`, or whose time is over, or all if nothing may wait any more. */
void feed_wait_wake(struct engine *engine, uint64_t head) EXCLUDES(engine_mutex);
/* Returns how many wait. */
size_t feed_waiting(struct engine *engine) EXCLUDES(engine_mutex);
/* Ends all waits, now and later. */
void feed_close(struct engine *engine) EXCLUDES(engine_mutex);

/* A batch has written events. */
void feed_written(struct engine *engine) EXCLUDES(engine_mutex);
/* Returns true if the feed was full within the last second: a batch asks under its locks, before it writes no events. */
bool feed_may_be_full(const struct engine *engine);
#endif
