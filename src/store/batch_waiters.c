/* SPDX-License-Identifier: MIT */
/*
 * Reads the parts of queues that a batch may grant, under the locks of the batch: one packet has the living servers and
 * the first waiters of each queue, a second one the slots that they may take. The first packet is left out if the lock
 * packet has read all of it.
 *
 * A place that no client asks for, because its request has no server or its server is dead, is not read: other waiters
 * pass it. Neither is a waiter that watches a slot which stays held, because it cannot be granted; except the first
 * protected ones that want more slots, because they reserve these.
 */
#include <assert.h>
#include <stdlib.h>

#include "store/batch.h"
#include "store/row_reader.h"

enum {
    /*
     * So many slots that the waiters of one queue name are read. A waiter beyond that is left out, because waiters for
     * specific slots are in nobody's way; under `fifo` the queue is cut there.
     */
    NAMED_MAX = 4000,
    WATCHERS_MAX = 64,   /* protected waiters that watch a held slot and want more */
    GLIMPSED_MAX = 1024, /* waiters of all queues that are not locked */
    KEYS_A_STATEMENT = 500,
};

static const char living_servers[] = "SELECT id FROM server FORCE INDEX (server_dead) WHERE dead_at IS NULL";

/* Walks the queue in its order, by this index, and the primary keys of each request and its server. */
#define WAITERS                                                                                                        \
    "SELECT STRAIGHT_JOIN " ROW_REQUEST_COLUMNS " FROM waiter w FORCE INDEX (%s)"                                      \
    " JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=w.permit_request_id"                                         \
    " JOIN server v FORCE INDEX (PRIMARY) ON v.id=r.server_id AND v.dead_at IS NULL WHERE w.semaphore_id=%llu"
#define IN_ORDER " ORDER BY w.place,w.permit_request_id LIMIT %zu"

/* The part of one queue that was read. The last waiter may be `beyond`. */
struct queue_part {
    struct request *waiters; /* in order of place, id */
    size_t count;
    struct queue_view end;
};

/* The first part of a queue, read with the locks. */
struct queue_ahead {
    uint64_t semaphore_id;
    struct queue_part part;
};

/* ---- the first packet ---- */

/* The condition of protected waiters. A request cannot have waited since before its place. */
static void protected_sql(utc_us aged, struct buf *sql)
{
    buf_append_text(sql, "(w.place<=");
    sql_time(sql, aged);
    buf_append_text(sql, " AND r.waiting_since<=");
    sql_time(sql, aged);
    buf_append_char(sql, ')');
}

/*
 * The condition of waiters that may fit, or that are protected, but not of those that the plan knows to be hopeless;
 * under `fifo` there is none.
 */
static void may_matter_sql(const struct queue_read *read, struct buf *sql)
{
    if (read->fifo)
        return;
    buf_printf(sql, " AND (w.count<=%lld OR ", (long long)read->free);
    protected_sql(read->aged, sql);
    buf_append_char(sql, ')');
    if (read->hopeless_count == 0)
        return;
    buf_append_text(sql, " AND (w.needs NOT IN (");
    sql_ids(sql, read->hopeless, read->hopeless_count);
    buf_append_text(sql, ") OR (");
    protected_sql(read->aged, sql);
    if (read->hopeless_protected) {
        buf_append_text(sql, " AND w.needs NOT IN (");
        sql_ids(sql, read->hopeless, read->hopeless_protected);
        buf_append_char(sql, ')');
    }
    buf_append_text(sql, "))");
}

/* Reads the first waiters of a queue, unless they watch a slot. The hash of their needs is in no index. */
static void waiters_sql(const struct queue_read *read, uint64_t semaphore_id, struct buf *sql)
{
    bool by_watch = !read->all_watches && read->hopeless_count == 0;
    buf_printf(sql, ";" WAITERS "%s", by_watch ? "waiter_watch" : "PRIMARY", (unsigned long long)semaphore_id,
               read->all_watches ? "" : " AND w.watch=0");
    may_matter_sql(read, sql);
    buf_printf(sql, IN_ORDER, read->limit + 1);
}

