/* SPDX-License-Identifier: MIT */
/* See order.h. */
#include "order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the lists ---- */

static void *grown(void *list, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return list;
    *room = *room ? 2 * *room : 256;
    void *larger = realloc(list, *room * size);
    if (!larger)
        abort();
    return larger;
}

void order_add_place(struct order *order, const struct place *place)
{
    order->places = grown(order->places, order->place_count, &order->place_room, sizeof(order->places[0]));
    order->places[order->place_count++] = *place;
}

void order_add_presence(struct order *order, const struct presence *presence)
{
    order->presences =
        grown(order->presences, order->presence_count, &order->presence_room, sizeof(order->presences[0]));
    order->presences[order->presence_count++] = *presence;
}

void order_release(struct order *order)
{
    free(order->places);
    free(order->presences);
    *order = (struct order){.queues = order->queues, .queue_count = order->queue_count};
}

/* ---- asks and presences ---- */

static int compare_int(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_id(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int asks_by_key(const void *a, const void *b)
{
    const struct ask *x = a, *y = b;
    int keys = strcmp(x->key, y->key);
    return keys ? keys : compare_int(x->sent_us, y->sent_us);
}

static struct ask *asks_sorted(const struct ask *asks, size_t count)
{
    struct ask *sorted = malloc((count + 1) * sizeof(sorted[0]));
    if (!sorted)
        abort();
    memcpy(sorted, asks, count * sizeof(sorted[0]));
    qsort(sorted, count, sizeof(sorted[0]), asks_by_key);
    return sorted;
}

/* The first ask of the key in a sorted list, or `count`. */
static size_t first_of_key(const struct ask *sorted, size_t count, const char *key)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(sorted[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* True if the row of the ask no longer waits after this answer. */
static bool ends_by_write(int status)
{
    return status == 200 || status == 201 || status == 423;
}

static bool is_at(const struct presence *presence, const struct ask *ask)
{
    return !presence->port || !ask->port || presence->port == ask->port;
}

/* True if the client waited for one answer during the whole presence. */
static bool is_asked(const struct presence *presence, const struct ask *sorted, size_t count)
{
    for (size_t i = first_of_key(sorted, count, presence->key); i < count && !strcmp(sorted[i].key, presence->key); i++)
        if (sorted[i].sent_us <= presence->from_clock_us && sorted[i].answered_us >= presence->to_clock_us &&
            is_at(presence, &sorted[i]) && (!sorted[i].status || ends_by_write(sorted[i].status)))
            return true;
    return false;
}

static int presences_by_time(const void *a, const void *b)
{
    const struct presence *x = a, *y = b;
    int requests = compare_id(x->request, y->request), places = compare_int(x->place_us, y->place_us);
    int queues = compare_id(x->semaphore, y->semaphore);
    return requests ? requests : places ? places : queues ? queues : compare_id(x->sample, y->sample);
}

void order_limit(struct order *order, const struct ask *asks, size_t count)
{
    struct ask *sorted = asks_sorted(asks, count);
    size_t kept = 0;
    qsort(order->presences, order->presence_count, sizeof(order->presences[0]), presences_by_time);
    for (size_t i = 0; i < order->presence_count; i++) {
        struct presence *piece = &order->presences[i], *last = kept ? &order->presences[kept - 1] : NULL;
        if (!is_asked(piece, sorted, count))
            continue;
        if (last && last->request == piece->request && last->place_us == piece->place_us &&
            last->semaphore == piece->semaphore && last->sample + 1 == piece->sample) {
            last->until_token = piece->until_token;
            last->to_clock_us = piece->to_clock_us;
            last->sample = piece->sample;
        } else {
            order->presences[kept++] = *piece;
        }
    }
    order->presence_count = kept;
    free(sorted);
}

void order_add_whole(struct order *order, const struct ask *asks, size_t count)
{
    struct ask *sorted = asks_sorted(asks, count);
    for (size_t i = 0; i < order->place_count; i++) {
        const struct place *place = &order->places[i];
        size_t first = first_of_key(sorted, count, place->key);
        bool once = first < count && !strcmp(sorted[first].key, place->key) &&
                    (first + 1 == count || strcmp(sorted[first + 1].key, place->key) != 0);
        if (!once || sorted[first].status != 201 || !place->token || place->since_us >= place->granted_us)
            continue;
        /* Entry and grant are times read under the lock of the semaphore, so at a later time the waiter is there. */
        struct presence presence = {.request = place->request,
                                    .place_us = place->place_us,
                                    .semaphore = place->semaphore,
                                    .until_token = place->token,
                                    .from_us = place->since_us + 1,
                                    .sample = UINT32_MAX};
        memcpy(presence.key, place->key, sizeof(presence.key));
        order_add_presence(order, &presence);
    }
    free(sorted);
}

/* ---- order ---- */

static bool stands_before(const struct place *a, const struct place *b)
{
    return a->place_us < b->place_us || (a->place_us == b->place_us && a->request < b->request);
}

/* Returns why the grant must not come before the waiter, as a sentence; NULL: it may. */
static const char *wrong_pass(const struct queue_facts *queue, const struct place *waiter, const struct place *grant)
{
    if (queue->fifo)
        return "under fifo";
    if (waiter->alone && waiter->count <= grant->count)
        return "although it fitted";
    if (grant->granted_us - waiter->since_us >= queue->bound_us)
        return "although it had waited for the bound";
    return NULL;
}

static int grants_by_token(const void *a, const void *b)
{
    const struct place *const *x = a, *const *y = b;
    return compare_id((*x)->token, (*y)->token);
}

static int presences_by_request(const void *a, const void *b)
{
    const struct presence *x = *(const struct presence *const *)a, *y = *(const struct presence *const *)b;
    int requests = compare_id(x->request, y->request);
    return requests ? requests : compare_int(x->place_us, y->place_us);
}

/* The input of check_order, sorted. */
struct sorted {
    const struct place **grants; /* of one semaphore, by token */
    size_t grant_count;
    const struct presence **presences; /* by request and place */
    size_t presence_count;
};

static const char *extra_of(const struct place *place)
{
    return place->alone ? "" : ", and more elsewhere";
}

static bool judge_presence(const struct sorted *sorted, const struct queue_facts *queue, const struct place *waiter,
                           const struct presence *presence, struct order_counts *counts, char message[MESSAGE_SIZE])
{
    size_t low = 0, high = sorted->grant_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (sorted->grants[middle]->token < presence->from_token)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < sorted->grant_count && sorted->grants[low]->token < presence->until_token; low++) {
        const struct place *grant = sorted->grants[low];
        if (grant->granted_us < presence->from_us || grant->request == waiter->request ||
            (waiter->token && waiter->token < grant->token))
            continue;
        counts->judged++;
        if (stands_before(grant, waiter))
            continue;
        counts->passed++;
        const char *wrong = wrong_pass(queue, waiter, grant);
        if (!wrong)
            continue;
        snprintf(
            message, MESSAGE_SIZE,
            "C8: %s: %.60s (place %lld, %lld units%s) was granted at %lld before %.60s (place %lld, %lld units%s), %s",
            queue->name, grant->key, (long long)grant->place_us, (long long)grant->count, extra_of(grant),
            (long long)grant->granted_us, waiter->key, (long long)waiter->place_us, (long long)waiter->count,
            extra_of(waiter), wrong);
        return false;
    }
    return true;
}

static size_t first_presence(const struct sorted *sorted, const struct place *waiter)
{
    size_t low = 0, high = sorted->presence_count;
    const struct presence wanted = {.request = waiter->request, .place_us = waiter->place_us}, *wanted_at = &wanted;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (presences_by_request(&sorted->presences[middle], &wanted_at) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool judge_queue(const struct order *order, struct sorted *sorted, unsigned semaphore,
                        struct order_counts *counts, char message[MESSAGE_SIZE])
{
    sorted->grant_count = 0;
    for (size_t i = 0; i < order->place_count; i++)
        if (order->places[i].semaphore == semaphore && order->places[i].token)
            sorted->grants[sorted->grant_count++] = &order->places[i];
    qsort(sorted->grants, sorted->grant_count, sizeof(sorted->grants[0]), grants_by_token);
    for (size_t i = 0; i < order->place_count; i++) {
        const struct place *waiter = &order->places[i];
        if (waiter->semaphore != semaphore || waiter->is_loose)
            continue;
        for (size_t k = first_presence(sorted, waiter);
             k < sorted->presence_count && sorted->presences[k]->request == waiter->request &&
             sorted->presences[k]->place_us == waiter->place_us;
             k++)
            if (sorted->presences[k]->semaphore == semaphore &&
                !judge_presence(sorted, &order->queues[semaphore], waiter, sorted->presences[k], counts, message))
                return false;
    }
    return true;
}

bool check_order(const struct order *order, struct order_counts *ret_counts, char message[MESSAGE_SIZE])
{
    struct order_counts counts = {0, 0};
    struct sorted sorted = {.grants = malloc((order->place_count + 1) * sizeof(sorted.grants[0])),
                            .presences = malloc((order->presence_count + 1) * sizeof(sorted.presences[0]))};
    bool good = true;
    if (!sorted.grants || !sorted.presences)
        abort();
    for (; sorted.presence_count < order->presence_count; sorted.presence_count++)
        sorted.presences[sorted.presence_count] = &order->presences[sorted.presence_count];
    qsort(sorted.presences, sorted.presence_count, sizeof(sorted.presences[0]), presences_by_request);
    for (unsigned i = 0; i < order->queue_count && good; i++)
        good = judge_queue(order, &sorted, i, &counts, message);
    free(sorted.grants);
    free(sorted.presences);
    if (ret_counts) {
        ret_counts->judged += counts.judged;
        ret_counts->passed += counts.passed;
    }
    return good;
}

static int places_in_queue(const void *a, const void *b)
{
    const struct place *x = *(const struct place *const *)a, *y = *(const struct place *const *)b;
    return stands_before(y, x) - stands_before(x, y);
}

bool check_exact(const struct order *order, size_t count, char message[MESSAGE_SIZE])
{
    const struct place **granted = malloc((order->place_count + 1) * sizeof(granted[0]));
    size_t grants = 0;
    bool good = true;
    if (!granted)
        abort();
    for (size_t i = 0; i < order->place_count; i++)
        if (order->places[i].token && order->places[i].waited)
            granted[grants++] = &order->places[i];
    qsort(granted, grants, sizeof(granted[0]), places_in_queue);
    for (size_t i = 1; i < grants && good; i++) {
        good = granted[i]->token > granted[i - 1]->token && granted[i]->request != granted[i - 1]->request;
        if (!good)
            snprintf(message, MESSAGE_SIZE, "C8: %.60s (place %lld, token %llu) stands behind %.60s (%lld, token %llu)",
                     granted[i]->key, (long long)granted[i]->place_us, (unsigned long long)granted[i]->token,
                     granted[i - 1]->key, (long long)granted[i - 1]->place_us,
                     (unsigned long long)granted[i - 1]->token);
    }
    if (good && grants != count) {
        snprintf(message, MESSAGE_SIZE, "C8: %zu of %zu waiters were granted", grants, count);
        good = false;
    }
    free(granted);
    return good;
}

/* ---- places that are kept ---- */

static int places_by_key(const void *a, const void *b)
{
    const struct place *x = *(const struct place *const *)a, *y = *(const struct place *const *)b;
    int keys = strcmp(x->key, y->key);
    return keys ? keys : compare_id(x->semaphore, y->semaphore);
}

static const struct place **places_sorted(const struct order *order)
{
    const struct place **places = malloc((order->place_count + 1) * sizeof(places[0]));
    if (!places)
        abort();
    for (size_t i = 0; i < order->place_count; i++)
        places[i] = &order->places[i];
    qsort(places, order->place_count, sizeof(places[0]), places_by_key);
    return places;
}

bool check_places(const struct order *order, char message[MESSAGE_SIZE])
{
    const struct place **places = places_sorted(order);
    bool good = true;
    for (size_t i = 1; i < order->place_count && good; i++) {
        const struct place *one = places[i - 1], *other = places[i];
        if (places_by_key(&places[i - 1], &places[i]) ||
            (one->place_us == other->place_us && one->since_us == other->since_us))
            continue;
        snprintf(message, MESSAGE_SIZE, "C8: %s: %.60s had the places %lld (since %lld) and %lld (since %lld)",
                 order->queues[one->semaphore].name, one->key, (long long)one->place_us, (long long)one->since_us,
                 (long long)other->place_us, (long long)other->since_us);
        good = false;
    }
    free(places);
    return good;
}

/* ---- answers ---- */

static const struct place *grant_of(const struct place *const *sorted, size_t count, const char *key)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(sorted[middle]->key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < count && !strcmp(sorted[low]->key, key); low++)
        if (sorted[low]->token)
            return sorted[low];
    return NULL;
}

static bool is_served(const struct ask *ask)
{
    return ask->status == 200 || ask->status == 201;
}

/* Returns the fault of the answer, as a sentence; NULL: none. */
static const char *wrong_answer(const struct ask *ask, int64_t late_us)
{
    if (ask->cut)
        return NULL;
    if (!ask->status)
        return "was never answered";
    if (ask->answered_us - ask->sent_us > ask->wait_us + late_us)
        return "was answered too late";
    if (ask->status == 423 && ask->answered_us - ask->sent_us < ask->wait_us)
        return "was refused before its wait was over";
    return NULL;
}

bool check_told(const struct order *order, const struct ask *asks, size_t count, int64_t late_us, bool served,
                char message[MESSAGE_SIZE])
{
    struct ask *sorted = asks_sorted(asks, count);
    const struct place **places = places_sorted(order);
    bool good = true;
    for (size_t i = 0; i < count && good; i++) {
        const struct ask *ask = &sorted[i];
        bool last = i + 1 == count || strcmp(ask->key, sorted[i + 1].key) != 0;
        const struct place *grant = last ? grant_of(places, order->place_count, ask->key) : NULL;
        const char *wrong = wrong_answer(ask, late_us);
        if (!wrong && is_served(ask) && last && !grant)
            wrong = "was answered with a grant that no row has";
        if (!wrong && ask->status == 423 && !ask->cut && grant)
            wrong = "was refused, and granted without a further ask";
        if (!wrong && served && last && !is_served(ask))
            wrong = "was not served";
        if (!wrong)
            continue;
        snprintf(message, MESSAGE_SIZE, "C8: %.60s %s: status %d, after %.3f s of a wait of %.3f s", ask->key, wrong,
                 ask->status, (double)(ask->answered_us - ask->sent_us) / 1e6, (double)ask->wait_us / 1e6);
        good = false;
    }
    free(sorted);
    free(places);
    return good;
}
