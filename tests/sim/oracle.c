/* SPDX-License-Identifier: MIT */
#include "oracle.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "exchange.h"
#include "run.h"

enum { STEPS = 600, STEP_SIZE = 200 };

/* P8: a permit ends at most so early, and if a permitd was stopped or an answer lost: */
#define EARLY_US          (1LL * US_PER_SECOND)
#define TROUBLED_EARLY_US (5LL * US_PER_SECOND)
/* The own clock of a permitd is behind the database's lease clock by at most this, if nothing has failed. */
#define OWN_LAG_US        (1500LL * US_PER_MS)
/* After trouble: until all have seen a tick in time. */
#define TROUBLE_LASTS_US  (8LL * US_PER_SECOND)
/* P7: the own clock of a permitd may lag, and the expiry task of one that has not ticked waits. */
#define LATE_US           (4LL * US_PER_SECOND)
/*
 * P13: every request is answered within its time limit plus 1 s. HTTP does not wait for a database call; the simulation
 * does.
 */
#define ANSWER_US         (14LL * US_PER_SECOND)
/* In a calm run a request that is answered later than this has waited. */
#define PARKED_US         (70LL * US_PER_MS)

struct profile profile;
struct counts counts;

static mono_us troubled_at = -TROUBLE_LASTS_US, restarted_at = -TROUBLE_LASTS_US;
bool steps_wanted;

static const struct transaction *committing;

static mono_us wait_ended_at; /* of the last waiter */

static char steps[STEPS][STEP_SIZE];
static unsigned step_count;

/* The stories that surely hold units of a semaphore, by their answers. */
static struct sure {
    struct story *stories[SLOTS_MAX * 4];
    size_t count;
} sure[SEMAPHORES_MAX]; /* indexed like database.semaphores */

/* ---- steps and violations ---- */

void step_write(const char *format, ...)
{
    char *line = steps[step_count++ % STEPS];
    int length = snprintf(line, STEP_SIZE, "%10.6f p%d ", (double)sim_now() / (double)US_PER_SECOND, process_current());
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + length, (size_t)(STEP_SIZE - length), format, arguments);
    va_end(arguments);
}

void violation(const char *promise, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (unsigned i = step_count > STEPS ? step_count - STEPS : 0; i < step_count; i++)
        printf("  %s\n", steps[i % STEPS]);
    run_violated(promise, text);
}

/* ---- the clock ---- */

void oracle_troubled(void)
{
    troubled_at = sim_now();
}

void oracle_restarted(void)
{
    restarted_at = sim_now();
}

int64_t oracle_early_us(mono_us granted_at)
{
    return granted_at > troubled_at + TROUBLE_LASTS_US ? EARLY_US : TROUBLED_EARLY_US;
}

/* ---- stories ---- */

struct story *story_new(struct db_key *key)
{
    struct story *story = calloc(1, sizeof *story);
    if (!story)
        abort();
    story->key = key;
    key->story = story;
    list_init(&story->acquires);
    return story;
}

bool story_is_specific(const struct story *story)
{
    for (size_t i = 0; i < story->want_count; i++)
        if (want_is_specific(&story->wants[i]))
            return true;
    return false;
}

static bool surely_holds(const struct story *story)
{
    return story->surely_held && !story->release_sent && !story->lost && !story->exchanges &&
           sim_now() < story->surely_until - oracle_early_us(story->first_sent_at);
}

/* The slots of a semaphore that a client was answered to hold, a bit per slot. */
static uint32_t answered_slots(const struct story *story, const struct db_semaphore *semaphore)
{
    for (size_t i = 0; i < story->want_count; i++)
        if (story->semaphores[i] == semaphore)
            return story->slots[i];
    return 0;
}

/*
 * P10: the grants of one slot follow each other. A permitd that was stopped may answer when the grant has already
 * ended.
 */
static void check_answered_slots(const struct sure *list, const struct story *story,
                                 const struct db_semaphore *semaphore)
{
    if (!surely_holds(story))
        return;
    for (size_t i = 0; i < list->count; i++)
        if (list->stories[i] != story && answered_slots(list->stories[i], semaphore) & answered_slots(story, semaphore))
            violation("P10", "%s and %s were both answered to hold the same slot of %s", list->stories[i]->key->text,
                      story->key->text, semaphore->name);
}

/* P1, by the answers alone. */
static void count_sure(struct story *story)
{
    if (story->surely_held || story->release_sent || story->lost || story->exchanges || profile.capacity_changes)
        return;
    story->surely_held = true;
    for (size_t i = 0; i < story->want_count; i++) {
        const struct db_semaphore *semaphore = story->semaphores[i];
        struct sure *list = &sure[semaphore - database.semaphores];
        const struct semaphore *row = &semaphore->row.semaphore;
        int64_t units = 0;
        size_t kept = 0;
        for (size_t j = 0; j < list->count; j++)
            if (surely_holds(list->stories[j]))
                list->stories[kept++] = list->stories[j];
        list->count = kept;
        if (kept == ARRAY_LENGTH(list->stories))
            violation("P1", "more clients hold %s than it has units", semaphore->name);
        check_answered_slots(list, story, semaphore);
        list->stories[list->count++] = story;
        for (size_t j = 0; j < list->count; j++)
            for (size_t k = 0; k < list->stories[j]->want_count; k++)
                if (list->stories[j]->semaphores[k] == semaphore && surely_holds(list->stories[j]))
                    units += list->stories[j]->wants[k].count;
        if (units > row->capacity)
            violation("P1", "by their answers clients hold %lld units of %s, which has %lld", (long long)units,
                      semaphore->name, (long long)row->capacity);
    }
}

