/* SPDX-License-Identifier: MIT */
/* The slots of locked semaphores: which are free, which an acquire means, what it lacks, and how they move. */
#include "core/planner.h"

#include <stdlib.h>

struct shelf *planner_shelf(struct planner *planner, const struct semaphore_image *image)
{
    return &planner->shelves[image - planner->images];
}

/* ---- as they were read ---- */

/* How many slots of a semaphore the rows that were read hold: so many may come back. */
static size_t held_slots(const struct view *view, uint64_t semaphore_id)
{
    size_t held = 0;
    for (size_t i = 0; i < view->request_count; i++)
        for (size_t j = 0; j < view->requests[i].permit_count; j++)
            if (view->requests[i].permits[j].semaphore_id == semaphore_id)
                held += view->requests[i].permits[j].slots.count;
    return held;
}

static uint32_t unread_from(const struct semaphore *semaphore, const struct free_slots *read)
{
    if (read->complete)
        return (uint32_t)semaphore->capacity + 1;
    return read->count ? read->numbers[read->count - 1] + 1 : semaphore->first_free;
}

/* A request that is granted here may take its slots and, by a later operation of the batch, give them back. */
static size_t moves_of_acquires(struct planner *planner)
{
    size_t moves = 0;
    for (size_t i = 0; i < planner->operation_count; i++)
        for (size_t j = 0; j < planner->operations[i]->want_count; j++) {
            const struct want *want = &planner->operations[i]->wants[j];
            const struct semaphore_image *image = planner_image(planner, want->semaphore_id);
            if (image && image->semaphore->kind == KIND_SLOTTED)
                moves += 2 * (size_t)min_i64(want->count, SLOTS_MAX_COUNT);
        }
    return moves;
}

static int compare_row_labels(const void *a, const void *b)
{
    return bytes_compare((*(const struct slot_row *const *)a)->label, (*(const struct slot_row *const *)b)->label);
}

/* What was read because it is named: a free one is known to be free wherever it lies. */
static bool add_named(struct planner *planner, struct shelf *shelf)
{
    size_t count = shelf->named->count;
    if (count == 0)
        return true;
    shelf->takers = arena_array(planner->arena, count, sizeof *shelf->takers);
    shelf->labelled = arena_array(planner->arena, count, sizeof *shelf->labelled);
    if (!shelf->takers || !shelf->labelled)
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct slot_row *row = &shelf->named->rows[i];
        if (!row->permit_id)
            slot_pool_put(&shelf->free, row->number);
        if (row->label.length)
            shelf->labelled[shelf->labelled_count++] = row;
        if (!slot_pool_set_label(&shelf->free, row->number, row->label, planner->arena))
            return false;
    }
    if (shelf->labelled_count > 1)
        qsort(shelf->labelled, shelf->labelled_count, sizeof *shelf->labelled, compare_row_labels);
    return true;
}

static bool fill_shelf(struct planner *planner, size_t index)
{
    const struct semaphore *semaphore = &planner->view->semaphores[index];
    const struct free_slots *read = &planner->view->free_slots[index];
    struct shelf *shelf = &planner->shelves[index];
    if (!slot_pool_init(&shelf->free, semaphore->capacity, planner->arena))
        return false;
    for (size_t i = 0; i < read->count; i++)
        slot_pool_put(&shelf->free, read->numbers[i]);
    for (size_t i = 0; read->labels && i < read->count; i++)
        if (!slot_pool_set_label(&shelf->free, read->numbers[i], read->labels[i], planner->arena))
            return false;
    shelf->unread = unread_from(semaphore, read);
    shelf->whole = read->complete && semaphore->first_free <= 1;
    shelf->named = &planner->view->named_slots[index];
    return add_named(planner, shelf);
}

/* "The label of a held slot cannot change", so that of a permit is the slot's when it comes back. */
static bool add_labels_of_held(struct planner *planner, const struct permit *permit)
{
    const struct semaphore_image *image = permit->labels ? planner_image(planner, permit->semaphore_id) : NULL;
    if (!image)
        return true;
    struct shelf *shelf = planner_shelf(planner, image);
    for (uint32_t i = 0; i < permit->slots.count; i++)
        if (!slot_pool_set_label(&shelf->free, permit->slots.numbers[i], permit->labels[i], planner->arena))
            return false;
    return true;
}

