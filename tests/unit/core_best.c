/* SPDX-License-Identifier: MIT */
/* Best seats: named cases, and generated halls against an exhaustive search. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>

#include "core/best.h"
#include "random.h"

enum { MAX_SEATS = 512 };

static struct arena arena;
static jmp_buf no_memory;
static struct seat seats[MAX_SEATS];
static bool taken[MAX_SEATS]; /* by number - 1 */
static uint32_t seat_count;
static struct seat_map map;
static struct seat_view view;

static void begin(void)
{
    arena_init(&arena, 1 << 16, 1 << 26);
    arena.exit = &no_memory;
    seat_count = 0;
}

static void end(void)
{
    arena_release(&arena);
}

TestSuite(best, .init = begin, .fini = end);

/*
 * Adds a row, one character a position: a digit is a rank; ' ' no seat; x a taken seat; w, c, a a seat of rank 5 with the
 * tag wheelchair, companion, aisle; b one with wheelchair and aisle. Slots are numbered from 1.
 */
static void row(const char *section, const char *name, const char *positions)
{
    for (uint32_t i = 0; positions[i]; i++) {
        static const char *const tags[256] = {
            ['w'] = "wheelchair", ['c'] = "companion", ['a'] = "aisle", ['b'] = "wheelchair aisle"};
        if (positions[i] == ' ')
            continue;
        bool digit = positions[i] >= '0' && positions[i] <= '9';
        taken[seat_count] = positions[i] == 'x';
        seats[seat_count] = (struct seat){.number = seat_count + 1,
                                          .position = i + 1,
                                          .rank = digit ? (uint32_t)(positions[i] - '0') : 5,
                                          .section = bytes_of(section),
                                          .row = bytes_of(name),
                                          .tags = bytes_of(tags[(unsigned char)positions[i]])};
        seat_count++;
    }
}

static void build(void)
{
    seat_map_init(&map, seats, seat_count, &arena);
    seat_view_init(&view, &map, &arena);
    for (uint32_t i = 0; i < seat_count; i++)
        seat_view_set(&view, seats[i].number, !taken[seats[i].number - 1]);
}

/* Returns the numbers of the chosen slots; "none, N": none, the largest group is N. */
static const char *choose(struct best wish)
{
    static char text[SLOTS_TEXT_MAX];
    struct buf out;
    struct best_choice choice;
    uint32_t largest;
    build();
    cr_assert(best_is_valid(&wish));
    buf_init(&out, sizeof text);
    if (best_choose(&view, &wish, &arena, &choice, &largest))
        slots_format(&choice.slots, &out);
    else
        buf_printf(&out, "none, %u", largest);
    snprintf(text, sizeof text, "%.*s", (int)out.length, out.data);
    buf_release(&out);
    return text;
}

#define LIST(...)                                                                                                      \
    (struct bytes[])                                                                                                   \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define COUNT(...) sizeof((struct bytes[]){__VA_ARGS__}) / sizeof(struct bytes)
#define IN(...)    .sections = LIST(__VA_ARGS__), .section_count = COUNT(__VA_ARGS__)
#define ALL(...)   .tags = LIST(__VA_ARGS__), .tag_count = COUNT(__VA_ARGS__)
#define NOT(...)   .not_tags = LIST(__VA_ARGS__), .not_tag_count = COUNT(__VA_ARGS__)
#define WITH(...)                                                                                                      \
    .with = (struct best_with[]){__VA_ARGS__},                                                                         \
    .with_count = sizeof((struct best_with[]){__VA_ARGS__}) / sizeof(struct best_with)
#define WHEELCHAIR BYTES("wheelchair")
#define COMPANION  BYTES("companion")
#define AISLE      BYTES("aisle")

Test(best, together_takes_the_adjacent_seats_with_the_lowest_sum)
{
    row("A", "1", "9111x1119");
    row("A", "2", "33x222333");
    cr_expect_str_eq(choose((struct best){.count = 3, .together = true}), "2-4");
    cr_expect_str_eq(choose((struct best){.count = 4, .together = true}), "13-16");
}

Test(best, taken_seats_gaps_and_missing_positions_separate)
{
    row("A", "1", "11 11x11");
    row("A", "2", "1");
    for (uint32_t i = 0; i < 3; i++) {
        row("A", "3", "1");
        seats[seat_count - 1].position = i; /* the first one has none */
    }
    cr_expect_str_eq(choose((struct best){.count = 3, .together = true}), "none, 2");
    cr_expect_str_eq(choose((struct best){.count = 3}), "1-3");
}

