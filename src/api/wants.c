/* SPDX-License-Identifier: MIT */
#include "api/wants.h"

#include <assert.h>
#include <stdio.h>

#include "api/json_in.h"

/* The most that all permits of a request may name together: it stands in the row of a request that waits. */
enum { REQUEST_MAX_NAMED = SLOTS_MAX_COUNT, REQUEST_MAX_NAMED_BYTES = 8 * 1024, NUMBER_BYTES = 4 };
/* Of a whole `best`; its lists have limits of their own. */
enum { BEST_MAX_BYTES = 64 * 1024 };

#define SLOTS_EXPECTED "an array of 1 to 1000 slots, each a number from 1, or a label"

struct want_form {
    struct bytes semaphore;
    int64_t count;
    struct wire_list slots;
    struct wire_list any_of;
    struct bytes best;
    bool adjacent;
    bool has_count;
};

static const struct wire_member want_members[] = {
    /* name, type, required, value, given, min, max, choices, expected */
    {"semaphore", WIRE_SEMAPHORE, true, offsetof(struct want_form, semaphore), 0, 0, 0, NULL,
     "a name of 1 to 255 bytes of A-Z a-z 0-9 . _ : @ - , not . or .."},
    {"count", WIRE_INTEGER, false, offsetof(struct want_form, count), offsetof(struct want_form, has_count), 1,
     COUNTED_MAX_CAPACITY, NULL, "a whole number from 1 to 9007199254740991"},
    {"slots", WIRE_LIST, false, offsetof(struct want_form, slots), 0, 1, SLOTS_MAX_COUNT, NULL, SLOTS_EXPECTED},
    /* A permit to give back has only the members before this line. */
    {"any_of", WIRE_LIST, false, offsetof(struct want_form, any_of), 0, 1, SLOTS_MAX_COUNT, NULL, SLOTS_EXPECTED},
    {"best", WIRE_OBJECT, false, offsetof(struct want_form, best), 0, 0, BEST_MAX_BYTES, NULL,
     "an object of at most 64 KiB"},
    {"adjacent", WIRE_BOOLEAN, false, offsetof(struct want_form, adjacent), 0, 0, 0, NULL, "true or false"},
};
static const struct wire_table want_table = {want_members, ARRAY_LENGTH(want_members)};
static const struct wire_table given_table = {want_members, 3};

/* A number above the capacity is never_satisfiable, not invalid: only the semaphore's row shows the capacity. */
static const struct wire_member slot_member = {
    .type = WIRE_SLOT,
    .min = 1,
    .max = INT32_MAX,
    .expected = "a slot's number from 1 to 2147483647, or its label, 1 to 255 bytes without control characters",
};

/* Reads the slots that a want names. `where` is the prefix of the want, "permits[1]."; `member` is slots or any_of. */
static enum permit_status read_named(const struct wire_reading *reading, struct wire_list *list, const char *where,
                                     const char *member, struct want *want)
{
    struct buf *message = reading->message;
    char name[64];
    snprintf(name, sizeof name, "%s%s", where, member);
    want->named_count = list->count;
    want->named = arena_array(reading->arena, want->named_count, sizeof *want->named);
    if (!want->named)
        return PERMIT_NO_MEMORY;
    enum permit_status status = wire_read_elements(reading, list, &slot_member, name, want->named);
    if (status != PERMIT_OK)
        return status;
    status = want_sort_named(want);
    if (status != PERMIT_OK)
        buf_printf(message, "%s names the same slot twice", name);
    return status;
}

/* ---- best ---- */

struct best_form {
    struct wire_list sections, tags, not_tags;
    struct bytes with;
    int64_t split;
    bool together, no_orphans;
};

