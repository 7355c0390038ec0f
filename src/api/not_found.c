/* SPDX-License-Identifier: MIT */
#include "api/not_found.h"

#include <stdio.h>

#include "api/access.h"
#include "api/namespaces.h"
#include "api/problem.h"
#include "api/service.h"
#include "core/name.h"
#include "store/query.h"

static const struct {
    enum permit_status status;
    enum nearest_kind kind;
    const char *word;
} kinds[] = {
    {PERMIT_UNKNOWN_SEMAPHORE, NEAREST_SEMAPHORE, "semaphore"},
    {PERMIT_UNKNOWN_TEMPLATE, NEAREST_TEMPLATE, "template"},
    {PERMIT_UNKNOWN_OWNER, NEAREST_OWNER, "owner"},
    {PERMIT_UNKNOWN_REQUEST, NEAREST_REQUEST, "request"},
};

static bool find_kind(enum permit_status status, size_t *ret_index)
{
    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++)
        if (kinds[i].status == status) {
            *ret_index = i;
            return true;
        }
    return false;
}

/* Writes the 404. If the object has been created meanwhile, the nearest name is left out. */
static void write_not_found(struct exchange *exchange, size_t kind, struct bytes name, const struct nearest *nearest)
{
    struct bytes missing = key_split(name).key;
    struct bytes other = key_split(nearest->name).key;
    char detail[2 * NAME_MAX_BYTES + 100];
    int length =
        snprintf(detail, sizeof detail, "there is no %s \"%.*s\"", kinds[kind].word, (int)missing.length, missing.data);
    if (nearest->name.data && !nearest->exists)
        snprintf(detail + length, sizeof detail - (size_t)length, "; the nearest name is \"%.*s\"", (int)other.length,
                 other.data);
    (void)problem_answer(exchange, kinds[kind].status, detail);
}

/*
 * Sets *ret_within to the beginning of the names that a 404 may suggest (nearest of store_queries): those by which the
 * caller may see this one. False: it suggests none. Keys and owners may belong to other principals of the namespace, so
 * they are suggested only to a caller that may see all of them.
 */
static bool find_suggested(const struct exchange *exchange, enum nearest_kind kind, struct bytes name,
                           struct bytes *ret_within)
{
    const struct scope *scope = access_scope(exchange);
    if (kind == NEAREST_SEMAPHORE || kind == NEAREST_TEMPLATE)
        return scope_find_prefix(scope, name, ret_within);
    *ret_within = (struct bytes){name.data, name.length - key_split(name).key.length};
    return !scope;
}

/* Finds out whether the name exists, and the nearest name that may be suggested. */
static struct nearest find_nearest(struct exchange *exchange, struct store *store, size_t kind, struct bytes name)
{
    struct nearest nearest = {0};
    struct bytes within = name;
    bool suggests = find_suggested(exchange, kinds[kind].kind, name, &within);
    if (store &&
        store->queries->nearest(store, kinds[kind].kind, name, within, &exchange->arena, &nearest) != PERMIT_OK)
        return (struct nearest){0}; /* the answer is correct without it */
    if (!suggests)
        nearest.name = (struct bytes){0};
    return nearest;
}

bool not_found_answer(struct exchange *exchange, struct store *store, enum permit_status status, struct bytes name)
{
    size_t kind;
    if (!find_kind(status, &kind) || !name.length)
        return false;
    struct nearest nearest = find_nearest(exchange, store, kind, name);
    write_not_found(exchange, kind, name, &nearest);
    return true;
}

/* ---- after a decision ---- */

struct question {
    struct query query;
    struct exchange *exchange;
    size_t kind;
};

/*
 * Finds the missing object and its nearest name: the path parameter, or of an operation that names semaphores the first
 * one that does not exist.
 */
static void nearest_work(struct query *query, struct store *store, enum permit_status status)
{
    struct question *question = CONTAINER_OF(query, struct question, query);
    struct exchange *exchange = question->exchange;
    const struct operation *operation = &call_of(exchange)->first.operation;
    bool wanted = kinds[question->kind].status == PERMIT_UNKNOWN_SEMAPHORE && operation->want_count;
    bool by_path = exchange->path_values[0].length > 0 && !wanted;
    size_t count = by_path ? 1 : operation->want_count;
    for (size_t i = 0; status == PERMIT_OK && i < count; i++) {
        struct bytes name = by_path ? exchange->path_values[0] : operation->wants[i].semaphore;
        struct nearest nearest = find_nearest(exchange, store, question->kind, name);
        if (!by_path && nearest.exists)
            continue;
        write_not_found(exchange, question->kind, name, &nearest);
        break;
    }
    exchange_finish(exchange);
}

void not_found_finish(struct exchange *exchange, enum permit_status status)
{
    struct question *question = arena_alloc(&exchange->arena, sizeof *question);
    if (question && find_kind(status, &question->kind)) {
        question->exchange = exchange;
        question->query = (struct query){.work = nearest_work,
                                         .lane = QUERY_ROW,
                                         .deadline = exchange->deadline,
                                         .turn.principal = access_name(exchange)};
        if (engine_query(exchange->service->engine, &question->query) == PERMIT_OK)
            return;
    }
    exchange_finish(exchange);
}