/* ---- rows ---- */

/* True if the request is confirmed after this commit. */
static bool is_confirmed_after(const struct changes *changes, const struct db_key *key)
{
    for (size_t i = 0; i < changes->request_count; i++)
        if (bytes_equal(changes->requests[i].request->external_id, key->external_id) && !changes->requests[i].remove)
            return changes->requests[i].request->confirmed_at != NEVER;
    return key->row.exists && key->row.request.confirmed_at != NEVER;
}

/* P2: the commit that confirms a request of a basket confirms the others, unless they are. */
static void check_basket(const struct changes *changes, const struct db_key *key, const struct request *after)
{
    const struct basket *basket = key->story ? key->story->basket : NULL;
    bool confirms = after->confirmed_at != NEVER && (!key->row.exists || key->row.request.confirmed_at == NEVER);
    for (size_t i = 0; confirms && basket && i < basket->count; i++) {
        const struct db_key *other = basket->stories[i]->key;
        if (!is_confirmed_after(changes, other))
            violation("P2", "%s is confirmed without %s, which was to be confirmed with it", key->text, other->text);
    }
}

/* A transaction that changes a request, its permits or its slots holds the X locks of all its semaphores. */
void oracle_commits(const struct transaction *transaction)
{
    const struct changes *changes = transaction->changes;
    committing = transaction;
    exchange_check_locks(transaction);
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request *request = changes->requests[i].request;
        for (size_t j = 0; j < request->permit_count; j++)
            if (database_semaphore(request->permits[j].semaphore_id)->lock.holder != transaction)
                violation("P2", "%.*s is changed by a transaction that has not locked all its semaphores",
                          (int)request->external_id.length, request->external_id.data);
        const struct request_row *row = &database_key(request->external_id)->row;
        if (!changes->requests[i].remove)
            check_basket(changes, database_key(request->external_id), request);
        for (size_t j = 0; j < row->place_count; j++)
            if (!database_semaphore(row->places[j].semaphore_id) ||
                database_semaphore(row->places[j].semaphore_id)->lock.holder != transaction)
                violation("P2", "%s waits, and is changed by a transaction that has not locked all its semaphores",
                          database_key(request->external_id)->text);
    }
    counts.labelled += changes->label_count > 0;
}

bool want_lists(const struct want *want, const struct db_semaphore_row *row, uint32_t number)
{
    struct bytes label = slot_label(row, number);
    for (size_t i = 0; i < want->named_count; i++)
        if (want->named[i].number ? want->named[i].number == number : bytes_equal(want->named[i].label, label))
            return true;
    return want->choice == CHOOSE_LOWEST || (want->choice == CHOOSE_BEST && seat_is_wanted(want, row, number));
}

/* The number of slots in service with this name. */
static int slots_named(const struct slot_name *name, const struct db_semaphore_row *row)
{
    int count = 0;
    for (uint32_t number = 1; number <= row->in_service; number++)
        count += name->number ? name->number == number : bytes_equal(name->label, slot_label(row, number));
    return count;
}

bool want_is_unsatisfiable(const struct want *want, const struct db_semaphore_row *row)
{
    if (row_in_service(row) && want_is_specific(want) && row->semaphore.kind == KIND_COUNTED)
        return true;
    if (!row_in_service(row) || row->semaphore.capacity == 0)
        return false; /* not a matter of the want */
    if (want->count > row->semaphore.capacity)
        return true;
    if (!want_is_specific(want))
        return false;
    if (want->choice == CHOOSE_BEST)
        return !seats_exist(want, row);
    for (size_t i = 0; i < want->named_count; i++)
        if (!slots_named(&want->named[i], row))
            return true;
    int64_t listed = 0;
    int64_t run = 0;
    int64_t longest = 0;
    for (uint32_t number = 1; number <= row->in_service; number++) {
        bool lists = want_lists(want, row, number);
        listed += lists;
        run = lists ? run + 1 : 0;
        longest = max_i64(longest, run);
    }
    bool twice = want->named_count && listed < (int64_t)want->named_count; /* once by number and once by label */
    return twice || want->count > (want->adjacent ? longest : listed);
}

/* The permit has the slots it named, or `count` of these, or adjacent ones, by the current labels. */
static void check_choice(const struct story *story, const struct want *want, const struct db_semaphore_row *semaphore,
                         const struct request_row *row, size_t index)
{
    const struct permit *permit = &row->permits[index];
    counts.certain += want_is_specific(want);
    for (uint32_t i = 0; i < permit->slots.count; i++)
        if (row->labels[index][i] != semaphore->labels[permit->slots.numbers[i]])
            violation("P10", "slot %u was granted to %s under another label than it has", permit->slots.numbers[i],
                      story->key->text);
    for (uint32_t i = 0; i < permit->slots.count; i++) {
        uint32_t number = permit->slots.numbers[i];
        if (!want_lists(want, semaphore, number))
            violation("P10", "%s was granted slot %u, which it has not named", story->key->text, number);
        if (i > 0 &&
            (number <= permit->slots.numbers[i - 1] || (want->adjacent && number != permit->slots.numbers[i - 1] + 1)))
            violation("P10", "%s was granted slots that do not follow each other", story->key->text);
    }
}

