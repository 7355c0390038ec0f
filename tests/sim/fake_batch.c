/* SPDX-License-Identifier: MIT */
/* The steps of a batch on the database in memory, as src/store/batch_*.c in SQL. */
#include "dice.h"
#include "fake_session.h"
#include "oracle.h"
#include "run.h"

enum {
    COMMIT_US_MAX = 60,
    LATE_US_MAX = 6000,        /* of a late flush */
    ANSWER_LATE_ONCE_IN = 300, /* answers to a COMMIT, and to a read under locks */
    ANSWER_US_MAX = 60000,
};

/* ---- resolve ---- */

uint64_t fake_batch_floor_of(const struct db_semaphore *semaphore)
{
    uint64_t lowest = semaphore->row.semaphore.next_token;
    for (size_t i = 0; i < database.held_count; i++) {
        const struct request *request = &database.held[i]->row.request;
        for (size_t j = 0; j < request->permit_count; j++)
            if (request->permits[j].semaphore_id == semaphore->row.semaphore.id && request->permits[j].token < lowest)
                lowest = request->permits[j].token;
    }
    return lowest;
}

static void resolve_key(struct resolve_key *key, struct arena *arena)
{
    const struct request_row *row = &database_key(key->external_id)->row;
    if (!row->exists)
        return;
    uint64_t *ids = arena_array(arena, HELD_PERMITS_MAX + ROW_PERMITS_MAX, sizeof *ids);
    for (size_t i = 0; i < row->request.permit_count; i++) {
        ids[key->ret_count++] = row->request.permits[i].semaphore_id;
        key->ret_slots += row->request.permits[i].slots.count;
    }
    if (row_is_waiting(row)) {
        struct request request = row->request;
        row_decode_wants(&request, arena);
        for (size_t i = 0; i < request.want_count; i++)
            ids[key->ret_count++] = request.wants[i].semaphore_id;
    }
    qsort(ids, key->ret_count, sizeof *ids, compare_u64);
    key->ret_semaphore_ids = ids;
}

enum permit_status fake_batch_resolve(struct store *store, struct resolve *what, struct arena *arena)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    for (size_t i = 0; i < what->name_count; i++) {
        const struct db_semaphore *semaphore = database_semaphore_named(what->names[i].name);
        if (!semaphore->row.exists)
            continue;
        what->names[i].ret_id = semaphore->row.semaphore.id;
        what->names[i].ret_kind = semaphore->row.semaphore.kind;
        what->names[i].ret_floor = fake_batch_floor_of(semaphore);
        what->names[i].ret_retired = !row_in_service(&semaphore->row);
    }
    for (size_t i = 0; i < what->key_count; i++)
        resolve_key(&what->keys[i], arena);
    status = call_leave(fake);
    return status == PERMIT_OK ? fake_templates_match(fake, what->names, what->name_count, arena) : status;
}

/* ---- step 1 ---- */

static int compare_keys(const void *a, const void *b)
{
    return bytes_compare(((const struct request *)a)->external_id, ((const struct request *)b)->external_id);
}

/* Returns NULL if no slot has a label. */
static struct bytes *copy_labels(const struct permit *permit, const uint8_t *of_row, struct arena *arena)
{
    bool any = false;
    for (uint32_t i = 0; i < permit->slots.count; i++)
        any |= of_row[i] != 0;
    struct bytes *labels = any ? arena_array(arena, permit->slots.count, sizeof *labels) : NULL;
    for (uint32_t i = 0; labels && i < permit->slots.count; i++)
        labels[i] = label_text(of_row[i]);
    return labels;
}

void fake_batch_copy_request(const struct request_row *row, struct arena *arena, struct request *ret_request)
{
    *ret_request = row->request;
    ret_request->nonce = arena_copy(arena, row->request.nonce);
    ret_request->change_nonce = arena_copy(arena, row->request.change_nonce);
    if (row_is_waiting(row))
        row_decode_wants(ret_request, arena);
    ret_request->permits = arena_array(arena, row->request.permit_count, sizeof *ret_request->permits);
    for (size_t i = 0; i < row->request.permit_count; i++) {
        ret_request->permits[i] = row->permits[i];
        uint32_t *numbers = arena_array(arena, row->permits[i].slots.count, sizeof *numbers);
        memcpy(numbers, row->numbers[i], row->permits[i].slots.count * sizeof *numbers);
        ret_request->permits[i].slots.numbers = numbers;
        ret_request->permits[i].labels = copy_labels(&row->permits[i], row->labels[i], arena);
    }
}

static enum lock_state try_lock(struct fake_store *fake, struct db_key *key)
{
    return transaction_try_lock_key(fake->transaction, key) ? ROW_LOCKED : ROW_LOCKED_ELSEWHERE;
}

