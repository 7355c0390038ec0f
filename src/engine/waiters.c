/* SPDX-License-Identifier: MIT */
#include "engine/waiters.h"

#include <stdlib.h>

enum {
    DUE_AGAIN_US = 100000,             /* holders that are due and were not ended are looked at again after this */
    KEPT_MAX = 10000,                  /* places without askers; beyond, they are given up at once */
    NAMED_KEPT_MAX = 16 * 1024 * 1024, /* bytes of slots that waiters name; beyond, who names some is not kept */
};

void waiters_init(struct waiters *waiters)
{
    *waiters = (struct waiters){0};
    list_init(&waiters->all);
    list_init(&waiters->gates);
}

void waiters_release(struct waiters *waiters)
{
    list_for_each (node, next, &waiters->all)
        waiters_remove(waiters, LIST_ENTRY(node, struct waiter, node));
    map_release(&waiters->by_key);
    heap_release(&waiters->turns);
    heap_release(&waiters->dues);
}

struct waiter *waiters_find(const struct waiters *waiters, struct bytes external_id)
{
    struct map_node *node = waiters->by_key.count ? map_find(&waiters->by_key, external_id) : NULL;
    return node ? MAP_ENTRY(node, struct waiter, by_key) : NULL;
}

/* ---- a waiter and its stands ---- */

static size_t strings_size(const struct operation *operation)
{
    size_t size = operation->external_id.length + operation->owner.length + operation->principal.length;
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct want *want = &operation->wants[i];
        size += want->semaphore.length;
        for (size_t j = 0; j < want->named_count; j++)
            size += want->named[j].label.length;
    }
    return size;
}

static size_t named_count(const struct operation *operation)
{
    size_t count = 0;
    for (size_t i = 0; i < operation->want_count; i++)
        count += operation->wants[i].named_count;
    return count;
}

static struct bytes keep_string(char **at, struct bytes string)
{
    struct bytes copy = {*at, string.length};
    if (string.length)
        memcpy(*at, string.data, string.length);
    *at += string.length;
    return copy;
}

/* With copies of the names, in the rooms for them that follow each other at *named and *at. */
static struct want keep_want(struct slot_name **named, char **at, const struct want *asked)
{
    struct want want = *asked;
    want.semaphore = keep_string(at, asked->semaphore);
    want.named = *named;
    for (size_t i = 0; i < asked->named_count; i++) {
        want.named[i] = asked->named[i];
        if (asked->named[i].label.data)
            want.named[i].label = keep_string(at, asked->named[i].label);
    }
    *named += asked->named_count;
    return want;
}

static int compare_stands(const void *a, const void *b)
{
    return compare_u64(&((const struct stand *)a)->gate->id, &((const struct stand *)b)->gate->id);
}

/* With copies of all that is asked; it stands nowhere yet. NULL: no memory. */
static struct waiter *waiter_new(struct gates *gates, const struct op *op)
{
    const struct operation *asked = op->operation;
    size_t count = asked->want_count;
    size_t fixed = sizeof(struct waiter) + count * (sizeof(struct stand) + sizeof(struct want)) +
                   named_count(asked) * sizeof(struct slot_name);
    struct waiter *waiter = malloc(fixed + strings_size(asked));
    if (!waiter)
        return NULL;
    *waiter =
        (struct waiter){.operation = *asked, .stand_count = count, .certain = wants_are_certain(asked->wants, count)};
    waiter->named_size = wants_named_size(asked->wants, count);
    struct operation *operation = &waiter->operation;
    char *at = (char *)waiter + fixed;
    operation->wants = (struct want *)(waiter->stands + count);
    struct slot_name *named = (struct slot_name *)(operation->wants + count);
    operation->external_id = keep_string(&at, asked->external_id);
    operation->owner = keep_string(&at, asked->owner);
    operation->principal = keep_string(&at, asked->principal);
    operation->nonce = (struct bytes){0}; /* until waiter_take_nonce */
    for (size_t i = 0; i < count; i++) {
        operation->wants[i] = keep_want(&named, &at, &asked->wants[i]);
        waiter->stands[i] = (struct stand){
            .waiter = waiter, .gate = gates_find(gates, asked->wants[i].semaphore_id), .count = asked->wants[i].count};
        list_init(&waiter->stands[i].node);
        if (waiter->stands[i].gate)
            continue;
        free(waiter);
        return NULL;
    }
    qsort(waiter->stands, count, sizeof *waiter->stands, compare_stands);
    list_init(&waiter->node);
    list_init(&waiter->askers);
    return waiter;
}

