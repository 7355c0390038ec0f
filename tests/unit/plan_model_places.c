/* SPDX-License-Identifier: MIT */
/* The tables `waiter` and `mail` of the model test: how a batch reads queues, and how its changes are written. */
#include <stdlib.h>

#include "plan_model.h"

#define FAIL(...) return buf_printf(&rows->problem, __VA_ARGS__), false
#define U(number) ((unsigned long long)(number))

/* ---- reading queues ---- */

static int key_of_id(const struct rows *rows, uint64_t id)
{
    int key = id < MODEL_IDS ? (int)rows->key_of_id[id] : MODEL_KEYS;
    return key < MODEL_KEYS && rows->requests[key].id == id ? key : -1;
}

static bool place_is_before(const struct place_change *a, const struct place_change *b)
{
    return a->place != b->place ? a->place < b->place : a->request_id < b->request_id;
}

/*
 * SELECT ... FROM waiter JOIN permit_request ... JOIN server ... WHERE semaphore_id = ... AND dead_at IS NULL ORDER BY
 * place, permit_request_id: returns the row after `last` (NULL: the first one); NULL: none.
 */
static const struct place_change *next_place(const struct rows *rows, const struct rows_read *read,
                                             uint64_t semaphore_id, const struct place_change *last)
{
    const struct place_change *next = NULL;
    for (unsigned i = 0; i < rows->place_count; i++) {
        const struct place_change *row = &rows->places[i];
        int key = key_of_id(rows, row->request_id);
        uint64_t server = key >= 0 ? rows->requests[key].server_id : 0;
        bool asked = server && !(read->moment.servers_dead >> server & 1);
        if (asked && row->semaphore_id == semaphore_id && (!last || place_is_before(last, row)) &&
            (!next || place_is_before(row, next)))
            next = row;
    }
    return next;
}

static bool is_one_of(uint64_t number, const uint64_t *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (numbers[i] == number)
            return true;
    return false;
}

/*
 * Returns true if a waiter is left out. It watches a slot that stays held, unless it reserves other slots; it neither may
 * fit nor is protected; or one with the same needs is hopeless.
 */
static bool is_left_out(const struct queue_read *read, const struct place_change *row, bool aged, bool stays_held)
{
    if (stays_held)
        return read->fifo || row->count < 2 || !aged;
    if (read->fifo)
        return false;
    size_t hopeless = aged ? read->hopeless_protected : read->hopeless_count;
    return is_one_of(row->needs, read->hopeless, hopeless) || (row->count > read->free && !aged);
}

/* Returns true if the slot that the waiter watches is none of those that the batch may free. */
static bool watches_held(const struct queue_read *read, const struct place_change *row)
{
    if (!row->watch || read->all_watches)
        return false;
    for (size_t i = 0; i < read->freed_count; i++)
        if (read->freed[i] == row->watch)
            return false;
    return true;
}

/* Reads one queue; adds its waiters to *keys. One that reserves other slots than the one that it watches counts extra. */
static struct queue_view read_queue(const struct rows *rows, const struct rows_read *all, const struct queue_read *read,
                                    uint64_t semaphore_id, unsigned *keys)
{
    size_t cut = all->queue_cut ? all->queue_cut : QUEUE_READ_MAX;
    const struct place_change *row = NULL;
    size_t room = read->limit < cut ? read->limit : cut;
    if (read->limit > QUEUE_READ_MAX)
        room = cut * (QUEUE_PROTECTED_MAX / QUEUE_READ_MAX);
    while ((row = next_place(rows, all, semaphore_id, row)) != NULL) {
        int key = key_of_id(rows, row->request_id);
        bool aged = row->place <= read->aged && rows->requests[key].waiting_since <= read->aged;
        bool stays_held = watches_held(read, row);
        if (is_left_out(read, row, aged, stays_held))
            continue;
        *keys |= 1U << key;
        if (!stays_held && room-- == 0)
            return (struct queue_view){.beyond_place = row->place, .beyond = row->request_id, .limit = read->limit};
    }
    return (struct queue_view){.limit = read->limit};
}

