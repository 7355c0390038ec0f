/* SPDX-License-Identifier: MIT */
/* Images of locked rows, and the ways to finish an outcome. */
#include "core/planner.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- locked semaphores ---- */

/* Returns the row that begins with this id, of rows in ascending order; NULL: none. */
static const void *find_row(const void *rows, size_t count, size_t size, uint64_t id)
{
    return count ? bsearch(&id, rows, count, size, compare_u64) : NULL;
}

size_t view_semaphore_index(const struct view *view, uint64_t semaphore_id)
{
    const struct semaphore *row = find_row(view->semaphores, view->semaphore_count, sizeof *row, semaphore_id);
    return row ? (size_t)(row - view->semaphores) : view->semaphore_count;
}

/* The images of locked semaphores are in the order of the view. */
struct semaphore_image *planner_image(struct planner *planner, uint64_t semaphore_id)
{
    size_t index = view_semaphore_index(planner->view, semaphore_id);
    return index < planner->view->semaphore_count ? &planner->images[index] : NULL;
}

struct queue_state *planner_known(const struct planner *planner, uint64_t semaphore_id)
{
    const struct view *view = planner->view;
    size_t index = view_semaphore_index(view, semaphore_id);
    if (index < view->semaphore_count)
        return &planner->queues[index];
    const struct glimpse *glimpse = find_row(view->glimpses, view->glimpse_count, sizeof *glimpse, semaphore_id);
    return glimpse ? &planner->queues[view->semaphore_count + (size_t)(glimpse - view->glimpses)] : NULL;
}

struct queue_state *planner_queue(const struct planner *planner, const struct semaphore_image *image)
{
    return &planner->queues[image - planner->images];
}

void semaphore_mark_changed(struct semaphore_image *image)
{
    assert(image->changed || image->semaphore->version == image->expected_version);
    if (!image->changed)
        image->semaphore->version++;
    image->changed = true;
}

bool view_has_locked_all(const struct view *view, const struct request *request)
{
    for (size_t i = 0; i < request_semaphore_count(request); i++)
        if (view_semaphore_index(view, request_semaphore_id(request, i)) == view->semaphore_count)
            return false;
    return true;
}

size_t planner_out_of_scope(struct planner *planner, const struct request *request, const struct scope *scope)
{
    size_t count = 0;
    for (size_t i = 0; scope && i < request_semaphore_count(request); i++) {
        const struct semaphore_image *image = planner_image(planner, request_semaphore_id(request, i));
        count += !image || !scope_covers(scope, image->semaphore->name);
    }
    return count;
}

const struct owner_state *view_owner(const struct view *view, struct bytes name)
{
    for (size_t i = 0; i < view->owner_count; i++)
        if (bytes_equal(view->owners[i].name, name))
            return &view->owners[i];
    return NULL;
}

int compare_key(const void *external_id, const void *row)
{
    return bytes_compare(*(const struct bytes *)external_id, *(const struct bytes *)row);
}

struct key *planner_key(const struct planner *planner, struct bytes external_id)
{
    if (planner->key_count == 0)
        return NULL;
    return bsearch(&external_id, planner->keys, planner->key_count, sizeof *planner->keys, compare_key);
}

const struct request *planner_request(const struct planner *planner, struct bytes external_id)
{
    const struct key *key = planner_key(planner, external_id);
    return key ? key->request : NULL;
}

/* ---- outcomes ---- */

void *planner_list(const struct planner *planner, void *list, size_t count, size_t size)
{
    enum { FIRST = 16 }; /* then it doubles */
    if (count && (count < FIRST || (count & (count - 1))))
        return list;
    void *larger = arena_must_array(planner->arena, count ? 2 * count : FIRST, size);
    return count ? memcpy(larger, list, count * size) : larger;
}

