/* SPDX-License-Identifier: MIT */
/*
 * GET /v1/requests/{external_id}/why: explains why a request waits, with the holders and waiters in its way. Queues,
 * capacity, holders and reservations are read one after the other, so the answer is not a consistent snapshot. It is
 * for people.
 */
#include <stdio.h>

#include "api/access.h"
#include "api/front_cache.h"
#include "api/json_out.h"
#include "api/problem.h"
#include "api/queries.h"
#include "api/refusal.h"
#include "api/routes.h"
#include "api/service.h"
#include "core/name.h"
#include "core/scope.h"
#include "store/query.h"
#include "store/store.h"

/* The rows of the semaphores that the request wants, in the order of its wants. */
struct obstacles {
    struct semaphore_page semaphores; /* those that exist, in any order */
    struct queue_position *positions;
    struct semaphore_front fronts[REQUEST_MAX_SEMAPHORES];
    struct reserver reservers[REQUEST_MAX_SEMAPHORES];
};

/* Reads all semaphores together: a request wants many, and each statement delays the other lists. */
static enum permit_status read_obstacles(struct exchange *exchange, struct store *store, const struct request *request,
                                         const struct query_time *time, struct obstacles *ret_obstacles)
{
    struct service *service = exchange->service;
    uint64_t ids[REQUEST_MAX_SEMAPHORES];
    size_t count = request->want_count;
    struct arena *arena = &exchange->arena;
    bool kept;
    for (size_t i = 0; i < count; i++)
        ids[i] = request->wants[i].semaphore_id;
    enum permit_status status = store->queries->ahead(store, request, arena, &ret_obstacles->positions, &kept);
    if (status == PERMIT_OK)
        status = store->queries->semaphores_of(store, ids, count, arena, &ret_obstacles->semaphores);
    if (status == PERMIT_OK)
        status = front_cache_find(refusals_fronts(service->refusals), store, ids, count, arena, ret_obstacles->fronts);
    if (status == PERMIT_OK)
        status = store->queries->reservers(store, request, engine_protected_since(service->engine, time), arena,
                                           ret_obstacles->reservers);
    return status;
}

/* Writes the state of a semaphore; of a retired one only that it is retired. */
static void write_semaphore_state(struct buf *out, const struct semaphore_page *page, uint64_t id)
{
    const struct semaphore *semaphore = NULL;
    for (size_t i = 0; i < page->count; i++)
        if (page->rows[i].id == id && page->rows[i].retired_at == NEVER)
            semaphore = &page->rows[i];
    if (!semaphore) {
        buf_append_text(out, ",\"retired\":true");
        return;
    }
    write_member_i64(out, "capacity", semaphore->capacity);
    write_member_i64(out, "in_use", semaphore->in_use);
    if (semaphore->paused_reason.data)
        write_member_text(out, "paused_reason", semaphore->paused_reason);
}

/* Writes for which waiter units are reserved, if there is one, and what it lacks as far as the caller may see it. */
static void write_reserver(struct exchange *exchange, const struct reserver *reserver)
{
    struct buf *out = &exchange->answer.body;
    const struct viewer viewer = viewer_of(exchange);
    const char *between = "";
    if (!reserver->external_id.data)
        return;
    buf_append_text(out, ",\"reserved_for\":");
    write_key_begin(out, &viewer, reserver->external_id);
    buf_append_text(out, ",\"lacks\":[");
    for (size_t i = 0; i < reserver->lack_count; i++) {
        if (!scope_covers(access_scope(exchange), reserver->lacks[i]))
            continue;
        buf_append_text(out, between);
        write_text(out, reserver->lacks[i]);
        between = ",";
    }
    buf_append_text(out, "]}");
}

static void write_waiting_for(struct exchange *exchange, const struct request *request, const struct query_time *time,
                              const struct obstacles *obstacles, size_t index)
{
    struct buf *out = &exchange->answer.body;
    const struct viewer viewer = viewer_of(exchange);
    const struct want *want = &request->wants[index];
    const struct semaphore_front *front = &obstacles->fronts[index];
    buf_append_text(out, index ? ",{\"semaphore\":" : "{\"semaphore\":");
    write_text(out, want->semaphore);
    write_member_i64(out, "requested", want->count);
    write_choice(out, want);
    write_semaphore_state(out, &obstacles->semaphores, want->semaphore_id);
    write_position(out, &viewer, &obstacles->positions[index]);
    write_reserver(exchange, &obstacles->reservers[index]);
    write_longest_holders(out, &viewer, front->holders, front->holder_count, time);
    buf_append_char(out, '}');
}

static void write_why(struct exchange *exchange, const struct request *request, const struct query_time *time,
                      utc_us kept_until, const struct obstacles *obstacles)
{
    struct buf *out = &exchange->answer.body;
    const struct viewer viewer = viewer_of(exchange);
    write_key_begin(out, &viewer, request->external_id);
    buf_append_text(out, ",\"state\":\"WAITING\"");
    write_owner(out, &viewer, request->owner);
    buf_append_text(out, ",\"scope\":\"database\"");
    write_wait(out, request, kept_until, time);
    buf_append_text(out, ",\"waiting_for\":[");
    for (size_t i = 0; i < request->want_count; i++)
        write_waiting_for(exchange, request, time, obstacles, i);
    buf_append_text(out, "]}");
}

static enum permit_status explain_wait(struct exchange *exchange, struct store *store, const struct request *request,
                                       const struct query_time *time)
{
    struct obstacles obstacles;
    utc_us *kept_until;
    enum permit_status status = read_obstacles(exchange, store, request, time, &obstacles);
    if (status == PERMIT_OK)
        status = store->queries->kept_until(store, request, 1, 0, time, &exchange->arena, &kept_until);
    if (status == PERMIT_OK)
        write_why(exchange, request, time, *kept_until, &obstacles);
    return status;
}

static enum permit_status explain(struct exchange *exchange, struct store *store)
{
    struct request request;
    struct bytes *names;
    struct query_time time;
    enum permit_status status =
        store->queries->request(store, exchange->path_values[0], &exchange->arena, &request, &names, &time);
    if (status == PERMIT_OK)
        engine_judge(exchange->service->engine, &time);
    if (status == PERMIT_OK && !access_covers_request(exchange, &request, names))
        status = PERMIT_UNKNOWN_REQUEST;
    if (status != PERMIT_OK)
        return status;
    return request.state == REQUEST_WAITING ? explain_wait(exchange, store, &request, &time)
                                            : request_write(exchange, store, &request, names, &time);
}

static enum permit_status answer_why(struct exchange *exchange, struct store *store)
{
    char detail[NAME_MAX_BYTES + 100];
    enum permit_status status = explain(exchange, store);
    if (status != PERMIT_UNKNOWN_REQUEST)
        return status;
    struct bytes key = key_split(exchange->path_values[0]).key;
    snprintf(detail, sizeof detail, "no request \"%.*s\" waits, is held, or has ended", (int)key.length, key.data);
    problem_answer(exchange, status, detail);
    return PERMIT_OK;
}

bool request_why(struct exchange *exchange)
{
    return query_submit(exchange, QUERY_LIST, answer_why, NULL);
}
