/* SPDX-License-Identifier: MIT */
/* The slots of one permit, and their labels, as text. */
#include <criterion/criterion.h>

#include "core/slots.h"
#include "random.h"

static struct arena arena;
static struct buf text;

static void setup(void)
{
    arena_init(&arena, 4096, 1 << 20);
    buf_init(&text, SLOTS_TEXT_MAX);
}

static void teardown(void)
{
    arena_release(&arena);
    buf_release(&text);
}

TestSuite(slots, .init = setup, .fini = teardown);

Test(slots, adjacent_numbers_are_formatted_as_a_range)
{
    static const struct {
        const char *text;
        uint32_t count;
        uint32_t numbers[8];
    } cases[] = {
        {"", 0, {0}},
        {"1", 1, {1}},
        {"1-2", 2, {1, 2}},
        {"1-3,7", 4, {1, 2, 3, 7}},
        {"2,4,6-8,65536", 6, {2, 4, 6, 7, 8, 65536}},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        uint32_t numbers[8];
        memcpy(numbers, cases[i].numbers, sizeof numbers);
        struct slots slots = {numbers, cases[i].count}, again;
        buf_clear(&text);
        slots_format(&slots, &text);
        cr_expect_str_eq(buf_text(&text), cases[i].text);
        cr_assert(slots_parse(bytes_of(cases[i].text), &arena, &again), "%s", cases[i].text);
        cr_expect_eq(again.count, cases[i].count);
        cr_expect(memcmp(again.numbers ? again.numbers : numbers, numbers, again.count * sizeof numbers[0]) == 0);
    }
}

Test(slots, invalid_texts_are_refused)
{
    static const char *const texts[] = {
        "0",   "0-3",   "1,",  ",1",   "1,,2", "1-",         "-1",  "2,1",   "1,1",     "1-3,3",
        "3-1", "1-2-3", "1 ",  " 1",   "a",    "1a",         "1,a", "65537", "1-65537", "99999999999999999999",
        "1;2", "+1",    "1.5", "1--2", "1-,2", "4294967297",
    };
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        struct slots slots = {.count = 77};
        cr_expect(!slots_parse(bytes_of(texts[i]), &arena, &slots), "%s", texts[i]);
        cr_expect_eq(slots.count, 77, "%s", texts[i]);
    }
}

Test(slots, permit_has_at_most_1000_slots)
{
    static const struct {
        const char *text;
        uint32_t count; /* 0: refused */
    } cases[] = {
        {"1-1000", 1000},   {"1-1001", 0},  {"1-999,1001", 1000},  {"1-999,1001-1002", 0},
        {"1-1000,1002", 0}, {"1-65536", 0}, {"64537-65536", 1000}, {"1-500,601-1100", 1000},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct slots slots = {.count = 0};
        cr_expect_eq(slots_parse(bytes_of(cases[i].text), &arena, &slots), cases[i].count > 0, "%s", cases[i].text);
        cr_expect_eq(slots.count, cases[i].count, "%s", cases[i].text);
    }
}

Test(slots, parsing_without_memory_fails)
{
    struct arena none;
    struct slots slots = {.count = 77};
    arena_init(&none, 64, 0);
    cr_expect(!slots_parse(BYTES("1"), &none, &slots));
    cr_expect_eq(slots.count, 77);
    cr_expect(slots_parse(BYTES(""), &none, &slots));
    cr_expect_eq(slots.count, 0);
    arena_release(&none);
}

/* Generates ascending numbers. A random value `runs` decides how often a number is adjacent to the last. */
static uint32_t generate(uint32_t numbers[SLOTS_MAX_COUNT], uint64_t *state)
{
    uint32_t wanted = (uint32_t)random_below(state, SLOTS_MAX_COUNT + 1);
    uint64_t runs = 1 + random_below(state, 10);
    uint32_t number = 0;
    uint32_t count = 0;
    while (count < wanted) {
        number += random_below(state, runs) ? 1 : 1 + (uint32_t)random_below(state, 120);
        if (number > SLOTS_MAX_CAPACITY)
            break;
        numbers[count++] = number;
    }
    return count;
}

