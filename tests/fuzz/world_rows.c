/* SPDX-License-Identifier: MIT */
/* Replaces the database: checks the arguments of queries, and returns invented rows. */
#include <stdarg.h>

#include "fuzz.h"
#include "reference.h"
#include "store/doctor.h"
#include "store/feed.h"
#include "store/locks.h"
#include "store/owners.h"
#include "store/query.h"
#include "store/servers.h"
#include "store/templates.h"
#include "store/webhooks.h"
#include "world.h"

/* Returns the status of a query's reads. */
static enum permit_status ends(void)
{
    return world.decided;
}

static void set_time(struct query_time *ret_time)
{
    *ret_time = (struct query_time){.clock = world_clock, .now = world_now};
}

/* A semaphore paused in this run stays paused or is resumed, depending on the length of its name. */
static struct bytes paused_reason(struct bytes name)
{
    if (world.paused)
        return name.length % 2 ? (struct bytes){0} : BYTES("it is over");
    return world.text.length % 2 ? world_text(1000) : (struct bytes){0};
}

static struct semaphore make_semaphore(struct bytes name)
{
    return (struct semaphore){
        .name = name,
        .kind = KIND_COUNTED,
        .queue = QUEUE_FIFO,
        .capacity = COUNTED_MAX_CAPACITY,
        .in_use = world.text.length % 3 ? 1 : COUNTED_MAX_CAPACITY + 1,
        .waiting = INT64_MAX,
        .max_priority = 9,
        .next_token = UINT64_MAX,
        .config_version = UINT64_MAX,
        .max_ttl_ms = -1,
        .paused_reason = paused_reason(name),
        .note = world_text(1000),
        .retired_at = NEVER,
    };
}

/* A waiting request. A kept one waits at no server. */
static struct request make_waiting(struct bytes key, struct arena *arena)
{
    static const struct slot_name slot = {.number = 3};
    struct want *wants = arena_array(arena, 2, sizeof *wants);
    MUST(wants);
    wants[0] = (struct want){.semaphore = BYTES("backups"), .count = 1, .choice = CHOOSE_NAMED, .named_count = 1};
    wants[0].named = arena_alloc(arena, sizeof slot);
    MUST(wants[0].named);
    *wants[0].named = slot;
    wants[1] = (struct want){.semaphore = BYTES("network"), .count = COUNTED_MAX_CAPACITY, .adjacent = true};
    return (struct request){
        .id = 7,
        .external_id = key,
        .owner = world_text(255),
        .state = REQUEST_WAITING,
        .server_id = world.text.length % 2 ? UINT64_MAX : 0,
        .priority = PRIORITY_MAX,
        .place = world_now - PRIORITY_MAX * 30 * US_PER_SECOND,
        .waiting_since = world_now,
        .waiting_until = world_now + 1,
        .due_at = NEVER,
        .confirmed_at = NEVER,
        .acquired_at = NEVER,
        .ended_at = NEVER,
        .wants = wants,
        .want_count = 2,
    };
}

static struct request make_request(struct bytes key)
{
    return (struct request){
        .id = 7,
        .external_id = key,
        .owner = world_text(255),
        .state = world.text.length % 2 ? REQUEST_ACQUIRED : REQUEST_RELEASED,
        .server_id = world.text.length % 5,
        .end_reason = world.text.length % 2 ? END_NONE : END_NEVER_HELD,
        .ttl_ms = world.text.length % 3 ? TTL_BY_OWNER : 1000,
        .due_at = world_now,
        .confirmed_at = NEVER,
        .acquired_at = NEVER,
        .ended_at = world_now,
    };
}

/* Returns the most rows possible: one more than a page, the last of which the handler must not show. */
static void *make_rows(struct arena *arena, unsigned limit, size_t size, size_t *ret_count)
{
    size_t count = limit < 3 ? limit : 3;
    void *rows = arena_array(arena, count, size);
    MUST(rows);
    *ret_count = count;
    return rows;
}