const char *planner_sentence(struct planner *planner, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    assert(length >= 0);
    char *sentence = arena_must_alloc(planner->arena, (size_t)length + 1);
    va_start(arguments, format);
    vsnprintf(sentence, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return sentence;
}

void outcome_refuse(struct outcome *outcome, enum permit_status status, const char *detail)
{
    outcome->status = status;
    outcome->detail = detail;
}

/* Copies the row, because a later operation of the batch may change it again. */
void outcome_attach_row(struct planner *planner, struct outcome *outcome, const struct request *request)
{
    struct request *copy = arena_must_alloc(planner->arena, sizeof *copy);
    *copy = *request;
    outcome->request = copy;
    if (request->state == REQUEST_ACQUIRED && request->ttl_ms == TTL_NONE && request->confirmed_at == NEVER)
        outcome->max_hold_ms = limits_of_request(planner, request).max_hold_ms;
}

/*
 * An answer about a row that it does not otherwise change still writes the row: InnoDB shows a commit to other sessions
 * before it is durable, so a crash could undo the basis of an answer from a bare read. Exception: a row that has ended
 * and may be deleted. It ended long ago, and retention may be deleting it.
 */
void outcome_count_replay(struct planner *planner, struct outcome *outcome, struct key *key)
{
    bool forgotten = key->request->state == REQUEST_RELEASED && key->request->due_at <= planner->now;
    if (!forgotten) {
        key->request->replays++;
        key_change(key);
    }
    outcome_attach_row(planner, outcome, key->request);
}

bool key_is_blocked(struct planner *planner, struct outcome *outcome, struct key *key,
                    const struct operation *operation)
{
    if (key->needs)
        outcome_put_back(planner, outcome, key, operation, NULL, 0);
    else if (key->request && key->request->lock == ROW_LOCKED_ELSEWHERE)
        outcome_refuse(outcome, PERMIT_IN_TRANSACTION, NULL);
    else
        return false;
    return true;
}

size_t semaphores_of_keys(const struct planner *planner, const struct operation *operation, uint64_t *ret_ids)
{
    size_t count = 0;
    for (size_t i = 0; i < operation_key_count(operation); i++) {
        const struct request *request = planner_request(planner, operation_key(operation, i));
        for (size_t j = 0; request && j < request_semaphore_count(request); j++)
            ret_ids[count++] = request_semaphore_id(request, j);
    }
    return u64_sort_unique(ret_ids, count);
}

void outcome_put_back(struct planner *planner, struct outcome *outcome, struct key *key,
                      const struct operation *operation, const uint64_t *more, size_t more_count)
{
    size_t room = operation_key_count(operation) * REQUEST_MAX_SEMAPHORES + operation->want_count + more_count;
    uint64_t *needs = arena_must_array(planner->arena, room, sizeof *needs);
    size_t count = semaphores_of_keys(planner, operation, needs);
    for (size_t i = 0; i < operation->want_count; i++)
        if (operation->wants[i].semaphore_id) /* 0: no such semaphore */
            needs[count++] = operation->wants[i].semaphore_id;
    for (size_t i = 0; i < more_count; i++)
        needs[count++] = more[i];
    /* A key keeps its need once. A waiter keeps it in the walk; a request that has been granted needs no more. */
    const struct request *request = key->request;
    bool waits_no_more = request && request->state == REQUEST_WAITING && !server_is_alive(planner, request->server_id);
    bool keeps = operation_asks(operation->kind) && !key->needs && (!request || waits_no_more);
    outcome->put_back = true;
    outcome->widened = more_count > 0;
    outcome->needs = needs;
    outcome->need_count = u64_sort_unique(needs, count);
    for (size_t i = 0; i < operation_key_count(operation); i++) {
        struct key *each = planner_key(planner, operation_key(operation, i));
        each->needs = needs;
        each->need_count = outcome->need_count;
    }
    if (keeps)
        stand_put_back(planner, operation, needs, outcome->need_count);
}

/* ---- events ---- */

void record_event(struct planner *planner, const struct semaphore_image *image, struct event event)
{
    event.semaphore_id = image->semaphore->id;
    event.next_token = image->semaphore->next_token;
    planner->events = planner_list(planner, planner->events, planner->event_count, sizeof event);
    planner->events[planner->event_count++] = event;
}
