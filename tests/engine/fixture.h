/* SPDX-License-Identifier: MIT */
/* Fixture: a queue with the semaphores a, b (slotted) and c (counted), and operations for it. */
#ifndef ENGINE_FIXTURE_H
#define ENGINE_FIXTURE_H

#include "engine/queue.h"

enum { OPS = 80, WANTS = 3, ROW_BYTES = 100000 };

/* An operation and the data that it points to. */
struct asked {
    struct op op;
    struct operation operation;
    struct want wants[WANTS];
};

extern struct queue queue;
extern struct batch first, second;

void fixture_begin(void);
void fixture_end(void);
/* Returns an empty operation, which fixture_end releases. */
struct asked *fixture_op(void);
/* Adds an operation to the queue: one unit of each of the semaphores, one letter each. */
struct op *add(enum operation_kind kind, const char *key, const char *semaphores, bool *ret_wake);
struct op *acquire(const char *key, const char *semaphores);
struct op *release(const char *key);
/* Returns the keys of a batch in order: "k1 k2". */
const char *fixture_keys(const struct batch *batch);
/* Fills a batch. Returns its keys. */
const char *take(struct batch *batch);
/* Enters that the key holds these permits; its row is not known. */
void holds(struct rows *rows, const char *key, struct permit *permits, size_t count);
void fixture_decided(struct op *op, const struct decision *decision);
#endif