/* Makes the rows of a page; a full page has a next one. */
static void make_page(struct page *page, size_t size)
{
    MUST(page->limit >= 1 && page->limit <= 1000 && (page->after.name.data || !page->after.name.length));
    MUST(page->after.number <= INT64_MAX);
    page->rows = make_rows(page->arena, page->limit, size, &page->count);
    page->more = page->count == page->limit;
    page->next = (struct cursor){.name = BYTES("backups"), .number = 7};
    set_time(&page->time);
}

static enum permit_status query_semaphore(struct store *store, struct bytes name, struct arena *arena,
                                          struct semaphore_row *ret_row, struct query_time *ret_time)
{
    (void)arena;
    MUST(store && reference_semaphore(name));
    if (ends() != PERMIT_OK)
        return ends();
    *ret_row = (struct semaphore_row){.semaphore = make_semaphore(name), .floor = 1, .waiting_since = world_now};
    set_time(ret_time);
    return PERMIT_OK;
}

static struct availability make_availability(struct bytes name)
{
    return (struct availability){
        .name = name, .available = COUNTED_MAX_CAPACITY, .waiting = INT64_MAX, .version = UINT64_MAX};
}

/* Every second name exists; each range has the rows that it may have, and sometimes more. */
static enum permit_status query_availability(struct store *store, struct availability_read *read, struct arena *arena)
{
    MUST(store && (read->name_count || read->range_count));
    if (ends() != PERMIT_OK)
        return ends();
    read->ret_rows = read->name_count ? arena_array(arena, read->name_count, sizeof *read->ret_rows) : NULL;
    for (size_t i = 0; i < read->name_count; i++) {
        MUST(read->ret_rows && reference_semaphore(read->names[i]));
        if (i % 2 == 0)
            read->ret_rows[read->ret_count++] = make_availability(read->names[i]);
    }
    for (size_t i = 0; i < read->range_count; i++) {
        struct availability_range *range = &read->ranges[i];
        MUST(range->prefix.length <= 255 && range->after.length <= 255);
        range->ret_rows = make_rows(arena, AVAILABILITY_ROWS, sizeof *range->ret_rows, &range->ret_count);
        for (size_t j = 0; j < range->ret_count; j++)
            range->ret_rows[j] = make_availability(BYTES("backups"));
        if (world.text.length % 2)
            range->ret_next = BYTES("backups");
    }
    return PERMIT_OK;
}

static enum permit_status query_semaphores(struct store *store, struct bytes prefix, struct page *page)
{
    MUST(store && (prefix.data || !prefix.length));
    if (ends() != PERMIT_OK)
        return ends();
    make_page(page, sizeof *page->semaphores);
    for (size_t i = 0; i < page->count; i++)
        page->semaphores[i] =
            (struct semaphore_row){.semaphore = make_semaphore(BYTES("backups")), .waiting_since = NEVER};
    return PERMIT_OK;
}

static enum permit_status query_semaphore_sums(struct store *store, struct semaphore_sums *ret_sums)
{
    MUST(store);
    *ret_sums = (struct semaphore_sums){.count = 3, .capacity = INT64_MAX};
    return ends();
}

static enum permit_status query_holders(struct store *store, struct bytes semaphore, struct page *page)
{
    MUST(store && reference_semaphore(semaphore));
    if (ends() != PERMIT_OK)
        return ends();
    world.holders_read = true;
    make_page(page, sizeof *page->holders);
    for (size_t i = 0; i < page->count; i++)
        page->holders[i] = (struct holder_row){.request = make_request(world_text(255)), .permit = {.token = i + 1}};
    if (page->after.number >= page->count)
        page->count = 0;
    return PERMIT_OK;
}

