/* SPDX-License-Identifier: MIT */
#include "api/routes.h"

#include "api/access.h"
#include "api/call.h"
#include "api/lists.h"
#include "api/namespaces.h"
#include "api/operations.h"
#include "api/problem.h"
#include "api/service.h"
#include "core/name.h"
#include "http/origin.h"
#include "http/router.h"
#include "http/server.h"

enum { KIB = 1024, EMPTY_BODY = KIB, USUAL_BODY = 256 * KIB, STRANGERS_BODY = 16 * KIB };

/* Rights of routes that more than one role has. */
enum {
    RIGHT_LOOK_OR_FENCE = RIGHT_LOOK | RIGHT_FENCE,
    RIGHT_ANY = RIGHT_ALL,
};

#define ROUTE(method, right, cost, path, handle, max_body, ...)                                                        \
    {                                                                                                                  \
        METHOD_##method, RIGHT_##right, COST_##cost, path, handle, max_body,                                           \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

/*
 * {semaphore}, {prefix}, {external_id}, {user} and {owner} stand for one segment of the path. The path is split before
 * it is percent-decoded. The values are checked here. The most frequent routes come first.
 */
/* clang-format off */
static const struct route routes[] = {
    /*
     *    method  right          cost    path                                          handler                 body
     * query parameters
     */
    ROUTE(POST,   USE,           ONE,    "/v1/requests",                                 request_acquire,        USUAL_BODY,      NULL),
    ROUTE(DELETE, USE,           ONE,    "/v1/requests/{external_id}",                   request_release,        0,               "confirmed"),
    ROUTE(POST,   USE,           ONE,    "/v1/requests/{external_id}/renew",             request_renew,          USUAL_BODY,      "namespace"),
    ROUTE(POST,   USE,           ONE,    "/v1/requests/{external_id}/confirm",           request_confirm,        EMPTY_BODY,      "namespace"),
    ROUTE(POST,   USE,           ONE,    "/v1/requests/{external_id}/shrink",            request_shrink,         USUAL_BODY,      "namespace"),
    ROUTE(POST,   USE,           ONE,    "/v1/requests/{external_id}/grow",              request_grow,           USUAL_BODY,      "namespace"),
    ROUTE(POST,   USE,           ONE,    "/v1/requests/{external_id}/exchange",          request_exchange,       USUAL_BODY,      "namespace"),
    ROUTE(POST,   USE,           LATER,  "/v1/confirm",                                  request_confirm_all,    USUAL_BODY,      "namespace"),
    ROUTE(POST,   USE,           LATER,  "/v1/batch",                                    request_batch,          SERVER_MAX_BODY, NULL),
    ROUTE(GET,    LOOK,          ONE,    "/v1/requests/{external_id}",                   request_get,            0,               "namespace"),
    ROUTE(GET,    LOOK,          LIST,   "/v1/requests/{external_id}/why",               request_why,            0,               "namespace"),
    ROUTE(GET,    LOOK,          LIST,   "/v1/requests",                                 list_answer,            0,               "owner", "semaphore", "state", "at", "after", "limit", "namespace"),
    ROUTE(POST,   OPERATE,       ONE,    "/v1/requests/{external_id}/force-release",     request_force_release,  USUAL_BODY,      "namespace"),
    ROUTE(GET,    LOOK,          ONE,    "/v1/semaphores/{semaphore}",                   semaphore_get,          0,               NULL),
    ROUTE(GET,    LOOK,          LATER,  "/v1/availability",                             availability_get,       0,               "semaphore", "prefix", "after", "limit"),
    ROUTE(GET,    LOOK,          LIST,   "/v1/feed",                                     feed_get,               0,               "after", "limit", "wait", "semaphore", "prefix", "owner", "namespace"),
    ROUTE(GET,    OPERATE,       LIST,   "/v1/webhooks",                                 webhooks_get,           0,               NULL),
    ROUTE(GET,    LOOK_OR_FENCE, ONE,    "/v1/semaphores/{semaphore}/fence",             semaphore_fence,        0,               "token", "slot"),
    ROUTE(GET,    LOOK,          LIST,   "/v1/semaphores/{semaphore}/holders",           list_answer,            0,               "after", "limit"),
    ROUTE(GET,    LOOK,          LIST,   "/v1/semaphores/{semaphore}/waiters",           list_answer,            0,               "after", "limit"),
    ROUTE(GET,    LOOK,          LIST,   "/v1/semaphores/{semaphore}/slots",             list_answer,            0,               "state", "prefix", "after", "limit"),
    ROUTE(GET,    LOOK,          LIST,   "/v1/semaphores/{semaphore}/report",            semaphore_report,       0,               "since"),
    ROUTE(GET,    LOOK,          LIST,   "/v1/semaphores/{semaphore}/events",            list_answer,            0,               "after", "limit"),
    ROUTE(GET,    LOOK,          LIST,   "/v1/semaphores",                               list_answer,            0,               "prefix", "after", "limit"),
    ROUTE(PUT,    OPERATE,       ONE,    "/v1/semaphores/{semaphore}",                   semaphore_put,          USUAL_BODY,      NULL),
    ROUTE(PUT,    OPERATE,       LABELS, "/v1/semaphores/{semaphore}/slots",             semaphore_labels,       SERVER_MAX_BODY, "from"),
    ROUTE(DELETE, OPERATE,       ONE,    "/v1/semaphores/{semaphore}",                   semaphore_retire,       0,               "force", "reason"),
    ROUTE(POST,   OPERATE,       ONE,    "/v1/semaphores/{semaphore}/pause",             semaphore_pause,        USUAL_BODY,      NULL),
    ROUTE(POST,   OPERATE,       ONE,    "/v1/semaphores/{semaphore}/resume",            semaphore_resume,       EMPTY_BODY,      NULL),
    ROUTE(PUT,    OPERATE,       ONE,    "/v1/templates/{prefix}",                       template_put,           USUAL_BODY,      NULL),
    ROUTE(GET,    LOOK,          ONE,    "/v1/templates/{prefix}",                       template_get,           0,               NULL),
    ROUTE(DELETE, OPERATE,       ONE,    "/v1/templates/{prefix}",                       template_delete,        0,               NULL),
    ROUTE(GET,    LOOK,          LIST,   "/v1/templates",                                list_answer,            0,               "prefix", "after", "limit"),
    ROUTE(PUT,    ADMIN,         ONE,    "/v1/sql-accounts/{user}",                      sql_account_put,        0,               "namespace"),
    ROUTE(GET,    ADMIN,         ONE,    "/v1/sql-accounts/{user}",                      sql_account_get,        0,               NULL),
    ROUTE(DELETE, ADMIN,         ONE,    "/v1/sql-accounts/{user}",                      sql_account_delete,     0,               NULL),
    ROUTE(GET,    ADMIN,         LIST,   "/v1/sql-accounts",                             list_answer,            0,               "after", "limit"),
    ROUTE(POST,   ADMIN,         ONE,    "/v1/fence/bump",                               fence_bump,             USUAL_BODY,      NULL),
    ROUTE(PUT,    USE,           ONE,    "/v1/owners/{owner}",                           owner_put,              USUAL_BODY,      NULL),
    ROUTE(GET,    LOOK,          ONE,    "/v1/owners/{owner}",                           owner_get,              0,               "namespace"),
    ROUTE(DELETE, USE,           ONE,    "/v1/owners/{owner}",                           owner_delete,           0,               "namespace"),
    ROUTE(GET,    ADMIN,         ONE,    "/v1/servers",                                  list_answer,            0,               NULL),
    ROUTE(GET,    ADMIN,         LIST,   "/v1/doctor",                                   ops_doctor,             0,               NULL),
    ROUTE(GET,    ADMIN,         LIST,   "/v1/locks",                                    ops_locks,              0,               NULL),
    ROUTE(GET,    ANY,           ONE,    "/v1/whoami",                                   access_whoami,          0,               NULL),
    ROUTE(GET,    OPEN,          NONE,   "/healthz",                                     ops_health,             0,               NULL),
    ROUTE(GET,    OPEN,          NONE,   "/readyz",                                      ops_ready,              0,               NULL),
    ROUTE(GET,    METRICS,       LIST,   "/metrics",                                     ops_metrics,            0,               NULL),
    ROUTE(GET,    OPEN,          NONE,   "/openapi.json",                                ops_openapi,            0,               NULL),
};
/* clang-format on */

static const struct route_table table = {routes, ARRAY_LENGTH(routes)};

/* The valid values of a path parameter, and the check that the caller's scope covers it; NULL: every scope does. */
static const struct {
    const char *parameter;
    bool (*is_valid)(struct bytes value);
    enum permit_status (*check)(const struct exchange *exchange, unsigned rights, struct bytes value,
                                struct buf *message);
    const char *expected;
} path_parameters[] = {
    {"{semaphore}", name_is_semaphore, access_check_semaphore,
     "a semaphore's name is 1 to 255 bytes of A-Z a-z 0-9 . _ : @ - , not . or .."},
    {"{prefix}", name_is_semaphore, access_check_prefix,
     "a prefix is 1 to 255 bytes of A-Z a-z 0-9 . _ : @ - , not . or .."},
    {"{external_id}", name_is_key, NULL,
     "an external_id is 1 to 255 bytes of printable ASCII without space, not . or .."},
    {"{user}", name_is_sql_user, NULL,
     "an SQL user is 1 to 128 bytes of printable ASCII without space, quotes and backslash, not . or .."},
    {"{owner}", name_is_key, NULL, "an owner is 1 to 255 bytes of printable ASCII without space, not . or .."},
};

static enum permit_status check_path_value(const struct exchange *exchange, const struct route *route,
                                           struct buf *message)
{
    for (size_t i = 0; i < ARRAY_LENGTH(path_parameters); i++) {
        struct bytes value = exchange->path_values[0];
        if (!strstr(route->path, path_parameters[i].parameter))
            continue;
        if (!path_parameters[i].is_valid(value)) {
            buf_append_text(message, path_parameters[i].expected);
            return PERMIT_INVALID;
        }
        return path_parameters[i].check ? path_parameters[i].check(exchange, route->right, value, message) : PERMIT_OK;
    }
    return PERMIT_OK;
}

/*
 * Refuses a request whose principal does not have the right of the route. The message names the semaphore of the path,
 * of the query or of an acquire, if it can be read.
 */
static enum permit_status refuse_right(struct exchange *exchange, const struct route *route, struct bytes segment,
                                       struct buf *message)
{
    enum permit_status status = PERMIT_OK;
    if (segment.data) {
        if (router_read_path(exchange, segment, message) == PERMIT_OK)
            status = check_path_value(exchange, route, message);
    } else if (route->handle == request_acquire) {
        status = operation_read_acquire(exchange, (struct bytes){0}, &call_of(exchange)->first);
    } else if (router_read_query(exchange, route, message) == PERMIT_OK) {
        struct bytes semaphore = router_query_value(exchange, route, "semaphore");
        if (name_is_semaphore(semaphore))
            status = access_check_semaphore(exchange, route->right, semaphore, message);
    }
    return status == PERMIT_FORBIDDEN ? status : access_check_right(exchange, route->right, message);
}

/* Refuses immediately while the database is unavailable for long, because nothing can be decided. */
static enum permit_status check_available(const struct exchange *exchange, const struct route *route,
                                          struct buf *message)
{
    const struct service *service = exchange->service;
    char sentence[STORE_MESSAGE_SIZE];
    bool needs_none = route->handle == ops_health || route->handle == ops_openapi || route->handle == access_whoami ||
                      route->handle == ops_metrics;
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
        .host = exchange_host(exchange),
        .origin = bytes_of(exchange_header(exchange, "Origin", &origins)),
        .sec_fetch_site = bytes_of(exchange_header(exchange, "Sec-Fetch-Site", &sites)),
    };
    origin.repeated = origins > 1 || sites > 1;
    enum permit_status status = origin_check(&origin, bytes_of(service->settings->allowed_hosts), &service->message);
    return status == PERMIT_OK || !problem_answer(exchange, status, buf_text(&service->message));
}

