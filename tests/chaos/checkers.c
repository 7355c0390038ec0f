/* SPDX-License-Identifier: MIT */
/* The checkers C1 and C4, the checks of single keys, and the statuses. */
#include "checkers.h"

#include "key_summary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNCLAIMED_US 10000000LL /* PLACE_KEPT_US of src/core/request.h */

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void facts_add_leap(struct facts *facts, int64_t at_us, int64_t served_us)
{
    if (facts->leap_count == LEAPS_MAX) {
        fprintf(stderr, "the database has stopped or stepped its clock more than %d times: run with fewer faults\n",
                LEAPS_MAX);
        abort();
    }
    facts->leaps[facts->leap_count++] = (struct leap){at_us, served_us};
}

/* The earliest end of a lease that was requested at `sent_us`. */
static int64_t lease_end(const struct facts *facts, int64_t sent_us, int64_t lease_us)
{
    return sent_us + (lease_us > facts->early_us ? lease_us - facts->early_us : 0);
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/*
 * A replayed grant does not extend the lease. Its age is unknown, except that the grant is not older than the first
 * request.
 */
static void key_learn_lease(struct key_summary *key, const struct call *call, const struct facts *facts)
{
    bool prolongs = call->kind == CALL_RENEW || (call->kind == CALL_ACQUIRE && call->status == 201);
    if (call->kind == CALL_CONFIRM) /* no lease any more */
        key->lease_end = INT64_MAX;
    if (prolongs && call->lease_us)
        key->lease_end = later(key->lease_end, lease_end(facts, call->sent_us, call->lease_us));
}

/*
 * A grant to a waiter may be made by a batch that does not answer it. It ends after UNCLAIMED_US unless an answer claims
 * it, and the answer to a query does not (docs/design.md, "The queue"). No such grant follows a refusal (P22). Call it when all calls have been read.
 */
static int64_t key_held_until(const struct key_summary *key, const struct facts *facts)
{
    if (key->first_asked == INT64_MAX)
        return key->release_sent;
    if (key->waited && !key->claimed && !key->refused) {
        int64_t us = key->lease_us ? earlier(key->lease_us, UNCLAIMED_US) : UNCLAIMED_US;
        return earlier(lease_end(facts, key->first_asked, us), key->release_sent);
    }
    if (!key->lease_us)
        return key->release_sent;
    return earlier(later(lease_end(facts, key->first_asked, key->lease_us), key->lease_end), key->release_sent);
}

static void key_learn(struct key_summary *key, const struct call *call, const struct facts *facts)
{
    if (call->lease_us)
        key->lease_us = call->lease_us;
    if (call->kind == CALL_ACQUIRE) {
        key->first_asked = earlier(key->first_asked, call->sent_us);
        key->asked = call;
        key->open |= call->says == SAYS_NOTHING;
        if (call->says == SAYS_ENDED)
            key->ended_unheard = earlier(key->ended_unheard, call->answered_us);
    }
    if (call->says == SAYS_NO_CAPACITY || call->says == SAYS_UNKNOWN)
        key->last_absent_sent = later(key->last_absent_sent, call->sent_us);
    if (call->says == SAYS_HELD || call->status == 409)
        key->last_held_sent = later(key->last_held_sent, call->sent_us);
    if (call->kind == CALL_CONFIRM)
        key->confirm_sent = earlier(key->confirm_sent, call->sent_us);
    if (call->kind == CALL_RELEASE && call->status != 409) /* 409: confirmed, so the release did nothing */
        key->release_sent = earlier(key->release_sent, call->sent_us);
    if (call->says == SAYS_ENDED)
        key->end_known = earlier(key->end_known, call->answered_us);
    key->waited |= call->kind == CALL_ACQUIRE && call->wait_us;
    key->refused |= call->kind == CALL_ACQUIRE && call->says == SAYS_NO_CAPACITY;
    key->claimed |= call->says == SAYS_HELD && call->kind != CALL_QUERY;
    if (call->says == SAYS_HELD)
        key_learn_lease(key, call, facts);
    if (call->says == SAYS_HELD && call->answered_us < key->first_known) {
        key->first_known = call->answered_us;
        key->held = call;
    }
}

struct key_summary *key_summaries(const struct history *history, const struct facts *facts, size_t *ret_count)
{
    size_t count = history_key_end(history);
    struct key_summary *keys = calloc(count + 1, sizeof(*keys));
    if (!keys)
        abort();
    for (size_t i = 0; i < count; i++)
        keys[i] = (struct key_summary){.first_asked = INT64_MAX,
                                       .first_known = INT64_MAX,
                                       .release_sent = INT64_MAX,
                                       .confirm_sent = INT64_MAX,
                                       .end_known = INT64_MAX,
                                       .ended_unheard = INT64_MAX,
                                       .last_held_sent = INT64_MIN,
                                       .last_absent_sent = INT64_MIN,
                                       .lease_end = INT64_MIN};
    for (size_t i = 0; i < history->count; i++)
        key_learn(&keys[history->calls[i].key], &history->calls[i], facts);
    for (size_t i = 0; i < count; i++) {
        keys[i].held_until = key_held_until(&keys[i], facts);
        keys[i].open |= keys[i].ended_unheard < keys[i].release_sent; /* then it had been held */
    }
    *ret_count = count;
    return keys;
}

/* ---- C1 ---- */

/* Units of a semaphore or of one slot that begin or stop to be surely held. */
struct edge {
    int64_t at_us;
    unsigned semaphore;
    unsigned slot; /* 0: the whole semaphore */
    int change;
    unsigned key;
};

struct edges {
    struct edge *list;
    size_t count;
};

static int compare_edges(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    if (x->semaphore != y->semaphore)
        return x->semaphore < y->semaphore ? -1 : 1;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    if (x->at_us != y->at_us)
        return x->at_us < y->at_us ? -1 : 1;
    /* At the same time the end comes first, because an overlap cannot be proved. */
    return x->change - y->change;
}

static void edges_add(struct edges *edges, const struct key_summary *key, unsigned number, const struct share *share,
                      unsigned slot)
{
    int units = slot ? 1 : (int)share->count;
    edges->list[edges->count++] = (struct edge){key->first_known, share->semaphore, slot, units, number};
    edges->list[edges->count++] = (struct edge){key->held_until, share->semaphore, slot, -units, number};
}

static void edges_add_key(struct edges *edges, const struct key_summary *key, unsigned number)
{
    for (size_t i = 0; i < key->held->share_count; i++) {
        const struct share *share = &key->held->shares[i];
        edges_add(edges, key, number, share, 0);
        for (size_t j = 0; j < SLOTS_MAX && share->slots[j]; j++)
            edges_add(edges, key, number, share, share->slots[j]);
    }
}

static struct edges edges_of(const struct key_summary *keys, size_t count)
{
    struct edges edges = {calloc(count * SHARES_MAX * (SLOTS_MAX + 1) * 2 + 1, sizeof(struct edge)), 0};
    if (!edges.list)
        abort();
    for (size_t i = 0; i < count; i++)
        if (keys[i].held && keys[i].first_known < keys[i].held_until)
            edges_add_key(&edges, &keys[i], (unsigned)i);
    qsort(edges.list, edges.count, sizeof(edges.list[0]), compare_edges);
    return edges;
}

static bool overlap_fits(const struct edges *edges, const struct facts *facts, char message[MESSAGE_SIZE])
{
    long held = 0;
    for (size_t i = 0; i < edges->count; i++) {
        const struct edge *edge = &edges->list[i], *before = edge - 1;
        if (i == 0 || before->semaphore != edge->semaphore || before->slot != edge->slot)
            held = 0;
        held += edge->change;
        const struct semaphore_facts *semaphore = &facts->semaphores[edge->semaphore];
        long room = edge->slot ? 1 : (long)semaphore->capacity;
        if (held > room) {
            snprintf(message, MESSAGE_SIZE, "%s, slot %u: %ld units held at once, capacity %ld, when key %u came",
                     semaphore->name, edge->slot, held, room, edge->key);
            return false;
        }
    }
    return true;
}

bool check_capacity(const struct history *history, const struct facts *facts, char message[MESSAGE_SIZE])
{
    size_t count;
    struct key_summary *keys = key_summaries(history, facts, &count);
    struct edges edges = edges_of(keys, count);
    bool fits = overlap_fits(&edges, facts, message);
    free(edges.list);
    free(keys);
    return fits;
}

/* ---- C4 ---- */

static bool shares_equal(const struct call *a, const struct call *b)
{
    if (a->share_count != b->share_count)
        return false;
    for (size_t i = 0; i < a->share_count; i++) {
        const struct share *x = &a->shares[i], *y = &b->shares[i];
        if (x->semaphore != y->semaphore || x->count != y->count || x->token != y->token ||
            memcmp(x->slots, y->slots, sizeof(x->slots)))
            return false;
    }
    return true;
}

bool check_keys(const struct history *history, const struct facts *facts, char message[MESSAGE_SIZE])
{
    size_t count;
    struct key_summary *keys = key_summaries(history, facts, &count);
    bool same = true;
    for (size_t i = 0; i < history->count && same; i++) {
        const struct call *call = &history->calls[i];
        same = call->says != SAYS_HELD || (call->share_count && shares_equal(call, keys[call->key].held));
        if (!same)
            snprintf(message, MESSAGE_SIZE,
                     "key %u: two answers name different permits (the first tokens: %llu and %llu)", call->key,
                     (unsigned long long)keys[call->key].held->shares[0].token,
                     (unsigned long long)call->shares[0].token);
    }
    free(keys);
    return same;
}

/* One grant in one semaphore. */
struct grant {
    uint64_t token;
    int64_t asked_us; /* granted not before this time */
    int64_t known_us; /* granted not after this time */
    unsigned key;
};

static int compare_asked(const void *a, const void *b)
{
    const struct grant *x = a, *y = b;
    return (x->asked_us > y->asked_us) - (x->asked_us < y->asked_us);
}

static int compare_known(const void *a, const void *b)
{
    const struct grant *x = *(const struct grant *const *)a, *y = *(const struct grant *const *)b;
    return (x->known_us > y->known_us) - (x->known_us < y->known_us);
}

static int compare_token(const void *a, const void *b)
{
    const struct grant *x = *(const struct grant *const *)a, *y = *(const struct grant *const *)b;
    return (x->token > y->token) - (x->token < y->token);
}

/* Checks that no token occurs twice. Sorts `order` by token. */
static bool tokens_differ(struct grant **order, size_t count, const char *name, char message[MESSAGE_SIZE])
{
    qsort(order, count, sizeof(order[0]), compare_token);
    for (size_t i = 1; i < count; i++)
        if (order[i]->token == order[i - 1]->token) {
            snprintf(message, MESSAGE_SIZE, "%s: token %llu was given to key %u and to key %u", name,
                     (unsigned long long)order[i]->token, order[i - 1]->key, order[i]->key);
            return false;
        }
    return true;
}

/* Walks the grants in the order of their requests, and in parallel those known before each of them. */
static bool tokens_rise(const struct grant *grants, struct grant **order, size_t count, const char *name,
                        char message[MESSAGE_SIZE])
{
    const struct grant *largest = NULL;
    size_t known = 0;
    qsort(order, count, sizeof(order[0]), compare_known);
    for (size_t i = 0; i < count; i++) {
        for (; known < count && order[known]->known_us < grants[i].asked_us; known++)
            if (!largest || order[known]->token > largest->token)
                largest = order[known];
        if (largest && grants[i].token <= largest->token) {
            snprintf(message, MESSAGE_SIZE, "%s: key %u asked after key %u was known to have token %llu, and got %llu",
                     name, grants[i].key, largest->key, (unsigned long long)largest->token,
                     (unsigned long long)grants[i].token);
            return false;
        }
    }
    return true;
}

static size_t grants_of(const struct key_summary *keys, size_t key_count, unsigned semaphore, struct grant *ret_grants)
{
    size_t count = 0;
    for (size_t i = 0; i < key_count; i++)
        for (size_t j = 0; keys[i].held && j < keys[i].held->share_count; j++) {
            const struct share *share = &keys[i].held->shares[j];
            if (share->semaphore == semaphore)
                ret_grants[count++] =
                    (struct grant){share->token, keys[i].first_asked, keys[i].first_known, (unsigned)i};
        }
    return count;
}

bool check_tokens(const struct history *history, const struct facts *facts, char message[MESSAGE_SIZE])
{
    size_t key_count;
    struct key_summary *keys = key_summaries(history, facts, &key_count);
    struct grant *grants = calloc(key_count * SHARES_MAX + 1, sizeof(*grants));
    struct grant **order = calloc(key_count * SHARES_MAX + 1, sizeof(struct grant *));
    if (!grants || !order)
        abort();
    bool good = true;
    for (unsigned s = 0; s < facts->count && good; s++) {
        size_t count = grants_of(keys, key_count, s, grants);
        qsort(grants, count, sizeof(grants[0]), compare_asked);
        for (size_t i = 0; i < count; i++)
            order[i] = &grants[i];
        const char *name = facts->semaphores[s].name;
        good = tokens_differ(order, count, name, message) && tokens_rise(grants, order, count, name, message);
    }
    free(order);
    free(grants);
    free(keys);
    return good;
}

/* ---- single keys ---- */

/* Why the call contradicts the other calls of its key, or NULL. */
static const char *contradiction(const struct call *call, const struct key_summary *key)
{
    bool after_known = call->sent_us > key->first_known;
    bool before_end = call->answered_us < key->held_until;
    if (call->says == SAYS_HELD && call->sent_us > key->end_known)
        return "is held again after its end was acknowledged";
    if (call->says == SAYS_ENDED && before_end)
        return "has ended before its release was sent and before its lease ended";
    if (call->says == SAYS_NO_CAPACITY && after_known && before_end)
        return "got \"no capacity\" while it was held";
    if (call->says == SAYS_UNKNOWN && (after_known || call->sent_us > key->end_known))
        return "is unknown though it was granted or released";
    if (call->kind == CALL_RELEASE && call->status == 409 && call->answered_us < key->confirm_sent)
        return "is answered as confirmed before a confirm was sent";
    return NULL;
}

bool check_ends(const struct history *history, const struct facts *facts, char message[MESSAGE_SIZE])
{
    size_t count;
    struct key_summary *keys = key_summaries(history, facts, &count);
    const char *why = NULL;
    for (size_t i = 0; i < history->count && !why; i++) {
        const struct call *call = &history->calls[i];
        why = contradiction(call, &keys[call->key]);
        if (why)
            snprintf(message, MESSAGE_SIZE, "key %u %s (call sent at %lld us)", call->key, why,
                     (long long)call->sent_us);
    }
    free(keys);
    return !why;
}

/* ---- the fenced store ---- */

/* One write to one slot. */
struct write {
    unsigned semaphore;
    unsigned slot;
    uint64_t token;
    const struct call *call;
};

static int compare_writes(const void *a, const void *b)
{
    const struct write *x = a, *y = b;
    if (x->semaphore != y->semaphore)
        return x->semaphore < y->semaphore ? -1 : 1;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    return (x->call->sent_us > y->call->sent_us) - (x->call->sent_us < y->call->sent_us);
}

/* The writes that the store accepted, by slot and time. The caller frees the list. */
static struct write *writes_of(const struct history *history, size_t *ret_count)
{
    struct write *writes = calloc(history->count * SHARES_MAX * SLOTS_MAX + 1, sizeof(*writes));
    size_t count = 0;
    if (!writes)
        abort();
    for (size_t i = 0; i < history->count; i++) {
        const struct call *call = &history->calls[i];
        for (size_t j = 0; call->says == SAYS_ACCEPTED && j < call->share_count; j++)
            for (size_t k = 0; k < SLOTS_MAX && call->shares[j].slots[k]; k++)
                writes[count++] =
                    (struct write){call->shares[j].semaphore, call->shares[j].slots[k], call->shares[j].token, call};
    }
    qsort(writes, count, sizeof(writes[0]), compare_writes);
    *ret_count = count;
    return writes;
}

/* Checks that no slot accepted a write that was sent after a newer one was answered. */
static bool writes_rise(const struct history *history, const struct facts *facts, char message[MESSAGE_SIZE])
{
    size_t count;
    struct write *writes = writes_of(history, &count);
    bool rise = true;
    for (size_t i = 0; i < count && rise; i++)
        for (size_t j = i; j-- > 0 && rise;) {
            const struct write *before = &writes[j], *write = &writes[i];
            if (before->semaphore != write->semaphore || before->slot != write->slot || i - j > 64)
                break;
            rise = before->call->answered_us >= write->call->sent_us || before->token <= write->token;
            if (!rise)
                snprintf(message, MESSAGE_SIZE, "%s, slot %u: the store took token %llu after %llu",
                         facts->semaphores[write->semaphore].name, write->slot, (unsigned long long)write->token,
                         (unsigned long long)before->token);
        }
    free(writes);
    return rise;
}

bool check_fence(const struct history *history, const struct facts *facts, char message[MESSAGE_SIZE])
{
    size_t count;
    struct key_summary *keys = key_summaries(history, facts, &count);
    bool good = true;
    for (size_t i = 0; i < history->count && good; i++) {
        const struct call *call = &history->calls[i];
        const struct key_summary *key = &keys[call->key];
        good = call->says != SAYS_REFUSED || call->sent_us < key->first_known || call->answered_us > key->held_until;
        if (!good)
            snprintf(message, MESSAGE_SIZE, "the store refused key %u, which was held", call->key);
    }
    free(keys);
    return good && writes_rise(history, facts, message);
}

/* Statuses of each call when there are no faults; each row ends with 0. */
static const int allowed[][8] = {
    [CALL_ACQUIRE] = {200, 201, 410, 423, 0},
    [CALL_RELEASE] = {200, 409, 0},
    [CALL_QUERY] = {200, 404, 0},
    [CALL_RENEW] = {200, 410, 0},
    [CALL_CONFIRM] = {200, 410, 0},
    [CALL_WRITE] = {200, 0},
};

static bool status_allowed(const struct call *call, bool faults)
{
    for (const int *status = allowed[call->kind]; *status; status++)
        if (*status == call->status)
            return true;
    if (call->kind == CALL_ACQUIRE && call->wait_us && call->status == 503)
        return true; /* the key was asked for at another permitd, and its place went there */
    return faults && (call->status == 0 || call->status == 429 || call->status == 503);
}

bool check_statuses(const struct history *history, bool faults, char message[MESSAGE_SIZE])
{
    static const char *const words[] = {"acquire", "release", "look", "renew", "confirm", "write"};
    for (size_t i = 0; i < history->count; i++) {
        const struct call *call = &history->calls[i];
        if (status_allowed(call, faults))
            continue;
        snprintf(message, MESSAGE_SIZE, "%s of key %u was answered with status %d", words[call->kind], call->key,
                 call->status);
        return false;
    }
    return true;
}
