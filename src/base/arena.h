/* SPDX-License-Identifier: MIT */
/*
 * Memory that lives and dies together: one batch, one HTTP exchange. Nothing in it is freed alone.
 * arena_clear keeps the first chunk for the next use; arena_release gives everything back.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/base.h"

struct arena_chunk;
struct budget;

struct arena {
    struct arena_chunk *chunks; /* newest first */
    size_t chunk_size;
    size_t used;  /* in all chunks, for the bound */
    size_t limit; /* arena_alloc refuses to go beyond */
    bool refused; /* it has, or there was no memory, since the last arena_clear: for those who see only a "no" */
    struct budget *budget; /* set after arena_init: its memory is counted there; NULL: nowhere */
};

/* Allocates nothing yet. chunk_size is the least size of a chunk, limit the most the arena will ever hand out. */
void arena_init(struct arena *arena, size_t chunk_size, size_t limit);
void arena_clear(struct arena *arena);
void arena_release(struct arena *arena);

/* Zeroed, aligned for anything; NULL if there is no memory or the limit is reached. */
void *arena_alloc(struct arena *arena, size_t size) MUST_CHECK;
/* Zeroed room for count things of size bytes; NULL also if the product does not fit. */
void *arena_array(struct arena *arena, size_t count, size_t size) MUST_CHECK;
/* A copy, zero-terminated behind its end for the sake of printing. data is NULL if there is no memory. */
struct bytes arena_copy(struct arena *arena, struct bytes bytes) MUST_CHECK;
#endif
