/* SPDX-License-Identifier: MIT */
#include "api/routes.h"

#include "api/problem.h"
#include "api/service.h"
#include "core/name.h"
#include "http/origin.h"
#include "http/router.h"
#include "http/server.h"

enum { KIB = 1024, EMPTY_BODY = KIB, USUAL_BODY = 256 * KIB };

/*
 * {semaphore}, {prefix}, {external_id} and {owner} stand for one segment of the path. The path is split before it is
 * percent-decoded. The values are checked here. The most frequent routes come first.
 */
/* clang-format off */
static const struct route routes[] = {
    /* method        path                                           handler                body             query parameters */
    {METHOD_POST,    "/v1/requests",                                request_acquire,       USUAL_BODY,      {NULL}},
    {METHOD_DELETE,  "/v1/requests/{external_id}",                  request_release,       0,               {"confirmed"}},
    {METHOD_POST,    "/v1/requests/{external_id}/renew",            request_renew,         USUAL_BODY,      {NULL}},
    {METHOD_POST,    "/v1/requests/{external_id}/confirm",          request_confirm,       EMPTY_BODY,      {NULL}},
    {METHOD_POST,    "/v1/batch",                                   request_batch,         SERVER_MAX_BODY, {NULL}},
    {METHOD_GET,     "/v1/requests/{external_id}",                  request_get,           0,               {NULL}},
    {METHOD_GET,     "/v1/requests/{external_id}/why",              request_why,           0,               {NULL}},
    {METHOD_GET,     "/v1/requests",                                request_list,          0,
                                                        {"owner", "semaphore", "state", "at", "after", "limit"}},
    {METHOD_POST,    "/v1/requests/{external_id}/force-release",    request_force_release, USUAL_BODY,      {NULL}},
    {METHOD_GET,     "/v1/semaphores/{semaphore}",                  semaphore_get,         0,               {NULL}},
    {METHOD_GET,     "/v1/semaphores/{semaphore}/fence",            semaphore_fence,       0,               {"token", "slot"}},
    {METHOD_GET,     "/v1/semaphores/{semaphore}/holders",          semaphore_holders,     0,               {"after", "limit"}},
    {METHOD_GET,     "/v1/semaphores/{semaphore}/waiters",          semaphore_waiters,     0,               {"after", "limit"}},
    {METHOD_GET,     "/v1/semaphores/{semaphore}/slots",            semaphore_slots,       0,
                                                        {"state", "prefix", "after", "limit"}},
    {METHOD_GET,     "/v1/semaphores/{semaphore}/events",           semaphore_events,      0,               {"after", "limit"}},
    {METHOD_GET,     "/v1/semaphores",                              semaphore_list,        0,
                                                        {"prefix", "after", "limit"}},
    {METHOD_PUT,     "/v1/semaphores/{semaphore}",                  semaphore_put,         USUAL_BODY,      {NULL}},
    {METHOD_PUT,     "/v1/semaphores/{semaphore}/slots",            semaphore_labels,      SERVER_MAX_BODY, {"from"}},
    {METHOD_DELETE,  "/v1/semaphores/{semaphore}",                  semaphore_retire,      0,               {"force", "reason"}},
    {METHOD_POST,    "/v1/semaphores/{semaphore}/pause",            semaphore_pause,       USUAL_BODY,      {NULL}},
    {METHOD_POST,    "/v1/semaphores/{semaphore}/resume",           semaphore_resume,      EMPTY_BODY,      {NULL}},
    {METHOD_PUT,     "/v1/templates/{prefix}",                      template_put,        USUAL_BODY,      {NULL}},
    {METHOD_GET,     "/v1/templates/{prefix}",                      template_get,          0,               {NULL}},
    {METHOD_DELETE,  "/v1/templates/{prefix}",                      template_delete,       0,               {NULL}},
    {METHOD_GET,     "/v1/templates",                               template_list,         0,
                                                        {"prefix", "after", "limit"}},
    {METHOD_POST,    "/v1/fence/bump",                              fence_bump,            USUAL_BODY,      {NULL}},
    {METHOD_PUT,     "/v1/owners/{owner}",                          owner_put,             USUAL_BODY,      {NULL}},
    {METHOD_GET,     "/v1/owners/{owner}",                          owner_get,             0,               {NULL}},
    {METHOD_DELETE,  "/v1/owners/{owner}",                          owner_delete,          0,               {NULL}},
    {METHOD_GET,     "/v1/servers",                                 servers_list,          0,               {NULL}},
    {METHOD_GET,     "/v1/doctor",                                  ops_doctor,            0,               {NULL}},
    {METHOD_GET,     "/healthz",                                    ops_health,            0,               {NULL}},
    {METHOD_GET,     "/readyz",                                     ops_ready,             0,               {NULL}},
    {METHOD_GET,     "/metrics",                                    ops_metrics,           0,               {NULL}},
    {METHOD_GET,     "/openapi.json",                               ops_openapi,           0,               {NULL}},
};
/* clang-format on */