static void name_slots(const struct want *want, struct model_name *names, unsigned *count)
{
    for (size_t i = 0; i < want->named_count; i++) {
        struct model_name name = {want->named[i].number, label_index(want->named[i].label)};
        unsigned at = 0;
        while (at < *count && memcmp(&names[at], &name, sizeof name) != 0)
            at++;
        if (at == *count && at < MODEL_READ)
            names[(*count)++] = name;
    }
}

/* Adds the slots that the waiters of the view want of the semaphore to those that are read. */
static void want_slots(const struct view *view, const struct queue_read *read, unsigned index, struct rows_read *all)
{
    const struct semaphore *semaphore = &view->semaphores[read->semaphore];
    int64_t given = all->slots_wanted[index];
    int64_t units = 0;
    bool adjacent = false;
    all->with_holders |= (unsigned)read->with_holders << index;
    for (size_t i = 0; i < view->request_count; i++)
        for (size_t j = 0; view->requests[i].state == REQUEST_WAITING && j < view->requests[i].want_count; j++) {
            const struct want *want = &view->requests[i].wants[j];
            if (want->semaphore_id != semaphore->id)
                continue;
            name_slots(want, all->names[index], &all->name_count[index]);
            adjacent |= want->adjacent || want->choice == CHOOSE_BEST;
            units += want->count;
        }
    all->slots_wanted[index] =
        adjacent ? semaphore->capacity + 1 : max_i64(given, min_i64(given + units, semaphore->capacity));
}

static bool view_servers(const struct rows_read *read, struct arena *arena, struct view *view)
{
    uint64_t *servers = arena_array(arena, MODEL_SERVERS, sizeof *servers);
    view->server_count = 0;
    for (unsigned i = 1; servers && i < MODEL_SERVERS; i++)
        if (!(read->moment.servers_dead >> i & 1))
            servers[view->server_count++] = i;
    view->servers = servers;
    view->has_servers = true;
    return servers != NULL;
}

static unsigned keys_of_view(const struct view *view)
{
    unsigned keys = 0;
    for (size_t i = 0; i < view->request_count; i++)
        keys |= 1U << key_index(view->requests[i].external_id);
    return keys;
}

bool rows_read_waiters(const struct rows *rows, const struct rows_read *read, const struct queue_read *reads,
                       size_t count, struct arena *arena, struct view *view)
{
    unsigned keys = keys_of_view(view);
    view->queues = arena_array(arena, view->semaphore_count + 1, sizeof *view->queues);
    if (!view->queues || !view_servers(read, arena, view))
        return false;
    for (size_t i = 0; i < count; i++)
        view->queues[reads[i].semaphore] =
            read_queue(rows, read, &reads[i], view->semaphores[reads[i].semaphore].id, &keys);
    if (!rows_read_requests(rows, read, keys, arena, view))
        return false;
    for (size_t i = 0; i < count; i++) {
        struct rows_read all = *read;
        unsigned index = (unsigned)rows_semaphore(rows, view->semaphores[reads[i].semaphore].id);
        want_slots(view, &reads[i], index, &all);
        if (!rows_read_slots(rows, &all, index, arena, view, reads[i].semaphore))
            return false;
    }
    return true;
}

/* ---- semaphores that are not locked ---- */

static const struct place_change *place_of(const struct rows *rows, uint64_t semaphore_id, uint64_t request_id)
{
    for (unsigned i = 0; i < rows->place_count; i++)
        if (rows->places[i].semaphore_id == semaphore_id && rows->places[i].request_id == request_id)
            return &rows->places[i];
    return NULL;
}

/* Reads the slots that waiters of the view watch there, as far as they are held. */
static bool read_watchers(const struct rows *rows, unsigned index, const struct view *view, struct arena *arena,
                          struct glimpse *glimpse)
{
    struct watcher *watchers = arena_array(arena, view->request_count + 1, sizeof *watchers);
    glimpse->watchers = watchers;
    for (size_t i = 0; watchers && i < view->request_count; i++) {
        const struct place_change *place = place_of(rows, rows->semaphores[index].id, view->requests[i].id);
        uint64_t token = place && place->watch ? rows->slots[index][place->watch].token : 0;
        unsigned holder = rows_holder_of(rows, index, token);
        if (holder < MODEL_KEYS)
            watchers[glimpse->watcher_count++] = (struct watcher){
                .request_id = view->requests[i].id, .confirmed = rows->requests[holder].confirmed_at != NEVER};
    }
    return watchers != NULL;
}

