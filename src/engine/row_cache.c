/* SPDX-License-Identifier: MIT */
#include "engine/row_cache.h"

#include <stdlib.h>

enum {
    FREE_MAX = 4096, /* free slots of one semaphore */
    REQUEST_SIZE_MAX = 4096,
};

/* ---- semaphores ---- */

void cached_semaphore_free(struct cached_semaphore *cached)
{
    if (!cached)
        return;
    cached_queue_release(&cached->queue);
    free(cached->free_numbers);
    free(cached->text);
    free(cached);
}

/* Copies the string to *at and advances *at. */
static struct bytes move_string(char **at, struct bytes string)
{
    if (!string.data)
        return string;
    struct bytes copy = {*at, string.length};
    if (string.length)
        memcpy(*at, string.data, string.length);
    *at += string.length;
    return copy;
}

static size_t strings_size(const struct semaphore *row)
{
    return row->name.length + row->note.length + row->paused_reason.length;
}

/* Points the strings of the row to copies in `text`, which has room. */
static void move_strings(struct semaphore *row, char *text)
{
    row->name = move_string(&text, row->name);
    row->note = move_string(&text, row->note);
    row->paused_reason = move_string(&text, row->paused_reason);
}

static bool store_row(struct cached_semaphore *cached, const struct semaphore *row)
{
    char *text = malloc(strings_size(row) + 1);
    if (!text)
        return false;
    char *old = cached->text;
    cached->row = *row;
    move_strings(&cached->row, text);
    cached->text = text;
    free(old);
    return true;
}

bool cached_semaphore_load(const struct cached_semaphore *cached, struct arena *arena, struct semaphore *ret_row)
{
    char *text = arena_alloc(arena, strings_size(&cached->row) + 1);
    if (!text)
        return false;
    *ret_row = cached->row;
    move_strings(ret_row, text);
    return true;
}

/* ---- free slots ---- */

/* The free slots of one semaphore while they are updated. */
struct free_list {
    uint32_t *numbers;
    size_t count;
    uint32_t bound;
};

static bool has_labels(const struct view *read, size_t index, const struct plan *plan)
{
    uint64_t semaphore_id = read->semaphores[index].id;
    if (read->free_slots[index].labels || plan->changes.label_count)
        return true;
    for (size_t i = 0; i < plan->changes.request_count; i++) {
        const struct request *request = plan->changes.requests[i].request;
        for (size_t j = 0; j < request->permit_count; j++)
            if (request->permits[j].semaphore_id == semaphore_id && request->permits[j].labels)
                return true;
    }
    return false;
}

/*
 * Merges the list with the changed slots, ascending both: a slot that is taken leaves it, one that becomes free enters it
 * if it is not above the bound. `numbers` has room for all.
 */
static void merge_slots(const struct free_list *before, const struct slot_change *changes, size_t count,
                        uint32_t capacity, struct free_list *after)
{
    size_t old = 0;
    for (size_t i = 0; i <= count; i++) {
        uint32_t next = i < count ? changes[i].number : UINT32_MAX;
        while (old < before->count && before->numbers[old] < next)
            after->numbers[after->count++] = before->numbers[old++];
        if (i == count)
            break;
        old += old < before->count && before->numbers[old] == next;
        if (changes[i].permit_id == 0 && next <= before->bound && next <= capacity)
            after->numbers[after->count++] = next;
    }
    after->bound = before->bound;
    if (after->count > FREE_MAX) {
        after->count = FREE_MAX;
        after->bound = after->numbers[FREE_MAX - 1];
    }
}

/* The slots of the semaphore that the plan changes; they are adjacent. */
static const struct slot_change *changes_of(const struct changes *changes, uint64_t semaphore_id, size_t *ret_count)
{
    size_t first = 0;
    while (first < changes->slot_count && changes->slots[first].semaphore_id != semaphore_id)
        first++;
    size_t end = first;
    while (end < changes->slot_count && changes->slots[end].semaphore_id == semaphore_id)
        end++;
    *ret_count = end - first;
    return changes->slots + first;
}

/* The free slots before the commit: as cached, or as read, whichever is more. False: they are not known. */
static bool free_before(const struct cached_semaphore *cached, const struct free_slots *read, bool goes_on,
                        struct free_list *ret_before)
{
    bool was_read = read->count > 0 || read->complete;
    bool more =
        goes_on && cached->has_slots &&
        (!was_read || cached->free_bound == UINT32_MAX || (!read->complete && cached->free_count >= read->count));
    if (more)
        *ret_before = (struct free_list){cached->free_numbers, cached->free_count, cached->free_bound};
    else if (was_read)
        *ret_before = (struct free_list){read->numbers, read->count,
                                         read->complete ? UINT32_MAX : read->numbers[read->count - 1]};
    return more || was_read;
}