enum permit_status planner_fill_shelves(struct planner *planner)
{
    const struct view *view = planner->view;
    size_t moves = moves_of_acquires(planner);
    for (size_t i = 0; i < view->semaphore_count; i++) {
        if (view->semaphores[i].kind != KIND_SLOTTED)
            continue;
        if (!fill_shelf(planner, i))
            return PERMIT_NO_MEMORY;
        moves += held_slots(view, view->semaphores[i].id);
    }
    for (size_t i = 0; i < view->request_count; i++)
        for (size_t j = 0; view->requests[i].state == REQUEST_ACQUIRED && j < view->requests[i].permit_count; j++)
            if (!add_labels_of_held(planner, &view->requests[i].permits[j]))
                return PERMIT_NO_MEMORY;
    planner->slots = arena_array(planner->arena, moves, sizeof *planner->slots);
    return planner->slots ? PERMIT_OK : PERMIT_NO_MEMORY;
}

/* ---- which are meant ---- */

static const struct slot_row *row_of_label(const struct shelf *shelf, struct bytes label)
{
    size_t low = 0;
    size_t high = shelf->labelled_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (bytes_compare(shelf->labelled[middle]->label, label) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < shelf->labelled_count && bytes_equal(shelf->labelled[low]->label, label);
    return found ? shelf->labelled[low] : NULL;
}

/* NULL: nobody named it. */
static const struct slot_row *row_of_number(const struct shelf *shelf, uint32_t number)
{
    size_t low = 0;
    size_t high = shelf->named->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (shelf->named->rows[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < shelf->named->count && shelf->named->rows[low].number == number;
    return found ? &shelf->named->rows[low] : NULL;
}

/* "Unknown label, a number over the capacity, a retired slot: never_satisfiable, detail names it." */
static enum permit_status resolve_name(struct planner *planner, const struct semaphore *semaphore,
                                       const struct shelf *shelf, const struct slot_name *name, uint32_t *ret_number,
                                       const char **ret_detail)
{
    int length = (int)semaphore->name.length;
    const struct slot_row *row = name->number ? NULL : row_of_label(shelf, name->label);
    uint32_t number = row ? row->number : name->number;
    if (number > 0 && number <= semaphore->capacity) {
        *ret_number = number;
        return PERMIT_OK;
    }
    if (name->number)
        *ret_detail = planner_sentence(planner, "%.*s: no slot %u; the capacity is %lld", length, semaphore->name.data,
                                       number, (long long)semaphore->capacity);
    else
        *ret_detail = planner_sentence(planner, row ? "%.*s: %.*s is out of service" : "%.*s: no slot with label %.*s",
                                       length, semaphore->name.data, (int)name->label.length, name->label.data);
    return PERMIT_NEVER_SATISFIABLE;
}

static int compare_numbers(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a;
    uint32_t right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

/* The numbers of what is named, ascending. */
static enum permit_status resolve_names(struct planner *planner, const struct want *want,
                                        const struct semaphore_image *image, struct slots *ret_list,
                                        const char **ret_detail)
{
    struct slots list = {arena_array(planner->arena, want->named_count, sizeof *list.numbers), 0};
    if (!list.numbers)
        return PERMIT_NO_MEMORY;
    const struct semaphore *semaphore = image->semaphore;
    for (; list.count < want->named_count; list.count++) {
        enum permit_status status = resolve_name(planner, semaphore, planner_shelf(planner, image),
                                                 &want->named[list.count], &list.numbers[list.count], ret_detail);
        if (status != PERMIT_OK)
            return status;
    }
    if (list.count > 1)
        qsort(list.numbers, list.count, sizeof *list.numbers, compare_numbers);
    for (uint32_t i = 1; i < list.count; i++)
        if (list.numbers[i - 1] == list.numbers[i]) {
            *ret_detail = planner_sentence(planner, "%.*s: slot %u is named twice, by its number and by its label",
                                           (int)semaphore->name.length, semaphore->name.data, list.numbers[i]);
            return PERMIT_INVALID;
        }
    *ret_list = list;
    return PERMIT_OK;
}

static uint32_t longest_run(const struct slots *list)
{
    uint32_t longest = 0;
    uint32_t run = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        run = i > 0 && list->numbers[i] == list->numbers[i - 1] + 1 ? run + 1 : 1;
        if (longest < run)
            longest = run;
    }
    return longest;
}

enum permit_status planner_resolve_want(struct planner *planner, const struct want *want, size_t index,
                                        const char **ret_detail)
{
    const struct semaphore_image *image = planner_image(planner, want->semaphore_id);
    struct bytes name = image->semaphore->name;
    struct slots *list = &planner->named[index];
    *list = (struct slots){0};
    if (image->semaphore->kind == KIND_COUNTED) {
        *ret_detail = planner_sentence(planner, "%.*s is counted: it has no slots", (int)name.length, name.data);
        return PERMIT_INVALID;
    }
    /* Capacity 0 is closed, which may end: no_capacity. */
    if (want->choice == CHOOSE_LOWEST || image->semaphore->capacity == 0)
        return PERMIT_OK;
    enum permit_status status = resolve_names(planner, want, image, list, ret_detail);
    if (status != PERMIT_OK)
        return status;
    if (want->choice == CHOOSE_NAMED && want->count != list->count) {
        *ret_detail = "count must equal the number of slots";
        return PERMIT_INVALID;
    }
    uint32_t at_most = want->adjacent ? longest_run(list) : list->count;
    if (want->count <= at_most)
        return PERMIT_OK;
    *ret_detail = planner_sentence(planner,
                                   want->adjacent ? "%.*s: %lld asked, at most %u of the named slots are adjacent"
                                                  : "%.*s: %lld asked of %u",
                                   (int)name.length, name.data, (long long)want->count, at_most);
    return PERMIT_NEVER_SATISFIABLE;
}

/* ---- what is lacking ---- */

/* The first of the lowest run that a want for neighbours would get; 0: there is none. */
static uint32_t find_run(const struct shelf *shelf, const struct want *want, const struct slots *list)
{
    if (want->choice == CHOOSE_ANY_OF)
        return slot_pool_run_within(&shelf->free, (uint32_t)want->count, list);
    return slot_pool_run(&shelf->free, (uint32_t)want->count);
}

int64_t planner_slots_lacking(struct planner *planner, const struct want *want, size_t index)
{
    if (!want_is_certain(want))
        return 0;
    const struct shelf *shelf = planner_shelf(planner, planner_image(planner, want->semaphore_id));
    const struct slots *list = &planner->named[index];
    if (want->adjacent)
        return find_run(shelf, want, list) ? 0 : want->count;
    return max_i64(0, want->count - slot_pool_count_of(&shelf->free, list));
}

/* Puts what due holders have of a semaphore among what is free, and takes it out again. */
static void lay_out_due(struct planner *planner, struct slot_pool *free, uint64_t semaphore_id, bool out)
{
    for (size_t i = 0; i < planner->due_count; i++) {
        const struct request *request = planner->due[i]->request;
        for (size_t j = 0; request_is_due(planner, request) && j < request->permit_count; j++) {
            const struct permit *permit = &request->permits[j];
            for (uint32_t k = 0; permit->semaphore_id == semaphore_id && k < permit->slots.count; k++)
                if (out)
                    slot_pool_put(free, permit->slots.numbers[k]);
                else if (slot_pool_has(free, permit->slots.numbers[k]))
                    slot_pool_take(free, permit->slots.numbers[k]);
        }
    }
}

enum permit_status planner_slots_sought(struct planner *planner, const struct want *want, size_t index,
                                        struct slots *ret_sought)
{
    struct slots sought = planner->named[index];
    if (want->adjacent) {
        struct shelf *shelf = planner_shelf(planner, planner_image(planner, want->semaphore_id));
        lay_out_due(planner, &shelf->free, want->semaphore_id, true);
        uint32_t first = find_run(shelf, want, &sought);
        lay_out_due(planner, &shelf->free, want->semaphore_id, false);
        sought.count = first ? (uint32_t)want->count : 0;
        sought.numbers = arena_array(planner->arena, sought.count, sizeof *sought.numbers);
        if (!sought.numbers)
            return PERMIT_NO_MEMORY;
        for (uint32_t i = 0; i < sought.count; i++)
            sought.numbers[i] = first + i;
    }
    *ret_sought = sought;
    return PERMIT_OK;
}

/* ---- who has them ---- */

/* The request that holds a slot, if it is known here: it may have been renewed in this batch. NULL: it is not. */
static const struct request *holder_of(struct planner *planner, const struct shelf *shelf, const struct slot_row *row)
{
    const struct key *key = shelf->takers[row - shelf->named->rows];
    return key ? key->request : planner_request(planner, row->holder);
}

static uint64_t token_of(const struct request *request, uint64_t semaphore_id)
{
    for (size_t i = 0; i < request->permit_count; i++)
        if (request->permits[i].semaphore_id == semaphore_id)
            return request->permits[i].token;
    return 0;
}

static struct taken_slot taken_slot(struct planner *planner, const struct shelf *shelf, uint64_t semaphore_id,
                                    const struct slot_row *row)
{
    const struct request *holder = holder_of(planner, shelf, row);
    if (holder)
        return (struct taken_slot){.number = row->number,
                                   .label = row->label,
                                   .token = token_of(holder, semaphore_id),
                                   .holder = holder->external_id,
                                   .expires_at = request_expires_at(holder)};
    bool told = row->due_at != NEVER && !row->without_ttl;
    return (struct taken_slot){.number = row->number,
                               .label = row->label,
                               .token = row->permit_id,
                               .holder = row->holder,
                               .expires_at = told ? row->due_at - row->grace_ms * US_PER_MS : NEVER};
}

enum permit_status planner_taken_slots(struct planner *planner, const struct want *want, size_t index,
                                       struct shortage *shortage)
{
    const struct shelf *shelf = planner_shelf(planner, planner_image(planner, want->semaphore_id));
    const struct slots *list = &planner->named[index];
    struct taken_slot *taken = arena_array(planner->arena, list->count, sizeof *taken);
    if (!taken)
        return PERMIT_NO_MEMORY;
    shortage->taken = taken;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct slot_row *row = row_of_number(shelf, list->numbers[i]);
        if (row && !slot_pool_has(&shelf->free, row->number))
            taken[shortage->taken_count++] = taken_slot(planner, shelf, want->semaphore_id, row);
    }
    return PERMIT_OK;
}

/* ---- how they move ---- */

static void record_slot(struct planner *planner, uint64_t semaphore_id, uint32_t number, uint64_t permit_id)
{
    planner->slots[planner->slot_count++] = (struct slot_change){semaphore_id, number, permit_id};
}

/*
 * first_free stays a lower bound of the lowest free slot. A full semaphore has none, which saves the next batch a walk
 * along rows that are all held; but not while slots that a smaller capacity put out of service may be held
 * (FIRST_FREE_SHRUNK): they count in in_use, and a slot in service may be free all the same. That is over when every
 * unit that is free is a slot.
 */
static void settle_first_free(struct semaphore *semaphore, struct shelf *shelf)
{
    int64_t room = semaphore->capacity - semaphore->in_use;
    if (semaphore->first_free == FIRST_FREE_SHRUNK && !(shelf->whole && (int64_t)shelf->free.count == room))
        return;
    int64_t lowest = shelf->free.count ? slot_pool_lowest(&shelf->free) : shelf->unread;
    semaphore->first_free = (uint32_t)(room > 0 ? min_i64(lowest, shelf->unread) : semaphore->capacity + 1);
}

void planner_free_slots(struct planner *planner, struct semaphore_image *image, const struct permit *permit)
{
    struct shelf *shelf = planner_shelf(planner, image);
    for (uint32_t i = 0; i < permit->slots.count; i++) {
        record_slot(planner, permit->semaphore_id, permit->slots.numbers[i], 0);
        slot_pool_put(&shelf->free, permit->slots.numbers[i]);
    }
    settle_first_free(image->semaphore, shelf);
}

/* Takes one that a want gets next: certain ones from its list, neighbours behind `last`, else the lowest of all. */
static uint32_t next_slot(struct shelf *shelf, const struct want *want, const struct slots *list, uint32_t *list_at,
                          uint32_t last)
{
    if (want->adjacent)
        return last ? last + 1 : find_run(shelf, want, list);
    if (want->choice == CHOOSE_LOWEST)
        return slot_pool_lowest(&shelf->free);
    while (!slot_pool_has(&shelf->free, list->numbers[*list_at]))
        ++*list_at;
    return list->numbers[*list_at];
}

static bool give_labels(struct planner *planner, const struct shelf *shelf, struct permit *permit)
{
    for (uint32_t i = 0; i < permit->slots.count; i++) {
        struct bytes label = slot_pool_label(&shelf->free, permit->slots.numbers[i]);
        if (label.length && !permit->labels)
            permit->labels = arena_array(planner->arena, permit->slots.count, sizeof *permit->labels);
        if (label.length && !permit->labels)
            return false;
        if (label.length)
            permit->labels[i] = label;
    }
    return true;
}

bool planner_take_slots(struct planner *planner, const struct want *want, size_t index, const struct key *key,
                        struct permit *permit)
{
    struct semaphore_image *image = planner_image(planner, want->semaphore_id);
    struct shelf *shelf = planner_shelf(planner, image);
    permit->slots.numbers = arena_array(planner->arena, (size_t)permit->count, sizeof(uint32_t));
    if (!permit->slots.numbers)
        return false;
    permit->slots.count = (uint32_t)permit->count;
    uint32_t list_at = 0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < permit->slots.count; i++) {
        last = next_slot(shelf, want, &planner->named[index], &list_at, last);
        slot_pool_take(&shelf->free, last);
        permit->slots.numbers[i] = last;
        record_slot(planner, permit->semaphore_id, last, permit->token);
        const struct slot_row *row = shelf->takers ? row_of_number(shelf, last) : NULL;
        if (row)
            shelf->takers[row - shelf->named->rows] = key;
    }
    settle_first_free(image->semaphore, shelf);
    return !shelf->free.labels || give_labels(planner, shelf, permit);
}
