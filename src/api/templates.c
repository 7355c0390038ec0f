/* SPDX-License-Identifier: MIT */
/*
 * /v1/templates: put, get, list and delete templates, from which semaphores are created on first use. All run on
 * readers' sessions.
 */
#include "store/templates.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/access.h"
#include "api/json_out.h"
#include "api/operations.h"
#include "api/problem.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/semaphores.h"
#include "api/service.h"

static void answer_template(struct exchange *exchange, const struct template *template)
{
    struct answer *answer = &exchange->answer;
    const struct viewer viewer = viewer_of(exchange);
    write_template(&answer->body, &viewer, template);
    snprintf(answer->etag, sizeof answer->etag, "\"%" PRIu64 "\"", template->settings.config_version);
}

/* Answers a change with this refusal (NULL: none), or of unknown outcome. Returns other failures. */
static enum permit_status answer_failed_change(struct exchange *exchange, enum permit_status status,
                                               const char *refusal)
{
    if (status == PERMIT_DATABASE_LOST)
        problem_answer(exchange, PERMIT_OUTCOME_UNKNOWN,
                       "the template may or may not have been changed; read it to find out");
    else if (refusal)
        problem_answer(exchange, status, refusal);
    else
        return status;
    return PERMIT_OK;
}

/* ---- PUT ---- */

static enum permit_status answer_put(struct exchange *exchange, struct store *store)
{
    struct template_change *put = exchange->context;
    enum permit_status status = query_begin_change(exchange);
    if (status != PERMIT_OK)
        return status;
    status = store->templates->put(store, put, &exchange->arena);
    if (status != PERMIT_OK)
        return answer_failed_change(exchange, status, put->ret_refusal);
    exchange->answer.http_status = put->ret_created ? 201 : 200;
    answer_template(exchange, &put->ret_template);
    return PERMIT_OK;
}

bool template_put(struct exchange *exchange)
{
    struct template_change *put = arena_alloc(&exchange->arena, sizeof *put);
    if (!put)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    enum permit_status status = semaphore_read_template(exchange, &put->change);
    if (status != PERMIT_OK)
        return operation_refuse(exchange, status);
    if (!semaphore_check_feed(exchange, &put->change) || !semaphore_read_preconditions(exchange, &put->change) ||
        !semaphore_take_units(exchange, &put->change))
        return true;
    put->prefix = exchange->path_values[0];
    put->default_ttl_ms = engine_settings_now(exchange->service->engine).plan.default_ttl_ms;
    return query_submit(exchange, QUERY_OPERATOR, answer_put, put);
}

/* ---- DELETE ---- */

static enum permit_status answer_delete(struct exchange *exchange, struct store *store)
{
    struct template template;
    enum permit_status status = query_begin_change(exchange);
    if (status != PERMIT_OK)
        return status;
    status = store->templates->delete (store, exchange->path_values[0], &exchange->arena, &template);
    if (status != PERMIT_OK)
        return answer_failed_change(exchange, status, NULL);
    const struct viewer viewer = viewer_of(exchange);
    write_template(&exchange->answer.body, &viewer, &template);
    return PERMIT_OK;
}

bool template_delete(struct exchange *exchange)
{
    return query_submit(exchange, QUERY_OPERATOR, answer_delete, NULL);
}

/* ---- GET ---- */

static enum permit_status answer_get(struct exchange *exchange, struct store *store)
{
    struct template template;
    enum permit_status status = store->templates->get(store, exchange->path_values[0], &exchange->arena, &template);
    if (status == PERMIT_OK)
        answer_template(exchange, &template);
    return status;
}

bool template_get(struct exchange *exchange)
{
    return query_submit(exchange, QUERY_ROW, answer_get, NULL);
}
