/* SPDX-License-Identifier: MIT */
/*
 * Judges the queue by its rows (C8): P17, P20, P21 and P22. After each commit: the rows of the queue are consistent, the
 * commit has granted in the order of places, it has told the permitd that it concerns, and it has taken no place away
 * that somebody asks for or that is kept.
 */
#include "dice.h"
#include "engine/waiters.h"
#include "world.h"

/* The write of a client that has left may be tried again for so long, after lock time-outs and lost sessions. */
#define LEAVING_US    (10LL * US_PER_SECOND)
/* The time of a plan may be ahead of the database's by this. */
#define PLAN_AHEAD_US (125LL * US_PER_MS)
/* In a calm run: the time until a client that has gone has left the rows, and until one without a row is answered. */
#define LEFT_US       US_PER_SECOND
/* When all clients have gone: kept places are due, places of dead permitd abandoned, and the expiry task has run. */
#define QUEUE_ENDS_US (4 * PLACE_KEPT_US)

static struct arena arena = {.chunk_size = 65536, .limit = (size_t)1 << 30};

/* ---- who asks ---- */

static bool server_lives(uint64_t id)
{
    const struct db_server *server = database_server(id);
    return server && server->row.dead_at == NEVER;
}

static bool same_digest(const struct call *call, const struct request *request)
{
    return request->has_digest && memcmp(call->operation.digest, request->digest, DIGEST_SIZE) == 0;
}

/* A client that waits at the permitd of the row, and did so at this time; or NULL. */
static const struct call *client_of(const struct db_key *key, mono_us since)
{
    int process = oracle_server_process(key->row.request.server_id);
    if (process < 0)
        return NULL;
    const struct list *calls = run_calls(process);
    for (const struct list *node = calls->next; node != calls; node = node->next) {
        const struct call *call = LIST_ENTRY(node, struct call, node);
        if (call->story && call->story->key == key && call->operation.kind == OP_ACQUIRE && !call->answered_late &&
            call->sent_at <= since && call->wait_until > sim_now() && same_digest(call, &key->row.request))
            return call;
    }
    return NULL;
}

bool queue_has_client(const struct db_key *key, mono_us since)
{
    return client_of(key, since) != NULL;
}

bool queue_is_asked(const struct db_key *key)
{
    return row_is_waiting(&key->row) && key->row.request.server_id && server_lives(key->row.request.server_id);
}

/* ---- consistent rows ---- */

const struct place_row *row_place(const struct request_row *row, uint64_t semaphore_id)
{
    for (size_t i = 0; i < row->place_count; i++)
        if (row->places[i].semaphore_id == semaphore_id)
            return &row->places[i];
    return NULL;
}

/* semaphore.waiting counts the places that somebody asks for. */
static void check_count(const struct db_semaphore *semaphore)
{
    int64_t count = 0;
    for (size_t i = 0; i < database.waiting_count; i++)
        count += row_is_waiting(&database.waiting[i]->row) && database.waiting[i]->row.request.server_id &&
                 row_place(&database.waiting[i]->row, semaphore->row.semaphore.id);
    if (semaphore->row.exists && count != semaphore->row.semaphore.waiting)
        violation("P20", "`waiting` of %s is %lld, its queue has %lld", semaphore->name,
                  (long long)semaphore->row.semaphore.waiting, (long long)count);
}

/* One place for each want, all the same. */
static void check_places(const struct db_key *key)
{
    const struct request_row *row = &key->row;
    struct request request = row->request;
    arena_clear(&arena);
    row_decode_wants(&request, &arena);
    if (row->place_count != request.want_count)
        violation("P20", "%s waits for %zu semaphores and has %zu places", key->text, request.want_count,
                  row->place_count);
    for (size_t i = 0; i < request.want_count; i++) {
        const struct place_row *place = row_place(row, request.wants[i].semaphore_id);
        if (!place || place->count != request.wants[i].count || place->place != request.place ||
            place->request_id != request.id)
            violation("P20", "the place of %s at semaphore %llu is not that of its row", key->text,
                      (unsigned long long)request.wants[i].semaphore_id);
    }
    for (size_t i = 0; key->story && !key->story->lost && i < key->story->want_count; i++) {
        const struct place_row *place = row_place(row, key->story->semaphores[i]->row.semaphore.id);
        if (key->story->semaphores[i]->row.exists && (!place || place->count != key->story->wants[i].count))
            violation("P20", "%s does not wait for what it asked of %s", key->text, key->story->semaphores[i]->name);
    }
}

