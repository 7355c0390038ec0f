/* SPDX-License-Identifier: MIT */
#include "engine/rows.h"

#include <assert.h>
#include <stdlib.h>

#include "engine/semaphore_cache.h"

enum {
    WORD = 64, /* bits of a word of free slots */
    REQUEST_SIZE_MAX = 4096,
    QUEUE_MAX = 256,
};

/* ---- requests ---- */

/* The memory for what a request points to: permits, labels of slots, then the numbers of slots, then strings. */
static size_t request_size(const struct request *request)
{
    size_t size = request->permit_count * sizeof *request->permits + request->external_id.length +
                  request->owner.length + request->principal.length + request->nonce.length +
                  request->change_nonce.length + request->wanted.length;
    for (size_t i = 0; i < request->permit_count; i++) {
        const struct permit *permit = &request->permits[i];
        size += permit->slots.count * sizeof *permit->slots.numbers;
        for (uint32_t j = 0; permit->labels && j < permit->slots.count; j++)
            size += sizeof *permit->labels + permit->labels[j].length;
    }
    return size;
}

static bool request_is_cacheable(const struct request *request)
{
    return request_size(request) <= REQUEST_SIZE_MAX;
}

/* The labels of its permits go to `at`, which is aligned; returns the end. Their texts are copied by copy_label_texts. */
static char *copy_labels(struct request *copy, char *at)
{
    for (size_t i = 0; i < copy->permit_count; i++) {
        struct permit *permit = &copy->permits[i];
        if (!permit->labels)
            continue;
        permit->labels = memcpy(at, permit->labels, permit->slots.count * sizeof *permit->labels);
        at += permit->slots.count * sizeof *permit->labels;
    }
    return at;
}

static void copy_label_texts(struct request *copy, char **at)
{
    for (size_t i = 0; i < copy->permit_count; i++)
        for (uint32_t j = 0; copy->permits[i].labels && j < copy->permits[i].slots.count; j++)
            copy->permits[i].labels[j] = bytes_copy_to(at, copy->permits[i].labels[j]);
}

/* A request that never waited has 0 in memory, and NULL in its row. */
static utc_us as_read(utc_us time)
{
    return time ? time : NEVER;
}

/* Copies the request; the memory that it points to goes to `memory`, which is aligned and has room. */
static void request_copy(const struct request *request, void *memory, struct request *ret_copy)
{
    *ret_copy = *request;
    ret_copy->lock = ROW_NOT_LOCKED;
    ret_copy->metadata = (struct bytes){0};
    ret_copy->permits = memory;
    if (request->permit_count)
        memcpy(ret_copy->permits, request->permits, request->permit_count * sizeof *request->permits);
    char *at = copy_labels(ret_copy, (char *)(ret_copy->permits + request->permit_count));
    for (size_t i = 0; i < request->permit_count; i++) {
        const struct slots *slots = &request->permits[i].slots;
        ret_copy->permits[i].slots.numbers = slots->count ? (uint32_t *)at : NULL;
        if (slots->count)
            memcpy(at, slots->numbers, slots->count * sizeof *slots->numbers);
        at += slots->count * sizeof *slots->numbers;
    }
    copy_label_texts(ret_copy, &at);
    ret_copy->external_id = bytes_copy_to(&at, request->external_id);
    ret_copy->owner = bytes_copy_to(&at, request->owner);
    ret_copy->principal = bytes_copy_to(&at, request->principal);
    ret_copy->nonce = bytes_copy_to(&at, request->nonce);
    ret_copy->change_nonce = bytes_copy_to(&at, request->change_nonce);
    ret_copy->wanted = bytes_copy_to(&at, request->wanted);
    ret_copy->wants = NULL;
    ret_copy->want_count = 0;
    ret_copy->place = as_read(request->place);
    ret_copy->waiting_since = as_read(request->waiting_since);
    ret_copy->waiting_until = as_read(request->waiting_until);
}

bool request_load(const struct request *request, struct arena *arena, struct request *ret_request)
{
    void *memory = arena_alloc(arena, request_size(request) + 1);
    if (!memory)
        return false;
    request_copy(request, memory, ret_request);
    return !ret_request->wanted.data || wants_decode(ret_request->wanted, arena, &ret_request->ttl, &ret_request->wants,
                                                     &ret_request->want_count) == PERMIT_OK;
}

