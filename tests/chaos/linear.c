/* SPDX-License-Identifier: MIT */
/*
 * For each semaphore: builds points, each with its earliest and latest possible time, and then searches an order. A
 * point whose interval contains the beginning of many others would keep the search from forgetting anything. It is
 * called rough and left out of the search. Its units count only where that cannot cause a false alarm: against a grant
 * only if surely held, for a refusal if possibly held.
 */
#include "linear.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "key_summary.h"

enum { WINDOW = 200, WORDS = (WINDOW + 63) / 64, ROUGH = 180, STEPS_PER_POINT = 300 };

#define NOBODY SIZE_MAX

enum point_kind { POINT_GRANT, POINT_END, POINT_REFUSAL };

struct point {
    int64_t from_us;
    int64_t to_us; /* INT64_MAX: no upper limit */
    enum point_kind kind;
    bool rough;
    bool perhaps_only; /* no answer shows that it was granted */
    unsigned key;
    long units;
    uint64_t token;  /* grants only */
    long surely;     /* units of rough points held during the whole interval, less those that may have ended */
    long perhaps;    /* units of rough points that may have been held */
    size_t of_grant; /* ends: index of the grant; its own index if the grant is rough */
};

struct points {
    struct point *list; /* sorted by from_us */
    size_t count;
    size_t room;
};

static void *realloc_or_abort(void *memory, size_t count, size_t size)
{
    memory = realloc(memory, (count + 1) * size);
    if (!memory)
        abort();
    return memory;
}

static void points_add(struct points *points, struct point point)
{
    if (points->count == points->room) {
        points->room = 2 * points->room + 256;
        points->list = realloc_or_abort(points->list, points->room, sizeof(points->list[0]));
    }
    points->list[points->count++] = point;
}

static int compare_from(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    if (x->from_us != y->from_us)
        return x->from_us < y->from_us ? -1 : 1;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (int)x->kind - (int)y->kind;
}

/* ---- possible times ---- */

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static const struct share *share_of(const struct call *call, unsigned semaphore)
{
    for (size_t i = 0; call && i < call->share_count; i++)
        if (call->shares[i].semaphore == semaphore)
            return &call->shares[i];
    return NULL;
}

/* Adds the grant and, next to it, the end of one key. */
static void add_key(struct points *points, const struct key_summary *key, unsigned number, unsigned semaphore)
{
    const struct share *share = share_of(key->held ? key->held : key->asked, semaphore);
    if (!share || (!key->held && !key->open))
        return;
    int64_t granted = later(key->first_asked, key->last_absent_sent);
    if (!key->held && granted >= key->end_known)
        return; /* it ended before its first acquire */
    int64_t ended = later(granted, later(key->held_until, key->last_held_sent));
    struct point grant = {.kind = POINT_GRANT,
                          .key = number,
                          .units = (long)share->count,
                          .token = share->token,
                          .from_us = granted,
                          .to_us = key->held ? key->first_known : INT64_MAX,
                          .rough = !key->held,
                          .perhaps_only = !key->held};
    struct point end = grant;
    end.kind = POINT_END;
    end.from_us = key->held ? ended : granted;
    end.to_us = key->end_known;
    points_add(points, grant);
    points_add(points, end);
}

static void add_refusals(struct points *points, const struct history *history, unsigned semaphore)
{
    for (size_t i = 0; i < history->count; i++) {
        const struct call *call = &history->calls[i];
        const struct share *share = call->share_count == 1 ? share_of(call, semaphore) : NULL;
        if (share && call->kind == CALL_ACQUIRE && call->says == SAYS_NO_CAPACITY)
            points_add(points, (struct point){.kind = POINT_REFUSAL,
                                              .key = call->key,
                                              .units = (long)share->count,
                                              .from_us = call->sent_us,
                                              .to_us = call->answered_us});
    }
}

