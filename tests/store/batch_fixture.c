/* SPDX-License-Identifier: MIT */
#include "batch_fixture.h"

#include <criterion/criterion.h>

#include "store/open.h"

enum { IDS = 1000, WANTS_MAX = 4 };

const struct plan_settings side_settings = {
    .retention_us = 7LL * 86400 * US_PER_SECOND,
    .tombstone_us = 3600LL * US_PER_SECOND,
    .default_ttl_ms = DEFAULT_TTL_MS,
};

void side_open(struct side *side, const struct database_address *address)
{
    side->store = store_open(address, STORE_WORKER, NULL);
    arena_init(&side->arena, 1 << 16, 1 << 26);
    cr_assert_eq(store_reconnect(side->store), PERMIT_OK, "%s", side->store->message);
    uint64_t epoch;
    cr_assert_eq(store_reserve_ids(side->store, IDS, &side->ids, &epoch), PERMIT_OK);
}

void side_close(struct side *side)
{
    store_free(side->store);
    arena_release(&side->arena);
}

struct lock_set lock_set_of(struct side *side, struct operation *operation)
{
    static uint64_t ids[WANTS_MAX + 1];
    static struct slots_wanted wanted[WANTS_MAX + 1];
    static struct resolve_name names[WANTS_MAX];
    static struct resolve_key key;
    struct resolve resolve = {.names = names, .name_count = operation->want_count, .keys = &key, .key_count = 1};
    struct lock_set set = {
        .semaphore_ids = ids, .slots_wanted = wanted, .keys = &operation->external_id, .key_count = 1};
    if (operation_is_administrative(operation->kind))
        return (struct lock_set){.semaphore_name = operation->semaphore,
                                 .semaphore_ids = ids,
                                 .slots_wanted = wanted,
                                 .all_slots = operation->change && operation->change->has_labels};
    for (size_t i = 0; i < operation->want_count; i++)
        names[i] = (struct resolve_name){.name = operation->wants[i].semaphore};
    key = (struct resolve_key){.external_id = operation->external_id};
    cr_assert_eq(store_resolve(side->store, &resolve, &side->arena), PERMIT_OK, "%s", side->store->message);
    for (size_t i = 0; i < operation->want_count; i++) {
        operation->wants[i].semaphore_id = names[i].ret_id;
        wanted[set.semaphore_count] = (struct slots_wanted){.free = operation->wants[i].count,
                                                            .named = operation->wants[i].named,
                                                            .named_count = operation->wants[i].named_count};
        ids[set.semaphore_count++] = names[i].ret_id;
    }
    for (size_t i = 0; i < key.ret_count && operation->want_count == 0; i++) {
        wanted[set.semaphore_count] = (struct slots_wanted){0};
        ids[set.semaphore_count++] = key.ret_semaphore_ids[i];
    }
    return set;
}

const struct outcome *decide(struct side *side, struct operation *operation)
{
    arena_clear(&side->arena);
    const struct operation *operations[] = {operation};
    struct lock_set set = lock_set_of(side, operation);
    cr_assert_eq(store_lock(side->store, &set, &side->arena, &side->view), PERMIT_OK, "%s", side->store->message);
    struct shortfall shortfalls[WANTS_MAX + 1];
    size_t shortfall_count = plan_shortfalls(&side->view, operations, 1, shortfalls);
    if (shortfall_count)
        cr_assert_eq(store_read_due(side->store, shortfalls, shortfall_count, &side->arena, &side->view), PERMIT_OK,
                     "%s", side->store->message);
    cr_assert_eq(plan_batch(&side->view, operations, 1, side->ids, &side_settings, &side->arena, &side->plan),
                 PERMIT_OK);
    side->ids.next += side->plan.ids_used;
    return &side->plan.outcomes[0];
}

const struct outcome *run(struct side *side, struct operation *operation)
{
    const struct outcome *outcome = decide(side, operation);
    if (side->plan.changes.empty)
        cr_assert_eq(store_rollback(side->store), PERMIT_OK);
    else
        cr_assert_eq(store_apply(side->store, &side->plan.changes), PERMIT_OK, "%s", side->store->message);
    return outcome;
}

void semaphore_make(struct side *side, const char *name, enum semaphore_kind kind, int64_t capacity)
{
    struct operation put = {
        .kind = OP_SEMAPHORE_PUT,
        .semaphore = bytes_of(name),
        .change =
            &(struct semaphore_change){.has_capacity = true, .capacity = capacity, .has_kind = true, .kind = kind},
    };
    const struct outcome *outcome = run(side, &put);
    cr_assert_eq(outcome->status, PERMIT_OK, "%s", outcome->detail);
}

struct operation acquire_of(const char *key, struct want *wants, size_t count)
{
    return (struct operation){
        .kind = OP_ACQUIRE,
        .external_id = bytes_of(key),
        .owner = BYTES("tester"),
        .wants = wants,
        .want_count = count,
    };
}