/* ---- keys ---- */

void rows_init(struct rows *rows, size_t max_bytes)
{
    *rows = (struct rows){.max_bytes = max_bytes};
    list_init(&rows->recent);
}

static void drop_row(struct key_entry *entry)
{
    entry->has_row = false;
    for (size_t i = 0; i < entry->count; i++)
        list_remove(&entry->shares[i].node);
}

static void entry_free(struct rows *rows, struct key_entry *entry)
{
    drop_row(entry);
    map_remove(&rows->keys, &entry->node);
    list_remove(&entry->recent);
    rows->bytes -= entry->size;
    free(entry);
}

void rows_release(struct rows *rows)
{
    list_for_each (node, next, &rows->recent)
        entry_free(rows, LIST_ENTRY(node, struct key_entry, recent));
    map_release(&rows->keys);
}

const struct key_entry *rows_find_key(const struct rows *rows, struct bytes external_id)
{
    struct map_node *node = map_find(&rows->keys, external_id);
    return node ? MAP_ENTRY(node, struct key_entry, node) : NULL;
}

void rows_remove_key(struct rows *rows, struct bytes external_id)
{
    struct map_node *node = map_find(&rows->keys, external_id);
    if (node)
        entry_free(rows, MAP_ENTRY(node, struct key_entry, node));
}

static int compare_shares(const void *a, const void *b)
{
    return compare_u64(&((const struct share *)a)->semaphore_id, &((const struct share *)b)->semaphore_id);
}

/* NULL: out of memory. */
static struct key_entry *entry_new(const struct request *request)
{
    bool cacheable = request_is_cacheable(request);
    struct request only_key = {.external_id = request->external_id};
    const struct request *copied = cacheable ? request : &only_key;
    size_t head = sizeof(struct key_entry) + request->permit_count * sizeof(struct share);
    struct key_entry *entry = malloc(head + request_size(copied));
    if (!entry)
        return NULL;
    entry->size = head + request_size(copied);
    entry->has_row = cacheable;
    entry->count = request->permit_count;
    for (size_t i = 0; i < entry->count; i++)
        entry->shares[i] = (struct share){request->permits[i].semaphore_id, request->permits[i].count, {0}, entry};
    if (entry->count > 1)
        qsort(entry->shares, entry->count, sizeof *entry->shares, compare_shares);
    for (size_t i = 0; i < entry->count; i++)
        list_init(&entry->shares[i].node);
    request_copy(copied, (char *)entry + head, &entry->request);
    return entry;
}

/* Hangs the row of the entry on the copies of its semaphores; drops it if one is not copied. */
static void hang_row(struct rows *rows, struct semaphore_cache *semaphores, struct key_entry *entry)
{
    for (size_t i = 0; i < entry->count && entry->has_row; i++) {
        struct semaphore_entry *semaphore =
            semaphores ? semaphore_cache_find(semaphores, entry->shares[i].semaphore_id) : NULL;
        struct semaphore_copy *copy = semaphore ? rows_find(rows, semaphore) : NULL;
        if (copy)
            list_append(&copy->held, &entry->shares[i].node);
        else
            drop_row(entry);
    }
}

void rows_put_key(struct rows *rows, struct semaphore_cache *semaphores, const struct request *request)
{
    rows_remove_key(rows, request->external_id);
    struct key_entry *entry = entry_new(request);
    if (!entry || !map_insert(&rows->keys, &entry->node, entry->request.external_id)) {
        free(entry);
        return;
    }
    list_append(&rows->recent, &entry->recent);
    rows->bytes += entry->size;
    hang_row(rows, semaphores, entry);
    while (rows->bytes > rows->max_bytes)
        entry_free(rows, LIST_ENTRY(rows->recent.next, struct key_entry, recent));
}

/* ---- semaphores ---- */

static void clear_queue(struct semaphore_copy *copy)
{
    for (size_t i = 0; i < copy->waiter_count; i++)
        free(copy->waiters[i]);
    copy->waiter_count = 0;
    copy->has_queue = false;
}

void semaphore_copy_drop(struct semaphore_copy **copy)
{
    if (!*copy)
        return;
    list_for_each (node, next, &(*copy)->held)
        drop_row(LIST_ENTRY(node, struct share, node)->key);
    clear_queue(*copy);
    free((*copy)->waiters);
    free((*copy)->free_words);
    free((*copy)->text);
    free(*copy);
    *copy = NULL;
}

