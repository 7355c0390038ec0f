/* SPDX-License-Identifier: MIT */
/*
 * Memory with one lifetime: one batch, one HTTP exchange. Single allocations are never freed. arena_clear keeps the
 * first chunk for the next use if it has the usual size; arena_release frees everything.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/base.h"

struct arena_chunk;
struct budget;

struct arena {
    struct arena_chunk *chunks; /* newest first */
    size_t chunk_size;
    size_t used;  /* bytes in all chunks; checked against limit */
    size_t limit; /* maximum of used */
    bool refused; /* an allocation has failed since the last arena_clear; for callers that only learn that a call
                     failed */
    struct budget *budget; /* counts the arena's memory; set after arena_init; NULL: none */
};

/*
 * Initialises the arena; allocates nothing yet. chunk_size is the minimum size of a chunk, limit the maximum total
 * size.
 */
void arena_init(struct arena *arena, size_t chunk_size, size_t limit);
void arena_clear(struct arena *arena);
void arena_release(struct arena *arena);

/* Allocates zeroed memory, aligned for any type. NULL: out of memory, or the limit is reached. */
void *arena_alloc(struct arena *arena, size_t size) MUST_CHECK;
/* Allocates a zeroed array of count elements of size bytes. NULL also if the product overflows. */
void *arena_array(struct arena *arena, size_t count, size_t size) MUST_CHECK;
/* Copies bytes and appends a zero for printing. data is NULL if out of memory. */
struct bytes arena_copy(struct arena *arena, struct bytes bytes) MUST_CHECK;
#endif