Test(best, two_seats_at_one_position_are_not_adjacent_and_end_the_run)
{
    row("A", "1", "11");
    row("A", "1", " 11");
    cr_expect_str_eq(choose((struct best){.count = 2, .together = true}), "1-2");
    cr_expect_str_eq(choose((struct best){.count = 3, .together = true}), "none, 2");
}

Test(best, ties_go_to_the_first_section_row_and_seat_by_length_then_bytes)
{
    row("B", "1", "55");
    row("A", "10", "555");
    row("A", "9", "x555");
    cr_expect_str_eq(choose((struct best){.count = 2, .together = true}), "7-8");
    cr_expect_str_eq(choose((struct best){.count = 4}), "3,7-9");
}

Test(best, only_wanted_sections_are_used)
{
    row("A", "1", "111");
    row("B", "1", "222");
    row("C", "1", "333");
    struct best wish = {.count = 2, IN(BYTES("B"), BYTES("C")), .together = true};
    cr_expect_str_eq(choose(wish), "4-5");
    wish.together = false;
    cr_expect_str_eq(choose(wish), "4-5");
    wish.count = 4;
    cr_expect_str_eq(choose(wish), "4-7");
    wish.together = true;
    wish.split = 2;
    cr_expect_str_eq(choose(wish), "4-7");
    wish.sections = LIST(BYTES("D"));
    wish.section_count = 1;
    cr_expect_str_eq(choose(wish), "none, 0");
}

Test(best, tags_are_those_of_every_seat_and_not_tags_of_none)
{
    row("A", "1", "1a1ab11w");
    cr_expect_str_eq(choose((struct best){.count = 2, ALL(AISLE), .together = true}), "4-5");
    cr_expect_str_eq(choose((struct best){.count = 1, ALL(AISLE, WHEELCHAIR)}), "5");
    cr_expect_str_eq(choose((struct best){.count = 3, NOT(WHEELCHAIR), .together = true}), "1-3");
    cr_expect_str_eq(choose((struct best){.count = 4, NOT(WHEELCHAIR, AISLE)}), "1,3,6-7");
    cr_expect_str_eq(choose((struct best){.count = 3, NOT(AISLE), .together = true}), "6-8");
}

Test(best, with_needs_its_tags_and_spends_no_more_of_not_tags)
{
    row("A", "1", "111wwc11111");
    struct best wish = {.count = 2, .together = true, WITH({WHEELCHAIR, 1}, {COMPANION, 1})};
    cr_expect_str_eq(choose(wish), "5-6");
    wish.count = 4;
    cr_expect_str_eq(choose(wish), "5-8");
    wish.together = false;
    cr_expect_str_eq(choose(wish), "1-2,4,6");
    wish = (struct best){.count = 3, .together = true, WITH({WHEELCHAIR, 1})};
    cr_expect_str_eq(choose(wish), "2-4");
    seats[3].rank = seats[4].rank = 0;
    cr_expect_str_eq(choose(wish), "3-5");
    wish.not_tags = LIST(WHEELCHAIR);
    wish.not_tag_count = 1;
    cr_expect_str_eq(choose(wish), "2-4");
    wish.together = false;
    cr_expect_str_eq(choose(wish), "1-2,4");
    wish.with_count = 0;
    cr_expect_str_eq(choose(wish), "1-3");
}

Test(best, a_seat_counts_for_each_tag_of_with_that_it_has)
{
    row("A", "1", "1a1b1w");
    cr_expect_str_eq(choose((struct best){.count = 1, WITH({WHEELCHAIR, 1}, {AISLE, 1})}), "4");
    cr_expect_str_eq(choose((struct best){.count = 2, .together = true, WITH({WHEELCHAIR, 1}, {AISLE, 1})}), "3-4");
    cr_expect_str_eq(choose((struct best){.count = 4, WITH({WHEELCHAIR, 2}, {AISLE, 2})}), "1-2,4,6");
    cr_expect_str_eq(choose((struct best){.count = 3, WITH({WHEELCHAIR, 3})}), "none, 0");
}

