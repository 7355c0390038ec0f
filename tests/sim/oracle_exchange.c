/* SPDX-License-Identifier: MIT */
/*
 * Checks exchanges: each is made once, all of it or nothing, as it was asked for and under the right tokens (P2, P3, P10,
 * P22); what is left alone stays as it was; and each answer shows the permits that the row had.
 */
#include "exchange.h"
#include "world.h"

/* ---- what a row holds ---- */

static uint32_t slot_bits(const struct slots *slots)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < slots->count; i++)
        bits |= 1U << slots->numbers[i];
    return bits;
}

static struct held_units units_of_permit(const struct permit *permit)
{
    return (struct held_units){.semaphore = database_semaphore(permit->semaphore_id),
                               .token = permit->token,
                               .count = permit->count,
                               .slots = slot_bits(&permit->slots)};
}

/* The row may be a copy of an earlier one: its slots are in `numbers`. */
static struct held_state state_of(const struct request_row *row)
{
    struct held_state state = {.known = true, .count = row->request.permit_count};
    for (size_t i = 0; i < state.count; i++) {
        struct permit permit = row->permits[i];
        permit.slots.numbers = (uint32_t *)row->numbers[i];
        state.units[i] = units_of_permit(&permit);
    }
    return state;
}

/* What the state holds of this semaphore; nothing: count 0. */
static struct held_units held_of(const struct held_state *state, const struct db_semaphore *semaphore)
{
    for (size_t i = 0; i < state->count; i++)
        if (state->units[i].semaphore == semaphore)
            return state->units[i];
    return (struct held_units){0};
}

static const struct want *want_of(const struct want *wants, size_t count, const struct db_semaphore *semaphore)
{
    for (size_t i = 0; i < count; i++)
        if (bytes_equal(wants[i].semaphore, bytes_of(semaphore->name)))
            return &wants[i];
    return NULL;
}

int64_t exchange_gives(const struct exchange *exchange, struct bytes semaphore)
{
    for (size_t i = 0; i < exchange->given_count; i++)
        if (bytes_equal(exchange->given[i].semaphore, semaphore))
            return exchange->given[i].count;
    return 0;
}

static bool had_permits(const struct request_row *row)
{
    return row->exists && row->request.acquired_at != NEVER;
}

/* ---- one semaphore of an exchange ---- */

/* The key that is changed, the exchange, the rows before and after it. */
struct change {
    const struct transaction *transaction;
    const struct db_key *key;
    const struct exchange *exchange;
    const struct request_row *before;
    struct held_state was, is;
};

/* The slots that are given back: those that are named, or as many of the highest numbers. */
static uint32_t slots_given(const struct want *given, const struct held_units *was)
{
    uint32_t bits = 0;
    for (size_t i = 0; given && i < given->named_count; i++)
        for (uint32_t number = 1; number <= SLOTS_MAX; number++) {
            const struct slot_name *name = &given->named[i];
            bool same = name->number ? name->number == number
                                     : bytes_equal(name->label, slot_label(&was->semaphore->row, number));
            bits |= same ? 1U << number : 0;
        }
    for (uint32_t number = SLOTS_MAX; given && !given->named_count && number > 0; number--)
        if (was->slots & 1U << number && __builtin_popcount(bits) < given->count)
            bits |= 1U << number;
    return bits;
}

/* The slots that are taken are such as the want accepts. */
static void check_slots_taken(const struct change *change, const struct want *taken,
                              const struct db_semaphore *semaphore, uint32_t bits)
{
    uint32_t last = 0;
    for (uint32_t number = 1; number <= SLOTS_MAX; number++) {
        if (!(bits & 1U << number))
            continue;
        if (!want_lists(taken, &semaphore->row, number) || (taken->adjacent && last && number != last + 1))
            violation("P10", "%s took slot %u of %s, which is none that it asked for", change->key->text, number,
                      semaphore->name);
        last = number;
    }
}

