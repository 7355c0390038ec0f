/* SPDX-License-Identifier: MIT */
/*
 * Namespaces (docs/security.md): the keys and owners of a principal with a namespace are stored with it, so that other
 * principals may use the same words. This is the only place that adds and removes it: below the API, keys and owners
 * are stored ones. Names go in through namespaces_enter (paths) and namespace_store (bodies and parameters), and come
 * out through struct viewer.
 */
#ifndef API_NAMESPACES_H
#define API_NAMESPACES_H

#include "base/arena.h"
#include "base/buf.h"
#include "permit/status.h"

struct exchange;
struct route;

/* A key or owner in its two parts, which are slices of the stored form. */
struct key_parts {
    struct bytes namespace; /* length 0: the empty namespace */
    struct bytes key;       /* as its client wrote it */
};

/* Returns the stored form of a key; the key itself in the empty namespace. data NULL: no memory. */
struct bytes key_join(struct arena *arena, struct bytes namespace, struct bytes key) MUST_CHECK;
struct key_parts key_split(struct bytes stored);

/* For whom an answer is written. */
struct viewer {
    struct bytes namespace; /* its own */
    bool sees_all;          /* also keys and owners of other namespaces: it has the right operate */
};

/* Returns the viewer that sends the request. */
struct viewer viewer_of(const struct exchange *exchange);
/* Returns true if the viewer may see this stored key or owner. */
bool viewer_sees(const struct viewer *viewer, struct bytes stored) MUST_CHECK;
/* Returns true if the viewer sees it, and it is in another namespace than his own: its namespace is shown too. */
bool viewer_needs_namespace(const struct viewer *viewer, struct bytes stored) MUST_CHECK;

/*
 * Returns true if the caller may see and change what has no semaphore by which his scope could be judged: an owner, or
 * a request without permits. It is in his namespace, or his scope covers all semaphores.
 */
bool namespaces_reach(const struct exchange *exchange, struct bytes stored) MUST_CHECK;

/*
 * Sets the namespace of the request: that of its query parameter `namespace`, which requires the right operate, or else
 * that of its principal. A key or owner in its path becomes the stored one. A change by an operator who names a
 * namespace is audited. Called once the route has read path and query, before the handler.
 */
enum permit_status namespaces_enter(struct exchange *exchange, const struct route *route,
                                    struct buf *message) MUST_CHECK;
/* Returns the stored form of a key or owner that the request names in its body, a header or a parameter. */
struct bytes namespace_store(struct exchange *exchange, struct bytes key) MUST_CHECK;
#endif
