/* SPDX-License-Identifier: MIT */
#include <criterion/criterion.h>

#include "core/slot_pool.h"
#include "random.h"

static struct arena arena;
static struct slot_pool pool;

static void begin(void)
{
    arena_init(&arena, 4096, 1 << 20);
    slot_pool_init(&pool, 200, &arena);
}

static void end(void)
{
    arena_release(&arena);
}

TestSuite(slot_pool, .init = begin, .fini = end);

static void put(uint32_t first, uint32_t last)
{
    for (uint32_t number = first; number <= last; number++)
        slot_pool_put(&pool, number);
}

Test(slot_pool, lowest_slot_is_found_after_puts_and_takes_in_any_order)
{
    slot_pool_put(&pool, 130);
    slot_pool_put(&pool, 7);
    slot_pool_put(&pool, 200);
    cr_expect_eq(slot_pool_lowest(&pool), 7);
    slot_pool_take(&pool, 7);
    cr_expect_eq(slot_pool_lowest(&pool), 130);
    slot_pool_put(&pool, 64);
    cr_expect_eq(slot_pool_lowest(&pool), 64);
    slot_pool_take(&pool, 130);
    cr_expect_eq(slot_pool_next(&pool, 65), 200);
    cr_expect_eq(slot_pool_next(&pool, 201), 0);
    cr_expect_eq(pool.count, 2);
}

Test(slot_pool, slot_is_pooled_once_and_not_above_the_capacity)
{
    slot_pool_put(&pool, 3);
    slot_pool_put(&pool, 3);
    slot_pool_put(&pool, 201);
    cr_expect_eq(pool.count, 1);
    cr_expect(slot_pool_has(&pool, 3));
    cr_expect_not(slot_pool_has(&pool, 201));
}

Test(slot_pool, runs_are_found_across_words)
{
    put(1, 2);
    put(60, 70);
    put(120, 200);
    cr_expect_eq(slot_pool_run(&pool, 2), 1);
    cr_expect_eq(slot_pool_run(&pool, 3), 60);
    cr_expect_eq(slot_pool_run(&pool, 11), 60);
    cr_expect_eq(slot_pool_run(&pool, 12), 120);
    cr_expect_eq(slot_pool_run(&pool, 81), 120);
    cr_expect_eq(slot_pool_run(&pool, 82), 0);
}

Test(slot_pool, runs_within_a_list_need_every_number_of_it)
{
    uint32_t numbers[] = {1, 2, 4, 5, 6, 64};
    struct slots list = {numbers, ARRAY_LENGTH(numbers)};
    put(1, 5);
    cr_expect_eq(slot_pool_run_within(&pool, 1, &list), 1);
    cr_expect_eq(slot_pool_run_within(&pool, 2, &list), 1);
    cr_expect_eq(slot_pool_run_within(&pool, 3, &list), 0);
    cr_expect_eq(slot_pool_count_of(&pool, &list), 4);
    slot_pool_put(&pool, 6);
    cr_expect_eq(slot_pool_run_within(&pool, 3, &list), 4);
}

Test(slot_pool, labels_are_those_that_were_set)
{
    slot_pool_set_label(&pool, 3, (struct bytes){0}, &arena);
    cr_expect_null(pool.labels);
    slot_pool_set_label(&pool, 70, BYTES("B6"), &arena);
    slot_pool_set_label(&pool, 999, BYTES("C"), &arena);
    cr_expect(bytes_equal(slot_pool_label(&pool, 70), BYTES("B6")));
    cr_expect_eq(slot_pool_label(&pool, 71).length, 0);
    cr_expect_eq(slot_pool_label(&pool, 3).length, 0);
}

/* The slow, obvious search. */
static uint32_t plain_run(const bool *there, uint32_t capacity, uint32_t count)
{
    for (uint32_t first = 1; first + count <= capacity + 1; first++) {
        uint32_t length = 0;
        while (length < count && there[first + length])
            length++;
        if (length == count)
            return first;
    }
    return 0;
}

Test(slot_pool, agrees_with_an_array_of_flags)
{
    uint64_t random = 7;
    for (int round = 0; round < 3000; round++) {
        bool there[201] = {0};
        uint32_t capacity = 1 + (uint32_t)random_below(&random, 200);
        uint32_t moves = (uint32_t)random_below(&random, 4 * capacity);
        slot_pool_init(&pool, capacity, &arena);
        for (uint32_t i = 0; i < moves; i++) {
            uint32_t number = 1 + (uint32_t)random_below(&random, capacity);
            if (!there[number] || random_below(&random, 3) > 0)
                slot_pool_put(&pool, number), there[number] = true;
            else
                slot_pool_take(&pool, number), there[number] = false;
        }
        uint32_t count = 1 + (uint32_t)random_below(&random, 8);
        cr_assert_eq(slot_pool_run(&pool, count), plain_run(there, capacity, count));
        cr_assert_eq(pool.count ? slot_pool_lowest(&pool) : 0, plain_run(there, capacity, 1));
        arena_clear(&arena);
    }
}
