/* SPDX-License-Identifier: MIT */
/*
 * malloc, calloc and realloc in the place of libc's, for the one file of a program or of a preloaded library that
 * includes this. They return NULL where its `fails` says so, which then has set errno.
 */
#ifndef FAILING_MALLOC_H
#define FAILING_MALLOC_H

#include <stdbool.h>
#include <stddef.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *pointer, size_t size);

/* caller: the code that asks for memory. */
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
