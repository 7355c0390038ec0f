/* SPDX-License-Identifier: MIT */
#include "engine/queue_cache.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "engine/row_cache.h"

enum { SEMAPHORE = 7, OTHER_SEMAPHORE = 8, HERE = 3, ELSEWHERE = 4, ROOM = 300 };

static struct arena arena;
static struct cached_queue queue;

static void begin(void)
{
    arena_init(&arena, 1 << 16, 1 << 24);
    queue = (struct cached_queue){0};
}

static void end(void)
{
    cached_queue_release(&queue);
    arena_release(&arena);
}

TestSuite(queue_cache, .init = begin, .fini = end);

/* One commit of the semaphore, with what was read before it. */
struct commit {
    struct semaphore before, after;
    struct semaphore_image image;
    struct request read[ROOM];
    struct request_change changes[ROOM];
    struct view view;
    struct plan plan;
};

static struct commit *commit_new(int64_t waiting_before, int64_t waiting_after)
{
    struct commit *commit = arena_alloc(&arena, sizeof *commit);
    cr_assert_not_null(commit);
    *commit = (struct commit){.before = {.id = SEMAPHORE, .kind = KIND_COUNTED, .waiting = waiting_before}};
    commit->after = commit->before;
    commit->after.waiting = waiting_after;
    commit->image = (struct semaphore_image){.semaphore = &commit->after};
    commit->view = (struct view){.semaphores = &commit->before, .semaphore_count = 1, .requests = commit->read};
    commit->plan.changes =
        (struct changes){.semaphores = &commit->image, .semaphore_count = 1, .requests = commit->changes};
    return commit;
}

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

static void store(struct commit *commit, bool goes_on)
{
    cached_queue_store(&queue, &commit->view, 0, &commit->plan, goes_on, HERE);
}

/* Enters these waiters in an empty queue. */
static void fill(struct request *const *requests, size_t count)
{
    struct commit *commit = commit_new(0, (int64_t)count);
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
    bool known = cached_queue_load(&queue, &read, HERE, &arena, ret_view, &units);
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

Test(queue_cache, waiters_are_in_the_order_of_their_places_then_ids)
{
    fill((struct request *[]){one_unit(1, 500), one_unit(2, 100), one_unit(4, 300), one_unit(3, 300)}, 4);
    has_waiters((uint64_t[]){2, 3, 4, 1}, 4);
}

Test(queue_cache, waiter_comes_back_with_its_wants)
{
    struct request requests[ROOM];
    struct view view;
    fill((struct request *[]){waiter(1, 100, (struct want){.count = 5})}, 1);
    cr_assert(load(all, requests, &view));
    cr_assert(requests[0].state == REQUEST_WAITING && requests[0].server_id == HERE && requests[0].place == 100);
    cr_assert(requests[0].want_count == 1 && requests[0].wants[0].count == 5);
    cr_assert(requests[0].wants[0].semaphore_id == SEMAPHORE && requests[0].ttl.kind == TTL_ABSENT);
}

Test(queue_cache, queue_follows_the_commits)
{
    struct request *first = one_unit(1, 100), *second = one_unit(2, 200), *third = one_unit(3, 300);
    struct request granted = *first, left = *second, moved = *third;
    fill((struct request *[]){first, second, third}, 3);
    granted.state = REQUEST_ACQUIRED;
    granted.server_id = 0;
    left.server_id = 0; /* its place is kept */
    moved.waiting_until = 999;
    struct commit *commit = commit_new(3, 2);
    commit->changes[0] = (struct request_change){.request = &granted, .before = first, .grants = true};
    commit->changes[1] = (struct request_change){.request = &left, .before = second};
    commit->changes[2] = (struct request_change){.request = &moved, .before = third};
    commit->changes[3] = (struct request_change){.request = one_unit(4, 50), .insert = true};
    commit->plan.changes.request_count = 4;
    store(commit, true);
    has_waiters((uint64_t[]){4, 3}, 2);
    cr_assert_eq(queue.waiters[1]->request.waiting_until, 999);
}

Test(queue_cache, only_the_first_that_matter_are_loaded)
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

Test(queue_cache, queue_that_was_read_whole_is_known)
{
    struct commit *commit = commit_new(2, 2);
    commit->read[0] = *one_unit(2, 200);
    commit->read[1] = *one_unit(1, 100);
    commit->read[2] = *one_unit(3, 50);
    commit->read[2].server_id = 0; /* nobody asks for it */
    commit->view.request_count = 3;
    store(commit, false);
    has_waiters((uint64_t[]){1, 2}, 2);
}

Test(queue_cache, queue_that_was_read_in_part_is_not_known)
{
    struct request requests[ROOM];
    struct view view;
    struct commit *commit = commit_new(3, 3);
    commit->read[0] = *one_unit(1, 100);
    commit->read[1] = *one_unit(2, 200);
    commit->view.request_count = 2;
    store(commit, false);
    cr_assert_not(load(all, requests, &view));
}

Test(queue_cache, change_by_another_process_makes_it_unknown)
{
    struct request requests[ROOM];
    struct view view;
    fill((struct request *[]){one_unit(1, 100)}, 1);
    store(commit_new(1, 1), true);
    cr_assert(load(all, requests, &view));
    store(commit_new(1, 1), false);
    cr_assert_not(load(all, requests, &view));
}

Test(queue_cache, other_waiters_make_it_unknown)
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
        store(commit_new(0, 0), false);
        cr_assert(load(all, requests, &view), "an empty queue is known");
    }
}

Test(queue_cache, waiters_at_an_earlier_id_of_this_server_are_not_loaded)
{
    struct queue_read read = all;
    struct request requests[ROOM];
    struct queue_view part;
    struct view view = {.requests = requests, .queues = &part};
    int64_t units;
    fill((struct request *[]){one_unit(1, 100)}, 1);
    cr_assert_not(cached_queue_load(&queue, &read, ELSEWHERE, &arena, &view, &units));
}

Test(queue_cache, too_long_queue_is_not_known_until_it_is_empty)
{
    struct request *many[ROOM];
    struct request requests[ROOM];
    struct view view;
    for (size_t i = 0; i < ROOM; i++)
        many[i] = one_unit(i + 1, (utc_us)i);
    fill(many, ROOM);
    cr_assert_not(load(all, requests, &view));
    store(commit_new(ROOM, ROOM), true);
    cr_assert_not(load(all, requests, &view));
    store(commit_new(0, 0), true);
    cr_assert(load(all, requests, &view));
    cr_assert_eq(view.request_count, 0);
}
