/* SPDX-License-Identifier: MIT */
#include "contract.h"

#include "store/audit.h"
#include "store/owners.h"
#include "store/query.h"
#include "store/retention_batch.h"
#include "store/servers.h"
#include "store/templates.h"

#define KEY BYTES("k")

/* The row of a semaphore, read by the store. */
static struct semaphore semaphore_named(struct fixture *fixture, struct bytes name)
{
    struct resolve_name resolved = {.name = name};
    struct resolve resolve = {.names = &resolved, .name_count = 1};
    struct semaphore_page page;
    MUST_OK(fixture->store, store_resolve(fixture->store, &resolve, &fixture->arena));
    MUST(resolved.ret_id != 0);
    MUST_OK(fixture->store, store_semaphores(fixture->store, &resolved.ret_id, 1, &fixture->arena, &page));
    MUST(page.count == 1 && page.rows[0].id == resolved.ret_id);
    return page.rows[0];
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
    MUST_OK(two->store, store_lock(two->store, &set, &two->arena, &two->view));
    MUST(two->view.semaphore_count == 1 && two->view.semaphores[0].version > version);
    MUST(two->view.semaphores[0].in_use == 1 && two->view.semaphores[0].next_permit_id == 2);
    MUST(two->view.request_count == 1 && bytes_equal(two->view.requests[0].external_id, KEY));
    MUST(two->view.requests[0].state == REQUEST_ACQUIRED);
    MUST_OK(two->store, store_rollback(two->store));
}

static void rollback_writes_nothing(struct fixture *one, struct fixture *two)
{
    struct want wants[2];
    struct operation acquire = acquire_both(wants);
    MUST(batch_decide(one, &acquire)->status == PERMIT_OK && !one->plan.changes.empty);
    MUST_OK(one->store, store_rollback(one->store));
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
static void concurrent_replays_of_a_tombstone_both_succeed(struct fixture *one, struct fixture *two)
{
    struct operation release = {.kind = OP_RELEASE, .external_id = KEY};
    MUST(batch_run(one, &release)->status == PERMIT_OK);
    (void)batch_decide(one, &release);
    (void)batch_decide(two, &release);
    MUST_OK(one->store, store_apply(one->store, &one->plan.changes));
    MUST_OK(two->store, store_apply(two->store, &two->plan.changes));
}

static void second_new_request_with_one_key_conflicts(struct fixture *one, struct fixture *two)
{
    struct want alpha[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation first = acquire_of("k", alpha, 1);
    struct operation second = acquire_of("k", beta, 1);
    MUST(batch_decide(one, &first)->status == PERMIT_OK);
    MUST(batch_decide(two, &second)->status == PERMIT_OK);
    MUST_OK(one->store, store_apply(one->store, &one->plan.changes));
    MUST(store_apply(two->store, &two->plan.changes) == PERMIT_CONFLICT);
    MUST_OK(two->store, store_rollback(two->store));
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
    MUST_OK(one->store, store_rollback(one->store));
    is_used(two, 0, 1);
}

static void ids_are_reserved_once(struct fixture *one, struct fixture *two)
{
    struct id_range a, b, c;
    uint64_t epoch;
    MUST_OK(one->store, store_reserve_ids(one->store, 10000, &a, &epoch));
    MUST_OK(two->store, store_reserve_ids(two->store, 10000, &b, &epoch));
    MUST_OK(one->store, store_reserve_ids(one->store, 10000, &c, &epoch));
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
    MUST_OK(two->store, store_floors(two->store, ids, 2, floors));
    MUST(floors[0] == token && floors[1] == 0);
    MUST(batch_run(one, &release)->status == PERMIT_OK);
    MUST_OK(two->store, store_floors(two->store, ids, 1, floors));
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
    MUST_OK(two->store, store_due(two->store, &page, &two->arena));
    MUST(page.ret_count == 1 && bytes_equal(page.ret_requests[0].external_id, BYTES("soon")));
    MUST(page.ret_requests[0].due_at > page.ret_now);
    page.after_due_at = page.ret_requests[0].due_at;
    page.after_id = page.ret_requests[0].id;
    MUST_OK(two->store, store_due(two->store, &page, &two->arena));
    MUST(page.ret_count == 1 && bytes_equal(page.ret_requests[0].external_id, BYTES("late")));
}

static void holders_are_listed_by_token(struct fixture *one, struct fixture *two)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation first = acquire_of("a", beta, 1), second = acquire_of("b", beta, 1);
    struct holder_row *rows;
    struct query_time time;
    size_t count;
    MUST(batch_run(one, &first)->status == PERMIT_OK && batch_run(one, &second)->status == PERMIT_OK);
    const struct store_queries *queries = two->store->queries;
    MUST_OK(two->store, queries->holders(two->store, BYTES("beta"), 0, 10, &two->arena, &rows, &count, &time));
    MUST(count == 2 && rows[0].permit.token < rows[1].permit.token);
    MUST(bytes_equal(rows[0].request.external_id, BYTES("a")));
    MUST_OK(two->store,
            queries->holders(two->store, BYTES("beta"), rows[0].permit.token, 1, &two->arena, &rows, &count, &time));
    MUST(count == 1 && bytes_equal(rows[0].request.external_id, BYTES("b")));
    MUST(queries->holders(two->store, BYTES("none"), 0, 10, &two->arena, &rows, &count, &time) ==
         PERMIT_UNKNOWN_SEMAPHORE);
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
    const struct retention_task due = {.kind = RETENTION_DUE, .rows = 100, .retention_rows = 1000000};
    struct retention_result deleted;
    MUST_OK(store, store->retention->batch(store, &due, &two->arena, &deleted));
    MUST(deleted.deleted == 0);
    const struct audit_place start = {0};
    struct audit_result audited;
    struct audit_place place;
    MUST_OK(store, store->audit->requests(store, &start, &two->arena, &audited, &place));
    MUST(audited.drift_count == 0);
}

static void epoch_rises_for_the_server_that_saw_it(struct fixture *one, struct fixture *two)
{
    struct tick tick = {0};
    MUST_OK(one->store, store_raise_epoch(one->store, EPOCH_SERVER, 0, 0)); /* a new database gets its identity */
    MUST_OK(one->store, store_tick(one->store, &tick));
    MUST(tick.ret_same_server);
    uint64_t epoch = tick.ret_epoch;
    MUST_OK(one->store, store_raise_epoch(one->store, EPOCH_TOKENS, epoch + 1, 0)); /* another one has raised it */
    MUST_OK(two->store, store_tick(two->store, &tick));
    MUST(tick.ret_epoch == epoch);
    MUST_OK(two->store, store_raise_epoch(two->store, EPOCH_TOKENS, epoch, 0));
    MUST_OK(one->store, store_tick(one->store, &tick));
    MUST(tick.ret_epoch > epoch);
}

static void tick_sees_tokens_that_would_be_issued_again(struct fixture *one, struct fixture *two)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation acquire = acquire_of("k", beta, 1);
    MUST_OK(one->store, store_raise_epoch(one->store, EPOCH_SERVER, 0, 0));
    uint64_t token = batch_run(one, &acquire)->request->permits[0].token;
    struct tokens_seen seen = {semaphore_named(one, BYTES("beta")).id, token + 1};
    struct tick tick = {.seen = &seen, .seen_count = 1};
    MUST_OK(two->store, store_tick(two->store, &tick));
    MUST(!tick.ret_tokens_behind);
    seen.next = token + 2;
    MUST_OK(two->store, store_tick(two->store, &tick));
    MUST(tick.ret_tokens_behind && !tick.ret_won);
}

