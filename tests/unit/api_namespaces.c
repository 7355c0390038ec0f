/* SPDX-License-Identifier: MIT */
/* The stored form of keys and owners, and who sees them. */
#include "api/namespaces.h"

#include <criterion/criterion.h>

#include "core/name.h"

static struct arena arena;

static void begin(void)
{
    arena_init(&arena, 1024, 1024 * 1024);
}

static void end(void)
{
    arena_release(&arena);
}

Test(namespaces, joined_key_splits_into_what_it_was_made_of, .init = begin, .fini = end)
{
    static const char *const namespaces[] = {"", "a", "shop", "shop-2", "abcdefghijklmnopqrstuvwxyz012345"};
    char longest[NAME_MAX_BYTES + 1];
    memset(longest, '~', NAME_MAX_BYTES);
    longest[NAME_MAX_BYTES] = '\0';
    const char *const keys[] = {"!", "job-42", "a", "shop", "...", longest};
    for (size_t i = 0; i < ARRAY_LENGTH(namespaces); i++)
        for (size_t j = 0; j < ARRAY_LENGTH(keys); j++) {
            struct bytes stored = key_join(&arena, bytes_of(namespaces[i]), bytes_of(keys[j]));
            cr_assert_not_null(stored.data);
            struct key_parts parts = key_split(stored);
            cr_expect(bytes_equal(parts.namespace, bytes_of(namespaces[i])));
            cr_expect(bytes_equal(parts.key, bytes_of(keys[j])));
            cr_expect_eq(name_has_namespace(stored), i > 0);
            cr_expect_leq(stored.length, STORED_KEY_MAX_BYTES);
        }
}

Test(namespaces, stored_form_is_that_of_the_rows, .init = begin, .fini = end)
{
    cr_expect(bytes_equal(key_join(&arena, BYTES("shop"), BYTES("job-42")), BYTES("\001shop\001job-42")));
    cr_expect(bytes_equal(key_join(&arena, BYTES(""), BYTES("job-42")), BYTES("job-42")));
}

/* Else a key of one namespace would be one of another: "ab" "c" and "a" "bc". */
Test(namespaces, different_names_have_different_stored_forms, .init = begin, .fini = end)
{
    static const char *const words[] = {"a", "b", "ab", "ba", "aa", "a-", "-a", "abb"};
    struct bytes stored[ARRAY_LENGTH(words) * (ARRAY_LENGTH(words) + 1)];
    size_t count = 0;
    for (size_t i = 0; i <= ARRAY_LENGTH(words); i++)
        for (size_t j = 0; j < ARRAY_LENGTH(words); j++)
            stored[count++] = key_join(&arena, bytes_of(i < ARRAY_LENGTH(words) ? words[i] : ""), bytes_of(words[j]));
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            cr_expect_not(bytes_equal(stored[i], stored[j]), "%zu %zu", i, j);
}

/* A row that something else has written, or that is cut off, is shown as it is. */
Test(namespaces, malformed_stored_key_is_in_the_empty_namespace)
{
    static const struct bytes rows[] = {{"", 0}, {"\001", 1}, {"\001shop", 5}, {"job\001x\001y", 7}};
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct key_parts parts = key_split(rows[i]);
        cr_expect_eq(parts.namespace.length, 0, "%zu", i);
        cr_expect(bytes_equal(parts.key, rows[i]), "%zu", i);
    }
}

Test(namespaces, viewer_sees_its_own_and_an_operator_all)
{
    const struct bytes of_shop = BYTES("\001shop\001k"), of_bank = BYTES("\001bank\001k"), of_none = BYTES("k");
    const struct viewer shop = {.namespace = BYTES("shop")};
    const struct viewer none = {.namespace = BYTES("")};
    const struct viewer op = {.namespace = BYTES(""), .sees_all = true};
    cr_expect(viewer_sees(&shop, of_shop));
    cr_expect_not(viewer_sees(&shop, of_bank));
    cr_expect_not(viewer_sees(&shop, of_none));
    cr_expect(viewer_sees(&none, of_none));
    cr_expect_not(viewer_sees(&none, of_shop));
    cr_expect(viewer_sees(&op, of_none) && viewer_sees(&op, of_shop) && viewer_sees(&op, of_bank));
    cr_expect_not(viewer_needs_namespace(&shop, of_shop));
    cr_expect_not(viewer_needs_namespace(&shop, of_bank));
    cr_expect_not(viewer_needs_namespace(&op, of_none));
    cr_expect(viewer_needs_namespace(&op, of_bank));
}
