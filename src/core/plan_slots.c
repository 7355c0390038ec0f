/* SPDX-License-Identifier: MIT */
/* The slots of locked semaphores: which are free, which an acquire names, which it lacks, and how they change hands. */
#include "core/planner.h"

#include <stdlib.h>

struct slot_view *planner_slot_view(struct planner *planner, const struct semaphore_image *image)
{
    return &planner->slot_views[image - planner->images];
}

/* ---- filling the views ---- */

static uint32_t unread_from(const struct semaphore *semaphore, const struct free_slots *read)
{
    if (read->complete)
        return (uint32_t)semaphore->capacity + 1;
    return read->count ? read->numbers[read->count - 1] + 1 : semaphore->first_free;
}

static int compare_row_labels(const void *a, const void *b)
{
    return bytes_compare((*(const struct slot_row *const *)a)->label, (*(const struct slot_row *const *)b)->label);
}

/* Adds the named slots. A free one is added wherever its number lies. */
static void add_named_slots(struct planner *planner, struct slot_view *slot_view)
{
    size_t count = slot_view->named->count;
    if (count == 0)
        return;
    slot_view->granted_to = arena_must_array(planner->arena, count, sizeof *slot_view->granted_to);
    slot_view->labelled = arena_must_array(planner->arena, count, sizeof *slot_view->labelled);
    for (size_t i = 0; i < count; i++) {
        const struct slot_row *row = &slot_view->named->rows[i];
        if (!row->token)
            slot_pool_put(&slot_view->free, row->number);
        if (row->label.length)
            slot_view->labelled[slot_view->labelled_count++] = row;
        slot_pool_set_label(&slot_view->free, row->number, row->label, planner->arena);
    }
    if (slot_view->labelled_count > 1)
        qsort(slot_view->labelled, slot_view->labelled_count, sizeof *slot_view->labelled, compare_row_labels);
}

static void fill_slot_view(struct planner *planner, size_t index)
{
    const struct semaphore *semaphore = &planner->view->semaphores[index];
    const struct free_slots *read = &planner->view->free_slots[index];
    struct slot_view *slot_view = &planner->slot_views[index];
    slot_pool_init(&slot_view->free, semaphore->capacity, planner->arena);
    for (size_t i = 0; i < read->count; i++)
        slot_pool_put(&slot_view->free, read->numbers[i]);
    for (size_t i = 0; read->labels && i < read->count; i++)
        slot_pool_set_label(&slot_view->free, read->numbers[i], read->labels[i], planner->arena);
    slot_view->unread = unread_from(semaphore, read);
    slot_view->whole = read->complete && semaphore->first_free <= 1;
    slot_view->named = &planner->view->named_slots[index];
    slot_view->map = planner->view->seat_maps ? planner->view->seat_maps[index] : NULL;
    add_named_slots(planner, slot_view);
}

/*
 * Adds the labels of held slots. The label of a held slot cannot change, so the permit's label is still right when the
 * slot is freed.
 */
static void add_labels_of_held(struct planner *planner, const struct permit *permit)
{
    const struct semaphore_image *image = permit->labels ? planner_image(planner, permit->semaphore_id) : NULL;
    if (!image)
        return;
    struct slot_view *slot_view = planner_slot_view(planner, image);
    for (uint32_t i = 0; i < permit->slots.count; i++)
        slot_pool_set_label(&slot_view->free, permit->slots.numbers[i], permit->labels[i], planner->arena);
}

void planner_fill_slot_views(struct planner *planner)
{
    const struct view *view = planner->view;
    for (size_t i = 0; i < view->semaphore_count; i++)
        if (view->semaphores[i].kind == KIND_SLOTTED)
            fill_slot_view(planner, i);
    for (size_t i = 0; i < view->request_count; i++)
        for (size_t j = 0; view->requests[i].state == REQUEST_ACQUIRED && j < view->requests[i].permit_count; j++)
            add_labels_of_held(planner, &view->requests[i].permits[j]);
}

