/* SPDX-License-Identifier: MIT */
/*
 * Routing: finds the route of a request in a table, and reads the parts of the request that the route describes. The
 * table's owner checks the values and calls the handler.
 *
 * Functions that return a status append the reason to `message` on an error, if the status does not say enough.
 */
#ifndef HTTP_ROUTER_H
#define HTTP_ROUTER_H

#include "http/exchange.h"
#include "permit/status.h"

struct route {
    enum http_method method;
    unsigned right;   /* the right that the client needs; the table's owner gives it a meaning, and `cost` too */
    unsigned cost;    /* of a request */
    const char *path; /* may have one parameter, {name}, which stands for one segment */
    bool (*handle)(struct exchange *exchange);
    size_t max_body;                           /* 0: no body allowed */
    const char *query[EXCHANGE_MAX_QUERY + 1]; /* NULL-terminated; values[i] belongs to query[i] */
};

/* The first matching route is taken, so frequent ones come first. */
struct route_table {
    const struct route *routes;
    size_t count;
};

/*
 * Returns the route of the exchange's method and path; NULL: none. *ret_segment is set to the path parameter, not yet
 * percent-decoded, never empty; untouched if the path has none.
 */
const struct route *router_find(const struct route_table *table, const struct exchange *exchange,
                                struct bytes *ret_segment);
/*
 * For a request without a route. PERMIT_OK: an OPTIONS request; the exchange's answer is complete. Else
 * PERMIT_METHOD_NOT_ALLOWED, with the answer's Allow, or PERMIT_UNKNOWN_PATH.
 */
enum permit_status router_answer_other(const struct route_table *table, struct exchange *exchange,
                                       struct buf *message) MUST_CHECK;
/* Sets the exchange's path value to the decoded segment. The segment's data is NULL if the path has no parameter. */
enum permit_status router_read_path(struct exchange *exchange, struct bytes segment, struct buf *message) MUST_CHECK;
/* Sets the exchange's query values. A parameter that the route does not have is PERMIT_INVALID. */
enum permit_status router_read_query(struct exchange *exchange, const struct route *route,
                                     struct buf *message) MUST_CHECK;
/* Returns the value of a query parameter, once they are read; data NULL: the request or the route does not have it. */
struct bytes router_query_value(const struct exchange *exchange, const struct route *route, const char *name);
/* Checks that the route takes the body and that its type is JSON. */
enum permit_status router_check_body(const struct exchange *exchange, const struct route *route,
                                     struct buf *message) MUST_CHECK;
#endif