static int compare_glimpses(const void *a, const void *b)
{
    uint64_t left = ((const struct glimpse *)a)->semaphore.id;
    uint64_t right = ((const struct glimpse *)b)->semaphore.id;
    return (left > right) - (left < right);
}

bool rows_read_glimpses(const struct rows *rows, const struct rows_read *read, unsigned semaphores, utc_us aged,
                        struct arena *arena, struct view *view)
{
    unsigned keys = keys_of_view(view);
    struct glimpse *glimpses = arena_array(arena, MODEL_SEMAPHORES, sizeof *glimpses);
    if (!glimpses)
        return false;
    if (view->glimpse_count)
        memcpy(glimpses, view->glimpses, view->glimpse_count * sizeof *glimpses);
    for (unsigned index = 0; index < MODEL_SEMAPHORES; index++) {
        const struct place_change *row = NULL;
        struct glimpse *glimpse = &glimpses[view->glimpse_count];
        if (!(semaphores >> index & 1))
            continue;
        *glimpse = (struct glimpse){.semaphore = rows->semaphores[index]};
        if (!read_watchers(rows, index, view, arena, glimpse))
            return false;
        view->glimpse_count++;
        while ((row = next_place(rows, read, rows->semaphores[index].id, row)) != NULL) {
            const struct request *request = &rows->requests[key_of_id(rows, row->request_id)];
            if (rows->semaphores[index].queue == QUEUE_FIFO || (row->place <= aged && request->waiting_since <= aged))
                keys |= 1U << key_index(request->external_id);
        }
    }
    qsort(glimpses, view->glimpse_count, sizeof *glimpses, compare_glimpses);
    view->glimpses = glimpses;
    return rows_read_requests(rows, read, keys, arena, view);
}

/* ---- writing places ---- */

static unsigned find_place(const struct rows *rows, const struct place_change *row)
{
    unsigned at = 0;
    while (at < rows->place_count &&
           (rows->places[at].semaphore_id != row->semaphore_id || rows->places[at].place != row->place ||
            rows->places[at].request_id != row->request_id))
        at++;
    return at;
}

static int compare_places(const struct place_change *a, const struct place_change *b)
{
    if (a->remove != b->remove)
        return a->remove ? -1 : 1;
    if (a->semaphore_id != b->semaphore_id)
        return a->semaphore_id < b->semaphore_id ? -1 : 1;
    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    return a->request_id < b->request_id ? -1 : a->request_id > b->request_id;
}

/* UPDATE waiter SET watch = 0 WHERE semaphore_id = ... AND watch = ...: of slots that become free. */
static void clear_watches(struct rows *rows, const struct changes *changes)
{
    for (size_t i = 0; i < changes->slot_count; i++)
        for (unsigned j = 0; changes_clear_watch(changes, &changes->slots[i]) && j < rows->place_count; j++)
            if (rows->places[j].semaphore_id == changes->slots[i].semaphore_id &&
                rows->places[j].watch == changes->slots[i].number)
                rows->places[j].watch = 0;
}

bool rows_write_places(struct rows *rows, const struct changes *changes)
{
    clear_watches(rows, changes);
    for (size_t i = 0; i < changes->place_count; i++) {
        const struct place_change *change = &changes->places[i];
        if (i > 0 && compare_places(change - 1, change) >= 0)
            FAIL("places are not in order");
        unsigned at = find_place(rows, change);
        if (change->remove != (at < rows->place_count))
            FAIL("a place of request %llu is %s", U(change->request_id), change->remove ? "not there" : "there");
        if (change->remove)
            rows->places[at] = rows->places[--rows->place_count];
        else if (rows->place_count == MODEL_PLACES)
            FAIL("too many places");
        else
            rows->places[rows->place_count++] = *change;
    }
    return true;
}

static bool slot_is_free(const struct rows *rows, int semaphore, uint32_t number)
{
    return number >= rows->slot_rows[semaphore] || !rows->slots[semaphore][number].token;
}

/* Returns true if the want is for all of its named slots, and the slot is one of them. */
static bool names_slot(const struct rows *rows, const struct want *want, uint32_t number)
{
    int semaphore = rows_semaphore(rows, want->semaphore_id);
    unsigned label = number < rows->slot_rows[semaphore] ? rows->slots[semaphore][number].label : 0;
    bool named = false;
    for (size_t i = 0; i < want->named_count; i++)
        named |= want->named[i].number ? want->named[i].number == number
                                       : label && bytes_equal(want->named[i].label, label_text(label));
    return want->choice == CHOOSE_NAMED && named;
}

