/* SPDX-License-Identifier: MIT */
/*
 * A growing string with a maximum length. A failed append (no memory, or longer than max) marks the buffer `broken`;
 * later appends do nothing. The caller checks `broken` once, at the end.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdarg.h>

#include "base/base.h"

struct budget;

/* Reasons for `broken`. */
enum buf_fault { BUF_TOO_LONG = 1, BUF_NO_MEMORY = 2, BUF_SHARE_FULL = 4 /* budget.h */ };

struct buf {
    char *data; /* zero-terminated; NULL before the first append */
    size_t length;
    size_t capacity;
    size_t max;
    unsigned broken;       /* 0, or an enum buf_fault */
    struct budget *budget; /* counts the buffer's memory; set after buf_init; NULL: none */
};

/* Initialises the buffer; allocates nothing yet. max is the maximum length without the terminating zero. */
void buf_init(struct buf *buf, size_t max);
/* Empties the buffer and resets `broken`; keeps the memory. */
void buf_clear(struct buf *buf);
/* Frees the memory; the buffer may be used again. Accepts a zeroed buffer. */
void buf_release(struct buf *buf);
/* Empties the buffer; keeps its memory for the next text only if that is at most `most` bytes. */
void buf_empty(struct buf *buf, size_t most);

/* Frees the memory beyond the text; for a buffer that is kept for long. */
void buf_fit(struct buf *buf);

void buf_append(struct buf *buf, const void *data, size_t length);
void buf_append_text(struct buf *buf, const char *text);
/* Inline: writers of SQL and JSON append one character for each value. */
static inline void buf_append_char(struct buf *buf, char byte)
{
    if (buf->broken || buf->length + 1 >= buf->capacity) {
        buf_append(buf, &byte, 1);
        return;
    }
    buf->data[buf->length++] = byte;
    buf->data[buf->length] = '\0';
}
void buf_append_u64(struct buf *buf, uint64_t number);
void buf_append_i64(struct buf *buf, int64_t number);
/* Appends lower-case hexadecimal digits, two per byte. */
void buf_append_hex(struct buf *buf, const void *data, size_t length);
void buf_printf(struct buf *buf, const char *format, ...) PRINTF_LIKE(2, 3);
void buf_vprintf(struct buf *buf, const char *format, va_list arguments) PRINTF_LIKE(2, 0);

/* Returns the text so far, "" if empty; valid until the next append. */
const char *buf_text(const struct buf *buf);
/* Moves the memory to the caller, which frees it with free(). NULL if the buffer is broken or empty. */
char *buf_steal(struct buf *buf) MUST_CHECK;
#endif