/* ---- resolving names ---- */

static const struct slot_row *find_row_by_label(const struct slot_view *slot_view, struct bytes label)
{
    const struct slot_row row = {.label = label}, *wanted = &row, *const *found = NULL;
    if (slot_view->labelled_count)
        found = bsearch(&wanted, slot_view->labelled, slot_view->labelled_count, sizeof wanted, compare_row_labels);
    return found ? *found : NULL;
}

/* Returns the row of a named slot, which begins with its number; NULL: not named. */
static const struct slot_row *find_row_by_number(const struct slot_view *slot_view, uint32_t number)
{
    const struct named_slots *named = slot_view->named;
    return named->count ? bsearch(&number, named->rows, named->count, sizeof *named->rows, compare_u32) : NULL;
}

/*
 * Resolves one name. An unknown label, a number above the capacity and a retired slot are PERMIT_NEVER_SATISFIABLE,
 * with the name in *ret_detail.
 */
static enum permit_status resolve_name(struct planner *planner, const struct semaphore *semaphore,
                                       const struct slot_view *slot_view, const struct slot_name *name,
                                       uint32_t *ret_number, const char **ret_detail)
{
    int length = (int)semaphore->name.length;
    const struct slot_row *row = name->number ? NULL : find_row_by_label(slot_view, name->label);
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

/* Resolves all names of a want to numbers, ascending. */
static enum permit_status resolve_names(struct planner *planner, const struct want *want,
                                        const struct semaphore_image *image, struct slots *ret_list,
                                        const char **ret_detail)
{
    struct slots list = {arena_must_array(planner->arena, want->named_count, sizeof *list.numbers), 0};
    const struct semaphore *semaphore = image->semaphore;
    for (; list.count < want->named_count; list.count++) {
        enum permit_status status = resolve_name(planner, semaphore, planner_slot_view(planner, image),
                                                 &want->named[list.count], &list.numbers[list.count], ret_detail);
        if (status != PERMIT_OK)
            return status;
    }
    if (list.count > 1)
        qsort(list.numbers, list.count, sizeof *list.numbers, compare_u32);
    for (uint32_t i = 1; i < list.count; i++)
        if (list.numbers[i - 1] == list.numbers[i]) {
            *ret_detail = planner_sentence(planner, "%.*s: slot %u is named twice, by its number and by its label",
                                           (int)semaphore->name.length, semaphore->name.data, list.numbers[i]);
            return PERMIT_INVALID;
        }
    *ret_list = list;
    return PERMIT_OK;
}

/* ---- best seats ---- */

/* Makes the view of the free seats; `all`: of all in service. Those that are reserved are not free. */
static struct seat_view *make_seat_view(struct planner *planner, const struct slot_view *slot_view, bool all)
{
    struct seat_view *view = arena_must_alloc(planner->arena, sizeof *view);
    const struct slot_pool *free = &slot_view->free;
    seat_view_init(view, slot_view->map, planner->arena);
    for (uint32_t number = 1; all && number <= free->capacity; number++)
        seat_view_set(view, number, true);
    for (uint32_t number = slot_pool_next(free, 1); !all && number; number = slot_pool_next(free, number + 1))
        seat_view_set(view, number, true);
    return view;
}

/* The view of the free seats follows each seat that the batch takes or frees. */
static void note_seat(struct slot_view *slot_view, uint32_t number)
{
    if (slot_view->seats)
        seat_view_set(slot_view->seats, number, slot_pool_has(&slot_view->free, number));
}

/*
 * Chooses the seats of a want for best seats into planner->named[index]. False: there is no such choice, also without
 * seats that are taken if `all`; planner->largest_together[index] says what there is.
 */
static bool choose_best(struct planner *planner, const struct want *want, size_t index, bool all)
{
    struct slot_view *slot_view = planner_slot_view(planner, planner_image(planner, want->semaphore_id));
    const struct seat_view *view;
    struct best_choice choice = {0};
    struct best wish;
    planner->named[index] = (struct slots){0};
    planner->largest_together[index] = 0;
    if (!slot_view->map)
        return false;
    if (!best_decode(want->best, want->count, planner->arena, &wish)) /* the form was checked when it was read */
        arena_leave(planner->arena);
    if (all || slot_pool_has_reserved(&slot_view->free))
        view = make_seat_view(planner, slot_view, all);
    else
        view = slot_view->seats = slot_view->seats ? slot_view->seats : make_seat_view(planner, slot_view, false);
    if (!best_choose(view, &wish, planner->arena, &choice, &planner->largest_together[index]))
        return false;
    if (!all)
        planner->named[index] = choice.slots;
    return true;
}

/* Refuses a want for best seats that could not be met if all seats were free. */
static enum permit_status resolve_best(struct planner *planner, const struct want *want, size_t index,
                                       struct bytes name, const char **ret_detail)
{
    if (choose_best(planner, want, index, false) || choose_best(planner, want, index, true))
        return PERMIT_OK;
    *ret_detail =
        planner_sentence(planner, "%.*s: no %lld seats match `best`; the largest group has %u", (int)name.length,
                         name.data, (long long)want->count, planner->largest_together[index]);
    return PERMIT_NEVER_SATISFIABLE;
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
    /* Capacity 0 means closed, which is temporary: no_capacity. */
    if (want->choice == CHOOSE_LOWEST || image->semaphore->capacity == 0)
        return PERMIT_OK;
    if (want->choice == CHOOSE_BEST)
        return resolve_best(planner, want, index, name, ret_detail);
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

/* ---- missing slots ---- */

/* Returns the first number of the lowest free run for a want for adjacent slots; 0: none. */
static uint32_t find_run(const struct slot_view *slot_view, const struct want *want, const struct slots *list)
{
    if (want->choice == CHOOSE_ANY_OF)
        return slot_pool_run_within(&slot_view->free, (uint32_t)want->count, list);
    return slot_pool_run(&slot_view->free, (uint32_t)want->count);
}

int64_t planner_slots_missing(struct planner *planner, const struct want *want, size_t index)
{
    const struct semaphore_image *image = planner_image(planner, want->semaphore_id);
    if (image->semaphore->kind != KIND_SLOTTED || !want_is_specific(want))
        return 0;
    const struct slot_view *slot_view = planner_slot_view(planner, image);
    const struct slots *list = &planner->named[index];
    if (want->adjacent)
        return find_run(slot_view, want, list) ? 0 : want->count;
    if (want->choice == CHOOSE_BEST && slot_pool_count_of(&slot_view->free, list) < want->count)
        return choose_best(planner, want, index, false) ? 0 : want->count;
    return max_i64(0, want->count - slot_pool_count_of(&slot_view->free, list));
}

/* Adds the slots of due holders to the free slots (free_now), or removes them again. */
static void set_due_slots_free(struct planner *planner, struct slot_view *slot_view, uint64_t semaphore_id,
                               bool free_now)
{
    struct slot_pool *free = &slot_view->free;
    for (size_t i = 0; i < planner->due_count; i++) {
        const struct request *request = planner->due[i]->request;
        for (size_t j = 0; request_is_due(planner, request) && j < request->permit_count; j++) {
            const struct permit *permit = &request->permits[j];
            for (uint32_t k = 0; permit->semaphore_id == semaphore_id && k < permit->slots.count; k++) {
                if (free_now)
                    slot_pool_put(free, permit->slots.numbers[k]);
                else if (slot_pool_has(free, permit->slots.numbers[k]))
                    slot_pool_take(free, permit->slots.numbers[k]);
                note_seat(slot_view, permit->slots.numbers[k]);
            }
        }
    }
}

struct slots planner_slots_to_reclaim(struct planner *planner, const struct want *want, size_t index)
{
    struct slot_view *slot_view = planner_slot_view(planner, planner_image(planner, want->semaphore_id));
    const struct slots *list = &planner->named[index];
    if (want->choice == CHOOSE_BEST) {
        set_due_slots_free(planner, slot_view, want->semaphore_id, true);
        (void)choose_best(planner, want, index, false);
        set_due_slots_free(planner, slot_view, want->semaphore_id, false);
        const struct slots chosen = *list;
        planner->named[index] = (struct slots){0};
        return chosen;
    }
    if (!want->adjacent && !slot_pool_has_reserved(&slot_view->free))
        return *list;
    uint32_t room = want->adjacent ? (uint32_t)want->count : list->count;
    struct slots to_reclaim = {arena_must_array(planner->arena, room, sizeof *to_reclaim.numbers), 0};
    if (want->adjacent) {
        set_due_slots_free(planner, slot_view, want->semaphore_id, true);
        uint32_t first = find_run(slot_view, want, list);
        set_due_slots_free(planner, slot_view, want->semaphore_id, false);
        for (uint32_t i = 0; first && i < want->count; i++)
            to_reclaim.numbers[to_reclaim.count++] = first + i;
    }
    for (uint32_t i = 0; !want->adjacent && i < list->count; i++)
        if (!slot_pool_is_reserved(&slot_view->free, list->numbers[i]))
            to_reclaim.numbers[to_reclaim.count++] = list->numbers[i];
    return to_reclaim;
}

int64_t planner_units_freed(struct planner *planner, const struct permit *permit)
{
    const struct slot_view *slot_view = planner_slot_view(planner, planner_image(planner, permit->semaphore_id));
    int64_t units = permit->count;
    for (uint32_t i = 0; i < permit->slots.count; i++)
        units -= slot_pool_is_reserved(&slot_view->free, permit->slots.numbers[i]);
    return units;
}

/* ---- reserving ---- */

/* Returns true if the slot can come to a waiter that reserves it: it is free, or its holder may end. */
static bool can_come(const struct slot_view *slot_view, uint32_t number)
{
    if (slot_pool_is_reserved(&slot_view->free, number))
        return false;
    const struct slot_row *row = slot_pool_has(&slot_view->free, number) ? NULL : find_row_by_number(slot_view, number);
    return !row || !row->confirmed;
}

/* Returns the first of the `count` adjacent numbers, of those that can come, of which the fewest are held; 0: none. */
static uint32_t run_to_reserve(const struct slot_view *slot_view, uint32_t count, const struct slots *list)
{
    uint32_t best = 0, fewest = UINT32_MAX;
    uint32_t run = 0,
             held = 0; /* the numbers before `next` that can come, at most `count`; those of them that are held */
    uint32_t last = 0;
    const uint32_t end = list->count ? list->count : slot_view->free.capacity;
    for (uint32_t i = 0; i < end; i++) {
        uint32_t number = list->count ? list->numbers[i] : i + 1;
        if (run && (number != last + 1 || !can_come(slot_view, number)))
            run = held = 0;
        last = number;
        if (!can_come(slot_view, number))
            continue;
        held += !slot_pool_has(&slot_view->free, number);
        if (run == count)
            held -= !slot_pool_has(&slot_view->free, number - count);
        else
            run++;
        if (run == count && held < fewest) {
            fewest = held;
            best = number - count + 1;
        }
    }
    return best;
}

struct slots planner_slots_to_reserve(struct planner *planner, const struct want *want, size_t index)
{
    const struct slot_view *slot_view = planner_slot_view(planner, planner_image(planner, want->semaphore_id));
    const struct slots *list = &planner->named[index];
    struct slots chosen = {arena_must_array(planner->arena, (size_t)want->count, sizeof *chosen.numbers), 0};
    if (want->choice == CHOOSE_BEST) /* what it gets depends on what becomes free */
        return chosen;
    if (want->adjacent) {
        uint32_t first = run_to_reserve(slot_view, (uint32_t)want->count, list);
        for (uint32_t i = 0; first && i < want->count; i++)
            chosen.numbers[chosen.count++] = first + i;
    }
    for (int held = 0; held < 2 && !want->adjacent; held++) /* the free ones first */
        for (uint32_t i = 0; i < list->count && chosen.count < want->count; i++)
            if (can_come(slot_view, list->numbers[i]) &&
                slot_pool_has(&slot_view->free, list->numbers[i]) == (held == 0))
                chosen.numbers[chosen.count++] = list->numbers[i];
    if (chosen.count < want->count)
        chosen.count = 0;
    return chosen;
}

/* ---- holders ---- */

static struct taken_slot taken_slot(struct planner *planner, const struct slot_view *slot_view, uint64_t semaphore_id,
                                    const struct slot_row *row)
{
    /* The holder as changed by this batch: it may have been renewed. NULL: not among the rows of the batch. */
    const struct key *key = slot_view->granted_to[row - slot_view->named->rows];
    const struct request *holder = key ? key->request : planner_request(planner, row->holder);
    const struct permit *permit = holder ? request_permit_of(holder, semaphore_id) : NULL;
    if (holder)
        return (struct taken_slot){.number = row->number,
                                   .label = row->label,
                                   .token = permit ? permit->token : 0,
                                   .holder = holder->external_id,
                                   .expires_at = request_expires_at(holder)};
    bool told = row->due_at != NEVER && !row->without_ttl;
    return (struct taken_slot){.number = row->number,
                               .label = row->label,
                               .token = row->token,
                               .holder = row->holder,
                               .expires_at = told ? row->due_at - row->grace_ms * US_PER_MS : NEVER};
}

void planner_taken_slots(struct planner *planner, const struct want *want, size_t index, struct shortage *shortage)
{
    const struct slot_view *slot_view = planner_slot_view(planner, planner_image(planner, want->semaphore_id));
    const struct slots *list = &planner->named[index];
    struct taken_slot *taken = arena_must_array(planner->arena, list->count, sizeof *taken);
    shortage->taken = taken;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct slot_row *row = find_row_by_number(slot_view, list->numbers[i]);
        if (row && !slot_pool_has(&slot_view->free, row->number))
            taken[shortage->taken_count++] = taken_slot(planner, slot_view, want->semaphore_id, row);
    }
}

uint32_t planner_held_slot(struct planner *planner, const struct want *want)
{
    const struct semaphore_image *image = planner_image(planner, want->semaphore_id);
    if (!image || image->semaphore->kind != KIND_SLOTTED || want->choice != CHOOSE_NAMED)
        return 0;
    const struct slot_view *slot_view = planner_slot_view(planner, image);
    uint32_t held = 0;
    for (size_t i = 0; i < want->named_count; i++) {
        const struct slot_name *name = &want->named[i];
        const struct slot_row *row =
            name->number ? find_row_by_number(slot_view, name->number) : find_row_by_label(slot_view, name->label);
        if (!row || row->number > image->semaphore->capacity || slot_pool_has(&slot_view->free, row->number))
            continue;
        if (row->confirmed)
            return row->number;
        held = held ? held : row->number;
    }
    return held;
}

/* ---- taking and freeing ---- */

/*
 * Updates first_free, a lower bound of the lowest free slot. A full semaphore has no free slot: first_free is then
 * above the capacity, so that the next batch does not scan held rows. FIRST_FREE_SHRUNK stays while slots that a
 * smaller capacity put out of service may be held: they count in in_use, so a slot in service may be free although no
 * unit is. It ends when all free slots were read and their number equals the number of free units.
 */
static void update_first_free(struct semaphore *semaphore, struct slot_view *slot_view)
{
    int64_t room = semaphore->capacity - semaphore->in_use;
    if (semaphore->first_free == FIRST_FREE_SHRUNK && !(slot_view->whole && (int64_t)slot_view->free.count == room))
        return;
    int64_t lowest = slot_view->free.count ? slot_pool_lowest(&slot_view->free) : slot_view->unread;
    semaphore->first_free = (uint32_t)(room > 0 ? min_i64(lowest, slot_view->unread) : semaphore->capacity + 1);
}

void planner_move_slots(struct planner *planner, struct semaphore_image *image, const struct permit *permit, bool frees)
{
    struct slot_view *slot_view = planner_slot_view(planner, image);
    for (uint32_t i = 0; i < permit->slots.count; i++) {
        if (frees)
            slot_pool_put(&slot_view->free, permit->slots.numbers[i]);
        else if (slot_pool_has(&slot_view->free, permit->slots.numbers[i])) /* one above the capacity was not put */
            slot_pool_take(&slot_view->free, permit->slots.numbers[i]);
        note_seat(slot_view, permit->slots.numbers[i]);
    }
    update_first_free(image->semaphore, slot_view);
}

/*
 * Returns the slot that a want takes after `last`, 0: first: a free one of its list, the next one if adjacent, else the
 * lowest free slot. `last` may be taken or not.
 */
static uint32_t next_slot(struct slot_view *slot_view, const struct want *want, const struct slots *list,
                          uint32_t *list_at, uint32_t last)
{
    if (want->adjacent)
        return last ? last + 1 : find_run(slot_view, want, list);
    if (want->choice == CHOOSE_LOWEST)
        return slot_pool_next(&slot_view->free, last + 1);
    while (!slot_pool_has(&slot_view->free, list->numbers[*list_at]) ||
           slot_pool_is_reserved(&slot_view->free, list->numbers[*list_at]))
        ++*list_at;
    return list->numbers[(*list_at)++];
}

static bool may_have_labels(const struct slot_view *slot_view)
{
    return slot_view->free.labels || (slot_view->map && slot_view->map->labels);
}

static struct bytes label_of(const struct slot_view *slot_view, uint32_t number)
{
    struct bytes label = slot_pool_label(&slot_view->free, number);
    return label.length || !slot_view->map ? label : seat_map_label(slot_view->map, number);
}

size_t planner_labels_size(struct planner *planner, const struct want *want, size_t index)
{
    struct slot_view *slot_view = planner_slot_view(planner, planner_image(planner, want->semaphore_id));
    size_t size = 0;
    uint32_t list_at = 0;
    uint32_t last = 0;
    for (int64_t i = 0; may_have_labels(slot_view) && i < want->count; i++) {
        last = next_slot(slot_view, want, &planner->named[index], &list_at, last);
        size += label_of(slot_view, last).length + 1; /* the end of its line */
    }
    return size;
}

static void copy_labels(struct planner *planner, const struct slot_view *slot_view, struct permit *permit)
{
    for (uint32_t i = 0; i < permit->slots.count; i++) {
        struct bytes label = label_of(slot_view, permit->slots.numbers[i]);
        if (label.length && !permit->labels)
            permit->labels = arena_must_array(planner->arena, permit->slots.count, sizeof *permit->labels);
        if (label.length)
            permit->labels[i] = label;
    }
}

void planner_take_slots(struct planner *planner, const struct want *want, size_t index, const struct key *key,
                        struct permit *permit)
{
    struct semaphore_image *image = planner_image(planner, want->semaphore_id);
    struct slot_view *slot_view = planner_slot_view(planner, image);
    permit->slots.numbers = arena_must_array(planner->arena, (size_t)permit->count, sizeof(uint32_t));
    permit->slots.count = (uint32_t)permit->count;
    uint32_t list_at = 0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < permit->slots.count; i++) {
        last = next_slot(slot_view, want, &planner->named[index], &list_at, last);
        slot_pool_take(&slot_view->free, last);
        note_seat(slot_view, last);
        permit->slots.numbers[i] = last;
        const struct slot_row *row = slot_view->granted_to ? find_row_by_number(slot_view, last) : NULL;
        if (row)
            slot_view->granted_to[row - slot_view->named->rows] = key;
    }
    update_first_free(image->semaphore, slot_view);
    if (may_have_labels(slot_view))
        copy_labels(planner, slot_view, permit);
}
