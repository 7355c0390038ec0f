/* SPDX-License-Identifier: MIT */
/* Basics for every file: byte slices, times, MUST_CHECK. */
#ifndef BASE_BASE_H
#define BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MUST_CHECK                          __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args)              __attribute__((format(printf, fmt, args)))
#define ARRAY_LENGTH(array)                 (sizeof(array) / sizeof((array)[0]))
#define CONTAINER_OF(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

/*
 * Microseconds since 1970-01-01 UTC, by the database's clock or by the lease clock; the variable's comment says which.
 */
typedef int64_t utc_us;
/* Microseconds of this machine's monotonic clock; stops during suspension. */
typedef int64_t mono_us;
/* Microseconds of a monotonic clock that also counts suspension (clock_boot). Not comparable to mono_us. */
typedef int64_t boot_us;

enum { US_PER_MS = 1000, US_PER_SECOND = 1000000, MS_PER_SECOND = 1000 };

/* A time that is never reached; greater than every real time. */
#define NEVER INT64_MAX

/* A slice of bytes with another owner. data may be NULL only if length is 0. Not zero-terminated. */
struct bytes {
    const char *data;
    size_t length;
};

#define BYTES(literal) ((struct bytes){(literal), sizeof(literal) - 1})

static inline struct bytes bytes_of(const char *text)
{
    return (struct bytes){text, text ? strlen(text) : 0};
}

/* P16: two names are equal if and only if their bytes are. */
static inline bool bytes_equal(struct bytes a, struct bytes b)
{
    return a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

/* Like bytes_equal, but no bytes (data NULL) differ from empty ones. */
static inline bool bytes_same(struct bytes a, struct bytes b)
{
    return (a.data == NULL) == (b.data == NULL) && bytes_equal(a, b);
}

static inline bool bytes_begin_with(struct bytes bytes, struct bytes beginning)
{
    return bytes.length >= beginning.length && bytes_equal((struct bytes){bytes.data, beginning.length}, beginning);
}

/* Copies the bytes to *at, which has room, and advances *at. data NULL stays NULL. */
static inline struct bytes bytes_copy_to(char **at, struct bytes bytes)
{
    struct bytes copy = {bytes.data ? *at : NULL, bytes.length};
    if (bytes.length)
        memcpy(*at, bytes.data, bytes.length);
    *at += bytes.length;
    return copy;
}

/* Reads a number of 1 to 20 decimal digits. False: it is none, or more than `max`. */
static inline bool bytes_read_u64(struct bytes text, uint64_t max, uint64_t *ret_number)
{
    uint64_t number = 0;
    if (text.length == 0 || text.length > 20)
        return false;
    for (size_t i = 0; i < text.length; i++) {
        unsigned digit = (unsigned)(unsigned char)text.data[i] - '0';
        if (digit > 9 || number > max / 10 || digit > max - number * 10)
            return false;
        number = number * 10 + digit;
    }
    *ret_number = number;
    return true;
}

/* Compares in memcmp order, shorter first if one is a prefix of the other: the order of VARBINARY. */
static inline int bytes_compare(struct bytes a, struct bytes b)
{
    size_t shorter = a.length < b.length ? a.length : b.length;
    int order = shorter ? memcmp(a.data, b.data, shorter) : 0;
    return order ? order : (a.length > b.length) - (a.length < b.length);
}

/* Comparisons for qsort, ascending: of uint64_t, and of uint32_t. */
static inline int compare_u64(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}
static inline int compare_u32(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a;
    uint32_t right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

/* Sorts and removes duplicates; returns the new count. */
static inline size_t u64_sort_unique(uint64_t *numbers, size_t count)
{
    size_t unique = 0;
    if (count > 1)
        qsort(numbers, count, sizeof *numbers, compare_u64);
    for (size_t i = 0; i < count; i++)
        if (unique == 0 || numbers[unique - 1] != numbers[i])
            numbers[unique++] = numbers[i];
    return unique;
}

/* Returns the value of a hexadecimal digit; -1: not a hexadecimal digit. */
static inline int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Returns the time `ms` milliseconds after `moment`; NEVER on overflow. */
static inline int64_t moment_after(int64_t moment, int64_t ms)
{
    int64_t us, sum;
    bool beyond = __builtin_mul_overflow(ms, (int64_t)US_PER_MS, &us) || __builtin_add_overflow(moment, us, &sum);
    return beyond ? NEVER : sum;
}
#endif