static void check_row(const struct db_key *key)
{
    const struct request_row *row = &key->row;
    const struct request *request = &row->request;
    if (!row_is_waiting(row)) {
        if (row->place_count)
            violation("P20", "%s has places and does not wait", key->text);
        if (row->exists && request->wanted.data)
            violation("P20", "%s wants something and does not wait", key->text);
        if (row->exists && request->server_id && !row_is_held(row))
            violation("P17", "%s has ended, and server %llu is asked for it", key->text,
                      (unsigned long long)request->server_id);
        return;
    }
    if (request->permit_count)
        violation("P20", "%s waits and has permits", key->text);
    if (request->acquired_at != NEVER || request->ended_at != NEVER || request->end_reason != END_NONE)
        violation("P20", "%s waits, and its row says that it was held or has ended", key->text);
    if (request->due_at == NEVER || request->place == NEVER ||
        (request->server_id && request->due_at != request->waiting_until + PLACE_KEPT_US))
        violation("P20", "the place of %s is kept for ever", key->text);
    if (request->priority < 0 || request->priority > PRIORITY_MAX || request->place > request->waiting_since ||
        (!request->priority && request->place != request->waiting_since))
        violation("P20", "the place of %s is not that of its entry and its priority", key->text);
    check_places(key);
}

void queue_rows_agree(void)
{
    for (size_t i = 0; i < database.semaphore_count; i++)
        check_count(&database.semaphores[i]);
    for (size_t i = 0; i < database.waiting_count; i++)
        check_row(database.waiting[i]);
}

/* ---- locks and versions ---- */

static void check_raised(const struct transaction *transaction, uint64_t semaphore_id, const char *text)
{
    const struct changes *changes = transaction->changes;
    const struct db_semaphore *semaphore = database_semaphore(semaphore_id);
    if (!semaphore || semaphore->lock.holder != transaction)
        violation("P20", "the place of %s is changed without the lock of semaphore %llu", text,
                  (unsigned long long)semaphore_id);
    for (size_t i = 0; i < changes->semaphore_count; i++)
        if (changes->semaphores[i].changed && changes->semaphores[i].semaphore->id == semaphore_id)
            return;
    violation("P20", "the place of %s is changed, the version of semaphore %llu is not", text,
              (unsigned long long)semaphore_id);
}

/* A transaction that changes a queue changes the versions of all its semaphores, under their locks. */
static void check_versions(const struct transaction *transaction, const struct db_key *key,
                           const struct request_row *before)
{
    const struct request_row *row = &key->row;
    bool was_asked = row_is_waiting(before) && before->request.server_id;
    bool is_asked = row_is_waiting(row) && row->request.server_id;
    bool same_places = row_is_waiting(before) == row_is_waiting(row) && before->request.id == row->request.id;
    if (same_places && was_asked == is_asked)
        return;
    for (size_t i = 0; i < before->place_count; i++)
        check_raised(transaction, before->places[i].semaphore_id, key->text);
    for (size_t i = 0; i < row->place_count; i++)
        check_raised(transaction, row->places[i].semaphore_id, key->text);
}

/* ---- entries and ends of places ---- */

static bool is_by(const struct transaction *transaction, uint64_t server_id)
{
    return oracle_server_joined_by(server_id) == transaction->process;
}