/* The permit of this want; of a request that has waited, permits are in the order of semaphore ids. */
static size_t permit_of(const struct story *story, size_t want, const struct request *request)
{
    size_t i = 0;
    while (i < request->permit_count && request->permits[i].semaphore_id != story->semaphores[want]->row.semaphore.id)
        i++;
    return i;
}

/* The times of grants rise with their tokens, if the clock of the database is right and nothing fails. */
static void check_time_of_token(const struct story *story, struct db_semaphore *semaphore, utc_us acquired_at)
{
    if (profile.calm && acquired_at < semaphore->acquired_at)
        violation("P9", "%s was granted %lld us before an earlier token of %s", story->key->text,
                  (long long)(semaphore->acquired_at - acquired_at), semaphore->name);
    semaphore->acquired_at = acquired_at;
}

static void check_grant_is_whole(const struct story *story, const struct request_row *row)
{
    if (row->request.permit_count != story->want_count)
        violation("P2", "%s was granted %zu permits of %zu", story->key->text, row->request.permit_count,
                  story->want_count);
    for (size_t i = 0; i < row->request.permit_count; i++) {
        size_t at = permit_of(story, i, &row->request);
        const struct permit *permit = &row->permits[at];
        struct db_semaphore *semaphore = story->semaphores[i];
        bool slotted = semaphore->row.semaphore.kind == KIND_SLOTTED;
        if (at == row->request.permit_count || !row_in_service(&semaphore->row))
            violation("P2", "%s was granted units of another semaphore than %s", story->key->text, semaphore->name);
        if (permit->count != story->wants[i].count || permit->slots.count != (slotted ? permit->count : 0))
            violation("P2", "%s was granted other units than it asked for", story->key->text);
        check_choice(story, &story->wants[i], &semaphore->row, row, at);
        if (story->wants[i].choice == CHOOSE_BEST)
            seats_check_grant(committing, story, &story->wants[i], semaphore, permit);
        if (permit->token <= semaphore->max_token)
            violation("P9", "%s was granted token %llu of %s, of which %llu was out already", story->key->text,
                      (unsigned long long)permit->token, semaphore->name, (unsigned long long)semaphore->max_token);
        check_time_of_token(story, semaphore, row->request.acquired_at);
    }
}

static bool same_digest(const struct call *call, const struct request_row *row)
{
    return memcmp(call->operation.digest, row->request.digest, DIGEST_SIZE) == 0;
}

/* The only acquire that can have led to this grant, or NULL. */
static struct call *only_acquire(const struct story *story, const struct request_row *row,
                                 const struct request_row *before)
{
    if (story->unknown || list_empty(&story->acquires) || story->acquires.next->next != &story->acquires)
        return NULL;
    struct call *call = LIST_ENTRY(story->acquires.next, struct call, of_key);
    bool waits_there = before->exists && oracle_server_process(before->request.server_id) == call->process &&
                       call->wait_until > sim_now();
    bool by_itself = committing->process == call->process && row->request.server_id == 0;
    return same_digest(call, row) && (waits_there || by_itself) ? call : NULL;
}

/* P22, P17: some acquire asks for it; or it waited by its row, and its permitd does not yet know that its client left. */
static void check_is_asked(const struct db_key *key, const struct story *story, const struct request_row *before)
{
    const struct request_row *row = &key->row;
    if (story->unknown)
        return;
    for (const struct list *node = story->acquires.next; node != &story->acquires; node = node->next)
        if (same_digest(LIST_ENTRY(node, struct call, of_key), row))
            return;
    bool waited = row_is_waiting(before) && before->request.server_id;
    if (waited && row->request.server_id)
        return; /* unclaimed, so it ends soon */
    if (story->left_at && story->left_at >= min_i64(committing->began_at, committing->planned_at))
        return;
    violation(waited ? "P17" : "P5", "%s is granted, but all its acquires were refused or have left", key->text);
}

static void granted(struct db_key *key, struct story *story, const struct request_row *before)
{
    step("%s is granted, due at %lld%s", key->text, (long long)(key->row.request.due_at - SIM_WALL_BASE),
         key->row.request.server_id ? ", unclaimed" : "");
    if (!story->lost && story->grant_answered)
        violation("P3", "%s is granted again", key->text);
    if (!story->lost && story->end_answered)
        violation("P6", "%s is granted after an answer said that it has ended", key->text);
    check_is_asked(key, story, before);
    struct call *call = only_acquire(story, &key->row, before);
    if (call)
        call->ran_alone = true;
    check_grant_is_whole(story, &key->row);
    story->held_from = sim_now();
    story->extended_at = committing->read_at;
    story->held_until = NEVER;
    story->ever_held = true;
}

/* P8: no permit expires before its ttl by the true clock. */
static void check_expiry(const struct story *story, const struct request *request)
{
    if (request->confirmed_at != NEVER)
        violation("P8", "%s was confirmed, and expired", story->key->text);
    if (story->lost || story->extended_at == NEVER)
        return;
    int64_t held_us = sim_now() - story->extended_at + oracle_early_us(story->extended_at);
    if (request->ttl_ms > 0 && held_us < (request->ttl_ms + request->grace_ms) * US_PER_MS)
        violation("P8", "%s expired after %lld us, its ttl is %lld ms and its grace %lld ms", story->key->text,
                  (long long)(sim_now() - story->extended_at), (long long)request->ttl_ms,
                  (long long)request->grace_ms);
}