static void freed_sql(const struct queue_read *read, uint32_t one_of_many, struct buf *sql)
{
    for (size_t i = 0; i < read->freed_count; i++)
        buf_printf(sql, i ? ",%u" : "%u", read->freed[i] | one_of_many);
    buf_append_char(sql, ')');
}

/*
 * Reads the first waiters that watch a slot which the batch may free. Those of one slot are in the order of the index;
 * those of several are sorted by the server.
 */
static void watchers_sql(const struct queue_read *read, uint64_t semaphore_id, uint32_t one_of_many, struct buf *sql)
{
    buf_printf(sql, ";" WAITERS " AND w.watch IN (", "waiter_watch", (unsigned long long)semaphore_id);
    freed_sql(read, one_of_many, sql);
    may_matter_sql(read, sql);
    buf_printf(sql, IN_ORDER, read->limit + 1);
}

/* Reads the first protected waiters that watch another slot and want more than that: they reserve the others. */
static void reserving_watchers_sql(const struct queue_read *read, uint64_t semaphore_id, struct buf *sql)
{
    buf_printf(sql, ";" WAITERS " AND w.watch>%u AND ", "waiter_watch", (unsigned long long)semaphore_id,
               WATCHES_ONE_OF_MANY);
    protected_sql(read->aged, sql);
    if (read->freed_count) {
        buf_append_text(sql, " AND w.watch NOT IN (");
        freed_sql(read, WATCHES_ONE_OF_MANY, sql);
    }
    buf_printf(sql, IN_ORDER, (size_t)WATCHERS_MAX);
}

static enum permit_status read_servers(struct session *session, struct arena *arena, const uint64_t **ret_servers,
                                       size_t *ret_count)
{
    size_t count = session_affected(session);
    uint64_t *servers = arena_array(arena, count + 1, sizeof *servers);
    struct row_reader reader = {.arena = arena, .broken = !servers};
    for (size_t i = 0; i < count && row_step(&reader, session); i++)
        servers[i] = row_u64(&reader);
    if (reader.broken)
        return PERMIT_NO_MEMORY;
    qsort(servers, count, sizeof *servers, compare_u64);
    *ret_servers = servers;
    *ret_count = count;
    return PERMIT_OK;
}

/* The part ends at its last waiter. */
static void end_at_last(struct queue_part *part)
{
    part->end.beyond_place = part->waiters[part->count - 1].place;
    part->end.beyond = part->waiters[part->count - 1].id;
}

/* Reads the answer to one of these; more than `limit` rows: it has ended at the last one. */
static enum permit_status read_part(struct session *session, size_t limit, struct arena *arena,
                                    struct queue_part *ret_part)
{
    enum permit_status status = session_next(session);
    if (status != PERMIT_OK)
        return status;
    size_t rows = session_affected(session);
    struct row_reader reader = {.arena = arena};
    struct queue_part part = {.waiters = arena_array(arena, rows, sizeof *part.waiters), .end.limit = limit};
    if (!part.waiters)
        return PERMIT_NO_MEMORY;
    while (part.count < rows && row_step(&reader, session))
        row_request(&reader, &part.waiters[part.count++]);
    if (reader.broken)
        return PERMIT_NO_MEMORY;
    if (rows > limit)
        end_at_last(&part);
    *ret_part = part;
    return PERMIT_OK;
}

/* Merges two parts of a queue. The result ends where the first of them ends. False: out of memory. */
static bool merge_parts(const struct queue_part *more, struct arena *arena, struct queue_part *part)
{
    struct queue_part all = {.waiters = arena_array(arena, part->count + more->count, sizeof *all.waiters),
                             .end = part->end};
    if (!all.waiters)
        return false;
    const struct queue_view *end = &more->end;
    bool sooner = place_compare(end->beyond_place, end->beyond, all.end.beyond_place, all.end.beyond) < 0;
    if (end->beyond && (!all.end.beyond || sooner))
        all.end = (struct queue_view){end->beyond_place, end->beyond, all.end.limit};
    for (size_t i = 0, j = 0; i < part->count || j < more->count;) {
        bool first = j == more->count;
        if (!first && i < part->count)
            first = request_compare_places(&part->waiters[i], &more->waiters[j]) < 0;
        const struct request *waiter = first ? &part->waiters[i++] : &more->waiters[j++];
        all.waiters[all.count++] = *waiter;
        if (all.end.beyond && place_compare(waiter->place, waiter->id, all.end.beyond_place, all.end.beyond) >= 0)
            break;
    }
    *part = all;
    return true;
}