static enum permit_status query_fronts(struct store *store, const uint64_t *semaphore_ids, size_t count,
                                       struct arena *arena, struct semaphore_front *ret_fronts,
                                       struct query_time *ret_time)
{
    MUST(store && count >= 1 && count <= REQUEST_MAX_SEMAPHORES);
    (void)semaphore_ids;
    if (ends() != PERMIT_OK)
        return ends();
    for (size_t i = 0; i < count; i++) {
        struct semaphore_front *front = &ret_fronts[i];
        *front = (struct semaphore_front){
            .holders = make_rows(arena, QUERY_FRONT_HOLDERS, sizeof *front->holders, &front->holder_count)};
        for (size_t j = 0; j < front->holder_count; j++)
            front->holders[j] = (struct front_holder){.external_id = world_text(255), .expires_at = NEVER};
    }
    set_time(ret_time);
    return PERMIT_OK;
}

static enum permit_status read_semaphores(struct store *store, const uint64_t *ids, size_t count, struct arena *arena,
                                          struct semaphore_page *ret_page)
{
    MUST(store);
    if (ends() != PERMIT_OK)
        return ends();
    *ret_page =
        (struct semaphore_page){.rows = make_rows(arena, (unsigned)count, sizeof *ret_page->rows, &ret_page->count)};
    for (size_t i = 0; i < ret_page->count; i++) {
        ret_page->rows[i] = make_semaphore(BYTES("backups"));
        ret_page->rows[i].id = ids[i];
    }
    return PERMIT_OK;
}

static void make_permits(struct arena *arena, struct request *request, struct bytes **ret_names)
{
    request->permits = arena_array(arena, 1, sizeof *request->permits);
    *ret_names = arena_array(arena, 1, sizeof **ret_names);
    MUST(request->permits && *ret_names);
    request->permit_count = 1;
    (*ret_names)[0] = BYTES("backups");
}

static enum permit_status query_waiters(struct store *store, struct bytes semaphore, struct page *page)
{
    MUST(store && reference_semaphore(semaphore));
    MUST(page->after.place >= 0 && page->after.place <= 999999999999999999 && page->after.number <= 999999999999999999);
    if (ends() != PERMIT_OK)
        return ends();
    make_page(page, sizeof *page->waiters);
    for (size_t i = 0; i < page->count; i++)
        page->waiters[i] = (struct waiter_row){
            .request = make_waiting(world_text(255), page->arena),
            .kept = world.text.length % 2 == 0,
            .number = page->after.waiters + i,
            .behind = i ? world_text(255) : (struct bytes){0},
        };
    return PERMIT_OK;
}

static enum permit_status query_kept_until(struct store *store, const struct request *requests, size_t count,
                                           size_t stride, const struct query_time *time, struct arena *arena,
                                           utc_us **ret_until)
{
    utc_us *until = arena_array(arena, count + 1, sizeof *until);
    (void)store, (void)requests, (void)stride;
    for (size_t i = 0; until && i < count; i++)
        until[i] = i % 2 ? time->now : 0;
    *ret_until = until;
    return until ? PERMIT_OK : PERMIT_NO_MEMORY;
}

static enum permit_status query_ahead(struct store *store, const struct request *request, struct arena *arena,
                                      struct queue_position **ret_positions, bool *ret_kept)
{
    MUST(store && request->state == REQUEST_WAITING && request->want_count == 2);
    *ret_positions = arena_array(arena, request->want_count, sizeof **ret_positions);
    MUST(*ret_positions);
    (*ret_positions)[0] = (struct queue_position){
        .ahead = QUERY_WALK_MAX, .more = true, .keys = &request->wants->semaphore, .key_count = 1};
    *ret_kept = request->server_id == 0;
    return PERMIT_OK;
}

