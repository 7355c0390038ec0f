/* SPDX-License-Identifier: MIT */
/*
 * The slots of a permit as stored in a row, "1-3,7": accepted slots are ascending and in range, and formatted slots
 * parse to the same.
 */
#include "core/slots.h"

#include "fuzz.h"

enum { ARENA_CHUNK = 256, ARENA_LIMIT = 64 * 1024 };

static void check_slots(const struct slots *slots)
{
    MUST(slots->count <= SLOTS_MAX_COUNT && (slots->count == 0) == (slots->numbers == NULL));
    for (uint32_t i = 0; i < slots->count; i++) {
        MUST(slots->numbers[i] >= 1 && slots->numbers[i] <= SLOTS_MAX_CAPACITY);
        MUST(i == 0 || slots->numbers[i] > slots->numbers[i - 1]);
    }
}

static void check_printed(const struct slots *slots, struct arena *arena)
{
    struct buf text;
    struct slots again = {0};
    buf_init(&text, SLOTS_TEXT_MAX);
    slots_format(slots, &text);
    MUST(!text.broken); /* the buffer is longer than any text of SLOTS_MAX_COUNT numbers */
    MUST(slots_parse((struct bytes){text.data, text.length}, arena, &again));
    MUST(again.count == slots->count);
    MUST(again.count == 0 || memcmp(again.numbers, slots->numbers, again.count * sizeof *again.numbers) == 0);
    buf_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct bytes text = fuzz_bytes(data, size);
    struct slots slots = {.count = 4711};
    arena_init(&arena, ARENA_CHUNK, ARENA_LIMIT);
    if (slots_parse(text, &arena, &slots)) {
        check_slots(&slots);
        check_printed(&slots, &arena);
    } else {
        MUST(slots.count == 4711);
    }
    arena_release(&arena);
    free((void *)text.data);
    return 0;
}
