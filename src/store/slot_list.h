/* SPDX-License-Identifier: MIT */
/*
 * Queries for the slots of a semaphore and their holders. As in query.h, these are plain SELECTs outside every batch;
 * rows are in the caller's arena.
 */
#ifndef STORE_SLOT_LIST_H
#define STORE_SLOT_LIST_H

#include "store/query.h"

/* Tells whether the slots may have changed: every change of a slot's holder or label raises the version. */
struct slot_list_head {
    uint64_t semaphore_id;
    enum semaphore_kind kind;
    int64_t in_use;
    uint64_t version;
    uint64_t epoch; /* compare it too: after a failover or a restore, which raise it, versions may go back */
};

/* Reads the head. PERMIT_UNKNOWN_SEMAPHORE: the semaphore does not exist or is retired. */
enum permit_status query_slot_list_head(struct session *session, struct bytes semaphore,
                                        struct slot_list_head *ret_head) MUST_CHECK;

enum slot_state { SLOT_ANY, SLOT_FREE, SLOT_HELD };

struct slot_filter {
    enum slot_state state;
    struct bytes prefix; /* of the label; length 0: any label, or none */
    uint32_t after;      /* only numbers above this one */
    unsigned limit;      /* maximum number of slots */
};

struct slot_list_row {
    uint32_t number;
    struct bytes label;     /* data NULL: none */
    uint64_t token;         /* 0: free */
    struct request request; /* holder, without its permits; set only if the slot is held */
};

/*
 * Lists slots in order of number. A slot above the capacity is listed only while it is held. Reads one page of rows;
 * with a state or a prefix, at most all slots of the semaphore.
 */
enum permit_status query_slots(struct session *session, uint64_t semaphore_id, const struct slot_filter *filter,
                               struct arena *arena, struct slot_list_row **ret_rows, size_t *ret_count,
                               struct query_time *ret_time) MUST_CHECK;
#endif