/* P17: a grant that no client has claimed ends after the time for which its place is kept, and not before. */
static void check_unclaimed_end(const struct story *story)
{
    int64_t held_us = sim_now() - story->extended_at + oracle_early_us(story->extended_at);
    if (!story->lost && story->extended_at != NEVER && held_us < PLACE_KEPT_US)
        violation("P17", "%s expired unclaimed after %lld us", story->key->text,
                  (long long)(sim_now() - story->extended_at));
}

static void ended(struct db_key *key, struct story *story, const struct request_row *before)
{
    const struct request *request = &key->row.request;
    bool expired = request->end_reason == END_EXPIRED || request->end_reason == END_STALE;
    step("%s ends: %s", key->text, end_reason_word(request->end_reason));
    story->held_until = sim_now();
    if (expired && before->ordered)
        violation("P25", "%s has an order, and expires", key->text);
    if (expired && row_is_held(before) && before->request.server_id)
        check_unclaimed_end(story);
    else if (expired)
        check_expiry(story, request);
    else if (!story->release_sent)
        violation("P6", "%s is released, but no release was sent", key->text);
}

/* A renewal, or a claim: the ttl counts from now. */
static void extended(struct db_key *key, struct story *story, const char *how)
{
    step("%s is %s, due at %lld, read at %lld", key->text, how, (long long)(key->row.request.due_at - SIM_WALL_BASE),
         (long long)committing->read_at);
    story->extended_at = committing->read_at;
}

static void check_permits_kept(const struct db_key *key, const struct request_row *before)
{
    const struct request_row *row = &key->row;
    bool had =
        before->exists && before->request.acquired_at != NEVER && before->request.changes == row->request.changes;
    for (size_t i = 0; row->exists && i < row->request.permit_count; i++) {
        if (row->permit_states[i] != row->request.state)
            violation("P2", "%s has ended in part", key->text);
        if (had && before->permits[i].token != row->permits[i].token)
            violation("P3", "%s has another token than before", key->text);
    }
}

static bool is_of_other_payload(const struct request_row *row)
{
    return row->exists && row->request.digest[DIGEST_SIZE - 1];
}

void oracle_watch_late(void)
{
    mono_us disturbed_until = max_i64(troubled_at, restarted_at) + TROUBLE_LASTS_US;
    for (size_t i = 0; i < database.held_count; i++) {
        const struct db_key *key = database.held[i];
        const struct story *story = key->story;
        if (!story || story->lost || story->due_set_at <= disturbed_until || key->row.request.due_at == NEVER)
            continue;
        if (sim_now() - story->due_set_at > story->due_in_us + LATE_US)
            violation("P7", "%s is held %lld ms after it was due", key->text,
                      (long long)(sim_now() - story->due_set_at - story->due_in_us) / US_PER_MS);
    }
}

void oracle_changed(struct db_key *key, const struct request_row *before)
{
    const struct request_row *row = &key->row;
    struct story *story = key->story;
    bool was_held = row_is_held(before);
    if (before->exists && before->request.state == REQUEST_RELEASED && row_is_held(row))
        violation("P11", "%s is held again after its end", key->text);
    if (before->exists && !row->exists && !row_is_waiting(before))
        violation("P3", "%s is deleted", key->text);
    if (before->exists && row->exists && before->request.id != row->request.id && !row_is_waiting(before))
        violation("P3", "the row of %s is replaced by another", key->text);
    check_permits_kept(key, before);
    feed_expect(key, before);
    if (before->exists && before->request.state == REQUEST_RELEASED && row->request.due_at != before->request.due_at)
        violation("P11", "%s is renewed after its end", key->text);
    if (!story) /* no client of the simulation asked for it (contract_cases.c) */
        return;
    if (is_of_other_payload(row))
        story->other_at = sim_now();
    if (row->exists && (!before->exists || row->request.due_at != before->request.due_at)) {
        story->due_was_set_at = story->due_set_at;
        story->due_set_at = committing->read_at;
        story->due_in_us = row->request.due_at - committing->read_tick;
    }
    if ((!before->exists || row_is_waiting(before)) && row->exists && row->request.acquired_at != NEVER) {
        granted(key, story, before); /* possibly released in the same batch */
        was_held = true;
    }
    if (row_is_waiting(row))
        step("%s waits at server %llu, place %lld", key->text, (unsigned long long)row->request.server_id,
             (long long)(row->request.place - SIM_WALL_BASE));
    if (row_is_waiting(before) && !row->exists)
        step("%s waits no longer", key->text);
    exchange_committed(committing, key, before);
    if (was_held && !row_is_held(row))
        ended(key, story, before);
    if (row_is_waiting(before) && row->exists && row->request.state == REQUEST_RELEASED && !was_held &&
        !story->release_sent)
        violation("P6", "%s is released while it waits, but no release was sent", key->text);
    if (row_is_held(before) && before->request.server_id && row_is_held(row) && !row->request.server_id)
        extended(key, story, "claimed");
    if (before->exists && row->request.renewals > before->request.renewals)
        extended(key, story, "renewed");
}

/* Labels are unique in a semaphore. */
static void check_labels(const struct db_semaphore *semaphore)
{
    uint32_t seen = 0;
    for (uint32_t number = 1; number <= semaphore->row.slot_rows; number++) {
        uint32_t bit = semaphore->row.labels[number] ? 1U << semaphore->row.labels[number] : 0;
        if (seen & bit)
            violation("P10", "two slots of %s are called S%u", semaphore->name, semaphore->row.labels[number]);
        seen |= bit;
    }
}

