/* SPDX-License-Identifier: MIT */
#include "http/routes.h"

#include <stdio.h>
#include <strings.h>

#include "core/name.h"
#include "http/origin.h"
#include "http/parser.h"
#include "http/problem.h"
#include "http/server.h"
#include "http/service.h"

struct route {
    enum http_method method;
    const char *path;
    bool (*handle)(struct exchange *exchange);
    size_t max_body;                           /* 0: takes none */
    const char *query[EXCHANGE_MAX_QUERY + 1]; /* NULL-terminated; values[i] belongs to query[i] */
};

enum { KIB = 1024, EMPTY_BODY = KIB, USUAL_BODY = 256 * KIB, NO_CONTENT = 204 };

/*
 * {semaphore}, {prefix}, {external_id} and {owner} stand for one part of the path, which is split before it is
 * percent-decoded; what they may be is checked here. The busiest come first.
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
    {METHOD_GET,     "/v1/doctor",                                  ops_doctor,            0,               {NULL}},
    {METHOD_GET,     "/healthz",                                    ops_health,            0,               {NULL}},
    {METHOD_GET,     "/readyz",                                     ops_ready,             0,               {NULL}},
    {METHOD_GET,     "/metrics",                                    ops_metrics,           0,               {NULL}},
    {METHOD_GET,     "/openapi.json",                               ops_openapi,           0,               {NULL}},
};
/* clang-format on */

static const char *const method_words[] = {
    [METHOD_GET] = "GET, HEAD",
    [METHOD_PUT] = "PUT",
    [METHOD_POST] = "POST",
    [METHOD_DELETE] = "DELETE",
};

/* The bytes of `text` before the next `separator`; moves `text` behind it. */
static struct bytes cut(struct bytes *text, char separator)
{
    const char *end = text->length ? memchr(text->data, separator, text->length) : NULL;
    struct bytes first = {text->data, end ? (size_t)(end - text->data) : text->length};
    size_t used = first.length + (end != NULL);
    *text = (struct bytes){text->data + used, text->length - used};
    return first;
}

/* *ret_part is the variable part, undecoded, if the path has one; it is never empty. */
static bool path_matches(const char *pattern, struct bytes path, struct bytes *ret_part)
{
    size_t at = 0;
    for (; *pattern; pattern++) {
        size_t from = at;
        if (*pattern != '{') {
            if (at == path.length || path.data[at++] != *pattern)
                return false;
            continue;
        }
        while (at < path.length && path.data[at] != '/')
            at++;
        if (at == from)
            return false;
        *ret_part = (struct bytes){path.data + from, at - from};
        pattern = strchr(pattern, '}');
    }
    return at == path.length;
}

/* Percent-decoded, in the arena; '+' is itself. data NULL: bad encoding, or no memory. */
static struct bytes decode(struct exchange *exchange, struct bytes text)
{
    struct bytes copy = arena_copy(&exchange->arena, text);
    if (!copy.data || !text.length || !memchr(text.data, '%', text.length))
        return copy;
    char *to = (char *)copy.data;
    for (size_t at = 0; at < text.length; at++) {
        char byte = text.data[at];
        if (byte == '%') {
            int high = at + 2 < text.length ? hex_value(text.data[at + 1]) : -1;
            int low = at + 2 < text.length ? hex_value(text.data[at + 2]) : -1;
            if (high < 0 || low < 0)
                return (struct bytes){0};
            byte = (char)(high * 16 + low);
            at += 2;
        }
        *to++ = byte;
    }
    copy.length = (size_t)(to - copy.data);
    return copy;
}

enum { PATH_SHOWN = 200 };

/* How far a path is from that of a route, whose variable part is whatever the path has in its place. */
static unsigned path_distance(struct bytes path, const char *pattern)
{
    char meant[PATH_SHOWN + 64] = "";
    size_t length = 0;
    struct bytes words = bytes_of(pattern);
    struct bytes parts = path;
    while (words.length && length < PATH_SHOWN) {
        struct bytes word = cut(&words, '/');
        struct bytes part = cut(&parts, '/');
        if (word.length && word.data[0] == '{' && part.length && part.length < PATH_SHOWN - length)
            word = part;
        memcpy(meant + length, word.data, word.length);
        length += word.length;
        if (words.length)
            meant[length++] = '/';
    }
    return name_distance(path, (struct bytes){meant, length});
}