static void read_keys(struct fake_store *fake, const struct lock_set *set, struct arena *arena, struct view *view)
{
    view->requests = arena_array(arena, set->key_count, sizeof *view->requests);
    for (size_t i = 0; i < set->key_count; i++) {
        bool there = false; /* the contract says each key once; a duplicate would be harmless in SQL too */
        for (size_t j = 0; j < view->request_count && !there; j++)
            there = bytes_equal(view->requests[j].external_id, set->keys[i]);
        struct db_key *key = database_key(set->keys[i]);
        if (!key->row.exists || there)
            continue;
        struct request *request = &view->requests[view->request_count++];
        fake_batch_copy_request(&key->row, arena, request);
        request->lock = try_lock(fake, key);
    }
    if (view->request_count > 1)
        qsort(view->requests, view->request_count, sizeof *view->requests, compare_keys);
}

static void read_slots(const struct db_semaphore_row *row, int64_t wanted, struct arena *arena, struct free_slots *ret)
{
    *ret = (struct free_slots){0};
    ret->numbers = arena_array(arena, SLOTS_MAX, sizeof *ret->numbers);
    for (uint32_t number = row->semaphore.first_free; number <= row->in_service && (int64_t)ret->count < wanted;
         number++)
        if (number > 0 && row->slots[number] == 0) {
            if (row->labels[number] && !ret->labels)
                ret->labels = arena_array(arena, SLOTS_MAX, sizeof *ret->labels);
            if (ret->labels)
                ret->labels[ret->count] = slot_label(row, number);
            ret->numbers[ret->count++] = number;
        }
    ret->complete = (int64_t)ret->count < wanted;
}

static bool is_named(const struct slots_wanted *wanted, uint32_t number, struct bytes label)
{
    for (size_t i = 0; i < wanted->named_count; i++) {
        const struct slot_name *name = &wanted->named[i];
        if (name->number ? name->number == number : bytes_equal(name->label, label))
            return true;
    }
    return false;
}

/* The request that holds the permit with this token. */
static const struct request *holder_of(uint64_t semaphore_id, uint64_t token)
{
    for (size_t i = 0; token && i < database.held_count; i++)
        for (size_t j = 0; j < database.held[i]->row.request.permit_count; j++)
            if (database.held[i]->row.permits[j].semaphore_id == semaphore_id &&
                database.held[i]->row.permits[j].token == token)
                return &database.held[i]->row.request;
    return NULL;
}

/* wanted NULL: all slots. */
static void read_named(const struct db_semaphore_row *row, const struct slots_wanted *wanted, struct arena *arena,
                       struct named_slots *ret)
{
    ret->rows = arena_array(arena, SLOTS_MAX, sizeof *ret->rows);
    for (uint32_t number = 1; number <= row->slot_rows; number++) {
        struct bytes label = slot_label(row, number);
        if (wanted && !is_named(wanted, number, label))
            continue;
        const struct request *holder = holder_of(row->semaphore.id, row->slots[number]);
        ret->rows[ret->count++] = (struct slot_row){.number = number,
                                                    .label = label,
                                                    .token = row->slots[number],
                                                    .retired = number > row->in_service,
                                                    .holder = holder ? holder->external_id : (struct bytes){0},
                                                    .due_at = holder ? holder->due_at : NEVER,
                                                    .grace_ms = holder ? holder->grace_ms : 0,
                                                    .without_ttl = holder && holder->ttl_ms == TTL_NONE,
                                                    .confirmed = holder && holder->confirmed_at != NEVER};
    }
}

static void read_semaphore(const struct db_semaphore *semaphore, const struct slots_wanted *wanted, struct arena *arena,
                           struct view *view)
{
    size_t at = view->semaphore_count++;
    view->semaphores[at] = semaphore->row.semaphore;
    view->next_due[at] = semaphore->row.semaphore.next_due_at;
    if (wanted->free > 0 && semaphore->row.semaphore.version != wanted->known_version)
        read_slots(&semaphore->row, wanted->free, arena, &view->free_slots[at]);
    if (wanted->named_count > 0)
        read_named(&semaphore->row, wanted, arena, &view->named_slots[at]);
}

static void read_clock(struct view *view)
{
    view->now = database_now();
    view->clock = database.globals.clock;
    view->grants_from = database.globals.grants_from;
    view->same_server = database.globals.identity == database.server;
}

static enum permit_status lock_all(struct fake_store *fake, const struct lock_set *set)
{
    if (set->semaphore_name.data)
        return transaction_lock_named(fake->transaction, database_semaphore_named(set->semaphore_name));
    enum permit_status status = PERMIT_OK;
    for (size_t i = 0; i < set->semaphore_count && status == PERMIT_OK; i++) {
        struct db_semaphore *semaphore = database_semaphore(set->semaphore_ids[i]);
        if (semaphore)
            status = transaction_lock_semaphore(fake->transaction, semaphore);
    }
    return status;
}