Test(best, seats_apart_may_be_adjacent_where_no_others_are_found)
{
    row("A", "1", "a 7b");
    cr_expect_str_eq(choose((struct best){.count = 2, NOT(WHEELCHAIR, AISLE), WITH({WHEELCHAIR, 1}, {AISLE, 1})}),
                     "2-3");
}

Test(best, split_makes_the_fewest_groups_and_only_if_no_run_has_all)
{
    row("A", "1", "11x11x11");
    row("A", "2", "9999");
    struct best wish = {.count = 4, .together = true, .split = 3};
    cr_expect_str_eq(choose(wish), "9-12");
    wish.count = 6;
    cr_expect_str_eq(choose(wish), "1-2,9-12");
    wish.count = 8;
    cr_expect_str_eq(choose(wish), "1-2,4-5,9-12");
    wish.split = 2;
    cr_expect_str_eq(choose(wish), "none, 4");
}

Test(best, split_meets_with_over_all_groups)
{
    row("A", "1", "111x2w");
    row("A", "2", "3cx9w");
    struct best wish = {.count = 4, .together = true, .split = 2, WITH({WHEELCHAIR, 1})};
    cr_expect_str_eq(choose(wish), "1-3,6");
    wish.with = (struct best_with[]){{WHEELCHAIR, 1}, {COMPANION, 1}};
    wish.with_count = 2;
    cr_expect_str_eq(choose(wish), "5-8");
}

Test(best, split_spends_not_tags_no_more_than_with_asks_for_over_all_groups)
{
    row("A", "1", "wxwx9");
    struct best wish = {.count = 2, .together = true, .split = 2, NOT(WHEELCHAIR), WITH({WHEELCHAIR, 1})};
    cr_expect_str_eq(choose(wish), "1,5");
}

Test(best, largest_together_is_the_largest_group_that_meets_the_rest_of_the_wish)
{
    row("A", "1", "11111xwcw1");
    cr_expect_str_eq(choose((struct best){.count = 6, .together = true}), "none, 5");
    cr_expect_str_eq(choose((struct best){.count = 6, .together = true, WITH({WHEELCHAIR, 1})}), "none, 4");
    struct best wish = {.count = 6, .together = true, NOT(WHEELCHAIR), WITH({WHEELCHAIR, 1})};
    cr_expect_str_eq(choose(wish), "none, 3");
    cr_expect_str_eq(choose((struct best){.count = 10}), "none, 5");
}

Test(best, no_orphans_leaves_no_single_seat_for_up_to_a_tenth_of_the_sum)
{
    static const uint32_t ranks[] = {0, 52, 50, 50, 60, 0};
    struct best wish = {.count = 2, .together = true};
    row("A", "1", "x9999x");
    for (uint32_t i = 0; i < seat_count; i++)
        seats[i].rank = ranks[i];
    cr_expect_str_eq(choose(wish), "3-4"); /* the sum is 100, and 2 and 5 are left alone */
    wish.no_orphans = true;
    cr_expect_str_eq(choose(wish), "2-3"); /* 102 */
    seats[1].rank = 60;
    cr_expect_str_eq(choose(wish), "2-3"); /* 110 */
    seats[1].rank = seats[4].rank = 61;
    cr_expect_str_eq(choose(wish), "3-4"); /* 111 is too much */
    wish.count = 3;
    cr_expect_str_eq(choose(wish), "2-4"); /* every group of 3 leaves one alone */
}

Test(best, no_orphans_makes_no_more_groups)
{
    row("A", "1", "x89cx");
    row("A", "2", "x89cx");
    row("A", "3", "9x9x9x9"); /* 36 to 34 */
    struct best wish = {.count = 4, .together = true, .split = 4, .no_orphans = true, NOT(COMPANION)};
    cr_expect_str_eq(choose(wish), "2-3,7-8");
}

Test(best, no_orphans_looks_between_the_groups)
{
    row("A", "1", "x89cx");
    row("A", "2", "x89cx");
    row("A", "3", "99c99"); /* 36 to 34; each group alone leaves no orphan */
    struct best wish = {.count = 4, .together = true, .split = 2, .no_orphans = true, NOT(COMPANION)};
    cr_expect_str_eq(choose(wish), "2-3,7-8");
}

Test(best, end_of_a_run_is_no_orphan)
{
    row("A", "1", "8878x8888");
    struct best wish = {.count = 2, .together = true, .no_orphans = true};
    cr_expect_str_eq(choose(wish), "3-4");
    wish.count = 3;
    cr_expect_str_eq(choose(wish), "2-4");
}

