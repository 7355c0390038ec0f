/* SPDX-License-Identifier: MIT */
#include "core/slot_pool.h"

#include <assert.h>

enum { WORD = 64 }; /* bits of a word, and labels of a page */

void slot_pool_init(struct slot_pool *pool, int64_t capacity, struct arena *arena)
{
    size_t word_count = (size_t)capacity / WORD + 1;
    *pool = (struct slot_pool){.words = arena_must_array(arena, word_count, sizeof *pool->words),
                               .word_count = word_count,
                               .first = word_count,
                               .capacity = (uint32_t)capacity};
}

void slot_pool_put(struct slot_pool *pool, uint32_t number)
{
    if (number > pool->capacity || slot_pool_has(pool, number))
        return;
    size_t at = number / WORD;
    pool->words[at] |= UINT64_C(1) << number % WORD;
    pool->count++;
    if (at < pool->first)
        pool->first = at;
}

bool slot_pool_has(const struct slot_pool *pool, uint32_t number)
{
    return number <= pool->capacity && (pool->words[number / WORD] >> number % WORD & 1);
}

void slot_pool_take(struct slot_pool *pool, uint32_t number)
{
    assert(slot_pool_has(pool, number));
    pool->words[number / WORD] &= ~(UINT64_C(1) << number % WORD);
    pool->count--;
}

static uint32_t lowest_bit(size_t at, uint64_t word)
{
    return (uint32_t)(at * WORD) + (uint32_t)__builtin_ctzll(word);
}

uint32_t slot_pool_lowest(struct slot_pool *pool)
{
    assert(pool->count > 0);
    while (!pool->words[pool->first])
        pool->first++;
    return lowest_bit(pool->first, pool->words[pool->first]);
}

/* ---- reserved slots ---- */

/* Sets the bit of a slot; allocates the bits first. */
static void set_bit(const struct slot_pool *pool, uint64_t **bits, uint32_t number, struct arena *arena)
{
    if (!*bits)
        *bits = arena_must_array(arena, pool->word_count, sizeof **bits);
    if (number <= pool->capacity)
        (*bits)[number / WORD] |= UINT64_C(1) << number % WORD;
}

void slot_pool_reserve(struct slot_pool *pool, uint32_t number, struct arena *arena)
{
    set_bit(pool, &pool->reserved, number, arena);
}

void slot_pool_keep(struct slot_pool *pool, uint32_t number, struct arena *arena)
{
    set_bit(pool, &pool->kept, number, arena);
}

/* The bits of one word of the slots that no later request may take. */
static uint64_t reserved(const struct slot_pool *pool, size_t at)
{
    uint64_t word = pool->reserved ? pool->reserved[at] : 0;
    return pool->kept && !pool->ignores_kept ? word | pool->kept[at] : word;
}

bool slot_pool_is_reserved(const struct slot_pool *pool, uint32_t number)
{
    return number <= pool->capacity && (reserved(pool, number / WORD) >> number % WORD & 1);
}

uint32_t slot_pool_count_reserved(const struct slot_pool *pool)
{
    uint32_t count = 0;
    for (size_t i = 0; slot_pool_has_reserved(pool) && i < pool->word_count; i++)
        count += (uint32_t)__builtin_popcountll(pool->words[i] & reserved(pool, i));
    return count;
}

void slot_pool_unreserve(struct slot_pool *pool)
{
    if (pool->reserved)
        memset(pool->reserved, 0, pool->word_count * sizeof *pool->reserved);
    if (pool->kept)
        memset(pool->kept, 0, pool->word_count * sizeof *pool->kept);
}

/* ---- free slots that are not reserved ---- */

/* The bits of one word of them. */
static uint64_t takeable(const struct slot_pool *pool, size_t at)
{
    return pool->words[at] & ~reserved(pool, at);
}

uint32_t slot_pool_next(const struct slot_pool *pool, uint32_t from)
{
    if (from > pool->capacity)
        return 0;
    size_t at = from / WORD;
    uint64_t word = takeable(pool, at) & UINT64_MAX << from % WORD;
    while (!word && ++at < pool->word_count)
        word = takeable(pool, at);
    return word ? lowest_bit(at, word) : 0;
}

/* Returns the first number after `from` that is not such a slot; `from` is one. */
static uint32_t end_of_run(const struct slot_pool *pool, uint32_t from)
{
    size_t at = from / WORD;
    uint64_t gaps = ~takeable(pool, at) & UINT64_MAX << from % WORD;
    while (!gaps && ++at < pool->word_count)
        gaps = ~takeable(pool, at);
    return gaps ? lowest_bit(at, gaps) : (uint32_t)(at * WORD);
}

uint32_t slot_pool_run(const struct slot_pool *pool, uint32_t count)
{
    uint32_t end;
    for (uint32_t from = slot_pool_next(pool, 1); from; from = slot_pool_next(pool, end)) {
        end = end_of_run(pool, from);
        if (end - from >= count)
            return from;
    }
    return 0;
}

static bool can_take(const struct slot_pool *pool, uint32_t number)
{
    return slot_pool_has(pool, number) && !slot_pool_is_reserved(pool, number);
}

uint32_t slot_pool_run_within(const struct slot_pool *pool, uint32_t count, const struct slots *list)
{
    uint32_t run = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        bool follows = run > 0 && list->numbers[i] == list->numbers[i - 1] + 1;
        run = can_take(pool, list->numbers[i]) ? (follows ? run : 0) + 1 : 0;
        if (run == count)
            return list->numbers[i] - count + 1;
    }
    return 0;
}

uint32_t slot_pool_count_of(const struct slot_pool *pool, const struct slots *list)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < list->count; i++)
        count += can_take(pool, list->numbers[i]);
    return count;
}

/* ---- labels ---- */

void slot_pool_set_label(struct slot_pool *pool, uint32_t number, struct bytes label, struct arena *arena)
{
    if (!label.length || number > pool->capacity)
        return;
    if (!pool->labels)
        pool->labels = arena_must_array(arena, pool->word_count, sizeof *pool->labels);
    struct bytes **page = &pool->labels[number / WORD];
    if (!*page)
        *page = arena_must_array(arena, WORD, sizeof **page);
    (*page)[number % WORD] = label;
}

struct bytes slot_pool_label(const struct slot_pool *pool, uint32_t number)
{
    const struct bytes *page = pool->labels ? pool->labels[number / WORD] : NULL;
    return page ? page[number % WORD] : (struct bytes){0};
}