static void read_view(const struct lock_set *set, struct arena *arena, struct view *view)
{
    size_t room = set->semaphore_count + 1;
    view->semaphores = arena_array(arena, room, sizeof *view->semaphores);
    view->free_slots = arena_array(arena, room, sizeof *view->free_slots);
    view->named_slots = arena_array(arena, room, sizeof *view->named_slots);
    view->next_due = arena_array(arena, room, sizeof *view->next_due);
    struct db_semaphore *named = set->semaphore_name.data ? database_semaphore_named(set->semaphore_name) : NULL;
    if (named && named->row.exists)
        read_semaphore(named, &(struct slots_wanted){0}, arena, view);
    if (named && named->row.exists && set->all_slots)
        read_named(&named->row, NULL, arena, &view->named_slots[0]);
    for (size_t i = 0; i < set->semaphore_count; i++)
        if (database_semaphore(set->semaphore_ids[i]))
            read_semaphore(database_semaphore(set->semaphore_ids[i]), &set->slots_wanted[i], arena, view);
}

/* BEGIN commits an open transaction. */
void fake_batch_begin(struct fake_store *fake)
{
    struct transaction *open = fake->transaction;
    transaction_free(open);
    fake->transaction = transaction_begin();
}

static enum permit_status take_locks(struct fake_store *fake, const struct lock_set *set)
{
    enum permit_status status = lock_all(fake, set);
    if (status == PERMIT_DATABASE_LOST)
        return call_lose(fake, false);
    if (status == PERMIT_CONFLICT)
        transaction_rollback(fake->transaction);
    if (status == PERMIT_OK)
        status = call_random_error(fake);
    return status == PERMIT_OK ? status : call_report(fake, status, "locks");
}

enum permit_status fake_batch_await(struct store *store, uint64_t semaphore_id)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    fake_batch_begin(fake);
    status = take_locks(fake, &(struct lock_set){.semaphore_ids = &semaphore_id, .semaphore_count = 1});
    return status == PERMIT_OK ? call_leave(fake) : status;
}

enum permit_status fake_batch_lock(struct store *store, const struct lock_set *set, struct arena *arena,
                                   struct view *ret_view)
{
    struct fake_store *fake = fake_of(store);
    struct view view = {0};
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    if (!set->lock_held)
        fake_batch_begin(fake);
    status = take_locks(fake, set);
    if (status != PERMIT_OK)
        return status;
    read_view(set, arena, &view);
    read_keys(fake, set, arena, &view);
    read_clock(&view);
    fake->transaction->read_at = fake->transaction->planned_at = sim_now();
    fake->transaction->read_time = lease_time(&view.clock, view.now);
    fake->transaction->read_tick = lease_ticked(&view.clock);
    if (dice_once_in(ANSWER_LATE_ONCE_IN))
        fiber_sleep(dice_between(0, ANSWER_US_MAX));
    status = call_leave(fake);
    if (status == PERMIT_OK)
        *ret_view = view;
    return status;
}

static int compare_due(const void *a, const void *b)
{
    const struct request *left = &(*(struct db_key *const *)a)->row.request;
    const struct request *right = &(*(struct db_key *const *)b)->row.request;
    int order = (left->due_at > right->due_at) - (left->due_at < right->due_at);
    return order ? order : compare_u64(&left->id, &right->id);
}

static bool row_has(const struct request *request, uint64_t semaphore_id)
{
    for (size_t i = 0; i < request->permit_count; i++)
        if (request->permits[i].semaphore_id == semaphore_id)
            return true;
    return false;
}

size_t fake_batch_sort_due(uint64_t semaphore_id, struct arena *arena, struct db_key ***ret_keys)
{
    size_t count = 0;
    struct db_key **keys = arena_array(arena, database.held_count + database.waiting_count, sizeof *keys);
    for (size_t i = 0; i < database.held_count; i++) {
        const struct request *request = &database.held[i]->row.request;
        if (request->due_at != NEVER && (semaphore_id == 0 || row_has(request, semaphore_id)))
            keys[count++] = database.held[i];
    }
    for (size_t i = 0; i < database.waiting_count && semaphore_id == 0; i++)
        if (row_is_waiting(&database.waiting[i]->row) && database.waiting[i]->row.request.due_at != NEVER)
            keys[count++] = database.waiting[i];
    qsort(keys, count, sizeof(struct db_key *), compare_due);
    *ret_keys = keys;
    return count;
}

static bool in_view(const struct view *view, size_t count, struct bytes external_id)
{
    for (size_t i = 0; i < count; i++)
        if (bytes_equal(view->requests[i].external_id, external_id))
            return true;
    return false;
}

