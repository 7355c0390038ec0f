/* SPDX-License-Identifier: MIT */
/* The feed of the database in memory, as src/store/feed.c in SQL. */
#include "dice.h"
#include "fake_session.h"
#include "fake_tasks.h"
#include "run.h"
#include "store/feed.h"

enum {
    NUMBERED_FEW = 4,       /* sometimes the numbering reads so few rows */
    STATEMENT_US_MAX = 300, /* between two statements of it */
    STATEMENT_SLOW_US_MAX = 30000,
    LOCK_WAIT_US = 2000000,
    LOCK_POLL_US = 100,
    DELETED_FEW = 8, /* sometimes no more rows are deleted at once, so that the feed becomes full */
};

static struct db_event *first_unnumbered(void)
{
    for (uint64_t id = database.first_event_id; id && id <= database.next_event_id; id++) {
        struct db_event *event = database_event(id);
        if (event && !event->seq)
            return event;
    }
    return NULL;
}

static enum permit_status feed_head(struct store *store, struct feed_head *ret_head)
{
    enum permit_status status = call_enter(fake_of(store));
    if (status != PERMIT_OK)
        return status;
    *ret_head =
        (struct feed_head){.durable = database.globals.feed_durable,
                           .full = database.globals.feed_full,
                           .pending = first_unnumbered() || database.globals.feed_durable < database.globals.feed_seq};
    return call_leave(fake_of(store));
}

/* ---- numbering ---- */

/* One plain read: all that is committed now, in the order of ids. */
static size_t read_unnumbered(uint64_t *ids, size_t limit)
{
    size_t count = 0;
    for (uint64_t id = database.first_event_id; id && id <= database.next_event_id && count < limit; id++) {
        const struct db_event *event = database_event(id);
        if (event && !event->seq)
            ids[count++] = id;
    }
    return count;
}

static void next_statement(void)
{
    fiber_sleep(dice_between(0, dice_once_in(10) ? STATEMENT_SLOW_US_MAX : STATEMENT_US_MAX));
}

/* Leaves the ids in the transaction. */
static enum permit_status read_for_numbers(struct fake_store *fake)
{
    struct transaction *transaction = fake->transaction;
    enum permit_status status = transaction_lock_feed(transaction);
    if (status != PERMIT_OK)
        return status == PERMIT_DATABASE_LOST ? call_lose(fake, false) : call_report(fake, status, "feed_head");
    next_statement();
    if (!call_reaches(fake))
        return call_lose(fake, false);
    size_t limit = run_with_feed && dice_once_in(3) ? (size_t)dice_between(1, NUMBERED_FEW) : FEED_ROWS_A_STEP;
    transaction->numbered = calloc(limit, sizeof *transaction->numbered);
    if (!transaction->numbered)
        abort();
    if (database.globals.identity == database.server) {
        transaction->numbered_count = read_unnumbered(transaction->numbered, limit);
        transaction->numbers = transaction->numbered_count || database.globals.feed_durable < database.globals.feed_seq;
    }
    next_statement();
    return call_reaches(fake) ? call_random_error(fake) : call_lose(fake, false);
}

/* After the COMMIT has returned, in the same packet. */
static enum permit_status show_numbers(struct fake_store *fake, uint64_t seq)
{
    next_statement();
    return call_reaches(fake) ? call_flush(fake, database_commit_durable(seq)) : call_lose(fake, false);
}

static enum permit_status feed_number(struct store *store, struct arena *arena, size_t *ret_count)
{
    struct fake_store *fake = fake_of(store);
    (void)arena;
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    fake_batch_begin(fake);
    status = read_for_numbers(fake);
    size_t count = status == PERMIT_OK ? fake->transaction->numbered_count : 0;
    bool numbers = status == PERMIT_OK && fake->transaction->numbers;
    uint64_t seq = database.globals.feed_seq + count;
    if (numbers)
        status = fake_batch_commit(fake);
    else
        (void)fake_session_rollback(store);
    if (numbers && status == PERMIT_OK)
        status = show_numbers(fake, seq);
    if (status == PERMIT_OK)
        *ret_count = count;
    return status;
}

/* ---- the oldest, and the limit ---- */

/* Counts the rows, and how many of the first numbered ones the retention no longer keeps. */
static uint64_t count_events(int64_t retention_us, uint64_t *ret_numbered, uint64_t *ret_old)
{
    uint64_t count = 0;
    bool young = false;
    *ret_numbered = *ret_old = 0;
    for (uint64_t id = database.first_event_id; id && id <= database.next_event_id; id++) {
        const struct db_event *event = database_event(id);
        count += event != NULL;
        if (!event || !event->seq)
            continue;
        young |= event->at >= database_now() - retention_us;
        ++*ret_numbered;
        *ret_old += !young;
    }
    return count;
}

