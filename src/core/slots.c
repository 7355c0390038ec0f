/* SPDX-License-Identifier: MIT */
#include "core/slots.h"

/* Reads one number from 1 to SLOTS_MAX_CAPACITY; 0: invalid. */
static uint32_t read_number(struct bytes text, size_t *at)
{
    uint32_t number = 0;
    while (*at < text.length && text.data[*at] >= '0' && text.data[*at] <= '9' && number <= SLOTS_MAX_CAPACITY)
        number = number * 10 + (uint32_t)(text.data[(*at)++] - '0');
    return number <= SLOTS_MAX_CAPACITY ? number : 0;
}

static bool skip_byte(struct bytes text, size_t *at, char byte)
{
    if (*at >= text.length || text.data[*at] != byte)
        return false;
    (*at)++;
    return true;
}

bool slots_parse(struct bytes text, struct arena *arena, struct slots *ret_slots)
{
    uint32_t numbers[SLOTS_MAX_COUNT];
    uint32_t count = 0;
    uint32_t previous = 0;
    for (size_t at = 0; at < text.length;) {
        if (at > 0 && !skip_byte(text, &at, ','))
            return false;
        uint32_t first = read_number(text, &at);
        uint32_t last = skip_byte(text, &at, '-') ? read_number(text, &at) : first;
        if (first <= previous || last < first || last - first >= SLOTS_MAX_COUNT - count)
            return false;
        for (uint32_t number = first; number <= last; number++)
            numbers[count++] = number;
        previous = last;
    }
    struct slots slots = {.count = count};
    if (count) {
        slots.numbers = arena_array(arena, count, sizeof numbers[0]);
        if (!slots.numbers)
            return false;
        memcpy(slots.numbers, numbers, count * sizeof numbers[0]);
    }
    *ret_slots = slots;
    return true;
}

void slots_format(const struct slots *slots, struct buf *out)
{
    for (uint32_t i = 0; i < slots->count;) {
        uint32_t last = i;
        while (last + 1 < slots->count && slots->numbers[last + 1] == slots->numbers[last] + 1)
            last++;
        if (i > 0)
            buf_append_char(out, ',');
        buf_append_u64(out, slots->numbers[i]);
        if (last > i) {
            buf_append_char(out, '-');
            buf_append_u64(out, slots->numbers[last]);
        }
        i = last + 1;
    }
}

/* Returns the text from `at` to the end of its line. */
static struct bytes line_at(struct bytes text, size_t at)
{
    const char *end = at < text.length ? memchr(text.data + at, '\n', text.length - at) : NULL;
    return (struct bytes){text.data + at, end ? (size_t)(end - text.data) - at : text.length - at};
}

bool labels_parse(struct bytes text, uint32_t count, struct arena *arena, struct bytes **ret_labels)
{
    if (text.length == 0) {
        *ret_labels = NULL;
        return true;
    }
    struct bytes *labels = arena_array(arena, count, sizeof *labels);
    size_t at = 0;
    uint32_t read = 0;
    for (; labels && read < count && at <= text.length; at += labels[read++].length + 1) {
        labels[read] = line_at(text, at);
        if (labels[read].length > LABEL_MAX_BYTES)
            return false;
    }
    if (!labels || read < count || at != text.length + 1)
        return false;
    *ret_labels = labels;
    return true;
}

void labels_format(const struct bytes *labels, uint32_t count, struct buf *out)
{
    for (uint32_t i = 0; labels && i < count; i++) {
        if (i > 0)
            buf_append_char(out, '\n');
        buf_append(out, labels[i].data, labels[i].length);
    }
}
