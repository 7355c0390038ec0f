/* SPDX-License-Identifier: MIT */
#include "core/best.h"

#include <assert.h>
#include <setjmp.h>
#include <stdlib.h>

enum { WORD = 64, LANE = 16, APART_PASSES = 4 };
#define UNFIT UINT64_MAX /* lanes of a seat that the wish does not want */
#define NONE  INT64_MAX  /* sum of a choice that does not exist */

/* ---- the map ---- */

bool seat_next_tag(struct bytes *text, struct bytes *ret_tag)
{
    if (!text->data)
        return false;
    const char *space = text->length ? memchr(text->data, ' ', text->length) : NULL;
    *ret_tag = (struct bytes){text->data, space ? (size_t)(space - text->data) : text->length};
    *text = space ? (struct bytes){space + 1, text->length - ret_tag->length - 1} : (struct bytes){0};
    return true;
}

static bool has_tag(struct bytes text, struct bytes tag)
{
    struct bytes word;
    while (seat_next_tag(&text, &word))
        if (bytes_equal(word, tag))
            return true;
    return false;
}

bool seat_is_valid(const struct seat *seat)
{
    struct bytes rest = seat->tags.length ? seat->tags : (struct bytes){0}, tag;
    for (uint32_t tags = 1; seat_next_tag(&rest, &tag); tags++)
        if (tags > SEAT_MAX_TAGS || !name_is_tag(tag) || has_tag(rest, tag))
            return false;
    return (!seat->section.length || name_is_seat_name(seat->section)) &&
           (!seat->row.length || name_is_seat_name(seat->row)) && seat->position <= SEAT_POSITION_MAX &&
           seat->rank <= SEAT_RANK_NONE;
}

static int compare_names(struct bytes a, struct bytes b)
{
    return a.length == b.length ? bytes_compare(a, b) : (a.length > b.length) - (a.length < b.length);
}

int seat_compare_places(const struct seat *a, const struct seat *b)
{
    int order = compare_names(a->section, b->section);
    order = order ? order : compare_names(a->row, b->row);
    return order ? order : compare_u32(&a->position, &b->position);
}

int seat_compare(const void *left, const void *right)
{
    const struct seat *a = *(const struct seat *const *)left, *b = *(const struct seat *const *)right;
    int order = seat_compare_places(a, b);
    return order ? order : compare_u32(&a->number, &b->number);
}

bool seat_same(const struct seat *a, const struct seat *b)
{
    return seat_compare_places(a, b) == 0 && a->rank == b->rank && bytes_equal(a->tags, b->tags);
}

static int compare_tags(const void *left, const void *right)
{
    return bytes_compare((*(const struct seat *const *)left)->tags, (*(const struct seat *const *)right)->tags);
}

/* Turns keys, a rank above an index each, into the indexes in their order. */
static uint32_t *sort_by_rank(uint64_t *keys, uint32_t count, struct arena *arena)
{
    uint32_t *order = arena_must_array(arena, count, sizeof *order);
    u64_sort_unique(keys, count);
    for (uint32_t i = 0; i < count; i++)
        order[i] = (uint32_t)keys[i];
    return order;
}