/* In order of arrival; nearly always the last. */
static void stand_at_gate(struct waiters *waiters, struct stand *stand)
{
    struct gate *gate = stand->gate;
    struct list *at = &gate->waiters;
    while (at->prev != &gate->waiters &&
           LIST_ENTRY(at->prev, struct stand, node)->waiter->op.arrival > stand->waiter->op.arrival)
        at = at->prev;
    list_insert_before(at, &stand->node);
    gate->certain_count += stand->waiter->certain;
    if (!list_empty(&gate->waited_for))
        return;
    list_append(&waiters->gates, &gate->waited_for);
    waiters->gate_count++;
    (void)!heap_add(&waiters->dues, &gate->due,
                    min_i64(gate->due_at, gate->look_at)); /* without memory the sweeper's word has to do */
}

static void leave_gate(struct waiters *waiters, struct stand *stand)
{
    struct gate *gate = stand->gate;
    list_remove(&stand->node);
    gate->certain_count -= stand->waiter->certain;
    if (!list_empty(&gate->waiters))
        return;
    list_remove(&gate->waited_for);
    waiters->gate_count--;
    heap_remove(&waiters->dues, &gate->due);
}

/* Somebody asks, or nobody any more: the counts know. A place that is left may have kept others from what is free. */
static void count_asked(struct waiters *waiters, struct waiter *waiter, bool asked)
{
    waiters->count += asked ? 1 : (size_t)-1;
    waiters->kept -= asked ? 1 : (size_t)-1;
    for (size_t i = 0; i < waiter->stand_count; i++) {
        struct gate *gate = waiter->stands[i].gate;
        gate->waiter_count += asked ? 1 : (size_t)-1;
        if (!asked && gate->room > 0)
            gate->doubtful = true;
    }
}

void waiter_note_refused(struct waiter *waiter)
{
    bool behind = waiter->operation.place == PLACE_BEHIND;
    for (size_t i = 0; i < waiter->stand_count; i++) {
        struct gate *gate = waiter->stands[i].gate;
        waiter->stands[i].refused_at = behind ? gate->taken_version : gate->version;
    }
}

struct waiter *waiters_add(struct waiters *waiters, struct gates *gates, struct op *op, mono_us now)
{
    struct waiter *waiter = waiter_new(gates, op);
    if (!waiter)
        return NULL;
    waiter->op.operation = &waiter->operation;
    waiter->op.arrival = op->arrival;
    waiter->op.stands = true;
    waiter->since = op->arrived_at;
    list_init(&waiter->op.node);
    if (!map_insert(&waiters->by_key, &waiter->by_key, waiter->operation.external_id))
        goto err_made;
    if (!heap_add(&waiters->turns, &waiter->turn, now))
        goto err_inserted;
    struct list *at = &waiters->all;
    while (at->prev != &waiters->all && LIST_ENTRY(at->prev, struct waiter, node)->op.arrival > op->arrival)
        at = at->prev;
    list_insert_before(at, &waiter->node);
    waiter_note_refused(waiter);
    for (size_t i = 0; i < waiter->stand_count; i++)
        stand_at_gate(waiters, &waiter->stands[i]);
    waiters->kept++;
    waiters->named_size += waiter->named_size;
    waiters_ask(waiters, waiter, op);
    return waiter;

err_inserted:
    map_remove(&waiters->by_key, &waiter->by_key);
err_made:
    free(waiter);
    return NULL;
}

void waiters_remove(struct waiters *waiters, struct waiter *waiter)
{
    for (size_t i = 0; i < waiter->stand_count; i++)
        leave_gate(waiters, &waiter->stands[i]);
    heap_remove(&waiters->turns, &waiter->turn);
    map_remove(&waiters->by_key, &waiter->by_key);
    list_remove(&waiter->node);
    waiters->kept--;
    waiters->named_size -= waiter->named_size;
    free(waiter);
}

