/* SPDX-License-Identifier: MIT */
#include "contract.h"

#include <stdio.h>

#include "store/audit.h"
#include "store/owners.h"
#include "store/query.h"
#include "store/retention_batch.h"
#include "store/servers.h"
#include "store/templates.h"

#define KEY            BYTES("k")
/* How long after its place a waiting request waits: its priority is 3. */
#define AFTER_PLACE_US (90LL * US_PER_SECOND)

/* The row of a semaphore, read by the store. */
static struct semaphore semaphore_named(struct fixture *fixture, struct bytes name)
{
    struct resolve_name resolved = {.name = name};
    struct resolve resolve = {.names = &resolved, .name_count = 1};
    struct semaphore_page page;
    MUST_OK(fixture->store, fixture->store->batch->resolve(fixture->store, &resolve, &fixture->arena));
    MUST(resolved.ret_id != 0);
    MUST_OK(fixture->store,
            fixture->store->queries->semaphores_of(fixture->store, &resolved.ret_id, 1, &fixture->arena, &page));
    MUST(page.count == 1 && page.rows[0].id == resolved.ret_id);
    return page.rows[0];
}

/* The lease clock. */
static utc_us lease_now(struct fixture *fixture)
{
    struct query_time time;
    MUST_OK(fixture->store, fixture->store->queries->clock(fixture->store, &time));
    return lease_time(&time.clock, time.now);
}

static void is_used(struct fixture *fixture, int64_t alpha, int64_t beta)
{
    MUST(semaphore_named(fixture, BYTES("alpha")).in_use == alpha);
    MUST(semaphore_named(fixture, BYTES("beta")).in_use == beta);
}

static struct operation acquire_both(struct want wants[2])
{
    wants[0] = (struct want){.semaphore = BYTES("alpha"), .count = 2};
    wants[1] = (struct want){.semaphore = BYTES("beta"), .count = 4};
    return acquire_of("k", wants, 2);
}

static void grant_and_release_are_seen_by_another_store(struct fixture *one, struct fixture *two)
{
    struct want wants[2];
    struct operation acquire = acquire_both(wants);
    struct operation release = {.kind = OP_RELEASE, .external_id = KEY};
    const struct outcome *outcome = batch_run(one, &acquire);
    MUST(outcome->status == PERMIT_OK && outcome->created);
    is_used(two, 2, 4);
    outcome = batch_run(two, &release);
    MUST(outcome->status == PERMIT_OK && !outcome->already_released);
    is_used(one, 0, 0);
    MUST(batch_run(one, &release)->already_released);
}

static void replay_reads_the_grant(struct fixture *one, struct fixture *two)
{
    struct want wants[2];
    struct operation acquire = acquire_both(wants);
    acquire.nonce = BYTES("mine");
    MUST(batch_run(one, &acquire)->status == PERMIT_OK);
    acquire.nonce = BYTES("another");
    const struct outcome *outcome = batch_run(two, &acquire);
    MUST(outcome->status == PERMIT_OK && outcome->replayed);
    const struct request *request = outcome->request;
    MUST(request->permit_count == 2 && request->permits[0].count + request->permits[1].count == 6);
    MUST(request->permits[0].slots.count + request->permits[1].slots.count == 2);
    MUST(request->ended_at == NEVER && bytes_equal(request->nonce, BYTES("mine")));
    is_used(one, 2, 4);
}

static void lock_reads_what_another_store_committed(struct fixture *one, struct fixture *two)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation acquire = acquire_of("k", beta, 1);
    uint64_t version = semaphore_named(two, BYTES("beta")).version;
    MUST(batch_run(one, &acquire)->status == PERMIT_OK);
    struct lock_set set = lock_set_of(two, &acquire);
    MUST_OK(two->store, two->store->batch->lock(two->store, &set, &two->arena, &two->view));
    MUST(two->view.semaphore_count == 1 && two->view.semaphores[0].version > version);
    MUST(two->view.semaphores[0].in_use == 1 && two->view.semaphores[0].next_token == 2);
    MUST(two->view.request_count == 1 && bytes_equal(two->view.requests[0].external_id, KEY));
    MUST(two->view.requests[0].state == REQUEST_ACQUIRED);
    MUST_OK(two->store, two->store->batch->rollback(two->store));
}

/* The lock is held from batch->await on, and what another store committed before it is read. */
static void lock_goes_on_in_the_transaction_that_awaited_it(struct fixture *one, struct fixture *two)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation acquire = acquire_of("k", beta, 1);
    struct lock_set set = lock_set_of(one, &acquire);
    struct operation other = acquire_of("other", beta, 1);
    MUST(batch_run(two, &other)->status == PERMIT_OK);
    MUST_OK(one->store, one->store->batch->await(one->store, set.semaphore_ids[0]));
    struct lock_set other_set = lock_set_of(two, &other);
    MUST(two->store->batch->lock(two->store, &other_set, &two->arena, &two->view) == PERMIT_LOCK_TIMEOUT);
    MUST_OK(two->store, two->store->batch->rollback(two->store));
    set.lock_held = true;
    MUST_OK(one->store, one->store->batch->lock(one->store, &set, &one->arena, &one->view));
    fixture_judge(&one->view.clock, one->view.now);
    MUST(one->view.semaphore_count == 1 && one->view.semaphores[0].in_use == 1);
    const struct operation *operations[] = {&acquire};
    MUST_OK(one->store, plan_batch(&one->view, operations, 1, one->ids, &fixture_settings, &one->arena, &one->plan));
    one->ids.next += one->plan.ids_used;
    MUST_OK(one->store, one->store->batch->commit(one->store, &one->plan.changes));
    MUST(semaphore_named(two, BYTES("beta")).in_use == 2);
}

static void rollback_writes_nothing(struct fixture *one, struct fixture *two)
{
    struct want wants[2];
    struct operation acquire = acquire_both(wants);
    MUST(batch_decide(one, &acquire)->status == PERMIT_OK && !one->plan.changes.empty);
    MUST_OK(one->store, one->store->batch->rollback(one->store));
    is_used(two, 0, 0);
    MUST(batch_run(two, &acquire)->created);
}

static void release_of_an_unknown_key_leaves_a_tombstone(struct fixture *one, struct fixture *two)
{
    struct want wants[2];
    struct operation acquire = acquire_both(wants);
    struct operation release = {.kind = OP_RELEASE, .external_id = KEY};
    MUST(batch_run(one, &release)->status == PERMIT_OK);
    const struct outcome *outcome = batch_run(two, &acquire);
    MUST(outcome->status == PERMIT_ENDED && outcome->request->end_reason == END_NEVER_HELD);
    is_used(one, 0, 0);
}

/* No semaphore's lock separates two releases of a key that never held anything. */
/* No semaphore separates them. */
static void replay_of_a_tombstone_does_not_wait_for_another(struct fixture *one, struct fixture *two)
{
    struct operation release = {.kind = OP_RELEASE, .external_id = KEY};
    MUST(batch_run(one, &release)->status == PERMIT_OK);
    MUST(batch_decide(one, &release)->already_released);
    MUST(batch_run(two, &release)->status == PERMIT_IN_TRANSACTION);
    MUST_OK(one->store, one->store->batch->commit(one->store, &one->plan.changes));
    MUST(batch_run(two, &release)->already_released);
}

static void second_new_request_with_one_key_conflicts(struct fixture *one, struct fixture *two)
{
    struct want alpha[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation first = acquire_of("k", alpha, 1);
    struct operation second = acquire_of("k", beta, 1);
    MUST(batch_decide(one, &first)->status == PERMIT_OK);
    MUST(batch_decide(two, &second)->status == PERMIT_OK);
    MUST_OK(one->store, one->store->batch->commit(one->store, &one->plan.changes));
    MUST(two->store->batch->commit(two->store, &two->plan.changes) == PERMIT_CONFLICT);
    MUST_OK(two->store, two->store->batch->rollback(two->store));
    is_used(one, 1, 0);
}

static void batch_does_not_wait_for_other_semaphores(struct fixture *one, struct fixture *two)
{
    struct want alpha[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation first = acquire_of("a", alpha, 1);
    struct operation second = acquire_of("b", beta, 1);
    (void)batch_decide(one, &first); /* locks alpha */
    MUST(batch_run(two, &second)->status == PERMIT_OK);
    MUST_OK(one->store, one->store->batch->rollback(one->store));
    is_used(two, 0, 1);
}

void lock_as_stranger(struct fixture *fixture, const char *key)
{
    struct want want = {.semaphore = BYTES("alpha"), .count = 1};
    struct operation acquire = acquire_of(key, &want, 1);
    struct lock_set set = lock_set_of(fixture, &acquire);
    MUST_OK(fixture->store, fixture->store->batch->lock(fixture->store, &set, &fixture->arena, &fixture->view));
    MUST(fixture->view.request_count == 1 && fixture->view.requests[0].lock == ROW_LOCKED);
}

/* P23: the batch does not wait, because it holds the semaphore. */
static void request_that_another_session_has_locked_is_not_expired(struct fixture *one, struct fixture *two)
{
    struct want want = {.semaphore = BYTES("beta"), .count = 4};
    struct operation acquire = acquire_of("k", &want, 1);
    struct operation expire = {.kind = OP_EXPIRE, .external_id = BYTES("k"), .expire_as = END_OWNER_DEAD};
    MUST(batch_run(one, &acquire)->created);
    lock_as_stranger(two, "k");
    MUST(batch_run(one, &expire)->status == PERMIT_IN_TRANSACTION);
    is_used(one, 0, 4);
    MUST_OK(two->store, two->store->batch->rollback(two->store));
    MUST(batch_run(one, &expire)->status == PERMIT_OK);
    is_used(one, 0, 0);
}

/* ---- errands ---- */

static size_t errands_after(struct fixture *fixture, struct errand_page *page)
{
    arena_clear(&fixture->arena);
    page->ret_rows = NULL;
    page->ret_count = 0;
    MUST_OK(fixture->store, fixture->store->queries->errands(fixture->store, page, &fixture->arena));
    return page->ret_count;
}

static void acquire_three(struct fixture *fixture)
{
    struct want beta = {.semaphore = BYTES("beta"), .count = 1};
    for (size_t i = 0; i < 3; i++) {
        struct operation acquire = acquire_of((const char *[]){"a", "b", "c"}[i], &beta, 1);
        MUST(batch_run(fixture, &acquire)->created);
    }
}

static void errands_are_paged_until_they_are_settled(struct fixture *one, struct fixture *two)
{
    struct errand_page page = {.limit = 2};
    bool seen[3] = {false};
    acquire_three(one);
    MUST(errands_after(two, &page) == 0);
    for (size_t i = 0; i < 3; i++)
        mark_as_shop((const char *[]){"a", "b", "c"}[i], i == 0 ? ERRAND_CONFIRM : ERRAND_RELEASE);
    for (size_t pages = 0; errands_after(two, &page) > 0; pages++) {
        MUST(pages < 3 && page.ret_count <= 2 && page.ret_expected);
        for (size_t i = 0; i < page.ret_count; i++) {
            size_t key = (size_t)(page.ret_rows[i].external_id.data[0] - 'a');
            MUST(key < 3 && !seen[key]);
            seen[key] = true;
        }
        page.after = page.ret_rows[page.ret_count - 1].position;
    }
    MUST(seen[0] && seen[1] && seen[2]);
    is_used(one, 0, 3);
    for (size_t i = 0; i < 3; i++) {
        struct operation settle = {.kind = OP_SETTLE, .external_id = bytes_of((const char *[]){"a", "b", "c"}[i])};
        MUST(batch_run(one, &settle)->status == PERMIT_OK);
    }
    page.after = (struct errand_position){0};
    MUST(errands_after(two, &page) == 0);
    is_used(one, 0, 1);
    MUST(semaphore_named(one, BYTES("beta")).confirmed == 1);
}

/* Whichever operation comes first. Afterwards the request is as HTTP would have left it. */
static void errand_is_settled_before_an_operation_on_its_key(struct fixture *one, struct fixture *two)
{
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("a")};
    struct operation renew = {.kind = OP_RENEW, .external_id = BYTES("b")};
    struct operation confirm = {.kind = OP_CONFIRM, .external_id = BYTES("c")};
    struct errand_page page = {.limit = 9};
    acquire_three(one);
    mark_as_shop("a", ERRAND_CONFIRM);
    mark_as_shop("b", ERRAND_RELEASE);
    mark_as_shop("c", ERRAND_CONFIRM | ERRAND_RELEASE);
    MUST(batch_run(one, &release)->status == PERMIT_CONFIRMED);
    MUST(batch_run(two, &renew)->status == PERMIT_ENDED);
    const struct outcome *outcome = batch_run(two, &confirm);
    MUST(outcome->status == PERMIT_ENDED && outcome->request->end_reason == END_RELEASED);
    MUST(errands_after(two, &page) == 0);
    is_used(two, 0, 1);
}

/* Its version is the copied one, since a procedure raises none. */
static void plan_from_before_an_errand_is_refused(struct fixture *one, struct fixture *two)
{
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("a")};
    acquire_three(one);
    MUST(batch_decide(one, &release)->status == PERMIT_OK);
    const struct assumed assumed = {.epoch = one->view.clock.epoch,
                                    .now = lease_time(&one->view.clock, one->view.now),
                                    .slack_us = 3600LL * US_PER_SECOND};
    MUST_OK(one->store, one->store->batch->rollback(one->store));
    mark_as_shop("a", ERRAND_CONFIRM);
    enum mismatch mismatch;
    MUST(one->store->batch->commit_if_unchanged(one->store, &one->plan.changes, &assumed, &mismatch) ==
         PERMIT_CONFLICT);
    MUST(mismatch == MISMATCH_GUARD);
    MUST_OK(one->store, one->store->batch->rollback(one->store));
    MUST(batch_run(two, &release)->status == PERMIT_CONFIRMED);
    is_used(two, 0, 3);
}

