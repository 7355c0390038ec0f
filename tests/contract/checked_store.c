/* SPDX-License-Identifier: MIT */
#include "checked_store.h"

#include <assert.h>

static struct checked_store *checked_of(const struct store *store)
{
    return CONTAINER_OF(store->batch, struct checked_store, batch);
}

/* Returns the store's own methods, of a call that is not one of a batch. */
static const struct store *outside_batch(const struct store *store)
{
    assert(!checked_of(store)->in_batch);
    return &checked_of(store)->inner;
}

/* Returns the store's own methods, of a call of a batch. */
static const struct store *in_batch(const struct store *store)
{
    assert(checked_of(store)->in_batch);
    return &checked_of(store)->inner;
}

static bool ids_ascend(const uint64_t *ids, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (ids[i - 1] >= ids[i])
            return false;
    return true;
}

static bool reads_ascend(const struct queue_read *reads, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (reads[i - 1].semaphore >= reads[i].semaphore)
            return false;
    return true;
}

static enum permit_status reconnect(struct store *store)
{
    return outside_batch(store)->session->reconnect(store);
}

static enum permit_status check_safety(struct store *store)
{
    return outside_batch(store)->session->check_safety(store);
}

static enum permit_status reserve_ids(struct store *store, uint64_t count, struct id_range *ret_range,
                                      uint64_t *ret_epoch)
{
    return outside_batch(store)->batch->reserve_ids(store, count, ret_range, ret_epoch);
}

static enum permit_status await(struct store *store, uint64_t semaphore_id)
{
    const struct store *inner = outside_batch(store);
    checked_of(store)->in_batch = true;
    return inner->batch->await(store, semaphore_id);
}

static enum permit_status lock(struct store *store, const struct lock_set *set, struct arena *arena,
                               struct view *ret_view)
{
    struct checked_store *checked = checked_of(store);
    assert(checked->in_batch == set->lock_held && (!set->semaphore_name.data || set->semaphore_count == 0));
    assert(set->semaphore_count <= BATCH_MAX_SEMAPHORES && set->key_count <= BATCH_MAX_OPERATIONS);
    assert(ids_ascend(set->semaphore_ids, set->semaphore_count));
    checked->in_batch = true;
    return checked->inner.batch->lock(store, set, arena, ret_view);
}

static enum permit_status read_due(struct store *store, const struct shortfall *shortfalls, size_t count,
                                   struct arena *arena, struct view *view)
{
    assert(count > 0 && count <= view->semaphore_count);
    return in_batch(store)->batch->read_due(store, shortfalls, count, arena, view);
}

static enum permit_status lock_requests(struct store *store, const uint64_t *ids, size_t count, struct view *view)
{
    assert(count > 0 && count <= view->request_count && ids_ascend(ids, count));
    return in_batch(store)->batch->lock_requests(store, ids, count, view);
}

static enum permit_status read_waiters(struct store *store, const struct queue_read *reads,
                                       const struct slots_wanted *slots, size_t count, struct arena *arena,
                                       struct view *view)
{
    assert(count <= view->semaphore_count && reads_ascend(reads, count));
    return in_batch(store)->batch->read_waiters(store, reads, slots, count, arena, view);
}

static enum permit_status read_seats(struct store *store, uint64_t semaphore_id, struct arena *arena,
                                     struct seats *ret_seats)
{
    return in_batch(store)->batch->read_seats(store, semaphore_id, arena, ret_seats);
}

static enum permit_status read_glimpses(struct store *store, const uint64_t *ids, size_t count, utc_us aged,
                                        struct arena *arena, struct view *view)
{
    assert(count > 0 && view->glimpse_count + count <= GLIMPSES_MAX && ids_ascend(ids, count));
    return in_batch(store)->batch->read_glimpses(store, ids, count, aged, arena, view);
}

static enum permit_status prepare(struct store *store, const struct changes *changes, const struct assumed *assumed)
{
    const struct store *inner = assumed ? outside_batch(store) : in_batch(store);
    return inner->batch->prepare(store, changes, assumed);
}