/* ---- askers ---- */

void waiters_ask(struct waiters *waiters, struct waiter *waiter, struct op *op)
{
    if (!waiter_is_asked(waiter))
        count_asked(waiters, waiter, true);
    list_append(&waiter->askers, &op->node);
    op->asks = waiter;
    waiter->op.deadline = op->deadline > waiter->op.deadline ? op->deadline : waiter->op.deadline;
    if (waiter->called && stage_is_sent(&waiter->op.stage))
        (void)!stage_send(&op->stage); /* it joins now: nobody has answered it */
    waiters_settle(waiters, waiter, 0);
}

void waiter_take_nonce(struct waiter *waiter)
{
    if (!waiter_is_asked(waiter))
        return;
    struct bytes nonce = LIST_ENTRY(waiter->askers.next, struct op, node)->operation->nonce;
    if (nonce.length)
        memcpy(waiter->nonce, nonce.data, nonce.length);
    waiter->operation.nonce = (struct bytes){waiter->nonce, nonce.length};
}

mono_us waiter_turn(const struct waiter *waiter)
{
    mono_us first = NEVER;
    list_for_each (node, next, &waiter->askers)
        first = min_i64(first, LIST_ENTRY(node, struct op, node)->wait_until);
    return first;
}

/* Whether its place is kept though nobody asks for it. */
static bool may_keep(const struct waiters *waiters, const struct waiter *waiter)
{
    return waiters->kept <= KEPT_MAX && (!waiter->named_size || waiters->named_size <= NAMED_KEPT_MAX);
}

void waiters_settle(struct waiters *waiters, struct waiter *waiter, mono_us keep_until)
{
    if (waiter_is_asked(waiter))
        heap_move(&waiters->turns, &waiter->turn, waiter_turn(waiter));
    else if (waiter->called || (keep_until && may_keep(waiters, waiter)))
        heap_move(&waiters->turns, &waiter->turn, keep_until);
    else
        waiters_remove(waiters, waiter);
}

void waiters_leave(struct waiters *waiters, struct op *op, mono_us keep_until)
{
    struct waiter *waiter = op->asks;
    list_remove(&op->node);
    op->asks = NULL;
    if (!waiter_is_asked(waiter))
        count_asked(waiters, waiter, false);
    waiters_settle(waiters, waiter, keep_until);
}

void waiters_dismiss(struct waiters *waiters, struct waiter *waiter, mono_us until, struct list *ret_answered)
{
    bool asked = waiter_is_asked(waiter);
    list_for_each (node, next, &waiter->askers) {
        struct op *op = LIST_ENTRY(node, struct op, node);
        if (op->wait_until > until)
            continue;
        list_remove(node);
        list_append(ret_answered, node);
        op->asks = NULL;
    }
    if (asked && !waiter_is_asked(waiter))
        count_asked(waiters, waiter, false);
}

/* ---- what is free ---- */

static void gate_set_due(struct waiters *waiters, struct gate *gate)
{
    if (gate->due.place)
        heap_move(&waiters->dues, &gate->due, min_i64(gate->due_at, gate->look_at));
}

void waiters_look_at(struct waiters *waiters, struct gate *gate, mono_us at)
{
    gate->look_at = min_i64(gate->look_at, at);
    gate_set_due(waiters, gate);
}

void waiters_looked(struct waiters *waiters, struct gate *gate)
{
    gate->due_at = gate->look_at = NEVER;
    gate_set_due(waiters, gate);
    waiters_doubt(gate);
}

/* It can never be served any more as it is asked, which it is to be told: its turn comes at once. */
static void hurry_hopeless(struct waiters *waiters, struct gate *gate, bool retired, mono_us now)
{
    list_for_each (node, next, &gate->waiters) {
        struct stand *stand = LIST_ENTRY(node, struct stand, node);
        bool hopeless = retired || (gate->capacity > 0 && stand->count > gate->capacity);
        if (hopeless && waiter_is_asked(stand->waiter))
            heap_move(&waiters->turns, &stand->waiter->turn, now);
    }
}