static void several_keys_are_confirmed_together(struct fixture *one, struct fixture *two)
{
    const struct bytes paid[] = {BYTES("c"), BYTES("k"), BYTES("a")}, unknown[] = {BYTES("b"), BYTES("nobody")};
    struct operation confirm = {.kind = OP_CONFIRM, .external_id = paid[0], .keys = paid, .key_count = 3};
    struct operation of_unknown = {.kind = OP_CONFIRM, .external_id = unknown[0], .keys = unknown, .key_count = 2};
    struct want wants[2];
    struct operation acquire = acquire_both(wants);
    acquire.wants[1].count = 1;
    MUST(batch_run(one, &acquire)->created);
    acquire_three(one);
    const struct outcome *outcome = batch_run(two, &of_unknown);
    MUST(outcome->status == PERMIT_UNKNOWN_REQUEST && bytes_equal(outcome->failed, BYTES("nobody")));
    MUST(semaphore_named(one, BYTES("beta")).confirmed == 0);
    mark_as_shop("b", ERRAND_RELEASE);
    mark_as_shop("k", ERRAND_CONFIRM);
    outcome = batch_run(one, &confirm);
    MUST(outcome->status == PERMIT_OK && outcome->confirmed_at && outcome->confirmed_at[2] != NEVER);
    MUST(semaphore_named(two, BYTES("alpha")).confirmed == 2 && semaphore_named(two, BYTES("beta")).confirmed == 3);
    utc_us confirmed_at = outcome->confirmed_at[2];
    outcome = batch_run(two, &confirm);
    MUST(outcome->status == PERMIT_OK && outcome->confirmed_at[2] == confirmed_at);
    const struct bytes ended[] = {BYTES("a"), BYTES("b")};
    confirm.external_id = ended[0];
    confirm.keys = ended;
    confirm.key_count = 2;
    outcome = batch_run(one, &confirm);
    MUST(outcome->status == PERMIT_ENDED && bytes_equal(outcome->failed, BYTES("b")));
    MUST(outcome->request->end_reason == END_RELEASED);
    is_used(two, 2, 3);
}

/* ---- plans that are wrong ---- */

/* The store refuses the plan of `one` as it is, and leaves nothing of it: `two` decides the operation. */
static void is_refused(struct fixture *one, struct fixture *two, struct operation *operation)
{
    struct semaphore alpha = semaphore_named(two, BYTES("alpha")), beta = semaphore_named(two, BYTES("beta"));
    MUST(one->store->batch->commit(one->store, &one->plan.changes) == PERMIT_INTERNAL);
    MUST(one->store->was_stopped && *one->store->message != '\0');
    MUST_OK(one->store, one->store->batch->rollback(one->store));
    is_used(two, alpha.in_use, beta.in_use);
    MUST(semaphore_named(two, BYTES("alpha")).version == alpha.version);
    MUST(semaphore_named(two, BYTES("beta")).version == beta.version);
    MUST(batch_run(two, operation)->status == PERMIT_OK);
}

static void held_slot_is_not_sold_again(struct fixture *one, struct fixture *two)
{
    struct want alpha = {.semaphore = BYTES("alpha"), .count = 1};
    struct operation first = acquire_of("first", &alpha, 1), second = acquire_of("second", &alpha, 1);
    MUST(batch_run(one, &first)->request->permits[0].slots.numbers[0] == 1);
    MUST(batch_decide(one, &second)->status == PERMIT_OK && one->plan.changes.slot_count == 1);
    one->plan.changes.slots[0].number = one->plan.changes.requests[0].request->permits[0].slots.numbers[0] = 1;
    is_refused(one, two, &second);
    const struct outcome *outcome = batch_run(two, &first);
    MUST(outcome->replayed && outcome->request->permits[0].slots.numbers[0] == 1);
    outcome = batch_run(two, &second);
    MUST(outcome->replayed && outcome->request->permits[0].slots.numbers[0] == 2);
    is_used(one, 2, 0);
}

static void free_slot_is_not_sold_twice_in_one_batch(struct fixture *one, struct fixture *two)
{
    struct want alpha = {.semaphore = BYTES("alpha"), .count = 2};
    struct operation acquire = acquire_of("k", &alpha, 1);
    MUST(batch_decide(one, &acquire)->status == PERMIT_OK && one->plan.changes.slot_count == 2);
    one->plan.changes.slots[1].number = 1;
    is_refused(one, two, &acquire);
}

/* The batch ends another request. */
static void slot_of_a_hold_that_goes_on_is_not_freed(struct fixture *one, struct fixture *two)
{
    struct want alpha = {.semaphore = BYTES("alpha"), .count = 1};
    struct operation first = acquire_of("first", &alpha, 1), second = acquire_of("second", &alpha, 1);
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("first")};
    MUST(batch_run(one, &first)->status == PERMIT_OK && batch_run(one, &second)->status == PERMIT_OK);
    MUST(batch_decide(one, &release)->status == PERMIT_OK && one->plan.changes.slot_count == 1);
    one->plan.changes.slots[0].number = 2;
    is_refused(one, two, &release);
    is_used(one, 1, 0);
}

/* The counts of one semaphore, and of two in one statement. */
static void units_above_the_capacity_are_not_sold(struct fixture *one, struct fixture *two)
{
    for (size_t count = 1; count <= 2; count++) {
        struct want wants[] = {{.semaphore = BYTES("alpha"), .count = 1}, {.semaphore = BYTES("beta"), .count = 4}};
        struct operation acquire = acquire_of(count == 1 ? "one" : "two", wants + 2 - count, count);
        MUST(batch_decide(one, &acquire)->status == PERMIT_OK);
        for (size_t i = 0; i < one->plan.changes.semaphore_count; i++)
            if (bytes_equal(one->plan.changes.semaphores[i].semaphore->name, BYTES("beta")))
                one->plan.changes.semaphores[i].semaphore->in_use = 11;
        is_refused(one, two, &acquire);
    }
    is_used(one, 1, 8);
}

/* A smaller capacity throws nobody out, and what is above it may be renewed, and fall. A larger one may be used at once. */
static void units_above_a_smaller_capacity_stay(struct fixture *one, struct fixture *two)
{
    struct want beta = {.semaphore = BYTES("beta"), .count = 4};
    struct operation first = acquire_of("first", &beta, 1), second = acquire_of("second", &beta, 1);
    struct operation renew = {.kind = OP_RENEW, .external_id = BYTES("first")};
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("second")};
    MUST(batch_run(one, &first)->status == PERMIT_OK && batch_run(one, &second)->status == PERMIT_OK);
    semaphore_make(two, "beta", KIND_COUNTED, 3);
    MUST(batch_run(one, &renew)->status == PERMIT_OK);
    MUST(batch_run(one, &release)->status == PERMIT_OK);
    is_used(two, 0, 4);
    semaphore_make(two, "beta", KIND_COUNTED, 8);
    MUST(batch_run(one, &(struct operation){.kind = OP_RELEASE, .external_id = BYTES("first")})->status == PERMIT_OK);
    beta.count = 8;
    struct operation all = acquire_of("all", &beta, 1);
    MUST(batch_run(one, &all)->status == PERMIT_OK);
    is_used(two, 0, 8);
}

static void ids_are_reserved_once(struct fixture *one, struct fixture *two)
{
    struct id_range a, b, c;
    uint64_t epoch;
    MUST_OK(one->store, one->store->batch->reserve_ids(one->store, 10000, &a, &epoch));
    MUST_OK(two->store, two->store->batch->reserve_ids(two->store, 10000, &b, &epoch));
    MUST_OK(one->store, one->store->batch->reserve_ids(one->store, 10000, &c, &epoch));
    MUST(a.end - a.next == 10000 && b.next >= a.end && c.next >= b.end);
}

static void floor_is_the_smallest_live_token(struct fixture *one, struct fixture *two)
{
    enum { UNKNOWN = 999999 };
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation first = acquire_of("a", beta, 1), second = acquire_of("b", beta, 1);
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("a")};
    uint64_t floors[2];
    const uint64_t token = batch_run(one, &first)->request->permits[0].token;
    MUST(batch_run(one, &second)->request->permits[0].token > token);
    const uint64_t ids[] = {semaphore_named(one, BYTES("beta")).id, UNKNOWN};
    MUST_OK(two->store, two->store->clock->floors(two->store, ids, 2, floors));
    MUST(floors[0] == token && floors[1] == 0);
    MUST(batch_run(one, &release)->status == PERMIT_OK);
    MUST_OK(two->store, two->store->clock->floors(two->store, ids, 1, floors));
    MUST(floors[0] > token);
}