static enum permit_status commit(struct store *store, const struct changes *changes)
{
    assert(!changes->empty);
    const struct store *inner = in_batch(store);
    checked_of(store)->in_batch = false;
    return inner->batch->commit(store, changes);
}

static enum permit_status commit_if_unchanged(struct store *store, const struct changes *changes,
                                              const struct assumed *assumed, enum mismatch *ret_mismatch)
{
    assert(changes->semaphore_count > 0);
    enum permit_status status = outside_batch(store)->batch->commit_if_unchanged(store, changes, assumed, ret_mismatch);
    assert(*ret_mismatch == MISMATCH_NONE || status == PERMIT_CONFLICT);
    return status;
}

static enum permit_status rollback(struct store *store)
{
    checked_of(store)->in_batch = false;
    return checked_of(store)->inner.batch->rollback(store);
}

static enum permit_status floors(struct store *store, const uint64_t *semaphore_ids, size_t count, uint64_t *ret_floors)
{
    assert(count > 0);
    return outside_batch(store)->clock->floors(store, semaphore_ids, count, ret_floors);
}

static enum permit_status read_tick(struct store *store, struct tick *tick)
{
    assert(tick->seen_count <= BATCH_MAX_OPERATIONS);
    return outside_batch(store)->clock->read_tick(store, tick);
}

static enum permit_status write_tick(struct store *store, const struct lease_row *read, const struct lease_row *ticked,
                                     bool *ret_won)
{
    assert(ticked->ticks == read->ticks + 1);
    return outside_batch(store)->clock->write_tick(store, read, ticked, ret_won);
}

static enum permit_status advance_epoch(struct store *store, struct epoch_advance *advance)
{
    return outside_batch(store)->clock->advance_epoch(store, advance);
}

static enum permit_status semaphores_of(struct store *store, const uint64_t *ids, size_t count, struct arena *arena,
                                        struct semaphore_page *ret_page)
{
    assert(count > 0 && count <= BATCH_MAX_OPERATIONS);
    return outside_batch(store)->queries->semaphores_of(store, ids, count, arena, ret_page);
}

static enum permit_status due(struct store *store, struct due_page *page, struct arena *arena)
{
    assert(page->limit > 0);
    return outside_batch(store)->queries->due(store, page, arena);
}

static enum permit_status mail(struct store *store, uint64_t server_id, struct page *page)
{
    assert(page->limit > 0);
    return outside_batch(store)->servers->mail(store, server_id, page);
}

static enum permit_status drop_mail(struct store *store, uint64_t server_id, const uint64_t *request_ids, size_t count)
{
    assert(count > 0);
    return outside_batch(store)->servers->drop_mail(store, server_id, request_ids, count);
}

void checked_store_init(struct checked_store *checked, struct store *store)
{
    if (store->session->reconnect == reconnect)
        return;
    *checked = (struct checked_store){.inner = *store, .session = *store->session};
    checked->session.reconnect = reconnect;
    checked->session.check_safety = check_safety;
    checked->batch = (struct store_batch){
        .resolve = store->batch->resolve,
        .reserve_ids = reserve_ids,
        .await = await,
        .lock = lock,
        .read_due = read_due,
        .lock_requests = lock_requests,
        .read_waiters = read_waiters,
        .read_seats = read_seats,
        .read_glimpses = read_glimpses,
        .prepare = prepare,
        .commit = commit,
        .commit_if_unchanged = commit_if_unchanged,
        .rollback = rollback,
    };
    checked->clock = (struct store_clock){
        .floors = floors, .read_tick = read_tick, .write_tick = write_tick, .advance_epoch = advance_epoch};
    if (store->queries)
        checked->queries = *store->queries;
    checked->queries.semaphores_of = semaphores_of;
    checked->queries.due = due;
    if (store->servers)
        checked->servers = *store->servers;
    checked->servers.mail = mail;
    checked->servers.drop_mail = drop_mail;
    store->session = &checked->session;
    store->batch = &checked->batch;
    store->clock = &checked->clock;
    store->queries = &checked->queries;
    store->servers = &checked->servers;
}