static enum permit_status query_reservers(struct store *store, const struct request *request, utc_us aged,
                                          struct arena *arena, struct reserver *ret_reservers)
{
    MUST(store && request->state == REQUEST_WAITING && aged == world_now);
    for (size_t i = 0; i < request->want_count; i++) {
        ret_reservers[i] = (struct reserver){.lacks = arena_array(arena, 1, sizeof *ret_reservers[i].lacks)};
        MUST(ret_reservers[i].lacks);
        if (i)
            continue;
        ret_reservers[i].external_id = world_text(255);
        ret_reservers[i].lacks[ret_reservers[i].lack_count++] = BYTES("backups");
    }
    return ends();
}

static enum permit_status query_request(struct store *store, struct bytes external_id, struct arena *arena,
                                        struct request *ret_request, struct bytes **ret_names,
                                        struct query_time *ret_time)
{
    MUST(store && reference_stored_key(external_id));
    if (ends() != PERMIT_OK)
        return ends();
    if (external_id.length % 3 == 0) {
        *ret_request = make_waiting(external_id, arena);
        *ret_names = NULL;
    } else {
        *ret_request = make_request(external_id);
        make_permits(arena, ret_request, ret_names);
    }
    set_time(ret_time);
    return PERMIT_OK;
}

static void make_requests(struct page *page)
{
    make_page(page, sizeof *page->requests);
    for (size_t i = 0; i < page->count; i++) {
        struct listed_request *row = &page->requests[i];
        if (i == 1) {
            row->request = make_waiting(world_text(255), page->arena);
            continue;
        }
        row->request = make_request(world_text(255));
        make_permits(page->arena, &row->request, &row->names);
    }
}

static enum permit_status query_requests(struct store *store, const struct request_filter *filter, struct page *page)
{
    MUST(store && (!filter->owner.data || reference_stored_key(filter->owner)));
    MUST(!filter->semaphore.data || reference_semaphore(filter->semaphore));
    MUST(filter->state == 0 || filter->state == REQUEST_ACQUIRED || filter->state == REQUEST_RELEASED ||
         filter->state == REQUEST_WAITING);
    if (ends() != PERMIT_OK)
        return ends();
    make_requests(page);
    return PERMIT_OK;
}

static enum permit_status query_held_at(struct store *store, const struct request_filter *filter, struct page *page)
{
    MUST(store && reference_semaphore(filter->semaphore));
    MUST(!filter->owner.data || reference_stored_key(filter->owner));
    MUST(filter->at > -2 * 86400LL * US_PER_SECOND && filter->at < 253402387200LL * US_PER_SECOND);
    if (ends() != PERMIT_OK)
        return ends();
    make_requests(page);
    page->more = world.text.length % 2;
    return PERMIT_OK;
}

static enum permit_status query_permits(struct store *store, uint64_t semaphore_id, struct page *page)
{
    MUST(store && semaphore_id);
    if (ends() != PERMIT_OK)
        return ends();
    make_page(page, sizeof *page->permits);
    for (size_t i = 0; i < page->count; i++)
        page->permits[i] = (struct report_permit){
            .token = 3 - i,
            .count = 1,
            .owner = world_text(STORED_KEY_MAX_BYTES),
            .end_reason = END_EXPIRED,
            .acquired_at = world_now - US_PER_SECOND,
            .ended_at = i % 2 ? NEVER : world_now,
            .confirmed_at = NEVER,
            .waiting_since = i % 3 ? NEVER : world_now - 2 * US_PER_SECOND,
        };
    page->more = world.text.length % 2;
    return PERMIT_OK;
}

static enum permit_status query_events(struct store *store, struct bytes semaphore, struct page *page)
{
    MUST(store && reference_semaphore(semaphore));
    if (ends() != PERMIT_OK)
        return ends();
    make_page(page, sizeof *page->events);
    for (size_t i = 0; i < page->count; i++)
        page->events[i] = (struct event_row){
            .id = 3 - i,
            .at = world_now,
            .who = world_text(255),
            .what = world_text(32),
            .from = world_text(1000),
            .why = world_text(1000),
        };
    return PERMIT_OK;
}