static void held_requests_are_paged_by_deadline(struct fixture *one, struct fixture *two)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation late = acquire_of("late", beta, 1), soon = acquire_of("soon", beta, 1);
    late.ttl = (struct ttl){.kind = TTL_DURATION, .ms = 60000};
    soon.ttl = (struct ttl){.kind = TTL_DURATION, .ms = 30000};
    MUST(batch_run(one, &late)->status == PERMIT_OK && batch_run(one, &soon)->status == PERMIT_OK);
    struct due_page page = {.limit = 1};
    MUST_OK(two->store, two->store->queries->due(two->store, &page, &two->arena));
    MUST(page.ret_count == 1 && bytes_equal(page.ret_requests[0].external_id, BYTES("soon")));
    MUST(page.ret_requests[0].due_at > lease_time(&page.ret_time.clock, page.ret_time.now));
    MUST(page.ret_more);
    page.after = page.ret_end;
    MUST_OK(two->store, two->store->queries->due(two->store, &page, &two->arena));
    MUST(page.ret_count == 1 && bytes_equal(page.ret_requests[0].external_id, BYTES("late")));
}

static void holders_are_listed_by_token(struct fixture *one, struct fixture *two)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation first = acquire_of("a", beta, 1), second = acquire_of("b", beta, 1);
    struct page page = {.arena = &two->arena, .limit = 10};
    MUST(batch_run(one, &first)->status == PERMIT_OK && batch_run(one, &second)->status == PERMIT_OK);
    const struct store_queries *queries = two->store->queries;
    MUST_OK(two->store, queries->holders(two->store, BYTES("beta"), &page));
    MUST(page.count == 2 && !page.more && page.holders[0].permit.token < page.holders[1].permit.token);
    MUST(bytes_equal(page.holders[0].request.external_id, BYTES("a")));
    page = (struct page){.arena = &two->arena, .limit = 1};
    MUST_OK(two->store, queries->holders(two->store, BYTES("beta"), &page));
    MUST(page.count == 1 && page.more && page.next.number == page.holders[0].permit.token);
    page.after = page.next;
    MUST_OK(two->store, queries->holders(two->store, BYTES("beta"), &page));
    MUST(page.count == 1 && !page.more && bytes_equal(page.holders[0].request.external_id, BYTES("b")));
    MUST(queries->holders(two->store, BYTES("none"), &page) == PERMIT_UNKNOWN_SEMAPHORE);
}

static void fronts_have_the_holders_of_each_semaphore(struct fixture *one, struct fixture *two)
{
    struct want both[] = {{.semaphore = BYTES("alpha"), .count = 1}, {.semaphore = BYTES("beta"), .count = 1}};
    struct operation first = acquire_of("a", &both[1], 1), second = acquire_of("b", both, 2);
    struct semaphore_front fronts[3];
    struct query_time time;
    MUST(batch_run(one, &first)->status == PERMIT_OK && batch_run(one, &second)->status == PERMIT_OK);
    const uint64_t ids[] = {both[0].semaphore_id, 1000000, both[1].semaphore_id};
    MUST_OK(two->store, two->store->queries->fronts(two->store, ids, ARRAY_LENGTH(ids), &two->arena, fronts, &time));
    MUST(fronts[0].holder_count == 1 && bytes_equal(fronts[0].holders[0].external_id, BYTES("b")));
    MUST(fronts[1].holder_count == 0 && fronts[1].waiter_count == 0 && fronts[2].waiter_count == 0);
    MUST(fronts[2].holder_count == 2 && bytes_equal(fronts[2].holders[0].external_id, BYTES("a")));
    MUST(bytes_equal(fronts[2].holders[1].external_id, BYTES("b")) && fronts[2].holders[1].since > 0);
}

/* The calls of the tasks, on a database without owners, old rows and mismatches. */
static void tasks_find_nothing_to_do(struct fixture *one, struct fixture *two)
{
    struct store *store = two->store;
    struct owner *owners;
    struct query_time time;
    size_t count;
    uint64_t semaphores;
    (void)one;
    MUST_OK(store, store->queries->clock(store, &time));
    MUST_OK(store, store->owners->due(store, time.now, &two->arena, &owners, &count));
    MUST(count == 0);
    MUST_OK(store, store->owners->lapsed(store, 0, BYTES(""), &two->arena, &owners, &count));
    MUST(count == 0);
    MUST_OK(store, store->templates->count_semaphores(store, 1000, &semaphores));
    MUST(semaphores == 2);
    MUST_OK(store, store->templates->count_semaphores(store, 1, &semaphores));
    MUST(semaphores == 1);
    uint64_t slots;
    MUST_OK(store, store->templates->count_slots(store, &slots));
    semaphore_make(one, "alpha", KIND_SLOTTED, 10); /* it has 3 */
    uint64_t more;
    MUST_OK(store, store->templates->count_slots(store, &more));
    MUST(more == slots + 7);
    const struct retention_task task = {.kind = RETENTION_REQUESTS, .rows = 100, .retention_rows = 1000000};
    struct retention_result deleted;
    MUST_OK(store, store->retention->batch(store, &task, &two->arena, &deleted));
    MUST(deleted.has_lock && deleted.deleted == 0 && deleted.page.next == 0 && !deleted.page.full);
    struct audit_result audited;
    uint64_t last;
    MUST_OK(store, store->audit->requests(store, 0, &two->arena, &audited, &last));
    MUST(audited.drift_count == 0);
}

static void epoch_rises_for_the_server_that_saw_it(struct fixture *one, struct fixture *two)
{
    struct tick tick = {0};
    MUST_OK(one->store, fixture_advance_epoch(one->store, EPOCH_SERVER, 0, 0)); /* a new database gets its identity */
    MUST_OK(one->store, one->store->clock->read_tick(one->store, &tick));
    MUST(tick.ret_same_server);
    uint64_t epoch = tick.ret_row.clock.epoch;
    MUST_OK(one->store, fixture_advance_epoch(one->store, EPOCH_TOKENS, epoch + 1, 0)); /* another one has raised it */
    MUST_OK(two->store, two->store->clock->read_tick(two->store, &tick));
    MUST(tick.ret_row.clock.epoch == epoch);
    MUST_OK(two->store, fixture_advance_epoch(two->store, EPOCH_TOKENS, epoch, 0));
    MUST_OK(one->store, one->store->clock->read_tick(one->store, &tick));
    MUST(tick.ret_row.clock.epoch > epoch);
}

static void tick_sees_tokens_that_would_be_issued_again(struct fixture *one, struct fixture *two)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation acquire = acquire_of("k", beta, 1);
    MUST_OK(one->store, fixture_advance_epoch(one->store, EPOCH_SERVER, 0, 0));
    uint64_t token = batch_run(one, &acquire)->request->permits[0].token;
    struct tokens_seen seen = {semaphore_named(one, BYTES("beta")).id, token + 1};
    struct tick tick = {.seen = &seen, .seen_count = 1};
    MUST_OK(two->store, two->store->clock->read_tick(two->store, &tick));
    MUST(!tick.ret_tokens_behind);
    seen.next = token + 2;
    MUST_OK(two->store, two->store->clock->read_tick(two->store, &tick));
    MUST(tick.ret_tokens_behind);
}

/* Returns the row after a tick that advances the lease clock by a second. */
static struct lease_row ticked(const struct lease_row *row)
{
    struct lease_row after = *row;
    after.clock.tick_at += US_PER_SECOND;
    after.ticks++;
    return after;
}

static void tick_is_written_unless_the_row_has_changed(struct fixture *one, struct fixture *two)
{
    struct tick first = {0}, second = {0};
    bool won;
    MUST_OK(one->store, fixture_advance_epoch(one->store, EPOCH_SERVER, 0, 0));
    MUST_OK(one->store, one->store->clock->read_tick(one->store, &first));
    MUST_OK(two->store, two->store->clock->read_tick(two->store, &second));
    MUST(first.ret_row.server && first.ret_row.server == second.ret_row.server);
    struct lease_row after = ticked(&first.ret_row);
    after.clock.offset_us -= 5;
    MUST_OK(one->store, one->store->clock->write_tick(one->store, &first.ret_row, &after, &won));
    MUST(won);
    MUST_OK(two->store, two->store->clock->write_tick(two->store, &second.ret_row, &after, &won));
    MUST(!won);
    MUST_OK(two->store, two->store->clock->read_tick(two->store, &second));
    MUST(second.ret_row.ticks == after.ticks && second.ret_row.clock.tick_at == after.clock.tick_at &&
         second.ret_row.clock.offset_us == after.clock.offset_us);
    MUST_OK(one->store, fixture_advance_epoch(one->store, EPOCH_TOKENS, second.ret_row.clock.epoch, 0));
    after = ticked(&second.ret_row);
    MUST_OK(two->store, two->store->clock->write_tick(two->store, &second.ret_row, &after, &won));
    MUST(!won); /* it was read in another epoch */
}

static void servers_join_live_and_leave(struct fixture *one, struct fixture *two)
{
    const struct store_servers *servers = one->store->servers;
    struct server_self first, second;
    struct server_heartbeat heartbeat = {0};
    struct page page = {.arena = &two->arena, .limit = 10};
    bool declared = true;
    MUST_OK(one->store,
            fixture_advance_epoch(one->store, EPOCH_SERVER, 0, 0)); /* a database without identity: no ids */
    MUST_OK(one->store, servers->join(one->store, BYTES("http://a"), BYTES("1.0"), &first));
    MUST_OK(two->store, servers->join(two->store, BYTES("http://b"), BYTES("1.0"), &second));
    MUST(first.id && second.id && first.id != second.id);
    MUST_OK(one->store, servers->heartbeat(one->store, &first, &heartbeat));
    MUST(heartbeat.ret_alive && heartbeat.ret_other_count == 1 && heartbeat.ret_others[0].id == second.id);
    struct server_other other = heartbeat.ret_others[0];
    other.ticks++; /* it has written others since they were read */
    utc_us now = lease_time(&heartbeat.ret_time.clock, heartbeat.ret_time.now);
    MUST_OK(one->store, servers->declare_dead(one->store, &other, now, &declared));
    MUST(!declared);
    MUST_OK(one->store, servers->remove_dead(one->store, now));
    MUST_OK(two->store, servers->list(two->store, &page));
    MUST(page.count == 2 && page.servers[0].id == first.id && page.servers[0].alive);
    MUST(page.servers[1].id == second.id && page.servers[1].alive);
    MUST_OK(one->store, servers->leave(one->store, &first));
    MUST_OK(two->store, servers->list(two->store, &page));
    MUST(page.count == 1 && page.servers[0].id == second.id);
    MUST_OK(one->store, servers->heartbeat(one->store, &first, &heartbeat));
    MUST(!heartbeat.ret_alive);
}

/* ---- queues ---- */

enum { CASE_WANTS_MAX = 2, MINUTE_US = 60 * US_PER_SECOND };

/* Joins as a permitd; `one` has raised the epoch of a new database. */
static uint64_t join_server(struct fixture *fixture)
{
    struct server_self self;
    MUST_OK(fixture->store, fixture_advance_epoch(fixture->store, EPOCH_SERVER, 0, 0));
    MUST_OK(fixture->store, fixture->store->servers->join(fixture->store, BYTES("http://a"), BYTES("1.0"), &self));
    MUST(self.id != 0);
    return self.id;
}

