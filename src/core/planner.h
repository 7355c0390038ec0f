/* SPDX-License-Identifier: MIT */
/*
 * What the files of plan_batch share; nobody else includes it. plan.c runs the batch and collects the result, planner.c
 * has the images, the slots and the ways an outcome ends, plan_request.c decides acquire, release and renew,
 * plan_semaphore.c the administrative operations.
 */
#ifndef CORE_PLANNER_H
#define CORE_PLANNER_H

#include "core/plan.h"

/* The free slots of one semaphore while the plan runs: a heap, the lowest number on top. */
struct slot_pool {
    uint32_t *numbers;
    size_t count;
    uint32_t unread; /* no free slot that was not read lies below this */
    bool whole;      /* every free slot in service is here */
};

/* One external_id of the batch: its row, if there is one, and whether an operation on it had to be put back. */
struct key {
    struct bytes external_id;
    struct request *request; /* image; NULL: no row */
    const struct request *before;
    bool insert;
    bool changed;
    bool ends;
    const uint64_t *needs; /* put back: so are all later operations on this key */
    size_t need_count;
};

struct planner {
    const struct view *view;
    const struct operation *const *operations;
    size_t operation_count;
    const struct plan_settings *settings;
    struct arena *arena;
    utc_us now; /* served time */
    struct id_range ids;
    struct semaphore_image *images; /* room for one more than was locked: a new one */
    size_t image_count;
    struct slot_pool *pools; /* one per locked semaphore */
    struct key *keys;        /* ascending by external_id */
    size_t key_count;
    struct key **key_of; /* per operation; NULL: administrative */
    struct outcome *outcomes;
    struct slot_change *slots; /* every move in order; room for all that can happen */
    size_t slot_count;
};

/* The image of a locked semaphore, or NULL: not locked, or no such row. */
struct semaphore_image *planner_image(struct planner *planner, uint64_t semaphore_id);
/* Only for what was locked, not for a new one. */
struct slot_pool *planner_pool(struct planner *planner, const struct semaphore_image *image);
/* Marks it as changed: its version rises, once a batch. */
void image_touch(struct semaphore_image *image);
/* True if all semaphores of the request are locked: only then may anything of it be changed. */
bool planner_holds_all(struct planner *planner, const struct request *request);

/* A slotted permit ends: its slots go back. */
void planner_free_slots(struct planner *planner, struct semaphore_image *image, const struct permit *permit);
/* Gives the lowest free slots to a permit; the caller has seen that there are enough. False: no memory. */
bool planner_take_slots(struct planner *planner, struct semaphore_image *image, struct permit *permit) MUST_CHECK;

/* `detail` is constant text, or NULL for the status's title. */
void outcome_refuse(struct outcome *outcome, enum permit_status status, const char *detail);
/* The answer asserts this row, as it is now. */
enum permit_status outcome_assert(struct planner *planner, struct outcome *outcome,
                                  const struct request *request) MUST_CHECK;
/* The same for a row that the operation does not change otherwise: it still writes. */
enum permit_status outcome_assert_again(struct planner *planner, struct outcome *outcome, struct key *key) MUST_CHECK;
/* Not decided: back to the queue with every semaphore that it and its key's row need; later ones on the key follow it.
 */
enum permit_status outcome_put_back(struct planner *planner, struct outcome *outcome, struct key *key,
                                    const struct operation *operation) MUST_CHECK;

/* One operation each. Only PERMIT_NO_MEMORY is a failure; everything else is in the outcome. */
enum permit_status plan_acquire(struct planner *planner, struct outcome *outcome, struct key *key,
                                const struct operation *operation) MUST_CHECK;
enum permit_status plan_release(struct planner *planner, struct outcome *outcome, struct key *key,
                                const struct operation *operation) MUST_CHECK;
enum permit_status plan_renew(struct planner *planner, struct outcome *outcome, struct key *key,
                              const struct operation *operation) MUST_CHECK;
enum permit_status plan_put(struct planner *planner, struct outcome *outcome,
                            const struct operation *operation) MUST_CHECK;
enum permit_status plan_retire(struct planner *planner, struct outcome *outcome,
                               const struct operation *operation) MUST_CHECK;
#endif
