/* SPDX-License-Identifier: MIT */
/*
 * What the files of plan_batch share; nobody else includes it. plan.c runs the batch and collects the result, planner.c
 * has the images and the ways an outcome ends, plan_slots.c knows which slots are free and which an acquire means,
 * plan_acquire.c decides acquires, plan_hold.c what happens to a request that is held (renew, confirm) or ends
 * (release, expire, force-release), plan_semaphore.c the administrative operations, plan_labels.c the labels among
 * them.
 */
#ifndef CORE_PLANNER_H
#define CORE_PLANNER_H

#include "core/plan.h"
#include "core/slot_pool.h"

/* The slots of one locked semaphore while the plan runs. */
struct shelf {
    struct slot_pool free;
    uint32_t unread;                  /* no free slot that was not read lies below this */
    bool whole;                       /* every free slot in service was read */
    const struct named_slots *named;  /* as they were read */
    const struct key **takers;        /* one for each of these: who got it in this batch; NULL: nobody */
    const struct slot_row **labelled; /* those of these that have a label, in byte order of it */
    size_t labelled_count;
};

/*
 * One external_id, of an operation or of a due holder: its row, if there is one, and whether an operation on it had to
 * be put back.
 */
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
    struct shelf *shelves; /* one per locked semaphore */
    bool *kept;            /* one per locked semaphore: its free units are for somebody who waits, and who was decided
                              before; nobody behind gets any */
    struct slots named[REQUEST_MAX_SEMAPHORES]; /* of the acquire that is being decided, for each certain want: the
                                                   slots that it names; none if it means any */
    struct key *keys;                           /* ascending by external_id */
    size_t key_count;
    struct key **due; /* held and due, the longest due first: what an acquire without room may end */
    size_t due_count;
    struct key **key_of; /* per operation; NULL: administrative */
    struct outcome *outcomes;
    struct slot_change *slots; /* every move in order; room for all that can happen */
    size_t slot_count;
    struct label_change *labels; /* of the one operation that changes any */
    size_t label_count;
    struct event *events; /* room for all that can happen */
    size_t event_count;
    unsigned ended[END_REASON_COUNT];
};

/* The image of a locked semaphore, or NULL: not locked, or no such row. */
struct semaphore_image *planner_image(struct planner *planner, uint64_t semaphore_id);
/* What is free of a locked semaphore is kept for somebody who waits; does nothing for what is not locked. */
void planner_keep(struct planner *planner, uint64_t semaphore_id);
bool planner_is_kept(const struct planner *planner, const struct semaphore_image *image);
/* The image of the row with this key, if it is known here; NULL: it is not. */
const struct request *planner_request(const struct planner *planner, struct bytes external_id);
/* Marks it as changed: its version rises, once a batch. */
void image_touch(struct semaphore_image *image);
/* True if all semaphores of the request are locked: only then may anything of it be changed. */
bool planner_holds_all(struct planner *planner, const struct request *request);

/* ---- plan_slots.c ---- */

/* The shelves as they were read, and room for all moves. */
enum permit_status planner_fill_shelves(struct planner *planner) MUST_CHECK;
/* Only for what was locked, not for a new one. */
struct shelf *planner_shelf(struct planner *planner, const struct semaphore_image *image);
/* A slotted permit ends: its slots go back. */
void planner_free_slots(struct planner *planner, struct semaphore_image *image, const struct permit *permit);
/*
 * Fills in planner->named[index] for the certain want with that index; PERMIT_INVALID or PERMIT_NEVER_SATISFIABLE with
 * a sentence: it can never be granted as it is asked. PERMIT_NO_MEMORY is a failure.
 */
enum permit_status planner_resolve_want(struct planner *planner, const struct want *want, size_t index,
                                        const char **ret_detail) MUST_CHECK;
/* How many slots a want that was resolved lacks, however many units are free; 0 unless it is certain. */
int64_t planner_slots_lacking(struct planner *planner, const struct want *want, size_t index);
/*
 * Of a want that lacks slots: those of which it needs `count` more than are free, so that the end of whoever holds one
 * helps; empty if the end of all due holders would not. For neighbours the lowest run of what is free or due.
 */
