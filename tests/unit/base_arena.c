/* SPDX-License-Identifier: MIT */
/* The arena: memory that is freed together. */
#include <criterion/criterion.h>

#include "base/arena.h"
#include "base/budget.h"
#include "random.h"

static bool all_zero(const unsigned char *memory, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (memory[i])
            return false;
    return true;
}

Test(arena, allocations_are_zeroed_aligned_and_disjoint)
{
    enum { PIECES = 500 };
    struct arena arena;
    unsigned char *pieces[PIECES];
    size_t sizes[PIECES];
    uint64_t state = 3;
    arena_init(&arena, 1024, 1 << 20);
    for (int round = 0; round < 3; round++, arena_clear(&arena)) {
        for (size_t i = 0; i < PIECES; i++) {
            sizes[i] = random_below(&state, 20) ? random_below(&state, 100) : 3000;
            pieces[i] = arena_alloc(&arena, sizes[i]);
            cr_assert_not_null(pieces[i]);
            cr_assert_eq((uintptr_t)pieces[i] % _Alignof(max_align_t), 0);
            cr_assert(all_zero(pieces[i], sizes[i]));
            memset(pieces[i], (int)(i % 255 + 1), sizes[i]);
        }
        for (size_t i = 0; i < PIECES; i++)
            for (size_t j = 0; j < sizes[i]; j++)
                cr_assert_eq(pieces[i][j], i % 255 + 1);
    }
    arena_release(&arena);
}

Test(arena, clear_keeps_only_a_chunk_of_the_usual_size)
{
    struct budget budget = {.limit = 1 << 20};
    struct arena arena;
    arena_init(&arena, 4096, 1 << 20);
    arena.budget = &budget;
    cr_assert_not_null(arena_alloc(&arena, 100000));
    arena_clear(&arena);
    cr_expect_eq((size_t)budget.used, 0);
    cr_assert_not_null(arena_alloc(&arena, 100));
    cr_assert_not_null(arena_alloc(&arena, 100000));
    arena_clear(&arena);
    cr_expect_eq((size_t)budget.used, 4096);
    arena_release(&arena);
}

/* The pieces of the arena count in the new budget, and so do all later ones, until it is freed. */
Test(arena, counts_in_the_budget_that_it_uses)
{
    struct budget whole = {.limit = 1 << 20}, first = {.whole = &whole, .part = 4}, second = first;
    struct arena arena;
    arena_init(&arena, 4096, 1 << 20);
    cr_assert(arena_use_budget(&arena, &first));
    cr_assert_not_null(arena_alloc(&arena, 100));
    cr_assert_not_null(arena_alloc(&arena, 100000));
    cr_expect_eq((size_t)first.used, 104096);
    cr_assert(arena_use_budget(&arena, &second));
    cr_expect_eq((size_t)first.used, 0);
    cr_assert_not_null(arena_alloc(&arena, 100000));
    cr_expect_gt((size_t)second.used, 204096);
    cr_expect_eq((size_t)second.used, (size_t)whole.used);
    arena_clear(&arena);
    cr_assert(arena_use_budget(&arena, &first));
    cr_expect_eq((size_t)first.used, 4096);
    arena_release(&arena);
    cr_expect_eq((size_t)whole.used + first.used + second.used, 0);
}

/* All chunks are one piece, which may be larger than the share while it is alone there. */
Test(arena, is_refused_beyond_its_share_unless_it_is_alone)
{
    struct budget whole = {.limit = 1 << 20}, share = {.whole = &whole, .part = 16};
    struct arena arena, other;
    arena_init(&arena, 4096, 1 << 20);
    arena_init(&other, 4096, 1 << 20);
    arena.budget = &share;
    cr_assert_not_null(arena_alloc(&arena, 100000));
    cr_assert_not_null(arena_alloc(&arena, 100000));
    cr_assert_not_null(arena_alloc(&other, 10000));
    cr_expect_not(arena_use_budget(&other, &share));
    cr_expect_null(other.budget);
    arena_clear(&other);
    cr_assert(arena_use_budget(&other, &share));
    cr_expect_null(arena_alloc(&other, 10000));
    cr_expect(other.refused && other.share_full);
    arena_release(&arena);
    cr_assert_not_null(arena_alloc(&other, 10000));
    cr_expect_null(arena_alloc(&other, 1 << 20));
    arena_release(&other);
    cr_expect_not(other.refused || other.share_full);
    cr_expect_eq((size_t)whole.used + share.used, 0);
}

