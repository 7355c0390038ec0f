/* SPDX-License-Identifier: MIT */
#include "engine/queue_cache.h"

#include <stdlib.h>

#include "engine/row_cache.h"

enum { QUEUE_MAX = 256 };

static void clear(struct cached_queue *queue)
{
    for (size_t i = 0; i < queue->count; i++)
        free(queue->waiters[i]);
    queue->count = 0;
    queue->known = false;
}

void cached_queue_release(struct cached_queue *queue)
{
    clear(queue);
    free(queue->waiters);
    queue->waiters = NULL;
}

/* Returns true if a client asks for the request, and it waits for this semaphore. */
static bool waits_for(const struct request *request, uint64_t semaphore_id)
{
    for (size_t i = 0; request->state == REQUEST_WAITING && request->server_id && i < request->want_count; i++)
        if (request->wants[i].semaphore_id == semaphore_id)
            return true;
    return false;
}

static bool is_cacheable(const struct request *request, uint64_t server_id)
{
    const struct want *want = &request->wants[0];
    return request->server_id == server_id && request->want_count == 1 && !want->adjacent && !want_is_specific(want);
}

/* False: out of memory, or the request is too large. */
static bool insert(struct cached_queue *queue, const struct request *request)
{
    struct cached_request *cached = cached_request_new(request, NULL);
    size_t at = queue->count;
    if (!cached)
        return false;
    while (at > 0 && request_compare_places(&queue->waiters[at - 1]->request, request) > 0)
        at--;
    memmove(queue->waiters + at + 1, queue->waiters + at, (queue->count - at) * sizeof *queue->waiters);
    queue->waiters[at] = cached;
    queue->count++;
    return true;
}

static void drop(struct cached_queue *queue, uint64_t request_id)
{
    size_t at = 0;
    while (at < queue->count && queue->waiters[at]->request.id != request_id)
        at++;
    if (at == queue->count)
        return;
    free(queue->waiters[at]);
    queue->count--;
    memmove(queue->waiters + at, queue->waiters + at + 1, (queue->count - at) * sizeof *queue->waiters);
}

static bool add(struct cached_queue *queue, const struct request *request, uint64_t server_id)
{
    return queue->count < QUEUE_MAX && is_cacheable(request, server_id) && insert(queue, request);
}

/* Fills the queue with what was read of it. False: that is not all. */
static bool add_read(struct cached_queue *queue, const struct view *read, const struct semaphore *before,
                     uint64_t server_id)
{
    clear(queue);
    for (size_t i = 0; before->waiting && i < read->request_count; i++)
        if (waits_for(&read->requests[i], before->id) && !add(queue, &read->requests[i], server_id))
            return false;
    return (int64_t)queue->count == before->waiting;
}

/* Enters what the plan has changed. False: one of those that wait now is not cached. */
static bool add_changes(struct cached_queue *queue, const struct changes *changes, uint64_t semaphore_id,
                        uint64_t server_id)
{
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        if (change->before && waits_for(change->before, semaphore_id))
            drop(queue, change->before->id);
        if (!change->remove && waits_for(change->request, semaphore_id) && !add(queue, change->request, server_id))
            return false;
    }
    return true;
}

void cached_queue_store(struct cached_queue *queue, const struct view *read, size_t index, const struct plan *plan,
                        bool goes_on, uint64_t server_id)
{
    const struct semaphore *before = &read->semaphores[index];
    const struct semaphore *after = plan->changes.semaphores[index].semaphore;
    bool any = before->waiting || after->waiting;
    if (any && !queue->waiters)
        queue->waiters = malloc(QUEUE_MAX * sizeof *queue->waiters);
    queue->known = (queue->waiters || !any) &&
                   ((goes_on && queue->known) || add_read(queue, read, before, server_id)) &&
                   add_changes(queue, &plan->changes, before->id, server_id) && (int64_t)queue->count == after->waiting;
    if (!queue->known)
        clear(queue);
}

/* Returns true if the waiter may be granted, or be in the way of others. */
static bool may_matter(const struct queue_read *read, const struct request *waiter, int64_t count)
{
    return read->fifo || count <= read->free || waiter->waiting_since <= read->aged;
}

bool cached_queue_load(const struct cached_queue *queue, const struct queue_read *read, uint64_t server_id,
                       struct arena *arena, struct view *view, int64_t *ret_units)
{
    size_t room = read->limit + 1;
    *ret_units = 0;
    view->queues[read->semaphore] = (struct queue_view){.limit = read->limit};
    for (size_t i = 0; queue->known && i < queue->count && room > 0; i++) {
        struct request *waiter = &view->requests[view->request_count];
        if (queue->waiters[i]->request.server_id != server_id || !cached_request_load(queue->waiters[i], arena, waiter))
            return false;
        if (!may_matter(read, waiter, waiter->wants[0].count))
            continue;
        view->request_count++;
        *ret_units += waiter->wants[0].count;
        if (--room == 0)
            view->queues[read->semaphore] =
                (struct queue_view){.beyond_place = waiter->place, .beyond = waiter->id, .limit = read->limit};
    }
    return queue->known;
}