/* A place is that of the time of entry, or the one that the key had before its row was lost or removed. */
static void entered(const struct transaction *transaction, const struct db_key *key)
{
    const struct request *request = &key->row.request;
    struct story *story = key->story;
    int64_t moved_us = request->waiting_since - transaction->read_time; /* a plan's time does not go back */
    bool fresh = moved_us >= 0 && moved_us <= PLAN_AHEAD_US;
    bool known = story->place_id && request->place == story->place && request->waiting_since == story->place_since;
    if (!fresh && !known && !story->lost)
        violation("P21", "%s gets the place of another time, %lld ms ago", key->text,
                  (long long)(transaction->read_time - request->waiting_since) / US_PER_MS);
    for (size_t i = 0; fresh && !known && !story->lost && i < story->want_count; i++) {
        const struct semaphore *row = &story->semaphores[i]->row.semaphore;
        bool alone = transaction->changes->request_count == 1; /* else a kept place may be asked for again beside it */
        if (alone && row->max_waiters != SETTING_NONE && row->waiting > row->max_waiters &&
            story->semaphores[i]->set_at < sim_now())
            violation("P20", "%s enters the queue of %s, in which %lld wait; it allows %lld", key->text,
                      story->semaphores[i]->name, (long long)row->waiting, (long long)row->max_waiters);
        if (request->priority > row->max_priority)
            violation("P20", "%s enters the queue of %s with priority %d", key->text, story->semaphores[i]->name,
                      request->priority);
    }
    story->place = request->place;
    story->place_since = request->waiting_since;
    story->place_id = request->id;
}

/* True if an acquire of the committing permitd asks for the key with other content, to which a kept place gives way. */
static bool asked_otherwise(const struct transaction *transaction, const struct db_key *key,
                            const struct request *before)
{
    const struct list *acquires = &key->story->acquires;
    for (const struct list *node = acquires->next; node != acquires; node = node->next) {
        const struct call *call = LIST_ENTRY(node, struct call, of_key);
        if (call->process == transaction->process && !same_digest(call, before))
            return true;
    }
    return key->story->unknown > 0;
}

/* True if a client still waits for the request at the server of its row. */
static bool has_client(const struct db_key *key, const struct request *before)
{
    const struct list *acquires = &key->story->acquires;
    int process = oracle_server_process(before->server_id);
    for (const struct list *node = acquires->next; node != acquires; node = node->next) {
        const struct call *call = LIST_ENTRY(node, struct call, of_key);
        if (call->process == process && call->waited && !call->left && same_digest(call, before))
            return true;
    }
    return key->story->unknown > 0;
}

/*
 * P21: only what nobody asks for is taken away, and not before its time by the true clock. A client that has left may be
 * taken out of the row by the batch that lets other content in.
 */
static void removed(const struct db_key *key, const struct request *before, bool gives_way)
{
    const struct story *story = key->story;
    const struct db_server *server = database_server(before->server_id);
    mono_us died_at = server ? oracle_server_died_at(before->server_id) : 0;
    bool asked = before->server_id && server && server->row.dead_at == NEVER;
    bool abandoned =
        before->server_id && !asked && (!server || sim_now() - died_at >= PLACE_KEPT_US - oracle_early_us(died_at));
    mono_us set_at = key->row.exists ? story->due_was_set_at : story->due_set_at;
    bool kept = sim_now() - set_at < PLACE_KEPT_US - oracle_early_us(set_at);
    if (!kept || story->lost || set_at < 0 || abandoned || (gives_way && !(asked && has_client(key, before))))
        return;
    violation("P21", "the place of %s is removed %lld ms after its deadline was set%s", key->text,
              (long long)(sim_now() - set_at) / US_PER_MS, asked ? ", and somebody asks for it" : "");
}

/* A place is kept, or a grant unclaimed, for PLACE_KEPT_US, from when deadlines count in that batch. */
static bool is_kept_for_its_time(const struct transaction *transaction, const struct request *request)
{
    int64_t from_us = request->due_at - PLACE_KEPT_US - transaction->read_time;
    return from_us >= LEASE_MARGIN_US && from_us <= LEASE_LEAP_US + LEASE_MARGIN_US + PLAN_AHEAD_US;
}

/* True if a client that waits has asked the committing permitd for it, to which it may have moved. */
static bool asked_there(const struct transaction *transaction, const struct db_key *key)
{
    const struct list *acquires = &key->story->acquires;
    for (const struct list *node = acquires->next; node != acquires; node = node->next) {
        const struct call *call = LIST_ENTRY(node, struct call, of_key);
        if (call->process == transaction->process && call->waited)
            return true;
    }
    return key->story->unknown > 0;
}

/*
 * P20: a permitd does not give up the place of a client that waited there when the batch was planned and still waits, by the
 * decision of a copy of its call. The waiter of that client may give it up in a batch of its own, if it can never be granted.
 */