/*
 * A request that waits has one place for each of its wants. The slot that it watches, while a client asks for it, is one
 * that it cannot do without, and that is held.
 */
static bool check_places_of(struct rows *rows, unsigned key)
{
    const struct request *row = &rows->requests[key];
    for (size_t i = 0; i < row->want_count; i++) {
        struct place_change place = {.semaphore_id = row->wants[i].semaphore_id,
                                     .place = row->place,
                                     .request_id = row->id,
                                     .count = row->wants[i].count};
        unsigned at = find_place(rows, &place);
        int semaphore = rows_semaphore(rows, place.semaphore_id);
        if (at == rows->place_count || rows->places[at].count != place.count)
            FAIL("%s waits, and has no place for %lld of %c", key_name(key).data, (long long)place.count,
                 'a' + semaphore);
        if (rows->places[at].needs != wants_needs(row->wanted))
            FAIL("%s wants other needs than its place of %c says", key_name(key).data, 'a' + semaphore);
        unsigned watch = rows->places[at].watch;
        if (row->server_id && watch &&
            (!names_slot(rows, &row->wants[i], watch) || slot_is_free(rows, semaphore, watch)))
            FAIL("%s watches slot %u of %c", key_name(key).data, watch, 'a' + semaphore);
    }
    return true;
}

bool rows_check_places(struct rows *rows)
{
    int64_t waiting[MODEL_SEMAPHORES] = {0};
    size_t wanted = 0;
    for (unsigned key = 0; key < MODEL_KEYS; key++) {
        const struct request *row = &rows->requests[key];
        if (row->id == 0 || row->state != REQUEST_WAITING)
            continue;
        wanted += row->want_count;
        if (!check_places_of(rows, key))
            return false;
        for (size_t i = 0; row->server_id && i < row->want_count; i++)
            waiting[rows_semaphore(rows, row->wants[i].semaphore_id)]++;
    }
    if (wanted != rows->place_count)
        FAIL("%u places, %zu are wanted", rows->place_count, wanted);
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++)
        if (rows->semaphores[i].id && rows->semaphores[i].waiting != waiting[i])
            FAIL("%c: waiting %lld, there are %lld", 'a' + (int)i, (long long)rows->semaphores[i].waiting,
                 (long long)waiting[i]);
    return true;
}

/* ---- writing mail ---- */

static unsigned find_mail(const struct rows *rows, uint64_t server_id, uint64_t request_id)
{
    unsigned at = 0;
    while (at < rows->mail_count && (rows->mail[at].server_id != server_id || rows->mail[at].request_id != request_id))
        at++;
    return at;
}

static int compare_mail(const struct mail *a, const struct mail *b)
{
    if (a->remove != b->remove)
        return a->remove ? -1 : 1;
    if (a->server_id != b->server_id)
        return a->server_id < b->server_id ? -1 : 1;
    return a->request_id < b->request_id ? -1 : a->request_id > b->request_id;
}

/* Mail that is gone, or there already, is no failure. */
bool rows_write_mail(struct rows *rows, const struct changes *changes)
{
    for (size_t i = 0; i < changes->mail_count; i++) {
        const struct mail *mail = &changes->mail[i];
        if (i > 0 && compare_mail(mail - 1, mail) >= 0)
            FAIL("mail is not in order");
        unsigned at = find_mail(rows, mail->server_id, mail->request_id);
        if (mail->remove && at < rows->mail_count)
            rows->mail[at] = rows->mail[--rows->mail_count];
        else if (!mail->remove && at == rows->mail_count && rows->mail_count < MODEL_MAIL)
            rows->mail[rows->mail_count++] = *mail;
    }
    return true;
}

uint64_t rows_mail_of(const struct rows *rows, unsigned server, unsigned key)
{
    for (unsigned i = 0; i < rows->mail_count; i++)
        if (rows->mail[i].server_id == server && rows->key_of_id[rows->mail[i].request_id] == key)
            return rows->mail[i].request_id;
    return 0;
}