/* C2: the rows of one semaphore are consistent. */
static void check_semaphore(const struct db_semaphore *semaphore)
{
    const struct semaphore *row = &semaphore->row.semaphore;
    bool slotted = row->kind == KIND_SLOTTED;
    int64_t held = 0, confirmed = 0;
    int64_t slots = 0;
    if (!semaphore->row.exists || run_is_contract()) /* whose cases write rows of their own */
        return;
    check_labels(semaphore);
    for (size_t i = 0; i < database.held_count; i++) {
        const struct request_row *request = &database.held[i]->row;
        for (size_t j = 0; j < request->request.permit_count; j++) {
            const struct permit *permit = &request->permits[j];
            if (permit->semaphore_id != row->id)
                continue;
            held += permit->count;
            bool sold = request->request.confirmed_at != NEVER && !(request->request.errand & ERRAND_CONFIRM);
            confirmed += sold ? permit->count : 0;
            if (request->request.due_at < row->next_due_at)
                violation("P7", "%s is due before next_due_at of %s", database.held[i]->text, semaphore->name);
            for (uint32_t k = 0; k < permit->slots.count; k++)
                if (semaphore->row.slots[request->numbers[j][k]] != permit->token)
                    violation("P10", "slot %u of %s is not that of its permit", request->numbers[j][k],
                              semaphore->name);
        }
    }
    if (confirmed != row->confirmed)
        violation("P1", "`confirmed` of %s is %lld, confirmed are %lld", semaphore->name, (long long)row->confirmed,
                  (long long)confirmed);
    if (held != row->in_use)
        violation("P1", "in_use of %s is %lld, held are %lld", semaphore->name, (long long)row->in_use,
                  (long long)held);
    for (uint32_t number = 1; slotted && number <= semaphore->row.slot_rows; number++) {
        slots += semaphore->row.slots[number] != 0;
        if (number <= semaphore->row.in_service && !semaphore->row.slots[number] && number < row->first_free)
            violation("P1", "slot %u of %s is free, first_free is %u", number, semaphore->name, row->first_free);
    }
    if (slotted && slots != row->in_use)
        violation("P1", "%lld slots of %s are held, in_use is %lld", (long long)slots, semaphore->name,
                  (long long)row->in_use);
}

/* P10: of a slot the tokens rise. */
static void check_slot_tokens(struct db_semaphore *semaphore)
{
    for (uint32_t number = 1; number <= semaphore->row.slot_rows && !run_is_contract(); number++) {
        uint64_t token = semaphore->row.slots[number];
        uint64_t *last = &semaphore->slot_tokens[number];
        if (token && token < *last)
            violation("P10", "slot %u of %s is held under token %llu, and was held under %llu", number, semaphore->name,
                      (unsigned long long)token, (unsigned long long)*last);
        *last = token ? token : *last;
    }
}

/* The label of a held slot does not change. */
static void check_labels_kept(const struct db_semaphore *semaphore, const struct db_semaphore_row *before)
{
    for (uint32_t number = 1; number <= before->slot_rows; number++)
        if (semaphore->row.labels[number] != before->labels[number] && semaphore->row.slots[number] &&
            semaphore->row.slots[number] == before->slots[number])
            violation("P10", "the label of slot %u of %s has changed, which is held", number, semaphore->name);
}

void oracle_semaphore_changed(struct db_semaphore *semaphore, const struct db_semaphore_row *before)
{
    const struct semaphore *row = &semaphore->row.semaphore;
    if (row_in_service(&semaphore->row) && !row_in_service(before))
        names_created(semaphore, before, committing->changes);
    if (!row_in_service(&semaphore->row) && row->in_use > 0)
        violation("P1", "%s goes out of service and is held", semaphore->name);
    check_labels_kept(semaphore, before);
    check_slot_tokens(semaphore);
    names_update(semaphore);
    if (row->next_token < before->semaphore.next_token)
        violation("P9", "the next token of %s goes back", semaphore->name);
    if (row->next_token != before->semaphore.next_token && row->in_use > row->capacity)
        violation("P1", "%lld units of %s are held, it has %lld", (long long)row->in_use, semaphore->name,
                  (long long)row->capacity);
    if (row->config_version != before->semaphore.config_version ||
        row->paused_reason.data != before->semaphore.paused_reason.data)
        semaphore->set_at = sim_now();
    semaphore->changed_at = sim_now();
    check_semaphore(semaphore);
}

void oracle_semaphore_undone(struct db_semaphore *semaphore)
{
    semaphore->set_at = semaphore->changed_at = sim_now();
    memcpy(semaphore->slot_tokens, semaphore->row.slots, sizeof semaphore->slot_tokens); /* all that is sure now */
    names_update(semaphore);
}

void oracle_rows_agree(void)
{
    for (size_t i = 0; i < database.semaphore_count; i++)
        check_semaphore(&database.semaphores[i]);
    queue_rows_agree();
}

/* P4: a crash undoes nothing that was answered. A failover to a copy that is behind may lose anything. */
void oracle_undone(struct db_key *key, const struct request_row *undone, bool failover)
{
    struct story *story = key->story;
    step("%s is undone", key->text);
    (void)undone;
    list_for_each (node, next, &story->acquires)
        LIST_ENTRY(node, struct call, of_key)->ran_alone = false;
    if (row_is_held(&key->row))
        story->held_until = NEVER;
    else if (story->held_until == NEVER)
        story->held_until = sim_now();
    story->extended_at = NEVER; /* unknown now */
    story->due_set_at = -1;
    if (failover)
        story->lost = true;
    exchange_undone(key, failover);
    if (story->lost)
        return;
    if (story->grant_answered && (!key->row.exists || row_is_waiting(&key->row)))
        violation("P4", "the answered grant of %s was undone by a crash", key->text);
    if (key->row.exists && key->row.request.renewals < story->renewals_answered)
        violation("P4", "the answered renewal of %s was undone by a crash", key->text);
    if (story->end_answered && (!key->row.exists || key->row.request.state != REQUEST_RELEASED))
        violation("P4", "the answered end of %s was undone by a crash", key->text);
}

