/* SPDX-License-Identifier: MIT */
/* PUT /v1/semaphores/{name}/slots: sets labels in pages. The core checks that labels are unique. */
#include "api/labels.h"

#include "api/json_in.h"
#include "api/operations.h"
#include "api/problem.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/semaphores.h"
#include "api/service.h"

static const struct wire_member label_member = {
    .type = WIRE_LABEL,
    .expected = "a label, 1 to 255 bytes without control characters, or null",
};

const struct wire_limit labels_limit = {SLOTS_MAX_CAPACITY, PERMIT_INVALID, "labels must be " LABELS_EXPECTED};

enum permit_status labels_read(const struct wire_reading *reading, struct wire_list *list, uint32_t from,
                               struct semaphore_change *change)
{
    struct bytes *labels = arena_array(reading->arena, list->count, sizeof *labels);
    change->labels = labels;
    change->has_labels = true;
    change->label_count = list->count;
    change->labels_from = from;
    return labels ? wire_read_elements(reading, list, &label_member, "labels", labels) : PERMIT_NO_MEMORY;
}

bool semaphore_labels(struct exchange *exchange)
{
    static const struct wire_member labels = {
        "labels", WIRE_LIST, true, 0, 0, 1, SLOTS_MAX_CAPACITY, NULL, "an array of 1 to 65536 labels, null for none"};
    static const struct wire_table table = {&labels, 1};
    const struct wire_reading reading = reading_of(exchange);
    struct semaphore_change *change = arena_alloc(&exchange->arena, sizeof *change);
    struct wire_list list = {.count = 0};
    uint64_t from;
    if (!change)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    if (!param_number(exchange, "from", 1, SLOTS_MAX_CAPACITY, 1, &from))
        return true;
    enum permit_status status = wire_read_body(&reading, exchange->body, &labels_limit, &table, &list);
    if (status == PERMIT_OK)
        status = labels_read(&reading, &list, (uint32_t)from, change);
    if (status != PERMIT_OK)
        return operation_refuse(exchange, status);
    if (!semaphore_read_preconditions(exchange, change) ||
        !quota_take(exchange, QUOTA_UNITS, (int64_t)change->label_count))
        return true;
    call_of(exchange)->first.operation = (struct operation){
        .kind = OP_SEMAPHORE_LABELS,
        .semaphore = exchange->path_values[0],
        .change = change,
    };
    return operation_submit(exchange);
}