/* Adds the due holders of named slots. */
static void read_due_named(const struct named_slots *named, utc_us now, struct arena *arena, struct view *view)
{
    for (size_t i = 0; i < named->count; i++)
        if (named->rows[i].token && named->rows[i].due_at <= now &&
            !in_view(view, view->request_count, named->rows[i].holder))
            fake_batch_copy_request(&database_key(named->rows[i].holder)->row, arena,
                                    &view->requests[view->request_count++]);
}

/*
 * As batch_due.c with few holders: sorts all deadlines of the semaphore, and reads as many requests as needed and one
 * more.
 */
enum permit_status fake_batch_read_due(struct store *store, const struct shortfall *shortfalls, size_t count,
                                       struct arena *arena, struct view *view)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    utc_us now = view->clock.due;
    struct request *all = arena_array(arena, view->request_count + database.held_count, sizeof *all);
    if (view->request_count)
        memcpy(all, view->requests, view->request_count * sizeof *all);
    view->requests = all;
    for (size_t i = 0; i < count; i++) {
        struct db_key **keys;
        utc_us bound = NEVER;
        int64_t room = min_i64(shortfalls[i].units + shortfalls[i].more, SLOTS_MAX_COUNT);
        size_t due = fake_batch_sort_due(view->semaphores[shortfalls[i].semaphore].id, arena, &keys);
        for (size_t j = 0; j < due && bound == NEVER; j++) {
            const struct request_row *row = &keys[j]->row;
            if (row->request.due_at > now || room-- <= 0)
                bound = row->request.due_at;
            else if (!in_view(view, view->request_count, row->request.external_id))
                fake_batch_copy_request(row, arena, &view->requests[view->request_count++]);
        }
        view->next_due[shortfalls[i].semaphore] = bound;
        if (shortfalls[i].named)
            read_due_named(&view->named_slots[shortfalls[i].semaphore], now, arena, view);
    }
    if (view->request_count > 1)
        qsort(view->requests, view->request_count, sizeof *view->requests, compare_keys);
    return call_leave(fake);
}

enum permit_status fake_batch_lock_requests(struct store *store, const uint64_t *ids, size_t count, struct view *view)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    for (size_t i = 0; i < view->request_count; i++) {
        struct request *request = &view->requests[i];
        if (!bsearch(&request->id, ids, count, sizeof *ids, compare_u64))
            continue;
        struct db_key *key = database_key(request->external_id);
        request->lock = try_lock(fake, key);
        request->errand = key->row.request.errand;
        request->confirmed_at = key->row.request.confirmed_at;
    }
    return call_leave(fake);
}

/* ---- waiters ---- */

size_t fake_queue_read_max = QUEUE_READ_MAX;

struct waiter_list {
    const struct request_row **rows;
    size_t count;
};

static int compare_rows(const void *a, const void *b)
{
    const struct request_row *left = *(const struct request_row *const *)a;
    const struct request_row *right = *(const struct request_row *const *)b;
    return compare_places(&left->request, &right->request);
}

static const struct place_row *place_at(const struct request_row *row, uint64_t semaphore_id)
{
    for (size_t i = 0; i < row->place_count; i++)
        if (row->places[i].semaphore_id == semaphore_id)
            return &row->places[i];
    return NULL;
}

/* The queue of a semaphore as far as clients ask at living permitd, in the order of places. */
static struct waiter_list list_queue(uint64_t semaphore_id, struct arena *arena)
{
    struct waiter_list list = {.rows = arena_array(arena, database.waiting_count, sizeof *list.rows)};
    for (size_t i = 0; i < database.waiting_count; i++) {
        const struct request_row *row = &database.waiting[i]->row;
        const struct db_server *server = row_is_waiting(row) ? database_server(row->request.server_id) : NULL;
        if (server && server->row.dead_at == NEVER && place_at(row, semaphore_id))
            list.rows[list.count++] = row;
    }
    if (list.count)
        qsort(list.rows, list.count, sizeof *list.rows, compare_rows);
    return list;
}

static void add_waiter(const struct request_row *row, struct arena *arena, struct view *view)
{
    if (!in_view(view, view->request_count, row->request.external_id))
        fake_batch_copy_request(row, arena, &view->requests[view->request_count++]);
}

static bool is_protected(const struct request *request, utc_us aged)
{
    return request->place <= aged && request->waiting_since <= aged;
}

/*
 * Returns true if the waiter is passed over: it watches a slot that stays held, unless it reserves other slots (then it
 * does not count, *ret_in_order); it neither fits nor is protected; or it is hopeless.
 */