/* False: out of memory. */
static bool store_slots(struct cached_semaphore *cached, const struct view *read, size_t index,
                        const struct semaphore_image *image, const struct plan *plan, bool goes_on)
{
    struct free_list before;
    bool known = free_before(cached, &read->free_slots[index], goes_on, &before) && !image->settings &&
                 !image->slots_to && !image->retire_from && !image->drop_labels && !has_labels(read, index, plan);
    if (!known) {
        cached->has_slots = false;
        return true;
    }
    size_t change_count;
    const struct slot_change *changes = changes_of(&plan->changes, image->semaphore->id, &change_count);
    bool is_cached = before.numbers == cached->free_numbers && cached->free_numbers;
    if (is_cached && change_count == 0)
        return true;
    struct free_list after = {.numbers = malloc((before.count + change_count + 1) * sizeof *after.numbers)};
    if (!after.numbers)
        return false;
    merge_slots(&before, changes, change_count, (uint32_t)image->semaphore->capacity, &after);
    free(cached->free_numbers);
    cached->free_numbers = after.numbers;
    cached->free_count = after.count;
    cached->free_bound = after.bound;
    cached->has_slots = true;
    return true;
}

void cached_semaphore_store(struct cached_semaphore *cached, const struct view *read, size_t index,
                            const struct plan *plan, bool goes_on, uint64_t server_id)
{
    const struct semaphore_image *image = &plan->changes.semaphores[index];
    bool slotted = image->semaphore->kind == KIND_SLOTTED;
    cached->valid =
        store_row(cached, image->semaphore) && (!slotted || store_slots(cached, read, index, image, plan, goes_on));
    cached->has_slots &= cached->valid && slotted;
    cached_queue_store(&cached->queue, read, index, plan, goes_on, server_id);
}

bool cached_semaphore_load_slots(const struct cached_semaphore *cached, int64_t wanted, struct arena *arena,
                                 struct free_slots *ret_slots)
{
    bool all = cached->free_bound == UINT32_MAX;
    if (!cached->has_slots || (!all && (int64_t)cached->free_count < wanted))
        return false;
    size_t count = (size_t)min_i64(wanted, (int64_t)cached->free_count);
    *ret_slots = (struct free_slots){.numbers = arena_array(arena, count, sizeof *ret_slots->numbers),
                                     .count = count,
                                     .complete = (int64_t)count < wanted};
    if (ret_slots->numbers && count)
        memcpy(ret_slots->numbers, cached->free_numbers, count * sizeof *ret_slots->numbers);
    return ret_slots->numbers != NULL;
}

/* ---- requests ---- */

/* The memory for what a request points to: permits, then the numbers of slots, then strings. */
static size_t request_size(const struct request *request)
{
    size_t size = request->permit_count * sizeof *request->permits + request->external_id.length +
                  request->owner.length + request->principal.length + request->nonce.length + request->wanted.length;
    for (size_t i = 0; i < request->permit_count; i++)
        size += request->permits[i].slots.count * sizeof *request->permits[i].slots.numbers;
    return size;
}

/* Copies the request; what it points to goes to `memory`, which is aligned and has room. */
static void request_copy(const struct request *request, void *memory, struct request *ret_copy)
{
    *ret_copy = *request;
    ret_copy->permits = memory;
    char *at = (char *)(ret_copy->permits + request->permit_count);
    for (size_t i = 0; i < request->permit_count; i++) {
        const struct slots *slots = &request->permits[i].slots;
        ret_copy->permits[i] = request->permits[i];
        ret_copy->permits[i].slots.numbers = slots->count ? (uint32_t *)at : NULL;
        if (slots->count)
            memcpy(at, slots->numbers, slots->count * sizeof *slots->numbers);
        at += slots->count * sizeof *slots->numbers;
    }
    ret_copy->external_id = move_string(&at, request->external_id);
    ret_copy->owner = move_string(&at, request->owner);
    ret_copy->principal = move_string(&at, request->principal);
    ret_copy->nonce = move_string(&at, request->nonce);
    ret_copy->wanted = move_string(&at, request->wanted);
    ret_copy->wants = NULL;
    ret_copy->want_count = 0;
    ret_copy->here = ret_copy->waits_here = ret_copy->asks_later = ret_copy->locked_elsewhere = false;
    ret_copy->here_nonce = (struct bytes){0};
}

/* A request that never waited has 0 in memory, and NULL in its row. */
static utc_us as_read(utc_us time)
{
    return time ? time : NEVER;
}

struct cached_request *cached_request_new(const struct request *request, const uint64_t *chains)
{
    size_t rest = request_size(request);
    for (size_t i = 0; i < request->permit_count; i++)
        if (request->permits[i].labels)
            return NULL;
    if (rest > REQUEST_SIZE_MAX)
        return NULL;
    size_t head = sizeof(struct cached_request) + request->permit_count * sizeof *chains;
    struct cached_request *cached = malloc(head + rest);
    if (!cached)
        return NULL;
    if (request->permit_count)
        memcpy(cached->chains, chains, request->permit_count * sizeof *chains);
    cached->size = head + rest;
    request_copy(request, (char *)cached + head, &cached->request);
    cached->request.place = as_read(request->place);
    cached->request.waiting_since = as_read(request->waiting_since);
    cached->request.waiting_until = as_read(request->waiting_until);
    return cached;
}

bool cached_request_load(const struct cached_request *cached, struct arena *arena, struct request *ret_request)
{
    void *memory = arena_alloc(arena, request_size(&cached->request) + 1);
    if (!memory)
        return false;
    request_copy(&cached->request, memory, ret_request);
    return !ret_request->wanted.data || wants_decode(ret_request->wanted, arena, &ret_request->ttl, &ret_request->wants,
                                                     &ret_request->want_count) == PERMIT_OK;
}