void seat_map_init(struct seat_map *map, const struct seat *seats, uint32_t count, struct arena *arena)
{
    const struct seat **order = arena_must_array(arena, count, sizeof *order);
    uint64_t *keys = arena_must_array(arena, count, sizeof *keys);
    uint32_t *tag_sets = arena_must_array(arena, count, sizeof *tag_sets); /* by place in `seats` */
    *map = (struct seat_map){.count = count};
    map->seats = arena_must_array(arena, count, sizeof *map->seats);
    map->runs = arena_must_array(arena, count, sizeof *map->runs);
    map->tag_sets = arena_must_array(arena, count, sizeof *map->tag_sets);
    for (uint32_t i = 0; i < count; i++) {
        order[i] = &seats[i];
        map->max_number = (uint32_t)max_i64(map->max_number, seats[i].number);
    }
    assert(map->max_number <= SLOTS_MAX_CAPACITY);
    map->index_of = arena_must_array(arena, map->max_number + 1, sizeof *map->index_of);
    memset(map->index_of, 0xff, (map->max_number + 1) * sizeof *map->index_of);
    qsort(order, count, sizeof *order, compare_tags);
    for (uint32_t i = 0; i < count; i++) {
        if (i == 0 || !bytes_equal(order[i]->tags, order[i - 1]->tags))
            map->tag_sets[map->tag_set_count++] = order[i]->tags;
        tag_sets[order[i] - seats] = map->tag_set_count - 1;
    }
    qsort(order, count, sizeof *order, seat_compare);
    for (uint32_t i = 0; i < count; i++) {
        const struct seat *seat = order[i], *before = i ? order[i - 1] : NULL;
        if (!before || !bytes_equal(seat->section, before->section) || !bytes_equal(seat->row, before->row) ||
            !before->position || seat->position != before->position + 1)
            map->runs[map->run_count++] = (struct seat_run){i, i, seat->rank, seat->section};
        struct seat_run *run = &map->runs[map->run_count - 1];
        run->end = i + 1;
        run->lowest = (uint32_t)min_i64(run->lowest, seat->rank);
        map->seats[i] = (struct map_seat){seat->number, seat->rank, tag_sets[seat - seats], map->run_count - 1};
        map->index_of[seat->number] = i;
        keys[i] = (uint64_t)seat->rank << 32 | i;
    }
    map->by_rank = sort_by_rank(keys, count, arena);
    for (uint32_t i = 0; i < map->run_count; i++)
        keys[i] = (uint64_t)map->runs[i].lowest << 32 | i;
    map->runs_by_rank = sort_by_rank(keys, map->run_count, arena);
}

static bool is_free(const uint64_t *free, uint32_t at)
{
    return free[at / WORD] >> at % WORD & 1;
}

/* Returns the first free seat from `at` on, before `end`; else `end`. */
static uint32_t next_free(const uint64_t *free, uint32_t at, uint32_t end)
{
    while (at < end && !(free[at / WORD] >> at % WORD))
        at += WORD - at % WORD;
    return at < end ? (uint32_t)min_i64(at + (uint32_t)__builtin_ctzll(free[at / WORD] >> at % WORD), end) : end;
}

static void set_free(uint64_t *free, uint32_t at, bool value)
{
    free[at / WORD] = (free[at / WORD] & ~(UINT64_C(1) << at % WORD)) | (uint64_t)value << at % WORD;
}

void seat_view_init(struct seat_view *view, const struct seat_map *map, struct arena *arena)
{
    *view = (struct seat_view){map, arena_must_array(arena, map->count / WORD + 1, sizeof *view->free)};
}

void seat_view_set(struct seat_view *view, uint32_t number, bool free)
{
    if (number <= view->map->max_number && view->map->index_of[number] != UINT32_MAX)
        set_free(view->free, view->map->index_of[number], free);
}

bool seat_map_make(struct seat_map *map, const struct seats *seats, struct arena *arena)
{
    jmp_buf no_memory;
    arena->exit = &no_memory;
    bool made = setjmp(no_memory) == 0;
    if (made) {
        seat_map_init(map, seats->rows, (uint32_t)seats->count, arena);
        if (seats->labels)
            map->labels = arena_must_array(arena, map->max_number + 1, sizeof *map->labels);
        for (size_t i = 0; seats->labels && i < seats->count; i++)
            map->labels[seats->rows[i].number] = seats->labels[i];
    }
    arena->exit = NULL;
    return made;
}

/* ---- the form of a wish ---- */

static int compare_bytes_of(const void *a, const void *b)
{
    return bytes_compare(*(const struct bytes *)a, *(const struct bytes *)b);
}