static bool is_left_out(const struct queue_read *read, const struct request_row *row, const struct place_row *place,
                        bool *ret_in_order)
{
    bool aged = is_protected(&row->request, read->aged);
    bool stays_held = place->watch && !read->all_watches;
    *ret_in_order = true;
    for (size_t i = 0; i < read->freed_count; i++)
        stays_held &= read->freed[i] != place->watch;
    if (stays_held) {
        *ret_in_order = false;
        return read->fifo || place->count < 2 || !aged;
    }
    if (read->fifo)
        return false;
    for (size_t i = 0; i < read->hopeless_count; i++)
        if (place->needs == read->hopeless[i] && (!aged || i < read->hopeless_protected))
            return true;
    return place->count > read->free && !aged;
}

/* As batch_waiters.c. */
static void read_queue(const struct queue_read *read, struct arena *arena, struct view *view)
{
    uint64_t semaphore_id = view->semaphores[read->semaphore].id;
    struct waiter_list list = list_queue(semaphore_id, arena);
    struct queue_view *queue = &view->queues[read->semaphore];
    size_t room = read->limit < fake_queue_read_max ? read->limit : fake_queue_read_max;
    if (read->limit > QUEUE_READ_MAX)
        room = fake_queue_read_max * (QUEUE_PROTECTED_MAX / QUEUE_READ_MAX);
    *queue = (struct queue_view){.limit = read->limit};
    for (size_t i = 0; i < list.count && !queue->beyond; i++) {
        const struct request *request = &list.rows[i]->request;
        bool in_order;
        if (is_left_out(read, list.rows[i], place_at(list.rows[i], semaphore_id), &in_order))
            continue;
        add_waiter(list.rows[i], arena, view);
        if (in_order && room-- == 0)
            *queue = (struct queue_view){.beyond_place = request->place, .beyond = request->id, .limit = read->limit};
    }
}

/*
 * The slots that the waiters of the view name at this semaphore, and those given; as many free ones as may be granted,
 * all for adjacent slots.
 */
static struct slots_wanted want_slots(const struct view *view, size_t at, const struct slots_wanted *given,
                                      struct arena *arena)
{
    struct slot_name *names =
        arena_array(arena, given->named_count + view->request_count * ROW_SLOTS_MAX, sizeof *names);
    int64_t capacity = view->semaphores[at].capacity;
    bool adjacent = false;
    int64_t units = 0;
    struct slots_wanted wanted = {.named = names, .named_count = given->named_count};
    if (given->named_count)
        memcpy(names, given->named, given->named_count * sizeof *names);
    for (size_t i = 0; i < view->request_count; i++)
        for (size_t j = 0; j < view->requests[i].want_count; j++) {
            const struct want *want = &view->requests[i].wants[j];
            if (view->requests[i].state != REQUEST_WAITING || want->semaphore_id != view->semaphores[at].id)
                continue;
            adjacent |= want->adjacent || want->choice == CHOOSE_BEST;
            units += want->count;
            if (want->named_count)
                memcpy(&names[wanted.named_count], want->named, want->named_count * sizeof *names);
            wanted.named_count += want->named_count;
        }
    wanted.free = adjacent ? capacity + 1 : max_i64(given->free, min_i64(given->free + units, capacity));
    if (given->free == SLOTS_KNOWN)
        wanted.free = SLOTS_KNOWN;
    return wanted;
}

static int compare_server_ids(const void *a, const void *b)
{
    return compare_u64(a, b);
}

static void read_servers(struct arena *arena, struct view *view)
{
    uint64_t *ids = arena_array(arena, SERVERS_MAX, sizeof *ids);
    view->server_count = 0;
    for (size_t i = 0; i < SERVERS_MAX; i++)
        if (database.servers[i].row.exists && database.servers[i].row.dead_at == NEVER)
            ids[view->server_count++] = database.servers[i].row.id;
    qsort(ids, view->server_count, sizeof *ids, compare_server_ids);
    view->servers = ids;
    view->has_servers = true;
}

enum permit_status fake_batch_read_waiters(struct store *store, const struct queue_read *reads,
                                           const struct slots_wanted *slots, size_t count, struct arena *arena,
                                           struct view *view)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    struct request *all = arena_array(arena, view->request_count + database.waiting_count, sizeof *all);
    if (view->request_count)
        memcpy(all, view->requests, view->request_count * sizeof *all);
    view->requests = all;
    view->queues = arena_array(arena, view->semaphore_count + 1, sizeof *view->queues);
    for (size_t i = 0; i < count; i++)
        read_queue(&reads[i], arena, view);
    for (size_t i = 0; i < count; i++) {
        size_t at = reads[i].semaphore;
        const struct db_semaphore_row *row = &database_semaphore(view->semaphores[at].id)->row;
        struct slots_wanted wanted = want_slots(view, at, &slots[i], arena);
        if (row->semaphore.kind == KIND_COUNTED)
            continue;
        if (wanted.free != SLOTS_KNOWN)
            read_slots(row, wanted.free, arena, &view->free_slots[at]);
        view->named_slots[at] = (struct named_slots){.has_holders = reads[i].with_holders};
        if (wanted.named_count || reads[i].with_holders) /* a window is larger than a simulated semaphore */
            read_named(row, reads[i].with_holders ? NULL : &wanted, arena, &view->named_slots[at]);
    }
    read_servers(arena, view);
    if (view->request_count > 1)
        qsort(view->requests, view->request_count, sizeof *view->requests, compare_keys);
    return call_leave(fake);
}