/*
 * Refuses a request without a valid credential, unless its route is open, and a connection beyond its principal's
 * quota. All causes of the first have the same answer. The connection is closed after it. If the route takes no body,
 * the body is still read, because the refusal of the route is clearer than "too large".
 */
bool routes_admit(struct exchange *exchange, size_t *ret_body_max)
{
    struct bytes segment;
    uint64_t length;
    bool needed = exchange->has_body || exchange->service->principals;
    const struct route *route = needed ? router_find(&table, exchange, &segment) : NULL;
    *ret_body_max = route && route->max_body ? route->max_body : USUAL_BODY;
    if (!check_origin(exchange) || !access_admit(exchange, route && route->right == RIGHT_OPEN))
        return false;
    if (!access_is_known(exchange))
        *ret_body_max = STRANGERS_BODY;
    if (!exchange->has_body)
        return true;
    if (!exchange_body_length(exchange, &length) || length > *ret_body_max)
        length = *ret_body_max; /* a chunked body counts as the largest, because its length is not known */
    return quota_take(exchange, QUOTA_BYTES, (int64_t)length);
}

/* Reads what the route describes, and checks it before the handler runs. */
static enum permit_status check(struct exchange *exchange, const struct route *route, struct bytes segment,
                                struct buf *message)
{
    if (access_check_right(exchange, route->right, message) != PERMIT_OK)
        return refuse_right(exchange, route, segment, message);
    access_audit(exchange, route, route->right);
    enum permit_status status = router_read_path(exchange, segment, message);
    if (status == PERMIT_OK && segment.data)
        status = check_path_value(exchange, route, message);
    if (status == PERMIT_OK)
        status = router_read_query(exchange, route, message);
    if (status == PERMIT_OK)
        status = namespaces_enter(exchange, route, message);
    if (status == PERMIT_OK)
        status = router_check_body(exchange, route, message);
    return status == PERMIT_OK ? check_available(exchange, route, message) : status;
}

