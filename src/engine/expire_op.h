/* SPDX-License-Identifier: MIT */
/* Expire operations, by which permitd itself ends requests. */
#ifndef ENGINE_EXPIRE_OP_H
#define ENGINE_EXPIRE_OP_H

#include "engine/state.h"

/* One of them, with its key. Its maker submits it, and its `decided` frees it. */
struct expire_op {
    struct op op;
    struct operation operation;
    void *context; /* of its maker */
    char key[];
};

/* Makes an operation that gives up after 10 s; copies the key. `expire_as`: as there. NULL: out of memory. */
struct expire_op *expire_op_new(struct bytes key, enum end_reason expire_as, void *context,
                                void (*decided)(struct op *op, const struct decision *decision)) MUST_CHECK;
/*
 * Ends a due holder before the operations in the queue run, because an acquire among them needs its units. The request
 * has its permits. Out of memory: it is not ended.
 */
void expire_op_first(struct engine *engine, const struct request *request) REQUIRES(engine_mutex);
#endif