/* The texts are copies: the row may change while the batch goes on. */
enum permit_status fake_batch_read_seats(struct store *store, uint64_t semaphore_id, struct arena *arena,
                                         struct seats *ret_seats)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    const struct db_semaphore *semaphore = database_semaphore(semaphore_id);
    struct seats seats = {.rows = arena_array(arena, SLOTS_MAX, sizeof *seats.rows)};
    struct bytes *labels = arena_array(arena, SLOTS_MAX, sizeof *labels);
    for (uint32_t number = 1; semaphore && number <= semaphore->row.slot_rows; number++) {
        struct seat seat = slot_seat(&semaphore->row, number);
        seat.section = arena_copy(arena, seat.section);
        seat.row = arena_copy(arena, seat.row);
        seat.tags = arena_copy(arena, seat.tags);
        if (semaphore->row.labels[number])
            seats.labels = labels;
        labels[seats.count] = slot_label(&semaphore->row, number);
        seats.rows[seats.count++] = seat;
    }
    *ret_seats = seats;
    return call_leave(fake);
}

/* The slots that waiters of the view watch at a semaphore that is not locked. */
static void read_watchers(const struct db_semaphore_row *row, const struct view *view, size_t request_count,
                          struct arena *arena, struct glimpse *glimpse)
{
    struct watcher *watchers = arena_array(arena, request_count, sizeof *watchers);
    glimpse->watchers = watchers;
    for (size_t i = 0; i < request_count; i++) {
        const struct db_key *key = database_waiting(view->requests[i].id);
        const struct place_row *place = key ? place_at(&key->row, row->semaphore.id) : NULL;
        const struct request *holder =
            place && place->watch ? holder_of(row->semaphore.id, row->slots[place->watch]) : NULL;
        if (holder)
            watchers[glimpse->watcher_count++] =
                (struct watcher){.request_id = view->requests[i].id, .confirmed = holder->confirmed_at != NEVER};
    }
}

static int compare_glimpses(const void *a, const void *b)
{
    return compare_u64(&((const struct glimpse *)a)->semaphore.id, &((const struct glimpse *)b)->semaphore.id);
}

enum permit_status fake_batch_read_glimpses(struct store *store, const uint64_t *ids, size_t count, utc_us aged,
                                            struct arena *arena, struct view *view)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    const size_t before = view->request_count;
    struct glimpse *glimpses = arena_array(arena, view->glimpse_count + count, sizeof *glimpses);
    struct request *all = arena_array(arena, before + database.waiting_count, sizeof *all);
    if (before)
        memcpy(all, view->requests, before * sizeof *all);
    if (view->glimpse_count)
        memcpy(glimpses, view->glimpses, view->glimpse_count * sizeof *glimpses);
    view->requests = all;
    for (size_t i = 0; i < count; i++) {
        const struct db_semaphore *semaphore = database_semaphore(ids[i]);
        if (!semaphore)
            continue;
        struct glimpse *glimpse = &glimpses[view->glimpse_count++];
        struct waiter_list list = list_queue(ids[i], arena);
        *glimpse = (struct glimpse){.semaphore = semaphore->row.semaphore};
        read_watchers(&semaphore->row, view, before, arena, glimpse);
        for (size_t j = 0; j < list.count; j++)
            if (glimpse->semaphore.queue == QUEUE_FIFO || is_protected(&list.rows[j]->request, aged))
                add_waiter(list.rows[j], arena, view);
    }
    view->glimpses = glimpses;
    qsort(glimpses, view->glimpse_count, sizeof *glimpses, compare_glimpses);
    if (view->request_count > 1)
        qsort(view->requests, view->request_count, sizeof *view->requests, compare_keys);
    return call_leave(fake);
}

/* ---- step 3 ---- */

/*
 * The bytes of a write, at most, as plan.packet_size counts them. A change that is neither grant nor end is small: a real
 * packet has room for all of a batch, and here the limit is a thousandth of that.
 */