static enum permit_status query_fence(struct store *store, struct bytes semaphore, uint64_t token, uint32_t slot,
                                      struct fence_row *ret_row)
{
    MUST(store && reference_semaphore(semaphore) && token >= 1 && token <= INT64_MAX && slot <= SLOTS_MAX_CAPACITY);
    *ret_row = (struct fence_row){.known = slot % 2, .state = REQUEST_RELEASED, .end_reason = END_STALE, .floor = 1};
    return ends();
}

static enum permit_status query_clock(struct store *store, struct query_time *ret_time)
{
    MUST(store);
    set_time(ret_time);
    return ends();
}

static enum permit_status query_slot_list_head(struct store *store, struct bytes semaphore,
                                               struct slot_list_head *ret_head)
{
    MUST(store && reference_semaphore(semaphore));
    *ret_head = (struct slot_list_head){
        .semaphore_id = 1,
        .kind = world.text.length % 5 ? KIND_SLOTTED : KIND_COUNTED,
        .in_use = (int64_t)(world.text.length % 2),
        .version = 7,
        .epoch = 3,
    };
    return ends();
}

static enum permit_status query_slots(struct store *store, uint64_t semaphore_id, const struct slot_filter *filter,
                                      struct page *page)
{
    MUST(store && semaphore_id == 1 && page->after.number <= UINT32_MAX);
    MUST(filter->state == SLOT_ANY || filter->state == SLOT_FREE || filter->state == SLOT_HELD);
    MUST(filter->prefix.data || !filter->prefix.length);
    make_page(page, sizeof *page->slots);
    for (size_t i = 0; i < page->count; i++)
        page->slots[i] = (struct slot_list_row){
            .number = (uint32_t)(page->after.number + i),
            .label = world_text(LABEL_MAX_BYTES),
            .token = i % 2,
            .request = make_request(world_text(255)),
        };
    return PERMIT_OK;
}

static struct template make_template(struct bytes prefix)
{
    return (struct template){.prefix = prefix, .settings = make_semaphore(prefix)};
}

static enum permit_status templates_put(struct store *store, struct template_change *change, struct arena *arena)
{
    (void)arena;
    MUST(store && reference_semaphore(change->prefix) && !change->change.has_labels);
    if (world.decided == PERMIT_INVALID || world.decided == PERMIT_VERSION_MISMATCH)
        change->ret_refusal = "said so";
    if (ends() != PERMIT_OK)
        return ends();
    change->ret_template = make_template(change->prefix);
    change->ret_created = change->change.has_capacity;
    return PERMIT_OK;
}

static enum permit_status templates_get(struct store *store, struct bytes prefix, struct arena *arena,
                                        struct template *ret_template)
{
    (void)arena;
    MUST(store && reference_semaphore(prefix));
    *ret_template = make_template(prefix);
    return ends();
}

static enum permit_status templates_delete(struct store *store, struct bytes prefix, struct arena *arena,
                                           struct template *ret_template)
{
    return templates_get(store, prefix, arena, ret_template);
}

static enum permit_status templates_list(struct store *store, struct bytes begins, struct page *page)
{
    MUST(store && (begins.data || !begins.length));
    if (ends() != PERMIT_OK)
        return ends();
    make_page(page, sizeof *page->templates);
    for (size_t i = 0; i < page->count; i++)
        page->templates[i] = make_template(BYTES("user."));
    return PERMIT_OK;
}

static struct owner make_owner(struct bytes name)
{
    return (struct owner){
        .name = name,
        .ttl_ms = world.text.length % 2 ? 1000 : 0,
        .due_at = world_now - 2 * (utc_us)US_PER_SECOND,
        .lapsed_at = world.text.length % 3 ? NEVER : world_now,
        .settled_at = NEVER,
    };
}

