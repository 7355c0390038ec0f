/* SPDX-License-Identifier: MIT */
/*
 * For whom the units of several queues are reserved, in two packets: the first waiters before a request, one arm of a
 * UNION for each of its queues; then the places of the protected ones in all their queues, each with its semaphore. It
 * tells from the rows what a walk of the plan would find (core/plan_walk.c), but for the reservations before a waiter.
 */
#include <stdlib.h>

#include "store/query_packet.h"

enum { PROTECTED_MAX = 128 }; /* protected waiters of all queues */

/* A protected waiter. Its request has id, external_id, place and wants. */
struct candidate {
    struct request request;
    bool reads; /* its places are read */
    size_t places;
    bool bars; /* one of its semaphores can never give it what it wants, as it is */
    struct bytes *lacks;
    size_t lack_count;
};

/* The protected waiters before the request, and in each of its queues those of them that stand there. */
struct candidates {
    struct candidate *all[PROTECTED_MAX];
    size_t count;
    size_t place_count; /* that are read */
    struct candidate **queues[REQUEST_MAX_SEMAPHORES];
    size_t queue_counts[REQUEST_MAX_SEMAPHORES];
};

/* ---- the waiters ---- */

/*
 * Walks PRIMARY of waiter, and those of each request and its server. A request cannot have waited since before its
 * place, so the walk ends at the time `aged`. Those that have entered later, with a priority, are read without their
 * wants.
 */
static void waiters_sql(const struct request *request, utc_us aged, size_t most, struct buf *sql)
{
    for (size_t i = 0; i < request->want_count; i++) {
        buf_printf(sql, "%s(SELECT STRAIGHT_JOIN %zu AS n,r.id,r.external_id,r.place,IF(r.waiting_since<=",
                   i ? " UNION ALL " : "", i);
        sql_time(sql, aged);
        buf_printf(sql, ",r.wanted,NULL)" QUERY_QUEUE QUERY_LIVING_SERVER " WHERE w.semaphore_id=%llu AND w.place<=",
                   (unsigned long long)request->wants[i].semaphore_id);
        sql_time(sql, aged);
        query_side_sql('<', request->place, request->id, sql);
        buf_printf(sql, " ORDER BY w.place,w.permit_request_id LIMIT %zu)", most);
    }
}

/* Returns the candidate with this id; NULL: there is none. */
static struct candidate *find_candidate(const struct candidates *candidates, uint64_t id)
{
    for (size_t i = 0; i < candidates->count; i++)
        if (candidates->all[i]->request.id == id)
            return candidates->all[i];
    return NULL;
}

/* Reads one waiter. NULL: it is not protected, or there are enough. */
static struct candidate *read_waiter(struct row_reader *row, struct candidates *candidates)
{
    struct request request = {.id = row_u64(row)};
    struct bytes external_id = row_column(row);
    request.place = row_time(row);
    struct bytes wanted = row_column(row);
    struct candidate *candidate = find_candidate(candidates, request.id);
    if (candidate || !wanted.data || candidates->count == PROTECTED_MAX)
        return candidate;
    candidate = arena_array(row->arena, 1, sizeof *candidate);
    request.external_id = arena_copy(row->arena, external_id);
    wanted = arena_copy(row->arena, wanted);
    row->broken |=
        !candidate || !request.external_id.data || !wanted.data || !row_decode_wanted(wanted, row->arena, &request);
    struct bytes *lacks = row->broken ? NULL : arena_array(row->arena, request.want_count, sizeof *lacks);
    row->broken |= !lacks;
    if (row->broken)
        return NULL;
    *candidate = (struct candidate){.request = request, .lacks = lacks};
    return candidates->all[candidates->count++] = candidate;
}

static void read_waiters(struct packet *packet, const struct request *request, size_t most,
                         struct candidates *candidates)
{
    for (size_t i = 0; i < request->want_count; i++) {
        candidates->queues[i] = arena_array(packet->row.arena, most, sizeof(struct candidate *));
        packet->row.broken |= !candidates->queues[i];
    }
    while (packet_row(packet)) {
        size_t n = row_u64(&packet->row);
        struct candidate *candidate = read_waiter(&packet->row, candidates);
        if (candidate && n < request->want_count && candidates->queue_counts[n] < most)
            candidates->queues[n][candidates->queue_counts[n]++] = candidate;
    }
}

/* ---- their places ---- */