/* Locks the semaphores of the wants and reads the key. */
static void lock_wants(struct fixture *fixture, const char *key, struct want *wants, size_t count)
{
    struct operation acquire = acquire_of(key, wants, count);
    arena_clear(&fixture->arena);
    struct lock_set set = lock_set_of(fixture, &acquire);
    MUST_OK(fixture->store, fixture->store->batch->lock(fixture->store, &set, &fixture->arena, &fixture->view));
    MUST(fixture->view.semaphore_count == count);
}

/* The changes of one batch to one request, besides its semaphores. The lists may be empty. */
struct queue_write {
    struct request_change change;
    const struct place_change *places;
    size_t place_count;
    const struct mail *mail;
    size_t mail_count;
    int64_t waiting; /* added to `waiting` of each semaphore */
    int64_t in_use;  /* the same for in_use */
    int64_t tokens;
};

/* Writes it, with all locked semaphores. */
static void write_queue(struct fixture *fixture, struct queue_write *write)
{
    struct semaphore_image images[CASE_WANTS_MAX];
    struct view *view = &fixture->view;
    for (size_t i = 0; i < view->semaphore_count; i++) {
        images[i] = (struct semaphore_image){
            .semaphore = &view->semaphores[i], .expected_version = view->semaphores[i].version, .changed = true};
        view->semaphores[i].version++;
        view->semaphores[i].waiting += write->waiting;
        view->semaphores[i].in_use += write->in_use;
        view->semaphores[i].next_token += (uint64_t)write->tokens;
    }
    const struct changes changes = {
        .semaphores = images,
        .semaphore_count = view->semaphore_count,
        .requests = &write->change,
        .request_count = write->change.request != NULL,
        .places = write->places,
        .place_count = write->place_count,
        .mail = write->mail,
        .mail_count = write->mail_count,
        .wall_now = view->now,
    };
    MUST_OK(fixture->store, fixture->store->batch->commit(fixture->store, &changes));
}

/* A request that waits in `place`, in the arena of the fixture; wants as locked. */
static struct request *waiting_request(struct fixture *fixture, const char *key, struct want *wants, size_t count,
                                       utc_us place, uint64_t server_id)
{
    const struct ttl ttl = {.kind = TTL_DURATION, .ms = 5000};
    struct request *request = arena_alloc(&fixture->arena, sizeof *request);
    MUST(request);
    *request = (struct request){
        .id = fixture->ids.next++,
        .external_id = bytes_of(key),
        .owner = BYTES("tester"),
        .has_digest = true,
        .digest = {1},
        .state = REQUEST_WAITING,
        .due_at = place + 2 * (utc_us)MINUTE_US,
        .confirmed_at = NEVER,
        .acquired_at = NEVER,
        .ended_at = NEVER,
        .server_id = server_id,
        .priority = 3,
        .place = place,
        .waiting_since = place + AFTER_PLACE_US,
        .waiting_until = place + (utc_us)MINUTE_US,
        .wanted = wants_encode(ttl, wants, count, &fixture->arena),
        .ttl = ttl,
        .wants = wants,
        .want_count = count,
    };
    MUST(request->wanted.data);
    return request;
}

/* Enters the queues of the wants, where the first place watches a slot (0: none). Returns the id of the request. */
static uint64_t enter_watching(struct fixture *fixture, const char *key, struct want *wants, size_t count, utc_us place,
                               uint64_t server_id, uint32_t watch)
{
    struct place_change places[CASE_WANTS_MAX];
    lock_wants(fixture, key, wants, count);
    struct request *request = waiting_request(fixture, key, wants, count, place, server_id);
    for (size_t i = 0; i < count; i++)
        places[i] = (struct place_change){.semaphore_id = fixture->view.semaphores[i].id,
                                          .place = place,
                                          .request_id = request->id,
                                          .count = wants[i].count,
                                          .needs = wants_needs(request->wanted)};
    places[0].watch = watch;
    struct queue_write write = {.change = {.request = request, .insert = true},
                                .places = places,
                                .place_count = count,
                                .waiting = server_id != 0};
    uint64_t id = request->id;
    write_queue(fixture, &write);
    return id;
}

static uint64_t enter(struct fixture *fixture, const char *key, struct want *wants, size_t count, utc_us place,
                      uint64_t server_id)
{
    return enter_watching(fixture, key, wants, count, place, server_id, 0);
}

static uint64_t enter_beta(struct fixture *fixture, const char *key, int64_t count, utc_us place, uint64_t server_id)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = count}};
    return enter(fixture, key, beta, 1, place, server_id);
}

/* A time of the lease clock that is not near the present, in whole microseconds. */
static utc_us some_time(int64_t minutes)
{
    return 1795251600LL * US_PER_SECOND + 123456 + minutes * (utc_us)MINUTE_US;
}

static const struct request *find_request(const struct view *view, const char *key)
{
    for (size_t i = 0; i < view->request_count; i++)
        if (bytes_equal(view->requests[i].external_id, bytes_of(key)))
            return &view->requests[i];
    return NULL;
}

/* Locks beta and reads its queue. */
static void read_beta_as(struct fixture *fixture, const struct queue_read *read)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    const struct slots_wanted none = {0};
    lock_wants(fixture, "nobody", beta, 1);
    MUST_OK(fixture->store,
            fixture->store->batch->read_waiters(fixture->store, read, &none, 1, &fixture->arena, &fixture->view));
    MUST(fixture->view.queues && fixture->view.has_servers);
}

static void read_beta_aged(struct fixture *fixture, int64_t free, bool fifo, utc_us aged)
{
    read_beta_as(fixture, &(struct queue_read){
                              .free = free, .fifo = fifo, .aged = aged, .limit = QUEUE_READ_MAX, .all_watches = true});
}

static void read_beta(struct fixture *fixture, int64_t free, bool fifo)
{
    read_beta_aged(fixture, free, fifo, 0);
}

static void waiting_request_is_read_with_its_wants(struct fixture *one, struct fixture *two)
{
    struct slot_name names[] = {{.number = 2}, {.number = 3}};
    struct want wants[] = {
        {.semaphore = BYTES("alpha"), .count = 1, .choice = CHOOSE_ANY_OF, .named = names, .named_count = 2},
        {.semaphore = BYTES("beta"), .count = 4}};
    uint64_t server = join_server(one);
    uint64_t version = semaphore_named(two, BYTES("beta")).version;
    uint64_t id = enter(one, "k", wants, 2, some_time(0), server);
    MUST(semaphore_named(two, BYTES("beta")).version > version);
    MUST(semaphore_named(two, BYTES("alpha")).waiting == 1 && semaphore_named(two, BYTES("beta")).waiting == 1);
    lock_wants(two, "k", wants, 2);
    MUST(two->view.request_count == 1);
    const struct request *request = &two->view.requests[0];
    MUST(request->id == id && request->state == REQUEST_WAITING && request->permit_count == 0);
    MUST(request->server_id == server && request->priority == 3 && request->place == some_time(0));
    MUST(request->waiting_since == some_time(0) + AFTER_PLACE_US && request->waiting_until == some_time(1));
    MUST(request->due_at == some_time(2) && request->acquired_at == NEVER && request->ended_at == NEVER);
    MUST(request->ttl.kind == TTL_DURATION && request->ttl.ms == 5000 && request->want_count == 2);
    MUST(request->wants[0].semaphore_id == two->view.semaphores[0].id && request->wants[0].named_count == 2);
    MUST(request->wants[0].named[1].number == 3 && request->wants[0].choice == CHOOSE_ANY_OF);
    MUST(request->wants[1].semaphore_id == two->view.semaphores[1].id && request->wants[1].count == 4);
    MUST_OK(two->store, two->store->batch->rollback(two->store));
    struct resolve_key key = {.external_id = BYTES("k")};
    struct resolve resolve = {.keys = &key, .key_count = 1};
    MUST_OK(two->store, two->store->batch->resolve(two->store, &resolve, &two->arena));
    MUST(key.ret_count == 2 && key.ret_semaphore_ids[0] == two->view.semaphores[0].id);
    MUST(key.ret_semaphore_ids[1] == two->view.semaphores[1].id && key.ret_slots == 0);
}

/* `big` heads the queue; `kept` has no client. Equal places are in order of id. Each waits since 90 s after its place. */
static void queue_is_read_in_order_without_kept_places(struct fixture *one, struct fixture *two)
{
    utc_us since = AFTER_PLACE_US;
    uint64_t server = join_server(one);
    enter_beta(one, "z-second", 2, some_time(1), server);
    enter_beta(one, "big", 5, some_time(0), server);
    enter_beta(one, "kept", 2, some_time(-1), 0);
    enter_beta(one, "a-third", 1, some_time(1), server);
    MUST(semaphore_named(two, BYTES("beta")).waiting == 3);
    read_beta_aged(two, 1, false, some_time(0) + since - 1);
    MUST(two->view.server_count == 1 && two->view.servers[0] == server);
    MUST(two->view.request_count == 1 && two->view.queues[0].beyond == 0);
    MUST(bytes_equal(two->view.requests[0].external_id, BYTES("a-third")));
    MUST(two->view.requests[0].want_count == 1 && two->view.requests[0].wants[0].count == 1);
    MUST_OK(two->store, two->store->batch->rollback(two->store));
    read_beta(two, 2, false);
    MUST(two->view.request_count == 2 && find_request(&two->view, "z-second"));
    MUST_OK(two->store, two->store->batch->rollback(two->store));
    read_beta_aged(two, 1, false, some_time(0) + since);
    MUST(two->view.request_count == 2 && find_request(&two->view, "big"));
    MUST_OK(two->store, two->store->batch->rollback(two->store));
    read_beta_aged(two, 0, false, some_time(0) + since); /* no units are free: only the protected ones are read */
    MUST(two->view.request_count == 1 && find_request(&two->view, "big"));
    MUST(two->view.queues[0].beyond == 0 && two->view.queues[0].limit == QUEUE_READ_MAX);
    MUST_OK(two->store, two->store->batch->rollback(two->store));
    read_beta(two, 1, true);
    MUST(two->view.request_count == 3 && find_request(&two->view, "big") && find_request(&two->view, "z-second"));
    MUST(!find_request(&two->view, "kept"));
    for (size_t i = 1; i < two->view.request_count; i++)
        MUST(bytes_compare(two->view.requests[i - 1].external_id, two->view.requests[i].external_id) < 0);
    MUST_OK(two->store, two->store->batch->rollback(two->store));
}

static void request_of_the_batch_is_in_the_view_once(struct fixture *one, struct fixture *two)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    const struct queue_read read = {.semaphore = 0, .free = 5, .limit = QUEUE_READ_MAX};
    const struct slots_wanted none = {0};
    uint64_t server = join_server(one);
    enter_beta(one, "a", 1, some_time(0), server);
    enter_beta(one, "b", 1, some_time(1), server);
    lock_wants(two, "b", beta, 1);
    MUST(two->view.request_count == 1);
    MUST_OK(two->store, two->store->batch->read_waiters(two->store, &read, &none, 1, &two->arena, &two->view));
    MUST(two->view.request_count == 2 && two->view.queues[0].beyond == 0);
    MUST_OK(two->store, two->store->batch->rollback(two->store));
}

