/* SPDX-License-Identifier: MIT */
/*
 * Reading of bodies while memory is short. Each allocation fails in turn: an accepted body must have been read as it
 * was sent, and a refusal must be temporary.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/operations.h"
#include "api/service.h"

/* Number of allocations up to the one that fails; 0 or less: none fails. */
extern atomic_llong allocations_until;
atomic_llong allocations_until;

#ifndef __SANITIZE_ADDRESS__ /* it has its own allocator: no allocation fails */
#include "failing_malloc.h"

static bool fails(const void *caller)
{
    (void)caller;
    if (atomic_load(&allocations_until) <= 0 || atomic_fetch_sub(&allocations_until, 1) != 1)
        return false;
    errno = ENOMEM;
    return true;
}
#endif

enum { BODY_MAX = 64 * 1024, ALLOCATIONS_MAX = 100000 };

/* A call with its body read as an acquire. */
struct reading {
    struct service service;
    struct call *call;
    enum permit_status status;
};

/* Reads an acquire while the n-th allocation fails; 0: none. Returns true if that allocation was reached. */
static bool read_acquire(struct reading *reading, const char *text, long long n)
{
    static const struct service_settings settings = {.max_wait_ms = 1000};
    *reading = (struct reading){.service = {.settings = &settings}};
    buf_init(&reading->service.message, 1024);
    struct exchange *exchange = exchange_new(sizeof *reading->call);
    cr_assert_not_null(exchange);
    exchange->service = &reading->service;
    exchange->body = bytes_of(text);
    reading->call = call_of(exchange);
    atomic_store(&allocations_until, n);
    reading->status = operation_read_acquire(exchange, (struct bytes){0}, &reading->call->first);
    return atomic_exchange(&allocations_until, 0) <= 0;
}

static void reading_release(struct reading *reading)
{
    exchange_free(&reading->call->exchange);
    buf_release(&reading->service.message);
}

/* Returns true if the body needs an n-th allocation. */
static bool judge(const char *text, const struct operation *expected, long long n)
{
    struct reading reading;
    bool met = read_acquire(&reading, text, n);
    const struct operation *operation = &reading.call->first.operation;
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
    while (n < ALLOCATIONS_MAX && judge(text, &expected.call->first.operation, n))
        n++;
    cr_assert_lt(n, ALLOCATIONS_MAX);
    reading_release(&expected);
}

Test(wire_memory, acquire_is_read_completely_or_refused)
{
    judge_all(
        "{\"external_id\":\"k\",\"permits\":[{\"semaphore\":\"backups\"},{\"semaphore\":\"network\",\"count\":3}],"
        "\"ttl\":\"30s\",\"wait\":1.5}");
}

/* Text that grows piece by piece: a lost piece would leave another name. */
Test(wire_memory, long_escaped_names_are_read_completely_or_refused)
{
    char text[BODY_MAX] = "{\"external_id\":\"";
    for (int i = 0; i < 40; i++)
        strcat(text, "a-b\\u002d\\/c");
    strcat(text, "\",\"permits\":[{\"semaphore\":\"");
    for (int i = 0; i < 250; i++)
        strcat(text, "s");
    judge_all(strcat(text, "\",\"count\":1}],\"ttl\":30}"));
}

Test(wire_memory, many_slots_are_read_completely_or_refused)
{
    char text[BODY_MAX] = "{\"permits\":[{\"semaphore\":\"seats\",\"slots\":[1";
    for (int i = 2; i <= 70; i++)
        sprintf(text + strlen(text), ",%d", i);
    judge_all(strcat(text, "]}],\"external_id\":\"k\",\"ttl\":30}"));
}

Test(wire_memory, many_labels_are_read_completely_or_refused)
{
    char text[BODY_MAX] = "{\"permits\":[{\"semaphore\":\"seats\",\"count\":2,\"any_of\":[\"A1\"";
    for (int i = 2; i <= 70; i++)
        sprintf(text + strlen(text), ",\"row \\u00e4 %d\"", i);
    judge_all(strcat(text, "]}],\"external_id\":\"k\"}"));
}

/* An answer without memory is a 503, not a 500. */
Test(wire_memory, answer_without_memory_is_not_too_long)
{
    struct buf buf;
    buf_init(&buf, 10);
    buf_append_text(&buf, "a body of more than ten bytes");
    cr_assert_eq(buf.broken, BUF_TOO_LONG);
    buf_clear(&buf);
    atomic_store(&allocations_until, 1);
    buf_append_text(&buf, "a body");
    if (atomic_exchange(&allocations_until, 0) <= 0)
        cr_assert_eq(buf.broken, BUF_NO_MEMORY);
    buf_release(&buf);
}
