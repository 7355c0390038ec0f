/* SPDX-License-Identifier: MIT */
/* A queue with the semaphores a, b (slotted) and c (counted), and what a test puts into it. */
#ifndef ENGINE_SIDE_H
#define ENGINE_SIDE_H

#include "engine/queue.h"

enum { OPS = 80, DIRECTORY = 8, WANTS = 3 };

/* An operation with what it points to. */
struct asked {
    struct op op;
    struct operation operation;
    struct want wants[WANTS];
};

extern struct queue queue;
extern struct batch first, second;

void side_begin(void);
void side_end(void);
/* An empty one, which side_end takes care of. */
struct asked *side_asked(void);
/* Into the queue; one unit of each of the semaphores, a letter each. */
struct op *add(enum operation_kind kind, const char *key, const char *semaphores, bool *ret_wake);
struct op *acquire(const char *key, const char *semaphores);
struct op *release(const char *key);
/* Fills a batch; its keys in order: "k1 k2". */
const char *take(struct batch *batch);
void side_decided(struct op *op, const struct decision *decision);
#endif
