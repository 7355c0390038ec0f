/* SPDX-License-Identifier: MIT */
#include "base/arena.h"

#include <assert.h>
#include <stdlib.h>

#include "base/budget.h"

/* Larger sizes could overflow when they are rounded up and the chunk header is added. */
#define ARENA_MAX_PIECE (SIZE_MAX / 2)

struct arena_chunk {
    struct arena_chunk *older;
    size_t size;
    size_t used;
    max_align_t memory[];
};

void arena_init(struct arena *arena, size_t chunk_size, size_t limit)
{
    *arena = (struct arena){.chunk_size = chunk_size, .limit = limit};
}

/* Returns the bytes that the budget counts. */
static size_t arena_counted(const struct arena *arena)
{
    size_t counted = 0;
    for (const struct arena_chunk *chunk = arena->chunks; chunk; chunk = chunk->older)
        counted += budget_counted(chunk->size);
    return counted;
}

bool arena_use_budget(struct arena *arena, struct budget *budget)
{
    size_t counted = arena_counted(arena);
    if (counted && budget_move(arena->budget, budget, counted) != BUDGET_OK)
        return false;
    arena->budget = budget;
    return true;
}

/* Counts one more chunk in the budget. False: it does not fit. */
static bool arena_take_budget(struct arena *arena, size_t chunk_size)
{
    size_t more = budget_counted(chunk_size);
    if (!arena->budget || !more)
        return true;
    size_t counted = arena_counted(arena);
    enum budget_result result = budget_change_counted(arena->budget, counted, counted + more);
    arena->share_full |= result == BUDGET_SHARE_FULL;
    return result == BUDGET_OK;
}

/* Frees the newest chunk. */
static void arena_free_chunk(struct arena *arena)
{
    struct arena_chunk *chunk = arena->chunks;
    arena->chunks = chunk->older;
    budget_give(arena->budget, chunk->size);
    free(chunk);
}

void arena_clear(struct arena *arena)
{
    while (arena->chunks && (arena->chunks->older || arena->chunks->size > arena->chunk_size))
        arena_free_chunk(arena);
    if (arena->chunks)
        arena->chunks->used = 0;
    arena->used = 0;
    arena->refused = arena->share_full = false;
}

void arena_release(struct arena *arena)
{
    arena_clear(arena);
    if (arena->chunks)
        arena_free_chunk(arena);
}

static struct arena_chunk *arena_grow(struct arena *arena, size_t size)
{
    size_t usual = arena->used > arena->chunk_size ? arena->used : arena->chunk_size; /* doubles the total, so that
                                                                                         chunks stay few */
    size_t chunk_size = size > usual ? size : usual;
    if (!arena_take_budget(arena, chunk_size))
        return NULL;
    struct arena_chunk *chunk = malloc(sizeof *chunk + chunk_size);
    if (!chunk) {
        budget_give(arena->budget, chunk_size);
        return NULL;
    }
    *chunk = (struct arena_chunk){.older = arena->chunks, .size = chunk_size};
    arena->chunks = chunk;
    return chunk;
}

void *arena_alloc(struct arena *arena, size_t wanted)
{
    const size_t align = sizeof(max_align_t);
    size_t size = wanted ? (wanted + align - 1) / align * align : align;
    bool allowed = wanted <= ARENA_MAX_PIECE && wanted <= arena->limit && arena->used <= arena->limit - wanted;
    struct arena_chunk *chunk = allowed ? arena->chunks : NULL;
    if (allowed && !(chunk && chunk->size - chunk->used >= size))
        chunk = arena_grow(arena, size);
    if (!chunk) {
        arena->refused = true;
        return NULL;
    }
    assert(chunk->size - chunk->used >= size);
    void *memory = (char *)chunk->memory + chunk->used;
    chunk->used += size;
    arena->used += size;
    return memset(memory, 0, size);
}

void *arena_array(struct arena *arena, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        return NULL;
    return arena_alloc(arena, total);
}

struct bytes arena_copy(struct arena *arena, struct bytes bytes)
{
    char *copy = arena_alloc(arena, bytes.length + 1);
    if (copy && bytes.length)
        memcpy(copy, bytes.data, bytes.length);
    return (struct bytes){copy, copy ? bytes.length : 0};
}
