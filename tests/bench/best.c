/* SPDX-License-Identifier: MIT */
/*
 * The CPU time of one choice of seats in a hall of 40,000: 8 sections of 100 rows of 50, ranked by their distance from the
 * front centre, aisles at the ends of the rows, wheelchair places beside companions in each first row. Prints Markdown.
 *
 *     bench_best [RUNS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/best.h"
#include "measure.h"

enum { SECTIONS = 8, ROWS = 100, ROW_SEATS = 50, SEATS = SECTIONS * ROWS * ROW_SEATS, RUNS = 200 };

static struct seat seats[SEATS];
static char names[ROWS + 1][4];
static struct seat_map map;
static jmp_buf no_memory;

static int64_t own_cpu_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

static void describe(void)
{
    for (uint32_t i = 0; i <= ROWS; i++)
        snprintf(names[i], sizeof names[i], "%u", i);
    for (uint32_t i = 0; i < SEATS; i++) {
        uint32_t section = i / (ROWS * ROW_SEATS), row = i / ROW_SEATS % ROWS, seat = i % ROW_SEATS;
        uint32_t aside = seat < ROW_SEATS / 2 ? ROW_SEATS / 2 - 1 - seat : seat - ROW_SEATS / 2;
        const char *tags = row == 0 && seat < 8 ? (seat % 2 ? "companion" : "wheelchair") : aside == 24 ? "aisle" : "";
        seats[i] = (struct seat){.number = i + 1,
                                 .position = seat + 1,
                                 .rank = 1000 * section + 10 * row + 8 * aside,
                                 .section = bytes_of(names[section]),
                                 .row = bytes_of(names[row]),
                                 .tags = bytes_of(tags)};
    }
}

/* ---- halls: is this seat free? ---- */

static bool is_empty(uint32_t at)
{
    return at < SEATS;
}

/* Groups of 4 take turns. */
static bool is_half_sold(uint32_t at)
{
    return at / 4 % 2;
}

static bool has_single_seats_in_front(uint32_t at)
{
    return at % 2 || at > SEATS - ROW_SEATS;
}

static bool has_threes_only(uint32_t at)
{
    return at % 4 > 0;
}

/* One of 16, at random: the generator of Steele, Lea and Flood. */
static bool is_nearly_sold_out(uint32_t at)
{
    uint64_t word = (at + 1) * 0x9e3779b97f4a7c15;
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
    return ((word ^ word >> 27) * 0x94d049bb133111eb) >> 60 == 0;
}

static struct best_with wheelchairs[] = {{{"wheelchair", 10}, 1}, {{"companion", 9}, 1}};
static struct bytes wheelchair = {"wheelchair", 10};
static const struct {
    const char *hall;
    bool (*is_free)(uint32_t at);
    const char *name;
    struct best wish;
} cases[] = {
    {"empty", is_empty, "4 together", {.count = 4, .together = true}},
    {"empty", is_empty, "4 together, no_orphans", {.count = 4, .together = true, .no_orphans = true}},
    {"empty", is_empty, "2 apart", {.count = 2}},
    {"half sold", is_half_sold, "4 together, no_orphans", {.count = 4, .together = true, .no_orphans = true}},
    {"half sold", is_half_sold, "2 apart", {.count = 2}},
    {"half sold",
     is_half_sold,
     "2 together with wheelchair and companion",
     {.count = 2, .together = true, .not_tags = &wheelchair, .not_tag_count = 1, .with = wheelchairs, .with_count = 2}},
    {"half sold",
     is_half_sold,
     "4 apart with wheelchair and companion",
     {.count = 4, .not_tags = &wheelchair, .not_tag_count = 1, .with = wheelchairs, .with_count = 2}},
    {"singles but in the last row", has_single_seats_in_front, "4 together", {.count = 4, .together = true}},
    {"threes", has_threes_only, "4 together: none", {.count = 4, .together = true}},
    {"threes", has_threes_only, "4 together, split 2", {.count = 4, .together = true, .split = 2}},
    {"threes", has_threes_only, "10 together, split 4", {.count = 10, .together = true, .split = 4}},
    {"threes", has_threes_only, "32 together, split 8", {.count = 32, .together = true, .split = 8}},
    {"15 of 16 sold", is_nearly_sold_out, "4 together: none", {.count = 4, .together = true}},
    {"15 of 16 sold", is_nearly_sold_out, "4 together, split 3", {.count = 4, .together = true, .split = 3}},
    {"15 of 16 sold", is_nearly_sold_out, "2 apart", {.count = 2}},
};

int main(int argc, char **argv)
{
    size_t runs = argc > 1 ? strtoul(argv[1], NULL, 10) : RUNS;
    struct arena layout, arena;
    struct seat_view view;
    arena_init(&layout, 1 << 20, 1 << 26);
    arena_init(&arena, 1 << 20, 1 << 26);
    layout.exit = arena.exit = &no_memory;
    if (setjmp(no_memory)) {
        fprintf(stderr, "bench_best: out of memory\n");
        return 1;
    }
    describe();
    int64_t from = own_cpu_ns();
    seat_map_init(&map, seats, SEATS, &layout);
    printf("| hall | wish | median us | longest us | KiB | sum of ranks |\n|---|---|--:|--:|--:|--:|\n");
    printf("| | the map | %.0f | | %zu | |\n", (double)(own_cpu_ns() - from) / 1000, layout.used / 1024);
    from = own_cpu_ns();
    seat_view_init(&view, &map, &layout);
    for (uint32_t i = 0; i < SEATS; i++)
        seat_view_set(&view, i + 1, true);
    printf("| | the view | %.0f | | | |\n", (double)(own_cpu_ns() - from) / 1000);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct samples samples = {.count = 0};
        struct best_choice choice = {.rank_sum = -1};
        uint32_t largest;
        for (uint32_t k = 0; k < SEATS; k++)
            seat_view_set(&view, k + 1, cases[i].is_free(k));
        for (size_t run = 0; run < runs; run++) {
            arena_clear(&arena);
            from = own_cpu_ns();
            bool found = best_choose(&view, &cases[i].wish, &arena, &choice, &largest);
            samples_add(&samples, own_cpu_ns() - from);
            choice.rank_sum = found ? choice.rank_sum : -1;
        }
        printf("| %s | %s | %.1f | %.1f | %zu | %lld |\n", cases[i].hall, cases[i].name,
               samples_percentile(&samples, 0.5) / 1000, samples_percentile(&samples, 1) / 1000, arena.used / 1024,
               (long long)choice.rank_sum);
        samples_release(&samples);
    }
    arena_release(&arena);
    arena_release(&layout);
}
