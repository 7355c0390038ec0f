/* SPDX-License-Identifier: MIT */
/*
 * Best seats: chooses free seats of one semaphore for a wish. Pure: no clock, no SQL. Memory comes from the arena; if
 * there is none, the functions leave it like a plan (arena_must_array).
 *
 * A seat map is the layout: it changes only when slots are described anew. A seat view adds one bit per seat: free, so
 * that it may be taken now. It is filled once per batch and then follows each seat that the batch takes or frees. A
 * choice changes neither.
 */
#ifndef CORE_BEST_H
#define CORE_BEST_H

#include "core/name.h"
#include "core/slots.h"

enum {
    SEAT_MAX_TAGS = 8,
    SEAT_RANK_MAX = 1000000000,
    SEAT_RANK_NONE, /* no rank: behind all that have one */
    SEAT_POSITION_MAX = 1000000000,
    BEST_MAX_WITH = 4, /* tags of `with` */
    BEST_MAX_SECTIONS = 16,
    BEST_MAX_TAGS = 8, /* of `tags`, and of `not_tags` */
    BEST_FORM_MAX = 2 + 4 + (BEST_MAX_SECTIONS + 2 * BEST_MAX_TAGS + BEST_MAX_WITH) * 33 + BEST_MAX_WITH * 2,
    BEST_MAX_SPLIT = 8,    /* groups */
    BEST_MAX_STATES = 256, /* of a wish with `split`: split * count * the product of all (with.count + 1) */
};

/* A slot as its operator describes it. All but the number is optional. */
struct seat {
    uint32_t number;           /* of the slot, 1 to SLOTS_MAX_CAPACITY */
    uint32_t position;         /* in its row, from 1; 0: none, the seat has no neighbours */
    uint32_t rank;             /* 0 is the best; SEAT_RANK_NONE */
    struct bytes section, row; /* empty: none */
    struct bytes tags;         /* words with one space between them */
    /* Of section, row and tags, data NULL is the same as an empty text. */
};

/* Descriptions of all slots of a semaphore, ascending by number. */
struct seats {
    struct seat *rows;
    size_t count;
    struct bytes *labels; /* one per row, data NULL: no label; NULL: no labels at all */
};

/* Cuts the next tag off the text, whose data is then NULL behind the last one. False: there is none. */
bool seat_next_tag(struct bytes *text, struct bytes *ret_tag);
/* Returns true if both have the same description, whatever their numbers. */
bool seat_same(const struct seat *a, const struct seat *b);
/* Orders by section, row and position; sections and rows by length, then bytes. 0: the same place. */
int seat_compare_places(const struct seat *a, const struct seat *b);
/* The same for qsort of pointers; seats at one place by number. */
int seat_compare(const void *left, const void *right);
/* Checks a description, but not its number: lengths, ranges, tags that are words and all different. */
bool seat_is_valid(const struct seat *seat) MUST_CHECK;

/*
 * A run is a row, or a part of it, without a gap. Indexes count seats in the order of section, row and position. Only
 * seat_map_init writes here.
 */
struct seat_map {
    uint32_t count, run_count, tag_set_count, max_number;
    struct map_seat {
        uint32_t number, rank, tag_set, run;
    } * seats; /* by index */
    struct seat_run {
        uint32_t first, end; /* indexes; the last one is end - 1 */
        uint32_t lowest;     /* rank of its seats, free or not */
        struct bytes section;
    } * runs;
    struct bytes *tag_sets;           /* the different texts of tags */
    uint32_t *index_of;               /* by number; UINT32_MAX: not in the map */
    uint32_t *by_rank, *runs_by_rank; /* indexes, ordered by (lowest) rank, then index */
    struct bytes *labels;             /* of the slots, by number; NULL: none, or seat_map_init made the map */
};

/*
 * Builds the map of seats in any order, with different numbers, in the arena; about 10 ms and 4 MB for 40,000 seats. It
 * keeps slices of the descriptions, not the array.
 *
 * Sections and rows are ordered by length, then bytes: 9 before 10, Z before AA. Two seats are adjacent if section and
 * row are equal and the positions differ by 1. Two seats at one position are not adjacent, and the run ends between
 * them: no group has both.
 */
