/* SPDX-License-Identifier: MIT */
#include "engine/rows.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "engine/semaphore_cache.h"

enum { SEMAPHORE = 7, OTHER_SEMAPHORE = 8, HERE = 3, ELSEWHERE = 4, ROOM = 300, CAPACITY = 40 };

static struct arena arena;
static struct rows rows;
static struct semaphore_cache semaphores;
static struct semaphore_copy *copy; /* of SEMAPHORE, without its entry */

static void begin(void)
{
    arena_init(&arena, 1 << 16, 1 << 24);
    rows_init(&rows, 10000);
    semaphore_cache_init(&semaphores, 100);
    copy = NULL;
}

static void end(void)
{
    semaphore_copy_drop(&copy);
    semaphore_cache_release(&semaphores);
    rows_release(&rows);
    cr_assert_eq(rows.bytes, 0);
    arena_release(&arena);
}

TestSuite(rows, .init = begin, .fini = end);

/* One commit of one semaphore or two, with what was read before it. */
struct commit {
    struct semaphore before[2], after[2];
    struct free_slots free[2];
    struct semaphore_image images[2];
    struct slot_change slots[CAPACITY];
    struct request read[ROOM];
    struct request_change changes[ROOM];
    struct view view;
    struct plan plan;
};

static struct commit *commit_new(enum semaphore_kind kind)
{
    struct commit *commit = arena_alloc(&arena, sizeof *commit);
    cr_assert_not_null(commit);
    *commit = (struct commit){0};
    for (uint64_t i = 0; i < 2; i++) {
        commit->before[i] = (struct semaphore){
            .id = SEMAPHORE + i, .name = BYTES("s"), .kind = kind, .capacity = CAPACITY, .first_free = 1, .version = 1};
        commit->after[i] = commit->before[i];
        commit->after[i].version = 2;
        commit->images[i] = (struct semaphore_image){.semaphore = &commit->after[i], .changed = true};
    }
    commit->view = (struct view){
        .semaphores = commit->before, .free_slots = commit->free, .semaphore_count = 1, .requests = commit->read};
    commit->plan.changes = (struct changes){
        .semaphores = commit->images, .semaphore_count = 1, .slots = commit->slots, .requests = commit->changes};
    return commit;
}

static void change_slot(struct commit *commit, uint32_t number, uint64_t token)
{
    commit->slots[commit->plan.changes.slot_count++] = (struct slot_change){SEMAPHORE, number, token, 0};
}

/* Stores `copy`. goes_on: nobody has changed the semaphore since the last commit. */
static void store(struct commit *commit, bool goes_on)
{
    commit->before[0].version = copy ? copy->row.version + !goes_on : 1;
    commit->after[0].version = commit->before[0].version + 1;
    semaphore_copy_store(&copy, 0,
                         &(struct committed){.read = &commit->view, .plan = &commit->plan, .server_id = HERE});
    cr_assert_not_null(copy);
    cr_assert_eq(copy->row.version, commit->after[0].version);
}

/* ---- requests ---- */

static uint32_t two_numbers[] = {3, 7};
static struct permit two_permits[] = {
    {.semaphore_id = SEMAPHORE, .token = 10, .count = 2, .slots = {two_numbers, 2}},
    {.semaphore_id = OTHER_SEMAPHORE, .token = 20, .count = 5},
};

static struct request held_request(const char *key)
{
    return (struct request){.id = 5,
                            .external_id = {key, strlen(key)},
                            .owner = BYTES("owner"),
                            .nonce = BYTES("nonce"),
                            .state = REQUEST_ACQUIRED,
                            .due_at = 1000,
                            .confirmed_at = NEVER,
                            .ended_at = NEVER,
                            .permits = two_permits,
                            .permit_count = 2};
}

static void learn_commit(const struct commit *commit, uint64_t generation)
{
    for (size_t i = 0; i < commit->view.semaphore_count; i++)
        cr_assert_not_null(semaphore_cache_get(&semaphores, SEMAPHORE + i));
    rows_learn(&rows, &semaphores,
               &(struct committed){.read = &commit->view,
                                   .plan = &commit->plan,
                                   .copies = true,
                                   .generation = generation,
                                   .server_id = HERE,
                                   .now = 1000,
                                   .shared_pause_us = 500});
}

