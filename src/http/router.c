/* SPDX-License-Identifier: MIT */
#include "http/router.h"

#include <stdio.h>
#include <strings.h>

#include "base/distance.h"

/* ---- paths ---- */

/* Returns the bytes of `text` before the next `separator`, and moves `text` past it. */
static struct bytes split_at(struct bytes *text, char separator)
{
    const char *end = text->length ? memchr(text->data, separator, text->length) : NULL;
    struct bytes first = {text->data, end ? (size_t)(end - text->data) : text->length};
    size_t used = first.length + (end != NULL);
    *text = (struct bytes){text->data + used, text->length - used};
    return first;
}

/* Returns true if the path matches. *ret_segment is the undecoded path parameter, never empty, if there is one. */
static bool path_matches(const char *pattern, struct bytes path, struct bytes *ret_segment)
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
        *ret_segment = (struct bytes){path.data + from, at - from};
        pattern = strchr(pattern, '}');
    }
    return at == path.length;
}

const struct route *router_find(const struct route_table *table, const struct exchange *exchange,
                                struct bytes *ret_segment)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct route *route = &table->routes[i];
        if (route->method == exchange->method && path_matches(route->path, exchange->path, ret_segment))
            return route;
    }
    return NULL;
}

/* ---- no route ---- */

enum { NO_CONTENT = 204, PATH_SHOWN = 200, ALLOW_SIZE = 64 };

static const char *const method_words[] = {
    [METHOD_GET] = "GET, HEAD",
    [METHOD_PUT] = "PUT",
    [METHOD_POST] = "POST",
    [METHOD_DELETE] = "DELETE",
};

/* Returns the distance of a path from the path of a route. A path parameter matches any segment. */
static unsigned path_distance(struct bytes path, const char *pattern)
{
    char meant[PATH_SHOWN + 64] = "";
    size_t length = 0;
    struct bytes words = bytes_of(pattern);
    struct bytes segments = path;
    while (words.length && length < PATH_SHOWN) {
        struct bytes word = split_at(&words, '/');
        struct bytes segment = split_at(&segments, '/');
        if (word.length && word.data[0] == '{' && segment.length && segment.length < PATH_SHOWN - length)
            word = segment;
        memcpy(meant + length, word.data, word.length);
        length += word.length;
        if (words.length)
            meant[length++] = '/';
    }
    return name_distance(path, (struct bytes){meant, length});
}

static const char *nearest_path(const struct route_table *table, struct bytes path)
{
    const char *nearest = NULL;
    unsigned least = NAME_FAR;
    for (size_t i = 0; i < table->count && path.length <= PATH_SHOWN; i++) {
        unsigned distance = path_distance(path, table->routes[i].path);
        if (distance < least) {
            least = distance;
            nearest = table->routes[i].path;
        }
    }
    return nearest;
}

/* Writes the methods of the path, or of all paths, in the form of `Allow`; "" if there is no such path. */
static void allowed_methods(const struct route_table *table, struct bytes path, bool all, char allow[ALLOW_SIZE])
{
    bool listed[METHOD_OTHER] = {false};
    for (size_t i = 0; i < table->count; i++) {
        struct bytes segment;
        listed[table->routes[i].method] |= all || path_matches(table->routes[i].path, path, &segment);
    }
    size_t length = 0;
    allow[0] = '\0';
    for (size_t method = 0; method < ARRAY_LENGTH(method_words); method++)
        if (listed[method])
            length += (size_t)snprintf(allow + length, ALLOW_SIZE - length, "%s, ", method_words[method]);
    if (length)
        snprintf(allow + length, ALLOW_SIZE - length, "OPTIONS");
}