/* Reads the queue of beta, which is locked and was read, from its beginning. */
static void read_again(struct fixture *fixture, bool fifo, size_t limit)
{
    const struct queue_read read = {.semaphore = 0, .free = 1, .fifo = fifo, .limit = limit};
    const struct slots_wanted none = {0};
    MUST_OK(fixture->store,
            fixture->store->batch->read_waiters(fixture->store, &read, &none, 1, &fixture->arena, &fixture->view));
}

static void long_queue_is_read_up_to_one_beyond(struct fixture *one, struct fixture *two)
{
    static char keys[QUEUE_READ_MAX + 2][8];
    uint64_t server = join_server(one), beyond = 0;
    for (int i = 0; i < QUEUE_READ_MAX + 2; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "w%d", i);
        uint64_t id = enter_beta(one, keys[i], 1, some_time(i), server);
        beyond = i == QUEUE_READ_MAX ? id : beyond;
    }
    for (int fifo = 0; fifo <= 1; fifo++) {
        read_beta(two, 1, fifo);
        MUST(two->view.queues[0].beyond == beyond && two->view.request_count == QUEUE_READ_MAX + 1);
        MUST(two->view.queues[0].beyond_place == some_time(QUEUE_READ_MAX));
        MUST(two->view.queues[0].limit == QUEUE_READ_MAX);
        MUST(find_request(&two->view, keys[0]) && find_request(&two->view, keys[QUEUE_READ_MAX]));
        read_again(two, fifo, QUEUE_PROTECTED_MAX);
        MUST(two->view.queues[0].beyond == 0 && two->view.request_count == QUEUE_READ_MAX + 2);
        MUST_OK(two->store, two->store->batch->rollback(two->store));
    }
}

static void few_waiters_are_read_up_to_one_beyond(struct fixture *one, struct fixture *two)
{
    uint64_t server = join_server(one), third;
    enter_beta(one, "w1", 1, some_time(1), server);
    enter_beta(one, "w2", 1, some_time(2), server);
    third = enter_beta(one, "w3", 1, some_time(3), server);
    enter_beta(one, "w4", 1, some_time(4), server);
    for (int fifo = 0; fifo <= 1; fifo++) {
        struct queue_read read = {.free = 1, .fifo = fifo, .limit = 2};
        read_beta_as(two, &read);
        MUST(two->view.request_count == 3 && find_request(&two->view, "w3"));
        MUST(two->view.queues[0].beyond == third && two->view.queues[0].beyond_place == some_time(3));
        MUST_OK(two->store, two->store->batch->rollback(two->store));
        read.limit = QUEUE_READ_MAX;
        read_beta_as(two, &read);
        MUST(two->view.request_count == 4 && two->view.queues[0].beyond == 0);
        MUST_OK(two->store, two->store->batch->rollback(two->store));
    }
}

static void slots_of_waiters_are_read(struct fixture *one, struct fixture *two)
{
    struct slot_name third = {.number = 3};
    struct want named[] = {
        {.semaphore = BYTES("alpha"), .count = 1, .choice = CHOOSE_NAMED, .named = &third, .named_count = 1}};
    struct want alpha[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    const struct queue_read read = {.semaphore = 0, .free = 2, .limit = QUEUE_READ_MAX};
    const struct slots_wanted none = {0};
    uint64_t server = join_server(one);
    enter(one, "named", named, 1, some_time(0), server);
    lock_wants(two, "nobody", alpha, 1);
    MUST_OK(two->store, two->store->batch->read_waiters(two->store, &read, &none, 1, &two->arena, &two->view));
    MUST(two->view.free_slots[0].count == 1); /* one unit is wanted */
    MUST_OK(two->store, two->store->batch->rollback(two->store));
    enter(one, "any", alpha, 1, some_time(1), server);
    lock_wants(two, "nobody", alpha, 1);
    MUST_OK(two->store, two->store->batch->read_waiters(two->store, &read, &none, 1, &two->arena, &two->view));
    MUST(two->view.free_slots[0].count == 2 && two->view.free_slots[0].numbers[1] == 2);
    MUST(two->view.named_slots[0].count == 1 && two->view.named_slots[0].rows[0].number == 3);
    MUST(two->view.named_slots[0].rows[0].token == 0);
    MUST_OK(two->store, two->store->batch->rollback(two->store));
}

/* Returns true if a batch that may free these slots of alpha reads the waiter. */
static bool reads_waiter(struct fixture *fixture, const char *key, struct queue_read read)
{
    struct want alpha[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    const struct slots_wanted none = {0};
    read.free = 1;
    read.limit = QUEUE_READ_MAX;
    lock_wants(fixture, "nobody", alpha, 1);
    MUST_OK(fixture->store,
            fixture->store->batch->read_waiters(fixture->store, &read, &none, 1, &fixture->arena, &fixture->view));
    bool found = find_request(&fixture->view, key) != NULL;
    MUST_OK(fixture->store, fixture->store->batch->rollback(fixture->store));
    return found;
}

static void waiter_that_watches_a_slot_is_read_when_the_slot_may_be_free(struct fixture *one, struct fixture *two)
{
    struct slot_name second = {.number = 2};
    struct want wants[] = {
        {.semaphore = BYTES("alpha"), .count = 1, .choice = CHOOSE_NAMED, .named = &second, .named_count = 1}};
    struct operation acquire = acquire_of("holder", wants, 1);
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("holder")};
    const uint32_t freed[] = {2, 1};
    uint64_t server = join_server(one);
    MUST(batch_run(one, &acquire)->created);
    enter_watching(one, "seat", wants, 1, some_time(0), server, 2);
    MUST(!reads_waiter(two, "seat", (struct queue_read){0}));
    MUST(!reads_waiter(two, "seat", (struct queue_read){.freed = freed + 1, .freed_count = 1}));
    MUST(reads_waiter(two, "seat", (struct queue_read){.freed = freed, .freed_count = 2}));
    MUST(reads_waiter(two, "seat", (struct queue_read){.all_watches = true}));
    MUST(batch_run(one, &release)->status == PERMIT_OK); /* it grants nobody: the slot stays free */
    MUST(reads_waiter(two, "seat", (struct queue_read){0}));
}

/* It reserves the other slots that it wants. */
static void protected_waiter_that_watches_a_slot_is_read_if_it_wants_more(struct fixture *one, struct fixture *two)
{
    struct slot_name second = {.number = 2};
    struct slot_name both[] = {{.number = 1}, {.number = 2}};
    struct want wants[] = {
        {.semaphore = BYTES("alpha"), .count = 1, .choice = CHOOSE_NAMED, .named = &second, .named_count = 1}};
    struct want pair[] = {
        {.semaphore = BYTES("alpha"), .count = 2, .choice = CHOOSE_NAMED, .named = both, .named_count = 2}};
    struct operation acquire = acquire_of("holder", wants, 1);
    const utc_us aged = some_time(0) + AFTER_PLACE_US;
    uint64_t server = join_server(one);
    MUST(batch_run(one, &acquire)->created);
    enter_watching(one, "seat", wants, 1, some_time(0), server, 2);
    enter_watching(one, "pair", pair, 1, some_time(0), server, 2);
    MUST(!reads_waiter(two, "pair", (struct queue_read){.aged = aged - 1}));
    MUST(reads_waiter(two, "pair", (struct queue_read){.aged = aged}));
    MUST(!reads_waiter(two, "seat", (struct queue_read){.aged = aged}));
    MUST(!reads_waiter(two, "pair", (struct queue_read){.aged = aged, .fifo = true}));
}

/* Waiters with other needs are read in their place; protected ones only if the needs are hopeless for these, too. */
static void hopeless_waiters_are_left_out(struct fixture *one, struct fixture *two)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 2}};
    uint64_t server = join_server(one);
    enter_beta(one, "first", 2, some_time(0), server);
    enter_beta(one, "second", 2, some_time(1), server);
    enter_beta(one, "other", 1, some_time(2), server);
    lock_wants(two, "nobody", beta, 1);
    const uint64_t needs = wants_needs(waiting_request(two, "k", beta, 1, some_time(0), server)->wanted);
    MUST_OK(two->store, two->store->batch->rollback(two->store));
    for (int aged = 0; aged <= 1; aged++)
        for (size_t protected = 0; protected <= 1; protected ++) {
            read_beta_as(two, &(struct queue_read){.free = 5,
                                                   .limit = 2,
                                                   .aged = aged ? some_time(0) + AFTER_PLACE_US : 0,
                                                   .all_watches = true,
                                                   .hopeless = &needs,
                                                   .hopeless_count = 1,
                                                   .hopeless_protected = protected});
            bool first = aged && !protected;
            MUST(two->view.request_count == 1 + (size_t)first && !find_request(&two->view, "second"));
            MUST((find_request(&two->view, "first") != NULL) == first && find_request(&two->view, "other"));
            MUST(two->view.queues[0].beyond == 0);
            MUST_OK(two->store, two->store->batch->rollback(two->store));
        }
}

/* Reads beta plainly, with alpha locked. */
static void glimpse_beta(struct fixture *fixture, const char *key, uint64_t beta_id, utc_us aged)
{
    struct want alpha[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    const struct queue_read read = {.free = 5, .limit = QUEUE_READ_MAX, .all_watches = true};
    const struct slots_wanted none = {0};
    lock_wants(fixture, key, alpha, 1);
    MUST_OK(fixture->store,
            fixture->store->batch->read_waiters(fixture->store, &read, &none, 1, &fixture->arena, &fixture->view));
    MUST_OK(fixture->store,
            fixture->store->batch->read_glimpses(fixture->store, &beta_id, 1, aged, &fixture->arena, &fixture->view));
    MUST(fixture->view.semaphore_count == 1 && fixture->view.glimpse_count == 1);
    MUST(bytes_equal(fixture->view.glimpses[0].semaphore.name, BYTES("beta")));
    for (size_t i = 1; i < fixture->view.request_count; i++)
        MUST(bytes_compare(fixture->view.requests[i - 1].external_id, fixture->view.requests[i].external_id) < 0);
}

static void other_semaphore_of_a_waiter_is_read_without_its_lock(struct fixture *one, struct fixture *two)
{
    struct want wants[] = {{.semaphore = BYTES("alpha"), .count = 1}, {.semaphore = BYTES("beta"), .count = 4}};
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 3}};
    struct operation acquire = acquire_of("holder", beta, 1);
    struct operation confirm = {.kind = OP_CONFIRM, .external_id = BYTES("holder")};
    const utc_us aged = some_time(1) + AFTER_PLACE_US;
    uint64_t server = join_server(one);
    MUST(batch_run(one, &acquire)->created && batch_run(one, &confirm)->status == PERMIT_OK);
    enter(one, "both", wants, 2, some_time(0), server);
    enter_beta(one, "old", 1, some_time(1), server);
    enter_beta(one, "young", 1, some_time(2), server);
    enter_beta(one, "kept", 1, some_time(0), 0);
    uint64_t beta_id = semaphore_named(two, BYTES("beta")).id;
    /* The row of beta is not locked, and may be locked by another meanwhile. */
    struct operation other = acquire_of("other", beta, 1);
    struct lock_set set = lock_set_of(one, &other);
    MUST_OK(one->store, one->store->batch->lock(one->store, &set, &one->arena, &one->view));
    glimpse_beta(two, "nobody", beta_id, aged);
    MUST(two->view.glimpses[0].semaphore.in_use == 3 && two->view.glimpses[0].semaphore.confirmed == 3);
    MUST(two->view.glimpses[0].semaphore.waiting == 3 && two->view.glimpses[0].watcher_count == 0);
    MUST(two->view.request_count == 2 && find_request(&two->view, "both") && find_request(&two->view, "old"));
    MUST_OK(two->store, two->store->batch->rollback(two->store));
    MUST_OK(one->store, one->store->batch->rollback(one->store));
}