static const char *nearest_path(struct bytes path)
{
    const char *nearest = NULL;
    unsigned least = NAME_FAR;
    for (size_t i = 0; i < ARRAY_LENGTH(routes) && path.length <= PATH_SHOWN; i++) {
        unsigned distance = path_distance(path, routes[i].path);
        if (distance < least) {
            least = distance;
            nearest = routes[i].path;
        }
    }
    return nearest;
}

static bool refuse_path(struct exchange *exchange, int shown)
{
    struct buf *message = &exchange->service->message;
    const char *nearest = nearest_path(exchange->path);
    buf_clear(message);
    buf_printf(message, "there is no path %.*s", shown, exchange->path.data);
    if (nearest)
        buf_printf(message, "; the nearest is %s", nearest);
    return problem_answer(exchange, PERMIT_UNKNOWN_PATH, buf_text(message));
}

enum { ALLOW_SIZE = 64 };

/* The methods of the path, or of all paths, as in `Allow`; "" if there is no such path. */
static void allowed_methods(struct bytes path, bool all, char allow[ALLOW_SIZE])
{
    bool listed[METHOD_OTHER] = {false};
    for (size_t i = 0; i < ARRAY_LENGTH(routes); i++) {
        struct bytes part;
        listed[routes[i].method] |= all || path_matches(routes[i].path, path, &part);
    }
    size_t length = 0;
    allow[0] = '\0';
    for (size_t method = 0; method < ARRAY_LENGTH(method_words); method++)
        if (listed[method])
            length += (size_t)snprintf(allow + length, ALLOW_SIZE - length, "%s, ", method_words[method]);
    if (length)
        snprintf(allow + length, ALLOW_SIZE - length, "OPTIONS");
}

/* There is no route: the method is not one of the path, OPTIONS asks which are, or there is no such path. */
static bool answer_allowed(struct exchange *exchange)
{
    char allow[ALLOW_SIZE];
    struct bytes path = exchange->path;
    struct buf *message = &exchange->service->message;
    int shown = (int)(path.length < PATH_SHOWN ? path.length : PATH_SHOWN);
    bool asks = exchange->method == METHOD_OPTIONS;
    bool of_server = bytes_equal(path, BYTES("*")) || bytes_equal(path, BYTES("/"));
    allowed_methods(path, asks && of_server, allow);
    if (!allow[0])
        return refuse_path(exchange, shown);
    exchange->answer.allow = arena_copy(&exchange->arena, bytes_of(allow)).data;
    exchange->answer.http_status = NO_CONTENT;
    if (asks)
        return true;
    buf_clear(message);
    buf_printf(message, "%.*s takes only %s", shown, path.data, allow);
    return problem_answer(exchange, PERMIT_METHOD_NOT_ALLOWED, buf_text(message));
}

static const struct route *find_route(const struct exchange *exchange, struct bytes *ret_part)
{
    for (size_t i = 0; i < ARRAY_LENGTH(routes); i++)
        if (routes[i].method == exchange->method && path_matches(routes[i].path, exchange->path, ret_part))
            return &routes[i];
    return NULL;
}

static bool take_part(struct exchange *exchange, const struct route *route, struct bytes part)
{
    if (!part.data)
        return true;
    struct bytes name = decode(exchange, part);
    exchange->parts[0] = name;
    if (!name.data)
        return !problem_answer(exchange, PERMIT_MALFORMED, "invalid percent-encoding in the path");
    if (strstr(route->path, "{semaphore}") && !name_is_semaphore(name))
        return !problem_answer(exchange, PERMIT_INVALID,
                               "a semaphore's name is 1 to 255 bytes of A-Z a-z 0-9 . _ : @ - , not . or ..");
    if (strstr(route->path, "{prefix}") && !name_is_semaphore(name))
        return !problem_answer(exchange, PERMIT_INVALID,
                               "a prefix is 1 to 255 bytes of A-Z a-z 0-9 . _ : @ - , not . or ..");
    if (strstr(route->path, "{external_id}") && !name_is_key(name))
        return !problem_answer(exchange, PERMIT_INVALID,
                               "an external_id is 1 to 255 bytes of printable ASCII without space, not . or ..");
    if (strstr(route->path, "{owner}") && !name_is_key(name))
        return !problem_answer(exchange, PERMIT_INVALID,
                               "an owner is 1 to 255 bytes of printable ASCII without space, not . or ..");
    return true;
}