static int compare_moments(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The number of sorted moments up to and including `us`. */
static size_t count_until(const int64_t *moments, size_t count, int64_t us)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (moments[middle] <= us)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* An end is useless if the time of its grant is unknown. */
static void find_rough(struct points *points)
{
    int64_t *moments = realloc_or_abort(NULL, points->count, sizeof(*moments));
    for (size_t i = 0; i < points->count; i++)
        moments[i] = points->list[i].from_us;
    qsort(moments, points->count, sizeof(*moments), compare_moments);
    for (size_t i = 0; i < points->count; i++) {
        struct point *point = &points->list[i];
        size_t within =
            count_until(moments, points->count, point->to_us) - count_until(moments, points->count, point->from_us);
        point->rough |= within > ROUGH || (point->kind == POINT_END && point[-1].rough);
    }
    free(moments);
}

/* ---- units of the rough points ---- */

struct change {
    int64_t at_us;
    long units;
};

/* Sums of changes up to a given time. */
struct tally {
    struct change *list;
    size_t count;
};

static int compare_changes(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    return (x->at_us > y->at_us) - (x->at_us < y->at_us);
}

static void tally_add(struct tally *tally, int64_t at_us, long units)
{
    if (at_us != INT64_MAX)
        tally->list[tally->count++] = (struct change){at_us, units};
}

static void tally_sum(struct tally *tally)
{
    qsort(tally->list, tally->count, sizeof(tally->list[0]), compare_changes);
    for (size_t i = 1; i < tally->count; i++)
        tally->list[i].units += tally->list[i - 1].units;
}

/* The sum of all changes up to and including this time. */
static long tally_until(const struct tally *tally, int64_t us)
{
    size_t low = 0, high = tally->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (tally->list[middle].at_us <= us)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? tally->list[low - 1].units : 0;
}

/* Changes of the units that rough points surely hold, and that they may hold. */
struct tallies {
    struct tally surely_more, surely_less, perhaps_more, perhaps_less;
};

static void tallies_add(struct tallies *tallies, const struct point *grant, const struct point *end)
{
    if (!end->rough)
        return; /* then its grant is not rough either */
    tally_add(&tallies->perhaps_less, end->to_us, end->units);
    if (grant->rough)
        tally_add(&tallies->perhaps_more, grant->from_us, grant->units);
    if (grant->perhaps_only || (grant->rough && grant->to_us >= end->from_us))
        return; /* at no time surely held */
    tally_add(&tallies->surely_less, end->from_us, end->units);
    if (grant->rough)
        tally_add(&tallies->surely_more, grant->to_us, grant->units);
}

/* Sets `surely` and `perhaps` of all points. */
static void weigh_rough(struct points *points)
{
    struct tallies tallies;
    struct tally *const all[] = {&tallies.surely_more, &tallies.surely_less, &tallies.perhaps_more,
                                 &tallies.perhaps_less};
    for (size_t i = 0; i < 4; i++)
        *all[i] = (struct tally){realloc_or_abort(NULL, points->count, sizeof(struct change)), 0};
    for (size_t i = 0; i + 1 < points->count; i++)
        if (points->list[i].kind == POINT_GRANT)
            tallies_add(&tallies, &points->list[i], &points->list[i + 1]);
    for (size_t i = 0; i < 4; i++)
        tally_sum(all[i]);
    for (size_t i = 0; i < points->count; i++) {
        struct point *point = &points->list[i];
        point->surely =
            tally_until(&tallies.surely_more, point->from_us - 1) - tally_until(&tallies.surely_less, point->to_us);
        point->perhaps =
            tally_until(&tallies.perhaps_more, point->to_us) - tally_until(&tallies.perhaps_less, point->from_us - 1);
    }
    for (size_t i = 0; i < 4; i++)
        free(all[i]->list);
}

/* ---- the search ---- */

/* A set of done points: all before `base`, and those of the window after it whose bit is set. */
struct done {
    size_t base;
    uint64_t bits[WORDS];
};

struct frame {
    struct done done;
    long held;
    size_t grants; /* grants done, in the order of their tokens */
    size_t tried;  /* choices tried so far */
};

struct search {
    struct point *points; /* without rough points, sorted by from_us */
    size_t count;
    size_t *by_token; /* indices of the grants */
    size_t grant_count;
    long capacity;
    struct frame *stack;
    size_t depth;
    size_t room;
    struct done
        *seen; /* hash table of sets that led to nothing or are being explored; stores base + 1, 0 is an empty slot */
    size_t seen_room;
    size_t seen_count;
    size_t steps_left;
    size_t furthest;           /* largest number of points done */
    const struct point *stuck; /* the point that had to come next at that time */
};

static bool is_done(const struct done *done, size_t at)
{
    size_t bit = at - done->base;
    return at < done->base || (bit < WINDOW && done->bits[bit / 64] >> bit % 64 & 1);
}

static void shift_one(struct done *done)
{
    for (size_t i = 0; i < WORDS; i++)
        done->bits[i] = done->bits[i] >> 1 | (i + 1 < WORDS ? done->bits[i + 1] << 63 : 0);
    done->base++;
}

static void set_done(struct done *done, size_t at)
{
    size_t bit = at - done->base;
    done->bits[bit / 64] |= (uint64_t)1 << bit % 64;
    while (done->bits[0] & 1)
        shift_one(done);
}

/* Doubles the table, which is never more than half full. */
static void seen_grow(struct search *search);

static size_t hash_of(const struct done *done)
{
    uint64_t hash = done->base * 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < WORDS; i++)
        hash = (hash ^ done->bits[i] ^ hash >> 29) * 0xbf58476d1ce4e5b9u;
    return (size_t)(hash ^ hash >> 32);
}