static void watched_slot_of_another_semaphore_is_read(struct fixture *one, struct fixture *two)
{
    struct slot_name second = {.number = 2};
    struct want wants[] = {
        {.semaphore = BYTES("alpha"), .count = 1, .choice = CHOOSE_NAMED, .named = &second, .named_count = 1},
        {.semaphore = BYTES("beta"), .count = 1}};
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation acquire = acquire_of("holder", wants, 1);
    struct operation confirm = {.kind = OP_CONFIRM, .external_id = BYTES("holder")};
    const struct queue_read read = {.free = 5, .limit = QUEUE_READ_MAX, .all_watches = true};
    const struct slots_wanted none = {0};
    uint64_t server = join_server(one);
    MUST(batch_run(one, &acquire)->created);
    uint64_t id = enter_watching(one, "seat", wants, 2, some_time(0), server, 2);
    uint64_t alpha_id = semaphore_named(two, BYTES("alpha")).id;
    for (int confirmed = 0; confirmed <= 1; confirmed++) {
        MUST(!confirmed || batch_run(one, &confirm)->status == PERMIT_OK);
        lock_wants(two, "nobody", beta, 1);
        MUST_OK(two->store, two->store->batch->read_waiters(two->store, &read, &none, 1, &two->arena, &two->view));
        MUST_OK(two->store, two->store->batch->read_glimpses(two->store, &alpha_id, 1, 0, &two->arena, &two->view));
        MUST(two->view.glimpse_count == 1 && two->view.glimpses[0].watcher_count == 1);
        MUST(two->view.glimpses[0].watchers[0].request_id == id);
        MUST(two->view.glimpses[0].watchers[0].confirmed == (confirmed == 1));
        MUST_OK(two->store, two->store->batch->rollback(two->store));
    }
}

static void slots_with_their_holders_are_read_from_the_lowest_free_one_on(struct fixture *one, struct fixture *two)
{
    struct slot_name names[] = {{.number = 1}, {.number = 3}};
    struct want wants[] = {
        {.semaphore = BYTES("alpha"), .count = 2, .choice = CHOOSE_NAMED, .named = names, .named_count = 2}};
    struct want alpha[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    struct operation acquire = acquire_of("holder", wants, 1);
    struct operation confirm = {.kind = OP_CONFIRM, .external_id = BYTES("holder")};
    const struct queue_read read = {.free = 5, .limit = QUEUE_READ_MAX, .all_watches = true, .with_holders = true};
    struct slots_wanted slots = {0};
    uint32_t known[] = {2};
    MUST(batch_run(one, &acquire)->created && batch_run(one, &confirm)->status == PERMIT_OK);
    lock_wants(two, "nobody", alpha, 1);
    MUST_OK(two->store, two->store->batch->read_waiters(two->store, &read, &slots, 1, &two->arena, &two->view));
    const struct named_slots *named = &two->view.named_slots[0];
    MUST(named->has_holders && named->count > 0);
    for (size_t i = 0; i < named->count; i++)
        MUST(named->rows[i].confirmed == (named->rows[i].number == 1 || named->rows[i].number == 3));
    MUST(named->rows[named->count - 1].number == two->view.semaphores[0].capacity);
    slots.free = SLOTS_KNOWN;
    two->view.free_slots[0] = (struct free_slots){.numbers = known, .count = 1, .complete = true};
    MUST_OK(two->store, two->store->batch->read_waiters(two->store, &read, &slots, 1, &two->arena, &two->view));
    MUST(two->view.free_slots[0].numbers == known && two->view.free_slots[0].count == 1);
    MUST_OK(two->store, two->store->batch->rollback(two->store));
}

/* A copy of the version that is locked knows them. */
static void known_free_slots_are_not_read(struct fixture *one, struct fixture *two)
{
    struct want alpha[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    struct operation first = acquire_of("first", alpha, 1), second = acquire_of("second", alpha, 1);
    MUST(batch_run(one, &first)->created);
    uint64_t version = one->plan.changes.semaphores[0].semaphore->version;
    for (int round = 0; round < 2; round++) {
        struct lock_set set = lock_set_of(two, &second);
        struct slots_wanted wanted = {.free = 3, .known_version = version};
        set.slots_wanted = &wanted;
        MUST_OK(two->store, two->store->batch->lock(two->store, &set, &two->arena, &two->view));
        MUST((two->view.semaphores[0].version == version) == (round == 0));
        MUST(two->view.free_slots[0].count == (round == 0 ? 0 : 1));
        MUST(round == 0 || (two->view.free_slots[0].numbers[0] == 3 && two->view.free_slots[0].complete));
        MUST_OK(two->store, two->store->batch->rollback(two->store));
        MUST(round == 1 || batch_run(one, &second)->created);
    }
}

static void change_seats(struct fixture *fixture, const char *name, const struct seat *seats, size_t count)
{
    static const struct bytes none[4];
    struct operation operation = {
        .kind = OP_SEMAPHORE_LABELS,
        .semaphore = bytes_of(name),
        .change = &(struct semaphore_change){
            .has_labels = true, .labels = none, .label_count = count, .labels_from = 1, .seats = seats}};
    MUST(count <= ARRAY_LENGTH(none));
    MUST(batch_run(fixture, &operation)->status == PERMIT_OK);
}

static void seats_are_read_as_they_were_written(struct fixture *one, struct fixture *two)
{
    const struct seat seats[] = {
        {.position = 1, .rank = 0, .section = BYTES("A"), .row = BYTES("12"), .tags = BYTES("aisle b")},
        {.position = SEAT_POSITION_MAX, .rank = SEAT_RANK_MAX, .tags = BYTES("x")},
        {.rank = SEAT_RANK_NONE, .section = BYTES("B")},
    };
    const struct seat none = {.rank = SEAT_RANK_NONE};
    change_seats(one, "alpha", seats, ARRAY_LENGTH(seats));
    struct want alpha[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    struct operation acquire = acquire_of("k", alpha, 1);
    for (int round = 0; round < 2; round++) {
        struct seats read = {0};
        MUST(batch_run(two, &acquire)->status == PERMIT_OK);
        struct lock_set set = lock_set_of(two, &acquire);
        MUST_OK(two->store, two->store->batch->lock(two->store, &set, &two->arena, &two->view));
        MUST_OK(two->store, two->store->batch->read_seats(two->store, set.semaphore_ids[0], &two->arena, &read));
        MUST_OK(two->store, two->store->batch->rollback(two->store));
        MUST(read.count == 3 && !read.labels);
        for (uint32_t i = 0; i < 3; i++) {
            const struct seat *expected = round && i == 0 ? &none : &seats[i];
            MUST(read.rows[i].number == i + 1 && seat_same(&read.rows[i], expected));
        }
        change_seats(one, "alpha", &none, 1);
    }
}

static void best_seats_are_granted(struct fixture *one, struct fixture *two)
{
    const struct seat row[] = {{.position = 1, .rank = 9}, {.position = 2, .rank = 5}, {.position = 3, .rank = 1}};
    char form[BEST_FORM_MAX];
    struct best together = {.count = 2, .together = true};
    struct want alpha[] = {
        {.semaphore = BYTES("alpha"), .count = 2, .choice = CHOOSE_BEST, .best = best_encode(&together, form)}};
    struct operation first = acquire_of("first", alpha, 1), second = acquire_of("second", alpha, 1);
    change_seats(one, "alpha", row, ARRAY_LENGTH(row));
    const struct outcome *outcome = batch_run(two, &first);
    MUST(outcome->created && outcome->request->permits[0].slots.numbers[0] == 2);
    MUST(outcome->request->permits[0].slots.numbers[1] == 3);
    outcome = batch_run(one, &second);
    MUST(outcome->status == PERMIT_NO_CAPACITY && outcome->shortages[0].is_best);
    MUST(outcome->shortages[0].largest_together == 1);
}

/* Plans a release together with the waiters of alpha, as the engine does, and commits. */
static void release_beside_waiters(struct fixture *fixture, const char *key)
{
    struct operation release = {.kind = OP_RELEASE, .external_id = bytes_of(key)};
    const struct operation *operations[] = {&release};
    const struct queue_read read = {.free = 3, .limit = QUEUE_READ_MAX, .all_watches = true};
    const struct slots_wanted none = {0};
    struct seats seats = {0};
    struct seat_map map;
    const struct seat_map *maps[] = {&map};
    struct view *view = &fixture->view;
    arena_clear(&fixture->arena);
    struct lock_set set = lock_set_of(fixture, &release);
    MUST_OK(fixture->store, fixture->store->batch->lock(fixture->store, &set, &fixture->arena, view));
    MUST_OK(fixture->store,
            fixture->store->batch->read_waiters(fixture->store, &read, &none, 1, &fixture->arena, view));
    MUST(view->free_slots[0].complete); /* any of them may be among the best */
    MUST_OK(fixture->store,
            fixture->store->batch->read_seats(fixture->store, view->semaphores[0].id, &fixture->arena, &seats));
    MUST(seat_map_make(&map, &seats, &fixture->arena));
    view->seat_maps = maps;
    view->reads_end = true;
    fixture_judge(&view->clock, view->now);
    MUST_OK(fixture->store,
            plan_batch(view, operations, 1, fixture->ids, &fixture_settings, &fixture->arena, &fixture->plan));
    fixture->ids.next += fixture->plan.ids_used;
    MUST_OK(fixture->store, fixture->store->batch->commit(fixture->store, &fixture->plan.changes));
}

/* It waits for two seats together. The first release makes no pair. */
static void waiter_for_best_seats_is_granted_when_they_are_free(struct fixture *one, struct fixture *two)
{
    const struct seat row[] = {{.position = 1, .rank = 9}, {.position = 2, .rank = 5}, {.position = 3, .rank = 1}};
    struct slot_name names[] = {{.number = 1}, {.number = 2}};
    struct want first[] = {
        {.semaphore = BYTES("alpha"), .count = 1, .choice = CHOOSE_NAMED, .named = &names[0], .named_count = 1}};
    struct want second[] = {
        {.semaphore = BYTES("alpha"), .count = 1, .choice = CHOOSE_NAMED, .named = &names[1], .named_count = 1}};
    struct best together = {.count = 2, .together = true};
    char form[BEST_FORM_MAX];
    struct want best[] = {
        {.semaphore = BYTES("alpha"), .count = 2, .choice = CHOOSE_BEST, .best = best_encode(&together, form)}};
    struct operation hold_first = acquire_of("first", first, 1), hold_second = acquire_of("second", second, 1);
    change_seats(one, "alpha", row, ARRAY_LENGTH(row));
    MUST(batch_run(one, &hold_first)->created && batch_run(one, &hold_second)->created);
    (void)enter(one, "k", best, 1, some_time(0), join_server(one));
    lock_wants(two, "k", best, 1);
    const struct request *request = find_request(&two->view, "k");
    MUST(request && request->wants[0].choice == CHOOSE_BEST && bytes_equal(request->wants[0].best, best[0].best));
    MUST_OK(two->store, two->store->batch->rollback(two->store));
    release_beside_waiters(two, "first");
    MUST(find_request(&two->view, "k")->state == REQUEST_WAITING &&
         two->plan.changes.semaphores[0].semaphore->waiting == 1);
    release_beside_waiters(two, "second");
    lock_wants(one, "k", best, 1);
    request = find_request(&one->view, "k");
    MUST(request && request->state == REQUEST_ACQUIRED && request->permits[0].slots.count == 2);
    MUST(request->permits[0].slots.numbers[0] == 2 && request->permits[0].slots.numbers[1] == 3);
    MUST_OK(one->store, one->store->batch->rollback(one->store));
}

static void living_servers_are_read_without_a_queue(struct fixture *one, struct fixture *two)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    uint64_t server = join_server(one);
    lock_wants(two, "nobody", beta, 1);
    MUST(!two->view.has_servers);
    MUST_OK(two->store, two->store->batch->read_waiters(two->store, NULL, NULL, 0, &two->arena, &two->view));
    MUST(two->view.has_servers && two->view.server_count == 1 && two->view.servers[0] == server);
    MUST(!two->view.queues || two->view.queues[0].beyond == 0);
    MUST_OK(two->store, two->store->batch->rollback(two->store));
}

/* Reads a request that waits in beta and locks beta. */
static struct request *lock_waiting(struct fixture *fixture, const char *key, struct want *beta)
{
    lock_wants(fixture, key, beta, 1);
    MUST(fixture->view.request_count == 1 && fixture->view.requests[0].state == REQUEST_WAITING);
    struct request *after = arena_alloc(&fixture->arena, sizeof *after);
    MUST(after);
    *after = fixture->view.requests[0];
    return after;
}

/* Reads mail. The ids are valid until the fixture's next batch. */
static uint64_t *mail_of(struct fixture *fixture, uint64_t server_id, uint64_t after, unsigned limit, size_t *ret_count)
{
    struct page page = {.arena = &fixture->arena, .limit = limit, .after.number = after};
    MUST_OK(fixture->store, fixture->store->servers->mail(fixture->store, server_id, &page));
    *ret_count = page.count;
    return page.request_ids;
}

static void waiter_is_granted_on_behalf_of_another_server(struct fixture *one, struct fixture *two)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 4}};
    uint64_t server = join_server(one);
    uint64_t id = enter_beta(one, "k", 4, some_time(0), server);
    struct request *after = lock_waiting(two, "k", beta);
    const struct semaphore *semaphore = &two->view.semaphores[0];
    struct permit permit = {.semaphore_id = semaphore->id, .token = semaphore->next_token, .count = 4};
    after->state = REQUEST_ACQUIRED;
    after->wanted = (struct bytes){0};
    after->ttl_ms = 5000;
    after->acquired_at = some_time(5);
    after->due_at = some_time(5) + PLACE_KEPT_US;
    after->permits = &permit;
    after->permit_count = 1;
    const struct place_change gone = {semaphore->id, some_time(0), id, 4, true, 0, 0};
    const struct mail mail = {server, id, false};
    struct queue_write write = {.change = {.request = after, .before = &two->view.requests[0], .grants = true},
                                .places = &gone,
                                .place_count = 1,
                                .mail = &mail,
                                .mail_count = 1,
                                .waiting = -1,
                                .in_use = 4,
                                .tokens = 1};
    write_queue(two, &write);
    struct semaphore row = semaphore_named(one, BYTES("beta"));
    MUST(row.waiting == 0 && row.in_use == 4);
    lock_wants(one, "k", beta, 1);
    const struct request *granted = find_request(&one->view, "k");
    MUST(granted && granted->state == REQUEST_ACQUIRED && granted->want_count == 0 && granted->permit_count == 1);
    MUST(granted->permits[0].count == 4 && granted->acquired_at == some_time(5) && granted->ttl_ms == 5000);
    MUST(granted->server_id == server && granted->place == some_time(0) && granted->priority == 3);
    MUST(granted->due_at == some_time(5) + PLACE_KEPT_US);
    MUST_OK(one->store, one->store->batch->rollback(one->store));
    read_beta(one, 10, true);
    MUST(one->view.request_count == 0);
    MUST_OK(one->store, one->store->batch->rollback(one->store));
    uint64_t *ids;
    size_t count;
    ids = mail_of(one, server, 0, 10, &count);
    MUST(count == 1 && ids[0] == id);
}

