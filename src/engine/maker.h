/* SPDX-License-Identifier: MIT */
/*
 * First use: a semaphore that a template is for is made before the acquire that names it goes on. A maker is one
 * administrative operation of our own, the PUT with If-None-Match that an operator would send; whoever wants that
 * semaphore meanwhile stands on its list, and goes back to step 0 when there is one, whoever made it. There is at most
 * one maker for a name; it ends with its decision. Those on its list are in the queue in every respect: bounded, late,
 * abandoned and refused at the end like all that wait for step 0. The caller locks.
 */
#ifndef ENGINE_MAKER_H
#define ENGINE_MAKER_H

#include "core/template.h"
#include "engine/engine.h"

struct maker {
    struct list node;        /* of makers.all */
    struct map_node by_name; /* of makers.by_name */
    struct list askers;      /* struct op: those who wait for it, and what came later on their keys; in order */
    struct engine *engine;
    struct op op;
    struct operation operation;
    struct semaphore_change change;
    char text[]; /* what the operation points to */
};

struct makers {
    struct list all;
    struct map by_name;
};

void makers_init(struct makers *makers);
/* There are none left. */
void makers_release(struct makers *makers);

/* The op, which is in nobody's hands, waits until the semaphore has been made. False: no memory. Mutex held. */
bool maker_ask(struct engine *engine, struct op *op, struct bytes name, const struct template *template) MUST_CHECK;
/* True if templates are to make no more semaphores. Mutex held. */
bool makers_are_full(struct engine *engine);
/* True if an earlier operation on its key has not come through step 0; the op is then in the queue behind it. Mutex
 * held. */
bool maker_follow(struct engine *engine, struct op *op);
/* An acquire was refused by a plan because one of its semaphores is out of service, which memory did not know. */
bool maker_may_help(const struct op *op, const struct outcome *outcome);
/* Puts it into the queue again, on its way through step 0, which may find a template. Mutex held. */
void maker_look_again(struct engine *engine, struct op *op);
#endif