static void check_given_up(const struct transaction *transaction, const struct db_key *key)
{
    const struct list *acquires = &key->story->acquires;
    for (const struct list *node = acquires->next; node != acquires; node = node->next) {
        const struct call *call = LIST_ENTRY(node, struct call, of_key);
        if (call->process == transaction->process && call->sent_at <= transaction->planned_at &&
            call->wait_until > sim_now() && call->op.waiter && !waiter_in_batch(call->op.waiter))
            violation("P20", "the place of %s is given up, and #%llu still waits for it", key->text,
                      (unsigned long long)call->number);
    }
}

/* P20: a place that has moved to another permitd is that one's to give up. It is asked for again by a later call only. */
static void check_asked_again(const struct db_key *key)
{
    const struct story *story = key->story;
    const struct list *acquires = &story->acquires;
    int process = oracle_server_process(key->row.request.server_id);
    bool by_waiter = false;
    if (story->given_up_of != key->row.request.server_id || story->unknown)
        return;
    for (const struct list *node = acquires->next; node != acquires; node = node->next) {
        const struct call *call = LIST_ENTRY(node, struct call, of_key);
        if (call->process == process && (!call->op.waiter || call->sent_at >= story->given_up_at))
            return;
        by_waiter |= call->process == process;
    }
    if (by_waiter)
        violation("P20", "%s is asked for again by clients whose place has moved to another permitd", key->text);
}

static void still_waits(const struct transaction *transaction, const struct db_key *key, const struct request *before)
{
    const struct request *request = &key->row.request;
    struct story *story = key->story;
    if (request->place != before->place || request->waiting_since != before->waiting_since ||
        request->priority != before->priority)
        violation("P21", "%s loses its place for another", key->text);
    if (request->server_id == before->server_id)
        return;
    if (request->server_id == 0 && !is_by(transaction, before->server_id) && server_lives(before->server_id) &&
        !asked_there(transaction, key))
        violation("P20", "%s is taken from the queue by p%d, and waits at server %llu", key->text, transaction->process,
                  (unsigned long long)before->server_id);
    if (request->server_id && !is_by(transaction, request->server_id))
        violation("P20", "%s waits at server %llu, which p%d says", key->text, (unsigned long long)request->server_id,
                  transaction->process);
    bool of_another = before->server_id && !is_by(transaction, before->server_id);
    if (request->server_id == 0 && !of_another)
        check_given_up(transaction, key);
    if (before->server_id == 0)
        check_asked_again(key);
    story->given_up_of = request->server_id == 0 && of_another ? before->server_id : 0;
    story->given_up_at = sim_now();
    if (request->server_id == 0 && !is_kept_for_its_time(transaction, request))
        violation("P21", "the place of %s is kept until %lld ms from now", key->text,
                  (long long)(request->due_at - transaction->read_time) / US_PER_MS);
}

/* ---- told ---- */

static bool has_mail(uint64_t server_id, uint64_t request_id)
{
    for (size_t i = 0; i < MAIL_MAX; i++)
        if (database.mail[i].exists && database.mail[i].server_id == server_id &&
            database.mail[i].request_id == request_id)
            return true;
    return false;
}

/* P17: a commit by another permitd that decides about a waiter leaves mail for the permitd at which it waits. */
static void check_told(const struct transaction *transaction, const struct db_key *key,
                       const struct request_row *before)
{
    const struct request *was = &before->request;
    const struct request *is = &key->row.request;
    bool decided = row_is_waiting(before) && (!key->row.exists || is->state != REQUEST_WAITING || is->id != was->id ||
                                              is->server_id != was->server_id);
    bool claimed = row_is_held(before) && row_is_held(&key->row) && is->server_id != was->server_id;
    if (!was->server_id || !(decided || claimed) || !server_lives(was->server_id) || is_by(transaction, was->server_id))
        return;
    if (!has_mail(was->server_id, was->id))
        violation("P17", "p%d has decided about %s, which waits at server %llu, and has not told it",
                  transaction->process, key->text, (unsigned long long)was->server_id);
}

/* ---- grants ---- */

/* True if this commit has granted the key. */
static bool is_granted(const struct db_key *key, const struct request_row *before)
{
    const struct request *request = &key->row.request;
    bool was = before->exists && before->request.id == request->id && before->request.acquired_at != NEVER;
    return key->row.exists && request->acquired_at != NEVER && !was;
}

