/* SPDX-License-Identifier: MIT */
/* Availability cache while memory is short: each allocation fails in turn. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>

#include "api/availability_cache.h"
#include "base/clock.h"
#include "store/store.h"

extern atomic_llong allocations_until; /* wire_memory.c */

enum { BODY_MAX = 4096, ALLOCATIONS_MAX = 1000 };

static enum permit_status read_rows(struct store *store, struct availability_read *read, struct arena *arena)
{
    (void)store;
    struct availability *rows = arena_array(arena, 3, sizeof *rows);
    if (!rows)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < read->name_count; i++)
        rows[i] = (struct availability){.name = read->names[i], .available = 1, .version = 1};
    read->ret_rows = rows;
    read->ret_count = read->name_count;
    for (size_t i = 0; i < read->range_count; i++) {
        rows[2] = (struct availability){.name = BYTES("c:1"), .available = 1, .version = 1};
        read->ranges[i].ret_rows = &rows[2];
        read->ranges[i].ret_count = 1;
        read->ranges[i].ret_next = BYTES("c:2");
    }
    return PERMIT_OK;
}

static const struct store_queries queries = {.availability = read_rows};
static const struct scope_entry parts[] = {
    {.text = {"a", 1}}, {.text = {"b", 1}}, {.text = {"c:", 2}, .is_prefix = true}};

/* No failure gives a wrong page, and after it the page is read as ever. */
Test(availability_memory, page_is_whole_or_not_given)
{
    static const char whole[] = "{\"name\":\"a\",\"available\":1,\"waiting\":0,\"version\":1},"
                                "{\"name\":\"b\",\"available\":1,\"waiting\":0,\"version\":1},"
                                "{\"name\":\"c:1\",\"available\":1,\"waiting\":0,\"version\":1}";
    struct store store = {.queries = &queries};
    struct availability_ask ask = {.parts = parts, .part_count = ARRAY_LENGTH(parts), .limit = 10, .since = 1};
    bool reached = true;
    for (long long n = 1; reached; n++) {
        struct availability_page page;
        struct buf out;
        cr_assert_lt(n, ALLOCATIONS_MAX);
        buf_init(&out, BODY_MAX);
        struct availability_cache *cache = availability_cache_new();
        cr_assert_not_null(cache);
        atomic_store(&allocations_until, n);
        enum permit_status status = availability_cache_find(cache, &store, &ask, &out, &page);
        reached = atomic_exchange(&allocations_until, 0) <= 0;
        cr_assert(status == PERMIT_OK || (status == PERMIT_NO_MEMORY && out.length == 0));
        cr_assert(status != PERMIT_OK || out.broken || strcmp(buf_text(&out), whole) == 0, "%s", buf_text(&out));
        buf_clear(&out);
        cr_assert_eq(availability_cache_find(cache, &store, &ask, &out, &page), PERMIT_OK);
        cr_assert_str_eq(buf_text(&out), whole);
        cr_assert(page.next_length == 3 && memcmp(page.next, "c:2", 3) == 0);
        availability_cache_free(cache);
        buf_release(&out);
#ifdef __SANITIZE_ADDRESS__
        reached = false;
#endif
    }
}
