/* SPDX-License-Identifier: MIT */
/* The growing string with a maximum. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/buf.h"
#include "random.h"

Test(buf, empty_buffer_reads_as_empty_text)
{
    struct buf buf;
    buf_init(&buf, 10);
    cr_expect_str_eq(buf_text(&buf), "");
    cr_expect_null(buf_steal(&buf));
    buf_release(&buf);
}

Test(buf, every_type_is_appended)
{
    struct buf buf;
    buf_init(&buf, 1000);
    buf_append_text(&buf, "a");
    buf_append_char(&buf, ' ');
    buf_append_u64(&buf, UINT64_MAX);
    buf_append_char(&buf, ' ');
    buf_append_i64(&buf, INT64_MIN);
    buf_append_char(&buf, ' ');
    buf_append_i64(&buf, 0);
    buf_append_hex(&buf, "\x00\xffz", 3);
    buf_printf(&buf, " %s-%d", "x", 5);
    buf_append(&buf, NULL, 0);
    cr_expect_str_eq(buf_text(&buf), "a 18446744073709551615 -9223372036854775808 000ff7a x-5");
    cr_expect_eq(buf.length, strlen(buf_text(&buf)));
    cr_expect(!buf.broken);
    buf_release(&buf);
}

Test(buf, buffer_holds_at_most_its_maximum)
{
    struct buf buf;
    buf_init(&buf, 4);
    buf_append_text(&buf, "abcd");
    cr_expect(!buf.broken);
    buf_append_char(&buf, 'e');
    cr_expect(buf.broken);
    cr_expect_str_eq(buf_text(&buf), "abcd");
    buf_release(&buf);
}

Test(buf, empty_keeps_only_small_memory)
{
    struct buf buf;
    buf_init(&buf, 10000);
    buf_append_text(&buf, "ab");
    size_t capacity = buf.capacity;
    buf_empty(&buf, 4096);
    cr_expect_eq(buf.capacity, capacity);
    cr_expect_str_eq(buf_text(&buf), "");
    buf_printf(&buf, "%5000d", 1);
    buf_empty(&buf, 4096);
    cr_expect_eq(buf.capacity, 0);
    buf_append_text(&buf, "ab");
    cr_expect_str_eq(buf_text(&buf), "ab");
    buf_release(&buf);
}

Test(buf, broken_buffer_stays_broken_until_cleared)
{
    struct buf buf;
    buf_init(&buf, 4);
    buf_append_text(&buf, "ab");
    buf_append_hex(&buf, "xy", 2);
    buf_append_char(&buf, 'c');
    buf_printf(&buf, "d");
    cr_expect(buf.broken);
    cr_expect_str_eq(buf_text(&buf), "ab");
    cr_expect_null(buf_steal(&buf));
    buf_clear(&buf);
    cr_expect(!buf.broken);
    cr_expect_str_eq(buf_text(&buf), "");
    buf_append_text(&buf, "cdef");
    cr_expect_str_eq(buf_text(&buf), "cdef");
    buf_release(&buf);
}

Test(buf, printed_text_over_the_maximum_appends_nothing)
{
    struct buf buf;
    buf_init(&buf, 4);
    buf_printf(&buf, "%s", "abcde");
    cr_expect(buf.broken);
    cr_expect_eq(buf.length, 0);
    buf_release(&buf);
}

Test(buf, memory_can_be_stolen)
{
    struct buf buf;
    buf_init(&buf, 100);
    buf_append_text(&buf, "mine");
    char *mine = buf_steal(&buf);
    cr_expect_str_eq(mine, "mine");
    cr_expect_eq(buf.length, 0);
    buf_append_text(&buf, "new");
    cr_expect_str_eq(mine, "mine");
    free(mine);
    buf_release(&buf);
    buf_append_text(&buf, "and again");
    cr_expect_str_eq(buf_text(&buf), "and again");
    buf_release(&buf);
}

/* The buffer still has its memory, but no contents. */
Test(buf, cleared_buffer_has_nothing_to_steal)
{
    struct buf buf;
    buf_init(&buf, 100);
    buf_append_text(&buf, "before");
    buf_clear(&buf);
    char *taken = buf_steal(&buf);
    cr_expect_null(taken);
    free(taken);
    buf_release(&buf);
}

Test(buf, overflowing_length_breaks_only_the_buffer)
{
    struct buf buf;
    buf_init(&buf, SIZE_MAX);
    buf_append_text(&buf, "a");
    buf_append(&buf, "b", SIZE_MAX - 1);
    cr_expect(buf.broken);
    cr_expect_str_eq(buf_text(&buf), "a");
    buf_clear(&buf);
    buf_append_hex(&buf, "b", SIZE_MAX / 2 + 2);
    cr_expect(buf.broken);
    buf_release(&buf);
}

Test(buf, contents_equal_those_of_a_plain_array)
{
    static char naive[20000];
    size_t length = 0;
    uint64_t state = 2;
    struct buf buf;
    buf_init(&buf, sizeof naive);
    for (;;) {
        char piece[64];
        size_t size = random_below(&state, sizeof piece);
        if (length + size > sizeof naive)
            break;
        for (size_t i = 0; i < size; i++)
            piece[i] = (char)next_random(&state);
        buf_append(&buf, piece, size);
        memcpy(naive + length, piece, size);
        length += size;
    }
    cr_expect_eq(buf.length, length);
    cr_expect(memcmp(buf.data, naive, length) == 0);
    cr_expect_eq(buf.data[length], '\0');
    buf_release(&buf);
}
