/* SPDX-License-Identifier: MIT */
/* Changes of what a request holds: shrink, grow, and exchange, which is both in one. */
#include "api/access.h"
#include "api/operations.h"
#include "api/routes.h"
#include "api/service.h"
#include "api/wants.h"

struct change_form {
    struct wire_list given, taken;
    struct bytes nonce;
    int64_t changes;
};

#define PERMITS_EXPECTED "an array of 1 to 64 objects such as {\"semaphore\", \"count\"}"
#define LIST(name, member)                                                                                             \
    {                                                                                                                  \
        name, WIRE_LIST, true, offsetof(struct change_form, member), 0, 1, REQUEST_MAX_SEMAPHORES, NULL,               \
            PERMITS_EXPECTED                                                                                           \
    }
#define NONCE                                                                                                          \
    {                                                                                                                  \
        "nonce", WIRE_NONCE, true, offsetof(struct change_form, nonce), 0, 0, 0, NULL,                                 \
            "a text of 1 to 64 bytes of printable ASCII"                                                               \
    }
#define CHANGES                                                                                                        \
    {                                                                                                                  \
        "changes", WIRE_INTEGER, true, offsetof(struct change_form, changes), 0, 0, UINT32_MAX, NULL,                  \
            "the number that the last answer about the request shows, 0 in a grant"                                    \
    }

static const struct wire_member shrink_members[] = {LIST("permits", given), NONCE, CHANGES};
static const struct wire_member grow_members[] = {LIST("permits", taken), NONCE, CHANGES};
static const struct wire_member exchange_members[] = {LIST("give", given), LIST("take", taken), NONCE, CHANGES};

/* A kind of change. */
struct change_kind {
    struct wire_table table;
    const char *given, *taken; /* the names of its lists; NULL: it has none */
};
static const struct change_kind shrinks = {{shrink_members, ARRAY_LENGTH(shrink_members)}, "permits", NULL};
static const struct change_kind grows = {{grow_members, ARRAY_LENGTH(grow_members)}, NULL, "permits"};
static const struct change_kind exchanges = {{exchange_members, ARRAY_LENGTH(exchange_members)}, "give", "take"};

static enum permit_status read_change(struct exchange *exchange, const struct change_kind *kind,
                                      struct operation *operation)
{
    static const struct wire_limit limit = {(size_t)2 * REQUEST_MAX_SEMAPHORES, PERMIT_INVALID,
                                            "each list must be " PERMITS_EXPECTED};
    const struct wire_reading reading = reading_of(exchange);
    struct change_form form = {0};
    struct want *given = NULL;
    struct bytes body = exchange->body.length ? exchange->body : BYTES("{}");
    enum permit_status status = wire_read_body(&reading, body, &limit, &kind->table, &form);
    if (status == PERMIT_OK && kind->given)
        status =
            wants_read(&reading, &(struct wants_form){kind->given, true}, &form.given, &given, &operation->given_count);
    if (status == PERMIT_OK && kind->taken)
        status = wants_read(&reading, &(struct wants_form){kind->taken, false}, &form.taken, &operation->wants,
                            &operation->want_count);
    operation->given = given;
    operation->nonce = form.nonce;
    operation->changes = (uint32_t)form.changes;
    return status == PERMIT_OK ? access_check_wants(exchange, operation, reading.message) : status;
}

static bool change(struct exchange *exchange, const struct change_kind *kind)
{
    struct operation *operation = &call_of(exchange)->first.operation;
    *operation = (struct operation){.kind = OP_EXCHANGE, .external_id = exchange->path_values[0]};
    enum permit_status status = read_change(exchange, kind, operation);
    return status == PERMIT_OK ? operation_submit(exchange) : operation_refuse(exchange, status);
}

bool request_shrink(struct exchange *exchange)
{
    return change(exchange, &shrinks);
}

bool request_grow(struct exchange *exchange)
{
    return change(exchange, &grows);
}

bool request_exchange(struct exchange *exchange)
{
    return change(exchange, &exchanges);
}