/* ---- calls ---- */

/* Writes " s1:2", " s1:2~" for adjacent slots, " s1:2!" for best seats, " s1:2@1,3,S4" for named slots. */
static size_t write_want(const struct want *want, char *at, size_t room)
{
    size_t length = (size_t)snprintf(at, room, " %.*s:%lld%s", (int)want->semaphore.length, want->semaphore.data,
                                     (long long)want->count,
                                     want->adjacent                ? "~"
                                     : want->choice == CHOOSE_BEST ? "!"
                                                                   : "");
    for (size_t i = 0; i < want->named_count; i++) {
        const struct slot_name *name = &want->named[i];
        if (name->number)
            length += (size_t)snprintf(at + length, room - length, "%c%u", i ? ',' : '@', name->number);
        else
            length += (size_t)snprintf(at + length, room - length, "%c%.*s", i ? ',' : '@', (int)name->label.length,
                                       name->label.data);
    }
    return length;
}

static void write_sent(const struct call *call)
{
    char wants[128] = "";
    size_t length = 0;
    for (size_t i = 0; call->operation.kind == OP_ACQUIRE && i < call->story->want_count; i++)
        length += write_want(&call->story->wants[i], wants + length, sizeof wants - length);
    step_write("#%llu sent to p%d: %s %s%s%s", (unsigned long long)call->number, call->process,
               operation_kind_word(call->operation.kind),
               call->story ? call->story->key->text : call->operation.semaphore.data, wants,
               call->wait_until ? ", waits" : "");
}

void oracle_sent(struct call *call)
{
    struct story *story = call->story;
    bool acquires = call->operation.kind == OP_ACQUIRE;
    if (steps_wanted)
        write_sent(call);
    list_init(&call->of_key);
    if (!story)
        return;
    if (acquires)
        list_append(&story->acquires, &call->of_key);
    if (!story->first_sent_at)
        story->first_sent_at = sim_now();
    if (call->operation.kind == OP_RELEASE || call->operation.kind == OP_FORCE_RELEASE)
        story->release_sent = true;
    if (call->exchange)
        exchange_sent(call);
    counts.waited += acquires && call->wait_until;
}

/* The answer says held, or does not exclude it: the key was held at some time since the call was sent. */
static void check_held(const struct call *call, const char *what)
{
    const struct story *story = call->story;
    /* The acquire may have joined a waiter whose batch had begun. */
    mono_us since = call->operation.kind == OP_ACQUIRE ? 0 : call->sent_at;
    if (!story->ever_held || story->held_until < since)
        violation("P6", "%s of %s succeeded, but it was not held", what, story->key->text);
    if (story->end_answered && story->end_answered_at < call->sent_at)
        violation("P6", "%s of %s succeeded after an answer said that it has ended", what, story->key->text);
}

static void record_end(struct story *story)
{
    if (!story->key->row.exists || story->key->row.request.state != REQUEST_RELEASED)
        violation("P6", "%s is answered as ended, but has not ended", story->key->text);
    if (!story->end_answered)
        story->end_answered_at = sim_now();
    story->end_answered = true;
}

/* The slots of the answer, which must have the labels they had at the grant. */
static uint32_t answered_slot_bits(const struct story *story, const struct permit *permit)
{
    const struct request *row = &story->key->row.request;
    uint32_t slots = 0;
    size_t index = 0;
    while (index + 1 < row->permit_count && row->permits[index].semaphore_id != permit->semaphore_id)
        index++;
    for (uint32_t i = 0; i < permit->slots.count; i++) {
        struct bytes label = label_text(story->key->row.labels[index][i]);
        if (permit->labels ? !bytes_equal(permit->labels[i], label) : label.length > 0)
            violation("P10", "slot %u of a grant is called otherwise", permit->slots.numbers[i]);
        slots |= 1U << permit->slots.numbers[i];
    }
    return slots;
}

/* P3: an answer calls a grant new only if the grant has the nonce of its call. The row keeps that nonce. */
static void check_nonce(const struct call *call, const struct outcome *outcome)
{
    const struct story *story = call->story;
    struct bytes kept = story->key->row.request.nonce;
    if (outcome->created && !bytes_equal(outcome->request->nonce, call->operation.nonce))
        violation("P3", "#%llu is answered that %s is granted to it, but it is granted to #%.*s",
                  (unsigned long long)call->number, story->key->text, (int)outcome->request->nonce.length,
                  outcome->request->nonce.data);
    if (story->key->row.exists && !bytes_equal(outcome->request->nonce, kept))
        violation("P3", "#%llu is answered that #%.*s holds %s, but it is granted to #%.*s",
                  (unsigned long long)call->number, (int)outcome->request->nonce.length, outcome->request->nonce.data,
                  story->key->text, (int)kept.length, kept.data);
}

