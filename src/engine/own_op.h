/* SPDX-License-Identifier: MIT */
/* Operations of permitd's own: it ends requests that are due, and settles errands. */
#ifndef ENGINE_OWN_OP_H
#define ENGINE_OWN_OP_H

#include "engine/state.h"

/* One of them, with its key. Its maker submits it, and its `decided` frees it. */
struct own_op {
    struct op op;
    struct operation operation;
    void *context; /* of its maker */
    char key[];
};

/*
 * Makes an operation that gives up after 10 s; copies the key. `expire_as` is that of the operation; END_NONE for a
 * settle. NULL: out of memory.
 */
struct own_op *own_op_new(enum operation_kind kind, struct bytes key, enum end_reason expire_as, void *context,
                          void (*decided)(struct op *op, const struct decision *decision)) MUST_CHECK;
/*
 * Ends a due holder before the operations in the queue run, because an acquire among them needs its units. The request
 * has its permits. Out of memory: it is not ended.
 */
void own_op_expire_first(struct engine *engine, const struct request *request) REQUIRES(engine_mutex);
#endif
