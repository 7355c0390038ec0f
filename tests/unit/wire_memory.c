/* SPDX-License-Identifier: MIT */
/*
 * Bodies that are read while memory is short: json-c 0.16 does not look at all of its allocations. Each of them fails
 * in turn; what is read all the same has to be what was sent, and what is not has to be refused as what passes.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/wire.h"

/* How many allocations until the one that fails; 0 or less: none does. */
static atomic_llong until;

#ifndef __SANITIZE_ADDRESS__ /* which has these for itself: then nothing fails */
#include "failing_malloc.h"

/* Not where libc allocates: json-c copies names by strdup, and dies if there is no copy. */
static bool fails(const void *caller)
{
    Dl_info asker;
    if (atomic_load(&until) <= 0 || !dladdr(caller, &asker) || strstr(asker.dli_fname, "/libc."))
        return false;
    if (atomic_fetch_sub(&until, 1) != 1)
        return false;
    errno = ENOMEM;
    return true;
}
#endif

enum { BODY_MAX = 64 * 1024, ALLOCATIONS_MAX = 100000 };

static enum permit_status parse(struct wire *wire, const char *text, struct json_object **ret_object)
{
    struct buf message;
    buf_init(&message, 1024);
    enum permit_status status = wire_parse(wire, bytes_of(text), ret_object, &message);
    buf_release(&message);
    return status;
}

/* The n-th allocation fails. True if there is an n-th. */
static bool judge(struct wire *wire, const char *text, struct json_object *expected, long long n)
{
    struct json_object *object = NULL;
    atomic_store(&until, n);
    enum permit_status status = parse(wire, text, &object);
    bool met = atomic_exchange(&until, 0) <= 0;
    if (status == PERMIT_OK)
        cr_assert(json_object_equal(object, expected), "allocation %lld fails: read as %s", n,
                  json_object_to_json_string(object));
    else
        cr_assert(met && status == PERMIT_NO_MEMORY, "allocation %lld fails: %s", n, permit_status_word(status));
    if (status == PERMIT_OK)
        wire_drop(object);
    return met;
}

static void judge_all(const char *text)
{
    struct json_object *expected = NULL;
    struct wire *wire = wire_new();
    long long n = 1;
    cr_assert_not_null(wire);
    cr_assert_eq(parse(wire, text, &expected), PERMIT_OK);
    while (n < ALLOCATIONS_MAX && judge(wire, text, expected, n))
        n++;
    cr_assert_lt(n, ALLOCATIONS_MAX);
    wire_drop(expected);
    wire_free(wire);
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
    for (int i = 0; i < 60; i++)
        strcat(text, "a-b\\u002d\\/c");
    strcat(text, "\",\"permits\":[{\"semaphore\":\"");
    for (int i = 0; i < 250; i++)
        strcat(text, "s");
    judge_all(strcat(text, "\",\"count\":1}],\"ttl\":30}"));
}

/* More elements than json-c makes room for at first, and a number behind each. */
Test(wire_memory, many_slots)
{
    char text[BODY_MAX] = "{\"permits\":[{\"semaphore\":\"seats\",\"slots\":[1";
    for (int i = 2; i <= 70; i++)
        sprintf(text + strlen(text), ",%d", i);
    judge_all(strcat(text, "]}],\"external_id\":\"k\",\"ttl\":30}"));
}

/* As many as an operation has; with 12 json-c makes room once more, and what it loses there looks like a name twice. */
Test(wire_memory, many_members)
{
    char text[BODY_MAX] = "{\"m0\":0";
    for (int i = 1; i < 11; i++)
        sprintf(text + strlen(text), ",\"m%d\":%d", i, i);
    judge_all(strcat(text, "}"));
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

Test(wire_memory, a_batch)
{
    char text[BODY_MAX] = "{\"operations\":[";
    for (int i = 0; i < 12; i++)
        sprintf(text + strlen(text),
                "%s{\"op\":\"acquire\",\"external_id\":\"k-%d\",\"permits\":[{\"semaphore\":\"s\"}],\"ttl\":\"1s\"}",
                i ? "," : "", i);
    judge_all(strcat(text, "]}"));
}
