/* SPDX-License-Identifier: MIT */
/*
 * What this process knows of a semaphore: its id and name, whether a batch of ours is running on it (the pre-lock), its
 * floor, and who holds it, from a cache. The caller locks. Gates that nobody uses are forgotten when there are too
 * many.
 */
#ifndef ENGINE_GATES_H
#define ENGINE_GATES_H

#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "core/request.h"
#include "engine/engine.h"

enum { HOLDERS_MAX = 10 };

/* The longest holders of a semaphore at one moment; immutable, shared by reference count (engine's mutex). */
struct holders {
    unsigned references;
    mono_us read_at;
    size_t count;
    struct blocking_holder rows[HOLDERS_MAX];
    char strings[]; /* what the rows point to */
};

struct gate {
    struct map_node by_id; /* its key is `id` below, as bytes */
    struct map_node by_name;
    struct list recent;
    uint64_t id;
    char *name;               /* NULL: not known */
    enum semaphore_kind kind; /* 0: not known */
    const void *batch;        /* the batch that runs on it; NULL: none */
    unsigned waiting;         /* pending ops that need it */
    uint64_t reserved;        /* the pass of the queue in which an earlier op reserved it */
    uint64_t tokens_seen;     /* all tokens below this may have been handed out */
    uint64_t floor;           /* at most 1 s old; a lower bound is always safe */
    bool floor_stale;         /* something was granted or ended since it was read */
    struct holders *holders;  /* NULL: never read */

    /* As far as this process has seen its row; for waiters, and never trusted. */
    uint64_t version; /* 0: never seen */
    int64_t capacity;
    int64_t room; /* units that are free; none while it is paused */
    bool fifo;
    bool closed;     /* paused, or of capacity 0: no unit of it is for anybody */
    bool doubtful;   /* there may be more room than that: holders may be due, a waiter has left */
    mono_us due_at;  /* when its next holder may be due */
    mono_us look_at; /* when its waiters are to be called whatever is known; NEVER */

    struct list waiters;    /* struct stand, in order of arrival */
    size_t waiter_count;    /* those of them that are asked for */
    size_t certain_count;   /* all of them that want certain slots */
    struct list waited_for; /* on waiting->gates while it has waiters */
    struct heap_node due;   /* at the earlier of these, while it has waiters */

    /* Of the pass of the queue that takes it into a batch. */
    uint64_t taken_version; /* the version as it was known then */
    int64_t credit;         /* units that waiters of the batch may still find */
    int64_t promised;       /* of these, what is spent already for waiters that were found at other gates */
    bool freeing;           /* something on it ends in the batch */
    bool left_out;          /* a waiter is not in the batch: whoever came later is granted nothing */
    uint64_t left_out_arrival;
};

struct gates {
    struct map by_id;
    struct map by_name;
    struct list recent; /* the most recently used last */
    size_t max;
};

void gates_init(struct gates *gates, size_t max);
void gates_release(struct gates *gates);
/* NULL: not known by that name. */
struct gate *gates_find_name(struct gates *gates, struct bytes name);
struct gate *gates_find(struct gates *gates, uint64_t id);
/* The gate of this id, made if need be. NULL: no memory. */
struct gate *gates_get(struct gates *gates, uint64_t id) MUST_CHECK;
/* Learns name, kind and floor of a semaphore. Without memory it does not. */
void gates_learn(struct gates *gates, uint64_t id, struct bytes name, enum semaphore_kind kind, uint64_t floor);
/* The name is not that semaphore's any more (it was retired, or the database is another one). */
void gates_forget_name(struct gates *gates, struct gate *gate);

void holders_unref(struct holders *holders);
#endif
