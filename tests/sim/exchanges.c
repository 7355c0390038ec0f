/* SPDX-License-Identifier: MIT */
/* Clients that exchange what they hold: what they give back and take, and which exchanges they send again. */
#include <stdio.h>

#include "dice.h"
#include "exchange.h"
#include "world.h"

enum { UNITS_MAX = 8 }; /* of one semaphore that a client asks for in exchanges */

bool exchange_is_next(const struct story *story)
{
    if (!profile.exchanges || story->lost)
        return false;
    bool holds = story->grant_answered && !story->end_answered && !story->release_sent;
    return dice_once_in(holds ? 3 : story->exchanges ? 6 : 25);
}

/* The state in which the client thinks its request is. It knows no slots before an answer has shown them. */
static struct held_state known_state(const struct story *story)
{
    struct held_state state = {.known = true, .count = story->want_count};
    const struct exchanges *exchanges = story->exchanges;
    if (exchanges && exchanges->states[exchanges->answered].known)
        return exchanges->states[exchanges->answered];
    for (size_t i = 0; i < story->want_count; i++)
        state.units[i] = (struct held_units){.semaphore = story->semaphores[i], .count = story->wants[i].count};
    return state;
}

static struct held_units *units_of(struct held_state *state, const struct db_semaphore *semaphore)
{
    for (size_t i = 0; i < state->count; i++)
        if (state->units[i].semaphore == semaphore)
            return &state->units[i];
    return NULL;
}

/* ---- what it gives back ---- */

/* Names so many of these slots, by number or by label. */
static void name_slots(struct want *want, struct slot_name *names, const struct held_units *held)
{
    uint32_t left = held->slots;
    want->choice = CHOOSE_NAMED;
    want->named = names;
    while ((int64_t)want->named_count < want->count) {
        uint32_t number = (uint32_t)dice_between(1, SLOTS_MAX);
        if (!(left & 1U << number))
            continue;
        left &= ~(1U << number);
        struct bytes label = dice_once_in(3) ? slot_label(&held->semaphore->row, number) : (struct bytes){0};
        names[want->named_count++] = (struct slot_name){label.data ? 0 : number, label};
    }
    if (want_sort_named(want) != PERMIT_OK)
        abort();
}

/* Subtracts what is given back from the state. */
static void choose_given(struct exchange *exchange, struct held_state *state)
{
    for (size_t i = 0; i < state->count && exchange->given_count < ROW_PERMITS_MAX; i++) {
        struct held_units *held = &state->units[i];
        bool last = i + 1 == state->count && !exchange->given_count;
        if (!held->semaphore->row.exists || (!last && dice_once_in(2)))
            continue;
        size_t index = exchange->given_count++;
        struct want *want = &exchange->given[index];
        *want = (struct want){.semaphore = held->semaphore->row.semaphore.name,
                              .count = dice_once_in(3) ? held->count : dice_between(1, held->count)};
        if (held->slots && dice_once_in(2))
            name_slots(want, exchange->given_names[index], held);
        held->count -= want->count;
    }
}

static bool gives_all(const struct exchange *exchange, const struct held_state *rest)
{
    for (size_t i = 0; i < rest->count; i++)
        if (rest->units[i].count > 0)
            return false;
    return exchange->taken_count == 0;
}

/* ---- what it takes ---- */

/* One that it holds or has given back, or another one. */
static struct db_semaphore *any_semaphore(const struct held_state *state)
{
    if (state->count && dice_once_in(2))
        return state->units[dice_between(0, (int64_t)state->count - 1)].semaphore;
    bool named = database.semaphore_count > world.made_count && dice_once_in(4);
    size_t last = (named ? database.semaphore_count : world.made_count) - 1;
    return &database.semaphores[dice_between(0, (int64_t)last)];
}

static bool takes(const struct exchange *exchange, const struct db_semaphore *semaphore)
{
    for (size_t i = 0; i < exchange->taken_count; i++)
        if (bytes_equal(exchange->taken[i].semaphore, semaphore->row.semaphore.name))
            return true;
    return false;
}

static void choose_taken(struct exchange *exchange, struct held_state *rest)
{
    size_t wanted = dice_once_in(3) ? 2 : 1;
    for (int tries = 0; tries < 8 && exchange->taken_count < wanted; tries++) {
        struct db_semaphore *semaphore = any_semaphore(rest);
        const struct held_units *held = units_of(rest, semaphore);
        bool crowded = held ? held->count + ROW_SLOTS_MAX > UNITS_MAX
                            : rest->count + exchange->taken_count >= HELD_PERMITS_MAX - 1;
        if (crowded || takes(exchange, semaphore))
            continue;
        size_t index = exchange->taken_count++;
        struct want *want = &exchange->taken[index];
        *want = (struct want){.semaphore = semaphore->row.semaphore.name, .count = dice_once_in(3) ? 2 : 1};
        want_choose_slots(want, exchange->taken_names[index], &semaphore->row);
    }
}

/* ---- the call ---- */

static struct exchange *exchange_new(struct story *story)
{
    struct exchange *exchange = calloc(1, sizeof *exchange);
    if (!exchange)
        abort();
    enum { SHRINK, GROW, BOTH } kind = (int)dice_between(SHRINK, BOTH);
    struct held_state state = known_state(story);
    exchange->changes = story->exchanges ? story->exchanges->answered : 0;
    if (kind != GROW)
        choose_given(exchange, &state);
    if (kind != SHRINK || !exchange->given_count)
        choose_taken(exchange, &state);
    exchange->gives_all = gives_all(exchange, &state);
    if (wants_sort(exchange->given, exchange->given_count) != PERMIT_OK ||
        wants_sort(exchange->taken, exchange->taken_count) != PERMIT_OK)
        abort();
    if (dice_once_in(12))
        exchange->changes += exchange->changes && dice_once_in(2) ? UINT32_MAX : 1000;
    snprintf(exchange->nonce, sizeof exchange->nonce, "x%llu", (unsigned long long)world.calls + 1);
    return exchange;
}

/* The last one, or a copy of an old one that comes late. */
static struct exchange *any_sent(const struct exchanges *exchanges)
{
    struct exchange *exchange = exchanges->newest;
    int64_t back = dice_once_in(3) ? dice_between(0, exchanges->count - 1) : 0;
    while (back-- > 0)
        exchange = exchange->older;
    return exchange;
}

struct call *exchange_call(int process, struct story *story)
{
    const struct exchanges *exchanges = story->exchanges;
    bool again = exchanges && (dice_once_in(3) || exchanges->answered == CHANGES_MAX ||
                               !exchanges->states[exchanges->answered].known);
    struct exchange *exchange = again ? any_sent(exchanges) : exchange_new(story);
    if (!exchange->given_count && !exchange->taken_count) {
        free(exchange);
        return NULL;
    }
    struct call *call = call_new(process, story, OP_EXCHANGE);
    call->exchange = exchange;
    call->operation.nonce = bytes_of(exchange->nonce);
    call->operation.changes = exchange->changes;
    call->operation.given = exchange->given;
    call->operation.given_count = exchange->given_count;
    memcpy(call->wants, exchange->taken, sizeof call->wants);
    call->operation.wants = call->wants;
    call->operation.want_count = exchange->taken_count;
    return call;
}
