/* SPDX-License-Identifier: MIT */
#include "engine/row_cache.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "engine/key_cache.h"
#include "fixture.h"

static struct arena arena;

static void begin(void)
{
    arena_init(&arena, 4096, 1 << 20);
}

static void end(void)
{
    arena_release(&arena);
}

TestSuite(row_cache, .init = begin, .fini = end);

/* ---- requests ---- */

static uint32_t two_numbers[] = {3, 7};
static struct permit two_permits[] = {
    {.semaphore_id = 1, .token = 10, .count = 2, .slots = {two_numbers, 2}},
    {.semaphore_id = 2, .token = 20, .count = 5},
};

static struct request held_request(void)
{
    return (struct request){.id = 5,
                            .external_id = BYTES("key"),
                            .owner = BYTES("owner"),
                            .nonce = BYTES("nonce"),
                            .state = REQUEST_ACQUIRED,
                            .due_at = 1000,
                            .confirmed_at = NEVER,
                            .ended_at = NEVER,
                            .permits = two_permits,
                            .permit_count = 2};
}

Test(row_cache, request_comes_back_as_its_row_is_read)
{
    struct request request = held_request();
    const uint64_t chains[] = {8, 9};
    struct cached_request *cached = cached_request_new(&request, chains);
    struct request loaded;
    cr_assert_not_null(cached);
    cr_assert(cached->chains[0] == 8 && cached->chains[1] == 9);
    cr_assert(cached_request_load(cached, &arena, &loaded));
    free(cached); /* what was loaded is a copy */
    cr_assert(bytes_equal(loaded.external_id, BYTES("key")) && bytes_equal(loaded.owner, BYTES("owner")));
    cr_assert(bytes_equal(loaded.nonce, BYTES("nonce")) && loaded.principal.length == 0);
    cr_assert(loaded.permit_count == 2 && loaded.permits[1].token == 20 && loaded.permits[1].slots.count == 0);
    cr_assert(loaded.permits[0].slots.count == 2 && loaded.permits[0].slots.numbers[1] == 7);
    cr_assert(loaded.place == NEVER && loaded.waiting_since == NEVER && loaded.waiting_until == NEVER,
              "it never waited: its row has NULL");
}

Test(row_cache, request_with_labels_or_very_many_slots_is_not_cached)
{
    static uint32_t many[SLOTS_MAX_COUNT + 1000];
    struct bytes label = BYTES("A1");
    struct permit permit = {.semaphore_id = 1, .count = 1, .slots = {two_numbers, 1}, .labels = &label};
    struct request request = held_request();
    const uint64_t chain = 1;
    request.permits = &permit;
    request.permit_count = 1;
    cr_assert_null(cached_request_new(&request, &chain));
    permit.labels = NULL;
    permit.slots = (struct slots){many, ARRAY_LENGTH(many)};
    cr_assert_null(cached_request_new(&request, &chain));
}

Test(row_cache, oldest_keys_are_evicted_when_the_rows_need_too_much_memory)
{
    struct key_cache keys;
    struct request request = held_request();
    const uint64_t chains[] = {1, 2};
    const struct share share = {1, 1};
    struct cached_request *oldest = cached_request_new(&request, chains);
    key_cache_init(&keys, 100, 2 * oldest->size);
    key_cache_put(&keys, BYTES("k1"), &share, 1);
    key_cache_put(&keys, BYTES("k2"), &share, 1);
    key_cache_put(&keys, BYTES("k3"), &share, 1);
    key_cache_set_row(&keys, BYTES("k1"), oldest);
    key_cache_set_row(&keys, BYTES("k2"), cached_request_new(&request, chains));
    key_cache_set_row(&keys, BYTES("k2"), cached_request_new(&request, chains)); /* instead of the other */
    cr_assert_not_null(key_cache_find(&keys, BYTES("k1")));
    key_cache_set_row(&keys, BYTES("k3"), cached_request_new(&request, chains));
    cr_assert_null(key_cache_find(&keys, BYTES("k1")));
    cr_assert_not_null(key_cache_find(&keys, BYTES("k3"))->cached);
    key_cache_set_row(&keys, BYTES("unknown"), cached_request_new(&request, chains)); /* is freed */
    key_cache_release(&keys);
    cr_assert_eq(keys.row_bytes, 0);
}

/* ---- semaphores ---- */

enum { CAPACITY = 40 };

/* A commit of one slotted semaphore, with what was read before it. */
struct commit {
    struct semaphore before, after;
    struct free_slots free;
    struct semaphore_image image;
    struct slot_change slots[CAPACITY];
    struct view view;
    struct plan plan;
};

static void commit_init(struct commit *commit)
{
    *commit = (struct commit){0};
    commit->before = (struct semaphore){
        .id = 7, .name = BYTES("s"), .kind = KIND_SLOTTED, .capacity = CAPACITY, .first_free = 1, .version = 1};
    commit->after = commit->before;
    commit->after.version = 2;
    commit->image = (struct semaphore_image){.semaphore = &commit->after, .changed = true};
    commit->view = (struct view){.semaphores = &commit->before, .free_slots = &commit->free, .semaphore_count = 1};
    commit->plan.changes = (struct changes){.semaphores = &commit->image, .semaphore_count = 1, .slots = commit->slots};
}

static void change_slot(struct commit *commit, uint32_t number, uint64_t permit_id)
{
    commit->slots[commit->plan.changes.slot_count++] = (struct slot_change){7, number, permit_id};
}

