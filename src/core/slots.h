/* SPDX-License-Identifier: MIT */
/*
 * The slots of one permit: numbers from 1 up, ascending, each once; as an array in memory, as "1-3,7" in a row; and
 * their labels.
 */
#ifndef CORE_SLOTS_H
#define CORE_SLOTS_H

#include "base/arena.h"
#include "base/base.h"
#include "base/buf.h"

enum {
    SLOTS_MAX_COUNT = 1000,     /* of one permit */
    SLOTS_MAX_CAPACITY = 65536, /* of one slotted semaphore */
    SLOTS_TEXT_MAX = 8000,      /* longer than any text of SLOTS_MAX_COUNT numbers */
};

struct slots {
    uint32_t *numbers; /* in the arena of whoever made it; NULL if count is 0 */
    uint32_t count;
};

/* A slot as a client names it. */
struct slot_name {
    uint32_t number;    /* 0: by its label */
    struct bytes label; /* data NULL: by its number */
};

enum {
    LABEL_MAX_BYTES = 255,
    LABELS_TEXT_MAX = SLOTS_MAX_COUNT * (LABEL_MAX_BYTES + 1), /* of one permit */
};

/* False: not such a text, out of range, not ascending, or no memory; then *ret_slots is untouched. */
bool slots_parse(struct bytes text, struct arena *arena, struct slots *ret_slots) MUST_CHECK;
void slots_format(const struct slots *slots, struct buf *out);

/*
 * The labels of a permit in a row: one a line in the order of its slots, an empty line for a slot that has none, and
 * nothing at all if none has (labels NULL). False: not one line for each slot, or no memory. The labels that are read
 * point into the text.
 */
bool labels_parse(struct bytes text, uint32_t count, struct arena *arena, struct bytes **ret_labels) MUST_CHECK;
void labels_format(const struct bytes *labels, uint32_t count, struct buf *out);
#endif