/* Returns true if protected waiters that watch a slot are read. */
static bool reads_watchers(const struct queue_read *read)
{
    return !read->all_watches && !read->fifo;
}

static enum permit_status read_queue(struct session *session, const struct queue_read *read, struct arena *arena,
                                     struct queue_part *part)
{
    const int more_parts = (read->freed_count ? 2 : 0) + reads_watchers(read);
    enum permit_status status = read_part(session, read->limit, arena, part);
    for (int i = 0; i < more_parts && status == PERMIT_OK; i++) {
        struct queue_part more;
        status =
            read_part(session, reads_watchers(read) && i == more_parts - 1 ? WATCHERS_MAX : read->limit, arena, &more);
        if (status == PERMIT_OK && !merge_parts(&more, arena, part))
            status = PERMIT_NO_MEMORY;
    }
    return status;
}

static enum permit_status read_queues(const struct batch_reading *reading, const struct queue_read *reads, size_t count,
                                      struct queue_part *parts)
{
    struct session *session = reading->session;
    struct view *view = reading->view;
    struct buf *sql = reading->sql;
    buf_clear(sql);
    buf_append_text(sql, living_servers);
    for (size_t i = 0; i < count; i++) {
        assert(reads[i].semaphore < view->semaphore_count);
        waiters_sql(&reads[i], view->semaphores[reads[i].semaphore].id, sql);
        for (int many = 0; many < 2 && reads[i].freed_count; many++)
            watchers_sql(&reads[i], view->semaphores[reads[i].semaphore].id, many ? WATCHES_ONE_OF_MANY : 0, sql);
        if (reads_watchers(&reads[i]))
            reserving_watchers_sql(&reads[i], view->semaphores[reads[i].semaphore].id, sql);
    }
    enum permit_status status = session_send_buf(session, sql);
    if (status == PERMIT_OK)
        status = read_servers(session, reading->arena, &view->servers, &view->server_count);
    view->has_servers = status == PERMIT_OK;
    for (size_t i = 0; i < count && status == PERMIT_OK; i++)
        status = read_queue(session, &reads[i], reading->arena, &parts[i]);
    return session_end(session, status);
}

/* ---- with the locks ---- */

/* The units that will be free are not known yet, so simply the first waiters are read. */
static struct queue_read read_of_first(size_t count)
{
    return (struct queue_read){.fifo = true, .limit = count, .all_watches = true};
}

void batch_ahead_sql(const struct lock_set *set, struct buf *sql)
{
    if (!set->waiters_ahead)
        return;
    buf_append_char(sql, ';');
    buf_append_text(sql, living_servers);
    for (size_t i = 0; i < set->semaphore_count; i++) {
        const struct queue_read read = read_of_first(set->waiters_ahead[i]);
        if (read.limit)
            waiters_sql(&read, set->semaphore_ids[i], sql);
    }
}

enum permit_status batch_read_ahead(struct session *session, const struct lock_set *set, struct arena *arena,
                                    struct queues_ahead *ret_ahead)
{
    if (!set->waiters_ahead)
        return PERMIT_OK;
    struct queues_ahead ahead = {.queues = arena_array(arena, set->semaphore_count + 1, sizeof *ahead.queues)};
    if (!ahead.queues)
        return PERMIT_NO_MEMORY;
    enum permit_status status = session_next(session);
    if (status == PERMIT_OK)
        status = read_servers(session, arena, &ahead.servers, &ahead.server_count);
    for (size_t i = 0; i < set->semaphore_count && status == PERMIT_OK; i++) {
        if (set->waiters_ahead[i] == 0)
            continue;
        struct queue_ahead *queue = &ahead.queues[ahead.count++];
        queue->semaphore_id = set->semaphore_ids[i];
        status = read_part(session, set->waiters_ahead[i], arena, &queue->part);
    }
    if (status == PERMIT_OK)
        *ret_ahead = ahead;
    return status;
}