Test(arena, limit_is_not_exceeded)
{
    struct arena arena;
    arena_init(&arena, 64, 256);
    cr_expect_null(arena_alloc(&arena, 257));
    cr_expect_not_null(arena_alloc(&arena, 200));
    cr_expect_null(arena_alloc(&arena, 100));
    arena_clear(&arena);
    cr_expect_not_null(arena_alloc(&arena, 200));
    arena_release(&arena);
}

Test(arena, small_allocations_do_not_exceed_the_limit)
{
    struct arena arena;
    size_t pieces = 0;
    arena_init(&arena, 64, 1024);
    while (pieces < 5000 && arena_alloc(&arena, pieces % 2))
        pieces++;
    cr_expect_leq(pieces, 1024);
    arena_release(&arena);
}

/* Rounding up to the alignment must not wrap around to a small size. */
Test(arena, sizes_near_the_largest_number_are_refused)
{
    struct arena arena;
    arena_init(&arena, 64, SIZE_MAX);
    volatile size_t largest = SIZE_MAX;
    for (size_t less = 0; less < 80; less++)
        cr_expect_null(arena_alloc(&arena, largest - less));
    cr_expect_null(arena_array(&arena, largest / 2, 3));
    cr_expect_null(arena_array(&arena, largest / 4 + 1, 4));
    arena_release(&arena);
}

Test(arena, copy_ends_with_a_zero_byte)
{
    struct arena arena;
    arena_init(&arena, 64, 1024);
    struct bytes copy = arena_copy(&arena, (struct bytes){"abcdef", 3});
    cr_expect_str_eq(copy.data, "abc");
    cr_expect_eq(copy.length, 3);
    copy = arena_copy(&arena, (struct bytes){NULL, 0});
    cr_expect_str_eq(copy.data, "");
    cr_expect_eq(copy.length, 0);
    arena_release(&arena);
}

Test(arena, copy_over_the_limit_has_no_data)
{
    struct arena arena;
    arena_init(&arena, 64, 4);
    struct bytes copy = arena_copy(&arena, BYTES("abcd"));
    cr_expect_null(copy.data);
    cr_expect_eq(copy.length, 0);
    arena_release(&arena);
}

/* Returns true if the allocation by `must` leaves; the arena has no memory for it. */
static bool leaves(struct arena *arena, int must)
{
    jmp_buf left;
    arena->exit = &left;
    if (setjmp(left))
        return true;
    switch (must) {
    case 0: (void)arena_must_alloc(arena, 17); break;
    case 1: (void)arena_must_array(arena, SIZE_MAX / 2, 3); break;
    case 2: (void)arena_must_copy(arena, BYTES("more than sixteen bytes")); break;
    }
    return false;
}

Test(arena, allocation_that_must_not_fail_leaves)
{
    struct arena arena;
    jmp_buf unused;
    arena_init(&arena, 64, 16);
    for (int must = 0; must < 3; must++)
        cr_expect(leaves(&arena, must), "%d", must);
    arena.exit = &unused;
    cr_expect_not_null(arena_must_array(&arena, 2, 4));
    arena_clear(&arena);
    cr_expect_str_eq(arena_must_copy(&arena, BYTES("abc")).data, "abc");
    arena_release(&arena);
}

Test(arena, is_usable_again_after_release)
{
    struct arena arena;
    arena_init(&arena, 64, 1024);
    cr_expect_not_null(arena_alloc(&arena, 10));
    arena_release(&arena);
    cr_expect_not_null(arena_alloc(&arena, 10));
    arena_release(&arena);
}