static void kept_place_is_due_and_may_be_entered_again(struct fixture *one, struct fixture *two)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 4}};
    uint64_t server = join_server(one);
    enter_beta(one, "k", 4, some_time(0), server);
    struct request *after = lock_waiting(two, "k", beta);
    after->server_id = 0;
    after->due_at = some_time(-9);
    struct queue_write leave = {.change = {.request = after, .before = &two->view.requests[0]}, .waiting = -1};
    write_queue(two, &leave);
    MUST(semaphore_named(one, BYTES("beta")).waiting == 0);
    struct due_page page = {.limit = 2};
    MUST_OK(one->store, one->store->queries->due(one->store, &page, &one->arena));
    MUST(page.ret_count == 1 && bytes_equal(page.ret_requests[0].external_id, BYTES("k")));
    MUST(page.ret_requests[0].due_at == some_time(-9));
    after = lock_waiting(two, "k", beta);
    MUST(after->server_id == 0 && after->place == some_time(0));
    after->server_id = server;
    after->waiting_until = some_time(7);
    struct queue_write back = {.change = {.request = after, .before = &two->view.requests[0]}, .waiting = 1};
    write_queue(two, &back);
    read_beta(one, 4, false);
    MUST(one->view.request_count == 1 && one->view.requests[0].waiting_until == some_time(7));
    MUST(one->view.semaphores[0].waiting == 1);
    MUST_OK(one->store, one->store->batch->rollback(one->store));
}

static void due_requests_of_both_states_are_in_order(struct fixture *one, struct fixture *two)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation held = acquire_of("held", beta, 1);
    held.ttl = (struct ttl){.kind = TTL_DURATION, .ms = 30000};
    utc_us now = lease_now(one);
    MUST(batch_run(one, &held)->status == PERMIT_OK);
    enter_beta(one, "soon", 1, now - 3 * (utc_us)MINUTE_US, 1); /* due 2 minutes after its place */
    enter_beta(one, "late", 1, now, 1);
    static const char *const order[] = {"soon", "held", "late"};
    struct due_page page = {.limit = 1};
    for (size_t i = 0; i < ARRAY_LENGTH(order); i++) {
        MUST_OK(two->store, two->store->queries->due(two->store, &page, &two->arena));
        MUST(page.ret_count == 1 && bytes_equal(page.ret_requests[0].external_id, bytes_of(order[i])));
        page.after = page.ret_end;
    }
    MUST_OK(two->store, two->store->queries->due(two->store, &page, &two->arena));
    MUST(page.ret_count == 0 && !page.ret_more);
}

/* The place of one content gives way to another under the same key, in one batch. */
static void removed_place_gives_way_to_its_key(struct fixture *one, struct fixture *two)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 4}};
    uint64_t server = join_server(one);
    uint64_t id = enter_beta(one, "k", 4, some_time(0), 0);
    (void)lock_waiting(two, "k", beta);
    beta[0].count = 2;
    struct request *anew = waiting_request(two, "k", beta, 1, some_time(1), server);
    struct request_change requests[] = {
        {.request = anew, .insert = true},
        {.request = &two->view.requests[0], .before = &two->view.requests[0], .remove = true}};
    struct place_change places[] = {{two->view.semaphores[0].id, some_time(0), id, 4, true, 0, 0},
                                    {two->view.semaphores[0].id, some_time(1), anew->id, 2, false, 0, 0}};
    struct semaphore_image image = {
        .semaphore = &two->view.semaphores[0], .expected_version = two->view.semaphores[0].version++, .changed = true};
    two->view.semaphores[0].waiting++;
    const struct changes changes = {.semaphores = &image,
                                    .semaphore_count = 1,
                                    .requests = requests,
                                    .request_count = 2,
                                    .places = places,
                                    .place_count = 2};
    MUST_OK(two->store, two->store->batch->commit(two->store, &changes));
    uint64_t new_id = anew->id;
    read_beta(one, 10, true);
    MUST(one->view.request_count == 1 && one->view.requests[0].id == new_id);
    MUST(one->view.requests[0].wants[0].count == 2 && one->view.semaphores[0].waiting == 1);
    MUST_OK(one->store, one->store->batch->rollback(one->store));
}

static void place_that_is_gone_fails_the_batch(struct fixture *one, struct fixture *two)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 4}};
    uint64_t id = enter_beta(one, "k", 4, some_time(0), 0);
    (void)lock_waiting(two, "k", beta);
    struct request_change removed = {
        .request = &two->view.requests[0], .before = &two->view.requests[0], .remove = true};
    const struct place_change place = {two->view.semaphores[0].id, some_time(1), id, 4, true, 0, 0}; /* another place */
    struct semaphore_image image = {
        .semaphore = &two->view.semaphores[0], .expected_version = two->view.semaphores[0].version++, .changed = true};
    const struct changes changes = {.semaphores = &image,
                                    .semaphore_count = 1,
                                    .requests = &removed,
                                    .request_count = 1,
                                    .places = &place,
                                    .place_count = 1};
    MUST(two->store->batch->commit(two->store, &changes) == PERMIT_INTERNAL);
    MUST_OK(two->store, two->store->batch->rollback(two->store));
    (void)lock_waiting(one, "k", beta);
    MUST_OK(one->store, one->store->batch->rollback(one->store));
}

/* The statement that adds a place, or a permit, checks the one that removes the other place. */
static void place_that_is_gone_fails_a_batch_that_grants(struct fixture *one, struct fixture *two)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 4}};
    uint64_t id = enter_beta(one, "k", 4, some_time(0), 0);
    (void)lock_waiting(two, "k", beta);
    uint64_t beta_id = two->view.semaphores[0].id;
    const struct place_change places[] = {{beta_id, some_time(1), id, 4, true, 0, 0},
                                          {beta_id, some_time(2), id, 4, false, 0, 0}};
    struct semaphore_image image = {
        .semaphore = &two->view.semaphores[0], .expected_version = two->view.semaphores[0].version++, .changed = true};
    const struct changes changes = {
        .semaphores = &image, .semaphore_count = 1, .places = places, .place_count = ARRAY_LENGTH(places)};
    MUST(two->store->batch->commit(two->store, &changes) == PERMIT_INTERNAL);
    MUST_OK(two->store, two->store->batch->rollback(two->store));
    read_beta(one, 10, true);
    MUST(one->view.request_count == 0); /* its server is none */
    MUST_OK(one->store, one->store->batch->rollback(one->store));
}

/* Writes mail with a semaphore that does not change otherwise. */
static void write_mail(struct fixture *fixture, const struct mail *mail, size_t count)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct queue_write write = {.mail = mail, .mail_count = count};
    lock_wants(fixture, "nobody", beta, 1);
    write_queue(fixture, &write);
}

