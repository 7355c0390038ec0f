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
 * SELECT ... FROM waiter JOIN permit_request ... WHERE semaphore_id = ... AND server_id IS NOT NULL ORDER BY place,
 * permit_request_id: returns the row after `last` (NULL: the first one); NULL: none.
 */
static const struct place_change *next_place(const struct rows *rows, uint64_t semaphore_id,
                                             const struct place_change *last)
{
    const struct place_change *next = NULL;
    for (unsigned i = 0; i < rows->place_count; i++) {
        const struct place_change *row = &rows->places[i];
        int key = key_of_id(rows, row->request_id);
        bool asked = key >= 0 && rows->requests[key].server_id != 0;
        if (asked && row->semaphore_id == semaphore_id && (!last || place_is_before(last, row)) &&
            (!next || place_is_before(row, next)))
            next = row;
    }
    return next;
}

/* Reads one queue; adds its waiters to *keys. */
static struct queue_view read_queue(const struct rows *rows, const struct queue_read *read, uint64_t semaphore_id,
                                    unsigned cut, unsigned *keys)
{
    const struct place_change *row = NULL;
    unsigned room = queue_read_size(read) < cut ? (unsigned)queue_read_size(read) : cut;
    while ((row = next_place(rows, semaphore_id, row)) != NULL) {
        int key = key_of_id(rows, row->request_id);
        if (!read->fifo && row->count > read->free && rows->requests[key].waiting_since > read->aged)
            continue;
        *keys |= 1U << key;
        if (room-- == 0)
            return (struct queue_view){row->place, row->request_id};
    }
    return (struct queue_view){0};
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
    uint64_t semaphore_id = view->semaphores[read->semaphore].id;
    all->slots_wanted[index] = min_i64(all->slots_wanted[index] + read->free, SLOTS_MAX_CAPACITY);
    for (size_t i = 0; i < view->request_count; i++)
        for (size_t j = 0; view->requests[i].state == REQUEST_WAITING && j < view->requests[i].want_count; j++) {
            const struct want *want = &view->requests[i].wants[j];
            if (want->semaphore_id != semaphore_id)
                continue;
            name_slots(want, all->names[index], &all->name_count[index]);
            if (want->adjacent)
                all->slots_wanted[index] = SLOTS_MAX_CAPACITY;
        }
}

static bool view_servers(const struct rows_read *read, struct arena *arena, struct view *view)
{
    uint64_t *servers = arena_array(arena, MODEL_SERVERS, sizeof *servers);
    for (unsigned i = 1; servers && i < MODEL_SERVERS; i++)
        if (!(read->moment.servers_dead >> i & 1))
            servers[view->server_count++] = i;
    view->servers = servers;
    view->has_servers = true;
    return servers != NULL;
}

bool rows_read_waiters(const struct rows *rows, struct rows_read *read, const struct queue_read *reads, size_t count,
                       struct arena *arena, struct view *view)
{
    unsigned keys = 0;
    unsigned cut = read->queue_cut ? read->queue_cut : QUEUE_READ_MAX;
    view->queues = arena_array(arena, view->semaphore_count + 1, sizeof *view->queues);
    if (!view->queues || !view_servers(read, arena, view))
        return false;
    for (size_t i = 0; i < view->request_count; i++)
        keys |= 1U << key_index(view->requests[i].external_id);
    for (size_t i = 0; i < view->semaphore_count; i++)
        view->queues[i] = (struct queue_view){0};
    for (size_t i = 0; i < count; i++)
        view->queues[reads[i].semaphore] =
            read_queue(rows, &reads[i], view->semaphores[reads[i].semaphore].id, cut, &keys);
    if (!rows_read_requests(rows, read, keys, arena, view))
        return false;
    for (size_t i = 0; i < count; i++) {
        unsigned index = (unsigned)rows_semaphore(rows, view->semaphores[reads[i].semaphore].id);
        want_slots(view, &reads[i], index, read);
        if (!rows_read_slots(rows, read, index, arena, view, reads[i].semaphore))
            return false;
    }
    return true;
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

bool rows_write_places(struct rows *rows, const struct changes *changes)
{
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

/* A request that waits has one place for each of its wants. */
static bool check_places_of(struct rows *rows, unsigned key)
{
    const struct request *row = &rows->requests[key];
    for (size_t i = 0; i < row->want_count; i++) {
        struct place_change place = {.semaphore_id = row->wants[i].semaphore_id,
                                     .place = row->place,
                                     .request_id = row->id,
                                     .count = row->wants[i].count};
        unsigned at = find_place(rows, &place);
        if (at == rows->place_count || rows->places[at].count != place.count)
            FAIL("%s waits, and has no place for %lld of %c", key_name(key).data, (long long)place.count,
                 'a' + rows_semaphore(rows, place.semaphore_id));
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