void seat_map_init(struct seat_map *map, const struct seat *seats, uint32_t count, struct arena *arena);

/* The same, with the labels, for an arena without an exit. False: out of memory. */
bool seat_map_make(struct seat_map *map, const struct seats *seats, struct arena *arena) MUST_CHECK;
/* Returns the label of a slot; length 0: none. */
static inline struct bytes seat_map_label(const struct seat_map *map, uint32_t number)
{
    return map->labels && number <= map->max_number ? map->labels[number] : (struct bytes){0};
}

struct seat_view {
    const struct seat_map *map;
    uint64_t *free; /* one bit per index; in the arena */
};

/* All seats are taken at first. */
void seat_view_init(struct seat_view *view, const struct seat_map *map, struct arena *arena);
/* Ignores a number that is not in the map. */
void seat_view_set(struct seat_view *view, uint32_t number, bool free);

struct best_with {
    struct bytes tag;
    uint32_t count; /* 1 to that of the wish */
};

struct best {
    uint32_t count; /* seats, 1 to SLOTS_MAX_COUNT; all or none */
    uint32_t section_count, tag_count, not_tag_count, with_count;
    struct bytes *sections; /* the seats are in one of them; none: anywhere */
    struct bytes *tags;     /* every chosen seat has all of these */
    struct bytes *not_tags; /* no chosen seat has one, but for as many as `with` asks for */
    struct best_with *with; /* so many or more of the seats have the tag; one seat may count for several tags */
    uint32_t split;         /* 2 or more, with `together`: the most groups, if no run has all seats together */
    bool together;          /* adjacent seats */
    bool no_orphans;
};

/*
 * The form of a wish without its count, which operations and rows have; the bytes are stored in rows: never change it.
 *
 *   1   1: together; 2: no_orphans
 *   1   split
 *   for sections, tags, not_tags and with each:
 *       1   number of names; then for each, ascending by bytes: 1 length, n the name; with: 2 its count
 *
 * Encoding sorts the names of the wish. It returns data NULL if a name is there twice. Decoding returns false unless the
 * form is one that best_encode makes of a valid wish with this count; the names point into the form.
 */
struct bytes best_encode(struct best *wish, char *form);
bool best_decode(struct bytes form, int64_t count, struct arena *arena, struct best *ret_wish) MUST_CHECK;

/* Checks the limits of a wish, which bound the work of best_choose. */
bool best_is_valid(const struct best *wish) MUST_CHECK;

struct best_choice {
    struct slots slots; /* in the arena */
    int64_t rank_sum;
    uint32_t groups; /* 1, or those of a split; 0: not chosen as groups */
};

/*
 * Chooses seats for a valid wish. False: it cannot be met; *ret_choice is untouched, and *ret_largest_together is the
 * largest count for which one group of adjacent seats would meet the rest of the wish; 0: none.
 *
 * together    The lowest sum of ranks; ties: the first by section, row and position. Exact. It looks at runs in the
 *             order of their lowest rank until no other can win.
 * split       Only if no run has all seats: the fewest groups, of those the lowest sum. Exact, but two groups are never
 *             in one run of free seats that fit. As a rule seats * count steps; at most seats * (count +
 *             BEST_MAX_STATES * the product of all (with.count + 1)).
 * neither     The lowest ranks; ties as above. Exact, unless a seat has two tags of `with`: then the sum may be higher,
 *             or the wish refused. At most 5 * seats steps.
 * no_orphans  An orphan is a free seat between two taken ones, which was not between two before the choice; the end of
 *             a run is no taken seat. If the best choice leaves one, another with as many groups that leaves none and
 *             whose sum is at most 10 % higher takes its place. Exact for one group or one seat. In other choices, each
 *             group or seat must also leave none by itself.
 */
bool best_choose(const struct seat_view *view, const struct best *wish, struct arena *arena,
                 struct best_choice *ret_choice, uint32_t *ret_largest_together) MUST_CHECK;
#endif