bool routes_handle(struct exchange *exchange)
{
    struct buf *message = &exchange->service->message;
    struct bytes segment = {0};
    const struct route *route = router_find(&table, exchange, &segment);
    call_of(exchange)->route = route;
    buf_clear(message);
    const unsigned cost = route ? route->cost : COST_ONE;
    if (cost != COST_LATER && !quota_take(exchange, QUOTA_RATE, cost))
        return true;
    enum permit_status status =
        route ? check(exchange, route, segment, message) : router_answer_other(&table, exchange, message);
    if (status != PERMIT_OK && cost == COST_LATER && !quota_take(exchange, QUOTA_RATE, COST_ONE))
        return true;
    if (status != PERMIT_OK)
        return problem_answer(exchange, status, message->length ? buf_text(message) : NULL);
    return !route || route->handle(exchange);
}

void routes_print(FILE *to)
{
    static const char *const methods[] = {
        [METHOD_GET] = "GET", [METHOD_PUT] = "PUT", [METHOD_POST] = "POST", [METHOD_DELETE] = "DELETE"};
    for (size_t i = 0; i < ARRAY_LENGTH(routes); i++) {
        fprintf(to, "%s %s", methods[routes[i].method], routes[i].path);
        for (unsigned right = 1; right <= RIGHT_METRICS; right <<= 1)
            if (routes[i].right & right)
                fprintf(to, " %s", right_word(right));
        fputc('\n', to);
    }
}