/* Returns false if the set was already in the table. */
static bool seen_add(struct search *search, struct done done)
{
    if (2 * search->seen_count >= search->seen_room)
        seen_grow(search);
    done.base++;
    size_t at = hash_of(&done) & (search->seen_room - 1);
    for (; search->seen[at].base; at = (at + 1) & (search->seen_room - 1))
        if (!memcmp(&search->seen[at], &done, sizeof(done)))
            return false;
    search->seen[at] = done;
    search->seen_count++;
    return true;
}

static void seen_grow(struct search *search)
{
    struct done *old = search->seen;
    size_t old_room = search->seen_room;
    search->seen_room = old_room ? 2 * old_room : 4096;
    search->seen = calloc(search->seen_room, sizeof(search->seen[0]));
    if (!search->seen)
        abort();
    search->seen_count = 0;
    for (size_t i = 0; i < old_room; i++)
        if (old[i].base) {
            old[i].base--;
            (void)seen_add(search, old[i]);
        }
    free(old);
}

/* Points that may come next: those that no pending point must precede. */
struct choices {
    size_t refusals[WINDOW];
    size_t refusal_count;
    size_t ends[WINDOW]; /* sorted by to_us */
    size_t end_count;
    size_t grant; /* NOBODY: no grant */
    size_t first; /* the point that has to come first */
};

static void insert_end(const struct search *search, struct choices *choices, size_t at)
{
    size_t i = choices->end_count++;
    for (; i > 0 && search->points[choices->ends[i - 1]].to_us > search->points[at].to_us; i--)
        choices->ends[i] = choices->ends[i - 1];
    choices->ends[i] = at;
}

static void add_choice(const struct search *search, const struct frame *frame, struct choices *choices, size_t at)
{
    const struct point *point = &search->points[at];
    if (point->kind == POINT_REFUSAL)
        choices->refusals[choices->refusal_count++] = at;
    else if (point->kind == POINT_END && (point->of_grant == at || is_done(&frame->done, point->of_grant)))
        insert_end(search, choices, at);
    else if (point->kind == POINT_GRANT && frame->grants < search->grant_count && search->by_token[frame->grants] == at)
        choices->grant = at;
}

static void find_choices(const struct search *search, const struct frame *frame, struct choices *ret_choices)
{
    *ret_choices = (struct choices){.grant = NOBODY, .first = NOBODY};
    int64_t first_to = INT64_MAX;
    size_t end = frame->done.base + WINDOW < search->count ? frame->done.base + WINDOW : search->count;
    for (size_t i = frame->done.base; i < end && search->points[i].from_us <= first_to; i++)
        if (!is_done(&frame->done, i) && (search->points[i].to_us < first_to || ret_choices->first == NOBODY)) {
            first_to = search->points[i].to_us;
            ret_choices->first = i;
        }
    for (size_t i = frame->done.base; i < end && search->points[i].from_us <= first_to; i++)
        if (!is_done(&frame->done, i))
            add_choice(search, frame, ret_choices, i);
}