Test(slots, formatted_slots_parse_to_the_same)
{
    uint64_t state = 7;
    for (int i = 0; i < 3000; i++, arena_clear(&arena), buf_clear(&text)) {
        uint32_t numbers[SLOTS_MAX_COUNT];
        struct slots slots = {numbers, generate(numbers, &state)}, again;
        slots_format(&slots, &text);
        cr_assert(!text.broken);
        cr_assert(slots_parse((struct bytes){buf_text(&text), text.length}, &arena, &again), "%s", buf_text(&text));
        cr_assert_eq(again.count, slots.count);
        cr_assert(slots.count == 0 || memcmp(again.numbers, numbers, slots.count * sizeof numbers[0]) == 0);
    }
}

Test(slots, longest_text_fits)
{
    uint32_t numbers[SLOTS_MAX_COUNT];
    for (uint32_t i = 0; i < SLOTS_MAX_COUNT; i++)
        numbers[i] = SLOTS_MAX_CAPACITY - 2 * (SLOTS_MAX_COUNT - 1 - i);
    slots_format(&(struct slots){numbers, SLOTS_MAX_COUNT}, &text);
    cr_expect(!text.broken);
    cr_expect_eq(text.length, SLOTS_MAX_COUNT * 6 - 1);
}

/* Accepted slots are ascending and in range, and stay the same when they are formatted and parsed again. */
Test(slots, random_bytes_are_harmless)
{
    uint64_t state = 8;
    for (int i = 0; i < 100000; i++, arena_clear(&arena)) {
        char noise[12];
        size_t length = random_below(&state, sizeof noise);
        for (size_t j = 0; j < length; j++)
            noise[j] = "0123456789-,x"[random_below(&state, 13)];
        struct slots slots;
        if (!slots_parse((struct bytes){noise, length}, &arena, &slots))
            continue;
        for (uint32_t j = 0; j < slots.count; j++)
            cr_assert(slots.numbers[j] > (j ? slots.numbers[j - 1] : 0) && slots.numbers[j] <= SLOTS_MAX_CAPACITY);
    }
}

/* ---- labels ---- */

static void expect_labels(const struct bytes *labels, uint32_t count, const char *expected)
{
    struct buf out;
    struct bytes *read = NULL;
    buf_init(&out, LABELS_TEXT_MAX);
    labels_format(labels, count, &out);
    cr_expect_str_eq(buf_text(&out), expected);
    cr_assert(labels_parse(bytes_of(expected), count, &arena, &read), "%s", expected);
    cr_expect_eq(read == NULL, labels == NULL);
    for (uint32_t i = 0; labels && i < count; i++)
        cr_expect(bytes_equal(labels[i], read[i]), "%s: %u", expected, i);
    buf_release(&out);
}

Test(slots, formatted_labels_parse_to_the_same)
{
    expect_labels(NULL, 3, "");
    expect_labels((struct bytes[]){BYTES("A1")}, 1, "A1");
    expect_labels((struct bytes[]){BYTES("A1"), BYTES(""), BYTES("Loge \xC3\xA4, 3")}, 3, "A1\n\nLoge \xC3\xA4, 3");
    expect_labels((struct bytes[]){BYTES(""), BYTES("A2"), BYTES("")}, 3, "\nA2\n");
}

Test(slots, labels_of_another_number_of_slots_are_refused)
{
    struct bytes *read = NULL;
    char longer[LABEL_MAX_BYTES + 1];
    cr_expect_not(labels_parse(BYTES("A1"), 2, &arena, &read));
    cr_expect_not(labels_parse(BYTES("A1\nA2"), 1, &arena, &read));
    cr_expect_not(labels_parse(BYTES("A1\n\n"), 2, &arena, &read));
    memset(longer, 'x', sizeof longer);
    cr_expect_not(labels_parse((struct bytes){longer, sizeof longer}, 1, &arena, &read));
    cr_expect(labels_parse((struct bytes){longer, sizeof longer - 1}, 1, &arena, &read));
}