/* A batch on the first `count` semaphores, which have this version before it, commits this change. */
static void learn(size_t count, uint64_t version, uint64_t generation, const struct request *request)
{
    struct request image = request ? *request : (struct request){0};
    struct commit *commit = commit_new(KIND_COUNTED);
    for (size_t i = 0; i < 2; i++) {
        commit->before[i].version = version;
        commit->after[i].version = version + 1;
    }
    commit->changes[0] = (struct request_change){.request = &image, .insert = true};
    commit->view.semaphore_count = commit->plan.changes.semaphore_count = count;
    commit->plan.changes.request_count = request != NULL;
    learn_commit(commit, generation);
}

static struct semaphore_entry *entry_of(uint64_t id)
{
    struct semaphore_entry *entry = semaphore_cache_find(&semaphores, id);
    cr_assert_not_null(entry);
    return entry;
}

static bool has_row(const char *key)
{
    const struct key_entry *entry = rows_find_key(&rows, (struct bytes){key, strlen(key)});
    cr_assert_not_null(entry, "its semaphores stay known");
    cr_assert_eq(entry->count, 2);
    return entry->has_row;
}

Test(rows, request_comes_back_as_its_row_is_read)
{
    struct request request = held_request("key");
    struct request loaded;
    learn(2, 1, 0, &request);
    cr_assert(has_row("key"));
    cr_assert(request_load(&rows_find_key(&rows, BYTES("key"))->request, &arena, &loaded));
    rows_remove_key(&rows, BYTES("key")); /* what was loaded is a copy */
    cr_assert(bytes_equal(loaded.external_id, BYTES("key")) && bytes_equal(loaded.owner, BYTES("owner")));
    cr_assert(bytes_equal(loaded.nonce, BYTES("nonce")) && loaded.principal.length == 0);
    cr_assert(loaded.permit_count == 2 && loaded.permits[1].token == 20 && loaded.permits[1].slots.count == 0);
    cr_assert(loaded.permits[0].slots.count == 2 && loaded.permits[0].slots.numbers[1] == 7);
    cr_assert_null(loaded.permits[0].labels);
    cr_assert(loaded.place == NEVER && loaded.waiting_since == NEVER && loaded.waiting_until == NEVER,
              "it never waited: its row has NULL");
}

Test(rows, request_has_labels_of_its_own)
{
    char text[] = "A1";
    struct bytes labels[2] = {{text, 2}, {0}};
    struct permit permits[2] = {two_permits[0], two_permits[1]};
    struct request request = held_request("key"), loaded;
    request.permits = permits;
    permits[0].labels = labels;
    learn(2, 1, 0, &request);
    text[0] = 'x';
    labels[1] = BYTES("other");
    cr_assert(has_row("key"));
    cr_assert(request_load(&rows_find_key(&rows, BYTES("key"))->request, &arena, &loaded));
    rows_remove_key(&rows, BYTES("key"));
    cr_assert(bytes_equal(loaded.permits[0].labels[0], BYTES("A1")) && loaded.permits[0].labels[1].length == 0);
    cr_assert(loaded.permits[0].slots.numbers[1] == 7 && !loaded.permits[1].labels);
    cr_assert(bytes_equal(loaded.external_id, BYTES("key")) && bytes_equal(loaded.nonce, BYTES("nonce")));
}

Test(rows, request_with_very_many_slots_has_no_row)
{
    static uint32_t many[SLOTS_MAX_COUNT + 1000];
    struct permit permits[2] = {two_permits[0], two_permits[1]};
    struct request request = held_request("key");
    request.permits = permits;
    permits[0].slots = (struct slots){many, ARRAY_LENGTH(many)};
    learn(2, 1, 0, &request);
    cr_assert_not(has_row("key"));
}