/* Takes the parts and the servers from what was read ahead, and drops that. False: something is missing. */
static bool take_ahead(struct queues_ahead *ahead, const struct queue_read *reads, size_t count,
                       struct queue_part *parts, struct view *view)
{
    const struct queues_ahead taken = *ahead;
    *ahead = (struct queues_ahead){0};
    for (size_t i = 0; i < count; i++) {
        size_t at = 0;
        while (at < taken.count && taken.queues[at].semaphore_id != view->semaphores[reads[i].semaphore].id)
            at++;
        if (at == taken.count)
            return false;
        parts[i] = taken.queues[at].part;
    }
    view->servers = taken.servers;
    view->server_count = taken.server_count;
    view->has_servers = taken.servers != NULL;
    return taken.servers != NULL;
}

/* ---- the requests of the view ---- */

static size_t named_slots_of(const struct request *waiter, uint64_t semaphore_id)
{
    for (size_t i = 0; i < waiter->want_count; i++)
        if (waiter->wants[i].semaphore_id == semaphore_id)
            return waiter->wants[i].named_count;
    return 0;
}

/* Leaves out the waiters beyond NAMED_MAX; under `fifo` cuts the part there. A waiter alone names fewer. */
static void bound_names(struct queue_part *part, const struct queue_read *read, uint64_t semaphore_id)
{
    size_t sum = 0, kept = 0;
    for (size_t i = 0; i < part->count; i++) {
        size_t own = named_slots_of(&part->waiters[i], semaphore_id);
        bool fits = own == 0 || sum + own <= NAMED_MAX;
        if (!fits && !read->fifo)
            continue;
        sum += own;
        part->waiters[kept++] = part->waiters[i];
        if (fits)
            continue;
        part->count = kept;
        end_at_last(part);
    }
    part->count = kept;
}

/* Adds the waiters to view->requests, each once. A request that is there already stays as it is. */
static bool add_requests(const struct queue_part *parts, size_t count, struct arena *arena, struct view *view)
{
    size_t before = view->request_count, added = before;
    size_t room = before;
    for (size_t i = 0; i < count; i++)
        room += parts[i].count;
    struct request *all = arena_array(arena, room + 1, sizeof *all);
    if (!all)
        return false;
    if (before)
        memcpy(all, view->requests, before * sizeof *all);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < parts[i].count; j++) {
            const struct request *waiter = &parts[i].waiters[j];
            if (!before || !bsearch(waiter, view->requests, before, sizeof *waiter, request_compare_keys))
                all[added++] = *waiter;
        }
    qsort(all, added, sizeof *all, request_compare_keys);
    view->requests = all;
    view->request_count = 0;
    for (size_t i = 0; i < added; i++)
        if (i == 0 || request_compare_keys(&all[view->request_count - 1], &all[i]) != 0)
            all[view->request_count++] = all[i];
    return true;
}

/* ---- the slots that they may take ---- */

/*
 * Appends the names of all waiters of the view to those that the operations want. *ret_adjacent: one of them wants a
 * run, or best seats.
 */
static bool add_names(const struct view *view, uint64_t semaphore_id, struct slots_wanted *wanted, bool *ret_adjacent,
                      struct arena *arena)
{
    size_t count = wanted->named_count;
    struct slot_name *names = NULL;
    *ret_adjacent = false;
    for (int pass = 0; pass < 2; pass++) { /* counts, then copies */
        size_t at = wanted->named_count;
        for (size_t i = 0; i < view->request_count; i++) {
            const struct request *request = &view->requests[i];
            for (size_t j = 0; request->state == REQUEST_WAITING && j < request->want_count; j++) {
                const struct want *want = &request->wants[j];
                if (want->semaphore_id != semaphore_id)
                    continue;
                *ret_adjacent |= want->adjacent || want->choice == CHOOSE_BEST;
                if (names && want->named_count)
                    memcpy(names + at, want->named, want->named_count * sizeof *names);
                at += want->named_count;
            }
        }
        count = at;
        if (pass == 1 || count == wanted->named_count)
            break;
        names = arena_array(arena, count, sizeof *names);
        if (!names)
            return false;
        if (wanted->named_count)
            memcpy(names, wanted->named, wanted->named_count * sizeof *names);
    }
    if (!names)
        return true;
    wanted->named = names;
    wanted->named_count = count;
    return true;
}

