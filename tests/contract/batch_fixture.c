/* SPDX-License-Identifier: MIT */
#include "batch_fixture.h"

#include "contract.h"

enum { IDS = 1000, WANTS_MAX = 4, KEYS_MAX = 4, REQUESTS_MAX = 2000 };

const struct plan_settings fixture_settings = {
    .retention_us = 7LL * 86400 * US_PER_SECOND,
    .tombstone_us = 3600LL * US_PER_SECOND,
    .default_ttl_ms = DEFAULT_TTL_MS,
};

void fixture_open(struct fixture *fixture, struct store *store)
{
    fixture->store = store;
    checked_store_init(&fixture->checked, store);
    arena_init(&fixture->arena, 1 << 16, 1 << 26);
    MUST_OK(fixture->store, fixture->store->session->reconnect(fixture->store));
    uint64_t epoch;
    MUST_OK(fixture->store, fixture->store->batch->reserve_ids(fixture->store, IDS, &fixture->ids, &epoch));
}

enum permit_status fixture_advance_epoch(struct store *store, enum epoch_cause cause, uint64_t seen, int64_t hold_ms)
{
    struct epoch_advance advance = {.cause = cause, .seen = seen, .hold_ms = hold_ms};
    return store->clock->advance_epoch(store, &advance);
}

void fixture_close(struct fixture *fixture)
{
    store_free(fixture->store);
    arena_release(&fixture->arena);
}

struct lock_set lock_set_of(struct fixture *fixture, struct operation *operation)
{
    static uint64_t ids[KEYS_MAX * WANTS_MAX];
    static struct slots_wanted wanted[KEYS_MAX * WANTS_MAX];
    static struct resolve_name names[WANTS_MAX];
    static struct resolve_key keys[KEYS_MAX];
    size_t key_count = operation_key_count(operation);
    struct resolve resolve = {
        .names = names, .name_count = operation->want_count, .keys = keys, .key_count = key_count};
    struct lock_set set = {.semaphore_ids = ids,
                           .slots_wanted = wanted,
                           .keys = operation->keys ? operation->keys : &operation->external_id,
                           .key_count = key_count};
    if (operation_is_administrative(operation->kind))
        return (struct lock_set){.semaphore_name = operation->semaphore,
                                 .semaphore_ids = ids,
                                 .slots_wanted = wanted,
                                 .all_slots = operation->change && operation->change->has_labels};
    for (size_t i = 0; i < operation->want_count; i++)
        names[i] = (struct resolve_name){.name = operation->wants[i].semaphore};
    for (size_t i = 0; i < key_count; i++)
        keys[i] = (struct resolve_key){.external_id = operation_key(operation, i)};
    MUST_OK(fixture->store, fixture->store->batch->resolve(fixture->store, &resolve, &fixture->arena));
    for (size_t i = 0; i < operation->want_count; i++) {
        operation->wants[i].semaphore_id = names[i].ret_id;
        bool all = want_searches_all(&operation->wants[i]);
        wanted[set.semaphore_count] =
            (struct slots_wanted){.free = all ? SLOTS_MAX_CAPACITY : operation->wants[i].count,
                                  .named = operation->wants[i].named,
                                  .named_count = operation->wants[i].named_count};
        ids[set.semaphore_count++] = names[i].ret_id;
    }
    for (size_t i = 0; i < key_count && operation->want_count == 0; i++)
        for (size_t j = 0; j < keys[i].ret_count; j++)
            ids[set.semaphore_count++] = keys[i].ret_semaphore_ids[j];
    if (operation->want_count == 0) {
        set.semaphore_count = u64_sort_unique(ids, set.semaphore_count);
        memset(wanted, 0, sizeof wanted);
    }
    return set;
}

void fixture_judge(struct lease_clock *clock, utc_us now)
{
    clock->due = clock->from = lease_time(clock, now);
}

/* Reads the seats of the semaphores of which the operation wants best ones. */
static void load_seat_maps(struct fixture *fixture, const struct operation *operation)
{
    static struct seat_map maps[WANTS_MAX];
    static const struct seat_map *of[WANTS_MAX + 1];
    for (size_t i = 0; i < fixture->view.semaphore_count; i++) {
        of[i] = NULL;
        for (size_t j = 0; j < operation->want_count; j++) {
            struct seats seats = {0};
            const struct want *want = &operation->wants[j];
            if (want->choice != CHOOSE_BEST || want->semaphore_id != fixture->view.semaphores[i].id)
                continue;
            MUST_OK(fixture->store,
                    fixture->store->batch->read_seats(fixture->store, want->semaphore_id, &fixture->arena, &seats));
            MUST(seat_map_make(&maps[j], &seats, &fixture->arena));
            of[i] = &maps[j];
            fixture->view.seat_maps = of;
        }
    }
}

const struct outcome *batch_decide(struct fixture *fixture, struct operation *operation)
{
    arena_clear(&fixture->arena);
    const struct operation *operations[] = {operation};
    struct lock_set set = lock_set_of(fixture, operation);
    MUST_OK(fixture->store, fixture->store->batch->lock(fixture->store, &set, &fixture->arena, &fixture->view));
    struct seats seats = {0};
    if (operation->change && operation->change->seats) {
        MUST_OK(fixture->store, fixture->store->batch->read_seats(fixture->store, fixture->view.semaphores[0].id,
                                                                  &fixture->arena, &seats));
        fixture->view.seats = &seats;
    }
    load_seat_maps(fixture, operation);
    fixture_judge(&fixture->view.clock, fixture->view.now);
    struct shortfall shortfalls[WANTS_MAX + 1];
    size_t shortfall_count = plan_shortfalls(&fixture->view, operations, 1, shortfalls);
    bool more = shortfall_count > 0;
    for (unsigned round = 0; more; round++) {
        uint64_t ids[REQUESTS_MAX];
        MUST_OK(fixture->store, fixture->store->batch->read_due(fixture->store, shortfalls, shortfall_count,
                                                                &fixture->arena, &fixture->view));
        MUST(fixture->view.request_count < REQUESTS_MAX);
        size_t id_count = plan_rows_to_lock(&fixture->view, REQUEST_ACQUIRED, ids);
        if (id_count)
            MUST_OK(fixture->store,
                    fixture->store->batch->lock_requests(fixture->store, ids, id_count, &fixture->view));
        more = plan_read_past_locked(&fixture->view, shortfalls, shortfall_count, round);
    }
    fixture->view.reads_end = true;
    MUST_OK(fixture->store, plan_batch(&fixture->view, operations, 1, fixture->ids, &fixture_settings, &fixture->arena,
                                       &fixture->plan));
    fixture->ids.next += fixture->plan.ids_used;
    return &fixture->plan.outcomes[0];
}

const struct outcome *batch_run(struct fixture *fixture, struct operation *operation)
{
    const struct outcome *outcome = batch_decide(fixture, operation);
    if (fixture->plan.changes.empty)
        MUST_OK(fixture->store, fixture->store->batch->rollback(fixture->store));
    else
        MUST_OK(fixture->store, fixture->store->batch->commit(fixture->store, &fixture->plan.changes));
    return outcome;
}

void semaphore_make(struct fixture *fixture, const char *name, enum semaphore_kind kind, int64_t capacity)
{
    struct operation put = {
        .kind = OP_SEMAPHORE_PUT,
        .semaphore = bytes_of(name),
        .change =
            &(struct semaphore_change){.has_capacity = true, .capacity = capacity, .has_kind = true, .kind = kind},
    };
    const struct outcome *outcome = batch_run(fixture, &put);
    MUST(outcome->status == PERMIT_OK);
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