/*
 * Chooses the candidates whose places are read: the first of each queue, then the second ones, until there are enough.
 */
static void choose_candidates(const struct request *request, size_t most, struct candidates *candidates)
{
    for (size_t depth = 0; depth < most; depth++)
        for (size_t i = 0; i < request->want_count; i++) {
            struct candidate *candidate = depth < candidates->queue_counts[i] ? candidates->queues[i][depth] : NULL;
            if (!candidate || candidate->reads)
                continue;
            if (candidates->place_count + candidate->request.want_count > QUERY_RESERVERS_PLACES)
                return;
            candidates->place_count += candidate->request.want_count;
            candidate->reads = true;
        }
}

/* Walks PRIMARY of waiter, over these places alone, and then that of each semaphore. */
static void places_sql(const struct candidates *candidates, struct buf *sql)
{
    buf_append_text(sql, "SELECT STRAIGHT_JOIN w.permit_request_id,s.name,"
                         "s.capacity=0 OR s.paused_reason IS NOT NULL OR s.retired_at IS NOT NULL"
                         " OR w.count+s.confirmed>s.capacity,"
                         "w.count+s.in_use>s.capacity OR w.watch<>0"
                         " FROM waiter w FORCE INDEX (PRIMARY)"
                         " JOIN semaphore s FORCE INDEX (PRIMARY) ON s.id=w.semaphore_id WHERE FALSE");
    for (size_t i = 0; i < candidates->count; i++) {
        const struct request *request = &candidates->all[i]->request;
        for (size_t j = 0; candidates->all[i]->reads && j < request->want_count; j++) {
            buf_printf(sql,
                       " OR (w.semaphore_id=%llu AND w.place=", (unsigned long long)request->wants[j].semaphore_id);
            sql_time(sql, request->place);
            buf_printf(sql, " AND w.permit_request_id=%llu)", (unsigned long long)request->id);
        }
    }
}

static void read_places(struct packet *packet, struct candidates *candidates)
{
    while (packet_row(packet)) {
        struct candidate *candidate = find_candidate(candidates, row_u64(&packet->row));
        struct bytes name = row_bytes(&packet->row);
        bool bars = row_u64(&packet->row), lacks = row_u64(&packet->row);
        if (!candidate || candidate->places == candidate->request.want_count)
            continue;
        candidate->places++;
        candidate->bars |= bars;
        if (lacks)
            candidate->lacks[candidate->lack_count++] = name;
    }
}

/* ---- the result ---- */

static int compare_names(const void *a, const void *b)
{
    return bytes_compare(*(const struct bytes *)a, *(const struct bytes *)b);
}

/* Returns true if units are reserved for it. It has left if not all its places were found. */
static bool reserves(const struct candidate *candidate)
{
    return candidate->places == candidate->request.want_count && !candidate->bars && candidate->lack_count;
}

static struct reserver first_reserver(struct candidate *const *candidates, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct candidate *candidate = candidates[i];
        if (!reserves(candidate))
            continue;
        qsort(candidate->lacks, candidate->lack_count, sizeof *candidate->lacks, compare_names);
        return (struct reserver){.external_id = candidate->request.external_id,
                                 .lacks = candidate->lacks,
                                 .lack_count = candidate->lack_count};
    }
    return (struct reserver){.lack_count = 0};
}

enum permit_status query_reservers(struct store *store, const struct request *request, utc_us aged, struct arena *arena,
                                   struct reserver *ret_reservers)
{
    struct packet packet = packet_begin(session_of(store), arena);
    struct candidates *candidates = arena_array(arena, 1, sizeof *candidates);
    size_t most = QUERY_RESERVERS_WALK / request->want_count;
    if (!candidates)
        return PERMIT_NO_MEMORY;
    waiters_sql(request, aged, most, &packet.sql);
    packet_send(&packet);
    read_waiters(&packet, request, most, candidates);
    if (packet_works(&packet) && candidates->count) {
        choose_candidates(request, most, candidates);
        places_sql(candidates, &packet.sql);
        packet_send(&packet);
        read_places(&packet, candidates);
    }
    enum permit_status status = packet_end(&packet);
    if (status != PERMIT_OK)
        return status;
    for (size_t i = 0; i < request->want_count; i++)
        ret_reservers[i] = first_reserver(candidates->queues[i], candidates->queue_counts[i]);
    return PERMIT_OK;
}
