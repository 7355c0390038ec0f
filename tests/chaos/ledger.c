/* SPDX-License-Identifier: MIT */
/* The checkers C2, C5 and C6, and the part of C7 about expiry. */
#include "ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SWEEP_US       5000000 /* longest delay of expiry */
/* If the clock goes back, the lease clock goes back to its last tick; after a jump forward just before, by 5 s more. */
#define STEP_BEFORE_US 7000000
#define STEP_AFTER_US  12000000

static int compare_shares(const void *a, const void *b)
{
    const struct share *x = a, *y = b;
    return (x->semaphore > y->semaphore) - (x->semaphore < y->semaphore);
}

void ledger_add(struct ledger *ledger, const struct entry *entry)
{
    if (ledger->count == ledger->room) {
        ledger->room = 2 * ledger->room + 1024;
        ledger->entries = realloc(ledger->entries, ledger->room * sizeof(ledger->entries[0]));
        if (!ledger->entries)
            abort();
    }
    struct entry *copy = &ledger->entries[ledger->count++];
    *copy = *entry;
    qsort(copy->shares, copy->share_count, sizeof(copy->shares[0]), compare_shares);
}

void ledger_release(struct ledger *ledger)
{
    free(ledger->entries);
    *ledger = (struct ledger){NULL, 0, 0};
}

static void *calloc_or_abort(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (!memory)
        abort();
    return memory;
}

/* ---- C2 ---- */

struct grant {
    const struct entry *entry;
    const struct share *share;
};

static int compare_tokens(const void *a, const void *b)
{
    const struct grant *x = a, *y = b;
    return (x->share->token > y->share->token) - (x->share->token < y->share->token);
}

/* Sorted by token. The caller frees the list. */
static struct grant *grants_of(const struct ledger *ledger, unsigned semaphore, size_t *ret_count)
{
    struct grant *grants = calloc_or_abort(ledger->count, sizeof(*grants));
    size_t count = 0;
    for (size_t i = 0; i < ledger->count; i++)
        for (size_t j = 0; j < ledger->entries[i].share_count; j++)
            if (ledger->entries[i].shares[j].semaphore == semaphore)
                grants[count++] = (struct grant){&ledger->entries[i], &ledger->entries[i].shares[j]};
    qsort(grants, count, sizeof(grants[0]), compare_tokens);
    *ret_count = count;
    return grants;
}

/* A time near a clock step may really have been this much earlier. */
static int64_t slack_at(const struct facts *facts, int64_t served_us)
{
    for (size_t i = 0; i < facts->leap_count; i++) {
        int64_t since = served_us - facts->leaps[i].served_us;
        if (since > -STEP_BEFORE_US && since < STEP_AFTER_US)
            return STEP_BEFORE_US;
    }
    return 0;
}

static bool share_a_slot(const struct share *a, const struct share *b)
{
    for (size_t i = 0; i < SLOTS_MAX && a->slots[i]; i++)
        for (size_t j = 0; j < SLOTS_MAX && b->slots[j]; j++)
            if (a->slots[i] == b->slots[j])
                return true;
    return false;
}

/* The holders at the current point of the replay. */
struct holders {
    const struct grant **list;
    size_t count;
    uint64_t units;
    const struct grant *in_way; /* the holder of a slot that is granted again */
};

static void holders_end(struct holders *holders, int64_t until_us)
{
    size_t kept = 0;
    for (size_t i = 0; i < holders->count; i++) {
        if (holders->list[i]->entry->ended_us > until_us)
            holders->list[kept++] = holders->list[i];
        else
            holders->units -= holders->list[i]->share->count;
    }
    holders->count = kept;
}

/* Why the grant is impossible, or NULL. */
static const char *replay_grant(struct holders *holders, const struct grant *grant, unsigned capacity)
{
    for (size_t i = 0; i < holders->count; i++)
        if (share_a_slot(holders->list[i]->share, grant->share)) {
            holders->in_way = holders->list[i];
            return "got a slot that is held";
        }
    holders->list[holders->count++] = grant;
    holders->units += grant->share->count;
    return holders->units > capacity ? "exceeds the capacity" : NULL;
}

static const char *replay_one(struct holders *holders, const struct grant *grant, const struct grant *before,
                              const struct facts *facts)
{
    const struct entry *entry = grant->entry;
    int64_t slack = slack_at(facts, entry->acquired_us);
    if (entry->acquired_us == ENTRY_NEVER)
        return "has a permit and was never granted";
    if (before && before->share->token == grant->share->token)
        return "has the token of another one";
    if (before && entry->acquired_us + slack < before->entry->acquired_us)
        return "was granted before one with a smaller token";
    if (entry->ended_us != ENTRY_NEVER && entry->ended_us + slack < entry->acquired_us)
        return "ended before it was granted";
    holders_end(holders, entry->acquired_us + slack);
    return replay_grant(holders, grant, facts->semaphores[grant->share->semaphore].capacity);
}