/* Appends the numbers of a window of slots, from the lowest free one on. */
static bool add_window(const struct semaphore *semaphore, struct slots_wanted *wanted, struct arena *arena)
{
    const uint32_t first = semaphore->first_free ? semaphore->first_free : 1;
    struct slot_name *names = arena_array(arena, wanted->named_count + QUEUE_WINDOW, sizeof *names);
    if (!names)
        return false;
    if (wanted->named_count)
        memcpy(names, wanted->named, wanted->named_count * sizeof *names);
    for (uint32_t i = 0; i < QUEUE_WINDOW && first + i <= semaphore->capacity; i++)
        names[wanted->named_count++] = (struct slot_name){.number = first + i};
    wanted->named = names;
    return true;
}

/* The number of units that the waiters of the view may take of one semaphore, or reserve. */
static int64_t units_wanted(const struct view *view, uint64_t semaphore_id)
{
    int64_t units = 0;
    for (size_t i = 0; i < view->request_count; i++) {
        const struct request *request = &view->requests[i];
        for (size_t j = 0; request->state == REQUEST_WAITING && j < request->want_count; j++)
            if (request->wants[j].semaphore_id == semaphore_id)
                units += request->wants[j].count;
    }
    return units;
}

/*
 * The slots to read of one semaphore: of the free ones, the lowest, as many as may be granted. A run of adjacent slots
 * may be anywhere, so all free slots are read for it.
 */
static bool want_slots(const struct view *view, const struct queue_read *read, struct slots_wanted *wanted,
                       struct arena *arena)
{
    const struct semaphore *semaphore = &view->semaphores[read->semaphore];
    bool adjacent;
    if (!add_names(view, semaphore->id, wanted, &adjacent, arena) ||
        (read->with_holders && !add_window(semaphore, wanted, arena)))
        return false;
    if (wanted->free == SLOTS_KNOWN)
        return true;
    int64_t units = min_i64(semaphore->capacity, units_wanted(view, semaphore->id));
    wanted->free =
        adjacent ? semaphore->capacity + 1 : max_i64(wanted->free, min_i64(wanted->free + units, semaphore->capacity));
    return true;
}

static enum permit_status read_slots(const struct batch_reading *reading, const struct queue_read *reads,
                                     const struct slots_wanted *slots, size_t count)
{
    struct arena *arena = reading->arena;
    struct view *view = reading->view;
    uint64_t *ids = arena_array(arena, count + 1, sizeof *ids);
    struct slots_wanted *wanted = arena_array(arena, count + 1, sizeof *wanted);
    struct lock_set set = {.semaphore_ids = ids, .slots_wanted = wanted};
    if (!ids || !wanted)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const struct semaphore *semaphore = &view->semaphores[reads[i].semaphore];
        if (semaphore->kind != KIND_SLOTTED)
            continue;
        ids[set.semaphore_count] = semaphore->id;
        wanted[set.semaphore_count] = slots[i];
        if (!want_slots(view, &reads[i], &wanted[set.semaphore_count], arena))
            return PERMIT_NO_MEMORY;
        if (slots[i].free != SLOTS_KNOWN)
            view->free_slots[reads[i].semaphore] = (struct free_slots){0};
        view->named_slots[reads[i].semaphore] = (struct named_slots){.has_holders = reads[i].with_holders};
        set.semaphore_count++;
    }
    if (set.semaphore_count == 0)
        return PERMIT_OK;
    if (!batch_sort_named(&set, arena))
        return PERMIT_NO_MEMORY;
    return batch_read_slots(reading->session, &set, reading->sql, arena, view);
}