static const struct wire_member best_members[] = {
    /* name, type, required, value, given, min, max, choices, expected */
    {"section", WIRE_LIST, false, offsetof(struct best_form, sections), 0, 0, BEST_MAX_SECTIONS, NULL,
     "an array of at most 16 sections"},
    {"together", WIRE_BOOLEAN, false, offsetof(struct best_form, together), 0, 0, 0, NULL, "true or false"},
    {"tags", WIRE_LIST, false, offsetof(struct best_form, tags), 0, 0, BEST_MAX_TAGS, NULL,
     "an array of at most 8 words"},
    {"not_tags", WIRE_LIST, false, offsetof(struct best_form, not_tags), 0, 0, BEST_MAX_TAGS, NULL,
     "an array of at most 8 words"},
    {"with", WIRE_OBJECT, false, offsetof(struct best_form, with), 0, 0, BEST_MAX_BYTES, NULL,
     "an object with at most 4 tags and their counts"},
    {"split", WIRE_INTEGER, false, offsetof(struct best_form, split), 0, 2, BEST_MAX_SPLIT, NULL,
     "a whole number from 2 to 8"},
    {"no_orphans", WIRE_BOOLEAN, false, offsetof(struct best_form, no_orphans), 0, 0, 0, NULL, "true or false"},
};
static const struct wire_table best_table = {best_members, ARRAY_LENGTH(best_members)};

static const struct wire_member section_word = {
    .name = "section", .type = WIRE_SECTION, .expected = "a section, 1 to 32 bytes without control characters"};
static const struct wire_member tag_word = {.name = "tags", .type = WIRE_TAG, .expected = TAG_EXPECTED};
static const struct wire_member not_tag_word = {.name = "not_tags", .type = WIRE_TAG, .expected = TAG_EXPECTED};

/* Reads a list of words, which has the name of its elements. */
static enum permit_status read_words(const struct wire_reading *reading, struct wire_list *list, const char *where,
                                     const struct wire_member *word, struct bytes **ret_words, uint32_t *ret_count)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", where, word->name);
    *ret_count = (uint32_t)list->count;
    *ret_words = arena_array(reading->arena, list->count + 1, sizeof **ret_words);
    return *ret_words ? wire_read_elements(reading, list, word, name, *ret_words) : PERMIT_NO_MEMORY;
}

static enum permit_status read_with(const struct wire_reading *reading, struct bytes object, const char *where,
                                    struct best *wish)
{
    struct best_with *with = arena_array(reading->arena, BEST_MAX_WITH, sizeof *with);
    struct bytes name, value;
    int64_t count;
    if (!with)
        return PERMIT_NO_MEMORY;
    wish->with = with;
    while (object.length && wire_next_member(&object, reading->arena, &name, &value)) {
        if (wish->with_count == BEST_MAX_WITH || !name_is_tag(name) ||
            !wire_read_integer(value, 1, wish->count, &count)) {
            buf_printf(reading->message,
                       "%s"
                       "with must have at most %d members: a tag, and how many seats have it, 1 to the count",
                       where, BEST_MAX_WITH);
            return PERMIT_INVALID;
        }
        with[wish->with_count++] = (struct best_with){name, (uint32_t)count};
    }
    return reading->arena->refused ? PERMIT_NO_MEMORY : PERMIT_OK;
}

/* Reads `best` into the form that rows have. */
static enum permit_status read_best(const struct wire_reading *reading, const struct want_form *form,
                                    const char *before, struct want *want)
{
    struct best_form best = {.split = 0};
    char where[64];
    snprintf(where, sizeof where, "%sbest.", before);
    want->choice = CHOOSE_BEST;
    if (form->count > SLOTS_MAX_COUNT) {
        buf_printf(reading->message, "%scount must be at most %d beside best", before, SLOTS_MAX_COUNT);
        return PERMIT_INVALID;
    }
    enum permit_status status = wire_read(reading, form->best, &best_table, where, &best);
    struct best wish = {.count = (uint32_t)form->count,
                        .split = (uint32_t)best.split,
                        .together = best.together,
                        .no_orphans = best.no_orphans};
    if (status == PERMIT_OK)
        status = read_words(reading, &best.sections, where, &section_word, &wish.sections, &wish.section_count);
    if (status == PERMIT_OK)
        status = read_words(reading, &best.tags, where, &tag_word, &wish.tags, &wish.tag_count);
    if (status == PERMIT_OK)
        status = read_words(reading, &best.not_tags, where, &not_tag_word, &wish.not_tags, &wish.not_tag_count);
    if (status == PERMIT_OK)
        status = read_with(reading, best.with, where, &wish);
    if (status != PERMIT_OK)
        return status;
    char *room = arena_alloc(reading->arena, BEST_FORM_MAX);
    if (!room)
        return PERMIT_NO_MEMORY;
    want->best = best_encode(&wish, room);
    if (!want->best.data)
        buf_printf(reading->message, "%sbest has a name twice in one of its lists", before);
    else if (wish.split && !wish.together)
        buf_printf(reading->message, "%ssplit requires together", where);
    else if (!best_is_valid(&wish))
        buf_printf(reading->message, "%ssplit: split * count * (each number of with + 1) must be at most %d", where,
                   BEST_MAX_STATES);
    else
        return PERMIT_OK;
    return PERMIT_INVALID;
}

