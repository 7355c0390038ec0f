/* SPDX-License-Identifier: MIT */
#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/budget.h"

void buf_init(struct buf *buf, size_t max)
{
    *buf = (struct buf){.max = max};
}

void buf_clear(struct buf *buf)
{
    buf->length = 0;
    buf->broken = 0;
    if (buf->data)
        buf->data[0] = '\0';
}

void buf_release(struct buf *buf)
{
    free(buf->data);
    budget_give(buf->budget, buf->capacity);
    *buf = (struct buf){.max = buf->max, .budget = buf->budget};
}

void buf_empty(struct buf *buf, size_t most)
{
    if (buf->capacity > most)
        buf_release(buf);
    buf_clear(buf);
}

/* Resizes the memory, within the budget. Returns 0 or the fault; then the buffer is unchanged. */
static unsigned buf_resize(struct buf *buf, size_t capacity)
{
    bool grows = capacity > buf->capacity;
    enum budget_result result = grows ? budget_change(buf->budget, buf->capacity, capacity) : BUDGET_OK;
    if (result != BUDGET_OK)
        return result == BUDGET_SHARE_FULL ? BUF_SHARE_FULL : BUF_NO_MEMORY;
    char *data = realloc(buf->data, capacity);
    if (!data && grows)
        (void)budget_change(buf->budget, capacity, buf->capacity);
    if (!data)
        return BUF_NO_MEMORY;
    if (!grows)
        (void)budget_change(buf->budget, buf->capacity, capacity);
    buf->data = data;
    buf->capacity = capacity;
    return 0;
}

void buf_fit(struct buf *buf)
{
    if (buf->length + 1 < buf->capacity)
        (void)buf_resize(buf, buf->length + 1); /* on failure the buffer keeps its memory */
}

/* Makes room for `more` bytes and the terminating zero, or marks the buffer broken. */
static bool buf_reserve(struct buf *buf, size_t more)
{
    /* SIZE_MAX / 2 is more than any memory, and the zero and the doubling below cannot overflow. */
    size_t max = buf->max < SIZE_MAX / 2 ? buf->max : SIZE_MAX / 2 - 1;
    if (buf->broken)
        return false;
    if (more > max || buf->length > max - more) {
        buf->broken = BUF_TOO_LONG;
        return false;
    }
    size_t needed = buf->length + more + 1;
    if (needed <= buf->capacity)
        return true;
    size_t capacity = buf->capacity ? buf->capacity : 256;
    while (capacity < needed)
        capacity *= 2;
    if (capacity > max)
        capacity = max + 1;
    buf->broken = buf_resize(buf, capacity);
    return !buf->broken;
}

void buf_append(struct buf *buf, const void *data, size_t length)
{
    if (length == 0 || !buf_reserve(buf, length))
        return;
    memcpy(buf->data + buf->length, data, length);
    buf->length += length;
    buf->data[buf->length] = '\0';
}

void buf_append_text(struct buf *buf, const char *text)
{
    buf_append(buf, text, strlen(text));
}

void buf_append_u64(struct buf *buf, uint64_t number)
{
    char digits[20];
    size_t first = sizeof digits;
    do {
        digits[--first] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    buf_append(buf, digits + first, sizeof digits - first);
}

void buf_append_i64(struct buf *buf, int64_t number)
{
    if (number < 0)
        buf_append_char(buf, '-');
    buf_append_u64(buf, number < 0 ? -(uint64_t)number : (uint64_t)number);
}

void buf_append_hex(struct buf *buf, const void *data, size_t length)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *bytes = data;
    if (length == 0 || !buf_reserve(buf, length < SIZE_MAX / 2 ? 2 * length : SIZE_MAX))
        return;
    for (size_t i = 0; i < length; i++) {
        buf->data[buf->length++] = digits[bytes[i] >> 4];
        buf->data[buf->length++] = digits[bytes[i] & 15];
    }
    buf->data[buf->length] = '\0';
}

void buf_vprintf(struct buf *buf, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    if (length < 0)
        buf->broken = BUF_TOO_LONG;
    else if (buf_reserve(buf, (size_t)length)) {
        vsnprintf(buf->data + buf->length, (size_t)length + 1, format, again);
        buf->length += (size_t)length;
    }
    va_end(again);
}

void buf_printf(struct buf *buf, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    buf_vprintf(buf, format, arguments);
    va_end(arguments);
}

const char *buf_text(const struct buf *buf)
{
    return buf->data ? buf->data : "";
}

char *buf_steal(struct buf *buf)
{
    if (buf->broken || buf->length == 0)
        return NULL;
    char *data = buf->data;
    budget_give(buf->budget, buf->capacity);
    *buf = (struct buf){.max = buf->max, .budget = buf->budget};
    return data;
}