static bool fits(const struct search *search, const struct frame *frame, size_t grant)
{
    const struct point *point = &search->points[grant];
    return frame->held + point->surely + point->units <= search->capacity;
}

/* A refusal changes no state, so it is done as soon as it can be true. */
static bool take_refusal(const struct search *search, struct frame *frame, const struct choices *choices)
{
    for (size_t i = 0; i < choices->refusal_count; i++) {
        const struct point *point = &search->points[choices->refusals[i]];
        if (frame->held + point->perhaps + point->units <= search->capacity)
            continue;
        set_done(&frame->done, choices->refusals[i]);
        return true;
    }
    return false;
}

/* Makes choice `number`; a grant comes before ends. Returns false if there are no more choices. */
static bool take_choice(const struct search *search, struct frame *frame, const struct choices *choices, size_t number)
{
    bool has_grant = choices->grant != NOBODY && fits(search, frame, choices->grant);
    if (number >= choices->end_count + has_grant)
        return false;
    size_t at = has_grant && number == 0 ? choices->grant : choices->ends[number - has_grant];
    const struct point *point = &search->points[at];
    frame->held += point->kind == POINT_GRANT ? point->units : -point->units;
    frame->grants += point->kind == POINT_GRANT;
    set_done(&frame->done, at);
    return true;
}

static size_t count_done(const struct done *done)
{
    size_t count = done->base;
    for (size_t i = 0; i < WORDS; i++)
        count += (size_t)__builtin_popcountll(done->bits[i]);
    return count;
}

static void push(struct search *search, struct frame frame)
{
    if (search->depth == search->room) {
        search->room = 2 * search->room + 256;
        search->stack = realloc_or_abort(search->stack, search->room, sizeof(search->stack[0]));
    }
    frame.tried = 0;
    search->stack[search->depth++] = frame;
}

enum verdict { POSSIBLE, IMPOSSIBLE, TOO_LONG };

/* One step: continues from the newest frame, or backtracks. */
static void search_step(struct search *search)
{
    struct frame *top = &search->stack[search->depth - 1];
    struct choices choices;
    find_choices(search, top, &choices);
    while (take_refusal(search, top, &choices))
        find_choices(search, top, &choices);
    size_t done = count_done(&top->done);
    if (done >= search->furthest && choices.first != NOBODY) {
        search->furthest = done;
        search->stuck = &search->points[choices.first];
    }
    struct frame next = *top;
    if (top->done.base == search->count)
        return;
    if (!take_choice(search, &next, &choices, top->tried++))
        search->depth--;
    else if (seen_add(search, next.done))
        push(search, next);
}

static enum verdict search_run(struct search *search)
{
    push(search, (struct frame){.held = 0});
    while (search->depth && search->steps_left--) {
        search_step(search);
        if (search->depth && search->stack[search->depth - 1].done.base == search->count)
            return POSSIBLE;
    }
    return search->depth ? TOO_LONG : IMPOSSIBLE;
}

/* ---- one semaphore ---- */

static const struct point *sorted_points; /* for compare_tokens; not thread-safe */

static int compare_tokens(const void *a, const void *b)
{
    const struct point *x = &sorted_points[*(const size_t *)a], *y = &sorted_points[*(const size_t *)b];
    return (x->token > y->token) - (x->token < y->token);
}

