/* SPDX-License-Identifier: MIT */
/*
 * A growing string with a stated maximum. Appending never fails loudly: after the first append that finds no memory or
 * would pass the maximum, the buffer is `broken`, later appends do nothing, and the one check at the end sees it.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdarg.h>

#include "base/base.h"

struct budget;

/* Why it is broken. */
enum buf_fault { BUF_TOO_LONG = 1, BUF_NO_MEMORY = 2 };

struct buf {
    char *data; /* zero-terminated once anything was appended; NULL before */
    size_t length;
    size_t capacity;
    size_t max;
    unsigned broken;       /* 0, or of enum buf_fault */
    struct budget *budget; /* set after buf_init: its memory is counted there; NULL: nowhere */
};

/* Allocates nothing yet. max counts the bytes without the terminating zero. */
void buf_init(struct buf *buf, size_t max);
/* Empty and whole again; keeps the memory. */
void buf_clear(struct buf *buf);
/* Gives the memory back; the buffer may be used again. Accepts a zeroed buffer. */
void buf_release(struct buf *buf);

/* Gives back the memory beyond its text, for one that is kept for long. */
void buf_fit(struct buf *buf);

void buf_append(struct buf *buf, const void *data, size_t length);
void buf_append_text(struct buf *buf, const char *text);
void buf_append_char(struct buf *buf, char byte);
void buf_append_u64(struct buf *buf, uint64_t number);
void buf_append_i64(struct buf *buf, int64_t number);
/* Lower-case hexadecimal digits, two a byte. */
void buf_append_hex(struct buf *buf, const void *data, size_t length);
void buf_printf(struct buf *buf, const char *format, ...) PRINTF_LIKE(2, 3);
void buf_vprintf(struct buf *buf, const char *format, va_list arguments) PRINTF_LIKE(2, 0);

/* The text so far, "" if there is none; valid until the next append. */
const char *buf_text(const struct buf *buf);
/* Takes the memory out; the caller frees it with free(). NULL if the buffer is broken or empty. */
char *buf_steal(struct buf *buf) MUST_CHECK;
#endif
