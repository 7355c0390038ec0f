/* SPDX-License-Identifier: MIT */
/*
 * A call of the API: one HTTP request (exchange.h) with the operations or the query that answer it. The server creates
 * calls and passes them to handlers as exchanges.
 */
#ifndef API_CALL_H
#define API_CALL_H

#include "api/access.h"
#include "base/mutex.h"
#include "engine/engine.h"
#include "http/router.h"

struct refusal;

/* One operation of a call and its answer, which is the whole answer or one result of POST /v1/batch. */
struct batch_item {
    struct op op;
    struct operation operation;
    struct exchange *exchange;
    struct refusal *refusal; /* of a decision no_capacity that is not written yet (refusal.h); NULL: none */
    bool key_generated;      /* permitd generated the external_id: only the answer tells it to the client */
    int http_status;
    size_t offset; /* batch: start of the answer in `pieces` */
    size_t length;
};

/*
 * Returns true if the operation was granted under a generated key. No client knows the key before it reads the answer.
 */
static inline bool item_is_generated_grant(const struct batch_item *item)
{
    return item->key_generated && item->http_status / 100 == 2;
}

/*
 * Answers a query from the database, on a reader's thread. PERMIT_OK: the answer of the exchange is complete; after
 * other statuses query_refuse (queries.h) answers.
 */
typedef enum permit_status query_answer(struct exchange *exchange, struct store *store);

/* The operations of one POST /v1/batch, in the exchange's arena. */
struct batch_items {
    struct batch_item *items;
    size_t remaining;   /* undecided operations, plus 1 while they are submitted; under `mutex` */
    struct buf pieces;  /* answers in the order of decision; under `mutex` */
    struct mutex mutex; /* several engine threads may decide operations of one batch */
};

struct call {
    struct exchange exchange;
    struct caller caller;
    const struct route *route; /* NULL: none */
    struct bytes namespace;    /* of the keys and owners that the request names (namespaces.h) */
    int64_t wait_ms;           /* maximum wait of an acquire; 0: no wait */
    union {
        struct {
            struct query engine_query;
            query_answer *answer_query;
        };
        struct owner_op owner;   /* heartbeat or owner DELETE */
        struct batch_item first; /* the operation, if there is only one */
    };
    bool of_owner;
    size_t item_count;         /* operations; 0: a query, or an owner call */
    struct batch_items *batch; /* NULL: not POST /v1/batch */
};

/* Returns the call of an exchange. Every exchange that a handler gets is part of a call. */
static inline struct call *call_of(struct exchange *exchange)
{
    return CONTAINER_OF(exchange, struct call, exchange);
}

/* Removes the operations before the exchange serves another request or is freed. The exchange's arena still exists. */
void call_clear(struct exchange *exchange);
/* Allocates `count` zeroed operations for a batch. NULL: out of memory. */
struct batch_items *call_make_batch(struct call *call, size_t count) MUST_CHECK;
/* Returns the operations of the call (one, those of a batch, or none) and sets *ret_count. */
struct batch_item *call_items(struct call *call, size_t *ret_count);
/*
 * Marks all operations of the call as answered, before the loop answers without a decision. True: none was sent with a
 * COMMIT and none will be. False: at least one was sent, so the outcome is unknown.
 */
bool call_close(struct call *call) MUST_CHECK;
#endif