static bool take_parameter(struct exchange *exchange, const struct route *route, struct bytes pair)
{
    struct bytes name = cut(&pair, '=');
    for (size_t i = 0; route->query[i]; i++) {
        if (!bytes_equal(name, bytes_of(route->query[i])))
            continue;
        if (exchange->values[i].data)
            return !problem_answer(exchange, PERMIT_INVALID, "duplicate query parameter");
        exchange->values[i] = decode(exchange, pair);
        if (!exchange->values[i].data)
            return !problem_answer(exchange, PERMIT_MALFORMED, "invalid percent-encoding in the query");
        return true;
    }
    struct buf *message = &exchange->service->message;
    buf_clear(message);
    buf_printf(message, "%.*s is not a query parameter of this path", (int)(name.length < 64 ? name.length : 64),
               name.data);
    return !problem_answer(exchange, PERMIT_INVALID, buf_text(message));
}

static bool take_query(struct exchange *exchange, const struct route *route)
{
    struct bytes query = exchange->query;
    if (route->query[0]) {
        exchange->values = arena_array(&exchange->arena, EXCHANGE_MAX_QUERY, sizeof *exchange->values);
        if (!exchange->values)
            return !problem_answer(exchange, PERMIT_BUSY, NULL);
    }
    while (query.length)
        if (!take_parameter(exchange, route, cut(&query, '&')))
            return false;
    return true;
}

/* "application/json", perhaps with parameters. */
static bool type_is_json(const char *type)
{
    static const char json[] = "application/json";
    if (!type || strncasecmp(type, json, sizeof json - 1) != 0)
        return false;
    const char *rest = type + sizeof json - 1;
    return *rest == '\0' || strchr("; \t", *rest);
}

static bool check_body(struct exchange *exchange, const struct route *route)
{
    if (!exchange->body.length)
        return true;
    if (!route->max_body)
        return !problem_answer(exchange, PERMIT_INVALID, "this route takes no body");
    unsigned times;
    if (!type_is_json(exchange_header(exchange, "Content-Type", &times)) || times != 1)
        return !problem_answer(exchange, PERMIT_NOT_JSON, "a body requires Content-Type: application/json");
    return true;
}

/* While the database is away for long nothing can be decided, and that is said at once. */
static bool refuse_absence(struct exchange *exchange, const struct route *route)
{
    const struct service *service = exchange->service;
    char sentence[STORE_MESSAGE_SIZE];
    bool needs_none = route->handle == ops_health || route->handle == ops_openapi || route->handle == ops_metrics;
    return !needs_none && service->is_absent && service->is_absent(service->is_absent_context, sentence) &&
           problem_answer(exchange, PERMIT_DATABASE_UNAVAILABLE, sentence);
}

/* Whether permitd serves the host that the request names, and the page that sent it (origin.h). */
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

/* Where no body is taken one is read all the same, to be refused with a better word than "too large". */
bool routes_admit(struct exchange *exchange, size_t *ret_body_max)
{
    struct bytes part;
    const struct route *route = parser_has_body(exchange->parser) ? find_route(exchange, &part) : NULL;
    *ret_body_max = route && route->max_body ? route->max_body : USUAL_BODY;
    return check_origin(exchange);
}

bool routes_handle(struct exchange *exchange)
{
    struct bytes part = {0};
    const struct route *route = find_route(exchange, &part);
    if (!route)
        return answer_allowed(exchange);
    if (!take_part(exchange, route, part) || !take_query(exchange, route) || !check_body(exchange, route))
        return true;
    return refuse_absence(exchange, route) || route->handle(exchange);
}