static void servers_join_live_and_leave(struct fixture *one, struct fixture *two)
{
    const struct store_servers *servers = one->store->servers;
    struct server_self first, second;
    struct server_heartbeat heartbeat = {0};
    struct server_row *rows;
    size_t count;
    bool declared = true;
    MUST_OK(one->store, store_raise_epoch(one->store, EPOCH_SERVER, 0, 0)); /* a database without identity: no ids */
    MUST_OK(one->store, servers->join(one->store, BYTES("http://a"), BYTES("1.0"), &first));
    MUST_OK(two->store, servers->join(two->store, BYTES("http://b"), BYTES("1.0"), &second));
    MUST(first.id && second.id && first.id != second.id);
    MUST_OK(one->store, servers->heartbeat(one->store, &first, &heartbeat));
    MUST(heartbeat.ret_alive && heartbeat.ret_other_count == 1 && heartbeat.ret_others[0].id == second.id);
    struct server_other other = heartbeat.ret_others[0];
    other.ticks++; /* it has written others since they were read */
    MUST_OK(one->store, servers->declare_dead(one->store, &other, heartbeat.ret_now, &declared));
    MUST(!declared);
    MUST_OK(one->store, servers->remove_dead(one->store, heartbeat.ret_now));
    MUST_OK(two->store, servers->list(two->store, &two->arena, &rows, &count));
    MUST(count == 2 && rows[0].id == first.id && rows[0].alive && rows[1].id == second.id && rows[1].alive);
    MUST_OK(one->store, servers->leave(one->store, &first));
    MUST_OK(two->store, servers->list(two->store, &two->arena, &rows, &count));
    MUST(count == 1 && rows[0].id == second.id);
    MUST_OK(one->store, servers->heartbeat(one->store, &first, &heartbeat));
    MUST(!heartbeat.ret_alive);
}

const struct contract_case contract_cases[] = {
    {"grant_and_release_are_seen_by_another_store", grant_and_release_are_seen_by_another_store},
    {"replay_reads_the_grant", replay_reads_the_grant},
    {"lock_reads_what_another_store_committed", lock_reads_what_another_store_committed},
    {"rollback_writes_nothing", rollback_writes_nothing},
    {"release_of_an_unknown_key_leaves_a_tombstone", release_of_an_unknown_key_leaves_a_tombstone},
    {"concurrent_replays_of_a_tombstone_both_succeed", concurrent_replays_of_a_tombstone_both_succeed},
    {"second_new_request_with_one_key_conflicts", second_new_request_with_one_key_conflicts},
    {"batch_does_not_wait_for_other_semaphores", batch_does_not_wait_for_other_semaphores},
    {"ids_are_reserved_once", ids_are_reserved_once},
    {"floor_is_the_smallest_live_token", floor_is_the_smallest_live_token},
    {"held_requests_are_paged_by_deadline", held_requests_are_paged_by_deadline},
    {"holders_are_listed_by_token", holders_are_listed_by_token},
    {"tasks_find_nothing_to_do", tasks_find_nothing_to_do},
    {"epoch_rises_for_the_server_that_saw_it", epoch_rises_for_the_server_that_saw_it},
    {"tick_sees_tokens_that_would_be_issued_again", tick_sees_tokens_that_would_be_issued_again},
    {"servers_join_live_and_leave", servers_join_live_and_leave},
};
const size_t contract_case_count = ARRAY_LENGTH(contract_cases);