Test(best, no_orphans_of_seats_apart_looks_at_all_of_them)
{
    row("A", "1", "x88x9");
    row("A", "2", "8");
    cr_expect_str_eq(choose((struct best){.count = 1, .no_orphans = true}), "6");
    cr_expect_str_eq(choose((struct best){.count = 2, .no_orphans = true}), "2-3");
    cr_expect_str_eq(choose((struct best){.count = 4, .no_orphans = true}), "2-3,5-6");
}

Test(best, view_follows_seats_that_are_taken_and_freed)
{
    row("A", "1", "123");
    struct best wish = {.count = 2};
    struct best_choice choice;
    uint32_t largest = 9;
    build();
    seat_view_set(&view, 1, false);
    seat_view_set(&view, 0, true);
    seat_view_set(&view, 4, true);
    cr_assert(best_choose(&view, &wish, &arena, &choice, &largest));
    cr_expect_eq(choice.slots.numbers[0], 2);
    cr_expect_eq(choice.rank_sum, 5);
    cr_expect_eq(largest, 9);
    seat_view_set(&view, 2, false);
    cr_expect_not(best_choose(&view, &wish, &arena, &choice, &largest));
    cr_expect_eq(largest, 1);
    seat_view_set(&view, 1, true);
    wish.together = true;
    cr_expect_not(best_choose(&view, &wish, &arena, &choice, &largest));
    wish.together = false;
    cr_assert(best_choose(&view, &wish, &arena, &choice, &largest));
    cr_expect_eq(choice.rank_sum, 4);
}

Test(best, nothing_is_chosen_where_no_seat_is)
{
    cr_expect_str_eq(choose((struct best){.count = 1}), "none, 0");
    cr_expect_str_eq(choose((struct best){.count = 2, .together = true, .split = 2}), "none, 0");
}

Test(best, wishes_and_descriptions_have_limits)
{
    struct best_with two[] = {{WHEELCHAIR, 1}, {WHEELCHAIR, 1}};
    const struct {
        struct best wish;
        bool valid;
    } wishes[] = {
        {{.count = 0}, false},
        {{.count = 1000, .together = true}, true},
        {{.count = 1001}, false},
        {{.count = 32, .together = true, .split = 8}, true},
        {{.count = 33, .together = true, .split = 8}, false},
        {{.count = 9, .together = true, .split = 9}, false},
        {{.count = 9, .split = 2}, false},
        {{.count = 2, .with = two, .with_count = 1}, true},
        {{.count = 2, .with = two, .with_count = 2}, false},
        {{.count = 2, .with = (struct best_with[]){{AISLE, 3}}, .with_count = 1}, false},
        {{.count = 2, .with = (struct best_with[]){{AISLE, 0}}, .with_count = 1}, false},
    };
    const struct {
        struct seat seat;
        bool valid;
    } descriptions[] = {
        {{.number = 1}, true},
        {{.section = BYTES("Parkett links"), .row = BYTES("12"), .rank = SEAT_RANK_MAX, .tags = BYTES("a b")}, true},
        {{.section = BYTES("123456789012345678901234567890123")}, false},
        {{.row = BYTES("a\n")}, false},
        {{.rank = SEAT_RANK_NONE}, true},
        {{.rank = SEAT_RANK_NONE + 1}, false},
        {{.position = SEAT_POSITION_MAX + 1}, false},
        {{.tags = BYTES("1 2 3 4 5 6 7 8")}, true},
        {{.tags = BYTES("1 2 3 4 5 6 7 8 9")}, false},
        {{.tags = BYTES("a  b")}, false},
        {{.tags = BYTES("a ")}, false},
        {{.tags = BYTES("a b a")}, false},
        {{.tags = BYTES("123456789012345678901234567890123")}, false},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(wishes); i++)
        cr_expect_eq(best_is_valid(&wishes[i].wish), wishes[i].valid, "wish %zu", i);
    for (size_t i = 0; i < ARRAY_LENGTH(descriptions); i++)
        cr_expect_eq(seat_is_valid(&descriptions[i].seat), descriptions[i].valid, "description %zu", i);
}

/* ---- the exhaustive search ---- */

enum { SMALL = 13, HALLS = 1000 };

/* Returns true if both are in one row and the position of the second is one more. */
static bool is_left_of(const struct seat *a, const struct seat *b)
{
    return bytes_equal(a->section, b->section) && bytes_equal(a->row, b->row) && a->position &&
           a->position + 1 == b->position;
}

