/* SPDX-License-Identifier: MIT */
/* What plan_model cannot see of a plan: where its memory is. */
#include <criterion/criterion.h>

#include "core/plan.h"

/* Found by the thread sanitizer: the first of two is answered, and its memory used anew, while the second is written.
 */
Test(plan_memory, an_answer_points_into_no_other_operation)
{
    struct semaphore semaphore = {.id = 1,
                                  .name = BYTES("a"),
                                  .kind = KIND_COUNTED,
                                  .capacity = 9,
                                  .next_permit_id = 1,
                                  .max_ttl_ms = -1,
                                  .retired_at = NEVER,
                                  .next_due_at = NEVER};
    struct free_slots none = {0};
    utc_us next_due = NEVER;
    struct view view = {.semaphores = &semaphore, .free_slots = &none, .next_due = &next_due, .semaphore_count = 1};
    struct want want = {.semaphore = BYTES("a"), .semaphore_id = 1, .count = 1};
    char keys[2][4] = {"key", "key"};
    char owners[2][4] = {"own", "own"};
    struct operation both[2];
    for (int i = 0; i < 2; i++)
        both[i] = (struct operation){
            .kind = OP_ACQUIRE, .external_id = {keys[i], 3}, .owner = {owners[i], 3}, .wants = &want, .want_count = 1};
    const struct operation *operations[] = {&both[0], &both[1]};
    struct plan_settings settings = {.retention_us = 1, .tombstone_us = 1, .default_ttl_ms = 1};
    struct arena arena;
    struct plan plan;
    arena_init(&arena, 4096, 1 << 20);
    cr_assert_eq(plan_batch(&view, operations, 2, (struct id_range){1, 10}, &settings, &arena, &plan), PERMIT_OK);
    cr_assert(plan.outcomes[0].created);
    cr_assert(plan.outcomes[1].replayed);
    memset(keys[0], 'x', 3);
    memset(owners[0], 'x', 3);
    cr_assert(bytes_equal(plan.outcomes[1].request->external_id, BYTES("key")));
    cr_assert(bytes_equal(plan.outcomes[1].request->owner, BYTES("own")));
    arena_release(&arena);
}