static void check_token(const struct change *change, const struct want *taken, const struct held_units *was,
                        const struct held_units *is)
{
    const char *key = change->key->text;
    const char *semaphore = is->semaphore->name;
    if (!taken && is->token != was->token)
        violation("P10", "%s took nothing of %s, and has another token of it", key, semaphore);
    if (!taken)
        return;
    const struct db_semaphore_row *before = database_semaphore_before(is->semaphore);
    if (!before || is->token < before->semaphore.next_token || is->token <= was->token)
        violation("P10", "%s took units of %s under token %llu, which is not new", key, semaphore,
                  (unsigned long long)is->token);
    if (is->token <= is->semaphore->max_token)
        violation("P9", "%s took units of %s under token %llu, and %llu was out already", key, semaphore,
                  (unsigned long long)is->token, (unsigned long long)is->semaphore->max_token);
}

static void check_units(const struct change *change, struct db_semaphore *semaphore)
{
    const struct exchange *exchange = change->exchange;
    const struct want *given = want_of(exchange->given, exchange->given_count, semaphore);
    const struct want *taken = want_of(exchange->taken, exchange->taken_count, semaphore);
    struct held_units was = held_of(&change->was, semaphore), is = held_of(&change->is, semaphore);
    int64_t count = was.count - (given ? given->count : 0) + (taken ? taken->count : 0);
    if (is.count != count)
        violation("P2", "%s holds %lld of %s after the exchange, and should hold %lld", change->key->text,
                  (long long)is.count, semaphore->name, (long long)count);
    if (is.count == 0)
        return;
    check_token(change, taken, &was, &is);
    uint32_t rest = was.slots & ~slots_given(given, &was);
    if (semaphore->row.semaphore.kind == KIND_COUNTED)
        return;
    if ((is.slots & rest) != rest || __builtin_popcount(is.slots) != is.count)
        violation("P10", "%s has given back other slots of %s than it said", change->key->text, semaphore->name);
    if (taken)
        check_slots_taken(change, taken, semaphore, is.slots & ~rest);
}

/* The slots of the row have the labels of their semaphore, and ascend. */
static void check_labels(const struct db_key *key)
{
    const struct request_row *row = &key->row;
    for (size_t i = 0; row_is_held(row) && i < row->request.permit_count; i++)
        for (uint32_t j = 0; j < row->permits[i].slots.count; j++) {
            uint32_t number = row->numbers[i][j];
            if (row->labels[i][j] != database_semaphore(row->permits[i].semaphore_id)->row.labels[number])
                violation("P10", "slot %u of %s is called otherwise after an exchange", number, key->text);
            if (j > 0 && number <= row->numbers[i][j - 1])
                violation("P10", "the slots of %s do not ascend after an exchange", key->text);
        }
}

/* ---- the record ---- */

static const struct past_permit *past_of(const struct change *change, const struct held_units *was)
{
    const struct changes *changes = change->transaction->changes;
    for (size_t i = 0; i < changes->past_count; i++)
        if (changes->past[i].request_id == change->before->request.id &&
            changes->past[i].permit.semaphore_id == was->semaphore->row.semaphore.id)
            return &changes->past[i];
    return NULL;
}

/* What an exchange changes is in the record as it was; what it leaves alone is not. */
static void check_record(const struct change *change)
{
    const struct exchange *exchange = change->exchange;
    bool ended = !row_is_held(&change->key->row); /* then its permits stay where they are */
    for (size_t i = 0; i < change->was.count; i++) {
        const struct held_units *was = &change->was.units[i];
        const struct past_permit *past = past_of(change, was);
        bool taken = want_of(exchange->taken, exchange->taken_count, was->semaphore);
        bool given = want_of(exchange->given, exchange->given_count, was->semaphore);
        if (!past != (ended || (!taken && !given)))
            violation("P22", "%s: the record of its permits of %s is not that of the exchange", change->key->text,
                      was->semaphore->name);
        if (!past)
            continue;
        struct held_units kept = units_of_permit(&past->permit);
        if (kept.token != was->token || kept.count != was->count || kept.slots != was->slots ||
            past->changes != change->key->row.request.changes ||
            past->end_reason != (taken ? END_REPLACED : END_RELEASED))
            violation("P22", "%s: the record does not have its permit of %s as it was", change->key->text,
                      was->semaphore->name);
    }
}

/* ---- a commit ---- */

static struct exchange *find_exchange(const struct story *story, struct bytes nonce)
{
    struct exchange *exchange = story->exchanges ? story->exchanges->newest : NULL;
    while (exchange && !bytes_equal(bytes_of(exchange->nonce), nonce))
        exchange = exchange->older;
    return exchange;
}

