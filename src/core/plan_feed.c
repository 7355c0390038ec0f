/* SPDX-License-Identifier: MIT */
/*
 * The events that a batch writes to the feed. They follow from the rows before and after it: the operations do not know
 * of them. First come the events of requests that this batch has not granted, then those of its grants, in the order of
 * the grants: so no event shows more units in use than there are.
 */
#include <stdlib.h>

#include "core/planner.h"

static bool in_feed(const struct semaphore *semaphore)
{
    return feed_admits(semaphore->feed, FEED_CONFIRMED, true);
}

/*
 * Adds an event of this request, with the permits of semaphores that admit it. No such one: no event. `before`: of
 * FEED_CHANGED; the event has count 0 of a semaphore of which only that one has units.
 */
static void add_event(struct planner *planner, const struct request *request, enum feed_what what,
                      const struct request *before)
{
    bool waits = request->state == REQUEST_WAITING;
    bool sold = !waits && request->confirmed_at != NEVER;
    size_t count = 0, room = request_semaphore_count(request), more = before ? before->permit_count : 0;
    struct feed_permit *permits = arena_must_array(planner->arena, room + more, sizeof *permits);
    for (size_t i = 0; i < room; i++) {
        const struct semaphore_image *image = planner_image(planner, request_semaphore_id(request, i));
        if (!image || !feed_admits(image->semaphore->feed, what, sold))
            continue;
        permits[count] = (struct feed_permit){.semaphore = image->semaphore->name};
        if (waits) {
            permits[count++].count = request->wants[i].count;
            continue;
        }
        permits[count].count = request->permits[i].count;
        permits[count].token = request->permits[i].token;
        permits[count++].slots = request->permits[i].slots;
    }
    for (size_t i = 0; i < more; i++) {
        const struct permit *permit = &before->permits[i];
        const struct semaphore *semaphore = planner_image(planner, permit->semaphore_id)->semaphore;
        if (!request_permit_of(request, permit->semaphore_id) && feed_admits(semaphore->feed, what, sold))
            permits[count++] = (struct feed_permit){.semaphore = semaphore->name, .token = permit->token};
    }
    if (count == 0)
        return;
    planner->feed = planner_list(planner, planner->feed, planner->feed_count, sizeof *planner->feed);
    planner->feed[planner->feed_count++] = (struct feed_event){
        .what = what,
        .end_reason = what != FEED_ENDED ? END_NONE
                      : waits            ? END_NEVER_HELD
                                         : request->end_reason,
        .external_id = request->external_id,
        .owner = request->owner,
        .principal = request->principal,
        .permits = permits,
        .permit_count = count,
        .metadata_of = request->has_metadata ? request->id : 0,
    };
}

/* Adds what has happened to the row of a key. */
static void add_events_of(struct planner *planner, const struct key *key)
{
    const struct request *before = key->before, *after = key->request;
    bool waited = before && before->state == REQUEST_WAITING;
    bool held = before && before->state == REQUEST_ACQUIRED;
    if (waited && (key_is_removed(key) || (after->state == REQUEST_RELEASED && after->permit_count == 0)))
        add_event(planner, before, FEED_ENDED, NULL);
    if (key->row == ROW_AS_READ)
        return;
    if (after->state == REQUEST_WAITING && key->row == ROW_NEW)
        add_event(planner, after, FEED_WAITING, NULL);
    if (!held && !key->granted)
        return;
    if (key->granted)
        add_event(planner, after, FEED_ACQUIRED, NULL);
    if (after->renewals != (held ? before->renewals : 0))
        add_event(planner, after, FEED_RENEWED, NULL);
    if (held && after->state == REQUEST_ACQUIRED && after->changes != before->changes)
        add_event(planner, after, FEED_CHANGED, before);
    bool was_sold = held && before->confirmed_at != NEVER && !(before->errand & ERRAND_CONFIRM);
    if (after->confirmed_at != NEVER && !was_sold && !(after->errand & ERRAND_CONFIRM))
        add_event(planner, after, FEED_CONFIRMED, NULL);
    if (after->state == REQUEST_RELEASED)
        add_event(planner, after, FEED_ENDED, NULL);
}

static int compare_granted(const void *a, const void *b)
{
    return compare_u64(&(*(const struct key *const *)a)->granted, &(*(const struct key *const *)b)->granted);
}

void collect_feed(struct planner *planner, struct changes *changes)
{
    bool any = false;
    for (size_t i = 0; i < planner->image_count; i++)
        any |= in_feed(planner->images[i].semaphore);
    if (!any)
        return;
    const struct key **granted = arena_must_array(planner->arena, planner->key_count, sizeof *granted);
    size_t count = 0;
    for (size_t i = 0; i < planner->key_count; i++) {
        const struct key *key = &planner->keys[i];
        if (key->granted)
            granted[count++] = key;
        else
            add_events_of(planner, key);
    }
    qsort(granted, count, sizeof *granted, compare_granted);
    for (size_t i = 0; i < count; i++)
        add_events_of(planner, granted[i]);
    changes->feed_omitted = planner->view->feed_full && planner->feed_count;
    if (changes->feed_omitted)
        return;
    changes->feed = planner->feed;
    changes->feed_count = planner->feed_count;
}

size_t packet_of_event(const struct semaphore *semaphore, int64_t slots)
{
    return in_feed(semaphore) ? PACKET_FEED + (size_t)slots * PACKET_SLOT : 0;
}

size_t packet_of_end_event(struct planner *planner, const struct request *request)
{
    size_t size = 0;
    for (size_t i = 0; i < request->permit_count; i++) {
        const struct semaphore_image *image = planner_image(planner, request->permits[i].semaphore_id);
        size += image ? packet_of_event(image->semaphore, request->permits[i].slots.count) : 0;
    }
    return size;
}
