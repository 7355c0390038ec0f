/* SPDX-License-Identifier: MIT */
/*
 * The slots of one permit: numbers from 1, ascending, without duplicates; an array in memory, "1-3,7" in a row; and
 * their labels.
 */
#ifndef CORE_SLOTS_H
#define CORE_SLOTS_H

#include "base/arena.h"
#include "base/base.h"
#include "base/buf.h"

enum {
    SLOTS_MAX_COUNT = 1000,     /* maximum of one permit */
    SLOTS_MAX_CAPACITY = 65536, /* maximum of one slotted semaphore */
    SLOTS_TEXT_MAX = 8000,      /* longer than any text of SLOTS_MAX_COUNT numbers */
};

struct slots {
    uint32_t *numbers; /* in the creator's arena; NULL if count is 0 */
    uint32_t count;
};

/* A slot named by a client. */
struct slot_name {
    uint32_t number;    /* 0: named by its label */
    struct bytes label; /* data NULL: named by its number */
};

enum {
    LABEL_MAX_BYTES = 255,
    LABELS_TEXT_MAX = SLOTS_MAX_COUNT * (LABEL_MAX_BYTES + 1), /* maximum of one permit */
};

/*
 * Parses the text of a row. False: invalid, out of range, not ascending, or out of memory; *ret_slots is then
 * untouched.
 */
bool slots_parse(struct bytes text, struct arena *arena, struct slots *ret_slots) MUST_CHECK;
void slots_format(const struct slots *slots, struct buf *out);

/*
 * Labels of a permit as stored in a row: one per line in the order of its slots, an empty line for a slot without a
 * label; an empty text if no slot has one (labels NULL). False: not one line per slot, or out of memory. Parsed labels
 * point into the text.
 */
bool labels_parse(struct bytes text, uint32_t count, struct arena *arena, struct bytes **ret_labels) MUST_CHECK;
void labels_format(const struct bytes *labels, uint32_t count, struct buf *out);
#endif
