/* SPDX-License-Identifier: MIT */
#include "http/event_memory.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(event_memory);

Test(event_memory, small_pieces_are_beside_each_other_and_large_ones_are_not)
{
    char *first = event_memory_alloc(14), *large = event_memory_alloc(17), *second = event_memory_alloc(16);
    cr_assert(first && large && second);
    cr_assert_eq(second - first, 16);
    cr_assert(event_memory_is_piece(first) && event_memory_is_piece(second));
    cr_assert_not(event_memory_is_piece(large));
    cr_assert_not(event_memory_is_piece(NULL));
    event_memory_free(first);
    event_memory_free(large);
    event_memory_free(second);
    event_memory_free(NULL);
}

Test(event_memory, freed_pieces_are_used_again)
{
    char *first = event_memory_alloc(8), *second = event_memory_alloc(8);
    event_memory_free(first);
    event_memory_free(second);
    cr_assert_eq(event_memory_alloc(8), second);
    cr_assert_eq(event_memory_alloc(8), first);
    event_memory_free(first);
    event_memory_free(second);
}

Test(event_memory, pieces_that_grow_keep_their_content)
{
    char *memory = event_memory_realloc(NULL, 8);
    cr_assert_not_null(memory);
    event_memory_free(memory);
    memory = event_memory_alloc(8);
    memcpy(memory, "letters", 8);
    cr_assert_eq(event_memory_realloc(memory, 9), memory);
    memory = event_memory_realloc(memory, 4096);
    cr_assert_not(event_memory_is_piece(memory));
    cr_assert_str_eq(memory, "letters");
    memory = event_memory_realloc(memory, 8);
    cr_assert_str_eq(memory, "letters");
    event_memory_free(memory);
}