Test(rows, request_whose_semaphores_are_not_all_copied_has_no_row)
{
    struct request request = held_request("key");
    learn(1, 1, 0, &request);
    cr_assert_not(has_row("key"));
}

Test(rows, request_that_is_not_held_or_not_claimed_has_no_entry)
{
    struct request request = held_request("key");
    learn(2, 1, 0, &request);
    request.server_id = ELSEWHERE;
    learn(2, 2, 0, &request);
    cr_assert_null(rows_find_key(&rows, BYTES("key")));
    request.server_id = 0;
    learn(2, 3, 0, &request);
    request.state = REQUEST_RELEASED;
    learn(2, 4, 0, &request);
    cr_assert_null(rows_find_key(&rows, BYTES("key")));
}

Test(rows, oldest_keys_are_evicted_when_they_need_too_much_memory)
{
    struct request request = held_request("k1");
    learn(2, 1, 0, &request);
    rows.max_bytes = 2 * rows.bytes;
    request = held_request("k2");
    learn(2, 2, 0, &request);
    request = held_request("k1"); /* now the newest */
    learn(2, 3, 0, &request);
    cr_assert(has_row("k1") && has_row("k2"));
    request = held_request("k3");
    learn(2, 4, 0, &request);
    cr_assert(has_row("k1") && has_row("k3"));
    cr_assert_null(rows_find_key(&rows, BYTES("k2")));
}

/* The semaphores of its key stay known in all of these. */
Test(rows, change_by_another_process_drops_the_rows_of_all_that_hold_the_semaphore)
{
    struct request request = held_request("k1");
    learn(2, 1, 0, &request);
    learn(1, 2, 0, NULL);
    cr_assert(has_row("k1"), "this process knows each change");
    learn(1, 7, 0, NULL);
    cr_assert_not(has_row("k1"));
    cr_assert_eq(entry_of(SEMAPHORE)->copy->row.version, 8);
    cr_assert(list_empty(&entry_of(OTHER_SEMAPHORE)->copy->held));
}

/* Else the packet of each later refusal would be proven wrong, and its batch run a second time. */
Test(rows, refusal_that_finds_another_version_drops_the_copy)
{
    struct request request = held_request("k1");
    learn(2, 1, 0, &request);
    struct commit *refusal = commit_new(KIND_COUNTED);
    refusal->plan.changes.empty = true;
    refusal->before[0].version = 2;
    learn_commit(refusal, 0);
    cr_assert_not_null(entry_of(SEMAPHORE)->copy, "it has this version");
    refusal->before[0].version = 7;
    learn_commit(refusal, 0);
    cr_assert_null(entry_of(SEMAPHORE)->copy);
    cr_assert_not(has_row("k1"));
}

Test(rows, semaphore_that_others_change_again_and_again_is_shared)
{
    learn(1, 1, 0, NULL);
    learn(1, 5, 0, NULL);
    cr_assert_eq(entry_of(SEMAPHORE)->shared_until, 0);
    learn(1, 9, 0, NULL);
    cr_assert_eq(entry_of(SEMAPHORE)->shared_until, 1500);
}

Test(rows, copies_of_an_earlier_generation_are_void)
{
    struct request request = held_request("k1");
    learn(2, 1, 0, &request);
    cr_assert_not_null(rows_find(&rows, entry_of(SEMAPHORE)));
    rows.generation++;
    cr_assert_null(rows_find(&rows, entry_of(SEMAPHORE)));
    cr_assert_not(has_row("k1"));
    learn(2, 2, 1, &request);
    cr_assert_not_null(rows_find(&rows, entry_of(SEMAPHORE)));
    cr_assert(has_row("k1"));
}

/* It may have read and written in an earlier life of the server. */
Test(rows, batch_that_began_in_an_earlier_generation_stores_no_copies)
{
    struct request request = held_request("k1");
    rows.generation = 1;
    learn(2, 1, 0, &request);
    cr_assert_null(rows_find(&rows, entry_of(SEMAPHORE)));
    cr_assert_not(has_row("k1"));
}

