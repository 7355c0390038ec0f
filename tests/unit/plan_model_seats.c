/* SPDX-License-Identifier: MIT */
/*
 * The seats of the model test, the same in every semaphore: rows of 4 in two sections, numbered backwards, with ranks in no
 * order. A wish is decided by trying all groups, or all seats.
 */
#include <stdlib.h>

#include "plan_model.h"

enum { SEATS = 63, ROW_SEATS = 4, FRONT = 8 };

static struct seat seat_of(uint32_t number)
{
    static const char *const rows[] = {"1", "2",  "3",  "4",  "5",  "6",  "7",  "8",
                                       "9", "10", "11", "12", "13", "14", "15", "16"};
    return (struct seat){.number = number,
                         .position = ROW_SEATS - (number - 1) % ROW_SEATS,
                         .rank = number % 6 == 0 ? SEAT_RANK_NONE : number * 7 % 11,
                         .section = number <= FRONT ? BYTES("A") : BYTES("B"),
                         .row = bytes_of(rows[(number - 1) / ROW_SEATS]),
                         .tags = number % 3 == 0 ? BYTES("aisle") : (struct bytes){0}};
}

const struct seat_map *model_seat_map(void)
{
    static struct seat_map map;
    static struct seat seats[SEATS];
    static struct arena arena;
    for (uint32_t number = 1; number <= SEATS && !map.count; number++)
        seats[number - 1] = seat_of(number);
    if (map.count)
        return &map;
    arena_init(&arena, 1 << 14, 1 << 18);
    if (!seat_map_make(&map, &(struct seats){.rows = seats, .count = SEATS}, &arena))
        abort();
    return &map;
}

struct bytes model_wish(const struct model_want *want, char form[WISH_SIZE])
{
    struct bytes front = BYTES("A"), aisle = BYTES("aisle");
    struct best wish = {.count = (uint32_t)want->count, .sections = &front, .not_tags = &aisle};
    if (want->choice != CHOOSE_BEST)
        return (struct bytes){0};
    wish.together = want->together;
    wish.section_count = want->front;
    wish.not_tag_count = want->no_aisle;
    return best_encode(&wish, form);
}

static bool accepts(const struct model_want *want, uint64_t slots, uint32_t number)
{
    const struct seat seat = seat_of(number);
    return (slots >> number & 1) && (!want->front || number <= FRONT) && (!want->no_aisle || !seat.tags.length);
}

/* The number at this place in the order of sections, rows and positions. */
static uint32_t number_at(uint32_t place)
{
    uint32_t first = place / ROW_SEATS * ROW_SEATS;
    return first + (uint32_t)min_i64(ROW_SEATS, SEATS - first) - place % ROW_SEATS;
}

/* The group that ends at or before the end of its row; 0: not all of it is accepted. */
static uint64_t group_at(const struct model_want *want, uint64_t slots, uint32_t place, int64_t *ret_sum)
{
    uint64_t group = 0;
    *ret_sum = 0;
    for (uint32_t i = place; i < place + want->count; i++) {
        if (i >= SEATS || i / ROW_SEATS != place / ROW_SEATS || !accepts(want, slots, number_at(i)))
            return 0;
        group |= 1ULL << number_at(i);
        *ret_sum += seat_of(number_at(i)).rank;
    }
    return group;
}

static uint64_t choose_together(const struct model_want *want, uint64_t slots)
{
    uint64_t chosen = 0;
    int64_t lowest = INT64_MAX, sum;
    for (uint32_t place = 0; place < SEATS; place++) {
        uint64_t group = group_at(want, slots, place, &sum);
        if (group && sum < lowest) {
            chosen = group;
            lowest = sum;
        }
    }
    return chosen;
}

static uint64_t choose_apart(const struct model_want *want, uint64_t slots)
{
    uint64_t chosen = 0;
    for (int64_t i = 0; i < want->count; i++) {
        uint32_t best = 0;
        for (uint32_t place = 0; place < SEATS; place++) {
            uint32_t number = number_at(place);
            if (accepts(want, slots & ~chosen, number) && (!best || seat_of(number).rank < seat_of(best).rank))
                best = number;
        }
        if (!best)
            return 0;
        chosen |= 1ULL << best;
    }
    return chosen;
}

uint64_t model_choose_seats(const struct model_want *want, uint64_t slots)
{
    return want->together ? choose_together(want, slots) : choose_apart(want, slots);
}
