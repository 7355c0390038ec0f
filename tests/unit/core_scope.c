/* SPDX-License-Identifier: MIT */
#include "core/scope.h"

#include <criterion/criterion.h>
#include <stdio.h>

static struct scope scope_of(struct scope_entry *entries, size_t count)
{
    return (struct scope){entries, scope_normalize(entries, count)};
}

Test(scope, covers_exact_names_and_prefixes)
{
    struct scope_entry entries[] = {
        {BYTES("shop:"), true}, {BYTES("hall"), false}, {BYTES("a"), false}, {BYTES("ab"), true}};
    const struct scope scope = scope_of(entries, 4);
    cr_assert_eq(scope.count, 4);
    cr_expect(scope_covers(&scope, BYTES("shop:")));
    cr_expect(scope_covers(&scope, BYTES("shop:unit")));
    cr_expect(scope_covers(&scope, BYTES("hall")));
    cr_expect(scope_covers(&scope, BYTES("a")));
    cr_expect(scope_covers(&scope, BYTES("abc")));
    cr_expect_not(scope_covers(&scope, BYTES("aa")));
    cr_expect_not(scope_covers(&scope, BYTES("halls")));
    cr_expect_not(scope_covers(&scope, BYTES("shop")));
    cr_expect_not(scope_covers(&scope, BYTES("zzz")));
    cr_expect_not(scope_covers(&scope, BYTES("0")));
}

Test(scope, drops_entries_that_another_one_covers)
{
    struct scope_entry entries[] = {{BYTES("shop:b"), false}, {BYTES("shop:a"), true}, {BYTES("shop:"), true},
                                    {BYTES("shop:"), false},  {BYTES("shoq"), false},  {BYTES("shoq"), false}};
    const struct scope scope = scope_of(entries, 6);
    cr_assert_eq(scope.count, 2);
    cr_expect(scope_covers(&scope, BYTES("shop:zz")));
    cr_expect(scope_covers(&scope, BYTES("shoq")));
}

Test(scope, empty_prefix_covers_everything_and_an_empty_scope_nothing)
{
    struct scope_entry all[] = {{BYTES("x"), false}, {{"", 0}, true}};
    const struct scope scope = scope_of(all, 2);
    const struct scope none = {NULL, 0};
    cr_expect(scope_covers(&scope, BYTES("anything")));
    cr_expect_not(scope_covers(&none, BYTES("anything")));
    cr_expect(scope_covers(NULL, BYTES("anything")));
}

Test(scope, covers_a_prefix_by_a_prefix_only)
{
    struct scope_entry entries[] = {{BYTES("shop:"), true}, {BYTES("hall"), false}};
    const struct scope scope = scope_of(entries, 2);
    cr_expect(scope_covers_prefix(&scope, BYTES("shop:")));
    cr_expect(scope_covers_prefix(&scope, BYTES("shop:a")));
    cr_expect_not(scope_covers_prefix(&scope, BYTES("shop")));
    cr_expect_not(scope_covers_prefix(&scope, BYTES("hall")));
    cr_expect_not(scope_covers_prefix(&scope_of_nothing, BYTES("a")));
    cr_expect(scope_covers_prefix(NULL, BYTES("hall")));
}

Test(scope, finds_the_prefix_that_covers_a_name)
{
    struct scope_entry entries[] = {{BYTES("shop:"), true}, {BYTES("shop:eu:"), true}, {BYTES("hall"), false}};
    const struct scope scope = scope_of(entries, 3);
    struct bytes prefix = BYTES("untouched");
    cr_expect_not(scope_find_prefix(&scope, BYTES("hall"), &prefix));
    cr_expect_not(scope_find_prefix(&scope, BYTES("shop"), &prefix));
    cr_expect_not(scope_find_prefix(&scope_of_nothing, BYTES("shop:a"), &prefix));
    cr_expect(bytes_equal(prefix, BYTES("untouched")));
    cr_expect(scope_find_prefix(&scope, BYTES("shop:eu:a"), &prefix));
    cr_expect(bytes_equal(prefix, BYTES("shop:")));
    cr_expect(scope_find_prefix(NULL, BYTES("hall"), &prefix));
    cr_expect_eq(prefix.length, 0);
}

/* Returns the parts of a walk, such as " hall shop:*". */
static const char *walked(const struct scope *scope, const char *prefix, const char *after)
{
    static char text[200];
    struct scope_walk walk = {.scope = scope, .prefix = bytes_of(prefix), .after = bytes_of(after)};
    struct scope_entry part;
    size_t length = 0;
    text[0] = 0;
    while (scope_walk_next(&walk, &part))
        length += (size_t)snprintf(text + length, sizeof text - length, " %.*s%s", (int)part.text.length,
                                   part.text.data, part.is_prefix ? "*" : "");
    return text;
}

Test(scope, walk_has_the_names_in_order_with_a_prefix_and_after_a_name)
{
    struct scope_entry entries[] = {{BYTES("shop:"), true}, {BYTES("hall"), false}, {BYTES("a"), true}};
    const struct scope scope = scope_of(entries, 3);
    cr_expect_str_eq(walked(&scope, "", ""), " a* hall shop:*");
    cr_expect_str_eq(walked(&scope, "sh", ""), " shop:*");
    cr_expect_str_eq(walked(&scope, "shop:eu", ""), " shop:eu*");
    cr_expect_str_eq(walked(&scope, "hall", ""), " hall");
    cr_expect_str_eq(walked(&scope, "halls", ""), "");
    cr_expect_str_eq(walked(&scope, "z", ""), "");
    cr_expect_str_eq(walked(&scope, "", "ab"), " a* hall shop:*");
    cr_expect_str_eq(walked(&scope, "", "b"), " hall shop:*");
    cr_expect_str_eq(walked(&scope, "", "hall"), " shop:*");
    cr_expect_str_eq(walked(&scope, "", "shop:x"), " shop:*");
    cr_expect_str_eq(walked(&scope, "", "shop;"), "");
    cr_expect_str_eq(walked(NULL, "x", ""), " x*");
    cr_expect_str_eq(walked(NULL, "", "x"), " *");
    cr_expect_str_eq(walked(&scope_of_nothing, "", ""), "");
}