/* Links ends to grants and sorts the grants by token. A table by key finds both in one pass. */
static void link_points(struct search *search, size_t key_end)
{
    size_t *grant_of = realloc_or_abort(NULL, key_end, sizeof(size_t));
    for (size_t i = 0; i < key_end; i++)
        grant_of[i] = NOBODY;
    search->by_token = realloc_or_abort(NULL, search->count, sizeof(size_t));
    for (size_t i = 0; i < search->count; i++)
        if (search->points[i].kind == POINT_GRANT) {
            grant_of[search->points[i].key] = i;
            search->by_token[search->grant_count++] = i;
        }
    for (size_t i = 0; i < search->count; i++) {
        size_t grant = grant_of[search->points[i].key];
        search->points[i].of_grant = grant == NOBODY ? i : grant;
    }
    sorted_points = search->points;
    qsort(search->by_token, search->grant_count, sizeof(size_t), compare_tokens);
    free(grant_of);
}

/* Removes the rough points from the list and counts them. */
static void drop_rough(struct points *points, struct linear_counts *counts)
{
    size_t kept = 0;
    for (size_t i = 0; i < points->count; i++) {
        const struct point *point = &points->list[i];
        counts->rough += point->rough && point->kind != POINT_REFUSAL && !point->perhaps_only;
        counts->skipped += point->rough && point->kind == POINT_REFUSAL;
        if (!point->rough)
            points->list[kept++] = *point;
    }
    points->count = kept;
}

static bool judge_points(struct points *points, const struct semaphore_facts *semaphore, size_t key_end,
                         struct linear_counts *counts, char message[MESSAGE_SIZE])
{
    static const char *const words[] = {"grant", "end", "refusal"};
    struct search search = {.points = points->list,
                            .count = points->count,
                            .capacity = (long)semaphore->capacity,
                            .steps_left = 1000 + STEPS_PER_POINT * points->count};
    link_points(&search, key_end);
    enum verdict verdict = search_run(&search);
    counts->placed += verdict == POSSIBLE ? search.count : search.furthest;
    counts->skipped += verdict == TOO_LONG ? search.count - search.furthest : 0;
    if (verdict == IMPOSSIBLE)
        snprintf(message, MESSAGE_SIZE,
                 "%s: after %zu of %zu points, the %s of key %u has no place between %lld and %lld us", semaphore->name,
                 search.furthest, search.count, words[search.stuck->kind], search.stuck->key,
                 (long long)search.stuck->from_us, (long long)search.stuck->to_us);
    free(search.by_token);
    free(search.stack);
    free(search.seen);
    return verdict != IMPOSSIBLE;
}

/* Checks that every point has a possible time at all; this needs no order. */
static bool all_possible(const struct points *points, const struct semaphore_facts *semaphore,
                         char message[MESSAGE_SIZE])
{
    for (size_t i = 0; i < points->count; i++) {
        const struct point *point = &points->list[i];
        if (point->from_us <= point->to_us)
            continue;
        snprintf(message, MESSAGE_SIZE, "%s: the answers about key %u leave no time for its %s", semaphore->name,
                 point->key, point->kind == POINT_GRANT ? "grant" : "end");
        return false;
    }
    return true;
}

static bool judge_semaphore(const struct history *history, const struct key_summary *keys, size_t key_end,
                            unsigned number, bool never_waited, const struct semaphore_facts *semaphore,
                            struct linear_counts *counts, char message[MESSAGE_SIZE])
{
    struct points points = {NULL, 0, 0};
    for (size_t i = 0; i < key_end; i++)
        add_key(&points, &keys[i], (unsigned)i, number);
    if (never_waited)
        add_refusals(&points, history, number);
    find_rough(&points);
    weigh_rough(&points);
    qsort(points.list, points.count, sizeof(points.list[0]), compare_from);
    bool good = all_possible(&points, semaphore, message);
    drop_rough(&points, counts);
    good = good && judge_points(&points, semaphore, key_end, counts, message);
    free(points.list);
    return good;
}

bool check_linear(const struct history *history, const struct facts *facts, uint64_t never_waited,
                  struct linear_counts *ret_counts, char message[MESSAGE_SIZE])
{
    size_t key_end;
    struct key_summary *keys = key_summaries(history, facts, &key_end);
    bool good = true;
    for (unsigned i = 0; i < facts->count && good; i++)
        good = judge_semaphore(history, keys, key_end, i, never_waited >> i & 1, &facts->semaphores[i], ret_counts,
                               message);
    free(keys);
    return good;
}