Test(rows, evicted_semaphore_drops_the_rows_of_its_requests)
{
    struct request request = held_request("k1");
    learn(2, 1, 0, &request);
    semaphore_cache_release(&semaphores);
    semaphore_cache_init(&semaphores, 100);
    cr_assert_not(has_row("k1"));
}

/* ---- semaphores ---- */

/* The loaded slots must be these. */
static void has_free(const uint32_t *numbers, size_t count, bool complete)
{
    struct free_slots slots;
    cr_assert(semaphore_copy_load_slots(copy, (int64_t)count + complete, &arena, &slots));
    cr_assert_eq(slots.count, count);
    cr_assert_eq(slots.complete, complete);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(slots.numbers[i], numbers[i]);
}

Test(rows, free_slots_follow_the_commits)
{
    struct free_slots slots;
    uint32_t read[] = {2, 5, 9};
    struct commit *commit = commit_new(KIND_SLOTTED);
    commit->free[0] = (struct free_slots){.numbers = read, .count = 3}; /* there may be more after 9 */
    change_slot(commit, 2, 100);
    change_slot(commit, 4, 0);
    change_slot(commit, 20, 0); /* above what was read: not known whether others are free before it */
    store(commit, false);
    has_free((uint32_t[]){4, 5, 9}, 3, false);
    cr_assert_not(semaphore_copy_load_slots(copy, 4, &arena, &slots), "a fourth is not known");
    commit = commit_new(KIND_SLOTTED); /* a batch that only ends requests has read no slots */
    change_slot(commit, 3, 0);
    store(commit, true);
    has_free((uint32_t[]){3, 4, 5, 9}, 4, false);
    commit = commit_new(KIND_SLOTTED); /* another process has changed the semaphore, and no slots were read */
    store(commit, false);
    cr_assert_not(semaphore_copy_load_slots(copy, 1, &arena, &slots));
}

Test(rows, changes_of_the_settings_make_the_free_slots_unknown)
{
    struct free_slots slots;
    uint32_t read[] = {1, 2};
    struct commit *commit = commit_new(KIND_SLOTTED);
    commit->free[0] = (struct free_slots){.numbers = read, .count = 2, .complete = true};
    store(commit, false);
    has_free(read, 2, true);
    commit->images[0].settings = true;
    store(commit, true);
    cr_assert_not(semaphore_copy_load_slots(copy, 1, &arena, &slots));
    commit->images[0].settings = false;
    store(commit, true);
    has_free(read, 2, true);
}

/* Labels are not copied, so the copy says whether there may be any. */
Test(rows, free_slots_of_a_copy_may_have_labels_if_one_that_was_read_or_freed_has)
{
    struct free_slots slots;
    uint32_t read[] = {1, 2};
    struct bytes labels[] = {BYTES("A1"), {0}};
    struct commit *commit = commit_new(KIND_SLOTTED);
    commit->free[0] = (struct free_slots){.numbers = read, .count = 2, .complete = true};
    store(commit, false);
    cr_assert(semaphore_copy_load_slots(copy, 3, &arena, &slots) && !slots.labels_unread);
    struct permit permit = {.semaphore_id = SEMAPHORE, .count = 1, .slots = {read, 1}, .labels = labels};
    struct request ended = {
        .external_id = BYTES("k"), .state = REQUEST_RELEASED, .permits = &permit, .permit_count = 1};
    commit->changes[0] = (struct request_change){.request = &ended, .before = &ended};
    commit->plan.changes.request_count = 1;
    store(commit, true);
    cr_assert(semaphore_copy_load_slots(copy, 3, &arena, &slots) && slots.labels_unread);
    commit->plan.changes.request_count = 0;
    store(commit, true);
    cr_assert(semaphore_copy_load_slots(copy, 3, &arena, &slots) && slots.labels_unread, "it stays so");
    store(commit, false);
    cr_assert(semaphore_copy_load_slots(copy, 3, &arena, &slots) && !slots.labels_unread, "read anew, without one");
    commit->free[0].labels = labels;
    store(commit, false);
    cr_assert(semaphore_copy_load_slots(copy, 3, &arena, &slots) && slots.labels_unread);
    commit->free[0].labels = NULL;
    commit->free[0].labels_unread = true;
    store(commit, false);
    cr_assert(semaphore_copy_load_slots(copy, 3, &arena, &slots) && slots.labels_unread);
}