enum permit_status batch_read_waiters(const struct batch_reading *reading, struct queues_ahead *ahead,
                                      const struct queue_read *reads, const struct slots_wanted *slots, size_t count)
{
    struct arena *arena = reading->arena;
    struct view *view = reading->view;
    struct queue_part *parts = arena_array(arena, count + 1, sizeof *parts);
    view->queues = arena_array(arena, view->semaphore_count + 1, sizeof *view->queues);
    if (!parts || !view->queues)
        return PERMIT_NO_MEMORY;
    enum permit_status status = PERMIT_OK;
    if (!take_ahead(ahead, reads, count, parts, view)) {
        memset(parts, 0, count * sizeof *parts);
        status = read_queues(reading, reads, count, parts);
    }
    if (status != PERMIT_OK)
        return status;
    for (size_t i = 0; i < count; i++) {
        bound_names(&parts[i], &reads[i], view->semaphores[reads[i].semaphore].id);
        view->queues[reads[i].semaphore] = parts[i].end;
    }
    if (!add_requests(parts, count, arena, view))
        return PERMIT_NO_MEMORY;
    return read_slots(reading, reads, slots, count);
}

/* ---- semaphores that are not locked ---- */

/* Appends the keys of the places that waiters of the view which name slots have there; returns their number. */
static size_t places_sql(const struct view *view, const uint64_t *ids, size_t count, struct buf *sql)
{
    size_t places = 0;
    for (size_t i = 0; i < view->request_count; i++) {
        const struct request *request = &view->requests[i];
        for (size_t j = 0; request->state == REQUEST_WAITING && j < request->want_count; j++) {
            const struct want *want = &request->wants[j];
            if (want->choice != CHOOSE_NAMED || places == KEYS_A_STATEMENT ||
                !bsearch(&want->semaphore_id, ids, count, sizeof *ids, compare_u64))
                continue;
            buf_printf(sql, "%s(w.semaphore_id=%llu AND w.place=", places++ ? " OR " : "",
                       (unsigned long long)want->semaphore_id);
            sql_time(sql, request->place);
            buf_printf(sql, " AND w.permit_request_id=%llu)", (unsigned long long)request->id);
        }
    }
    return places;
}

/* Finds the slot that each waiter watches, and whether its holder is confirmed, by primary keys. */
static bool watched_sql(const struct view *view, const uint64_t *ids, size_t count, struct buf *sql)
{
    struct buf places;
    buf_init(&places, sql->max);
    bool any = places_sql(view, ids, count, &places) > 0;
    if (any) {
        buf_append_text(
            sql, ";SELECT STRAIGHT_JOIN w.semaphore_id,w.permit_request_id,h.confirmed_at IS NOT NULL"
                 " FROM waiter w FORCE INDEX (PRIMARY)"
                 " JOIN slot l FORCE INDEX (PRIMARY) ON l.semaphore_id=w.semaphore_id AND l.number=w.watch&2147483647"
                 " JOIN permit p FORCE INDEX (PRIMARY) ON p.semaphore_id=l.semaphore_id AND p.id=l.permit_id"
                 " JOIN permit_request h FORCE INDEX (PRIMARY) ON h.id=p.permit_request_id"
                 " WHERE w.watch>0 AND (");
        buf_append(sql, places.data, places.length);
        buf_append_char(sql, ')');
    }
    sql->broken |= places.broken;
    buf_release(&places);
    return any;
}

/* Reads protected waiters of these queues, and of those that are `fifo` the first ones. */
static void glimpsed_queues_sql(const uint64_t *ids, size_t count, utc_us aged, struct buf *sql)
{
    static const char waiters[] =
        ";SELECT STRAIGHT_JOIN " ROW_REQUEST_COLUMNS " FROM %swaiter w FORCE INDEX (PRIMARY)"
        " JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=w.permit_request_id"
        " JOIN server v FORCE INDEX (PRIMARY) ON v.id=r.server_id AND v.dead_at IS NULL WHERE %s IN (";
    static const char in_order[] = " ORDER BY w.semaphore_id,w.place,w.permit_request_id LIMIT %d";
    buf_printf(sql, waiters, "", "w.semaphore_id");
    sql_ids(sql, ids, count);
    buf_append_text(sql, ") AND ");
    protected_sql(aged, sql);
    buf_printf(sql, in_order, GLIMPSED_MAX);
    buf_printf(sql, waiters, "semaphore s FORCE INDEX (PRIMARY) JOIN ", "s.id");
    sql_ids(sql, ids, count);
    buf_printf(sql, ") AND s.queue=%d AND w.semaphore_id=s.id", QUEUE_FIFO);
    buf_printf(sql, in_order, GLIMPSED_MAX);
}