static enum permit_status owners_read(struct store *store, const struct bytes *names, size_t count, struct page *page)
{
    MUST(store && count >= 1 && count <= OWNERS_MAX);
    page->owners = make_rows(page->arena, 1, sizeof *page->owners, &page->count);
    page->owners[0] = make_owner(names[0]);
    set_time(&page->time);
    return PERMIT_OK;
}

static enum permit_status owners_get(struct store *store, struct bytes name, struct arena *arena,
                                     struct owner *ret_owner, uint64_t *ret_held, struct query_time *ret_time)
{
    (void)arena;
    MUST(store && reference_stored_key(name));
    if (ends() != PERMIT_OK)
        return ends();
    *ret_owner = make_owner(name);
    *ret_held = 1;
    set_time(ret_time);
    return PERMIT_OK;
}

static enum permit_status owners_count(struct store *store, uint64_t ret_counts[OWNER_LIFE_COUNT])
{
    MUST(store);
    memset(ret_counts, 0, OWNER_LIFE_COUNT * sizeof *ret_counts);
    return ends();
}

static enum permit_status query_nearest(struct store *store, enum nearest_kind kind, struct bytes name,
                                        struct bytes within, struct arena *arena, struct nearest *ret_nearest)
{
    (void)arena;
    MUST(store && kind <= NEAREST_REQUEST && reference_stored_key(name) && bytes_begin_with(name, within));
    *ret_nearest = (struct nearest){.exists = world.text.length % 3 == 0, .name = world_text(255)};
    return ends();
}

static enum permit_status servers_list(struct store *store, struct page *page)
{
    MUST(store);
    if (ends() != PERMIT_OK)
        return ends();
    make_page(page, sizeof *page->servers);
    for (size_t i = 0; i < page->count; i++)
        page->servers[i] = (struct server_row){.id = i + 1,
                                               .address = world_text(SERVER_ADDRESS_MAX),
                                               .version = world_text(SERVER_VERSION_MAX),
                                               .since = world_now,
                                               .seen_at = world_now,
                                               .waiting = i,
                                               .alive = i % 2 == 0};
    return PERMIT_OK;
}

static enum permit_status advance_epoch(struct store *store, struct epoch_advance *advance)
{
    struct bytes why = advance->why;
    MUST(store && advance->cause == EPOCH_OPERATOR && why.length >= 1 && why.length <= 1000 && reference_utf8(why));
    advance->ret_epoch = 8;
    advance->ret_wait_ms = 7;
    return ends();
}

static enum permit_status doctor(struct store *store, struct doctor_report *ret_report)
{
    MUST(store);
    *ret_report = (struct doctor_report){.count = 0};
    return ends();
}

void doctor_add(struct doctor_report *report, const char *check, enum doctor_verdict verdict, const char *format, ...)
{
    va_list arguments;
    MUST(report->count < DOCTOR_MAX_FINDINGS);
    struct doctor_finding *finding = &report->findings[report->count++];
    *finding = (struct doctor_finding){.verdict = verdict, .check = check};
    va_start(arguments, format);
    vsnprintf(finding->sentence, sizeof finding->sentence, format, arguments);
    va_end(arguments);
}

const char *doctor_verdict_word(enum doctor_verdict verdict)
{
    return verdict == DOCTOR_OK ? "ok" : "warn";
}

static enum permit_status missing_grant(struct store *store, char *ret_grant)
{
    MUST(store);
    snprintf(ret_grant, LOCK_GRANT_SIZE, "GRANT PROCESS ON *.* TO 'permitd'@'%%'");
    return ends();
}

static enum permit_status plans(struct store *store, struct doctor_report *report)
{
    MUST(store && report);
    return ends();
}