static bool replay_semaphore(const struct ledger *ledger, const struct facts *facts, unsigned semaphore,
                             char message[MESSAGE_SIZE])
{
    size_t count;
    struct grant *grants = grants_of(ledger, semaphore, &count);
    struct holders holders = {.list = calloc_or_abort(count, sizeof(struct grant *))};
    const char *why = NULL;
    for (size_t i = 0; i < count && !why; i++) {
        const struct entry *entry = grants[i].entry;
        why = replay_one(&holders, &grants[i], i ? &grants[i - 1] : NULL, facts);
        if (why)
            snprintf(message, MESSAGE_SIZE, "%s, token %llu: key %u %s (acquired %lld us, ended %lld us)",
                     facts->semaphores[semaphore].name, (unsigned long long)grants[i].share->token, entry->key, why,
                     (long long)entry->acquired_us, (long long)entry->ended_us);
        size_t length = why ? strlen(message) : 0;
        if (why && holders.in_way)
            snprintf(message + length, MESSAGE_SIZE - length,
                     ", by key %u with token %llu (acquired %lld us, ended %lld us)", holders.in_way->entry->key,
                     (unsigned long long)holders.in_way->share->token, (long long)holders.in_way->entry->acquired_us,
                     (long long)holders.in_way->entry->ended_us);
    }
    free(holders.list);
    free(grants);
    return !why;
}

/* Why the row is inconsistent, or NULL. */
static const char *inconsistency(const struct entry *entry)
{
    if (entry->torn)
        return "has a permit that `held` does not tell rightly";
    if (entry->acquired && !entry->share_count)
        return "is held and has no permits";
    if (entry->acquired != (entry->end == ENTRY_HELD) || entry->acquired != (entry->ended_us == ENTRY_NEVER))
        return "is neither held nor ended";
    return NULL;
}

static bool all_consistent(const struct ledger *ledger, char message[MESSAGE_SIZE])
{
    for (size_t i = 0; i < ledger->count; i++) {
        const char *why = inconsistency(&ledger->entries[i]);
        if (why) {
            snprintf(message, MESSAGE_SIZE, "key %u %s", ledger->entries[i].key, why);
            return false;
        }
    }
    return true;
}

bool check_replay(const struct ledger *ledger, const struct facts *facts, char message[MESSAGE_SIZE])
{
    bool good = all_consistent(ledger, message);
    for (unsigned i = 0; i < facts->count && good; i++)
        good = replay_semaphore(ledger, facts, i, message);
    return good;
}

/* ---- C5 ---- */

/* Sorted by key. The caller frees the list. */
static const struct entry **entries_by_key(const struct ledger *ledger, size_t *ret_count)
{
    size_t count = 0;
    for (size_t i = 0; i < ledger->count; i++)
        if (ledger->entries[i].key >= count)
            count = ledger->entries[i].key + 1;
    const struct entry **entries = calloc_or_abort(count, sizeof(struct entry *));
    for (size_t i = 0; i < ledger->count; i++)
        entries[ledger->entries[i].key] = &ledger->entries[i];
    *ret_count = count;
    return entries;
}

static bool shares_as_granted(const struct entry *entry, const struct call *call)
{
    if (entry->share_count != call->share_count)
        return false;
    for (size_t i = 0; i < call->share_count; i++) {
        const struct share *x = &entry->shares[i], *y = &call->shares[i];
        if (x->semaphore != y->semaphore || x->count != y->count || x->token != y->token ||
            memcmp(x->slots, y->slots, sizeof(x->slots)))
            return false;
    }
    return true;
}

/* `call` is an acquire, which has the requested units. */
static bool shares_as_wanted(const struct entry *entry, const struct call *call)
{
    if (entry->share_count != call->share_count)
        return false;
    for (size_t i = 0; i < call->share_count; i++)
        if (entry->shares[i].semaphore != call->shares[i].semaphore || entry->shares[i].count != call->shares[i].count)
            return false;
    return true;
}

/* Possible effects of the calls of one key. */
struct deeds {
    bool released;  /* a release was sent */
    bool confirmed; /* a confirm was sent */
};

/* Why this call and the row of its key contradict each other, or NULL. */
static const char *contradiction(const struct call *call, const struct entry *entry)
{
    if (call->says == SAYS_HELD && !entry)
        return "was granted and has no row";
    if (call->says == SAYS_HELD && !shares_as_granted(entry, call))
        return "has other permits than its answer";
    if (call->says == SAYS_ENDED && !entry)
        return "has ended and has no row";
    if (call->says == SAYS_ENDED && entry->acquired)
        return "is held though its end was acknowledged";
    if (call->kind == CALL_ACQUIRE && entry && entry->end != ENTRY_NEVER_HELD && !shares_as_wanted(entry, call))
        return "has not all the permits that it asked for";
    return NULL;
}