static int compare_glimpses(const void *a, const void *b)
{
    return compare_u64(&((const struct glimpse *)a)->semaphore.id, &((const struct glimpse *)b)->semaphore.id);
}

/* Adds the rows of the semaphores to the glimpses of the view. */
static enum permit_status read_glimpsed_rows(struct session *session, size_t count, struct arena *arena,
                                             struct view *view)
{
    struct row_reader reader = {.arena = arena};
    struct glimpse *glimpses = arena_array(arena, view->glimpse_count + count, sizeof *glimpses);
    size_t read = view->glimpse_count;
    if (!glimpses)
        return PERMIT_NO_MEMORY;
    if (read)
        memcpy(glimpses, view->glimpses, read * sizeof *glimpses);
    while (read < view->glimpse_count + count && row_step(&reader, session))
        row_semaphore(&reader, &glimpses[read++].semaphore);
    qsort(glimpses, read, sizeof *glimpses, compare_glimpses);
    view->glimpses = glimpses;
    view->glimpse_count = read;
    return reader.broken ? PERMIT_NO_MEMORY : PERMIT_OK;
}

static enum permit_status read_watched(struct session *session, struct arena *arena, struct view *view)
{
    enum permit_status status = session_next(session);
    size_t count = status == PERMIT_OK ? session_affected(session) : 0;
    struct row_reader reader = {.arena = arena};
    struct watcher *watchers = arena_array(arena, count, sizeof *watchers);
    if (!watchers)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < count && row_step(&reader, session); i++) {
        struct glimpse key = {.semaphore.id = row_u64(&reader)};
        struct glimpse *glimpse = view->glimpse_count
                                      ? bsearch(&key, view->glimpses, view->glimpse_count, sizeof key, compare_glimpses)
                                      : NULL;
        watchers[i] = (struct watcher){.request_id = row_u64(&reader), .confirmed = row_u64(&reader) != 0};
        if (glimpse && !glimpse->watchers)
            glimpse->watchers = &watchers[i];
        if (glimpse) /* the rows of one semaphore are adjacent, because the index is walked in its order */
            glimpse->watcher_count++;
    }
    return status;
}

enum permit_status batch_read_glimpses(const struct batch_reading *reading, const uint64_t *ids, size_t count,
                                       utc_us aged)
{
    struct session *session = reading->session;
    struct arena *arena = reading->arena;
    struct view *view = reading->view;
    struct buf *sql = reading->sql;
    struct queue_part parts[2] = {0};
    buf_clear(sql);
    buf_append_text(sql, "SELECT " ROW_SEMAPHORE_COLUMNS " FROM semaphore s FORCE INDEX (PRIMARY) WHERE s.id IN (");
    sql_ids(sql, ids, count);
    buf_append_char(sql, ')');
    glimpsed_queues_sql(ids, count, aged, sql);
    bool watched = watched_sql(view, ids, count, sql);
    enum permit_status status = session_send_buf(session, sql);
    if (status == PERMIT_OK)
        status = read_glimpsed_rows(session, count, arena, view);
    for (size_t i = 0; i < 2 && status == PERMIT_OK; i++)
        status = read_part(session, GLIMPSED_MAX, arena, &parts[i]);
    if (status == PERMIT_OK && watched)
        status = read_watched(session, arena, view);
    status = session_end(session, status);
    return status == PERMIT_OK && !add_requests(parts, 2, arena, view) ? PERMIT_NO_MEMORY : status;
}