/* P3: the exchange was sent for this number of changes, and is made for the first time. */
static void check_once(const struct change *change)
{
    const struct request *before = &change->before->request, *after = &change->key->row.request;
    const struct exchange *exchange = change->exchange;
    const char *key = change->key->text;
    if (!exchange)
        violation("P22", "%s is exchanged, and no client asked for it", key);
    if (exchange->made)
        violation("P3", "exchange %s of %s is made twice", exchange->nonce, key);
    if (exchange->changes != before->changes || after->changes != before->changes + 1)
        violation("P3", "exchange %s of %s is for %u changes, and is made after %u", exchange->nonce, key,
                  exchange->changes, before->changes);
    if (!exchange->pending && !exchange->unknown)
        violation("P22", "exchange %s of %s is made, and all its calls were refused", exchange->nonce, key);
}

/* The hold is the same, also its deadline, unless a claim or a renewal of the same batch sets it. */
static void check_hold_kept(const struct change *change)
{
    const struct request *before = &change->before->request, *after = &change->key->row.request;
    const char *key = change->key->text;
    if (!row_is_held(change->before))
        violation("P11", "%s is exchanged, and was not held", key);
    if (before->confirmed_at != NEVER)
        violation("P25", "%s is sold, and exchanged", key);
    if (!row_is_held(&change->key->row)) {
        if (!change->exchange->gives_all || after->end_reason != END_RELEASED)
            violation("P6", "%s ends by an exchange that does not give back all", key);
        return;
    }
    if (change->exchange->gives_all)
        violation("P6", "%s has given back all that it holds, and is held", key);
    if (after->server_id)
        violation("P17", "%s is exchanged, and not claimed", key);
    bool extended = before->server_id || after->renewals != before->renewals;
    if (!extended && (after->due_at != before->due_at || after->ttl_ms != before->ttl_ms))
        violation("P7", "%s has another deadline after an exchange", key);
    if (after->acquired_at != before->acquired_at || after->grace_ms != before->grace_ms ||
        memcmp(after->digest, before->digest, DIGEST_SIZE) != 0)
        violation("P3", "%s is another request after an exchange", key);
}

static void check_raised(const struct change *change, const struct held_state *state)
{
    for (size_t i = 0; i < state->count; i++) {
        const struct db_semaphore_row *before = database_semaphore_before(state->units[i].semaphore);
        if (!before || before->semaphore.version == state->units[i].semaphore->row.semaphore.version)
            violation("P2", "%s is exchanged, the version of %s is the same", change->key->text,
                      state->units[i].semaphore->name);
    }
}

static void check_exchange(struct change *change)
{
    check_once(change);
    check_hold_kept(change);
    check_raised(change, &change->was);
    if (row_is_held(&change->key->row)) {
        check_raised(change, &change->is);
        for (size_t i = 0; i < database.semaphore_count; i++)
            if (database.semaphores[i].row.exists)
                check_units(change, &database.semaphores[i]);
        check_labels(change->key);
        walk_check_exchange(change->transaction, change->key, change->exchange);
    }
    check_record(change);
}

void exchange_check_locks(const struct transaction *transaction)
{
    const struct changes *changes = transaction->changes;
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request *before = changes->requests[i].before;
        for (size_t j = 0; changes->requests[i].exchanges && j < before->permit_count; j++)
            if (database_semaphore(before->permits[j].semaphore_id)->lock.holder != transaction)
                violation("P2", "%.*s is exchanged by a transaction that has not locked all its semaphores",
                          (int)before->external_id.length, before->external_id.data);
    }
}

void exchange_committed(const struct transaction *transaction, struct db_key *key, const struct request_row *before)
{
    struct exchanges *exchanges = key->story->exchanges;
    const struct request_row *row = &key->row;
    if (!had_permits(row))
        return;
    bool changed = row->request.changes != (had_permits(before) ? before->request.changes : 0);
    if (changed) {
        struct exchange *exchange = find_exchange(key->story, row->request.change_nonce);
        struct change change = {transaction, key, exchange, before, state_of(before), state_of(row)};
        check_exchange(&change);
        exchange->made = true;
        exchanges->changed_at = sim_now();
        counts.exchanges++;
        step("%s is exchanged: %s, %u changes", key->text, exchange->nonce, row->request.changes);
    }
    if (exchanges && (changed || !had_permits(before)))
        exchanges->states[row->request.changes] = state_of(row);
}

