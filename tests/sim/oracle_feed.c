/* SPDX-License-Identifier: MIT */
/*
 * P26: the events of a commit are those that follow from the rows before and after it; their numbers have no gaps, and respect
 * the history of each key and of each semaphore.
 */
#include "oracle.h"
#include "run.h"

enum { EXPECTED_MAX = 4096 };

/* An event that the commit which is becoming visible has to write. */
static struct expected {
    const struct db_key *key;
    enum feed_what what;
    enum end_reason end_reason;
    uint32_t semaphores;
    const struct db_metadata *metadata; /* of the row, before or after the commit */
    bool found;
} expected[EXPECTED_MAX];
static size_t expected_count;

/* ---- events of a commit ---- */

/* Settled: a batch has written it. */
static bool is_sold(const struct request_row *row)
{
    return row->exists && row->request.state != REQUEST_WAITING && row->request.confirmed_at != NEVER &&
           !(row->request.errand & ERRAND_CONFIRM);
}

static bool was_granted(const struct request_row *row)
{
    return row->exists && row->request.state != REQUEST_WAITING && row->request.permit_count > 0;
}

/* Returns the semaphores of the row whose setting admits the event. */
static uint32_t admitting(const struct request_row *row, enum feed_what what)
{
    bool waits = row_is_waiting(row);
    bool sold = !waits && row->request.confirmed_at != NEVER;
    uint32_t semaphores = 0;
    for (size_t i = 0; i < (waits ? row->place_count : row->request.permit_count); i++) {
        uint64_t id = waits ? row->places[i].semaphore_id : row->permits[i].semaphore_id;
        const struct db_semaphore *semaphore = database_semaphore(id);
        enum semaphore_feed feed = semaphore->row.semaphore.feed;
        bool in_sales = what == FEED_CONFIRMED || (what == FEED_ENDED && sold);
        if (feed == FEED_ALL || (feed == FEED_SALES && in_sales))
            semaphores |= 1U << (semaphore - database.semaphores);
    }
    return semaphores;
}

/* `before`: of FEED_CHANGED, which also tells of the semaphores that only that row has; else NULL. */
static void expect(const struct db_key *key, const struct request_row *row, enum feed_what what,
                   const struct request_row *before)
{
    struct expected event = {.key = key, .what = what, .semaphores = admitting(row, what), .metadata = &row->metadata};
    if (what == FEED_ENDED)
        event.end_reason = row_is_waiting(row) ? END_NEVER_HELD : row->request.end_reason;
    if (before)
        event.semaphores |= admitting(before, what);
    if (!event.semaphores)
        return;
    if (expected_count == EXPECTED_MAX)
        abort();
    expected[expected_count++] = event;
}

void feed_expect(const struct db_key *key, const struct request_row *before)
{
    const struct request_row *row = &key->row;
    bool same = before->exists && row->exists && before->request.id == row->request.id;
    bool granted_before = same && was_granted(before);
    if (row_is_waiting(before) && !(same && (row_is_waiting(row) || was_granted(row))))
        expect(key, before, FEED_ENDED, NULL);
    if (row_is_waiting(row) && !same)
        expect(key, row, FEED_WAITING, NULL);
    if (!was_granted(row))
        return;
    if (!granted_before)
        expect(key, row, FEED_ACQUIRED, NULL);
    if (row->request.renewals != (granted_before ? before->request.renewals : 0))
        expect(key, row, FEED_RENEWED, NULL);
    if (granted_before && row_is_held(row) && row->request.changes != before->request.changes)
        expect(key, row, FEED_CHANGED, before);
    if (is_sold(row) && !(granted_before && is_sold(before)))
        expect(key, row, FEED_CONFIRMED, NULL);
    if (row->request.state == REQUEST_RELEASED && !(granted_before && before->request.state == REQUEST_RELEASED))
        expect(key, row, FEED_ENDED, NULL);
}

static bool has_metadata(const struct db_event *event, const struct db_metadata *metadata)
{
    return event->metadata.length == metadata->length &&
           memcmp(event->metadata.text, metadata->text, metadata->length) == 0;
}

static bool take_expected(const struct db_event *event)
{
    for (size_t i = 0; i < expected_count; i++) {
        struct expected *one = &expected[i];
        if (one->found || one->key != event->key || one->what != event->what || one->end_reason != event->end_reason ||
            one->semaphores != event->semaphores || !has_metadata(event, one->metadata))
            continue;
        one->found = true;
        return true;
    }
    return false;
}

/* The end of a request that waited comes first: another one may follow under its key. A change comes before a sale. */
static int rank(const struct db_event *event)
{
    if (event->what == FEED_CHANGED)
        return 2 * (int)FEED_RENEWED + 1;
    return event->end_reason == END_NEVER_HELD ? 0 : 2 * (int)event->what;
}

static void check_order_in_commit(const struct db_event *events, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t j = i + 1; j < count; j++)
            if (events[i].key == events[j].key && rank(&events[i]) >= rank(&events[j]))
                violation("P26", "the feed has %s of %s before %s", feed_what_word(events[i].what), events[i].key->text,
                          feed_what_word(events[j].what));
}