/* Appends names, which are the first members of elements of this size. False: one is there twice. */
static bool put_names(char **at, void *names, uint32_t count, size_t size)
{
    if (count > 1)
        qsort(names, count, size, compare_bytes_of);
    *(*at)++ = (char)count;
    for (uint32_t i = 0; i < count; i++) {
        const struct bytes *name = (const void *)((const char *)names + i * size);
        if (i > 0 && bytes_equal(*name, *(const struct bytes *)((const char *)name - size)))
            return false;
        *(*at)++ = (char)name->length;
        memcpy(*at, name->data, name->length);
        *at += name->length;
        if (size == sizeof(struct best_with)) {
            uint32_t with = ((const struct best_with *)name)->count;
            *(*at)++ = (char)(with >> 8);
            *(*at)++ = (char)with;
        }
    }
    return true;
}

struct bytes best_encode(struct best *wish, char *form)
{
    char *at = form;
    *at++ = (char)(wish->together | wish->no_orphans << 1);
    *at++ = (char)wish->split;
    bool unique = put_names(&at, wish->sections, wish->section_count, sizeof *wish->sections) &&
                  put_names(&at, wish->tags, wish->tag_count, sizeof *wish->tags) &&
                  put_names(&at, wish->not_tags, wish->not_tag_count, sizeof *wish->not_tags) &&
                  put_names(&at, wish->with, wish->with_count, sizeof *wish->with);
    return unique ? (struct bytes){form, (size_t)(at - form)} : (struct bytes){0};
}

static bool take_number(struct bytes *form, size_t size, uint32_t *ret_number)
{
    if (form->length < size)
        return false;
    *ret_number = 0;
    for (size_t i = 0; i < size; i++)
        *ret_number = *ret_number << 8 | (unsigned char)form->data[i];
    *form = (struct bytes){form->data + size, form->length - size};
    return true;
}

/* Reads names, which ascend. NULL: there is no memory, or they do not have the form. */
static void *take_names(struct bytes *form, uint32_t max, size_t size, struct arena *arena, uint32_t *ret_count)
{
    uint32_t length;
    if (!take_number(form, 1, ret_count) || *ret_count > max)
        return NULL;
    char *names = arena_array(arena, *ret_count + 1, size);
    for (uint32_t i = 0; names && i < *ret_count; i++) {
        struct bytes *name = (void *)(names + i * size);
        if (!take_number(form, 1, &length) || length < 1 || length > SEAT_NAME_MAX_BYTES || length > form->length)
            return NULL;
        *name = (struct bytes){form->data, length};
        *form = (struct bytes){form->data + length, form->length - length};
        if (i > 0 && bytes_compare(*(const struct bytes *)((const char *)name - size), *name) >= 0)
            return NULL;
        if (size == sizeof(struct best_with) && !take_number(form, 2, &((struct best_with *)name)->count))
            return NULL;
    }
    return names;
}

bool best_decode(struct bytes form, int64_t count, struct arena *arena, struct best *ret_wish)
{
    struct best wish = {.count = count > 0 && count <= SLOTS_MAX_COUNT ? (uint32_t)count : 0};
    uint32_t flags;
    bool valid =
        take_number(&form, 1, &flags) && flags < 4 && take_number(&form, 1, &wish.split) &&
        (wish.sections = take_names(&form, BEST_MAX_SECTIONS, sizeof *wish.sections, arena, &wish.section_count)) &&
        (wish.tags = take_names(&form, BEST_MAX_TAGS, sizeof *wish.tags, arena, &wish.tag_count)) &&
        (wish.not_tags = take_names(&form, BEST_MAX_TAGS, sizeof *wish.not_tags, arena, &wish.not_tag_count)) &&
        (wish.with = take_names(&form, BEST_MAX_WITH, sizeof *wish.with, arena, &wish.with_count));
    wish.together = valid && (flags & 1);
    wish.no_orphans = valid && (flags & 2);
    if (!valid || form.length || !best_is_valid(&wish))
        return false;
    *ret_wish = wish;
    return true;
}

