/* SPDX-License-Identifier: MIT */
#include "api/namespaces.h"

#include "api/access.h"
#include "api/call.h"
#include "core/name.h"
#include "http/router.h"

/* ---- the stored form ---- */

struct bytes key_join(struct arena *arena, struct bytes namespace, struct bytes key)
{
    if (!namespace.length)
        return key;
    size_t length = namespace.length + key.length + 2;
    char *stored = arena_alloc(arena, length + 1); /* a zero for printing, as arena_copy appends */
    if (!stored)
        return (struct bytes){0};
    char *at = stored;
    *at++ = NAMESPACE_MARK;
    memcpy(at, namespace.data, namespace.length);
    at += namespace.length;
    *at++ = NAMESPACE_MARK;
    if (key.length)
        memcpy(at, key.data, key.length);
    return (struct bytes){stored, length};
}

struct key_parts key_split(struct bytes stored)
{
    struct key_parts parts = {.key = name_without_namespace(stored)};
    if (parts.key.length < stored.length)
        parts.namespace = (struct bytes){stored.data + 1, stored.length - parts.key.length - 2};
    return parts;
}

/* ---- out ---- */

/* Returns the namespace of the principal; length 0: the empty one. */
static struct bytes own_namespace(const struct exchange *exchange)
{
    const struct principal *principal = access_principal(exchange);
    return principal ? principal->namespace : (struct bytes){0};
}

struct viewer viewer_of(const struct exchange *exchange)
{
    return (struct viewer){.namespace = own_namespace(exchange), .sees_all = access_has(exchange, RIGHT_OPERATE)};
}

static bool is_own(const struct viewer *viewer, struct bytes stored)
{
    return bytes_equal(key_split(stored).namespace, viewer->namespace);
}

bool viewer_sees(const struct viewer *viewer, struct bytes stored)
{
    return viewer->sees_all || is_own(viewer, stored);
}

bool viewer_needs_namespace(const struct viewer *viewer, struct bytes stored)
{
    return viewer->sees_all && !is_own(viewer, stored);
}

bool namespaces_reach(const struct exchange *exchange, struct bytes stored)
{
    return bytes_equal(key_split(stored).namespace, own_namespace(exchange)) || !access_scope(exchange);
}

/* ---- in ---- */

static bool names_an_owner(const struct route *route)
{
    return strstr(route->path, "{owner}");
}

enum permit_status namespaces_enter(struct exchange *exchange, const struct route *route, struct buf *message)
{
    struct bytes asked = router_query_value(exchange, route, "namespace");
    struct call *call = call_of(exchange);
    call->namespace = asked.data ? asked : own_namespace(exchange);
    if (asked.length && !name_is_namespace(asked)) {
        buf_append_text(message, "a namespace is 1 to 32 bytes of a-z 0-9 - , or empty");
        return PERMIT_INVALID;
    }
    enum permit_status status = asked.data ? access_check_right(exchange, RIGHT_OPERATE, message) : PERMIT_OK;
    if (status != PERMIT_OK) {
        buf_append_text(message, " for the parameter namespace");
        return status;
    }
    if (asked.data)
        access_audit(exchange, route, RIGHT_OPERATE);
    if (!strstr(route->path, "{external_id}") && !names_an_owner(route))
        return PERMIT_OK;
    struct bytes stored = namespace_store(exchange, exchange->path_values[0]);
    if (!stored.data)
        return PERMIT_BUSY;
    exchange->path_values[0] = stored;
    if (!names_an_owner(route) || namespaces_reach(exchange, stored))
        return PERMIT_OK;
    buf_append_text(message, "needs the right operate on all semaphores for an owner of another namespace");
    return PERMIT_FORBIDDEN;
}

struct bytes namespace_store(struct exchange *exchange, struct bytes key)
{
    return key_join(&exchange->arena, call_of(exchange)->namespace, key);
}
