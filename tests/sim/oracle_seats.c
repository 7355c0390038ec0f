/* SPDX-License-Identifier: MIT */
/*
 * Best seats, by the rows: what a wish accepts, whether free seats meet it, and the lowest sum of ranks. Slow and obvious:
 * it tries each seat, and each group of a row. It knows the wishes of this simulation only: section, tags, not_tags,
 * together.
 */
#include <stdlib.h>

#include "oracle.h"

#define NO_SUM INT64_MAX

static struct arena arena = {.chunk_size = 4096, .limit = (size_t)1 << 20};

static bool has_tag(struct bytes tags, struct bytes tag)
{
    struct bytes word;
    while (seat_next_tag(&tags, &word))
        if (bytes_equal(word, tag))
            return true;
    return false;
}

static bool accepts(const struct best *wish, const struct seat *seat)
{
    bool accepted = wish->section_count == 0;
    for (uint32_t i = 0; i < wish->section_count; i++)
        accepted |= bytes_equal(wish->sections[i], seat->section);
    for (uint32_t i = 0; i < wish->tag_count; i++)
        accepted &= has_tag(seat->tags, wish->tags[i]);
    for (uint32_t i = 0; i < wish->not_tag_count; i++)
        accepted &= !has_tag(seat->tags, wish->not_tags[i]);
    return accepted;
}

static struct best wish_of(const struct want *want)
{
    struct best wish;
    arena_clear(&arena);
    if (!best_decode(want->best, want->count, &arena, &wish))
        abort();
    return wish;
}

bool seat_is_wanted(const struct want *want, const struct db_semaphore_row *row, uint32_t number)
{
    const struct best wish = wish_of(want);
    const struct seat seat = slot_seat(row, number);
    return accepts(&wish, &seat);
}

/* The slot that is so many places behind another one in its row; 0: none. */
static uint32_t neighbour(const struct db_semaphore_row *row, uint32_t number, uint32_t places)
{
    const struct seat first = slot_seat(row, number);
    for (uint32_t other = 1; first.position && other <= row->in_service; other++) {
        const struct seat seat = slot_seat(row, other);
        if (bytes_equal(seat.section, first.section) && bytes_equal(seat.row, first.row) &&
            seat.position == first.position + places)
            return other;
    }
    return places == 0 ? number : 0;
}

static bool is_among(uint32_t slots, uint32_t number)
{
    return slots >> number & 1;
}

/* The sum of the group that begins with this slot. */
static int64_t sum_together(const struct db_semaphore_row *row, const struct best *wish, uint32_t slots, uint32_t first)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < wish->count; i++) {
        uint32_t number = neighbour(row, first, i);
        if (!number || !is_among(slots, number))
            return NO_SUM;
        const struct seat seat = slot_seat(row, number);
        if (!accepts(wish, &seat))
            return NO_SUM;
        sum += seat.rank;
    }
    return sum;
}

/* The sum of the lowest ranks. */
static int64_t sum_apart(const struct db_semaphore_row *row, const struct best *wish, uint32_t slots)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < wish->count; i++) {
        uint32_t lowest = 0;
        for (uint32_t number = 1; number <= row->in_service; number++) {
            const struct seat seat = slot_seat(row, number);
            if (is_among(slots, number) && accepts(wish, &seat) && (!lowest || seat.rank < slot_seat(row, lowest).rank))
                lowest = number;
        }
        if (!lowest)
            return NO_SUM;
        sum += slot_seat(row, lowest).rank;
        slots &= ~(1U << lowest);
    }
    return sum;
}

/* The lowest sum of a choice among these slots, a bit per number; NO_SUM: there is no choice. */
static int64_t lowest_sum(const struct want *want, const struct db_semaphore_row *row, uint32_t slots)
{
    const struct best wish = wish_of(want);
    int64_t sum = NO_SUM;
    for (uint32_t number = 1; wish.together && number <= row->in_service; number++)
        sum = min_i64(sum, sum_together(row, &wish, slots, number));
    return wish.together ? sum : sum_apart(row, &wish, slots);
}

static uint32_t free_slots(const struct db_semaphore_row *row)
{
    uint32_t slots = 0;
    for (uint32_t number = 1; number <= row->in_service; number++)
        slots |= row->slots[number] ? 0 : 1U << number;
    return slots;
}

bool seats_are_free(const struct want *want, const struct db_semaphore_row *row)
{
    return lowest_sum(want, row, free_slots(row)) != NO_SUM;
}

bool seats_exist(const struct want *want, const struct db_semaphore_row *row)
{
    return lowest_sum(want, row, UINT32_MAX) != NO_SUM;
}

/* True if a holder of units of it is due: an acquire that needs their end may be put back, and keeps slots from others. */
static bool any_is_due(uint64_t semaphore_id, utc_us now)
{
    for (size_t i = 0; i < database.held_count; i++) {
        const struct request *request = &database.held[i]->row.request;
        if (request->due_at <= now && request_permit_of(request, semaphore_id))
            return true;
    }
    return false;
}

/* True if all other slots that are free now were so for the plan, and nothing kept them from this grant. */
static bool is_only_grant(const struct transaction *transaction, const struct db_semaphore_row *row,
                          const struct permit *permit)
{
    const struct changes *changes = transaction->changes;
    if (row->semaphore.waiting || changes->place_count || any_is_due(row->semaphore.id, transaction->read_time))
        return false;
    for (size_t i = 0; i < changes->slot_count; i++)
        if (changes->slots[i].semaphore_id == permit->semaphore_id &&
            (changes->slots[i].token != permit->token || changes->slots[i].replaced))
            return false;
    for (size_t i = 0; i < changes->request_count;
         i++) { /* one that was granted and ended in this batch is in no slot */
        const struct permit *other = request_permit_of(changes->requests[i].request, permit->semaphore_id);
        if (other && other->token != permit->token)
            return false;
    }
    return true;
}

void seats_check_grant(const struct transaction *transaction, const struct story *story, const struct want *want,
                       const struct db_semaphore *semaphore, const struct permit *permit)
{
    const struct db_semaphore_row *row = &semaphore->row;
    uint32_t slots = 0;
    int64_t sum = 0;
    for (uint32_t i = 0; i < permit->slots.count; i++) {
        slots |= 1U << permit->slots.numbers[i];
        sum += slot_seat(row, permit->slots.numbers[i]).rank;
    }
    if (lowest_sum(want, row, slots) == NO_SUM)
        violation("P10", "%s was granted seats of %s that are not as it wished", story->key->text, semaphore->name);
    if (!is_only_grant(transaction, row, permit))
        return;
    counts.seats_judged++;
    if (lowest_sum(want, row, slots | free_slots(row)) != sum)
        violation("P10", "%s was granted seats of %s with ranks of %lld in all, although better ones are free",
                  story->key->text, semaphore->name, (long long)sum);
}