/* ---- the wish ---- */

bool best_is_valid(const struct best *wish)
{
    bool valid = wish->count >= 1 && wish->count <= SLOTS_MAX_COUNT && wish->with_count <= BEST_MAX_WITH &&
                 wish->split <= (wish->together ? BEST_MAX_SPLIT : 1);
    uint64_t states = (uint64_t)wish->split * wish->count;
    for (uint32_t i = 0; valid && i < wish->with_count; i++) {
        valid = wish->with[i].count >= 1 && wish->with[i].count <= wish->count;
        for (uint32_t k = 0; k < i; k++)
            valid = valid && !bytes_equal(wish->with[k].tag, wish->with[i].tag);
        states *= wish->with[i].count + 1;
    }
    return valid && (wish->split < 2 || states <= BEST_MAX_STATES);
}

/* The lanes of seats count the tags of `with` that they have, 16 bits a tag, so that lanes are added like numbers. */
struct chooser {
    const struct seat_map *map;
    const struct best *wish;
    struct arena *arena;
    uint64_t *free;  /* a copy */
    uint64_t *lanes; /* by tag set */
    uint32_t at_most[BEST_MAX_WITH];
    uint32_t with_states; /* product of all (with.count + 1) */
    uint32_t largest;     /* group that search_together has seen */
    bool no_orphans;
    int64_t limit; /* of the sum of one group */
};

static bool names_have(const struct bytes *names, uint32_t count, struct bytes name)
{
    uint32_t i = 0;
    while (i < count && !bytes_equal(names[i], name))
        i++;
    return i < count;
}

static void chooser_init(struct chooser *c, const struct seat_view *view, const struct best *wish, struct arena *arena)
{
    size_t words = view->map->count / WORD + 1;
    *c = (struct chooser){view->map, wish, arena, .with_states = 1, .limit = NONE - 1};
    c->free = arena_must_array(arena, words, sizeof *c->free);
    memcpy(c->free, view->free, words * sizeof *c->free);
    c->lanes = arena_must_array(arena, view->map->tag_set_count, sizeof *c->lanes);
    for (uint32_t k = 0; k < wish->with_count; k++) {
        bool scarce = names_have(wish->not_tags, wish->not_tag_count, wish->with[k].tag);
        c->at_most[k] = scarce ? wish->with[k].count : wish->count;
        c->with_states *= wish->with[k].count + 1;
    }
    for (uint32_t i = 0; i < view->map->tag_set_count; i++) {
        struct bytes text = view->map->tag_sets[i], tag;
        bool fits = true;
        for (uint32_t k = 0; k < wish->tag_count; k++)
            fits = fits && has_tag(text, wish->tags[k]);
        while (seat_next_tag(&text, &tag)) {
            uint32_t k = 0;
            while (k < wish->with_count && !bytes_equal(wish->with[k].tag, tag))
                k++;
            if (k < wish->with_count)
                c->lanes[i] |= UINT64_C(1) << k * LANE;
            else
                fits = fits && !names_have(wish->not_tags, wish->not_tag_count, tag);
        }
        c->lanes[i] = fits ? c->lanes[i] : UNFIT;
    }
}

static bool wants_section(const struct chooser *c, const struct seat_run *run)
{
    return c->wish->section_count == 0 || names_have(c->wish->sections, c->wish->section_count, run->section);
}

/* Returns the lanes of a seat in a section that is wanted; UNFIT also if it is taken. */
static uint64_t fit(const struct chooser *c, uint32_t at)
{
    return is_free(c->free, at) ? c->lanes[c->map->seats[at].tag_set] : UNFIT;
}

/*
 * Counts what `with` still asks for beside seats with these lanes. *ret_state is the number of this with-state, below
 * with_states; 0: nothing. False: more seats than allowed have a tag.
 */
