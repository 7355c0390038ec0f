/* SPDX-License-Identifier: MIT */
/* PUT /v1/semaphores/{name}/slots: labels in pages. Who has which label already is for the core to see. */
#include "http/labels.h"

#include "http/look.h"
#include "http/operations.h"
#include "http/problem.h"
#include "http/routes.h"
#include "http/service.h"
#include "http/settings.h"
#include "http/wire.h"

static const struct wire_member label_member = {
    .type = WIRE_LABEL,
    .expected = "a label, 1 to 255 bytes without control characters, or null",
};

enum permit_status labels_read(struct exchange *exchange, const struct json_object *list, uint32_t from,
                               struct semaphore_change *change)
{
    size_t count = wire_list_length(list);
    struct bytes *labels = arena_array(&exchange->arena, count + 1, sizeof *labels);
    if (!labels)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        enum permit_status status =
            wire_read_at(list, i, &label_member, "labels", &labels[i], &exchange->arena, &exchange->service->message);
        if (status != PERMIT_OK)
            return status;
    }
    change->has_labels = count > 0;
    change->labels = labels;
    change->label_count = count;
    change->labels_from = from;
    return PERMIT_OK;
}

struct labels_form {
    struct json_object *labels;
};

static const struct wire_member labels_members[] = {
    {"labels", WIRE_LIST, true, offsetof(struct labels_form, labels), 0, 1, SLOTS_MAX_CAPACITY, NULL,
     "an array of 1 to 65536 labels, null for none"},
};
static const struct wire_table labels_table = {labels_members, ARRAY_LENGTH(labels_members)};

static enum permit_status read_page(struct exchange *exchange, uint32_t from, struct semaphore_change *change)
{
    struct service *service = exchange->service;
    struct labels_form form = {0};
    struct json_object *object;
    enum permit_status status = wire_parse(service->wire, exchange->body, &object, &service->message);
    if (status != PERMIT_OK)
        return status;
    status = wire_read(object, &labels_table, "", &form, &exchange->arena, &service->message);
    if (status == PERMIT_OK)
        status = labels_read(exchange, form.labels, from, change);
    wire_drop(object);
    return status;
}

bool semaphore_labels(struct exchange *exchange)
{
    struct semaphore_change *change = arena_alloc(&exchange->arena, sizeof *change);
    uint64_t from;
    if (!change)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    if (!query_number(exchange, 0, "from", 1, SLOTS_MAX_CAPACITY, 1, &from))
        return true;
    enum permit_status status = read_page(exchange, (uint32_t)from, change);
    if (status != PERMIT_OK)
        return problem_answer(exchange, operation_public_status(status), buf_text(&exchange->service->message));
    if (!take_preconditions(exchange, change))
        return true;
    exchange->first.operation = (struct operation){
        .kind = OP_SEMAPHORE_LABELS,
        .semaphore = exchange->parts[0],
        .change = change,
    };
    return operation_submit(exchange);
}
