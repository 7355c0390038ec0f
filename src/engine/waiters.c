/* SPDX-License-Identifier: MIT */
#include "engine/waiters.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/state.h"

/* Number of requests that wait here and are counted under one name (waiter_counted_owner). */
struct owner_waiters {
    struct map_node by_name;
    size_t count;
    char name[];
};

void waiters_init(struct waiters *waiters)
{
    *waiters = (struct waiters){0};
    list_init(&waiters->all);
    list_init(&waiters->called);
    list_init(&waiters->entries);
}

void waiters_release(struct waiters *waiters)
{
    list_for_each (node, next, &waiters->all)
        waiters_remove(waiters, LIST_ENTRY(node, struct waiter, node));
    map_release(&waiters->by_key);
    map_release(&waiters->by_id);
    map_release(&waiters->owners);
    heap_release(&waiters->wake_ats);
}

struct waiter *waiters_find(const struct waiters *waiters, struct bytes external_id)
{
    struct map_node *node = waiters->by_key.count ? map_find(&waiters->by_key, external_id) : NULL;
    return node ? MAP_ENTRY(node, struct waiter, by_key) : NULL;
}

static struct bytes id_bytes(const uint64_t *id)
{
    return (struct bytes){(const char *)id, sizeof *id};
}

struct waiter *waiters_find_id(const struct waiters *waiters, uint64_t request_id)
{
    struct map_node *node = waiters->by_id.count ? map_find(&waiters->by_id, id_bytes(&request_id)) : NULL;
    return node ? MAP_ENTRY(node, struct waiter, by_id) : NULL;
}