static bool text_has(struct bytes text, struct bytes word)
{
    for (size_t i = 0; i + word.length <= text.length; i++)
        if (memcmp(text.data + i, word.data, word.length) == 0)
            return true;
    return false;
}

static bool is_in(const struct bytes *names, uint32_t count, struct bytes name)
{
    for (uint32_t i = 0; i < count; i++)
        if (bytes_equal(names[i], name))
            return true;
    return false;
}

/* Returns the number of seats with the tag that `with` asks for; 0: it does not name the tag. */
static uint32_t asked(const struct best *wish, struct bytes tag)
{
    for (uint32_t k = 0; k < wish->with_count; k++)
        if (bytes_equal(wish->with[k].tag, tag))
            return wish->with[k].count;
    return 0;
}

/* Returns true if the seat may be part of a choice. */
static bool fits(const struct best *wish, uint32_t at)
{
    bool yes = !taken[at] && (!wish->section_count || is_in(wish->sections, wish->section_count, seats[at].section));
    for (uint32_t k = 0; k < wish->tag_count; k++)
        yes = yes && text_has(seats[at].tags, wish->tags[k]);
    for (uint32_t k = 0; k < wish->not_tag_count; k++)
        yes = yes && (asked(wish, wish->not_tags[k]) || !text_has(seats[at].tags, wish->not_tags[k]));
    return yes;
}

static uint32_t count_tag(uint32_t chosen, struct bytes tag)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < seat_count; i++)
        count += chosen >> i & 1 && text_has(seats[i].tags, tag);
    return count;
}

/* Returns true if these seats (bits) may be chosen, apart from their neighbourhood. */
static bool is_allowed(const struct best *wish, uint32_t chosen)
{
    bool yes = true;
    for (uint32_t i = 0; i < seat_count; i++)
        yes = yes && (!(chosen >> i & 1) || fits(wish, i));
    for (uint32_t k = 0; k < wish->with_count; k++)
        yes = yes && count_tag(chosen, wish->with[k].tag) >= wish->with[k].count;
    for (uint32_t k = 0; k < wish->not_tag_count; k++)
        yes = yes && count_tag(chosen, wish->not_tags[k]) <= asked(wish, wish->not_tags[k]);
    return yes;
}

/* Returns true if two groups have nothing between them but seats that fit. */
static bool is_one_run(const struct best *wish, uint32_t chosen)
{
    for (uint32_t i = 0; i < seat_count; i++) {
        uint32_t at = i, next = i;
        do {
            at = next;
            for (uint32_t k = 0; k < seat_count; k++)
                next = is_left_of(&seats[at], &seats[k]) ? k : next;
        } while (next != at && fits(wish, next) && !(chosen >> next & 1));
        bool gap = next != at && !is_left_of(&seats[i], &seats[next]);
        if (chosen >> i & 1 && gap && chosen >> next & 1)
            return true;
    }
    return false;
}

/* Returns the number of groups: seats with no chosen seat left of them. */
static uint32_t count_groups(uint32_t chosen)
{
    uint32_t groups = 0;
    for (uint32_t i = 0; i < seat_count; i++) {
        bool begins = chosen >> i & 1;
        for (uint32_t k = 0; k < seat_count; k++)
            begins = begins && !(chosen >> k & 1 && is_left_of(&seats[k], &seats[i]));
        groups += begins;
    }
    return groups;
}

/* Returns true if a seat is free and between two taken ones, after a choice. */
static bool is_orphan(uint32_t at, uint32_t chosen)
{
    bool left = false, right = false;
    for (uint32_t k = 0; k < seat_count; k++) {
        bool is_taken = taken[k] || chosen >> k & 1;
        left = left || (is_taken && is_left_of(&seats[k], &seats[at]));
        right = right || (is_taken && is_left_of(&seats[at], &seats[k]));
    }
    return !taken[at] && !(chosen >> at & 1) && left && right;
}

static bool leaves_orphan(uint32_t chosen)
{
    for (uint32_t i = 0; i < seat_count; i++)
        if (is_orphan(i, chosen) && !is_orphan(i, 0))
            return true;
    return false;
}

struct answer {
    int64_t sum, calm_sum; /* -1: none; of the best choice, and of the best that leaves no new orphan */
    uint32_t groups;
};

