/* SPDX-License-Identifier: MIT */
/*
 * P18 for memory: counts the allocations of permitd's own code and can make one of them fail. The linker redirects
 * malloc, calloc, realloc and those of arenas to memory.c. The simulation's own code, whose files all include this
 * header (CMakeLists.txt), bypasses them: its allocations do not fail.
 */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

extern struct allocations {
    uint64_t made;   /* number of counted allocations */
    uint64_t only;   /* number of the allocation that fails, from 1; 0: none */
    uint64_t stride; /* --each: only every so many of them can fail */
    uint64_t struck; /* it has failed */
} allocations;

/* Switches counting on or off; returns the previous state. */
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