static void check_unclaimed(const struct transaction *transaction, const struct db_key *key,
                            const struct request_row *before)
{
    const struct request *request = &key->row.request;
    if (!row_is_held(&key->row) || !request->server_id)
        return;
    if (!row_is_waiting(before) || before->request.server_id != request->server_id)
        violation("P17", "%s is granted on behalf of server %llu, at which it does not wait", key->text,
                  (unsigned long long)request->server_id);
    if (!is_kept_for_its_time(transaction, request))
        violation("P17", "%s is granted on behalf of server %llu, and is not due %lld s later", key->text,
                  (unsigned long long)request->server_id, (long long)(PLACE_KEPT_US / US_PER_SECOND));
    if (!server_lives(request->server_id) && oracle_server_died_at(request->server_id) < transaction->read_at)
        violation("P20", "%s is granted on behalf of server %llu, which is dead", key->text,
                  (unsigned long long)request->server_id);
    if (!has_mail(request->server_id, request->id))
        violation("P17", "%s is granted on behalf of server %llu, which is not told", key->text,
                  (unsigned long long)request->server_id);
}

static const struct permit *permit_at(const struct request *request, uint64_t semaphore_id)
{
    for (size_t i = 0; i < request->permit_count; i++)
        if (request->permits[i].semaphore_id == semaphore_id)
            return &request->permits[i];
    return NULL;
}

/*
 * True if this commit has ended a holder whose key an acquire of the same batch may name. That acquire is decided first,
 * and so are the new requests that came before the release: these took their units before the holder's were free.
 */
static bool ends_after_acquires(const struct transaction *transaction, const struct db_key *ended,
                                const struct request_row *before, uint64_t semaphore_id)
{
    if (!row_is_held(before) || row_is_held(&ended->row) || !permit_at(&before->request, semaphore_id))
        return false;
    const struct list *acquires = &ended->story->acquires;
    for (const struct list *node = acquires->next; node != acquires; node = node->next)
        if (LIST_ENTRY(node, struct call, of_key)->process == transaction->process)
            return true;
    return false;
}

/* True if this commit has granted a waiter and ended it: it had its units when those behind it were decided. */
static bool held_in_between(const struct db_key *ended, const struct request_row *before, uint64_t semaphore_id)
{
    return row_is_waiting(before) && is_granted(ended, before) && !row_is_held(&ended->row) &&
           row_place(before, semaphore_id);
}

/* True if this commit has exchanged what a request holds: it may have given units back after others were decided. */
static bool exchanged(const struct db_key *key, const struct request_row *before)
{
    return row_is_held(before) && key->row.request.changes != before->request.changes;
}

/* True if units that are free after this commit were taken when its requests were decided. */
static bool freed_late(const struct transaction *transaction, uint64_t semaphore_id)
{
    const struct changes *changes = transaction->changes;
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct db_key *ended = database_key(changes->requests[i].request->external_id);
        const struct request_row *before = database_before(ended);
        if (before && ended->story &&
            (ends_after_acquires(transaction, ended, before, semaphore_id) ||
             held_in_between(ended, before, semaphore_id) || exchanged(ended, before)))
            return true;
    }
    return false;
}

/* Nothing is granted that the all-knowing walk would not grant, unless units came free after the decision. */
static void check_order(const struct transaction *transaction)
{
    const struct changes *changes = transaction->changes;
    for (size_t i = 0; i < changes->semaphore_count; i++)
        if (changes->semaphores[i].changed && freed_late(transaction, changes->semaphores[i].semaphore->id))
            return;
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct db_key *granted = database_key(changes->requests[i].request->external_id);
        const struct request_row *before = database_before(granted);
        if (before && granted->story && row_is_held(&granted->row) && is_granted(granted, before))
            walk_check_grant(transaction, granted);
    }
}

/* ---- a commit ---- */