static size_t packet_size(const struct changes *changes)
{
    size_t size = PACKET_BATCH + changes->semaphore_count * PACKET_SEMAPHORE;
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        bool inserts = change->insert && change->request->state != REQUEST_WAITING;
        bool moves = inserts || change->grants || change->ends;
        size += inserts || change->grants ? PACKET_GRANT : 0;
        size += moves ? packet_of_end(change->request) : 0; /* a grant has as many permits and slots */
        if (change->exchanges)                              /* into the record, and anew */
            size += PACKET_GRANT + 2 * packet_of_end(change->before) + packet_of_end(change->request);
    }
    return size;
}

/* Nothing is sent: it takes no time, and no connection is lost. */
enum permit_status fake_batch_prepare(struct store *store, const struct changes *changes, const struct assumed *assumed)
{
    (void)assumed;
    fake_of(store)->prepared_at = sim_now();
    bool fits = !store->max_packet || packet_size(changes) <= store->max_packet;
    database.too_large += !fits;
    return fits ? PERMIT_OK : call_report(fake_of(store), PERMIT_TOO_LARGE, "above max_allowed_packet");
}

/* Runs a COMMIT that was sent: makes it visible first, then durable. */
static enum permit_status commit(struct fake_store *fake)
{
    struct transaction *transaction = fake->transaction;
    const struct changes *changes = transaction->changes;
    int64_t us = call_flush_us();
    bool lost = call_fails(fake, FAULT_COMMIT_DONE, faults.commit_lost);
    transaction_commit(transaction);
    uint64_t lsn = transaction->lsn;
    if (changes && dice_once_in(faults.late_flush)) {
        us = dice_between(1000, LATE_US_MAX);
        run_not_flushed_yet(changes, us);
    }
    fiber_sleep(us);
    if (fake->start == database.start && !database.down)
        database_flushed(lsn);
    if (lost || !call_reaches(fake)) {
        fault_counts.commits_lost += lost;
        return call_lose(fake, false);
    }
    transaction_free(transaction);
    fake->transaction = NULL;
    if (changes && dice_once_in(ANSWER_LATE_ONCE_IN)) /* others see the rows, and act on them, before */
        fiber_sleep(dice_between(0, ANSWER_US_MAX));
    return call_leave(fake);
}

enum permit_status fake_batch_commit(struct fake_store *fake)
{
    fiber_sleep(dice_between(0, COMMIT_US_MAX));
    if (!call_reaches(fake))
        return call_lose(fake, false);
    bool later = call_fails(fake, FAULT_COMMIT_LATER, 2 * faults.commit_lost);
    if (later || call_fails(fake, FAULT_COMMIT_NOT, 2 * faults.commit_lost)) {
        fault_counts.commits_lost++;
        return call_lose(fake, later);
    }
    return commit(fake);
}

/* Locks the semaphores that the packet writes, in the order of ids, as the compare-and-set does. */
static enum permit_status lock_changed(struct fake_store *fake, const struct changes *changes)
{
    enum permit_status status = PERMIT_OK;
    for (size_t i = 0; i < changes->semaphore_count && status == PERMIT_OK; i++) {
        struct db_semaphore *semaphore = database_semaphore(changes->semaphores[i].semaphore->id);
        if (semaphore && (changes->semaphores[i].changed || changes->empty))
            status = transaction_lock_semaphore(fake->transaction, semaphore);
    }
    return status;
}

static bool versions_are(const struct changes *changes)
{
    for (size_t i = 0; i < changes->semaphore_count; i++) {
        const struct semaphore_image *image = &changes->semaphores[i];
        const struct db_semaphore *semaphore = database_semaphore(image->semaphore->id);
        if ((image->changed || changes->empty) &&
            (!semaphore || semaphore->row.semaphore.version != image->expected_version))
            return false;
    }
    return true;
}

/* An errand raises no version. */
static bool errands_are(const struct changes *changes)
{
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        const struct request_row *row = &database_key(change->request->external_id)->row;
        if (!change->insert && row->exists && row->request.errand != change->before->errand)
            return false;
    }
    return true;
}

static bool any_key_exists(const struct bytes *keys, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (database_key(keys[i])->row.exists)
            return true;
    return false;
}

static bool is_not_dead(uint64_t server_id)
{
    const struct db_server *server = database_server(server_id);
    return server && server->row.dead_at == NEVER;
}

/* Locks the requests that change and are not locked; false: another transaction has locked one. */
static bool lock_requests(struct fake_store *fake, const struct changes *changes)
{
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        if (!change->insert && change->before->lock == ROW_NOT_LOCKED &&
            !transaction_try_lock_key(fake->transaction, database_key(change->request->external_id)))
            return false;
    }
    return true;
}

/* The last guard. */
static bool guard_holds(const struct assumed *assumed)
{
    utc_us now = lease_time(&database.globals.clock, database_now());
    if (assumed->server_id && !is_not_dead(assumed->server_id))
        return false;
    return database.globals.identity == database.server && database.globals.clock.epoch == assumed->epoch &&
           now >= assumed->now && now <= assumed->now + assumed->slack_us;
}