static bool allows(const struct chooser *c, uint64_t lanes, uint32_t *ret_unmet, uint32_t *ret_state)
{
    bool allowed = true;
    *ret_unmet = *ret_state = 0;
    for (uint32_t k = 0; k < c->wish->with_count; k++) {
        uint32_t need = c->wish->with[k].count, have = (uint16_t)(lanes >> k * LANE);
        uint32_t rest = have < need ? need - have : 0;
        allowed = allowed && have <= c->at_most[k];
        *ret_unmet += rest;
        *ret_state = *ret_state * (need + 1) + rest;
    }
    return allowed;
}

/* Returns true if the seats first to last of one run, which are taken next, leave an orphan beside them. */
static bool leaves_orphan(const struct chooser *c, uint32_t first, uint32_t last)
{
    const struct seat_run *run = &c->map->runs[c->map->seats[first].run];
    return (first >= run->first + 2 && is_free(c->free, first - 1) && !is_free(c->free, first - 2)) ||
           (last + 2 < run->end && is_free(c->free, last + 1) && !is_free(c->free, last + 2));
}

static bool leaves_orphans(struct chooser *c, const struct best_choice *found)
{
    bool orphans = false;
    for (uint32_t i = 0; i < c->wish->count; i++)
        set_free(c->free, found->slots.numbers[i], false);
    for (uint32_t i = 0; i < c->wish->count; i++)
        orphans = orphans || leaves_orphan(c, found->slots.numbers[i], found->slots.numbers[i]);
    for (uint32_t i = 0; i < c->wish->count; i++)
        set_free(c->free, found->slots.numbers[i], true);
    return orphans;
}

/* Makes a choice whose slots the caller fills in: indexes until the end of best_choose. */
static struct best_choice found_make(const struct chooser *c, int64_t rank_sum, uint32_t groups)
{
    uint32_t *seats = arena_must_array(c->arena, c->wish->count, sizeof *seats);
    return (struct best_choice){{seats, c->wish->count}, rank_sum, groups};
}

/* ---- one group ---- */

/* Moves a window along each run: for each last seat, the longest one of at most wish->count seats. */
static void search_together(struct chooser *c, struct best_choice *found)
{
    uint32_t count = c->wish->count, best = UINT32_MAX, unmet, state;
    int64_t best_sum = c->limit;
    for (uint32_t i = 0; i < c->map->run_count; i++) {
        const struct seat_run *run = &c->map->runs[c->map->runs_by_rank[i]];
        uint32_t end = wants_section(c, run) ? run->end : 0;
        uint64_t lanes = 0, more;
        int64_t sum = 0;
        if ((int64_t)count * run->lowest > best_sum)
            break;
        for (uint32_t first = run->first, at = first; at < end; at++) {
            if ((more = fit(c, at)) == UNFIT) {
                first = next_free(c->free, at + 1, end);
                at = first - 1;
                lanes = 0;
                sum = 0;
                continue;
            }
            lanes += more;
            sum += c->map->seats[at].rank;
            for (; at - first == count || !allows(c, lanes, &unmet, &state); first++) {
                lanes -= fit(c, first);
                sum -= c->map->seats[first].rank;
            }
            if (unmet)
                continue;
            c->largest = (uint32_t)max_i64(c->largest, at + 1 - first);
            if (at + 1 - first == count && (sum < best_sum || (sum == best_sum && first < best)) &&
                !(c->no_orphans && leaves_orphan(c, first, at))) {
                best = first;
                best_sum = sum;
            }
        }
    }
    if (best == UINT32_MAX)
        return;
    *found = found_make(c, best_sum, 1);
    for (uint32_t i = 0; i < count; i++)
        found->slots.numbers[i] = best + i;
}

/* ---- several groups ---- */

struct window {
    int64_t sum; /* NONE: there is no such window */
    uint64_t lanes;
    uint32_t first, size;
};