static const char *unrequested_end(const struct entry *entry, const struct deeds *deeds)
{
    if ((entry->end == ENTRY_RELEASED || entry->end == ENTRY_NEVER_HELD) && !deeds->released)
        return "is released without a release being sent";
    if (entry->confirmed && !deeds->confirmed)
        return "is confirmed without a confirm being sent";
    return NULL;
}

bool check_kept(const struct ledger *ledger, const struct history *history, const struct facts *facts,
                char message[MESSAGE_SIZE])
{
    (void)facts;
    size_t count, key_end = history_key_end(history);
    const struct entry **entries = entries_by_key(ledger, &count);
    struct deeds *deeds = calloc_or_abort(key_end > count ? key_end : count, sizeof(*deeds));
    const char *why = NULL;
    unsigned key = 0;
    for (size_t i = 0; i < history->count && !why; i++) {
        const struct call *call = &history->calls[i];
        key = call->key;
        deeds[key].released |= call->kind == CALL_RELEASE;
        deeds[key].confirmed |= call->kind == CALL_CONFIRM;
        why = contradiction(call, key < count ? entries[key] : NULL);
    }
    for (size_t i = 0; i < ledger->count && !why; i++) {
        key = ledger->entries[i].key;
        why = unrequested_end(&ledger->entries[i], &deeds[key]);
    }
    if (why)
        snprintf(message, MESSAGE_SIZE, "key %u %s", key, why);
    free(deeds);
    free(entries);
    return !why;
}

/* ---- C6 ---- */

/*
 * The latest possible end of the lease of each key: counted from the last answer to a call that may have extended it,
 * or from the end of the faults if that call has no answer. The caller frees the list.
 */
static int64_t *latest_ends(const struct history *history, int64_t quiet_us, size_t count)
{
    int64_t *ends = calloc_or_abort(count, sizeof(*ends));
    for (size_t i = 0; i < history->count; i++) {
        const struct call *call = &history->calls[i];
        if (call->kind != CALL_ACQUIRE && call->kind != CALL_RENEW)
            continue;
        bool open = call->says == SAYS_NOTHING && call->answered_us < quiet_us;
        int64_t from = open ? quiet_us : call->answered_us;
        int64_t end = call->lease_us ? from + call->lease_us : INT64_MAX;
        if (end > ends[call->key])
            ends[call->key] = end;
    }
    return ends;
}

bool check_quiet(const struct ledger *ledger, const struct history *history, const struct facts *facts,
                 int64_t quiet_us, int64_t read_us, char message[MESSAGE_SIZE])
{
    size_t count = history_key_end(history);
    int64_t *ends = latest_ends(history, quiet_us, count);
    bool good = all_consistent(ledger, message) && check_kept(ledger, history, facts, message);
    for (size_t i = 0; i < ledger->count && good; i++) {
        const struct entry *entry = &ledger->entries[i];
        int64_t end = entry->key < count ? ends[entry->key] : INT64_MAX;
        good = !entry->acquired || entry->confirmed || end == INT64_MAX || read_us <= end + SWEEP_US;
        if (!good)
            snprintf(message, MESSAGE_SIZE, "key %u is held %lld ms after its lease was over", entry->key,
                     (long long)(read_us - end) / 1000);
    }
    free(ends);
    return good;
}

/* ---- C7 ---- */

static const char *expiry_fault(const struct entry *entry, int64_t beyond_us, int64_t early_us, int64_t late_us)
{
    if (entry->end == ENTRY_STALE || entry->end == ENTRY_FORCED || entry->end == ENTRY_OWNER_DEAD)
        return "was ended for a reason that does not occur in this run";
    if (entry->end != ENTRY_EXPIRED)
        return NULL;
    if (!entry->ttl_us || entry->confirmed)
        return "expired and had no lease";
    if (beyond_us < -early_us)
        return "expired before its lease was over";
    return !entry->renewals && beyond_us > late_us ? "was held far beyond its lease" : NULL;
}

bool check_expiry(const struct ledger *ledger, const struct facts *facts, int64_t late_us, int64_t *ret_latest_us,
                  char message[MESSAGE_SIZE])
{
    int64_t latest = 0;
    const char *why = NULL;
    for (size_t i = 0; i < ledger->count && !why; i++) {
        const struct entry *entry = &ledger->entries[i];
        bool expired = entry->end == ENTRY_EXPIRED && entry->acquired_us != ENTRY_NEVER;
        int64_t beyond = expired ? entry->ended_us - entry->acquired_us - entry->ttl_us : 0;
        why = expiry_fault(entry, beyond, facts->early_us, late_us);
        if (why)
            snprintf(message, MESSAGE_SIZE, "key %u %s (by %lld ms)", entry->key, why, (long long)beyond / 1000);
        if (!entry->renewals && beyond > latest)
            latest = beyond;
    }
    if (!why)
        *ret_latest_us = latest;
    return !why;
}