static const struct route_table table = {routes, ARRAY_LENGTH(routes)};

/* Which values a path parameter may have. */
static const struct {
    const char *parameter;
    bool (*is_valid)(struct bytes value);
    const char *expected;
} path_parameters[] = {
    {"{semaphore}", name_is_semaphore, "a semaphore's name is 1 to 255 bytes of A-Z a-z 0-9 . _ : @ - , not . or .."},
    {"{prefix}", name_is_semaphore, "a prefix is 1 to 255 bytes of A-Z a-z 0-9 . _ : @ - , not . or .."},
    {"{external_id}", name_is_key, "an external_id is 1 to 255 bytes of printable ASCII without space, not . or .."},
    {"{owner}", name_is_key, "an owner is 1 to 255 bytes of printable ASCII without space, not . or .."},
};

static enum permit_status check_path_value(const struct exchange *exchange, const struct route *route,
                                           struct buf *message)
{
    for (size_t i = 0; i < ARRAY_LENGTH(path_parameters); i++) {
        if (!strstr(route->path, path_parameters[i].parameter) || path_parameters[i].is_valid(exchange->path_values[0]))
            continue;
        buf_append_text(message, path_parameters[i].expected);
        return PERMIT_INVALID;
    }
    return PERMIT_OK;
}

/* Refuses immediately while the database is unavailable for long, because nothing can be decided. */
static enum permit_status check_available(const struct exchange *exchange, const struct route *route,
                                          struct buf *message)
{
    const struct service *service = exchange->service;
    char sentence[STORE_MESSAGE_SIZE];
    bool needs_none = route->handle == ops_health || route->handle == ops_openapi || route->handle == ops_metrics;
    if (needs_none || !service->is_unavailable || !service->is_unavailable(service->is_unavailable_context, sentence))
        return PERMIT_OK;
    buf_append_text(message, sentence);
    return PERMIT_DATABASE_UNAVAILABLE;
}

/* Checks that permitd serves the host that the request names, and the page that sent it (origin.h). */
static bool check_origin(struct exchange *exchange)
{
    struct service *service = exchange->service;
    unsigned origins, sites;
    struct origin origin = {
        .host = bytes_of(exchange_header(exchange, "Host", NULL)),
        .origin = bytes_of(exchange_header(exchange, "Origin", &origins)),
        .sec_fetch_site = bytes_of(exchange_header(exchange, "Sec-Fetch-Site", &sites)),
    };
    origin.repeated = origins > 1 || sites > 1;
    enum permit_status status = origin_check(&origin, bytes_of(service->allowed_hosts), &service->message);
    return status == PERMIT_OK || !problem_answer(exchange, status, buf_text(&service->message));
}

/* If the route takes no body, the body is still read, because the refusal of the route is clearer than "too large". */
bool routes_admit(struct exchange *exchange, size_t *ret_body_max)
{
    struct bytes segment;
    const struct route *route = exchange->has_body ? router_find(&table, exchange, &segment) : NULL;
    *ret_body_max = route && route->max_body ? route->max_body : USUAL_BODY;
    return check_origin(exchange);
}

/* Reads what the route describes, and checks it before the handler runs. */
static enum permit_status check(struct exchange *exchange, const struct route *route, struct bytes segment,
                                struct buf *message)
{
    enum permit_status status = router_read_path(exchange, segment, message);
    if (status == PERMIT_OK && segment.data)
        status = check_path_value(exchange, route, message);
    if (status == PERMIT_OK)
        status = router_read_query(exchange, route, message);
    if (status == PERMIT_OK)
        status = router_check_body(exchange, route, message);
    return status == PERMIT_OK ? check_available(exchange, route, message) : status;
}

bool routes_handle(struct exchange *exchange)
{
    struct buf *message = &exchange->service->message;
    struct bytes segment = {0};
    const struct route *route = router_find(&table, exchange, &segment);
    buf_clear(message);
    enum permit_status status =
        route ? check(exchange, route, segment, message) : router_answer_other(&table, exchange, message);
    if (status != PERMIT_OK)
        return problem_answer(exchange, status, message->length ? buf_text(message) : NULL);
    return !route || route->handle(exchange);
}
