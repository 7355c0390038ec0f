/* SPDX-License-Identifier: MIT */
#include "engine/gates.h"

#include <stdlib.h>

void gates_init(struct gates *gates, size_t max)
{
    *gates = (struct gates){.max = max};
    list_init(&gates->recent);
}

void holders_unref(struct holders *holders)
{
    if (holders && --holders->references == 0)
        free(holders);
}

static void gate_free(struct gates *gates, struct gate *gate)
{
    gates_forget_name(gates, gate);
    map_remove(&gates->by_id, &gate->by_id);
    list_remove(&gate->recent);
    holders_unref(gate->holders);
    free(gate);
}

void gates_release(struct gates *gates)
{
    list_for_each (node, next, &gates->recent)
        gate_free(gates, LIST_ENTRY(node, struct gate, recent));
    map_release(&gates->by_id);
    map_release(&gates->by_name);
}

static void gate_used(struct gates *gates, struct gate *gate)
{
    list_remove(&gate->recent);
    list_append(&gates->recent, &gate->recent);
}

struct gate *gates_find_name(struct gates *gates, struct bytes name)
{
    struct map_node *node = map_find(&gates->by_name, name);
    if (!node)
        return NULL;
    struct gate *gate = MAP_ENTRY(node, struct gate, by_name);
    gate_used(gates, gate);
    return gate;
}

struct gate *gates_find(struct gates *gates, uint64_t id)
{
    struct map_node *node = map_find(&gates->by_id, (struct bytes){(const char *)&id, sizeof id});
    return node ? MAP_ENTRY(node, struct gate, by_id) : NULL;
}

/* Forgets the least recently used gates that nobody uses; looks at a bounded number of them. */
static void gates_trim(struct gates *gates)
{
    enum { LOOKS = 8 };
    int looks = 0;
    list_for_each (node, next, &gates->recent) {
        if (gates->by_id.count < gates->max || looks++ == LOOKS)
            break;
        struct gate *gate = LIST_ENTRY(node, struct gate, recent);
        if (gate->waiting == 0 && !gate->batch && list_empty(&gate->waiters))
            gate_free(gates, gate);
        else
            gate_used(gates, gate);
    }
}

struct gate *gates_get(struct gates *gates, uint64_t id)
{
    struct gate *gate = gates_find(gates, id);
    if (gate) {
        gate_used(gates, gate);
        return gate;
    }
    gates_trim(gates);
    gate = calloc(1, sizeof *gate);
    if (!gate)
        return NULL;
    gate->id = id;
    gate->floor = 1;
    gate->floor_stale = true;
    gate->due_at = gate->look_at = NEVER;
    list_init(&gate->waiters);
    list_init(&gate->waited_for);
    if (!map_insert(&gates->by_id, &gate->by_id, (struct bytes){(const char *)&gate->id, sizeof gate->id})) {
        free(gate);
        return NULL;
    }
    list_append(&gates->recent, &gate->recent);
    return gate;
}

void gates_forget_name(struct gates *gates, struct gate *gate)
{
    if (!gate->name)
        return;
    map_remove(&gates->by_name, &gate->by_name);
    free(gate->name);
    gate->name = NULL;
}

static void gate_set_name(struct gates *gates, struct gate *gate, struct bytes name)
{
    if (gate->name && bytes_equal(gate->by_name.key, name))
        return;
    gates_forget_name(gates, gate);
    char *copy = strndup(name.data, name.length);
    if (copy && map_insert(&gates->by_name, &gate->by_name, (struct bytes){copy, name.length}))
        gate->name = copy;
    else
        free(copy);
}

void gates_learn(struct gates *gates, uint64_t id, struct bytes name, enum semaphore_kind kind, uint64_t floor)
{
    struct gate *known = gates_find_name(gates, name);
    if (known && known->id != id)
        gates_forget_name(gates, known);
    struct gate *gate = gates_get(gates, id);
    if (!gate)
        return;
    gate->kind = kind;
    gate->floor = floor > gate->floor ? floor : gate->floor;
    gate_set_name(gates, gate, name);
}