/*
 * Reads slots, any_of, adjacent and best. The number of `slots` is the permit's count, so count, any_of and adjacent
 * cannot be combined with it.
 */
static enum permit_status read_choice(const struct wire_reading *reading, struct want_form *form, const char *where,
                                      struct want *want)
{
    bool by_slots = form->slots.count > 0;
    bool by_any_of = form->any_of.count > 0;
    want->adjacent = form->adjacent;
    if (form->best.data && (by_slots || by_any_of || form->adjacent)) {
        buf_printf(reading->message, "%sbest cannot be combined with slots, any_of or adjacent", where);
        return PERMIT_INVALID;
    }
    if (form->best.data)
        return read_best(reading, form, where, want);
    if (by_slots && (form->has_count || by_any_of || form->adjacent)) {
        buf_printf(reading->message, "%sslots cannot be combined with count, any_of or adjacent", where);
        return PERMIT_INVALID;
    }
    if (!by_slots && !by_any_of)
        return PERMIT_OK;
    want->choice = by_slots ? CHOOSE_NAMED : CHOOSE_ANY_OF;
    enum permit_status status = by_slots ? read_named(reading, &form->slots, where, "slots", want)
                                         : read_named(reading, &form->any_of, where, "any_of", want);
    if (by_slots)
        want->count = (int64_t)want->named_count;
    return status;
}

/* The slots that the permits read so far name together. */
struct named {
    size_t count;
    size_t bytes; /* of the labels, and NUMBER_BYTES for each number */
};

/* Reads one element of the list. */
static enum permit_status read_want(const struct wire_reading *reading, const struct wants_form *list,
                                    struct bytes object, size_t index, struct named *named, struct want *want)
{
    struct want_form form = {.count = 1};
    struct buf *message = reading->message;
    char where[32];
    snprintf(where, sizeof where, "%s[%zu].", list->name, index);
    enum permit_status status = wire_read(reading, object, list->gives ? &given_table : &want_table, where, &form);
    if (status != PERMIT_OK)
        return status;
    named->count += form.slots.count + form.any_of.count;
    if (named->count > REQUEST_MAX_NAMED) {
        buf_printf(message, "%s name more than %d slots", list->name, REQUEST_MAX_NAMED);
        return PERMIT_INVALID;
    }
    want->semaphore = form.semaphore;
    want->count = form.count;
    status = read_choice(reading, &form, where, want);
    for (size_t i = 0; status == PERMIT_OK && i < want->named_count; i++)
        named->bytes += want->named[i].label.data ? want->named[i].label.length : NUMBER_BYTES;
    named->bytes += want->best.length;
    if (named->bytes > REQUEST_MAX_NAMED_BYTES) {
        buf_printf(message,
                   "%s name slots with more than %d bytes (a label or word of best counts its bytes, a number %d)",
                   list->name, REQUEST_MAX_NAMED_BYTES, NUMBER_BYTES);
        return PERMIT_INVALID;
    }
    return status;
}

enum permit_status wants_read(const struct wire_reading *reading, const struct wants_form *form, struct wire_list *list,
                              struct want **ret_wants, size_t *ret_count)
{
    size_t count = list->count;
    struct named named = {0};
    assert(count <= REQUEST_MAX_SEMAPHORES);
    struct want *wants = arena_array(reading->arena, count, sizeof *wants);
    if (!wants)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        enum permit_status status = read_want(reading, form, wire_next(list), i, &named, &wants[i]);
        if (status != PERMIT_OK)
            return status;
    }
    *ret_wants = wants;
    *ret_count = count;
    enum permit_status status = wants_sort(wants, count);
    if (status != PERMIT_OK)
        buf_printf(reading->message, "duplicate semaphore in %s; use count", form->name);
    return status;
}