void feed_committed(const struct transaction *transaction)
{
    size_t wanted = expected_count;
    expected_count = 0;
    if (run_is_contract())
        return;
    if (transaction->event_count == 0 && database.globals.feed_full) {
        counts.omitted += wanted;
        return;
    }
    expected_count = wanted;
    for (size_t i = 0; i < transaction->event_count; i++) {
        const struct db_event *event = &transaction->events[i];
        if (!take_expected(event))
            violation("P26", "the feed has an event %s of %s that has not happened", feed_what_word(event->what),
                      event->key->text);
        database_event(event->id)->judged = true;
    }
    for (size_t i = 0; i < wanted; i++)
        if (!expected[i].found)
            violation("P26", "the feed lacks an event %s of %s", feed_what_word(expected[i].what),
                      expected[i].key->text);
    check_order_in_commit(transaction->events, transaction->event_count);
    expected_count = 0;
}

/* ---- numbers ---- */

static bool share_history(const struct db_event *a, const struct db_event *b)
{
    return a->key && b->key && (a->key == b->key || a->semaphores & b->semaphores);
}

/* Returns true if the second event happened before the first: in an earlier commit, or earlier in the same. */
static bool happened_before(const struct db_event *later, const struct db_event *event)
{
    return event->lsn < later->lsn || (event->lsn == later->lsn && event->id < later->id);
}

/* All that happened before the event, and shares its history, has a smaller number. */
static void check_history(const struct db_event *event)
{
    for (uint64_t id = database.first_event_id; id <= database.next_event_id; id++) {
        const struct db_event *other = database_event(id);
        if (!other || !share_history(event, other) || !happened_before(event, other))
            continue;
        if (!other->seq || other->seq > event->seq)
            violation("P26", "the feed has %s of %s as number %llu before %s of %s, which happened earlier",
                      feed_what_word(event->what), event->key->text, (unsigned long long)event->seq,
                      feed_what_word(other->what), other->key->text);
    }
}

/* The numbers of the rows have no gaps: the first ones were deleted, and the last is the head. */
static void check_numbers(void)
{
    static unsigned char seen[EVENTS_MAX];
    uint64_t count = 0, head = database.globals.feed_seq;
    memset(seen, 0, sizeof seen);
    for (uint64_t id = database.first_event_id; id && id <= database.next_event_id; id++)
        count += database_event(id) && database_event(id)->seq;
    for (uint64_t id = database.first_event_id; id && id <= database.next_event_id; id++) {
        const struct db_event *event = database_event(id);
        if (!event || !event->seq)
            continue;
        bool in_range = event->seq <= head && event->seq > head - count;
        if (!in_range || seen[event->seq % EVENTS_MAX]++)
            violation("P26", "number %llu of the feed is given twice, or a number is missing: the head is %llu",
                      (unsigned long long)event->seq, (unsigned long long)head);
    }
}

void feed_numbered(const struct transaction *transaction)
{
    if (run_is_contract())
        return;
    counts.events += transaction->numbered_count;
    check_numbers();
    for (size_t i = 0; i < transaction->numbered_count; i++) {
        const struct db_event *event = database_event(transaction->numbered[i]);
        if (event && !event->judged)
            violation("P26", "the feed has an event of %s whose change was not committed", event->key->text);
        if (event)
            check_history(event);
    }
}

void feed_trimmed(void)
{
    if (!run_is_contract())
        check_numbers();
}

/* The last number that a reader may have seen, of those that no failover has taken back. */
static uint64_t shown;

void feed_shown(void)
{
    if (database.globals.feed_durable > database.globals.feed_seq)
        violation("P26", "number %llu of the feed is shown, and the head is %llu",
                  (unsigned long long)database.globals.feed_durable, (unsigned long long)database.globals.feed_seq);
    if (database.globals.feed_durable > shown)
        shown = database.globals.feed_durable;
}

/* After a failover readers are told that events are lost. */
void feed_undone(bool failover)
{
    uint64_t head = database.globals.feed_seq;
    if (shown > head && !failover && !run_is_contract())
        violation("P26", "number %llu of the feed was shown, and is undone by a crash: the head is %llu",
                  (unsigned long long)shown, (unsigned long long)head);
    if (shown > head)
        shown = head;
}

static bool all_numbered(void)
{
    if (database.globals.feed_durable != database.globals.feed_seq)
        return false;
    for (uint64_t id = database.first_event_id; id && id <= database.next_event_id; id++)
        if (database_event(id) && !database_event(id)->seq)
            return false;
    return true;
}

void feed_settles(void)
{
    mono_us until = sim_now() + 5 * US_PER_SECOND;
    while (!all_numbered() && sim_now() < until)
        fiber_sleep(10000);
    if (!all_numbered())
        violation("P26",
                  "an event of the feed has no number, or one that readers do not see, 5 s after the last fault");
}