/* Who waits for it holds nobody up any more at other semaphores: there may be somebody who fits now. */
static void let_others_pass(struct waiters *waiters, struct gate *gate, mono_us now)
{
    list_for_each (node, next, &gate->waiters) {
        struct waiter *waiter = LIST_ENTRY(node, struct stand, node)->waiter;
        for (size_t i = 0; i < waiter->stand_count; i++)
            if (waiter->stands[i].gate != gate)
                waiters_look_at(waiters, waiter->stands[i].gate, now);
    }
}

void waiters_learn(struct waiters *waiters, struct gate *gate, const struct semaphore *row, mono_us due_at, mono_us now)
{
    bool retired = row->retired_at != NEVER;
    bool changed = row->capacity != gate->capacity || retired; /* also from 0, which was something to wait for */
    gate->version = row->version;
    gate->capacity = row->capacity;
    gate->room = row->paused_reason.data ? 0 : row->capacity - row->in_use;
    gate->fifo = row->queue == QUEUE_FIFO;
    bool was_closed = gate->closed;
    gate->closed = row->paused_reason.data || row->capacity == 0;
    gate->due_at = due_at <= now ? now + DUE_AGAIN_US : due_at;
    if (list_empty(&gate->waiters))
        return;
    gate_set_due(waiters, gate);
    if (changed)
        hurry_hopeless(waiters, gate, retired, now);
    if (gate->closed && !was_closed)
        let_others_pass(waiters, gate, now);
}

void waiters_doubt(struct gate *gate)
{
    gate->doubtful = true;
}

bool waiter_is_aged(const struct waiter *waiter, mono_us aged_since)
{
    return waiter->since <= aged_since;
}

/*
 * "A waiter that is refused because a semaphore is paused or closed holds nobody up", nor does one that wants certain
 * slots.
 */
bool waiter_keeps_others(const struct waiter *waiter, const struct gate *gate, mono_us aged_since)
{
    if (waiter->certain)
        return false;
    for (size_t i = 0; i < waiter->stand_count; i++)
        if (waiter->stands[i].gate->closed)
            return false;
    return gate->fifo || waiter_is_aged(waiter, aged_since);
}

static const struct want *want_of(const struct waiter *waiter, const struct gate *gate)
{
    const struct want *want = waiter->operation.wants;
    while (want->semaphore_id != gate->id)
        want++;
    return want;
}

bool waiter_can_use(const struct waiter *waiter, const struct gate *gate, const struct permit *freed)
{
    const struct want *want = want_of(waiter, gate);
    if (want->choice == CHOOSE_LOWEST)
        return true;
    for (uint32_t i = 0; i < freed->slots.count; i++)
        if ((gate->version && freed->slots.numbers[i] > gate->capacity) ||
            want_names_slot(want, freed->slots.numbers[i], freed->labels ? freed->labels[i] : (struct bytes){0}))
            return true;
    return false;
}

static bool may_fit(const struct waiter *waiter)
{
    for (size_t i = 0; i < waiter->stand_count; i++) {
        const struct gate *gate = waiter->stands[i].gate;
        if (!gate->doubtful && waiter->stands[i].count > gate->room)
            return false;
    }
    return true;
}

static bool has_news(const struct waiter *waiter)
{
    for (size_t i = 0; i < waiter->stand_count; i++)
        if (waiter->stands[i].gate->doubtful || waiter->stands[i].gate->version != waiter->stands[i].refused_at)
            return true;
    return false;
}

struct waiter *waiters_next(const struct gate *gate, mono_us aged_since)
{
    if (gate->room <= 0 && !gate->doubtful)
        return NULL;
    list_for_each (node, next, &gate->waiters) {
        struct waiter *waiter = LIST_ENTRY(node, struct stand, node)->waiter;
        if (!waiter_is_asked(waiter) || waiter->certain)
            continue;
        if (waiter->called)
            return NULL; /* it goes first, and brings the others along */
        if (may_fit(waiter) && has_news(waiter))
            return waiter;
        if (waiter_keeps_others(waiter, gate, aged_since))
            return NULL;
    }
    return NULL;
}