enum permit_status planner_slots_sought(struct planner *planner, const struct want *want, size_t index,
                                        struct slots *ret_sought) MUST_CHECK;
/* Those of its named slots that are held now, in the arena. */
enum permit_status planner_taken_slots(struct planner *planner, const struct want *want, size_t index,
                                       struct shortage *shortage) MUST_CHECK;
/* Gives a permit its slots, with their labels; the caller has seen that nothing is lacking. False: no memory. */
bool planner_take_slots(struct planner *planner, const struct want *want, size_t index, const struct key *key,
                        struct permit *permit) MUST_CHECK;

/* ---- plan_labels.c ---- */

/* Fills in planner->labels for `image` as it is to be; or PERMIT_INVALID, PERMIT_IN_USE with a sentence. */
enum permit_status planner_change_labels(struct planner *planner, const struct semaphore_image *image,
                                         const struct semaphore_change *change, const char **ret_detail) MUST_CHECK;
/* An event, if any label changes. */
void planner_record_labels(struct planner *planner, const struct semaphore_image *image,
                           const struct operation *operation);

/* ---- planner.c ---- */

/* A sentence for a refusal, in the arena; NULL, which means the status's title, if there is no memory. */
const char *planner_sentence(struct planner *planner, const char *format, ...) PRINTF_LIKE(2, 3);
/* `detail` lives as long as the plan; NULL: the status's title. */
void outcome_refuse(struct outcome *outcome, enum permit_status status, const char *detail);
/* The answer asserts this row, as it is now. */
enum permit_status outcome_assert(struct planner *planner, struct outcome *outcome,
                                  const struct request *request) MUST_CHECK;
/* The same for a row that the operation does not change otherwise: it still writes. */
enum permit_status outcome_assert_again(struct planner *planner, struct outcome *outcome, struct key *key) MUST_CHECK;
/*
 * Not decided: back to the queue with every semaphore that it and its key's row need, and those of `others` (their keys
 * stand in the operation's way; NULL with 0); later operations on the key follow it. If it waits, nobody behind it gets
 * what it wants in the meantime.
 */
enum permit_status outcome_put_back(struct planner *planner, struct outcome *outcome, struct key *key,
                                    const struct operation *operation, struct key *const *others,
                                    size_t other_count) MUST_CHECK;

/* What an operator did to a locked semaphore, for the record. */
void record_event(struct planner *planner, const struct semaphore_image *image, struct event event);

/* A row for a key that has none yet; the strings are copies. NULL: no memory. */
struct request *request_new(struct planner *planner, const struct operation *operation) MUST_CHECK;
/* True if permitd may end it now. */
bool request_is_due(const struct planner *planner, const struct request *request);
/* "expired", or "stale" if it has no ttl. */
enum end_reason due_reason(const struct request *request);
/* Ends a held request of which all semaphores are locked. */
void end_request(struct planner *planner, struct key *key, enum end_reason reason);

/* What the semaphores of one request say together: the smallest ttls and max_hold, the largest grace. */
struct hold_limits {
    int64_t default_ttl_ms;
    int64_t max_ttl_ms; /* -1: none */
    int64_t max_hold_ms;
    int64_t grace_ms;
};
#define NO_HOLD_LIMITS ((struct hold_limits){INT64_MAX, -1, INT64_MAX, 0})

void limits_add(struct hold_limits *limits, const struct semaphore *semaphore);
/* A sentence, or NULL: such a ttl is allowed. */
const char *ttl_refusal(struct ttl ttl, const struct hold_limits *limits);
/* When permitd may end what is granted or renewed now; NEVER: not by itself. */
utc_us due_from(utc_us now, int64_t ttl_ms, int64_t grace_ms, int64_t max_hold_ms);

/* One operation each. Only PERMIT_NO_MEMORY is a failure; everything else is in the outcome. */
typedef enum permit_status plan_keyed(struct planner *planner, struct outcome *outcome, struct key *key,
                                      const struct operation *operation);
typedef enum permit_status plan_administrative(struct planner *planner, struct outcome *outcome,
                                               const struct operation *operation);
plan_keyed plan_acquire, plan_release, plan_renew, plan_confirm, plan_expire, plan_force_release;
plan_administrative plan_put, plan_labels, plan_pause, plan_resume, plan_retire;
#endif