void exchange_undone(struct db_key *key, bool failover)
{
    struct exchanges *exchanges = key->story->exchanges;
    const struct request_row *row = &key->row;
    uint32_t left = had_permits(row) ? row->request.changes + 1 : 0; /* so many states are known */
    if (!exchanges)
        return;
    exchanges->changed_at = sim_now();
    for (uint32_t i = left; i <= CHANGES_MAX; i++)
        exchanges->states[i].known = false;
    for (struct exchange *exchange = exchanges->newest; exchange; exchange = exchange->older) {
        if (!exchange->made || exchange->changes + 1 < left)
            continue;
        exchange->made = false;
        if (exchange->answered && !failover && !key->story->lost)
            violation("P4", "the answered exchange %s of %s was undone by a crash", exchange->nonce, key->text);
    }
}

/* ---- calls ---- */

static struct exchanges *exchanges_new(const struct story *story)
{
    struct exchanges *exchanges = calloc(1, sizeof *exchanges);
    if (!exchanges)
        abort();
    if (had_permits(&story->key->row))
        exchanges->states[story->key->row.request.changes] = state_of(&story->key->row);
    return exchanges;
}

void exchange_sent(struct call *call)
{
    struct story *story = call->story;
    struct exchange *exchange = call->exchange;
    if (!story->exchanges)
        story->exchanges = exchanges_new(story);
    if (!exchange->sent) {
        exchange->older = story->exchanges->newest;
        story->exchanges->newest = exchange;
        story->exchanges->count++;
    }
    exchange->sent++;
    exchange->pending++;
    if (exchange->gives_all)
        story->release_sent = true;
}

void exchange_unknown(const struct call *call)
{
    call->exchange->pending--;
    call->exchange->unknown++;
}

void exchange_check_shown(struct story *story, const struct request *request)
{
    struct exchanges *exchanges = story->exchanges;
    if (!exchanges || request->changes > CHANGES_MAX || !exchanges->states[request->changes].known)
        violation("P3", "%s is answered with %u changes, which it has not had", story->key->text, request->changes);
    const struct held_state *state = &exchanges->states[request->changes];
    if (state->count != request->permit_count)
        violation("P2", "%s is answered with %zu permits of %zu", story->key->text, request->permit_count,
                  state->count);
    for (size_t i = 0; i < request->permit_count; i++) {
        struct held_units shown = units_of_permit(&request->permits[i]);
        struct held_units held = held_of(state, shown.semaphore);
        if (shown.token != held.token || shown.count != held.count || shown.slots != held.slots)
            violation("P3", "%s is answered with other units of %s than it had after %u changes", story->key->text,
                      shown.semaphore->name, request->changes);
        if (shown.token > shown.semaphore->max_token)
            shown.semaphore->max_token = shown.token;
    }
    exchanges->answered = request->changes > exchanges->answered ? request->changes : exchanges->answered;
}

/* Returns true if nothing has happened to the row since the call was sent. */
static bool is_as_sent(const struct call *call)
{
    return call->story->exchanges->changed_at < call->sent_at;
}

static bool names_taken(const struct exchange *exchange)
{
    for (size_t i = 0; i < exchange->taken_count; i++)
        if (want_is_specific(&exchange->taken[i]))
            return true;
    return false;
}

/* Returns true if a want can never be met, or if it could not for a moment. */
static bool is_hopeless(const struct call *call)
{
    const struct exchange *exchange = call->exchange;
    struct held_state is = state_of(&call->story->key->row);
    for (size_t i = 0; i < exchange->taken_count; i++) {
        const struct want *taken = &exchange->taken[i];
        const struct db_semaphore *semaphore = database_semaphore_named(taken->semaphore);
        int64_t sum = held_of(&is, semaphore).count - exchange_gives(exchange, taken->semaphore) + taken->count;
        if (!row_in_service(&semaphore->row) || semaphore->set_at >= call->sent_at ||
            sum > semaphore->row.semaphore.capacity || want_is_unsatisfiable(taken, &semaphore->row))
            return true;
    }
    return false;
}