static void mail_is_read_and_deleted_by_its_server(struct fixture *one, struct fixture *two)
{
    static const struct mail mail[] = {{7, 70, false}, {7, 71, false}, {8, 70, false}};
    static const struct mail again[] = {{7, 70, true}, {7, 72, true}, {7, 71, false}, {7, 73, false}};
    static const uint64_t dropped[] = {73, 99};
    uint64_t *ids;
    size_t count;
    ids = mail_of(two, 7, 0, 10, &count);
    MUST(count == 0);
    write_mail(one, mail, ARRAY_LENGTH(mail));
    ids = mail_of(two, 7, 0, 10, &count);
    MUST(count == 2 && ids[0] == 70 && ids[1] == 71);
    ids = mail_of(two, 7, 0, 1, &count);
    MUST(count == 1 && ids[0] == 70);
    ids = mail_of(two, 7, 70, 10, &count);
    MUST(count == 1 && ids[0] == 71);
    write_mail(one, again, ARRAY_LENGTH(again));
    ids = mail_of(two, 7, 0, 10, &count);
    MUST(count == 2 && ids[0] == 71 && ids[1] == 73);
    MUST_OK(two->store, two->store->servers->drop_mail(two->store, 7, dropped, ARRAY_LENGTH(dropped)));
    ids = mail_of(two, 7, 0, 10, &count);
    MUST(count == 1 && ids[0] == 71);
    ids = mail_of(two, 8, 0, 10, &count);
    MUST(count == 1 && ids[0] == 70);
}

static void places_at_dead_servers_are_abandoned(struct fixture *one, struct fixture *two)
{
    enum { GONE = 999999 };
    const struct store_servers *servers = two->store->servers;
    struct server_heartbeat heartbeat = {0};
    struct bytes *keys;
    size_t count;
    bool declared = false;
    uint64_t living = join_server(one), dead = join_server(two);
    enter_beta(one, "living", 1, some_time(0), living);
    enter_beta(one, "dead", 1, some_time(1), dead);
    enter_beta(one, "gone", 1, some_time(2), GONE);
    enter_beta(one, "kept", 1, some_time(3), 0);
    MUST_OK(two->store, servers->abandoned(two->store, some_time(0), 10, &two->arena, &keys, &count));
    MUST(count == 1 && bytes_equal(keys[0], BYTES("gone")));
    const struct server_other other = {.id = dead, .ticks = heartbeat.ret_ticks};
    MUST_OK(two->store, servers->declare_dead(two->store, &other, some_time(10), &declared));
    MUST(declared);
    read_beta(one, 10, true);
    MUST(one->view.request_count == 1 && find_request(&one->view, "living"));
    MUST_OK(one->store, one->store->batch->rollback(one->store));
    MUST_OK(two->store, servers->abandoned(two->store, some_time(9), 10, &two->arena, &keys, &count));
    MUST(count == 1);
    MUST_OK(two->store, servers->abandoned(two->store, some_time(10), 10, &two->arena, &keys, &count));
    MUST(count == 2);
    MUST_OK(two->store, servers->abandoned(two->store, some_time(10), 1, &two->arena, &keys, &count));
    MUST(count == 1);
    const struct mail mail[] = {{living, 1, false}, {dead, 2, false}};
    write_mail(one, mail, ARRAY_LENGTH(mail));
    MUST_OK(two->store, servers->remove_dead(two->store, some_time(10)));
    (void)mail_of(two, dead, 0, 10, &count);
    MUST(count == 0);
    (void)mail_of(two, living, 0, 10, &count);
    MUST(count == 1);
    MUST_OK(two->store, servers->abandoned(two->store, some_time(10), 10, &two->arena, &keys, &count));
    MUST(count == 2);
}

const struct contract_case contract_cases[] = {
    {"grant_and_release_are_seen_by_another_store", grant_and_release_are_seen_by_another_store},
    {"replay_reads_the_grant", replay_reads_the_grant},
    {"lock_reads_what_another_store_committed", lock_reads_what_another_store_committed},
    {"lock_goes_on_in_the_transaction_that_awaited_it", lock_goes_on_in_the_transaction_that_awaited_it},
    {"rollback_writes_nothing", rollback_writes_nothing},
    {"release_of_an_unknown_key_leaves_a_tombstone", release_of_an_unknown_key_leaves_a_tombstone},
    {"replay_of_a_tombstone_does_not_wait_for_another", replay_of_a_tombstone_does_not_wait_for_another},
    {"second_new_request_with_one_key_conflicts", second_new_request_with_one_key_conflicts},
    {"batch_does_not_wait_for_other_semaphores", batch_does_not_wait_for_other_semaphores},
    {"request_that_another_session_has_locked_is_not_expired", request_that_another_session_has_locked_is_not_expired},
    {"errands_are_paged_until_they_are_settled", errands_are_paged_until_they_are_settled},
    {"errand_is_settled_before_an_operation_on_its_key", errand_is_settled_before_an_operation_on_its_key},
    {"several_keys_are_confirmed_together", several_keys_are_confirmed_together},
    {"plan_from_before_an_errand_is_refused", plan_from_before_an_errand_is_refused},
    {"held_slot_is_not_sold_again", held_slot_is_not_sold_again},
    {"free_slot_is_not_sold_twice_in_one_batch", free_slot_is_not_sold_twice_in_one_batch},
    {"slot_of_a_hold_that_goes_on_is_not_freed", slot_of_a_hold_that_goes_on_is_not_freed},
    {"units_above_the_capacity_are_not_sold", units_above_the_capacity_are_not_sold},
    {"units_above_a_smaller_capacity_stay", units_above_a_smaller_capacity_stay},
    {"ids_are_reserved_once", ids_are_reserved_once},
    {"floor_is_the_smallest_live_token", floor_is_the_smallest_live_token},
    {"held_requests_are_paged_by_deadline", held_requests_are_paged_by_deadline},
    {"holders_are_listed_by_token", holders_are_listed_by_token},
    {"fronts_have_the_holders_of_each_semaphore", fronts_have_the_holders_of_each_semaphore},
    {"tasks_find_nothing_to_do", tasks_find_nothing_to_do},
    {"epoch_rises_for_the_server_that_saw_it", epoch_rises_for_the_server_that_saw_it},
    {"tick_sees_tokens_that_would_be_issued_again", tick_sees_tokens_that_would_be_issued_again},
    {"tick_is_written_unless_the_row_has_changed", tick_is_written_unless_the_row_has_changed},
    {"servers_join_live_and_leave", servers_join_live_and_leave},
    {"waiting_request_is_read_with_its_wants", waiting_request_is_read_with_its_wants},
    {"queue_is_read_in_order_without_kept_places", queue_is_read_in_order_without_kept_places},
    {"request_of_the_batch_is_in_the_view_once", request_of_the_batch_is_in_the_view_once},
    {"long_queue_is_read_up_to_one_beyond", long_queue_is_read_up_to_one_beyond},
    {"few_waiters_are_read_up_to_one_beyond", few_waiters_are_read_up_to_one_beyond},
    {"slots_of_waiters_are_read", slots_of_waiters_are_read},
    {"waiter_that_watches_a_slot_is_read_when_the_slot_may_be_free",
     waiter_that_watches_a_slot_is_read_when_the_slot_may_be_free},
    {"protected_waiter_that_watches_a_slot_is_read_if_it_wants_more",
     protected_waiter_that_watches_a_slot_is_read_if_it_wants_more},
    {"hopeless_waiters_are_left_out", hopeless_waiters_are_left_out},
    {"other_semaphore_of_a_waiter_is_read_without_its_lock", other_semaphore_of_a_waiter_is_read_without_its_lock},
    {"watched_slot_of_another_semaphore_is_read", watched_slot_of_another_semaphore_is_read},
    {"slots_with_their_holders_are_read_from_the_lowest_free_one_on",
     slots_with_their_holders_are_read_from_the_lowest_free_one_on},
    {"known_free_slots_are_not_read", known_free_slots_are_not_read},
    {"seats_are_read_as_they_were_written", seats_are_read_as_they_were_written},
    {"best_seats_are_granted", best_seats_are_granted},
    {"waiter_for_best_seats_is_granted_when_they_are_free", waiter_for_best_seats_is_granted_when_they_are_free},
    {"living_servers_are_read_without_a_queue", living_servers_are_read_without_a_queue},
    {"waiter_is_granted_on_behalf_of_another_server", waiter_is_granted_on_behalf_of_another_server},
    {"kept_place_is_due_and_may_be_entered_again", kept_place_is_due_and_may_be_entered_again},
    {"due_requests_of_both_states_are_in_order", due_requests_of_both_states_are_in_order},
    {"removed_place_gives_way_to_its_key", removed_place_gives_way_to_its_key},
    {"place_that_is_gone_fails_the_batch", place_that_is_gone_fails_the_batch},
    {"place_that_is_gone_fails_a_batch_that_grants", place_that_is_gone_fails_a_batch_that_grants},
    {"mail_is_read_and_deleted_by_its_server", mail_is_read_and_deleted_by_its_server},
    {"cached_batch_commits", cached_batch_commits},
    {"cached_refusal_is_proved", cached_refusal_is_proved},
    {"cached_batch_with_an_older_version_changes_nothing", cached_batch_with_an_older_version_changes_nothing},
    {"cached_batch_of_two_semaphores_needs_both_versions", cached_batch_of_two_semaphores_needs_both_versions},
    {"cached_batch_with_a_used_key_changes_nothing", cached_batch_with_a_used_key_changes_nothing},
    {"cached_batch_proves_that_keys_are_absent", cached_batch_proves_that_keys_are_absent},
    {"cached_batch_proves_the_time_and_the_epoch", cached_batch_proves_the_time_and_the_epoch},
    {"cached_batch_is_not_stopped_by_a_tick", cached_batch_is_not_stopped_by_a_tick},
    {"cached_batch_proves_that_its_permitd_lives", cached_batch_proves_that_its_permitd_lives},
    {"cached_batch_does_not_wait_for_a_request_that_it_expires",
     cached_batch_does_not_wait_for_a_request_that_it_expires},
    {"event_is_read_when_it_has_a_number", event_is_read_when_it_has_a_number},
    {"event_has_the_metadata_of_its_request", event_has_the_metadata_of_its_request},
    {"events_of_a_key_are_in_order", events_of_a_key_are_in_order},
    {"event_of_a_rolled_back_batch_takes_no_number", event_of_a_rolled_back_batch_takes_no_number},
    {"numbers_go_on_through_another_store", numbers_go_on_through_another_store},
    {"oldest_events_are_deleted_and_their_readers_told", oldest_events_are_deleted_and_their_readers_told},
    {"full_feed_has_an_event_gap_and_reopens", full_feed_has_an_event_gap_and_reopens},
    {"events_are_left_out_only_while_the_feed_is_full", events_are_left_out_only_while_the_feed_is_full},
    {"reader_of_lost_events_is_told", reader_of_lost_events_is_told},
    {"places_at_dead_servers_are_abandoned", places_at_dead_servers_are_abandoned},
};
const size_t contract_case_count = ARRAY_LENGTH(contract_cases);