/* Tries all sets of `count` seats. most_groups 0: apart. */
static struct answer try_all(const struct best *wish, uint32_t count, uint32_t most_groups)
{
    struct answer answer = {-1, -1, 0};
    for (uint32_t chosen = 0; chosen < 1U << seat_count; chosen++) {
        if ((uint32_t)__builtin_popcount(chosen) != count || !is_allowed(wish, chosen))
            continue;
        uint32_t groups = most_groups ? count_groups(chosen) : 0;
        int64_t sum = 0;
        if (groups > most_groups || (groups > 1 && is_one_run(wish, chosen)))
            continue;
        for (uint32_t i = 0; i < seat_count; i++)
            sum += chosen >> i & 1 ? seats[i].rank : 0;
        if (answer.sum < 0 || groups < answer.groups)
            answer = (struct answer){sum, -1, groups};
        if (groups > answer.groups)
            continue;
        answer.sum = min_i64(answer.sum, sum);
        if ((answer.calm_sum < 0 || sum < answer.calm_sum) && !leaves_orphan(chosen))
            answer.calm_sum = sum;
    }
    return answer;
}

static uint64_t dice;

static uint32_t roll(uint32_t below)
{
    return (uint32_t)random_below(&dice, below);
}

/* Makes up to SMALL seats in rows of 1 to 8, in two sections, some taken, some with tags, with gaps. */
static void generate_hall(void)
{
    static const char *const names[] = {"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"};
    static const char *const kinds[] = {"123456789", "789", "1"};
    const char *ranks = kinds[roll(3)];
    uint32_t taken_of_10 = roll(7), base = roll(2) * 100;
    seat_count = 0;
    for (uint32_t i = 0; i < ARRAY_LENGTH(names) && seat_count < SMALL; i++) {
        char positions[9] = {0};
        uint32_t length = 1 + roll(8), first = seat_count;
        for (uint32_t k = 0; k < length; k++) {
            bool tagged = roll(6) == 0;
            positions[k] = tagged ? "wcab"[roll(4)] : ranks[roll((uint32_t)strlen(ranks))];
            positions[k] = roll(10) < taken_of_10 ? 'x' : roll(12) == 0 ? ' ' : positions[k];
        }
        row(roll(2) ? "A" : "B", names[i], positions);
        seat_count = (uint32_t)min_i64(seat_count, SMALL);
        for (uint32_t k = first; k < seat_count; k++)
            seats[k].rank += base;
    }
}

static struct best generate_wish(void)
{
    static struct bytes names[4];
    static struct best_with with[2];
    struct best wish = {.count = 1 + roll(6), .together = roll(3) > 0, .no_orphans = roll(3) > 0, .with = with};
    memcpy(names, LIST(BYTES("A"), WHEELCHAIR, AISLE, COMPANION), sizeof names);
    wish.split = wish.together ? roll(4) : 0;
    wish.sections = names;
    wish.section_count = roll(4) == 0;
    wish.tags = names + 1 + roll(2);
    wish.tag_count = roll(6) == 0;
    wish.not_tags = names + 1 + roll(2);
    wish.not_tag_count = roll(2) * (1 + roll(2));
    wish.with_count = roll(2) * roll(3);
    for (uint32_t i = 0; i < wish.with_count; i++)
        with[i] = (struct best_with){names[1 + i], 1 + roll((uint32_t)min_i64(2, wish.count))};
    return wish;
}