struct semaphore_copy *rows_find(const struct rows *rows, struct semaphore_entry *entry)
{
    if (entry->copy && entry->copy->generation != rows->generation)
        semaphore_copy_drop(&entry->copy);
    return entry->copy;
}

static size_t strings_size(const struct semaphore *row)
{
    return row->name.length + row->feed_url.length + row->note.length + row->paused_reason.length;
}

/* Points the strings of the row to copies in `text`, which has room. */
static void move_strings(struct semaphore *row, char *text)
{
    row->name = bytes_copy_to(&text, row->name);
    row->feed_url = bytes_copy_to(&text, row->feed_url);
    row->note = bytes_copy_to(&text, row->note);
    row->paused_reason = bytes_copy_to(&text, row->paused_reason);
}

static bool store_row(struct semaphore_copy *copy, const struct semaphore *row)
{
    char *text = malloc(strings_size(row) + 1);
    if (!text)
        return false;
    free(copy->text);
    copy->text = text;
    copy->row = *row;
    move_strings(&copy->row, text);
    return true;
}

bool semaphore_copy_load(const struct semaphore_copy *copy, struct arena *arena, struct semaphore *ret_row)
{
    char *text = arena_alloc(arena, strings_size(&copy->row) + 1);
    if (!text)
        return false;
    *ret_row = copy->row;
    move_strings(ret_row, text);
    return true;
}

/* ---- free slots ---- */

static bool request_has_labels(const struct request *request, uint64_t semaphore_id)
{
    const struct permit *permit = request ? request_permit_of(request, semaphore_id) : NULL;
    return permit && permit->labels;
}

/*
 * Returns true if a slot that the commit has read or changed may have a label. An exchange may have given back all slots
 * that have one: only the row before it has them.
 */
static bool has_labels(const struct view *read, size_t index, const struct plan *plan)
{
    uint64_t semaphore_id = read->semaphores[index].id;
    if (read->free_slots[index].labels || read->free_slots[index].labels_unread || plan->changes.label_count)
        return true;
    for (size_t i = 0; i < plan->changes.request_count; i++) {
        const struct request_change *change = &plan->changes.requests[i];
        if (request_has_labels(change->before, semaphore_id) || request_has_labels(change->request, semaphore_id))
            return true;
    }
    return false;
}

/* Sets the bit of a slot, or clears it. */
static void set_free(struct semaphore_copy *copy, uint32_t number, bool is_free)
{
    uint64_t *word = &copy->free_words[number / WORD];
    uint64_t bit = UINT64_C(1) << number % WORD;
    copy->free_count += is_free && !(*word & bit);
    copy->free_count -= !is_free && (*word & bit);
    *word = is_free ? *word | bit : *word & ~bit;
}

/* Replaces the copied free slots by those that were read. False: out of memory. */
static bool take_read(struct semaphore_copy *copy, const struct free_slots *read, int64_t capacity)
{
    uint64_t *words = calloc((size_t)capacity / WORD + 1, sizeof *words);
    if (!words)
        return false;
    free(copy->free_words);
    copy->free_words = words;
    copy->free_count = 0;
    copy->free_bound = read->complete ? UINT32_MAX : read->numbers[read->count - 1];
    for (size_t i = 0; i < read->count; i++)
        if (read->numbers[i] <= capacity)
            set_free(copy, read->numbers[i], true);
    return true;
}

/*
 * Stores the free slots after the commit: the copied ones or the ones that were read, whichever are more. False: out of
 * memory.
 */
static bool store_slots(struct semaphore_copy *copy, size_t index, const struct committed *commit)
{
    const struct changes *changes = &commit->plan->changes;
    const struct semaphore_image *image = &changes->semaphores[index];
    const struct free_slots *slots = &commit->read->free_slots[index];
    const int64_t capacity = image->semaphore->capacity;
    bool settings = image->settings || image->slots_to || image->retire_from || image->drop_labels;
    bool was_read = slots->count > 0 || slots->complete;
    bool more = copy->has_slots &&
                (!was_read || copy->free_bound == UINT32_MAX || (!slots->complete && copy->free_count >= slots->count));
    copy->has_slots = (more || was_read) && !settings;
    if (!copy->has_slots)
        return true;
    copy->labelled = (more && copy->labelled) || has_labels(commit->read, index, commit->plan);
    if (!more && !take_read(copy, slots, capacity))
        return false;
    for (size_t i = 0; i < changes->slot_count; i++) {
        const struct slot_change *slot = &changes->slots[i];
        if (slot->semaphore_id == image->semaphore->id && slot->number <= capacity)
            set_free(copy, slot->number, slot->token == 0 && slot->number <= copy->free_bound);
    }
    return true;
}