static size_t strings_size(const struct operation *operation)
{
    size_t size = operation->external_id.length + operation->owner.length + operation->principal.length +
                  operation->metadata.length;
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct want *want = &operation->wants[i];
        size += want->semaphore.length + want->best.length;
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

/* Copies a want; its slots go to *named and its strings to *at, which both advance. */
static struct want copy_want(struct slot_name **named, char **at, const struct want *asked)
{
    struct want want = *asked;
    want.semaphore = bytes_copy_to(at, asked->semaphore);
    want.named = *named;
    for (size_t i = 0; i < asked->named_count; i++) {
        want.named[i] = asked->named[i];
        if (asked->named[i].label.data)
            want.named[i].label = bytes_copy_to(at, asked->named[i].label);
    }
    *named += asked->named_count;
    if (asked->best.data)
        want.best = bytes_copy_to(at, asked->best);
    return want;
}

static int compare_entries(const void *a, const void *b)
{
    return compare_u64(&((const struct wait_place *)a)->entry->id, &((const struct wait_place *)b)->entry->id);
}

/*
 * Creates a waiter with copies of the operation of the op; it is in no list yet. NULL: out of memory, or unknown
 * semaphore.
 */
static struct waiter *waiter_new(struct semaphore_cache *cache, const struct op *op)
{
    const struct operation *asked = op->operation;
    size_t count = asked->want_count;
    size_t fixed = sizeof(struct waiter) + count * (sizeof(struct wait_place) + sizeof(struct want)) +
                   named_count(asked) * sizeof(struct slot_name);
    struct waiter *waiter = malloc(fixed + strings_size(asked));
    if (!waiter)
        return NULL;
    *waiter = (struct waiter){.operation = *asked, .place_count = count};
    struct operation *operation = &waiter->operation;
    char *at = (char *)waiter + fixed;
    operation->wants = (struct want *)(waiter->places + count);
    struct slot_name *named = (struct slot_name *)(operation->wants + count);
    operation->external_id = bytes_copy_to(&at, asked->external_id);
    operation->owner = bytes_copy_to(&at, asked->owner);
    operation->principal = bytes_copy_to(&at, asked->principal);
    if (asked->metadata.data)
        operation->metadata = bytes_copy_to(&at, asked->metadata);
    operation->nonce = (struct bytes){0}; /* until waitlist_prepare */
    if (asked->scope)                     /* it may end before the waiter does, and its clients may differ in theirs */
        operation->scope = &scope_of_nothing;
    for (size_t i = 0; i < count; i++) {
        operation->wants[i] = copy_want(&named, &at, &asked->wants[i]);
        waiter->places[i] = (struct wait_place){.waiter = waiter,
                                                .entry = semaphore_cache_find(cache, asked->wants[i].semaphore_id),
                                                .count = asked->wants[i].count};
        list_init(&waiter->places[i].node);
        if (waiter->places[i].entry)
            continue;
        free(waiter);
        return NULL;
    }
    qsort(waiter->places, count, sizeof *waiter->places, compare_entries);
    list_init(&waiter->node);
    list_init(&waiter->call);
    list_init(&waiter->clients);
    list_init(&waiter->op.node);
    waiter->op.operation = operation;
    operation->kind = OP_LOOK;
    operation->may_have_place = true;
    waiter->op.arrival = op->arrival;
    return waiter;
}

/* Returns true if `waiter` stands behind `other` in the queue. */
static bool stands_behind(const struct waiter *waiter, const struct waiter *other)
{
    return place_compare(waiter->place, waiter->request_id, other->place, other->request_id) > 0;
}

/* Adds the place to the list of its semaphore in the order of the queue, nearly always at the end. */
static void join_entry(struct waiters *waiters, struct wait_place *place)
{
    struct semaphore_entry *entry = place->entry;
    struct list *at = &entry->waiters;
    while (at->prev != &entry->waiters &&
           stands_behind(LIST_ENTRY(at->prev, struct wait_place, node)->waiter, place->waiter))
        at = at->prev;
    list_insert_before(at, &place->node);
    if (!list_empty(&entry->waited_for))
        return;
    list_append(&waiters->entries, &entry->waited_for);
    waiters->entry_count++;
}

static void leave_entry(struct waiters *waiters, struct wait_place *place)
{
    struct semaphore_entry *entry = place->entry;
    if (entry->rotation == &place->node)
        entry->rotation = place->node.next;
    list_remove(&place->node);
    if (!list_empty(&entry->waiters))
        return;
    list_remove(&entry->waited_for);
    waiters->entry_count--;
}

struct bytes waiter_counted_owner(const struct operation *operation)
{
    return operation->owner.length ? operation->owner : operation->principal;
}

static struct owner_waiters *owner_find(const struct waiters *waiters, struct bytes name)
{
    struct map_node *node = name.length && waiters->owners.count ? map_find(&waiters->owners, name) : NULL;
    return node ? MAP_ENTRY(node, struct owner_waiters, by_name) : NULL;
}

size_t waiters_of_owner(const struct waiters *waiters, struct bytes name)
{
    const struct owner_waiters *owner = owner_find(waiters, name);
    return owner ? owner->count : 0;
}

/* Out of memory: the waiter is not counted. */
static void count_owner(struct waiters *waiters, struct bytes name)
{
    struct owner_waiters *owner = owner_find(waiters, name);
    if (!owner && name.length) {
        owner = malloc(sizeof *owner + name.length);
        if (!owner)
            return;
        *owner = (struct owner_waiters){0};
        memcpy(owner->name, name.data, name.length);
        if (!map_insert(&waiters->owners, &owner->by_name, (struct bytes){owner->name, name.length})) {
            free(owner);
            return;
        }
    }
    if (owner)
        owner->count++;
}

static void uncount_owner(struct waiters *waiters, struct bytes name)
{
    struct owner_waiters *owner = owner_find(waiters, name);
    if (!owner || --owner->count > 0)
        return;
    map_remove(&waiters->owners, &owner->by_name);
    free(owner);
}

struct waiter *waiters_add(struct engine *engine, const struct op *op, const struct request *request)
{
    struct waiters *waiters = &engine->queue.waiters;
    struct waiter *waiter = waiter_new(&engine->queue.semaphores, op);
    if (!waiter)
        return NULL;
    waiter->engine = engine;
    waiter->request_id = request->id;
    waiter->place = request->place;
    waiter->since = request->waiting_since;
    waiter->parked_at = clock_mono();
    if (!map_insert(&waiters->by_key, &waiter->by_key, waiter->operation.external_id))
        goto err_made;
    if (!map_insert(&waiters->by_id, &waiter->by_id, id_bytes(&waiter->request_id)))
        goto err_by_key;
    if (!heap_add(&waiters->wake_ats, &waiter->wake_at, NEVER))
        goto err_by_id;
    list_append(&waiters->all, &waiter->node);
    for (size_t i = 0; i < waiter->place_count; i++)
        join_entry(waiters, &waiter->places[i]);
    count_owner(waiters, waiter_counted_owner(&waiter->operation));
    return waiter;

err_by_id:
    map_remove(&waiters->by_id, &waiter->by_id);
err_by_key:
    map_remove(&waiters->by_key, &waiter->by_key);
err_made:
    free(waiter);
    return NULL;
}

struct semaphore_entry *waiter_first_semaphore(const struct waiter *waiter)
{
    return waiter->places[0].entry;
}

void waiters_update_called(struct waiters *waiters, struct semaphore_entry *entry)
{
    if (list_empty(&entry->calls) || entry->woken >= WOKEN_MAX)
        list_remove(&entry->has_calls);
    else if (list_empty(&entry->has_calls))
        list_append(&waiters->called, &entry->has_calls);
}

void waiters_remove(struct waiters *waiters, struct waiter *waiter)
{
    assert(!waiter_has_clients(waiter) && !waiter_is_woken(waiter));
    list_remove(&waiter->call);
    waiters_update_called(waiters, waiter_first_semaphore(waiter));
    for (size_t i = 0; i < waiter->place_count; i++)
        leave_entry(waiters, &waiter->places[i]);
    uncount_owner(waiters, waiter_counted_owner(&waiter->operation));
    heap_remove(&waiters->wake_ats, &waiter->wake_at);
    map_remove(&waiters->by_key, &waiter->by_key);
    map_remove(&waiters->by_id, &waiter->by_id);
    list_remove(&waiter->node);
    free(waiter);
}

void waiters_follow_row(struct waiters *waiters, struct waiter *waiter, const struct request *request)
{
    if (request->id != waiter->request_id) {
        map_remove(&waiters->by_id, &waiter->by_id);
        waiter->request_id = request->id;
        (void)!map_insert(&waiters->by_id, &waiter->by_id,
                          id_bytes(&waiter->request_id)); /* it has just lost an entry */
    }
    waiter->place = request->place;
    waiter->operation.priority = request->priority; /* its place is that of its entry */
    waiter->since = request->waiting_since;
}
