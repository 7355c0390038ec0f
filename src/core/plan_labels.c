/* SPDX-License-Identifier: MIT */
/*
 * Decides changes of labels and seats: for the slots of a page, and for slots out of service that have one of the
 * page's labels.
 */
#include "core/planner.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* A label for a slot of the page, or the current label of a slot outside it. */
struct label_use {
    struct bytes label;
    const struct slot_row *outside; /* NULL: for a slot of the page */
};

static bool in_page(const struct semaphore_change *change, uint32_t number)
{
    return number >= change->labels_from && number - change->labels_from < change->label_count;
}

/* Orders by bytes; of equal labels, the page's comes first. */
static int compare_uses(const void *a, const void *b)
{
    const struct label_use *left = a;
    const struct label_use *right = b;
    int order = bytes_compare(left->label, right->label);
    return order ? order : (left->outside != NULL) - (right->outside != NULL);
}

/* Returns all labels after the change, including labels of slots out of service that are to lose them. */
static struct label_use *collect_uses(struct planner *planner, const struct semaphore_change *change,
                                      const struct named_slots *slots, size_t *ret_count)
{
    struct label_use *uses = arena_must_array(planner->arena, change->label_count + slots->count, sizeof *uses);
    size_t count = 0;
    for (size_t i = 0; i < change->label_count; i++)
        if (change->labels[i].length)
            uses[count++] = (struct label_use){change->labels[i], NULL};
    for (size_t i = 0; i < slots->count; i++)
        if (slots->rows[i].label.length && !in_page(change, slots->rows[i].number))
            uses[count++] = (struct label_use){slots->rows[i].label, &slots->rows[i]};
    qsort(uses, count, sizeof *uses, compare_uses);
    *ret_count = count;
    return uses;
}

static enum permit_status refuse_held(struct planner *planner, const struct slot_row *row, const char **ret_detail)
{
    if (row->label.length)
        *ret_detail = planner_sentence(planner, "slot %u, %.*s, is held: its label cannot change", row->number,
                                       (int)row->label.length, row->label.data);
    else
        *ret_detail = planner_sentence(planner, "slot %u is held: its label cannot change", row->number);
    return PERMIT_IN_USE;
}

/* Checks that the labels are unique in the semaphore. A slot out of service loses its label instead. */
static enum permit_status check_unique(struct planner *planner, const struct label_use *uses, size_t count,
                                       int64_t capacity, const char **ret_detail)
{
    for (size_t i = 1; i < count; i++) {
        const struct slot_row *outside = uses[i].outside;
        if (!bytes_equal(uses[i - 1].label, uses[i].label) || (outside && outside->number > capacity))
            continue;
        int length = (int)uses[i].label.length;
        *ret_detail = outside ? planner_sentence(planner, "%.*s is the label of slot %u", length, uses[i].label.data,
                                                 outside->number)
                              : planner_sentence(planner, "duplicate label %.*s", length, uses[i].label.data);
        return PERMIT_INVALID;
    }
    return PERMIT_OK;
}

static int compare_changes(const void *a, const void *b)
{
    uint32_t left = ((const struct label_change *)a)->number;
    uint32_t right = ((const struct label_change *)b)->number;
    return (left > right) - (left < right);
}

static void add_change(struct planner *planner, uint64_t semaphore_id, uint32_t number, struct bytes label)
{
    planner->labels = planner_list(planner, planner->labels, planner->label_count, sizeof *planner->labels);
    planner->labels[planner->label_count++] = (struct label_change){semaphore_id, number, label};
}

/* Removes labels from slots out of service if a slot of the page gets them. */
static enum permit_status remove_from_retired(struct planner *planner, uint64_t semaphore_id,
                                              const struct label_use *uses, size_t count, const char **ret_detail)
{
    for (size_t i = 1; i < count; i++) {
        if (!uses[i].outside || !bytes_equal(uses[i - 1].label, uses[i].label))
            continue;
        if (uses[i].outside->token)
            return refuse_held(planner, uses[i].outside, ret_detail);
        add_change(planner, semaphore_id, uses[i].outside->number, (struct bytes){0});
    }
    return PERMIT_OK;
}

/* Collects the changed labels of the page. The label of a held slot cannot change; the same value is allowed. */
static enum permit_status change_labels_of_page(struct planner *planner, uint64_t semaphore_id,
                                                const struct semaphore_change *change, const struct named_slots *slots,
                                                const char **ret_detail)
{
    const struct slot_row *row = slots->rows;
    const struct slot_row *end = row + slots->count;
    for (size_t i = 0; i < change->label_count; i++) {
        uint32_t number = change->labels_from + (uint32_t)i;
        while (row < end && row->number < number)
            row++;
        bool exists = row < end && row->number == number;
        if (bytes_equal(exists ? row->label : (struct bytes){0}, change->labels[i]))
            continue;
        if (exists && row->token)
            return refuse_held(planner, row, ret_detail);
        add_change(planner, semaphore_id, number, change->labels[i]);
    }
    return PERMIT_OK;
}

