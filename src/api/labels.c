/* SPDX-License-Identifier: MIT */
/*
 * PUT /v1/semaphores/{name}/slots: sets labels, or labels and seats, in pages. The core checks that labels and places
 * are unique.
 */
#include "api/labels.h"

#include <stdio.h>

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

/* ---- seats ---- */

struct seat_form {
    struct bytes label, section, row;
    int64_t position, rank;
    struct wire_list tags;
};

static const struct wire_member seat_members[] = {
    /* name, type, required, value, given, min, max, choices, expected */
    {"label", WIRE_LINE, false, offsetof(struct seat_form, label), 0, 1, LABEL_MAX_BYTES, NULL,
     "a label, 1 to 255 bytes without control characters; a slot without one leaves it out"},
    {"section", WIRE_LINE, false, offsetof(struct seat_form, section), 0, 1, SEAT_NAME_MAX_BYTES, NULL,
     "1 to 32 bytes without control characters"},
    {"row", WIRE_LINE, false, offsetof(struct seat_form, row), 0, 1, SEAT_NAME_MAX_BYTES, NULL,
     "1 to 32 bytes without control characters"},
    {"seat", WIRE_INTEGER, false, offsetof(struct seat_form, position), 0, 1, SEAT_POSITION_MAX, NULL,
     "the position in the row, a whole number from 1 to 1000000000"},
    {"rank", WIRE_INTEGER, false, offsetof(struct seat_form, rank), 0, 0, SEAT_RANK_MAX, NULL,
     "a whole number from 0 to 1000000000"},
    {"tags", WIRE_LIST, false, offsetof(struct seat_form, tags), 0, 0, SEAT_MAX_TAGS, NULL,
     "an array of at most 8 words"},
};
static const struct wire_table seat_table = {seat_members, ARRAY_LENGTH(seat_members)};

/* Joins the tags with a space between them. */
static enum permit_status read_tags(const struct wire_reading *reading, struct wire_list *list, const char *where,
                                    struct bytes *ret_tags)
{
    static const struct wire_member tag = {.type = WIRE_TAG, .expected = TAG_EXPECTED};
    struct bytes tags[SEAT_MAX_TAGS];
    char name[64];
    snprintf(name, sizeof name, "%stags", where);
    size_t count = list->count, size = 0;
    enum permit_status status = wire_read_elements(reading, list, &tag, name, tags);
    if (status != PERMIT_OK || count == 0)
        return status;
    for (size_t i = 0; i < count; i++)
        size += tags[i].length + 1;
    char *text = arena_alloc(reading->arena, size), *at = text;
    if (!text)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        memcpy(at, tags[i].data, tags[i].length);
        at += tags[i].length;
        *at++ = ' ';
    }
    *ret_tags = (struct bytes){text, size - 1};
    return PERMIT_OK;
}

static enum permit_status read_seat(const struct wire_reading *reading, struct bytes object, size_t index,
                                    struct bytes *ret_label, struct seat *ret_seat)
{
    struct seat_form form = {.rank = SEAT_RANK_NONE};
    char where[32];
    snprintf(where, sizeof where, "slots[%zu].", index);
    enum permit_status status = wire_read(reading, object, &seat_table, where, &form);
    struct seat seat = {
        .position = (uint32_t)form.position, .rank = (uint32_t)form.rank, .section = form.section, .row = form.row};
    if (status == PERMIT_OK)
        status = read_tags(reading, &form.tags, where, &seat.tags);
    if (status == PERMIT_OK && !seat_is_valid(&seat)) {
        buf_printf(reading->message, "%stags has a tag twice", where);
        status = PERMIT_INVALID;
    }
    *ret_label = form.label;
    *ret_seat = seat;
    return status;
}

/* Reads the list into change->labels and change->seats: a slot gets all of its description, and none that is absent. */
static enum permit_status seats_read(const struct wire_reading *reading, struct wire_list *list, uint32_t from,
                                     struct semaphore_change *change)
{
    size_t count = list->count;
    struct bytes *labels = arena_array(reading->arena, count, sizeof *labels);
    struct seat *seats = arena_array(reading->arena, count, sizeof *seats);
    enum permit_status status = labels && seats ? PERMIT_OK : PERMIT_NO_MEMORY;
    for (size_t i = 0; status == PERMIT_OK && i < count; i++)
        status = read_seat(reading, wire_next(list), i, &labels[i], &seats[i]);
    change->labels = labels;
    change->has_labels = true;
    change->label_count = count;
    change->labels_from = from;
    change->seats = seats;
    return status;
}

/* ---- the route ---- */

struct page_form {
    struct wire_list labels, seats;
};

bool semaphore_labels(struct exchange *exchange)
{
    static const struct wire_member members[] = {
        {"labels", WIRE_LIST, false, offsetof(struct page_form, labels), 0, 1, SLOTS_MAX_CAPACITY, NULL,
         "an array of 1 to 65536 labels, null for none"},
        {"slots", WIRE_LIST, false, offsetof(struct page_form, seats), 0, 1, SLOTS_MAX_CAPACITY, NULL,
         "an array of 1 to 65536 objects"},
    };
    static const struct wire_table table = {members, ARRAY_LENGTH(members)};
    const struct wire_reading reading = reading_of(exchange);
    struct semaphore_change *change = arena_alloc(&exchange->arena, sizeof *change);
    struct page_form form = {0};
    uint64_t from;
    if (!change)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    if (!param_number(exchange, "from", 1, SLOTS_MAX_CAPACITY, 1, &from))
        return true;
    enum permit_status status = wire_read_body(&reading, exchange->body, &labels_limit, &table, &form);
    if (status == PERMIT_OK && !form.labels.count == !form.seats.count) {
        buf_append_text(reading.message, "the body must have labels or slots, and not both");
        status = PERMIT_INVALID;
    }
    if (status == PERMIT_OK)
        status = form.seats.count ? seats_read(&reading, &form.seats, (uint32_t)from, change)
                                  : labels_read(&reading, &form.labels, (uint32_t)from, change);
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