static enum permit_status write_assumed(struct fake_store *fake, const struct changes *changes,
                                        const struct assumed *assumed, enum mismatch *ret_mismatch)
{
    enum permit_status status = lock_changed(fake, changes);
    if (status != PERMIT_OK)
        return status;
    *ret_mismatch = MISMATCH_VERSION;
    if (!versions_are(changes))
        return PERMIT_CONFLICT;
    *ret_mismatch = MISMATCH_ROW;
    if (!lock_requests(fake, changes))
        return PERMIT_CONFLICT;
    *ret_mismatch = MISMATCH_GUARD;
    if (!errands_are(changes))
        return PERMIT_CONFLICT;
    if (!changes->empty)
        status = transaction_write(fake->transaction, changes);
    if (status == PERMIT_INTERNAL && !run_is_contract())
        violation("P1", "the versions of a cached batch are right, and its rows are not");
    *ret_mismatch = status == PERMIT_CONFLICT ? MISMATCH_KEY : MISMATCH_NONE;
    if (status != PERMIT_OK)
        return status;
    *ret_mismatch = MISMATCH_KEY;
    if (any_key_exists(assumed->absent, assumed->absent_count))
        return PERMIT_CONFLICT;
    *ret_mismatch = MISMATCH_GUARD;
    if (!guard_holds(assumed))
        return PERMIT_CONFLICT;
    *ret_mismatch = MISMATCH_NONE;
    return PERMIT_OK;
}

enum permit_status fake_batch_commit_if_unchanged(struct store *store, const struct changes *changes,
                                                  const struct assumed *assumed, enum mismatch *ret_mismatch)
{
    struct fake_store *fake = fake_of(store);
    *ret_mismatch = MISMATCH_NONE;
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    if (profile.most_requests && changes->request_count > profile.most_requests) {
        fiber_sleep(SESSION_TIME_OUT_US);
        return call_lose(fake, false);
    }
    fake_batch_begin(fake);
    fake->transaction->planned_at = fake->prepared_at;
    status = write_assumed(fake, changes, assumed, ret_mismatch);
    if (status == PERMIT_DATABASE_LOST)
        return call_lose(fake, false);
    fake->transaction->read_at = sim_now();
    fake->transaction->read_time = assumed->now;
    fake->transaction->read_tick = lease_ticked(&database.globals.clock);
    if (status == PERMIT_OK)
        status = call_random_error(fake);
    database.mismatches += *ret_mismatch != MISMATCH_NONE;
    if (status != PERMIT_OK) {
        fake->transaction->changes = NULL; /* the packet stopped before its COMMIT */
        return call_report(fake, status, "cached batch");
    }
    database.cached++;
    if (changes->empty) {
        transaction_rollback(fake->transaction);
        return call_leave(fake);
    }
    for (size_t i = 0; i < changes->request_count; i++)
        database.cached_grants += changes->requests[i].grants;
    return fake_batch_commit(fake);
}

enum permit_status fake_batch_commit_changes(struct store *store, const struct changes *changes)
{
    struct fake_store *fake = fake_of(store);
    enum permit_status status = call_enter(fake);
    if (status != PERMIT_OK)
        return status;
    if (!fake->transaction || fake->transaction->state == TRANSACTION_ENDED)
        return call_report(fake, PERMIT_INTERNAL, "no transaction");
    if (profile.most_requests && changes->request_count > profile.most_requests) {
        fiber_sleep(SESSION_TIME_OUT_US);
        return call_lose(fake, false);
    }
    status = lock_requests(fake, changes) ? transaction_write(fake->transaction, changes) : PERMIT_LOCK_TIMEOUT;
    if (status == PERMIT_OK && changes->feed_omitted && !database.globals.feed_full)
        status = PERMIT_CONFLICT;
    fake->transaction->omits = changes->feed_omitted;
    store->was_stopped = status == PERMIT_INTERNAL;
    if (status == PERMIT_INTERNAL && !run_is_contract())
        violation("P1",
                  "a guard of the statements raised: the plan is wrong, or rows have changed since they were locked");
    if (status == PERMIT_DATABASE_LOST)
        return call_lose(fake, false);
    if (status == PERMIT_OK)
        status = call_random_error(fake);
    if (status == PERMIT_OK && call_fails(fake, FAULT_FULL, faults.full))
        status = PERMIT_DATABASE_FULL;
    if (status != PERMIT_OK) {
        fake->transaction->changes = NULL; /* the packet stopped before its COMMIT */
        return call_report(fake, status, "write");
    }
    return fake_batch_commit(fake);
}
