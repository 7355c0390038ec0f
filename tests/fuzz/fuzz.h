/* SPDX-License-Identifier: MIT */
/*
 * Common part of all targets. A target is one file with LLVMFuzzerTestOneInput: it feeds the bytes to the code it is
 * named after, and compares the result with a slow and obvious reference. run.sh builds and runs the targets.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdio.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A promise of the product. If it is broken, prints it and ends the process, so that the input is kept. */
#define MUST(promise) ((promise) ? (void)0 : fuzz_broken(#promise, __FILE__, __LINE__))

static inline _Noreturn void fuzz_broken(const char *promise, const char *file, int line)
{
    fprintf(stderr, "%s:%d: broken: %s\n", file, line, promise);
    abort();
}

/* Returns a zero-terminated copy of exactly this size, so that an over-read is detected. The caller frees it. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    MUST(text);
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* Returns a copy without the zero; free it as (void *)data. */
static inline struct bytes fuzz_bytes(const void *data, size_t size)
{
    char *copy = malloc(size ? size : 1);
    MUST(copy);
    if (size)
        memcpy(copy, data, size);
    return (struct bytes){copy, size};
}

/* Takes the first byte, which selects something, off the input. */
static inline unsigned fuzz_choice(const uint8_t **data, size_t *size)
{
    if (*size == 0)
        return 0;
    (*size)--;
    return *(*data)++;
}
#endif
