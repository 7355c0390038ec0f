/* SPDX-License-Identifier: MIT */
/* Cases of batches in one packet (batch->commit_if_unchanged): what another store did since their rows were read. */
#include "contract.h"
#include "store/servers.h"

enum { SLACK_S = 60 };

/* Decides the operation, gives its locks back, and assumes that nothing changes until it is sent. */
static struct assumed decide_and_unlock(struct fixture *fixture, struct operation *operation)
{
    MUST_OK(fixture->store,
            fixture_advance_epoch(fixture->store, EPOCH_SERVER, 0, 0)); /* the first permitd serves it */
    MUST(batch_decide(fixture, operation)->status == PERMIT_OK);
    MUST_OK(fixture->store, fixture->store->batch->rollback(fixture->store));
    plan_write_all(&fixture->plan);
    return (struct assumed){.epoch = fixture->view.clock.epoch,
                            .now = lease_time(&fixture->view.clock, fixture->view.now),
                            .slack_us = SLACK_S * US_PER_SECOND};
}

static void commits(struct fixture *fixture, const struct assumed *assumed)
{
    enum mismatch mismatch;
    MUST_OK(fixture->store,
            fixture->store->batch->commit_if_unchanged(fixture->store, &fixture->plan.changes, assumed, &mismatch));
    MUST(mismatch == MISMATCH_NONE);
}

/* The packet must be stopped for this reason. */
static void is_stopped(struct fixture *fixture, const struct assumed *assumed, enum mismatch reason)
{
    enum mismatch mismatch;
    enum permit_status status =
        fixture->store->batch->commit_if_unchanged(fixture->store, &fixture->plan.changes, assumed, &mismatch);
    MUST(status == PERMIT_CONFLICT);
    MUST(mismatch == reason);
    MUST_OK(fixture->store, fixture->store->batch->rollback(fixture->store));
}

/* Returns true if a request has the key. */
static bool exists(struct fixture *fixture, const char *key)
{
    struct operation renew = {.kind = OP_RENEW, .external_id = bytes_of(key)};
    bool found = batch_decide(fixture, &renew)->status != PERMIT_UNKNOWN_REQUEST;
    MUST_OK(fixture->store, fixture->store->batch->rollback(fixture->store));
    return found;
}

void cached_batch_commits(struct fixture *one, struct fixture *two)
{
    struct want wants[] = {{.semaphore = BYTES("alpha"), .count = 2}, {.semaphore = BYTES("beta"), .count = 4}};
    struct operation acquire = acquire_of("k", wants, 2);
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("k")};
    struct assumed assumed = decide_and_unlock(one, &acquire);
    commits(one, &assumed);
    assumed = decide_and_unlock(two, &release);
    MUST(two->view.request_count == 1 && two->view.requests[0].permit_count == 2);
    MUST(two->view.semaphores[0].in_use + two->view.semaphores[1].in_use == 6);
    commits(two, &assumed);
    MUST(batch_run(one, &release)->already_released);
}