enum permit_status router_answer_other(const struct route_table *table, struct exchange *exchange, struct buf *message)
{
    char allow[ALLOW_SIZE];
    struct bytes path = exchange->path;
    int shown = (int)(path.length < PATH_SHOWN ? path.length : PATH_SHOWN);
    bool asks = exchange->method == METHOD_OPTIONS;
    bool of_server = bytes_equal(path, BYTES("*")) || bytes_equal(path, BYTES("/"));
    allowed_methods(table, path, asks && of_server, allow);
    if (!allow[0]) {
        const char *nearest = nearest_path(table, path);
        buf_printf(message, "there is no path %.*s", shown, path.data);
        if (nearest)
            buf_printf(message, "; the nearest is %s", nearest);
        return PERMIT_UNKNOWN_PATH;
    }
    exchange->answer.allow = arena_copy(&exchange->arena, bytes_of(allow)).data;
    if (!asks) {
        buf_printf(message, "%.*s takes only %s", shown, path.data, allow);
        return PERMIT_METHOD_NOT_ALLOWED;
    }
    exchange->answer.http_status = NO_CONTENT;
    return PERMIT_OK;
}

/* ---- what the route describes ---- */

/* Returns the percent-decoded text, in the arena. '+' is not decoded. data NULL: invalid encoding, or out of memory. */
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

static enum permit_status fail(enum permit_status status, const char *reason, struct buf *message)
{
    buf_append_text(message, reason);
    return status;
}

enum permit_status router_read_path(struct exchange *exchange, struct bytes segment, struct buf *message)
{
    if (!segment.data)
        return PERMIT_OK;
    exchange->path_values[0] = decode(exchange, segment);
    return exchange->path_values[0].data ? PERMIT_OK
                                         : fail(PERMIT_MALFORMED, "invalid percent-encoding in the path", message);
}

static enum permit_status read_parameter(struct exchange *exchange, const struct route *route, struct bytes pair,
                                         struct buf *message)
{
    struct bytes name = split_at(&pair, '=');
    for (size_t i = 0; route->query[i]; i++) {
        if (!bytes_equal(name, bytes_of(route->query[i])))
            continue;
        if (exchange->query_values[i].data)
            return fail(PERMIT_INVALID, "duplicate query parameter", message);
        exchange->query_values[i] = decode(exchange, pair);
        if (!exchange->query_values[i].data)
            return fail(PERMIT_MALFORMED, "invalid percent-encoding in the query", message);
        return PERMIT_OK;
    }
    buf_printf(message, "%.*s is not a query parameter of this path", (int)(name.length < 64 ? name.length : 64),
               name.data);
    return PERMIT_INVALID;
}

enum permit_status router_read_query(struct exchange *exchange, const struct route *route, struct buf *message)
{
    enum permit_status status = PERMIT_OK;
    struct bytes query = exchange->query;
    if (route->query[0]) {
        exchange->query_values = arena_array(&exchange->arena, EXCHANGE_MAX_QUERY, sizeof *exchange->query_values);
        if (!exchange->query_values)
            return PERMIT_BUSY;
    }
    while (status == PERMIT_OK && query.length)
        status = read_parameter(exchange, route, split_at(&query, '&'), message);
    return status;
}

struct bytes router_query_value(const struct exchange *exchange, const struct route *route, const char *name)
{
    for (size_t i = 0; route->query[i]; i++)
        if (strcmp(route->query[i], name) == 0)
            return exchange->query_values[i];
    return (struct bytes){0};
}

/* "application/json", with or without parameters. */
static bool type_is_json(const char *type)
{
    static const char json[] = "application/json";
    if (!type || strncasecmp(type, json, sizeof json - 1) != 0)
        return false;
    const char *rest = type + sizeof json - 1;
    return *rest == '\0' || strchr("; \t", *rest);
}

enum permit_status router_check_body(const struct exchange *exchange, const struct route *route, struct buf *message)
{
    unsigned times;
    if (!exchange->body.length)
        return PERMIT_OK;
    if (!route->max_body)
        return fail(PERMIT_INVALID, "this route takes no body", message);
    if (!type_is_json(exchange_header(exchange, "Content-Type", &times)) || times != 1)
        return fail(PERMIT_NOT_JSON, "a body requires Content-Type: application/json", message);
    return PERMIT_OK;
}