bool semaphore_copy_load_slots(const struct semaphore_copy *copy, int64_t wanted, struct arena *arena,
                               struct free_slots *ret_slots)
{
    bool all = copy->free_bound == UINT32_MAX;
    if (!copy->has_slots || (!all && (int64_t)copy->free_count < wanted))
        return false;
    size_t count = (size_t)min_i64(wanted, (int64_t)copy->free_count);
    uint32_t *numbers = arena_array(arena, count, sizeof *numbers);
    if (!numbers)
        return false;
    size_t found = 0;
    for (size_t at = 0; found < count; at++)
        for (uint64_t word = copy->free_words[at]; word && found < count; word &= word - 1)
            numbers[found++] = (uint32_t)(at * WORD) + (uint32_t)__builtin_ctzll(word);
    *ret_slots = (struct free_slots){
        .numbers = numbers, .count = count, .complete = (int64_t)count < wanted, .labels_unread = copy->labelled};
    return true;
}

/* ---- the queue ---- */

/* Returns true if a client asks for the request, and it waits for this semaphore. */
static bool waits_for(const struct request *request, uint64_t semaphore_id)
{
    for (size_t i = 0; request->state == REQUEST_WAITING && request->server_id && i < request->want_count; i++)
        if (request->wants[i].semaphore_id == semaphore_id)
            return true;
    return false;
}

/* Adds a waiter. False: the queue is too long, or the waiter cannot be copied, or out of memory. */
static bool add_waiter(struct semaphore_copy *copy, const struct request *request, uint64_t server_id)
{
    const struct want *want = &request->wants[0];
    if (copy->waiter_count == QUEUE_MAX || request->server_id != server_id || request->want_count != 1 ||
        want->adjacent || want_is_specific(want) || !request_is_cacheable(request))
        return false;
    struct request *waiter = malloc(sizeof *waiter + request_size(request));
    if (!waiter)
        return false;
    request_copy(request, waiter + 1, waiter);
    size_t at = copy->waiter_count++;
    for (; at > 0 && request_compare_places(copy->waiters[at - 1], request) > 0; at--)
        copy->waiters[at] = copy->waiters[at - 1];
    copy->waiters[at] = waiter;
    return true;
}

static void drop_waiter(struct semaphore_copy *copy, uint64_t request_id)
{
    size_t at = 0;
    while (at < copy->waiter_count && copy->waiters[at]->id != request_id)
        at++;
    if (at == copy->waiter_count)
        return;
    free(copy->waiters[at]);
    copy->waiter_count--;
    memmove(copy->waiters + at, copy->waiters + at + 1, (copy->waiter_count - at) * sizeof *copy->waiters);
}

/* Fills the queue with what was read of it. False: that is not all. */
static bool add_read(struct semaphore_copy *copy, const struct view *read, const struct semaphore *before,
                     uint64_t server_id)
{
    clear_queue(copy);
    for (size_t i = 0; before->waiting && i < read->request_count; i++)
        if (waits_for(&read->requests[i], before->id) && !add_waiter(copy, &read->requests[i], server_id))
            return false;
    return (int64_t)copy->waiter_count == before->waiting;
}

/* Enters what the plan has changed. False: one of those that wait now is not copied. */
static bool add_changes(struct semaphore_copy *copy, const struct changes *changes, uint64_t semaphore_id,
                        uint64_t server_id)
{
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        if (change->before && waits_for(change->before, semaphore_id))
            drop_waiter(copy, change->before->id);
        if (!change->remove && waits_for(change->request, semaphore_id) &&
            !add_waiter(copy, change->request, server_id))
            return false;
    }
    return true;
}