/* The best choice so far of a number of groups with a number of seats and a with-state. */
struct state {
    int64_t sum;
    uint64_t lanes;
    struct {
        uint32_t first, size;
    } groups[BEST_MAX_SPLIT];
};

/*
 * Finds the best window of each size and with-state among the seats from..to - 1, all of which fit; returns the number
 * of windows, ordered by size. `kept` has the `split` lowest sums that earlier runs have for each. A window that is not
 * better is left out: the other groups of a choice are in fewer than `split` runs, so one of those runs can replace it.
 */
static size_t find_windows(const struct chooser *c, uint32_t from, uint32_t to, int64_t *kept, struct window *windows)
{
    uint32_t longest = (uint32_t)min_i64(to - from, c->wish->count - 1), unmet, state;
    size_t count = 0, kinds = (size_t)longest * c->with_states;
    for (size_t i = 0; i < kinds; i++)
        windows[i].sum = NONE;
    for (uint32_t first = from; first < to; first++) {
        struct window window = {.first = first};
        for (uint32_t at = first; at < to && window.size < longest; at++) {
            window.lanes += fit(c, at);
            window.sum += c->map->seats[at].rank;
            bool allowed = allows(c, window.lanes, &unmet, &state);
            struct window *best = &windows[window.size++ * c->with_states + state];
            if (allowed && window.sum < best->sum && !(c->no_orphans && leaves_orphan(c, first, at)))
                *best = window;
        }
    }
    for (size_t i = 0; i < kinds; i++) {
        int64_t *sums = &kept[i * c->wish->split];
        uint32_t rank = c->wish->split - 1;
        if (windows[i].sum >= sums[rank])
            continue;
        for (; rank > 0 && sums[rank - 1] > windows[i].sum; rank--)
            sums[rank] = sums[rank - 1];
        sums[rank] = windows[i].sum;
        windows[count++] = windows[i];
    }
    return count;
}

/* Adds one of these windows to each state. From the last state down, so that no choice gets two of them. */
static void add_windows(const struct chooser *c, struct state *states, const struct window *windows, size_t count)
{
    size_t layer = (size_t)(c->wish->count + 1) * c->with_states;
    for (size_t i = c->wish->split * layer; i-- > 0;) {
        const struct state *from = &states[i];
        size_t seats = i % layer / c->with_states;
        for (size_t k = 0; from->sum != NONE && k < count && seats + windows[k].size <= c->wish->count; k++) {
            uint32_t unmet, with;
            uint64_t lanes = from->lanes + windows[k].lanes;
            bool allowed = allows(c, lanes, &unmet, &with);
            struct state *to = &states[(i / layer + 1) * layer + (seats + windows[k].size) * c->with_states + with];
            if (!allowed || from->sum + windows[k].sum >= to->sum)
                continue;
            *to = *from;
            to->sum += windows[k].sum;
            to->lanes = lanes;
            to->groups[i / layer].first = windows[k].first;
            to->groups[i / layer].size = windows[k].size;
        }
    }
}

