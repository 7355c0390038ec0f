/* SPDX-License-Identifier: MIT */
#include "engine/row_cache.h"

#include <stdlib.h>

enum {
    WORD = 64, /* bits of a word of free slots */
    REQUEST_SIZE_MAX = 4096,
};

/* ---- semaphores ---- */

void cached_semaphore_free(struct cached_semaphore *cached)
{
    if (!cached)
        return;
    cached_queue_release(&cached->queue);
    free(cached->free_words);
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

/* Sets the bit of a slot, or clears it. */
static void set_free(struct cached_semaphore *cached, uint32_t number, bool is_free)
{
    uint64_t *word = &cached->free_words[number / WORD];
    uint64_t bit = UINT64_C(1) << number % WORD;
    cached->free_count += is_free && !(*word & bit);
    cached->free_count -= !is_free && (*word & bit);
    *word = is_free ? *word | bit : *word & ~bit;
}

/* Replaces the cached free slots by those that were read. False: out of memory. */
static bool take_read(struct cached_semaphore *cached, const struct free_slots *read, int64_t capacity)
{
    uint64_t *words = calloc((size_t)capacity / WORD + 1, sizeof *words);
    if (!words)
        return false;
    free(cached->free_words);
    cached->free_words = words;
    cached->free_count = 0;
    cached->free_bound = read->complete ? UINT32_MAX : read->numbers[read->count - 1];
    for (size_t i = 0; i < read->count; i++)
        if (read->numbers[i] <= capacity)
            set_free(cached, read->numbers[i], true);
    return true;
}

/* Stores the free slots after the commit: of those cached before and those read, whichever are more. False: out of memory. */
static bool store_slots(struct cached_semaphore *cached, const struct view *read, size_t index,
                        const struct semaphore_image *image, const struct plan *plan, bool goes_on)
{
    const struct free_slots *slots = &read->free_slots[index];
    const int64_t capacity = image->semaphore->capacity;
    bool settings = image->settings || image->slots_to || image->retire_from || image->drop_labels;
    bool was_read = slots->count > 0 || slots->complete;
    bool more =
        goes_on && cached->has_slots &&
        (!was_read || cached->free_bound == UINT32_MAX || (!slots->complete && cached->free_count >= slots->count));
    cached->has_slots = (more || was_read) && !settings && !has_labels(read, index, plan);
    if (!cached->has_slots)
        return true;
    if (!more && !take_read(cached, slots, capacity))
        return false;
    size_t count;
    const struct slot_change *changes = changes_of(&plan->changes, image->semaphore->id, &count);
    for (size_t i = 0; i < count; i++)
        if (changes[i].number <= capacity)
            set_free(cached, changes[i].number, changes[i].permit_id == 0 && changes[i].number <= cached->free_bound);
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
    uint32_t *numbers = arena_array(arena, count, sizeof *numbers);
    if (!numbers)
        return false;
    size_t found = 0;
    for (size_t at = 0; found < count; at++)
        for (uint64_t word = cached->free_words[at]; word && found < count; word &= word - 1)
            numbers[found++] = (uint32_t)(at * WORD) + (uint32_t)__builtin_ctzll(word);
    *ret_slots = (struct free_slots){.numbers = numbers, .count = count, .complete = (int64_t)count < wanted};
    return true;
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