/* Stores the queue after the commit, if it is copied as it was before or was read whole, and can be copied. */
static void store_queue(struct semaphore_copy *copy, size_t index, const struct committed *commit)
{
    const struct semaphore *before = &commit->read->semaphores[index];
    const struct semaphore *after = commit->plan->changes.semaphores[index].semaphore;
    bool any = before->waiting || after->waiting;
    if (any && !copy->waiters)
        copy->waiters = malloc(QUEUE_MAX * sizeof(struct request *));
    copy->has_queue = (copy->waiters || !any) &&
                      (copy->has_queue || add_read(copy, commit->read, before, commit->server_id)) &&
                      add_changes(copy, &commit->plan->changes, before->id, commit->server_id) &&
                      (int64_t)copy->waiter_count == after->waiting;
    if (!copy->has_queue)
        clear_queue(copy);
}

/* Returns true if the waiter may be granted, or be in the way of others. */
static bool may_matter(const struct queue_read *read, const struct request *waiter, int64_t count)
{
    return read->fifo || count <= read->free || waiter->waiting_since <= read->aged;
}

bool semaphore_copy_load_queue(const struct semaphore_copy *copy, const struct queue_read *read, uint64_t server_id,
                               struct arena *arena, struct view *view, int64_t *ret_units)
{
    size_t room = read->limit + 1;
    *ret_units = 0;
    view->queues[read->semaphore] = (struct queue_view){.limit = read->limit};
    for (size_t i = 0; copy->has_queue && i < copy->waiter_count && room > 0; i++) {
        struct request *waiter = &view->requests[view->request_count];
        if (copy->waiters[i]->server_id != server_id || !request_load(copy->waiters[i], arena, waiter))
            return false;
        if (!may_matter(read, waiter, waiter->wants[0].count))
            continue;
        view->request_count++;
        *ret_units += waiter->wants[0].count;
        if (--room == 0)
            view->queues[read->semaphore] =
                (struct queue_view){.beyond_place = waiter->place, .beyond = waiter->id, .limit = read->limit};
    }
    return copy->has_queue;
}

/* ---- learning ---- */

void semaphore_copy_store(struct semaphore_copy **copy, size_t index, const struct committed *commit)
{
    const struct semaphore *after = commit->plan->changes.semaphores[index].semaphore;
    if (*copy && (*copy)->row.version != commit->read->semaphores[index].version)
        semaphore_copy_drop(copy);
    if (!*copy) {
        *copy = calloc(1, sizeof **copy);
        if (!*copy)
            return;
        list_init(&(*copy)->held);
    }
    (*copy)->generation = commit->generation;
    if (store_row(*copy, after) && (after->kind != KIND_SLOTTED || store_slots(*copy, index, commit)))
        store_queue(*copy, index, commit);
    else
        semaphore_copy_drop(copy);
}

/* Finds out whether another process has changed the semaphore since it was copied, and stores it if the batch did. */
static void learn_semaphore(struct rows *rows, struct semaphore_entry *entry, size_t index,
                            const struct committed *commit)
{
    const struct semaphore_copy *copy = rows_find(rows, entry);
    if (copy && copy->row.version != commit->read->semaphores[index].version) {
        if (entry->changed_at && commit->now - entry->changed_at < commit->shared_pause_us)
            entry->shared_until = commit->now + commit->shared_pause_us;
        entry->changed_at = commit->now;
        semaphore_copy_drop(&entry->copy);
    }
    if (commit->plan->changes.empty)
        return;
    semaphore_copy_store(&entry->copy, index, commit);
    if (!(entry->copy && entry->copy->has_queue) && entry->queue_read_from <= commit->now)
        entry->queue_read_from = commit->now + commit->shared_pause_us;
}

void rows_learn(struct rows *rows, struct semaphore_cache *semaphores, const struct committed *commit)
{
    const struct changes *changes = &commit->plan->changes;
    bool copies = commit->copies && commit->generation == rows->generation;
    for (size_t i = 0; i < commit->read->semaphore_count && copies; i++) {
        struct semaphore_entry *entry = semaphore_cache_find(semaphores, commit->read->semaphores[i].id);
        if (entry)
            learn_semaphore(rows, entry, i, commit);
    }
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        const struct request *request = change->request;
        if (request->state == REQUEST_ACQUIRED && request->server_id == 0 && !change->remove)
            rows_put_key(rows, copies ? semaphores : NULL, request);
        else
            rows_remove_key(rows, request->external_id);
    }
}
