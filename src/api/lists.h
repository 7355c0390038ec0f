/* SPDX-License-Identifier: MIT */
/*
 * Lists: the routes that answer {"name":[{...},...],"next":"..."}. A list is a row of the table in lists.c, with a
 * reader of its pages and a writer of its rows. Those of requests and slots are in files of their own.
 */
#ifndef API_LISTS_H
#define API_LISTS_H

#include "api/queries.h"

struct list_route;

enum { SLOTS_DIGEST = 16 + 1 }; /* characters of an ETag of slots: a digest and a quote */

/* A list while it is answered, in the exchange's arena. */
struct listing {
    struct exchange *exchange;
    const struct list_route *list;
    struct page page;
    const bool *suspects;     /* of holders and requests, as suspects_find finds them */
    const utc_us *kept_until; /* of waiters and requests, as store_queries.kept_until finds them */
    bool answered;            /* the reader has answered: a refusal, or that the client knows the page */
    union {                   /* parameters of its own */
        struct {
            struct request_filter filter;
            bool has_at;
            bool has_namespace; /* only requests of the namespace of the call */
        } requests;
        struct {
            struct slot_filter filter;
            struct bytes known;                  /* If-None-Match; data NULL: absent */
            char stem[ETAG_SIZE - SLOTS_DIGEST]; /* of the ETag: the part before the digest */
        } slots;
    };
};

/* The handler of all these routes. */
bool list_answer(struct exchange *exchange);

/*
 * The parts of the lists that have files of their own. `params` reads and checks parameters; false: the exchange's
 * answer is the refusal. `read` reads a page; `write` writes one row of it.
 */
bool requests_params(struct listing *listing);
enum permit_status requests_read(struct listing *listing, struct store *store);
bool requests_shows(const struct listing *listing, size_t index);
void requests_write(struct listing *listing, size_t index);
bool slots_params(struct listing *listing);
enum permit_status slots_read(struct listing *listing, struct store *store);
void slots_write(struct listing *listing, size_t index);
void slots_end(struct listing *listing); /* when the whole answer is written */
#endif
