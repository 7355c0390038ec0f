/* SPDX-License-Identifier: MIT */
/* Availability cache: what it reads, and when, and that its memory is bounded. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "api/availability_cache.h"
#include "base/clock.h"
#include "store/store.h"

enum { NAMES_MAX = 1000, BODY_MAX = 1 << 20 };

/* A database in which every name exists, and no prefix has names. */
static struct {
    size_t reads, names, ranges; /* `names` and `ranges`: of the last read */
    enum permit_status status;
} database;

static enum permit_status read_rows(struct store *store, struct availability_read *read, struct arena *arena)
{
    (void)store;
    database.reads++;
    database.names = read->name_count;
    database.ranges = read->range_count;
    read->ret_rows = arena_array(arena, read->name_count, sizeof *read->ret_rows);
    for (size_t i = 0; i < read->name_count && read->ret_rows; i++)
        read->ret_rows[read->ret_count++] = (struct availability){.name = read->names[i], .version = 1};
    return database.status;
}

static const struct store_queries queries = {.availability = read_rows};
static struct store store = {.queries = &queries};
static struct availability_cache *cache;
static struct buf out;

static void cache_make(void)
{
    cache = availability_cache_new();
    cr_assert_not_null(cache);
    buf_init(&out, BODY_MAX);
}

static void cache_forget(void)
{
    availability_cache_free(cache);
    buf_release(&out);
}

TestSuite(availability_cache, .init = cache_make, .fini = cache_forget);

/* Asks for `count` names from `first` on, which must not have been read before `since`. */
static enum permit_status ask(int first, int count, mono_us since)
{
    static char texts[NAMES_MAX][200];
    static struct scope_entry parts[NAMES_MAX];
    struct availability_page page;
    for (int i = 0; i < count; i++) {
        snprintf(texts[i], sizeof texts[i], "a-name-that-is-long-so-that-few-fill-the-memory:%0100d", first + i);
        parts[i] = (struct scope_entry){.text = bytes_of(texts[i])};
    }
    const struct availability_ask question = {
        .parts = parts, .part_count = (size_t)count, .limit = NAMES_MAX, .since = since};
    buf_clear(&out);
    return availability_cache_find(cache, &store, &question, &out, &page);
}

/* The same; returns the number of reads that it took. */
static size_t reads_of(int first, int count, mono_us since)
{
    size_t before = database.reads;
    cr_assert_eq(ask(first, count, since), PERMIT_OK);
    int shown = 0;
    for (const char *at = buf_text(&out); (at = strstr(at, "{\"name\":")); at++)
        shown++;
    cr_assert_eq(shown, count, "%d", shown);
    return database.reads - before;
}

Test(availability_cache, reads_what_is_missing_only)
{
    mono_us since = clock_mono() - US_PER_SECOND;
    cr_assert_eq(reads_of(0, 10, since), 1);
    cr_assert_eq(reads_of(3, 2, since), 0);
    cr_assert_eq(reads_of(8, 4, since), 1);
    cr_assert_eq(database.names, 2);
}

Test(availability_cache, reads_again_what_was_asked_for_in_the_last_ten_seconds)
{
    mono_us now = clock_mono();
    (void)reads_of(0, 3, now - 11 * US_PER_SECOND);
    (void)reads_of(3, 4, now - 9 * US_PER_SECOND);
    (void)reads_of(7, 1, now);
    cr_assert_eq(reads_of(3, 1, clock_mono()), 1);
    cr_assert_eq(database.names, 4 + 1);
    cr_assert_eq(reads_of(3, 4, now), 0);
}

/* One read has at most 10,000 names: the others are read when a client asks for them. */
Test(availability_cache, read_is_bounded)
{
    enum { ASKED = 12 * NAMES_MAX };
    mono_us since = clock_mono() - US_PER_SECOND;
    for (int first = 0; first < ASKED; first += NAMES_MAX)
        cr_assert_eq(reads_of(first, NAMES_MAX, since), 1);
    since = clock_mono();
    cr_assert_eq(reads_of(0, NAMES_MAX, since), 1);
    cr_assert_eq(database.names, 10000);
    cr_assert_eq(reads_of(NAMES_MAX * 5, NAMES_MAX, since), 0);
    cr_assert_eq(reads_of(NAMES_MAX, NAMES_MAX, since), 1);
}

/* The memory holds less than 60,000 of these names: those of which the last question is the oldest go. */
Test(availability_cache, memory_is_bounded)
{
    enum { ASKED = 60 * NAMES_MAX };
    mono_us since = clock_mono() - 3600LL * US_PER_SECOND;
    for (int first = 0; first < ASKED; first += NAMES_MAX) {
        cr_assert_eq(reads_of(first, NAMES_MAX, since), 1);
        cr_assert_eq(reads_of(0, 1, since), 0, "clients ask for it all the time");
    }
    cr_assert_eq(reads_of(ASKED - 10 * NAMES_MAX, NAMES_MAX, since), 0);
    cr_assert_eq(reads_of(1, 1, since), 1);
}

Test(availability_cache, failure_leaves_what_was_read)
{
    mono_us since = clock_mono() - US_PER_SECOND;
    cr_assert_eq(reads_of(0, 10, since), 1);
    database.status = PERMIT_DATABASE_UNAVAILABLE;
    cr_assert_eq(reads_of(0, 10, since), 0);
    cr_assert_eq(ask(0, 10, clock_mono()), PERMIT_DATABASE_UNAVAILABLE);
    cr_assert_eq(out.length, 0);
    cr_assert_eq(ask(5, 10, since), PERMIT_DATABASE_UNAVAILABLE);
    cr_assert_eq(reads_of(0, 10, since), 0);
    database.status = PERMIT_OK;
    cr_assert_eq(reads_of(0, 10, clock_mono()), 1);
}

/* Keys of a prefix and of a name behind it must not be confused with others: a prefix may be any bytes. */
Test(availability_cache, ranges_are_told_apart)
{
    static const struct {
        const char *prefix, *after;
        size_t reads; /* more than before */
    } cases[] = {
        {"", "", 1},      {"a", "", 1}, {"a", "b", 0}, {"a", "ab", 1}, {"ab", "", 1}, {"ab", "ab", 1},
        {"aba", "ab", 1}, {"", "a", 1}, {"*", "", 1},  {"a", "ab", 0}, {"", "", 0},   {"\xff", "\xff", 1},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        const struct scope_entry part = {.text = bytes_of(cases[i].prefix), .is_prefix = true};
        const struct availability_ask question = {
            .parts = &part, .part_count = 1, .after = bytes_of(cases[i].after), .limit = 1, .since = 1};
        struct availability_page page;
        size_t before = database.reads;
        cr_assert_eq(availability_cache_find(cache, &store, &question, &out, &page), PERMIT_OK);
        cr_expect_eq(database.reads - before, cases[i].reads, "%zu", i);
        cr_expect_eq(page.next_length, 0);
    }
}