Test(best, agrees_with_an_exhaustive_search_of_1000_small_halls)
{
    uint32_t met = 0, split = 0, moved = 0;
    for (uint32_t hall = 0; hall < HALLS; hall++) {
        dice = hall;
        generate_hall();
        struct best wish = generate_wish();
        for (uint32_t i = 0; i < seat_count && !wish.together && wish.with_count == 2; i++)
            seats[i].tags = text_has(seats[i].tags, WHEELCHAIR) ? WHEELCHAIR : seats[i].tags;
        struct best_choice choice = {0};
        uint32_t largest = 0, chosen = 0, expected = wish.count;
        build();
        bool found = best_choose(&view, &wish, &arena, &choice, &largest);
        struct answer answer = try_all(&wish, wish.count, wish.together);
        if (answer.sum < 0 && wish.split > 1)
            answer = try_all(&wish, wish.count, wish.split);
        cr_assert_eq(found, answer.sum >= 0, "hall %u", hall);
        if (!found) {
            while (--expected > 0 && try_all(&wish, expected, 1).sum < 0)
                ;
            cr_assert_eq(largest, expected, "hall %u: %u, not %u", hall, largest, expected);
            continue;
        }
        int64_t sum = 0;
        for (uint32_t i = 0; i < choice.slots.count; i++) {
            uint32_t at = choice.slots.numbers[i] - 1;
            cr_assert(i == 0 || at >= choice.slots.numbers[i - 1]);
            chosen |= 1U << at;
            sum += seats[at].rank;
        }
        cr_assert_eq(choice.slots.count, wish.count);
        cr_assert(is_allowed(&wish, chosen), "hall %u", hall);
        cr_assert_eq(choice.groups, answer.groups, "hall %u", hall);
        cr_assert_eq(wish.together ? count_groups(chosen) : 0, answer.groups, "hall %u", hall);
        cr_assert_eq(choice.rank_sum, sum, "hall %u", hall);
        bool may_move = wish.no_orphans && answer.calm_sum >= 0 && answer.calm_sum <= answer.sum + answer.sum / 10;
        if (may_move && (wish.count == 1 || answer.groups == 1))
            cr_assert(sum == answer.calm_sum && !leaves_orphan(chosen), "hall %u", hall);
        else
            cr_assert(sum == answer.sum || (may_move && sum <= answer.sum + answer.sum / 10 && !leaves_orphan(chosen)),
                      "hall %u: %" PRId64 ", not %" PRId64, hall, sum, answer.sum);
        met++;
        split += answer.groups > 1;
        moved += sum > answer.sum;
        arena_clear(&arena);
    }
    cr_log_info("%u met, %u split, %u moved for orphans", met, split, moved);
    cr_expect(met > HALLS / 3 && split > HALLS / 50 && moved > 5, "%u met, %u split, %u moved", met, split, moved);
}

/* ---- single seats that a day of sales leaves ---- */

enum { WIDTH = 20, WIDE_ROWS = 8, GROUPS = 60, DAYS = 50 };

static void empty_hall(void)
{
    seat_count = 0;
    for (uint32_t i = 0; i < WIDTH * WIDE_ROWS; i++) {
        static const char *const names[] = {"1", "2", "3", "4", "5", "6", "7", "8"};
        uint32_t seat = i % WIDTH;
        seats[i] =
            (struct seat){.number = i + 1,
                          .position = seat + 1,
                          .row = bytes_of(names[i / WIDTH]),
                          .rank = 100 + 3 * (i / WIDTH) + (seat < WIDTH / 2 ? WIDTH / 2 - 1 - seat : seat - WIDTH / 2)};
        taken[i] = false;
        seat_count++;
    }
    build();
}

/* Returns the first of the first `size` free seats side by side; UINT32_MAX: there are none. */
static uint32_t first_fit(uint32_t size)
{
    for (uint32_t first = 0; first + size <= seat_count; first++) {
        uint32_t length = 0;
        while (length < size && !taken[first + length] && first / WIDTH == (first + length) / WIDTH)
            length++;
        if (length == size)
            return first;
    }
    return UINT32_MAX;
}

static uint32_t best_fit(uint32_t size, bool no_orphans)
{
    struct best wish = {.count = size, .together = true, .no_orphans = no_orphans};
    struct best_choice choice;
    uint32_t largest;
    return best_choose(&view, &wish, &arena, &choice, &largest) ? choice.slots.numbers[0] - 1 : UINT32_MAX;
}

static uint32_t count_single_seats(void)
{
    uint32_t count = 0;
    for (uint32_t i = 1; i + 1 < seat_count; i++)
        count += !taken[i] && i % WIDTH && taken[i - 1] && (i + 1) % WIDTH && taken[i + 1];
    return count;
}

static void set_taken(uint32_t first, uint32_t size, bool value)
{
    for (uint32_t i = first; i < first + size; i++) {
        cr_assert_neq(taken[i], value);
        taken[i] = value;
        seat_view_set(&view, i + 1, !value);
    }
}

/*
 * Sells to groups of 1 to 6; after every third sale one of them leaves. Returns the increase of single free seats
 * between taken ones by sales.
 */