/* As in feed_trim of src/store/feed.c. */
static bool next_full(uint64_t stored, uint64_t rows)
{
    return stored >= 2 * rows - (database.globals.feed_full ? rows / 10 : 0);
}

/* The lock of feed_full. */
static enum permit_status await_omitting_batches(struct fake_store *fake)
{
    mono_us until = sim_now() + LOCK_WAIT_US;
    while (call_reaches(fake) && database_omits_events() && sim_now() < until)
        fiber_sleep(LOCK_POLL_US);
    if (!call_reaches(fake))
        return call_lose(fake, false);
    return database_omits_events() ? call_report(fake, PERMIT_LOCK_TIMEOUT, "feed_full") : PERMIT_OK;
}

static enum permit_status feed_trim(struct store *store, struct feed_trim *trim)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    if (database.globals.feed_full)
        status = await_omitting_batches(fake);
    if (status != PERMIT_OK)
        return status;
    uint64_t numbered, old;
    uint64_t count = count_events(trim->limits.retention_us, &numbered, &old);
    uint64_t beyond = numbered > trim->limits.rows ? numbered - trim->limits.rows : 0;
    uint64_t gone = beyond > old ? beyond : old;
    uint64_t most = run_with_feed && dice_once_in(2) ? DELETED_FEW : FEED_DELETED;
    gone = gone < most ? gone : most;
    struct globals globals = database.globals;
    globals.feed_full = next_full(count - gone, trim->limits.rows);
    bool moves = globals.feed_full != database.globals.feed_full;
    if (gone || moves)
        status = call_flush(fake, database_commit_feed(&globals, globals.feed_seq - numbered + gone + 1, moves));
    else
        status = call_leave(fake);
    if (status != PERMIT_OK)
        return status;
    trim->ret_deleted = gone;
    trim->ret_early = gone > old;
    trim->ret_stored = count - gone;
    trim->ret_full = globals.feed_full;
    return PERMIT_OK;
}

/* ---- pages ---- */

static struct feed_facts facts_for(struct feed_position position)
{
    const struct globals *globals = &database.globals;
    struct feed_facts facts = {.epoch = globals->clock.epoch,
                               .head = globals->feed_seq,
                               .durable = globals->feed_durable,
                               .least = UINT64_MAX};
    for (size_t i = 0; i < globals->feed_epoch_count; i++)
        if (globals->feed_epochs[i].epoch > position.epoch && globals->feed_epochs[i].seq < facts.least)
            facts.least = globals->feed_epochs[i].seq;
    return facts;
}

static int compare_numbers(const void *a, const void *b)
{
    return compare_u64(&((const struct feed_row *)a)->seq, &((const struct feed_row *)b)->seq);
}

/* The owner and the principal are not kept, as those of a request. */
static struct feed_row row_of(const struct db_event *event, struct arena *arena)
{
    const struct bytes permits = {event->permits, event->permits_length};
    const struct bytes metadata = {event->metadata.text, event->metadata.length};
    struct feed_row row = {.seq = event->seq, .at = event->at, .what = event->what, .end_reason = event->end_reason};
    row.permits = arena_copy(arena, permits);
    if (metadata.length)
        row.metadata = arena_copy(arena, metadata);
    if (event->key)
        row.external_id = arena_copy(arena, event->key->external_id);
    return row;
}

static enum permit_status feed_read(struct store *store, struct feed_page *page, struct arena *arena)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    struct feed_facts facts = facts_for(page->after);
    struct feed_position go_on;
    page->ret_rows = arena_array(arena, EVENTS_MAX, sizeof *page->ret_rows);
    page->ret_count = 0;
    for (uint64_t id = database.first_event_id; id && id <= database.next_event_id; id++) {
        const struct db_event *event = database_event(id);
        if (event && event->seq > page->after.seq && event->seq <= facts.durable)
            page->ret_rows[page->ret_count++] = row_of(event, arena);
    }
    if (page->ret_count)
        qsort(page->ret_rows, page->ret_count, sizeof *page->ret_rows, compare_numbers);
    page->ret_count = page->ret_count < page->limit ? page->ret_count : page->limit;
    facts.first = page->ret_count ? page->ret_rows[0].seq : 0;
    page->ret_verdict = page->from_oldest ? FEED_KNOWN : feed_judge(page->after, &facts, &go_on);
    if (page->ret_verdict != FEED_KNOWN) {
        page->ret_count = 0;
        page->ret_next = go_on;
        return call_leave(fake);
    }
    uint64_t last = page->from_oldest ? facts.durable : page->after.seq;
    page->ret_next =
        (struct feed_position){facts.epoch, page->ret_count ? page->ret_rows[page->ret_count - 1].seq : last};
    return call_leave(fake);
}

const struct store_feed fake_feed = {.head = feed_head, .number = feed_number, .trim = feed_trim, .read = feed_read};