Test(rows, row_has_strings_of_its_own)
{
    struct semaphore loaded;
    char name[] = "name";
    struct commit *commit = commit_new(KIND_SLOTTED);
    commit->after[0].name = (struct bytes){name, 4};
    commit->after[0].note = BYTES("a note");
    commit->after[0].feed_url = BYTES("http://a");
    store(commit, false);
    name[0] = 'x';
    cr_assert(semaphore_copy_load(copy, &arena, &loaded));
    cr_assert(bytes_equal(loaded.name, BYTES("name")) && bytes_equal(loaded.note, BYTES("a note")));
    cr_assert(bytes_equal(loaded.feed_url, BYTES("http://a")));
    cr_assert(loaded.version == 2 && !loaded.paused_reason.data);
}

/* Compares with a plain array of the slots, through random commits of this process. */
Test(rows, free_slots_are_those_of_the_rows_after_random_commits)
{
    bool is_free[CAPACITY + 1] = {false};
    srand(20261123);
    for (int round = 0; round < 3000; round++) {
        uint32_t read[CAPACITY];
        struct commit *commit = commit_new(KIND_SLOTTED);
        size_t wanted = (size_t)(rand() % 6);
        for (uint32_t number = 1; number <= CAPACITY && commit->free[0].count < wanted; number++)
            if (is_free[number])
                read[commit->free[0].count++] = number;
        commit->free[0].numbers = read;
        commit->free[0].complete = commit->free[0].count < wanted;
        for (uint32_t number = 1; number <= CAPACITY; number++)
            if (rand() % 12 == 0) {
                is_free[number] = !is_free[number];
                change_slot(commit, number, is_free[number] ? 0 : 1);
            }
        store(commit, round > 0 && rand() % 10 != 0);
        uint32_t numbers[CAPACITY];
        size_t count = 0;
        for (uint32_t number = 1; number <= CAPACITY; number++)
            if (is_free[number])
                numbers[count++] = number;
        struct free_slots slots;
        int64_t ask = rand() % 10;
        if (!semaphore_copy_load_slots(copy, ask, &arena, &slots))
            continue;
        cr_assert(slots.count == (size_t)min_i64(ask, (int64_t)count) && slots.complete == ((int64_t)count < ask));
        for (size_t i = 0; i < slots.count; i++)
            cr_assert_eq(slots.numbers[i], numbers[i]);
        arena_clear(&arena);
    }
}

/* ---- queues ---- */

static struct request *waiter(uint64_t id, utc_us place, struct want want)
{
    struct request *request = arena_alloc(&arena, sizeof *request);
    struct want *wants = arena_alloc(&arena, sizeof *wants);
    cr_assert(request && wants);
    want.semaphore_id = want.semaphore_id ? want.semaphore_id : SEMAPHORE;
    *wants = want;
    *request = (struct request){.id = id,
                                .external_id = BYTES("key"),
                                .state = REQUEST_WAITING,
                                .server_id = HERE,
                                .place = place,
                                .waiting_since = place,
                                .wants = wants,
                                .want_count = 1};
    request->wanted = wants_encode((struct ttl){.kind = TTL_ABSENT}, wants, 1, &arena);
    cr_assert_not_null(request->wanted.data);
    return request;
}

static struct request *one_unit(uint64_t id, utc_us place)
{
    return waiter(id, place, (struct want){.count = 1});
}

static void enters(struct commit *commit, struct request *request)
{
    commit->changes[commit->plan.changes.request_count++] = (struct request_change){.request = request, .insert = true};
}

static struct commit *commit_of_queue(int64_t waiting_before, int64_t waiting_after)
{
    struct commit *commit = commit_new(KIND_COUNTED);
    commit->before[0].waiting = waiting_before;
    commit->after[0].waiting = waiting_after;
    return commit;
}

