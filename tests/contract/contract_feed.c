/* SPDX-License-Identifier: MIT */
/* Cases of the feed: its numbers, its pages, its end. */
#include "contract.h"
#include "store/feed.h"

enum { PAGE = 10, RETENTION_HOURS = 1 };

/* Gives the database its identity, without which nothing is numbered, and alpha all events. */
static void feed_begin(struct fixture *fixture)
{
    struct operation put = {.kind = OP_SEMAPHORE_PUT,
                            .semaphore = BYTES("alpha"),
                            .change = &(struct semaphore_change){.has_feed = true, .feed = FEED_ALL}};
    MUST_OK(fixture->store, fixture_advance_epoch(fixture->store, EPOCH_SERVER, 0, 0));
    MUST(batch_run(fixture, &put)->status == PERMIT_OK);
}

static void acquire(struct fixture *fixture, const char *key)
{
    struct want wants[] = {{.semaphore = BYTES("alpha"), .count = 1}, {.semaphore = BYTES("beta"), .count = 2}};
    struct operation acquire = acquire_of(key, wants, 2);
    MUST(batch_run(fixture, &acquire)->status == PERMIT_OK);
}

static void release(struct fixture *fixture, const char *key)
{
    MUST(batch_run(fixture, &(struct operation){.kind = OP_RELEASE, .external_id = bytes_of(key)})->status ==
         PERMIT_OK);
}

static struct feed_head read_head(struct fixture *fixture)
{
    struct feed_head head;
    MUST_OK(fixture->store, fixture->store->feed->head(fixture->store, &head));
    return head;
}

static void number(struct fixture *fixture, size_t expected)
{
    size_t count = SIZE_MAX;
    MUST_OK(fixture->store, fixture->store->feed->number(fixture->store, &fixture->arena, &count));
    MUST(count == expected);
}

static struct feed_page read_after(struct fixture *fixture, struct feed_position after)
{
    struct feed_page page = {.after = after, .limit = PAGE};
    MUST_OK(fixture->store, fixture->store->feed->read(fixture->store, &page, &fixture->arena));
    return page;
}

static struct feed_page read_oldest(struct fixture *fixture)
{
    struct feed_page page = {.from_oldest = true, .limit = PAGE};
    MUST_OK(fixture->store, fixture->store->feed->read(fixture->store, &page, &fixture->arena));
    MUST(page.ret_verdict == FEED_KNOWN);
    return page;
}

static void is_event(const struct feed_page *page, size_t i, uint64_t seq, enum feed_what what, const char *key)
{
    MUST(i < page->ret_count && page->ret_rows[i].seq == seq && page->ret_rows[i].what == what);
    MUST(bytes_equal(page->ret_rows[i].external_id, bytes_of(key)));
}

static struct feed_trim trim(struct fixture *fixture, uint64_t rows)
{
    struct feed_trim trim = {.limits = {(int64_t)RETENTION_HOURS * 3600 * US_PER_SECOND, rows}};
    MUST_OK(fixture->store, fixture->store->feed->trim(fixture->store, &trim));
    return trim;
}

void event_is_read_when_it_has_a_number(struct fixture *one, struct fixture *two)
{
    struct feed_permit *permits;
    size_t count;
    feed_begin(one);
    MUST(!read_head(two).pending);
    acquire(one, "k");
    MUST(read_head(two).pending && read_head(two).durable == 0);
    MUST(read_oldest(two).ret_count == 0);
    number(two, 1);
    MUST(!read_head(one).pending && read_head(one).durable == 1);
    struct feed_page page = read_oldest(one);
    MUST(page.ret_count == 1 && page.ret_next.seq == 1);
    is_event(&page, 0, 1, FEED_ACQUIRED, "k");
    MUST(feed_permits_parse(page.ret_rows[0].permits, &one->arena, &permits, &count));
    MUST(count == 1 && bytes_equal(permits[0].semaphore, BYTES("alpha"))); /* beta is not in the feed */
    MUST(permits[0].count == 1 && permits[0].token > 0 && permits[0].slots.count == 1);
}