/* P5: a refusal changes nothing, and holds only if no unit was given back and the key was not granted meanwhile. */
void cached_refusal_is_proved(struct fixture *one, struct fixture *two)
{
    struct want all[] = {{.semaphore = BYTES("beta"), .count = 10}};
    struct want mine[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation holder = acquire_of("holder", all, 1), refused = acquire_of("k", mine, 1);
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("holder")};
    const struct bytes absent[] = {BYTES("k")};
    MUST_OK(one->store, fixture_advance_epoch(one->store, EPOCH_SERVER, 0, 0));
    MUST(batch_decide(two, &refused)->created);
    all[0].count = two->view.semaphores[0].capacity;
    MUST_OK(two->store, two->store->batch->rollback(two->store));
    MUST(batch_run(two, &holder)->created);
    MUST(batch_decide(one, &refused)->status == PERMIT_NO_CAPACITY);
    MUST_OK(one->store, one->store->batch->rollback(one->store));
    MUST(one->plan.changes.empty && one->plan.changes.semaphore_count == 1);
    struct assumed assumed = {.epoch = one->view.clock.epoch,
                              .now = lease_time(&one->view.clock, one->view.now),
                              .slack_us = SLACK_S * US_PER_SECOND,
                              .absent = absent,
                              .absent_count = 1};
    struct assumed wrong = assumed;
    wrong.epoch++;
    is_stopped(one, &wrong, MISMATCH_GUARD);
    commits(one, &assumed);
    commits(one, &assumed); /* it has left no lock and no row */
    MUST(!exists(two, "k"));
    MUST(batch_run(two, &release)->status == PERMIT_OK);
    is_stopped(one, &assumed, MISMATCH_VERSION);
    MUST(batch_run(two, &refused)->created);
    MUST(exists(two, "k"));
    one->plan.changes.semaphores[0].expected_version = two->view.semaphores[0].version;
    is_stopped(one, &assumed, MISMATCH_KEY);
}