/* Enters these waiters in an empty queue. */
static void fill(struct request *const *requests, size_t count)
{
    struct commit *commit = commit_of_queue(0, (int64_t)count);
    for (size_t i = 0; i < count; i++)
        enters(commit, requests[i]);
    store(commit, false);
}

/* Loads up to `few` waiters and the one beyond; returns whether the queue is known. */
static bool load(struct queue_read read, struct request *ret_requests, struct view *ret_view)
{
    int64_t units;
    *ret_view = (struct view){.requests = ret_requests, .queues = arena_array(&arena, 1, sizeof *ret_view->queues)};
    cr_assert_not_null(ret_view->queues);
    ret_view->queues[0] = (struct queue_view){0};
    bool known = semaphore_copy_load_queue(copy, &read, HERE, &arena, ret_view, &units);
    int64_t sum = 0;
    for (size_t i = 0; i < ret_view->request_count; i++)
        sum += ret_requests[i].wants[0].count;
    cr_assert_eq(units, sum);
    return known;
}

static const struct queue_read all = {.free = 1000, .limit = ROOM - 1};

static void has_waiters(const uint64_t *ids, size_t count)
{
    struct request requests[ROOM];
    struct view view;
    cr_assert(load(all, requests, &view));
    cr_assert_eq(view.request_count, count);
    cr_assert_eq(view.queues[0].beyond, 0);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(requests[i].id, ids[i]);
}

Test(rows, waiters_are_in_the_order_of_their_places_then_ids)
{
    fill((struct request *[]){one_unit(1, 500), one_unit(2, 100), one_unit(4, 300), one_unit(3, 300)}, 4);
    has_waiters((uint64_t[]){2, 3, 4, 1}, 4);
}

Test(rows, waiter_comes_back_with_its_wants)
{
    struct request requests[ROOM];
    struct view view;
    fill((struct request *[]){waiter(1, 100, (struct want){.count = 5})}, 1);
    cr_assert(load(all, requests, &view));
    cr_assert(requests[0].state == REQUEST_WAITING && requests[0].server_id == HERE && requests[0].place == 100);
    cr_assert(requests[0].want_count == 1 && requests[0].wants[0].count == 5);
    cr_assert(requests[0].wants[0].semaphore_id == SEMAPHORE && requests[0].ttl.kind == TTL_ABSENT);
}

Test(rows, queue_follows_the_commits)
{
    struct request *first = one_unit(1, 100), *second = one_unit(2, 200), *third = one_unit(3, 300);
    struct request granted = *first, left = *second, moved = *third;
    fill((struct request *[]){first, second, third}, 3);
    granted.state = REQUEST_ACQUIRED;
    granted.server_id = 0;
    left.server_id = 0; /* its place is kept */
    moved.waiting_until = 999;
    struct commit *commit = commit_of_queue(3, 2);
    commit->changes[0] = (struct request_change){.request = &granted, .before = first, .grants = true};
    commit->changes[1] = (struct request_change){.request = &left, .before = second};
    commit->changes[2] = (struct request_change){.request = &moved, .before = third};
    commit->changes[3] = (struct request_change){.request = one_unit(4, 50), .insert = true};
    commit->plan.changes.request_count = 4;
    store(commit, true);
    has_waiters((uint64_t[]){4, 3}, 2);
    cr_assert_eq(copy->waiters[1]->waiting_until, 999);
}