/* At most two events, of a key that the caller may not see, or a gap; then the end. */
static enum permit_status feed_read(struct store *store, struct feed_page *page, struct arena *arena)
{
    static const enum feed_verdict verdicts[] = {FEED_KNOWN, FEED_KNOWN, FEED_GONE, FEED_LOST};
    MUST(store && page->limit >= 1);
    if (ends() != PERMIT_OK)
        return ends();
    page->ret_verdict = verdicts[page->after.seq % ARRAY_LENGTH(verdicts)];
    page->ret_next = (struct feed_position){7, page->after.seq};
    page->ret_rows = arena_array(arena, 2, sizeof *page->ret_rows);
    for (size_t i = 0; page->ret_rows && page->from_oldest && i < 2 && i < page->limit; i++)
        page->ret_rows[page->ret_count++] = (struct feed_row){
            .seq = i + 1,
            .at = world_now,
            .what = i ? FEED_GAP : FEED_ENDED,
            .end_reason = i ? END_NONE : END_EXPIRED,
            .external_id = world_text(STORED_KEY_MAX_BYTES),
            .owner = world_text(STORED_KEY_MAX_BYTES),
            .principal = world_text(255),
            .permits = i ? BYTES("") : BYTES("hall 2 57 1-2\n"),
            .metadata = i ? (struct bytes){0} : BYTES("{\"order\":\"4711\"}"),
        };
    return page->ret_rows ? PERMIT_OK : PERMIT_NO_MEMORY;
}

static enum permit_status webhooks_show(struct store *store, const struct scope *scope, struct arena *arena,
                                        struct webhook_list *list)
{
    MUST(store);
    (void)scope;
    if (ends() != PERMIT_OK)
        return ends();
    list->ret_rows = arena_array(arena, 1, sizeof *list->ret_rows);
    if (!list->ret_rows)
        return PERMIT_NO_MEMORY;
    list->ret_count = 1;
    list->ret_head = 9;
    list->ret_rows[0] = (struct webhook_row){.url = world_text(STORED_KEY_MAX_BYTES),
                                             .position = {7, 3},
                                             .failures = 2,
                                             .status = 500,
                                             .error = world_text(WEBHOOK_ERROR_MAX),
                                             .called_at = world_now,
                                             .failing_since = world_now,
                                             .retry_at = NEVER,
                                             .claimed_until = NEVER,
                                             .behind_since = world_now};
    return PERMIT_OK;
}

static const struct store_queries queries = {
    .locks_missing_grant = missing_grant,
    .plans = plans,
    .semaphore = query_semaphore,
    .semaphores = query_semaphores,
    .semaphore_sums = query_semaphore_sums,
    .waiters = query_waiters,
    .ahead = query_ahead,
    .kept_until = query_kept_until,
    .holders = query_holders,
    .fronts = query_fronts,
    .reservers = query_reservers,
    .request = query_request,
    .requests = query_requests,
    .fence = query_fence,
    .clock = query_clock,
    .held_at = query_held_at,
    .permits = query_permits,
    .events = query_events,
    .nearest = query_nearest,
    .availability = query_availability,
    .slot_list_head = query_slot_list_head,
    .slots = query_slots,
    .semaphores_of = read_semaphores,
};
static const struct store_owners owners = {
    .read = owners_read,
    .get = owners_get,
    .count = owners_count,
};
static const struct store_templates templates = {
    .put = templates_put,
    .delete = templates_delete,
    .get = templates_get,
    .list = templates_list,
};
static const struct store_servers servers = {.list = servers_list};
static const struct store_feed feed = {.read = feed_read};
static const struct store_webhooks webhooks = {.show = webhooks_show};
static const struct store_session session = {.doctor = doctor};
static const struct store_clock clock_methods = {.advance_epoch = advance_epoch};

struct store *world_store(void)
{
    static char message[256];
    static struct store store = {.session = &session,
                                 .clock = &clock_methods,
                                 .queries = &queries,
                                 .owners = &owners,
                                 .templates = &templates,
                                 .servers = &servers,
                                 .feed = &feed,
                                 .webhooks = &webhooks,
                                 .message = message};
    snprintf(message, sizeof message, "away: %.*s", (int)world_text(200).length, world_text(200).data);
    return &store;
}