/* Returns true if it takes no more than what is free, and no request waits. */
static bool fits(const struct call *call)
{
    const struct exchange *exchange = call->exchange;
    for (size_t i = 0; i < exchange->taken_count; i++) {
        const struct want *taken = &exchange->taken[i];
        const struct db_semaphore *semaphore = database_semaphore_named(taken->semaphore);
        const struct semaphore *row = &semaphore->row.semaphore;
        int64_t own = exchange_gives(exchange, taken->semaphore);
        bool passes = row->kind == KIND_COUNTED && taken->count <= own; /* no waiter has a claim on its own units */
        if (!row_in_service(&semaphore->row) || row->paused_reason.data ||
            taken->count > row->capacity - row->in_use + own || (database.waiting_count && !passes))
            return false;
    }
    return true;
}

/* Checks a refusal of an exchange that is not made by it. */
static void check_refusal(const struct call *call, enum permit_status status)
{
    const struct story *story = call->story;
    const struct exchange *exchange = call->exchange;
    const struct request *row = &story->key->row.request;
    bool quiet = profile.calm && database.committed_at < call->sent_at;
    if (exchange->made && exchange->sent == 1)
        violation("P22", "exchange %s of %s is answered %s, and is made", exchange->nonce, story->key->text,
                  permit_status_word(status));
    if (status == PERMIT_VERSION_MISMATCH && is_as_sent(call) && row->changes == exchange->changes)
        violation("P3", "exchange %s of %s is answered with another number of changes than %u", exchange->nonce,
                  story->key->text, row->changes);
    if (status == PERMIT_VERSION_MISMATCH && is_as_sent(call) && row->changes == exchange->changes + 1 &&
        exchange->made)
        violation("P3", "exchange %s of %s is the last one, and is refused", exchange->nonce, story->key->text);
    if (status == PERMIT_CONFIRMED && !story->confirm_sent)
        violation("P25", "%s is answered as confirmed, and nobody has confirmed it", story->key->text);
    if (status == PERMIT_INVALID && !names_taken(exchange) && !is_hopeless(call))
        violation("P22", "exchange %s of %s is answered as invalid", exchange->nonce, story->key->text);
    if (status == PERMIT_NEVER_SATISFIABLE && is_as_sent(call) && !is_hopeless(call))
        violation("P17", "exchange %s of %s is answered as never satisfiable", exchange->nonce, story->key->text);
    if (status == PERMIT_NO_CAPACITY && quiet && !names_taken(exchange) && fits(call))
        violation("P20", "exchange %s of %s is refused, although it fits", exchange->nonce, story->key->text);
}

void exchange_answered(const struct call *call, const struct decision *decision)
{
    struct exchange *exchange = call->exchange;
    const struct request *request = decision->outcome ? decision->outcome->request : NULL;
    enum permit_status status = decision->status;
    exchange->pending--;
    if (permit_status_retry(status) == PERMIT_RETRY_SAME) {
        exchange->unknown++;
        return;
    }
    if (status != PERMIT_OK) {
        counts.exchanges_refused++;
        check_refusal(call, status);
        return;
    }
    counts.exchanges_repeated += decision->outcome->replayed;
    if (!exchange->made)
        violation("P22", "exchange %s of %s is answered, and is not made", exchange->nonce, call->story->key->text);
    if (!decision->outcome->replayed && exchange->answered_as_new)
        violation("P3", "exchange %s of %s is answered twice as new", exchange->nonce, call->story->key->text);
    if (request->changes != exchange->changes + 1)
        violation("P3", "exchange %s of %s is answered after %u changes", exchange->nonce, call->story->key->text,
                  request->changes);
    exchange->answered = true;
    exchange->answered_as_new |= !decision->outcome->replayed;
    exchange_check_shown(call->story, request);
    for (size_t i = 0; i < request->permit_count; i++)
        if (!bytes_equal(decision->semaphore_names[i],
                         database_semaphore(request->permits[i].semaphore_id)->row.semaphore.name))
            violation("P2", "%s is answered with the name of another semaphore", call->story->key->text);
}