void cached_batch_with_an_older_version_changes_nothing(struct fixture *one, struct fixture *two)
{
    struct want mine[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct want other[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation acquire = acquire_of("k", mine, 1);
    struct operation before = acquire_of("other", other, 1);
    struct assumed assumed = decide_and_unlock(one, &acquire);
    MUST(batch_run(two, &before)->created);
    is_stopped(one, &assumed, MISMATCH_VERSION);
    MUST(!exists(two, "k"));
    assumed = decide_and_unlock(one, &acquire);
    commits(one, &assumed);
    MUST(exists(two, "k"));
}

/* A renewal raises the version of every semaphore of its request. */
void cached_batch_of_two_semaphores_needs_both_versions(struct fixture *one, struct fixture *two)
{
    struct want held[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct want wants[] = {{.semaphore = BYTES("alpha"), .count = 1}, {.semaphore = BYTES("beta"), .count = 1}};
    struct operation hold = acquire_of("held", held, 1);
    struct operation acquire = acquire_of("k", wants, 2);
    struct operation renew = {.kind = OP_RENEW, .external_id = BYTES("held")};
    MUST(batch_run(two, &hold)->created);
    struct assumed assumed = decide_and_unlock(one, &acquire);
    MUST(batch_run(two, &renew)->status == PERMIT_OK);
    is_stopped(one, &assumed, MISMATCH_VERSION);
    MUST(!exists(two, "k"));
}

void cached_batch_with_a_used_key_changes_nothing(struct fixture *one, struct fixture *two)
{
    struct want mine[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct want other[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    struct operation acquire = acquire_of("k", mine, 1);
    struct operation before = acquire_of("k", other, 1);
    struct assumed assumed = decide_and_unlock(one, &acquire);
    MUST(batch_run(two, &before)->created);
    is_stopped(one, &assumed, MISMATCH_KEY);
    struct lock_set set = lock_set_of(one, &acquire);
    MUST_OK(one->store, one->store->batch->lock(one->store, &set, &one->arena, &one->view));
    MUST(one->view.semaphores[0].in_use == 0);
    MUST_OK(one->store, one->store->batch->rollback(one->store));
}

void cached_batch_proves_that_keys_are_absent(struct fixture *one, struct fixture *two)
{
    const struct bytes keys[] = {BYTES("b"), BYTES("c")};
    struct want mine[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct want other[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    struct operation acquire = acquire_of("a", mine, 1);
    struct operation before = acquire_of("c", other, 1);
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("a")};
    struct assumed assumed = decide_and_unlock(one, &acquire);
    assumed.absent = keys;
    assumed.absent_count = 2;
    commits(one, &assumed);
    MUST(batch_run(two, &before)->created);
    assumed = decide_and_unlock(one, &release);
    assumed.absent = keys;
    assumed.absent_count = 2;
    is_stopped(one, &assumed, MISMATCH_KEY);
    assumed.absent_count = 1;
    commits(one, &assumed);
}

void cached_batch_proves_the_time_and_the_epoch(struct fixture *one, struct fixture *two)
{
    struct want wants[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation acquire = acquire_of("k", wants, 1);
    struct assumed right = decide_and_unlock(one, &acquire);
    struct assumed wrong = right;
    wrong.epoch++;
    is_stopped(one, &wrong, MISMATCH_GUARD);
    wrong = right;
    wrong.now += 1000 * US_PER_SECOND; /* its time has not come */
    is_stopped(one, &wrong, MISMATCH_GUARD);
    wrong = right;
    wrong.now -= 2 * SLACK_S * US_PER_SECOND; /* its time has passed */
    is_stopped(one, &wrong, MISMATCH_GUARD);
    MUST(!exists(two, "k"));
    commits(one, &right);
    MUST(exists(two, "k"));
}

/* Another permitd writes this: the lease clock of the database moves by `by`. */
static void tick(struct fixture *fixture, int64_t by)
{
    struct tick tick = {0};
    bool won;
    MUST_OK(fixture->store, fixture->store->clock->read_tick(fixture->store, &tick));
    struct lease_row after = tick.ret_row;
    after.ticks++;
    after.clock.offset_us -= by;
    after.clock.tick_at = tick.ret_now;
    MUST_OK(fixture->store, fixture->store->clock->write_tick(fixture->store, &tick.ret_row, &after, &won));
    MUST(won);
}

/* Each tick changes the row. The lease time is what must be right. */
void cached_batch_is_not_stopped_by_a_tick(struct fixture *one, struct fixture *two)
{
    struct want wants[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation acquire = acquire_of("k", wants, 1);
    struct assumed assumed = decide_and_unlock(one, &acquire);
    tick(two, -1000LL * US_PER_SECOND);
    is_stopped(one, &assumed, MISMATCH_GUARD);
    tick(two, 2000LL * US_PER_SECOND);
    is_stopped(one, &assumed, MISMATCH_GUARD);
    tick(two, (SLACK_S / 2 - 1000LL) * US_PER_SECOND);
    commits(one, &assumed);
    MUST(exists(two, "k"));
}

void cached_batch_proves_that_its_permitd_lives(struct fixture *one, struct fixture *two)
{
    struct want wants[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation acquire = acquire_of("k", wants, 1);
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("k")};
    struct server_self self;
    MUST_OK(one->store, fixture_advance_epoch(one->store, EPOCH_SERVER, 0, 0));
    MUST_OK(one->store, one->store->servers->join(one->store, BYTES("http://a"), BYTES("1.0"), &self));
    struct assumed assumed = decide_and_unlock(one, &acquire);
    assumed.server_id = self.id;
    commits(one, &assumed);
    assumed = decide_and_unlock(one, &release);
    assumed.server_id = self.id;
    MUST_OK(two->store, two->store->servers->leave(two->store, &self));
    is_stopped(one, &assumed, MISMATCH_GUARD);
    assumed.server_id = 0; /* it does not matter to this batch */
    commits(one, &assumed);
    MUST(batch_run(two, &release)->already_released);
}

/* P23: the batch has the semaphore when it comes to the row of the request. */
void cached_batch_does_not_wait_for_a_request_that_it_expires(struct fixture *one, struct fixture *two)
{
    struct want want = {.semaphore = BYTES("beta"), .count = 4};
    struct operation acquire = acquire_of("k", &want, 1);
    struct operation expire = {.kind = OP_EXPIRE, .external_id = BYTES("k"), .expire_as = END_OWNER_DEAD};
    MUST(batch_run(one, &acquire)->created);
    struct assumed assumed = decide_and_unlock(one, &expire);
    lock_as_stranger(two, "k");
    is_stopped(one, &assumed, MISMATCH_ROW);
    MUST_OK(two->store, two->store->batch->rollback(two->store));
    commits(one, &assumed);
    MUST(batch_run(two, &acquire)->status == PERMIT_ENDED);
}
