/* SPDX-License-Identifier: MIT */
/*
 * Reads of a semaphore's slots, who holds which. As those of query.h: plain SELECTs on a SESSION_READER, rows in the
 * caller's arena.
 */
#ifndef STORE_SLOT_LIST_H
#define STORE_SLOT_LIST_H

#include "store/query.h"

/* What tells whether the list may have changed: a slot that changes hands or label raises the version. */
struct slot_list_head {
    uint64_t semaphore_id;
    enum semaphore_kind kind;
    int64_t in_use;
    uint64_t version;
    uint64_t epoch; /* rises where versions may go back: another server, an older copy */
};

/* One row; PERMIT_UNKNOWN_SEMAPHORE if there is none or it is retired. */
enum permit_status query_slot_list_head(struct session *session, struct bytes semaphore,
                                        struct slot_list_head *ret_head) MUST_CHECK;

enum slot_state { SLOT_ANY, SLOT_FREE, SLOT_HELD };

struct slot_filter {
    enum slot_state state;
    struct bytes prefix; /* of the label; length 0: any, also none */
    uint32_t after;      /* number: only larger ones */
    unsigned limit;
};

struct slot_list_row {
    uint32_t number;
    struct bytes label;     /* data NULL: none */
    uint64_t token;         /* 0: free */
    struct request request; /* held: without its permits */
};

/*
 * In order of number. A slot above the capacity is there only while it is held. Reads no further than the page, or,
 * with a state or a prefix, at most the semaphore's slots.
 */
enum permit_status query_slots(struct session *session, uint64_t semaphore_id, const struct slot_filter *filter,
                               struct arena *arena, struct slot_list_row **ret_rows, size_t *ret_count,
                               struct query_time *ret_time) MUST_CHECK;
#endif
