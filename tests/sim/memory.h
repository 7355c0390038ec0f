/* SPDX-License-Identifier: MIT */
/*
 * P18 for memory: the allocations of permitd's own code are counted, and one of them can be made to fail. The linker
 * leads malloc, calloc, realloc and the arena's to memory.c; the simulation's own code, which every file of it includes
 * this header for (CMakeLists.txt), goes past it: it has no memory to run out of.
 */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

extern struct allocations {
    uint64_t made;   /* while they were counted */
    uint64_t only;   /* this one fails, from 1; 0: none */
    uint64_t struck; /* it has failed */
} allocations;

/* From now on, or from now on not; returns what was so before. */
bool allocations_count(bool counted);

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_arena_alloc(struct arena *arena, size_t size);
void *__real_arena_array(struct arena *arena, size_t count, size_t size);
struct bytes __real_arena_copy(struct arena *arena, struct bytes bytes);

#define malloc(size)                    __real_malloc(size)
#define calloc(count, size)             __real_calloc(count, size)
#define realloc(memory, size)           __real_realloc(memory, size)
#define arena_alloc(arena, size)        __real_arena_alloc(arena, size)
#define arena_array(arena, count, size) __real_arena_array(arena, count, size)
#define arena_copy(arena, bytes)        __real_arena_copy(arena, bytes)
#endif
