/* SPDX-License-Identifier: MIT */
#include "memory.h"

#include "fake_store.h"

/* The linker redirects f to __wrap_f. */
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_arena_alloc(struct arena *arena, size_t size);
void *__wrap_arena_array(struct arena *arena, size_t count, size_t size);
struct bytes __wrap_arena_copy(struct arena *arena, struct bytes bytes);

struct allocations allocations;

static bool counting;

bool allocations_count(bool counted)
{
    bool before = counting;
    counting = counted;
    return before;
}

/* Returns true if this allocation must fail. */
static bool fails(void)
{
    if (!counting)
        return false;
    bool chosen = ++allocations.made == allocations.only;
    if (fault_branch && (allocations.made - 1) % allocations.stride == 0)
        chosen |= fault_branch(allocations.made, FAULT_KIND_COUNT);
    allocations.struck += chosen;
    return chosen;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    return fails() ? NULL : __real_realloc(memory, size);
}

void *__wrap_arena_alloc(struct arena *arena, size_t size)
{
    return fails() ? NULL : __real_arena_alloc(arena, size);
}

void *__wrap_arena_array(struct arena *arena, size_t count, size_t size)
{
    return fails() ? NULL : __real_arena_array(arena, count, size);
}

struct bytes __wrap_arena_copy(struct arena *arena, struct bytes bytes)
{
    return fails() ? (struct bytes){0} : __real_arena_copy(arena, bytes);
}