static uint32_t sell_for_a_day(uint64_t day, int how)
{
    uint32_t first[GROUPS], size[GROUPS], orphans = 0;
    dice = day;
    empty_hall();
    for (uint32_t i = 0; i < GROUPS; i++) {
        uint32_t before = count_single_seats(), leaves = roll(i + 1);
        bool one_leaves = roll(3) == 0;
        size[i] = 1 + roll(6);
        first[i] = how ? best_fit(size[i], how == 2) : first_fit(size[i]);
        if (first[i] != UINT32_MAX)
            set_taken(first[i], size[i], true);
        orphans += (uint32_t)max_i64(0, (int64_t)count_single_seats() - before);
        if (one_leaves && first[leaves] != UINT32_MAX) {
            set_taken(first[leaves], size[leaves], false);
            first[leaves] = UINT32_MAX;
        }
    }
    arena_clear(&arena);
    return orphans;
}

Test(best, no_orphans_halves_the_single_seats_of_first_fit)
{
    uint32_t orphans[3] = {0};
    for (uint32_t day = 0; day < DAYS; day++)
        for (int how = 0; how < 3; how++)
            orphans[how] += sell_for_a_day(day, how);
    cr_log_info("first fit %u, best %u, without orphans %u", orphans[0], orphans[1], orphans[2]);
    cr_expect(2 * orphans[2] <= orphans[0], "%u, first fit %u", orphans[2], orphans[0]);
}

Test(best, choice_without_memory_leaves_by_the_exit_of_the_arena)
{
    volatile uint32_t failed = 0, done = 0;
    for (volatile size_t limit = 0; !done && limit < 100000; limit += 64) {
        struct arena small;
        arena_init(&small, 64, limit);
        small.exit = &no_memory;
        row("A", "1", "11x11");
        if (setjmp(no_memory) == 0) {
            struct best wish = {.count = 3, .together = true, .split = 2, .no_orphans = true};
            struct best_choice choice;
            uint32_t largest;
            seat_map_init(&map, seats, seat_count, &small);
            seat_view_init(&view, &map, &small);
            for (uint32_t i = 0; i < seat_count; i++)
                seat_view_set(&view, i + 1, !taken[i]);
            cr_expect(best_choose(&view, &wish, &small, &choice, &largest));
            done++;
        } else {
            failed++;
        }
        arena_release(&small);
        seat_count = 0;
    }
    cr_expect(done && failed > 10, "%u failed", failed);
}

/* ---- the form ---- */

static void form_is_kept(const struct best *wish)
{
    char form[BEST_FORM_MAX], again[BEST_FORM_MAX];
    struct best copy = *wish, read;
    struct bytes encoded = best_encode(&copy, form);
    cr_assert_not_null(encoded.data);
    for (size_t cut = 0; cut < encoded.length; cut++)
        cr_expect_not(best_decode((struct bytes){form, cut}, wish->count, &arena, &read), "%zu bytes of it", cut);
    cr_assert(best_decode(encoded, wish->count, &arena, &read));
    cr_expect(read.count == wish->count && read.split == wish->split && read.together == wish->together &&
              read.no_orphans == wish->no_orphans && read.with_count == wish->with_count);
    cr_expect(bytes_equal(best_encode(&read, again), encoded));
    cr_expect_not(best_decode(encoded, 0, &arena, &read));
    cr_expect_not(best_decode(encoded, SLOTS_MAX_COUNT + 1, &arena, &read));
}

Test(best, form_of_a_wish_is_the_same_in_any_order)
{
    char forms[2][BEST_FORM_MAX];
    struct best wish = {.count = 4, .together = true, .split = 2, IN(BYTES("B"), BYTES("A")), .no_orphans = true};
    struct best other = {.count = 4, .together = true, .split = 2, IN(BYTES("A"), BYTES("B")), .no_orphans = true};
    form_is_kept(&(struct best){.count = 1});
    form_is_kept(&(struct best){
        .count = 3, IN(BYTES("A"), BYTES("12")), ALL(AISLE), NOT(WHEELCHAIR), WITH({COMPANION, 2}, {AISLE, 1})});
    cr_expect(bytes_equal(best_encode(&wish, forms[0]), best_encode(&other, forms[1])));
    other.sections[1] = other.sections[0];
    cr_expect_null(best_encode(&other, forms[1]).data, "a section is there twice");
    forms[0][0] = 4;
    cr_expect_not(best_decode((struct bytes){forms[0], 2 + 1 + 4 + 3}, 4, &arena, &other), "an unknown flag");
}
