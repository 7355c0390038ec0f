/* SPDX-License-Identifier: MIT */
/*
 * Bodies that are read while memory is short. Each allocation fails in turn; what is read all the same has to be what
 * was sent, and what is not has to be refused as what passes.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/operations.h"
#include "http/service.h"

/* How many allocations until the one that fails; 0 or less: none does. */
static atomic_llong until;

#ifndef __SANITIZE_ADDRESS__ /* which has these for itself: then nothing fails */
#include "failing_malloc.h"

static bool fails(const void *caller)
{
    (void)caller;
    if (atomic_load(&until) <= 0 || atomic_fetch_sub(&until, 1) != 1)
        return false;
    errno = ENOMEM;
    return true;
}
#endif

enum { BODY_MAX = 64 * 1024, ALLOCATIONS_MAX = 100000 };

/* An exchange whose body was read as an acquire. */
struct reading {
    struct service service;
    struct exchange *exchange;
    enum permit_status status;
};

/* The n-th allocation fails; 0: none. Returns whether it came to that. */
static bool read_acquire(struct reading *reading, const char *text, long long n)
{
    *reading = (struct reading){.service = {.max_wait_ms = 1000}};
    buf_init(&reading->service.message, 1024);
    reading->exchange = exchange_new(&reading->service);
    cr_assert_not_null(reading->exchange);
    reading->exchange->body = bytes_of(text);
    atomic_store(&until, n);
    reading->status = operation_read_acquire(reading->exchange, (struct bytes){0}, &reading->exchange->first);
    return atomic_exchange(&until, 0) <= 0;
}

static void reading_release(struct reading *reading)
{
    exchange_free(reading->exchange);
    buf_release(&reading->service.message);
}

/* True if there is an n-th allocation. */
static bool judge(const char *text, const struct operation *expected, long long n)
{
    struct reading reading;
    bool met = read_acquire(&reading, text, n);
    const struct operation *operation = &reading.exchange->first.operation;
    if (reading.status == PERMIT_OK)
        cr_assert(bytes_equal(operation->external_id, expected->external_id) &&
                      memcmp(operation->digest, expected->digest, DIGEST_SIZE) == 0,
                  "allocation %lld fails: read as something else", n);
    else
        cr_assert(met && reading.status == PERMIT_NO_MEMORY, "allocation %lld fails: %s: %s", n,
                  permit_status_word(reading.status), buf_text(&reading.service.message));
    reading_release(&reading);
    return met;
}

static void judge_all(const char *text)
{
    struct reading expected;
    long long n = 1;
    (void)read_acquire(&expected, text, 0);
    cr_assert_eq(expected.status, PERMIT_OK, "%s", buf_text(&expected.service.message));
    while (n < ALLOCATIONS_MAX && judge(text, &expected.exchange->first.operation, n))
        n++;
    cr_assert_lt(n, ALLOCATIONS_MAX);
    reading_release(&expected);
}

Test(wire_memory, an_acquire)
{
    judge_all(
        "{\"external_id\":\"k\",\"permits\":[{\"semaphore\":\"backups\"},{\"semaphore\":\"network\",\"count\":3}],"
        "\"ttl\":\"30s\",\"wait\":1.5}");
}

/* Text that grows piece by piece: what gets lost would leave another name. */
Test(wire_memory, long_names_with_escapes)
{
    char text[BODY_MAX] = "{\"external_id\":\"";
    for (int i = 0; i < 40; i++)
        strcat(text, "a-b\\u002d\\/c");
    strcat(text, "\",\"permits\":[{\"semaphore\":\"");
    for (int i = 0; i < 250; i++)
        strcat(text, "s");
    judge_all(strcat(text, "\",\"count\":1}],\"ttl\":30}"));
}

Test(wire_memory, many_slots)
{
    char text[BODY_MAX] = "{\"permits\":[{\"semaphore\":\"seats\",\"slots\":[1";
    for (int i = 2; i <= 70; i++)
        sprintf(text + strlen(text), ",%d", i);
    judge_all(strcat(text, "]}],\"external_id\":\"k\",\"ttl\":30}"));
}

Test(wire_memory, many_labels)
{
    char text[BODY_MAX] = "{\"permits\":[{\"semaphore\":\"seats\",\"count\":2,\"any_of\":[\"A1\"";
    for (int i = 2; i <= 70; i++)
        sprintf(text + strlen(text), ",\"row \\u00e4 %d\"", i);
    judge_all(strcat(text, "]}],\"external_id\":\"k\"}"));
}

/* 503, and not 500, is what is told of the one. */
Test(wire_memory, an_answer_without_memory_is_not_one_that_is_too_long)
{
    struct buf buf;
    buf_init(&buf, 10);
    buf_append_text(&buf, "a body of more than ten bytes");
    cr_assert_eq(buf.broken, BUF_TOO_LONG);
    buf_clear(&buf);
    atomic_store(&until, 1);
    buf_append_text(&buf, "a body");
    if (atomic_exchange(&until, 0) <= 0)
        cr_assert_eq(buf.broken, BUF_NO_MEMORY);
    buf_release(&buf);
}