void events_of_a_key_are_in_order(struct fixture *one, struct fixture *two)
{
    feed_begin(one);
    acquire(one, "k");
    MUST(batch_run(two, &(struct operation){.kind = OP_RENEW, .external_id = BYTES("k")})->status == PERMIT_OK);
    MUST(batch_run(one, &(struct operation){.kind = OP_CONFIRM, .external_id = BYTES("k")})->status == PERMIT_OK);
    struct operation refund = {.kind = OP_RELEASE, .external_id = BYTES("k"), .allow_confirmed = true};
    MUST(batch_run(two, &refund)->status == PERMIT_OK);
    number(one, 4);
    struct feed_page page = read_oldest(two);
    MUST(page.ret_count == 4);
    is_event(&page, 0, 1, FEED_ACQUIRED, "k");
    is_event(&page, 1, 2, FEED_RENEWED, "k");
    is_event(&page, 2, 3, FEED_CONFIRMED, "k");
    is_event(&page, 3, 4, FEED_ENDED, "k");
    MUST(page.ret_rows[3].end_reason == END_RELEASED);
    page = read_after(two, (struct feed_position){page.ret_next.epoch, 2});
    MUST(page.ret_count == 2 && page.ret_rows[0].seq == 3);
}

void event_has_the_metadata_of_its_request(struct fixture *one, struct fixture *two)
{
    struct want wants[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    struct operation ordered = acquire_of("ordered", wants, 1);
    ordered.metadata = BYTES("{\"order\":\"4711\"}");
    feed_begin(one);
    acquire(one, "plain");
    MUST(batch_run(one, &ordered)->status == PERMIT_OK);
    struct operation renew = {
        .kind = OP_RENEW, .external_id = BYTES("ordered"), .metadata = BYTES("{\"order\":\"4712\"}")};
    MUST(batch_run(two, &renew)->status == PERMIT_OK);
    release(one, "ordered");
    number(two, 4);
    struct feed_page page = read_oldest(one);
    MUST(page.ret_count == 4 && !page.ret_rows[0].metadata.data);
    MUST(bytes_equal(page.ret_rows[1].metadata, BYTES("{\"order\":\"4711\"}")));
    MUST(bytes_equal(page.ret_rows[2].metadata, BYTES("{\"order\":\"4712\"}")));
    MUST(bytes_equal(page.ret_rows[3].metadata, BYTES("{\"order\":\"4712\"}")));
}

void event_of_a_rolled_back_batch_takes_no_number(struct fixture *one, struct fixture *two)
{
    struct want want[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    struct operation acquire_k = acquire_of("k", want, 1);
    feed_begin(one);
    MUST(batch_decide(one, &acquire_k)->status == PERMIT_OK && one->plan.changes.feed_count == 1);
    MUST_OK(one->store, one->store->batch->rollback(one->store));
    MUST(!read_head(two).pending);
    number(two, 0);
    acquire(one, "other");
    number(two, 1);
    struct feed_page page = read_oldest(one);
    MUST(page.ret_count == 1);
    is_event(&page, 0, 1, FEED_ACQUIRED, "other");
}

void numbers_go_on_through_another_store(struct fixture *one, struct fixture *two)
{
    feed_begin(one);
    acquire(one, "a");
    number(one, 1);
    acquire(two, "b");
    release(one, "a");
    number(two, 2);
    number(one, 0);
    struct feed_page page = read_oldest(one);
    MUST(page.ret_count == 3);
    is_event(&page, 0, 1, FEED_ACQUIRED, "a");
    is_event(&page, 1, 2, FEED_ACQUIRED, "b");
    is_event(&page, 2, 3, FEED_ENDED, "a");
}

void oldest_events_are_deleted_and_their_readers_told(struct fixture *one, struct fixture *two)
{
    feed_begin(one);
    acquire(one, "a");
    acquire(one, "b");
    acquire(one, "c");
    number(one, 3);
    struct feed_position first = {read_oldest(two).ret_next.epoch, 1};
    struct feed_trim done = trim(one, 2);
    MUST(done.ret_deleted == 1 && done.ret_early && done.ret_stored == 2 && !done.ret_full);
    struct feed_page page = read_oldest(two);
    MUST(page.ret_count == 2);
    is_event(&page, 0, 2, FEED_ACQUIRED, "b");
    page = read_after(two, first);
    MUST(page.ret_verdict == FEED_KNOWN && page.ret_count == 2);
    first.seq = 0;
    page = read_after(two, first);
    MUST(page.ret_verdict == FEED_GONE && page.ret_count == 0 && page.ret_next.seq == 1);
}

void full_feed_has_an_event_gap_and_reopens(struct fixture *one, struct fixture *two)
{
    feed_begin(one);
    acquire(one, "a");
    acquire(one, "b");
    struct feed_trim done = trim(one, 1); /* none has a number, so none is deleted */
    MUST(done.ret_full && done.ret_deleted == 0);
    MUST(read_head(two).full);
    number(two, 3);
    struct feed_page page = read_oldest(two);
    MUST(page.ret_count == 3);
    is_event(&page, 2, 3, FEED_GAP, "");
    done = trim(two, 1);
    MUST(!done.ret_full && !read_head(one).full);
    number(two, 1);
    page = read_oldest(two);
    is_event(&page, page.ret_count - 1, 4, FEED_GAP, "");
}

/* The plan of a batch that has read that the feed is full. */
static void leave_events_out(struct fixture *fixture, const char *key)
{
    struct want want[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    struct operation acquire_key = acquire_of(key, want, 1);
    MUST(batch_decide(fixture, &acquire_key)->status == PERMIT_OK && fixture->plan.changes.feed_count == 1);
    fixture->plan.changes.feed_count = 0;
    fixture->plan.changes.feed_omitted = true;
}

void events_are_left_out_only_while_the_feed_is_full(struct fixture *one, struct fixture *two)
{
    feed_begin(one);
    acquire(one, "a");
    acquire(one, "b");
    MUST(trim(two, 1).ret_full);
    release(one, "a");
    number(two, 4);
    leave_events_out(one, "c");
    MUST_OK(one->store, one->store->batch->commit(one->store, &one->plan.changes));
    release(one, "b");
    number(two, 1);
    leave_events_out(one, "d");
    MUST(!trim(two, 1).ret_full); /* does not wait for the batch, which has locked only alpha */
    MUST(one->store->batch->commit(one->store, &one->plan.changes) == PERMIT_CONFLICT);
    MUST_OK(one->store, one->store->batch->rollback(one->store));
    acquire(one, "d");
    number(two, 2); /* the gap, and d: c is between the gaps */
}

void reader_of_lost_events_is_told(struct fixture *one, struct fixture *two)
{
    feed_begin(one);
    acquire(one, "a");
    number(one, 1);
    struct feed_position position = read_oldest(two).ret_next;
    MUST(read_after(two, (struct feed_position){position.epoch, 2}).ret_verdict == FEED_LOST);
    MUST_OK(one->store, fixture_advance_epoch(one->store, EPOCH_TOKENS, position.epoch, 0));
    acquire(two, "b");
    number(two, 1);
    struct feed_page page = read_after(one, position);
    MUST(page.ret_verdict == FEED_KNOWN && page.ret_count == 1 && page.ret_next.epoch > position.epoch);
    page = read_after(one, (struct feed_position){position.epoch, 2}); /* that epoch ended at 1 */
    MUST(page.ret_verdict == FEED_LOST && page.ret_next.seq == 1);
}