static void store(struct cached_semaphore *cached, struct commit *commit, bool goes_on)
{
    cached_semaphore_store(cached, &commit->view, 0, &commit->plan, goes_on, 1);
    cr_assert(cached->valid);
}

/* The loaded slots must be these. */
static void has_free(const struct cached_semaphore *cached, const uint32_t *numbers, size_t count, bool complete)
{
    struct free_slots slots;
    cr_assert(cached_semaphore_load_slots(cached, (int64_t)count + complete, &arena, &slots));
    cr_assert_eq(slots.count, count);
    cr_assert_eq(slots.complete, complete);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(slots.numbers[i], numbers[i]);
}

Test(row_cache, free_slots_follow_the_commits)
{
    struct cached_semaphore *cached = calloc(1, sizeof *cached);
    struct commit commit;
    struct free_slots slots;
    uint32_t read[] = {2, 5, 9};
    commit_init(&commit);
    commit.free = (struct free_slots){.numbers = read, .count = 3}; /* there may be more after 9 */
    change_slot(&commit, 2, 100);
    change_slot(&commit, 4, 0);
    change_slot(&commit, 20, 0); /* above what was read: not known whether others are free before it */
    store(cached, &commit, false);
    has_free(cached, (uint32_t[]){4, 5, 9}, 3, false);
    cr_assert_not(cached_semaphore_load_slots(cached, 4, &arena, &slots), "a fourth is not known");
    commit_init(&commit); /* a batch that only ends requests has read no slots */
    change_slot(&commit, 3, 0);
    store(cached, &commit, true);
    has_free(cached, (uint32_t[]){3, 4, 5, 9}, 4, false);
    commit_init(&commit); /* another process has changed the semaphore, and no slots were read */
    store(cached, &commit, false);
    cr_assert_not(cached_semaphore_load_slots(cached, 1, &arena, &slots));
    cached_semaphore_free(cached);
}

Test(row_cache, labels_and_changes_of_the_settings_make_the_free_slots_unknown)
{
    struct cached_semaphore *cached = calloc(1, sizeof *cached);
    struct commit commit;
    struct free_slots slots;
    uint32_t read[] = {1, 2};
    struct bytes labels[] = {BYTES("A1"), BYTES("A2")};
    commit_init(&commit);
    commit.free = (struct free_slots){.numbers = read, .count = 2, .complete = true};
    store(cached, &commit, false);
    has_free(cached, read, 2, true);
    commit.image.settings = true;
    store(cached, &commit, true);
    cr_assert_not(cached_semaphore_load_slots(cached, 1, &arena, &slots));
    commit.image.settings = false;
    store(cached, &commit, true);
    has_free(cached, read, 2, true);
    commit.free.labels = labels;
    store(cached, &commit, true);
    cr_assert_not(cached_semaphore_load_slots(cached, 1, &arena, &slots));
    cached_semaphore_free(cached);
}

Test(row_cache, row_has_strings_of_its_own)
{
    struct cached_semaphore *cached = calloc(1, sizeof *cached);
    struct commit commit;
    struct semaphore loaded;
    char name[] = "name";
    commit_init(&commit);
    commit.after.name = (struct bytes){name, 4};
    commit.after.note = BYTES("a note");
    store(cached, &commit, false);
    name[0] = 'x';
    cr_assert(cached_semaphore_load(cached, &arena, &loaded));
    cr_assert(bytes_equal(loaded.name, BYTES("name")) && bytes_equal(loaded.note, BYTES("a note")));
    cr_assert(loaded.version == 2 && !loaded.paused_reason.data);
    cached_semaphore_free(cached);
}

/* Compares with a plain array of the slots, through random commits of this process. */
Test(row_cache, free_slots_are_those_of_the_rows_after_random_commits)
{
    bool is_free[CAPACITY + 1] = {false};
    struct cached_semaphore *cached = calloc(1, sizeof *cached);
    srand(20261123);
    for (int round = 0; round < 3000; round++) {
        struct commit commit;
        uint32_t read[CAPACITY];
        commit_init(&commit);
        size_t wanted = (size_t)(rand() % 6);
        for (uint32_t number = 1; number <= CAPACITY && commit.free.count < wanted; number++)
            if (is_free[number])
                read[commit.free.count++] = number;
        commit.free.numbers = read;
        commit.free.complete = commit.free.count < wanted;
        for (uint32_t number = 1; number <= CAPACITY; number++)
            if (rand() % 12 == 0) {
                is_free[number] = !is_free[number];
                change_slot(&commit, number, is_free[number] ? 0 : 1);
            }
        store(cached, &commit, round > 0 && rand() % 10 != 0);
        uint32_t numbers[CAPACITY];
        size_t count = 0;
        for (uint32_t number = 1; number <= CAPACITY; number++)
            if (is_free[number])
                numbers[count++] = number;
        struct free_slots slots;
        int64_t ask = rand() % 10;
        if (!cached_semaphore_load_slots(cached, ask, &arena, &slots))
            continue;
        cr_assert(slots.count == (size_t)min_i64(ask, (int64_t)count) && slots.complete == ((int64_t)count < ask));
        for (size_t i = 0; i < slots.count; i++)
            cr_assert_eq(slots.numbers[i], numbers[i]);
        arena_clear(&arena);
    }
    cached_semaphore_free(cached);
}