/* P3: all answers have the same tokens. */
static void record_grant(struct call *call, const struct request *request)
{
    struct story *story = call->story;
    check_held(call, "the acquire");
    if (!same_digest(call, &story->key->row))
        violation("P3", "another request under the key %s was granted", story->key->text);
    if (story->exchanges || request->changes)
        exchange_check_shown(story, request);
    for (size_t i = 0; i < story->want_count && !story->exchanges; i++) {
        struct db_semaphore *semaphore = story->semaphores[i];
        size_t at = permit_of(story, i, request);
        if (at == request->permit_count)
            violation("P2", "%s is answered without its units of %s", story->key->text, semaphore->name);
        const struct permit *permit = &request->permits[at];
        if (story->grant_answered && story->tokens[i] != permit->token)
            violation("P3", "%s is answered with another token", story->key->text);
        story->tokens[i] = permit->token;
        story->slots[i] = answered_slot_bits(story, permit);
        if (permit->token > semaphore->max_token)
            semaphore->max_token = permit->token;
    }
    if (!story->grant_answered)
        story->grant_answered_at = sim_now();
    story->grant_answered = true;
    story->surely_until = max_i64(story->surely_until, story->first_sent_at + request->ttl_ms * US_PER_MS);
    count_sure(story);
}

/* P5: the key was not held at some time after the call was sent and after its wait ended. */
static void check_refusal(const struct call *call)
{
    const struct story *story = call->story;
    mono_us from = call->wait_until && call->wait_until <= sim_now() ? call->wait_until : call->sent_at;
    if (story->ever_held && story->held_from <= from && story->held_until == NEVER)
        violation("P5", "%s is answered no_capacity, but is held", story->key->text);
}

/* The units of this semaphore whose holders were due when the call was sent, and are still held. */
static int64_t units_due(const struct semaphore *semaphore, const struct call *call)
{
    utc_us then = lease_time(&database.globals.clock, database_now()) - (sim_now() - call->sent_at) - OWN_LAG_US;
    int64_t units = 0;
    for (size_t i = 0; i < database.held_count; i++) {
        const struct request *request = &database.held[i]->row.request;
        for (size_t j = 0; request->due_at < then && j < request->permit_count; j++)
            if (request->permits[j].semaphore_id == semaphore->id)
                units += request->permits[j].count;
    }
    return units;
}

/* Returns true if others wait, or have waited since the call was sent. */
static bool others_wait(const struct call *call)
{
    if (wait_ended_at >= call->sent_at)
        return true;
    for (size_t i = 0; i < database.waiting_count; i++)
        if (database.waiting[i]->story != call->story)
            return true;
    return false;
}

/* P7: an acquire that needs the units of due holders gets them. Exact if nothing has changed since it was sent. */
static void check_due(const struct call *call)
{
    if (story_is_specific(call->story)) /* the slots of due holders may not be those it names */
        return;
    for (size_t i = 0; i < call->story->want_count; i++) {
        const struct db_semaphore *semaphore = call->story->semaphores[i];
        const struct semaphore *row = &semaphore->row.semaphore;
        if (!row_in_service(&semaphore->row))
            return;
        int64_t room = row->capacity - row->in_use + units_due(row, call);
        if (row->paused_reason.data || semaphore->changed_at >= call->sent_at || call->story->wants[i].count > room)
            return;
    }
    if (!others_wait(call))
        violation("P7", "%s is answered no_capacity, although holders are due", call->story->key->text);
}

/* P7: free seats that are as an acquire wishes are not refused. Exact if nothing has changed since it was sent. */
static void check_best(const struct call *call)
{
    const struct story *story = call->story;
    for (size_t i = 0; i < story->want_count; i++) {
        const struct db_semaphore *semaphore = story->semaphores[i];
        const struct semaphore *row = &semaphore->row.semaphore;
        if (story->wants[i].choice != CHOOSE_BEST || !row_in_service(&semaphore->row) || row->paused_reason.data ||
            semaphore->changed_at >= call->sent_at || story->wants[i].count > row->capacity - row->in_use ||
            !seats_are_free(&story->wants[i], &semaphore->row))
            return;
    }
    if (!others_wait(call))
        violation("P7", "%s is answered no_capacity, although the seats are free", story->key->text);
}

/* Checks "never satisfiable": the want could not be satisfied now or at some time during the call. */
static void check_never_satisfiable(const struct call *call)
{
    const struct story *story = call->story;
    for (size_t i = 0; i < story->want_count; i++) {
        const struct db_semaphore *semaphore = story->semaphores[i];
        bool changed = semaphore->set_at && semaphore->set_at >= call->sent_at;
        if (call->waited && call->operation.priority > semaphore->row.semaphore.max_priority)
            return;
        if (changed || !row_in_service(&semaphore->row) || want_is_unsatisfiable(&story->wants[i], &semaphore->row))
            return;
    }
    violation("P17", "%s is answered as never satisfiable, but can be granted", story->key->text);
}

static bool says_nothing_was_done(enum permit_status status)
{
    return permit_status_retry(status) != PERMIT_RETRY_SAME && status != PERMIT_OK && status != PERMIT_ENDED;
}

