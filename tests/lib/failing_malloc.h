/* SPDX-License-Identifier: MIT */
/*
 * Replaces malloc, calloc and realloc of libc, in a program or a preloaded library; one file of it includes this. They
 * return NULL where `fails`, which that file defines, returns true with errno set.
 */
#ifndef FAILING_MALLOC_H
#define FAILING_MALLOC_H

#include <stdbool.h>
#include <stddef.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *pointer, size_t size);

/* Returns true if this allocation must fail. caller: the code that allocates. */
static bool fails(const void *caller);

void *malloc(size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *pointer, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(pointer, size);
}
#endif
