/* SPDX-License-Identifier: MIT */
/*
 * Memory with one lifetime: one batch, one HTTP exchange. Single allocations are never freed. arena_clear keeps the
 * first chunk for the next use if it has the usual size; arena_release frees everything.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <assert.h>
#include <setjmp.h>

#include "base/base.h"

struct arena_chunk;
struct budget;

struct arena {
    struct arena_chunk *chunks; /* newest first */
    size_t chunk_size;
    size_t used;     /* bytes in all chunks; checked against limit */
    size_t limit;    /* maximum of used */
    bool refused;    /* an allocation has failed since the last arena_clear; for callers that only learn that a call
                     failed */
    bool share_full; /* the same because a share of the budget was full */
    struct budget *budget; /* counts the arena's memory, as one piece; NULL: none */
    jmp_buf *exit;         /* where a failed arena_must_... goes; NULL: they must not be called */
};

/*
 * Initialises the arena; allocates nothing yet. chunk_size is the minimum size of a chunk, limit the maximum total
 * size.
 */
void arena_init(struct arena *arena, size_t chunk_size, size_t limit);
/*
 * Counts the arena in this budget from now on, also what it has already. False: it does not fit, and the budget stays
 * as it was. NULL: none.
 */
bool arena_use_budget(struct arena *arena, struct budget *budget) MUST_CHECK;
void arena_clear(struct arena *arena);
void arena_release(struct arena *arena);

/* Allocates zeroed memory, aligned for any type. NULL: out of memory, or the limit is reached. */
void *arena_alloc(struct arena *arena, size_t size) MUST_CHECK;
/* Allocates a zeroed array of count elements of size bytes. NULL also if the product overflows. */
void *arena_array(struct arena *arena, size_t count, size_t size) MUST_CHECK;
/* Copies bytes and appends a zero for printing. data is NULL if out of memory. */
struct bytes arena_copy(struct arena *arena, struct bytes bytes) MUST_CHECK;

/*
 * The same for a computation that ends as a whole if it has no memory: these leave it by longjmp to arena->exit.
 * Between there and here, all that must be undone is in the arena: no lock, no file, no memory from elsewhere. (They
 * are inline so that tests can make the allocations inside fail.)
 */
static inline _Noreturn void arena_leave(struct arena *arena)
{
    assert(arena->exit);
    longjmp(*arena->exit, 1);
}

static inline void *arena_must_alloc(struct arena *arena, size_t size)
{
    void *memory = arena_alloc(arena, size);
    if (!memory)
        arena_leave(arena);
    return memory;
}

static inline void *arena_must_array(struct arena *arena, size_t count, size_t size)
{
    void *memory = arena_array(arena, count, size);
    if (!memory)
        arena_leave(arena);
    return memory;
}

static inline struct bytes arena_must_copy(struct arena *arena, struct bytes bytes)
{
    struct bytes copy = arena_copy(arena, bytes);
    if (!copy.data)
        arena_leave(arena);
    return copy;
}
#endif