/* ---- seats ---- */

/* Checks that no two slots in service have one place after the change. Seats without a position have none. */
static enum permit_status check_places(struct planner *planner, const struct semaphore_change *change,
                                       const struct seat *page, int64_t capacity, const char **ret_detail)
{
    const struct seats *seats = planner->view->seats;
    const struct seat **placed = arena_must_array(planner->arena, change->label_count + seats->count, sizeof *placed);
    size_t count = 0;
    for (size_t i = 0; i < change->label_count; i++)
        if (page[i].position)
            placed[count++] = &page[i];
    for (size_t i = 0; i < seats->count; i++)
        if (seats->rows[i].position && seats->rows[i].number <= capacity && !in_page(change, seats->rows[i].number))
            placed[count++] = &seats->rows[i];
    qsort(placed, count, sizeof *placed, seat_compare);
    for (size_t i = 1; i < count; i++) {
        const struct seat *seat = placed[i];
        if (seat_compare_places(placed[i - 1], seat) != 0)
            continue;
        *ret_detail =
            planner_sentence(planner, "the slots %u and %u have the same seat: section '%.*s', row '%.*s', seat %u",
                             placed[i - 1]->number, seat->number, (int)seat->section.length,
                             seat->section.data ? seat->section.data : "", (int)seat->row.length,
                             seat->row.data ? seat->row.data : "", seat->position);
        return PERMIT_INVALID;
    }
    return PERMIT_OK;
}

/* Collects the changed seats of the page. Those of held slots may change: a permit has no copy of them. */
static enum permit_status change_seats(struct planner *planner, const struct semaphore *semaphore,
                                       const struct semaphore_change *change, const char **ret_detail)
{
    static const struct seat none = {.rank = SEAT_RANK_NONE};
    const struct seats *seats = planner->view->seats;
    struct seat *page = arena_must_array(planner->arena, change->label_count, sizeof *page);
    assert(seats);
    for (size_t i = 0; i < change->label_count; i++) {
        page[i] = change->seats[i];
        page[i].number = change->labels_from + (uint32_t)i;
    }
    enum permit_status status = check_places(planner, change, page, semaphore->capacity, ret_detail);
    for (size_t i = 0, at = 0; status == PERMIT_OK && i < change->label_count; i++) {
        while (at < seats->count && seats->rows[at].number < page[i].number)
            at++;
        bool exists = at < seats->count && seats->rows[at].number == page[i].number;
        if (seat_same(exists ? &seats->rows[at] : &none, &page[i]))
            continue;
        planner->seats = planner_list(planner, planner->seats, planner->seat_count, sizeof *planner->seats);
        planner->seats[planner->seat_count++] = (struct seat_change){semaphore->id, page[i]};
    }
    return status;
}

enum permit_status planner_change_labels(struct planner *planner, const struct semaphore_image *image,
                                         const struct semaphore_change *change, const char **ret_detail)
{
    static const struct named_slots none;
    const struct semaphore *semaphore = image->semaphore;
    const struct named_slots *slots = image->insert ? &none : planner_slot_view(planner, image)->named;
    if (semaphore->kind == KIND_COUNTED) {
        *ret_detail = "the semaphore is counted; it has no slots to label";
        return PERMIT_INVALID;
    }
    if (change->labels_from < 1 || change->labels_from - 1 + (int64_t)change->label_count > semaphore->capacity) {
        *ret_detail = planner_sentence(planner, "%zu labels from slot %u on exceed the capacity of %lld",
                                       change->label_count, change->labels_from, (long long)semaphore->capacity);
        return PERMIT_INVALID;
    }
    size_t count;
    struct label_use *uses = collect_uses(planner, change, slots, &count);
    enum permit_status status = check_unique(planner, uses, count, semaphore->capacity, ret_detail);
    if (status == PERMIT_OK)
        status = change_labels_of_page(planner, semaphore->id, change, slots, ret_detail);
    if (status == PERMIT_OK)
        status = remove_from_retired(planner, semaphore->id, uses, count, ret_detail);
    if (status == PERMIT_OK && change->seats)
        status = change_seats(planner, semaphore, change, ret_detail);
    if (status != PERMIT_OK)
        planner->label_count = 0;
    if (planner->label_count > 1)
        qsort(planner->labels, planner->label_count, sizeof *planner->labels, compare_changes);
    return status;
}

void planner_record_labels(struct planner *planner, const struct semaphore_image *image,
                           const struct operation *operation)
{
    char range[32];
    const struct semaphore_change *change = operation->change;
    if (planner->label_count == 0 && planner->seat_count == 0)
        return;
    int length = snprintf(range, sizeof range, "%u-%u", change->labels_from,
                          change->labels_from - 1 + (uint32_t)change->label_count);
    struct event event = {.who = operation->principal,
                          .to = arena_must_copy(planner->arena, (struct bytes){range, (size_t)length})};
    event.what = "labels";
    if (planner->label_count)
        record_event(planner, image, event);
    event.what = "seats";
    if (planner->seat_count)
        record_event(planner, image, event);
}