/* A knapsack: a choice takes at most one window of each run of seats that fit. */
static void search_split(struct chooser *c, struct best_choice *found)
{
    uint32_t split = c->wish->split, count = c->wish->count, unmet, none;
    size_t layer = (size_t)(count + 1) * c->with_states, kinds = (size_t)(count - 1) * c->with_states;
    struct state *states = arena_must_array(c->arena, (split + 1) * layer, sizeof *states);
    struct window *windows = arena_must_array(c->arena, kinds, sizeof *windows);
    int64_t *kept = arena_must_array(c->arena, kinds * split, sizeof *kept);
    for (size_t i = 0; i < (split + 1) * layer; i++)
        states[i].sum = NONE;
    for (size_t i = 0; i < kinds * split; i++)
        kept[i] = NONE;
    (void)allows(c, 0, &unmet, &none);
    states[none].sum = 0;
    for (uint32_t i = 0; i < c->map->run_count; i++) {
        const struct seat_run *run = &c->map->runs[c->map->runs_by_rank[i]];
        uint32_t run_end = wants_section(c, run) ? run->end : 0;
        for (uint32_t from = run->first, to; from < run_end; from = to + 1) {
            for (to = from; to < run_end && fit(c, to) != UNFIT;)
                to++;
            size_t found_count = find_windows(c, from, to, kept, windows);
            if (found_count > 0)
                add_windows(c, states, windows, found_count);
        }
    }
    for (uint32_t groups = 2; groups <= split && !found->slots.numbers; groups++) {
        const struct state *end = &states[groups * layer + count * c->with_states]; /* unmet: 0 */
        if (end->sum == NONE)
            continue;
        *found = found_make(c, end->sum, groups);
        for (uint32_t i = 0, next = 0; i < groups; i++)
            for (uint32_t k = 0; k < end->groups[i].size; k++)
                found->slots.numbers[next++] = end->groups[i].first + k;
    }
}

/* ---- seats apart ---- */

/*
 * Walks along the ranks and takes each seat after which enough seats are left to choose for all that `with` still asks
 * for. The walk is repeated: a seat with several tags, or a neighbour, may make room for seats that it has passed.
 */
static void search_apart(struct chooser *c, struct best_choice *found)
{
    uint32_t count = c->wish->count, passes = c->wish->with_count || c->no_orphans ? APART_PASSES : 1, chosen = 0;
    struct best_choice choice = found_make(c, 0, 0);
    uint64_t lanes = 0, more;
    for (size_t i = 0; i < (size_t)passes * c->map->count && chosen < count; i++) {
        uint32_t at = c->map->by_rank[i % c->map->count], unmet, state;
        if ((more = fit(c, at)) == UNFIT || !allows(c, lanes + more, &unmet, &state) || unmet > count - chosen - 1 ||
            !wants_section(c, &c->map->runs[c->map->seats[at].run]) || (c->no_orphans && leaves_orphan(c, at, at)))
            continue;
        set_free(c->free, at, false);
        choice.slots.numbers[chosen++] = at;
        choice.rank_sum += c->map->seats[at].rank;
        lanes += more;
    }
    for (uint32_t i = 0; i < chosen; i++)
        set_free(c->free, choice.slots.numbers[i], true);
    if (chosen == count)
        *found = choice;
}

bool best_choose(const struct seat_view *view, const struct best *wish, struct arena *arena,
                 struct best_choice *ret_choice, uint32_t *ret_largest_together)
{
    void (*search)(struct chooser * c, struct best_choice * found) = wish->together ? search_together : search_apart;
    struct best_choice best = {0}, other = {0};
    struct chooser c;
    assert(best_is_valid(wish));
    chooser_init(&c, view, wish, arena);
    search(&c, &best);
    if (!best.slots.numbers && wish->split > 1)
        (search = search_split)(&c, &best);
    else if (!best.slots.numbers && !wish->together)
        search_together(&c, &best); /* finds the largest group, or what search_apart has missed */
    if (!best.slots.numbers) {
        *ret_largest_together = c.largest;
        return false;
    }
    if (wish->no_orphans && leaves_orphans(&c, &best)) {
        c.no_orphans = true;
        c.limit = best.rank_sum + best.rank_sum / 10;
        search(&c, &other);
        if (other.slots.numbers && other.rank_sum <= c.limit && other.groups == best.groups &&
            !leaves_orphans(&c, &other))
            best = other;
    }
    for (uint32_t i = 0; i < wish->count; i++)
        best.slots.numbers[i] = view->map->seats[best.slots.numbers[i]].number;
    qsort(best.slots.numbers, wish->count, sizeof *best.slots.numbers, compare_u32);
    *ret_choice = best;
    return true;
}