static void acquire_answered(struct call *call, const struct decision *decision)
{
    struct story *story = call->story;
    enum permit_status status = decision->status;
    if (status == PERMIT_OK) {
        record_grant(call, decision->outcome->request);
        check_nonce(call, decision->outcome);
        counts.served_after_wait += call->wait_until && sim_now() - call->sent_at > PARKED_US;
    } else if (status == PERMIT_ENDED) {
        record_end(story);
    } else if (says_nothing_was_done(status) && call->ran_alone && !call->left) {
        /*
         * The answer to a client that left while its batch ran reaches nobody. That batch may have found that it waits,
         * and another permitd may have granted it before this one ended its wait: the grant ends unclaimed (P17).
         */
        violation("P5", "%s is answered %s, but its acquire was granted", story->key->text, permit_status_word(status));
    }
    if (status == PERMIT_NO_CAPACITY || status == PERMIT_PAUSED)
        check_refusal(call);
    if (status == PERMIT_NO_CAPACITY && profile.calm && !call->other_payload)
        check_due(call);
    if (status == PERMIT_NO_CAPACITY && profile.calm && !call->other_payload)
        check_best(call);
    if (status == PERMIT_NO_CAPACITY && profile.calm && !call->other_payload)
        walk_check_refusal(call);
    if (status == PERMIT_BUSY && profile.calm)
        violation("P7", "%s is answered busy in a run without faults", story->key->text);
    if (status == PERMIT_NEVER_SATISFIABLE || status == PERMIT_INVALID)
        check_never_satisfiable(call);
    if (status != PERMIT_OK)
        names_refused(call, decision);
    if (says_nothing_was_done(status) && !call->left)
        queue_refused(call, status);
    if (call->left) /* its permitd gives its place up after this batch */
        story->left_at = sim_now();
    if (status == PERMIT_KEY_REUSED && !call->other_payload && story->other_at < call->sent_at &&
        !is_of_other_payload(&story->key->row))
        violation("P3", "%s is answered that its key belongs to another request", story->key->text);
    if (permit_status_retry(status) == PERMIT_RETRY_SAME)
        story->unknown++;
}

/* All requests of the basket are confirmed, or were before their end. */
static void basket_answered(const struct basket *basket)
{
    for (size_t i = 0; i < basket->count; i++) {
        const struct story *story = basket->stories[i];
        if (!story->lost && (!story->key->row.exists || story->key->row.request.confirmed_at == NEVER))
            violation("P4", "%s is answered as confirmed, but is not", story->key->text);
    }
}

/* The story of the key that the answer is about. */
static struct story *story_of_answer(const struct call *call, const struct decision *decision)
{
    bool names_key = decision->outcome && decision->outcome->failed.data;
    return names_key ? database_key(decision->outcome->failed)->story : call->story;
}

static void other_answered(struct call *call, const struct decision *decision)
{
    struct story *story = story_of_answer(call, decision);
    enum operation_kind kind = call->operation.kind;
    if (story->lost)
        return;
    switch (decision->status) {
    case PERMIT_OK:
        if (kind == OP_RELEASE || kind == OP_FORCE_RELEASE || decision->outcome->request->state == REQUEST_RELEASED) {
            record_end(story);
            return;
        }
        if (call->operation.keys)
            basket_answered(story->basket);
        check_held(call, operation_kind_word(kind));
        if (kind == OP_RENEW && decision->outcome->request->renewals > story->renewals_answered)
            story->renewals_answered = decision->outcome->request->renewals;
        if (kind == OP_RENEW)
            story->surely_until =
                max_i64(story->surely_until, call->sent_at + decision->outcome->request->ttl_ms * US_PER_MS);
        break;
    case PERMIT_ENDED: record_end(story); break;
    case PERMIT_UNKNOWN_REQUEST:
        if (story->grant_answered && story->grant_answered_at < call->sent_at)
            violation("P4", "%s is answered as unknown", story->key->text);
        break;
    default: break;
    }
}

void oracle_answered(struct call *call, const struct decision *decision)
{
    step("#%llu answered: %s %s %s%s%s", (unsigned long long)call->number, operation_kind_word(call->operation.kind),
         call->story ? call->story->key->text : "", permit_status_word(decision->status), decision->detail ? ": " : "",
         decision->detail ? decision->detail : "");
    counts.told[call->operation.kind][decision->status]++;
    if (call->waited)
        wait_ended_at = sim_now();
    if (sim_now() > call->op.deadline - SIM_MONO_BASE + ANSWER_US + call->excused_us)
        violation("P13", "#%llu is answered %lld ms after its deadline", (unsigned long long)call->number,
                  (long long)(sim_now() - (call->op.deadline - SIM_MONO_BASE)) / US_PER_MS);
    list_remove(&call->of_key);
    if (decision->status == PERMIT_INTERNAL)
        violation("P18", "#%llu is answered with an internal error", (unsigned long long)call->number);
    if (decision->status == PERMIT_TOO_LARGE)
        violation("P23", "#%llu is too large, although alone it fits into a packet", (unsigned long long)call->number);
    if (!call->story)
        return;
    if (call->story->lost) {
        call->story->unknown += call->operation.kind == OP_ACQUIRE;
        if (call->exchange)
            exchange_unknown(call);
        return;
    }
    if (call->exchange)
        exchange_answered(call, decision);
    if (call->operation.kind == OP_ACQUIRE)
        acquire_answered(call, decision);
    else
        other_answered(call, decision);
}

void oracle_result_unknown(struct call *call)
{
    list_remove(&call->of_key);
    if (call->story && call->operation.kind == OP_ACQUIRE)
        call->story->unknown++;
    if (call->exchange)
        exchange_unknown(call);
}

void oracle_client_left(struct call *call)
{
    step("#%llu left", (unsigned long long)call->number);
    wait_ended_at = sim_now();
    list_remove(&call->of_key);
    counts.abandoned++;
    call->story->left_at = sim_now();
}
