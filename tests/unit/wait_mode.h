/* SPDX-License-Identifier: MIT */
/* How an operation of a test waits, in one word. */
#ifndef TESTS_WAIT_MODE_H
#define TESTS_WAIT_MODE_H

#include "core/plan.h"

enum wait_mode {
    WAIT_NO,   /* an acquire that is refused if it does not fit */
    WAIT_ASK,  /* it enters the queue, or stays in it */
    WAIT_LAST, /* its wait ends with this decision */
    WAIT_GONE, /* its client has gone: a leave */
};

/* `looks`: a client waits here for the key, and the operation is on behalf of it. */
static inline void operation_set_wait(struct operation *operation, enum wait_mode mode, int64_t wait_us, bool looks)
{
    if (operation->kind != OP_ACQUIRE)
        return;
    operation->kind = mode == WAIT_GONE ? OP_LEAVE : looks && mode != WAIT_NO ? OP_LOOK : OP_ACQUIRE;
    operation->wait_us = mode == WAIT_ASK ? wait_us : 0;
    operation->may_have_place = mode == WAIT_LAST;
}

static inline enum wait_mode operation_wait(const struct operation *operation)
{
    if (operation->kind == OP_LEAVE)
        return WAIT_GONE;
    return operation->wait_us > 0 ? WAIT_ASK : operation_ends_wait(operation) ? WAIT_LAST : WAIT_NO;
}
#endif
