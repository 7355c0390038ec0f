/* SPDX-License-Identifier: MIT */
/*
 * What all targets have in common. A target is one file with LLVMFuzzerTestOneInput: it feeds the bytes to what it is
 * named after, and compares with a slow and obvious reference. run.sh builds and runs them.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdio.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A promise of the product. Broken: says which and ends the process, which keeps the input. */
#define MUST(promise) ((promise) ? (void)0 : fuzz_broken(#promise, __FILE__, __LINE__))

static inline _Noreturn void fuzz_broken(const char *promise, const char *file, int line)
{
    fprintf(stderr, "%s:%d: broken: %s\n", file, line, promise);
    abort();
}

/* A zero-terminated copy that is as large as the text: reading further is seen. The caller frees it. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    MUST(text);
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* The same without the zero; to be freed as (void *)data. */
static inline struct bytes fuzz_bytes(const void *data, size_t size)
{
    char *copy = malloc(size ? size : 1);
    MUST(copy);
    if (size)
        memcpy(copy, data, size);
    return (struct bytes){copy, size};
}

/* The first byte, which chooses something, and the rest. */
static inline unsigned fuzz_choice(const uint8_t **data, size_t *size)
{
    if (*size == 0)
        return 0;
    (*size)--;
    return *(*data)++;
}
#endif