static void check_key(const struct transaction *transaction, const struct db_key *key, const struct request_row *before)
{
    const struct request_row *row = &key->row;
    bool waited = row_is_waiting(before);
    bool replaced = waited && row->exists &&
                    (row->request.id != before->request.id ||
                     memcmp(row->request.digest, before->request.digest, DIGEST_SIZE) != 0);
    bool tombstone =
        waited && row->exists && row->request.state == REQUEST_RELEASED && row->request.end_reason == END_NEVER_HELD;
    if (!key->story) /* contract_cases.c writes rows of its own */
        return;
    check_row(key);
    check_versions(transaction, key, before);
    if (row_is_waiting(row))
        key->story->asked_at = sim_now();
    if (row_is_waiting(row) && (!waited || replaced))
        entered(transaction, key);
    if (waited && (!row->exists || (replaced && !tombstone)))
        removed(key, &before->request, replaced || asked_otherwise(transaction, key, &before->request));
    if (waited && row_is_waiting(row) && !replaced)
        still_waits(transaction, key, &before->request);
    if (before->exists && !waited && row_is_waiting(row))
        violation("P3", "%s waits again after its grant or its end", key->text);
    check_told(transaction, key, before);
    if (!is_granted(key, before))
        return;
    if (waited && !replaced && row->request.place != before->request.place)
        violation("P21", "%s is granted from another place", key->text);
    check_unclaimed(transaction, key, before);
}

void queue_committed(const struct transaction *transaction)
{
    const struct changes *changes = transaction->changes;
    for (size_t i = 0; i < changes->semaphore_count; i++)
        if (changes->semaphores[i].changed && !run_is_contract())
            check_count(database_semaphore_named(changes->semaphores[i].semaphore->name));
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct db_key *key = database_key(changes->requests[i].request->external_id);
        const struct request_row *before = database_before(key);
        if (before)
            check_key(transaction, key, before);
    }
    check_order(transaction);
}

/* ---- answers ---- */

/* P22: who is refused does not wait any longer, by the rows. */
void queue_refused(const struct call *call, enum permit_status status)
{
    const struct story *story = call->story;
    const struct request_row *row = &story->key->row;
    bool others = story->unknown > 0 || (story->left_at && story->left_at >= call->sent_at - LEAVING_US);
    if (!call->waited || others || !row_is_waiting(row) || !same_digest(call, &row->request) ||
        !server_lives(row->request.server_id) ||
        row->request.server_id != engine_server_id(world.servers[call->process].engine))
        return;
    for (const struct list *node = story->acquires.next; node != &story->acquires; node = node->next) {
        const struct call *other = LIST_ENTRY(node, struct call, of_key);
        if (other != call && other->process == call->process && other->waited)
            return;
    }
    violation("P22", "#%llu is answered %s, and %s still waits", (unsigned long long)call->number,
              permit_status_word(status), story->key->text);
}

/* ---- the watch ---- */

/* No waiter that somebody asks for stands before it at one of its semaphores. */
bool queue_is_first(const struct db_key *key)
{
    for (size_t i = 0; i < database.waiting_count; i++) {
        const struct db_key *other = database.waiting[i];
        if (other == key || !queue_is_asked(other) || compare_places(&other->row.request, &key->row.request) > 0)
            continue;
        for (size_t j = 0; j < other->row.place_count; j++)
            if (row_place(&key->row, other->row.places[j].semaphore_id))
                return false;
    }
    return true;
}

/* In a calm run a row whose client has gone is left, soon. */
void queue_watch(void)
{
    for (size_t i = 0; i < database.waiting_count; i++) {
        const struct db_key *key = database.waiting[i];
        struct story *story = key->story;
        if (!story || !queue_is_asked(key))
            continue;
        if (client_of(key, sim_now()))
            story->client_seen_at = sim_now();
        mono_us since = max_i64(story->client_seen_at, story->asked_at);
        if (sim_now() - since > LEFT_US + 300 * US_PER_MS)
            violation("P17", "%s still waits by its row, its client has gone %lld ms ago", key->text,
                      (long long)(sim_now() - since) / US_PER_MS);
    }
}

void queue_settles(void)
{
    mono_us until =
        sim_now() + (profile.most_requests ? 8 : 1) * QUEUE_ENDS_US; /* batches are halved after a time-out */
    while (database.waiting_count && sim_now() < until)
        fiber_sleep(100 * (int64_t)US_PER_MS);
    if (database.waiting_count)
        violation("P17", "%zu places are left, one of them of %s, and nobody asks for them", database.waiting_count,
                  database.waiting[0]->text);
}