Test(rows, only_the_first_that_matter_are_loaded)
{
    struct request requests[ROOM];
    struct view view;
    fill((struct request *[]){one_unit(1, 100), waiter(2, 200, (struct want){.count = 9}), one_unit(3, 300),
                              one_unit(4, 400), one_unit(5, 500)},
         5);
    cr_assert(load((struct queue_read){.free = 2, .limit = 2}, requests, &view));
    cr_assert(view.request_count == 3 && requests[1].id == 3 && requests[2].id == 4, "nine are too many");
    cr_assert(view.queues[0].beyond == 4 && view.queues[0].beyond_place == 400);
    cr_assert(load((struct queue_read){.free = 2, .limit = 2, .fifo = true}, requests, &view));
    cr_assert(view.request_count == 3 && requests[1].id == 2 && view.queues[0].beyond == 3, "it blocks the others");
    cr_assert(load((struct queue_read){.free = 2, .limit = 2, .aged = 200}, requests, &view));
    cr_assert(view.request_count == 3 && requests[1].id == 2 && view.queues[0].beyond == 3, "it has waited for long");
    cr_assert(load((struct queue_read){.free = 2, .limit = 4}, requests, &view));
    cr_assert(view.request_count == 4 && view.queues[0].beyond == 0);
}

Test(rows, queue_that_was_read_whole_is_known)
{
    struct commit *commit = commit_of_queue(2, 2);
    commit->read[0] = *one_unit(2, 200);
    commit->read[1] = *one_unit(1, 100);
    commit->read[2] = *one_unit(3, 50);
    commit->read[2].server_id = 0; /* nobody asks for it */
    commit->view.request_count = 3;
    store(commit, false);
    has_waiters((uint64_t[]){1, 2}, 2);
}

Test(rows, queue_that_was_read_in_part_is_not_known)
{
    struct request requests[ROOM];
    struct view view;
    struct commit *commit = commit_of_queue(3, 3);
    commit->read[0] = *one_unit(1, 100);
    commit->read[1] = *one_unit(2, 200);
    commit->view.request_count = 2;
    store(commit, false);
    cr_assert_not(load(all, requests, &view));
}

Test(rows, change_by_another_process_makes_it_unknown)
{
    struct request requests[ROOM];
    struct view view;
    fill((struct request *[]){one_unit(1, 100)}, 1);
    store(commit_of_queue(1, 1), true);
    cr_assert(load(all, requests, &view));
    store(commit_of_queue(1, 1), false);
    cr_assert_not(load(all, requests, &view));
}

Test(rows, other_waiters_make_it_unknown)
{
    struct slot_name name = {.number = 3};
    struct request requests[ROOM];
    struct view view;
    struct request *elsewhere = one_unit(1, 100), *two_semaphores = one_unit(1, 100);
    struct want wants[] = {{.semaphore_id = SEMAPHORE, .count = 1}, {.semaphore_id = OTHER_SEMAPHORE, .count = 1}};
    elsewhere->server_id = ELSEWHERE;
    two_semaphores->wants = wants;
    two_semaphores->want_count = 2;
    struct request *const cases[] = {
        elsewhere,
        two_semaphores,
        waiter(1, 100, (struct want){.count = 2, .adjacent = true}),
        waiter(1, 100, (struct want){.count = 1, .choice = CHOOSE_NAMED, .named = &name, .named_count = 1}),
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        fill(&cases[i], 1);
        cr_assert_not(load(all, requests, &view), "case %zu", i);
        store(commit_of_queue(0, 0), false);
        cr_assert(load(all, requests, &view), "an empty queue is known");
    }
}

Test(rows, waiters_at_an_earlier_id_of_this_server_are_not_loaded)
{
    struct queue_read read = all;
    struct request requests[ROOM];
    struct queue_view part;
    struct view view = {.requests = requests, .queues = &part};
    int64_t units;
    fill((struct request *[]){one_unit(1, 100)}, 1);
    cr_assert_not(semaphore_copy_load_queue(copy, &read, ELSEWHERE, &arena, &view, &units));
}

Test(rows, too_long_queue_is_not_known_until_it_is_empty)
{
    struct request *many[ROOM];
    struct request requests[ROOM];
    struct view view;
    for (size_t i = 0; i < ROOM; i++)
        many[i] = one_unit(i + 1, (utc_us)i);
    fill(many, ROOM);
    cr_assert_not(load(all, requests, &view));
    store(commit_of_queue(ROOM, ROOM), true);
    cr_assert_not(load(all, requests, &view));
    store(commit_of_queue(0, 0), true);
    cr_assert(load(all, requests, &view));
    cr_assert_eq(view.request_count, 0);
}
