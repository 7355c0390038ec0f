/* SPDX-License-Identifier: MIT */
/*
 * plan_batch decides all operations of one transaction. It works on copies ("images") of the locked rows, decides the
 * operations one after another against them, and returns the images that changed.
 */
#include "core/planner.h"

#include <assert.h>
#include <stdlib.h>

/*
 * Phases of a batch, in order of decision. Operations that free units come first, so that the same batch grants the
 * units. Requests that wait come before new ones: the walk decides them all between PHASE_ASK and PHASE_ANSWER.
 */
enum phase {
    PHASE_END,
    PHASE_RENEW,
    PHASE_CONFIRM,
    PHASE_EXPIRE,
    PHASE_ASK,
    PHASE_ANSWER,
    PHASE_NEW,
    PHASE_ADMINISTRATIVE,
    PHASE_COUNT
};

static const struct kind {
    const char *word;
    enum phase phase;
    plan_keyed *decide; /* NULL: plan_ask and its kin decide it, or it is administrative, and alone in its batch */
    plan_administrative *administer;
} kinds[OP_KIND_COUNT] = {
    [OP_RELEASE] = {"release", PHASE_END, plan_release, NULL},
    [OP_FORCE_RELEASE] = {"force_release", PHASE_END, plan_force_release, NULL},
    [OP_RENEW] = {"renew", PHASE_RENEW, plan_renew, NULL},
    [OP_CONFIRM] = {"confirm", PHASE_CONFIRM, plan_confirm, NULL},
    [OP_EXCHANGE] = {"exchange", PHASE_NEW, plan_exchange, NULL},
    [OP_EXPIRE] = {"expire", PHASE_EXPIRE, plan_expire, NULL},
    [OP_SETTLE] = {"settle", PHASE_END, plan_settle, NULL},
    [OP_ACQUIRE] = {"acquire", PHASE_NEW, NULL, NULL},
    [OP_LOOK] = {"look", PHASE_NEW, NULL, NULL},
    [OP_LEAVE] = {"leave", PHASE_NEW, NULL, NULL},
    [OP_SEMAPHORE_PUT] = {"semaphore_put", PHASE_ADMINISTRATIVE, NULL, plan_put},
    [OP_SEMAPHORE_LABELS] = {"semaphore_labels", PHASE_ADMINISTRATIVE, NULL, plan_labels},
    [OP_SEMAPHORE_PAUSE] = {"semaphore_pause", PHASE_ADMINISTRATIVE, NULL, plan_pause},
    [OP_SEMAPHORE_RESUME] = {"semaphore_resume", PHASE_ADMINISTRATIVE, NULL, plan_pause},
    [OP_SEMAPHORE_RETIRE] = {"semaphore_retire", PHASE_ADMINISTRATIVE, NULL, plan_retire},
};

const char *operation_kind_word(enum operation_kind kind)
{
    return kinds[kind].word;
}

bool operation_is_administrative(enum operation_kind kind)
{
    return kinds[kind].administer != NULL;
}

bool operation_frees(enum operation_kind kind)
{
    return kind == OP_RELEASE || kind == OP_FORCE_RELEASE || kind == OP_EXPIRE || kind == OP_EXCHANGE;
}

/* ---- shortfalls ---- */

/*
 * Returns the units that all acquires of the batch want of one semaphore. Waiters that no operation names may come
 * first, also before an acquire of another semaphore: a unit for each of those that are read. *ret_adjacent: an acquire
 * wants adjacent slots or best seats; then any due holder may hold the slots between two free runs.
 */
static int64_t units_wanted(const struct operation *const *operations, size_t operation_count,
                            const struct semaphore *semaphore, bool *ret_adjacent)
{
    int64_t wanted = 0;
    bool any = false;
    *ret_adjacent = false;
    for (size_t i = 0; i < operation_count; i++) {
        const struct operation *operation = operations[i];
        bool asks = operation_names_semaphores(operation) || operation->kind == OP_LOOK;
        any |= asks;
        for (size_t j = 0; asks && j < operation->want_count; j++)
            if (operation->wants[j].semaphore_id == semaphore->id) {
                wanted += min_i64(operation->wants[j].count, COUNTED_MAX_CAPACITY);
                *ret_adjacent |= operation->wants[j].adjacent || operation->wants[j].choice == CHOOSE_BEST;
            }
    }
    if (any)
        wanted += min_i64(semaphore->waiting, QUEUE_READ_MAX);
    return min_i64(wanted, COUNTED_MAX_CAPACITY);
}

static bool is_due_holder(const struct request *request, utc_us now)
{
    return request->state == REQUEST_ACQUIRED && request->due_at <= now;
}

/*
 * Returns the number of due holders whose keys the batch names. A renew or confirm is decided before the acquires. Each
 * of these holders may be among the longest due and then free nothing, so one more due holder must be read for it.
 */
static int64_t due_holders_named(const struct view *view, uint64_t semaphore_id, utc_us now)
{
    int64_t count = 0;
    for (size_t i = 0; i < view->request_count; i++) {
        const struct request *request = &view->requests[i];
        count += is_due_holder(request, now) && request_permit_of(request, semaphore_id);
    }
    return count;
}

static bool any_named_is_due(const struct named_slots *named, utc_us now)
{
    for (size_t i = 0; i < named->count; i++)
        if (named->rows[i].token && named->rows[i].due_at <= now)
            return true;
    return false;
}

size_t plan_shortfalls(const struct view *view, const struct operation *const *operations, size_t operation_count,
                       struct shortfall *ret_shortfalls)
{
    utc_us now = view->clock.due;
    size_t count = 0;
    for (size_t i = 0; i < view->semaphore_count; i++) {
        const struct semaphore *semaphore = &view->semaphores[i];
        bool adjacent;
        int64_t wanted =
            semaphore->next_due_at > now ? 0 : units_wanted(operations, operation_count, semaphore, &adjacent);
        if (wanted == 0)
            continue;
        int64_t missing = max_i64(0, wanted - (semaphore->capacity - semaphore->in_use));
        struct shortfall shortfall = {.semaphore = i, .named = any_named_is_due(&view->named_slots[i], now)};
        if (missing > 0)
            shortfall.units = missing + due_holders_named(view, semaphore->id, now);
        if (adjacent)
            shortfall.units = max_i64(shortfall.units, semaphore->in_use);
        if (shortfall.units > 0 || shortfall.named)
            ret_shortfalls[count++] = shortfall;
    }
    return count;
}

/* ---- rows to lock ---- */

/* Returns the row with this key; NULL: not in the view. */
static const struct request *find_request(const struct view *view, struct bytes external_id)
{
    if (view->request_count == 0)
        return NULL;
    const struct request wanted = {.external_id = external_id};
    return bsearch(&wanted, view->requests, view->request_count, sizeof wanted, request_compare_keys);
}

size_t plan_rows_to_lock(const struct view *view, enum request_state state, uint64_t *ret_ids)
{
    size_t count = 0;
    for (size_t i = 0; i < view->request_count; i++) {
        const struct request *request = &view->requests[i];
        bool matters = request->state == REQUEST_WAITING || is_due_holder(request, view->clock.due);
        if (request->state == state && matters && request->lock == ROW_NOT_LOCKED && view_has_locked_all(view, request))
            ret_ids[count++] = request->id;
    }
    return u64_sort_unique(ret_ids, count);
}

bool plan_read_past_locked(const struct view *view, struct shortfall *shortfalls, size_t count, unsigned round)
{
    static const int64_t more[] = {64, SLOTS_MAX_COUNT}; /* the latter is as many as a read returns */
    utc_us now = view->clock.due;
    bool any = false;
    for (size_t i = 0; round < ARRAY_LENGTH(more) && i < count; i++) {
        uint64_t semaphore_id = view->semaphores[shortfalls[i].semaphore].id;
        bool locked = false;
        int64_t units = 0;
        for (size_t j = 0; j < view->request_count; j++) {
            const struct request *request = &view->requests[j];
            const struct permit *permit = is_due_holder(request, now) ? request_permit_of(request, semaphore_id) : NULL;
            locked |= permit && request->lock == ROW_LOCKED_ELSEWHERE;
            units += permit && request->lock != ROW_LOCKED_ELSEWHERE ? permit->count : 0;
        }
        if (!locked || units >= shortfalls[i].units || view->next_due[shortfalls[i].semaphore] > now)
            continue;
        shortfalls[i].more = more[round];
        any = true;
    }
    return any;
}

/* ---- queues to read ---- */

/* The units and slots of one semaphore that the batch may free. */
struct freed {
    int64_t units;
    uint32_t *slots; /* NULL: out of memory */
    size_t slot_count;
    bool too_many; /* more than QUEUE_FREED_MAX slots */
};

static void add_freed_slots(const struct slots *slots, struct arena *arena, struct freed *freed)
{
    freed->too_many |= freed->slot_count + slots->count > QUEUE_FREED_MAX;
    if (slots->count == 0 || freed->too_many)
        return;
    if (!freed->slots)
        freed->slots = arena_array(arena, QUEUE_FREED_MAX, sizeof *freed->slots);
    if (freed->slots)
        memcpy(freed->slots + freed->slot_count, slots->numbers, slots->count * sizeof *slots->numbers);
    freed->slot_count += slots->count;
}

/* Adds the units and slots that the end of this request frees. */
static void add_freed(const struct view *view, const struct request *request, struct arena *arena, struct freed *freed)
{
    for (size_t i = 0; request->state == REQUEST_ACQUIRED && i < request->permit_count; i++) {
        size_t index = view_semaphore_index(view, request->permits[i].semaphore_id);
        if (index == view->semaphore_count)
            continue;
        freed[index].units += request->permits[i].count;
        add_freed_slots(&request->permits[i].slots, arena, &freed[index]);
    }
}

/* Returns true if a grant from the queue of this semaphore is possible, if units are free. */
static bool may_grant_waiters(const struct semaphore *semaphore)
{
    return semaphore->waiting > 0 && semaphore->capacity > 0 && semaphore->retired_at == NEVER &&
           !semaphore->paused_reason.data;
}

/* Returns the read of a queue of which so many units may be free. The slots that are freed are not known. */
static struct queue_read read_of_queue(const struct view *view, size_t index, int64_t free,
                                       const struct plan_settings *settings)
{
    const struct semaphore *semaphore = &view->semaphores[index];
    return (struct queue_read){.semaphore = index,
                               .free = free,
                               .fifo = semaphore->queue == QUEUE_FIFO,
                               .aged = lease_time(&view->clock, view->now) - settings->backfill_bound_us,
                               .limit = QUEUE_READ_MAX,
                               .all_watches = semaphore->kind == KIND_COUNTED || semaphore->queue == QUEUE_FIFO};
}

size_t plan_queue_reads(const struct view *view, const struct operation *const *operations, size_t operation_count,
                        const struct plan_settings *settings, struct arena *arena, struct queue_read *ret_reads,
                        bool *ret_servers)
{
    utc_us now = lease_time(&view->clock, view->now);
    bool waiting = false;
    *ret_servers = false;
    /*
     * An administrative operation is alone and changes its semaphore only: the slots that it reads must not be
     * replaced, and a grant beside it would be decided by the row before the change.
     */
    if (operation_count == 1 && operation_is_administrative(operations[0]->kind))
        return 0;
    for (size_t i = 0; i < view->semaphore_count; i++)
        waiting |= may_grant_waiters(&view->semaphores[i]);
    for (size_t i = 0; i < view->request_count; i++)
        *ret_servers |= view->requests[i].state == REQUEST_WAITING || view->requests[i].server_id != 0;
    if (!waiting || now < view->grants_from)
        return 0;
    /* A request that is counted twice makes the read larger than it need be. */
    struct freed freed[BATCH_MAX_SEMAPHORES] = {{0}};
    assert(view->semaphore_count <= BATCH_MAX_SEMAPHORES);
    for (size_t i = 0; i < view->request_count; i++)
        if (view->requests[i].due_at <= view->clock.due || (view->requests[i].errand & ERRAND_RELEASE))
            add_freed(view, &view->requests[i], arena, freed);
    for (size_t i = 0; i < operation_count; i++) {
        const struct request *request =
            operation_frees(operations[i]->kind) ? find_request(view, operations[i]->external_id) : NULL;
        if (request)
            add_freed(view, request, arena, freed);
    }
    size_t count = 0;
    for (size_t i = 0; i < view->semaphore_count; i++) {
        const struct semaphore *semaphore = &view->semaphores[i];
        int64_t free = min_i64(semaphore->capacity, semaphore->capacity - semaphore->in_use + freed[i].units);
        bool known = !freed[i].too_many && (freed[i].slots || freed[i].slot_count == 0);
        if (!may_grant_waiters(semaphore) || free <= 0)
            continue;
        struct queue_read *read = &ret_reads[count++];
        *read = read_of_queue(view, i, free, settings);
        read->freed = freed[i].slots;
        read->freed_count = known ? freed[i].slot_count : 0;
        read->all_watches |= !known;
    }
    return count;
}

bool plan_read_on(const struct plan *plan, const struct view *view, const struct plan_settings *settings,
                  struct queue_read *reads, size_t *count)
{
    for (size_t i = 0, at = 0; i < view->semaphore_count; i++) {
        bool more = plan->read_more >> i & 1, held = plan->read_held >> i & 1;
        while (at < *count && reads[at].semaphore < i)
            at++;
        if (!more && !held)
            continue;
        if (at == *count || reads[at].semaphore != i) {
            memmove(&reads[at + 1], &reads[at], (*count - at) * sizeof *reads);
            reads[at] = read_of_queue(view, i, 0, settings);
            ++*count;
        } else if (more) {
            reads[at].limit = view->queues[i].limit < QUEUE_READ_MAX ? QUEUE_READ_MAX : QUEUE_PROTECTED_MAX;
        }
        reads[at].with_holders |= held;
    }
    for (size_t i = 0; i < *count; i++) {
        reads[i].hopeless = plan->hopeless;
        reads[i].hopeless_count = plan->hopeless_count;
        reads[i].hopeless_protected = plan->hopeless_protected;
    }
    return plan->read_more || plan->read_held;
}

static bool has_permit(const struct request *request, const struct permit *permit)
{
    const struct permit *same = request_permit_of(request, permit->semaphore_id);
    return same && same->token == permit->token && same->count == permit->count;
}

bool change_inserts(const struct request_change *change, const struct permit *permit)
{
    return change->insert || change->grants || (change->exchanges && !has_permit(change->before, permit));
}

bool change_deletes(const struct request_change *change, const struct permit *permit)
{
    return change->exchanges && !has_permit(change->request, permit);
}

bool changes_clear_watch(const struct changes *changes, const struct slot_change *slot)
{
    for (size_t i = 0; slot->token == 0 && i < changes->semaphore_count; i++)
        if (changes->semaphores[i].semaphore->id == slot->semaphore_id)
            return changes->semaphores[i].semaphore->waiting > 0;
    return false;
}

/* ---- the batch ---- */

/* Decides an operation in its phase. Returns the later phase in which an acquire or look goes on; else this phase. */
static enum phase plan_operation(struct planner *planner, size_t index, enum phase phase)
{
    const struct operation *operation = planner->operations[index];
    struct outcome *outcome = &planner->outcomes[index];
    struct key *key = planner->key_of[index];
    if (!key)
        kinds[operation->kind].administer(planner, outcome, operation);
    else if (phase == PHASE_ANSWER)
        answer_ask(planner, outcome, key, operation);
    else if (key_is_blocked(planner, outcome, key, operation))
        return phase;
    else if (!operation_asks(operation->kind))
        kinds[operation->kind].decide(planner, outcome, key, operation);
    else if (key->request && key->request->state != REQUEST_WAITING)
        plan_replay(planner, outcome, key, operation);
    else
        switch (plan_ask(planner, outcome, key, operation)) {
        case ASKED_ROW: return PHASE_ANSWER;
        case ASKED_ANEW:
            if (phase < PHASE_NEW)
                return PHASE_NEW;
            plan_new(planner, outcome, key, operation);
            break;
        case ASKED_AND_ANSWERED: break;
        }
    return phase;
}

/* Copies the locked rows. The write compares with the version that was read. */
static void copy_semaphores(struct planner *planner)
{
    const struct view *view = planner->view;
    struct arena *arena = planner->arena;
    struct semaphore *copies = arena_must_array(arena, view->semaphore_count, sizeof *copies);
    planner->images = arena_must_array(arena, view->semaphore_count + 1, sizeof *planner->images);
    planner->slot_views = arena_must_array(arena, view->semaphore_count, sizeof *planner->slot_views);
    planner->queues = arena_must_array(arena, view->semaphore_count + view->glimpse_count, sizeof *planner->queues);
    for (size_t i = 0; i < view->semaphore_count; i++) {
        copies[i] = view->semaphores[i];
        planner->images[i] = (struct semaphore_image){.semaphore = &copies[i], .expected_version = copies[i].version};
        planner->queues[i].semaphore = &copies[i];
    }
    for (size_t i = 0; i < view->glimpse_count; i++)
        planner->queues[view->semaphore_count + i] =
            (struct queue_state){.semaphore = &view->glimpses[i].semaphore, .glimpse = &view->glimpses[i]};
    planner->image_count = view->semaphore_count;
}

/* A key of an operation. */
struct named_key {
    struct bytes external_id;
    size_t operation;
};
static int compare_named_keys(const void *a, const void *b)
{
    return bytes_compare(((const struct named_key *)a)->external_id, ((const struct named_key *)b)->external_id);
}

/* Returns the keys of all operations in byte order. */
static struct named_key *sort_keys(const struct planner *planner, size_t *ret_count)
{
    size_t room = 0, count = 0;
    for (size_t i = 0; i < planner->operation_count; i++)
        room += operation_key_count(planner->operations[i]);
    struct named_key *sorted = arena_must_array(planner->arena, room, sizeof *sorted);
    for (size_t i = 0; i < planner->operation_count; i++) {
        const struct operation *operation = planner->operations[i];
        if (operation_is_administrative(operation->kind))
            continue;
        for (size_t j = 0; j < operation_key_count(operation); j++)
            sorted[count++] = (struct named_key){operation_key(operation, j), i};
    }
    qsort(sorted, count, sizeof *sorted, compare_named_keys);
    *ret_count = count;
    return sorted;
}

static void add_key_of_row(struct planner *planner, const struct request *before, struct request *copy)
{
    *copy = *before;
    planner->keys[planner->key_count++] =
        (struct key){.external_id = copy->external_id, .request = copy, .before = before};
    planner->waiter_count += before->state == REQUEST_WAITING;
}

/* Collects the keys of operations and rows in byte order, by merging the two ascending lists. */
static void collect_keys(struct planner *planner)
{
    const struct view *view = planner->view;
    size_t count;
    const struct named_key *sorted = sort_keys(planner, &count);
    struct request *rows = arena_must_array(planner->arena, view->request_count, sizeof *rows);
    planner->keys = arena_must_array(planner->arena, count + view->request_count, sizeof *planner->keys);
    planner->key_of = arena_must_array(planner->arena, planner->operation_count, sizeof *planner->key_of);
    size_t row = 0;
    for (size_t i = 0; i < count; i++) {
        struct bytes external_id = sorted[i].external_id;
        for (; row < view->request_count && bytes_compare(view->requests[row].external_id, external_id) <= 0; row++)
            add_key_of_row(planner, &view->requests[row], &rows[row]);
        bool known = planner->key_count && bytes_equal(planner->keys[planner->key_count - 1].external_id, external_id);
        if (!known)
            planner->keys[planner->key_count++] = (struct key){.external_id = external_id};
        if (bytes_equal(planner->operations[sorted[i].operation]->external_id, external_id))
            planner->key_of[sorted[i].operation] = &planner->keys[planner->key_count - 1];
    }
    for (; row < view->request_count; row++)
        add_key_of_row(planner, &view->requests[row], &rows[row]);
    for (size_t i = 0; view->subscriber_count && i < planner->key_count; i++)
        planner->keys[i].subscriber = bsearch(&planner->keys[i].external_id, view->subscribers, view->subscriber_count,
                                              sizeof *view->subscribers, compare_key);
}

static int compare_due(const void *a, const void *b)
{
    const struct request *left = (*(struct key *const *)a)->request;
    const struct request *right = (*(struct key *const *)b)->request;
    int order = (left->due_at > right->due_at) - (left->due_at < right->due_at);
    return order ? order : compare_u64(&left->id, &right->id);
}

/*
 * Settles what procedures have done to rows of the batch, before it decides anything about them. A row whose semaphores
 * are not all locked keeps its errand: nothing is decided about it without these locks.
 */
static void settle_errands(struct planner *planner)
{
    for (size_t i = 0; i < planner->key_count; i++) {
        struct key *key = &planner->keys[i];
        if (key->request && key->request->errand && key->request->lock == ROW_LOCKED &&
            view_has_locked_all(planner->view, key->request))
            settle(planner, key);
    }
}

/* Collects the due requests that an acquire may end if it does not fit. */
static void collect_due(struct planner *planner)
{
    planner->due = arena_must_array(planner->arena, planner->view->request_count, sizeof *planner->due);
    planner->chosen = arena_must_array(planner->arena, planner->view->request_count, sizeof *planner->chosen);
    for (size_t i = 0; i < planner->key_count; i++) {
        const struct request *request = planner->keys[i].request;
        if (request && request_is_due(planner, request) && request->lock != ROW_LOCKED_ELSEWHERE)
            planner->due[planner->due_count++] = &planner->keys[i];
    }
    qsort(planner->due, planner->due_count, sizeof *planner->due, compare_due);
}

/*
 * Returns the phase of an operation by its kind; PHASE_ASK if it asks for a request that waits, or is a look whose row
 * is gone.
 */
static enum phase phase_of(const struct planner *planner, const struct operation *operation, const struct key *key)
{
    bool waits = key->request ? key->request->state == REQUEST_WAITING : operation_may_enter_again(planner, operation);
    if (operation->kind == OP_EXCHANGE && !operation->want_count)
        return PHASE_END; /* a shrink */
    return waits && operation_asks(operation->kind) ? PHASE_ASK : kinds[operation->kind].phase;
}

/* Returns the index in planner->keys of a key of an operation that has any. */
static size_t key_index(const struct planner *planner, size_t operation, size_t index)
{
    const struct key *key = planner->key_of[operation];
    if (index > 0)
        key = planner_key(planner, operation_key(planner->operations[operation], index));
    return (size_t)(key - planner->keys);
}

/*
 * Assigns each operation its phase, but never before an earlier operation on the same key. An ask is answered after the
 * walk, and other operations follow it only then.
 */
static enum phase *assign_phases(struct planner *planner)
{
    enum phase *phases = arena_must_array(planner->arena, planner->operation_count, sizeof *phases);
    enum phase *key_phases = arena_must_array(planner->arena, planner->key_count, sizeof *key_phases);
    for (size_t i = 0; i < planner->operation_count; i++) {
        const struct key *key = planner->key_of[i];
        const struct operation *operation = planner->operations[i];
        if (!key) {
            phases[i] = kinds[operation->kind].phase;
            continue;
        }
        phases[i] = phase_of(planner, operation, key);
        for (size_t j = 0; j < operation_key_count(operation); j++)
            if (phases[i] < key_phases[key_index(planner, i, j)])
                phases[i] = key_phases[key_index(planner, i, j)];
        if (phases[i] == PHASE_ASK && !operation_asks(operation->kind))
            phases[i] = PHASE_NEW;
        for (size_t j = 0; j < operation_key_count(operation); j++)
            key_phases[key_index(planner, i, j)] = phases[i];
    }
    return phases;
}

/* Walks the waiters once more, and answers the operations again that go on waiting by the answers so far. */
static void walk_again(struct planner *planner)
{
    queue_walk(planner);
    for (size_t i = 0; i < planner->operation_count; i++) {
        struct key *key = planner->key_of[i];
        bool waits = planner->outcomes[i].waits && !planner->outcomes[i].put_back;
        bool holds_or_waits = key->request && key->request->state != REQUEST_RELEASED;
        if (waits && holds_or_waits && (key->request->state == REQUEST_ACQUIRED || key->decision.how != DECISION_NONE))
            answer_ask(planner, &planner->outcomes[i], key, planner->operations[i]);
    }
}

/*
 * Decides all operations. In PHASE_NEW, an operation that comes after another one on its key may ask for a request that
 * waits, free units or take a waiter out of its queue: then the waiters are walked again, before the next new request.
 * An administrative operation changes its semaphore only. Ends after a walk that asks for more rows: the batch is
 * planned again with them.
 */
static void decide_all(struct planner *planner)
{
    enum phase *phases = assign_phases(planner);
    for (enum phase phase = 0; phase < PHASE_COUNT; phase++) {
        if (phase == PHASE_ANSWER && !operation_is_administrative(planner->operations[0]->kind))
            queue_walk(planner);
        for (size_t i = 0; i < planner->operation_count && !planner_reads_more(planner); i++) {
            if (phases[i] != phase)
                continue;
            phases[i] = plan_operation(planner, i, phase);
            for (size_t j = i + 1; phases[i] == PHASE_NEW && phase == PHASE_ASK && j < planner->operation_count; j++)
                if (planner->key_of[j] == planner->key_of[i])
                    phases[j] = PHASE_NEW; /* it follows the one that is a new request after all */
            if (phase == PHASE_NEW && planner->walk_again)
                walk_again(planner);
            if (phase == PHASE_NEW && phases[i] == PHASE_ANSWER)
                (void)plan_operation(planner, i, PHASE_ANSWER);
        }
    }
}

/* ---- the result ---- */

static int compare_request_ids(const void *a, const void *b)
{
    return compare_u64(&((const struct request_change *)a)->request->id,
                       &((const struct request_change *)b)->request->id);
}

/*
 * Collects inserts in byte order of the keys, as they are listed, then updates and deletions in order of id. A waiter
 * that was granted and released in one batch is written as a grant that has ended.
 */
static void collect_requests(struct planner *planner, struct changes *changes)
{
    size_t removed = 0;
    for (size_t i = 0; i < planner->key_count; i++)
        removed += key_is_removed(&planner->keys[i]);
    struct request *copies = arena_must_array(planner->arena, removed, sizeof *copies);
    changes->requests = arena_must_array(planner->arena, planner->key_count + removed, sizeof *changes->requests);
    for (size_t i = 0; i < planner->key_count; i++)
        if (planner->keys[i].row == ROW_NEW)
            changes->requests[changes->request_count++] =
                (struct request_change){.request = planner->keys[i].request, .insert = true};
    size_t inserts = changes->request_count;
    for (size_t i = 0; i < planner->key_count; i++) {
        const struct key *key = &planner->keys[i];
        if (key_is_removed(key)) {
            *copies = *key->before;
            changes->requests[changes->request_count++] =
                (struct request_change){.request = copies++, .before = key->before, .remove = true};
        } else if (key->row == ROW_CHANGED) {
            bool held = key->before->state == REQUEST_ACQUIRED, waited = key->before->state == REQUEST_WAITING;
            changes->requests[changes->request_count++] =
                (struct request_change){.request = key->request,
                                        .before = key->before,
                                        .ends = held && key->request->state == REQUEST_RELEASED,
                                        .exchanges = held && key->request->state == REQUEST_ACQUIRED &&
                                                     key->request->changes != key->before->changes,
                                        .grants = waited && key->request->permit_count > 0};
        }
    }
    qsort(changes->requests + inserts, changes->request_count - inserts, sizeof *changes->requests,
          compare_request_ids);
}

/* By slot, and of one slot first that which frees it. */
static int compare_slots(const void *a, const void *b)
{
    const struct slot_change *left = a;
    const struct slot_change *right = b;
    int order = compare_u64(&left->semaphore_id, &right->semaphore_id);
    if (!order)
        order = compare_u32(&left->number, &right->number);
    return order ? order : compare_u64(&left->token, &right->token);
}

/* Appends the slots of a request that is held before the batch, which frees them, or is held after it. */
static void append_slots(const struct request *request, bool frees, struct changes *changes)
{
    for (size_t i = 0; i < request->permit_count; i++) {
        const struct permit *permit = &request->permits[i];
        for (uint32_t j = 0; j < permit->slots.count; j++)
            changes->slots[changes->slot_count++] = (struct slot_change){
                permit->semaphore_id, permit->slots.numbers[j], frees ? 0 : permit->token, frees ? permit->token : 0};
    }
}

static size_t slots_of(const struct request *request)
{
    size_t count = 0;
    for (size_t i = 0; i < request->permit_count; i++)
        count += request->permits[i].slots.count;
    return count;
}

/*
 * Collects the slots to write, from the permits alone: those that end, and those that are granted and held after the
 * batch. A slot that goes from one to the other is one change, and one that an exchange leaves under its token is none.
 * One that is granted twice is two, which cannot both be written.
 */
static void collect_slots(struct planner *planner, struct changes *changes)
{
    size_t room = 0;
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        room += change->ends || change->exchanges ? slots_of(change->before) : 0;
        room += change->ends ? 0 : slots_of(change->request);
    }
    changes->slots = arena_must_array(planner->arena, room, sizeof *changes->slots);
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        if (change->ends || change->exchanges)
            append_slots(change->before, true, changes);
        if ((change->insert || change->grants || change->exchanges) && change->request->state == REQUEST_ACQUIRED)
            append_slots(change->request, false, changes);
    }
    if (changes->slot_count > 1)
        qsort(changes->slots, changes->slot_count, sizeof *changes->slots, compare_slots);
    size_t count = 0;
    for (size_t i = 0; i < changes->slot_count; i++) {
        struct slot_change *slot = &changes->slots[i], *last = count ? &changes->slots[count - 1] : NULL;
        if (last && last->token == 0 && last->semaphore_id == slot->semaphore_id && last->number == slot->number)
            last->token = slot->token;
        else
            changes->slots[count++] = *slot;
    }
    changes->slot_count = 0;
    for (size_t i = 0; i < count; i++)
        if (changes->slots[i].token != changes->slots[i].replaced)
            changes->slots[changes->slot_count++] = changes->slots[i];
}

/* Returns the earliest deadline of a semaphore's holders among the requests of the batch. */
static utc_us earliest_due(const struct planner *planner, uint64_t semaphore_id)
{
    utc_us earliest = NEVER;
    for (size_t i = 0; i < planner->key_count; i++) {
        const struct request *request = planner->keys[i].request;
        if (request && request->state == REQUEST_ACQUIRED && request->due_at < earliest &&
            request_permit_of(request, semaphore_id))
            earliest = request->due_at;
    }
    return earliest;
}

/*
 * Raises next_due_at of semaphores whose due holders were read: to the earliest deadline of the other holders, as read,
 * and of the requests here. This alone causes a write only if next_due_at has passed but no holder is due any more;
 * otherwise every new request that does not fit would read the due holders again.
 */
static void raise_next_due(struct planner *planner)
{
    const struct view *view = planner->view;
    for (size_t i = 0; i < view->semaphore_count; i++) {
        if (view->next_due[i] == view->semaphores[i].next_due_at)
            continue;
        struct semaphore_image *image = &planner->images[i];
        utc_us next_due_at = min_i64(view->next_due[i], earliest_due(planner, image->semaphore->id));
        if (next_due_at > planner->due_now)
            semaphore_mark_changed(image);
        if (image->changed)
            image->semaphore->next_due_at = next_due_at;
    }
}

static void collect_changes(struct planner *planner, struct plan *plan)
{
    struct changes *changes = &plan->changes;
    raise_next_due(planner);
    *changes = (struct changes){.semaphores = planner->images,
                                .semaphore_count = planner->image_count,
                                .labels = planner->labels,
                                .label_count = planner->label_count,
                                .seats = planner->seats,
                                .seat_count = planner->seat_count,
                                .events = planner->events,
                                .event_count = planner->event_count,
                                .past = planner->past,
                                .past_count = planner->past_count,
                                .wall_now = planner->view->now};
    collect_requests(planner, changes);
    collect_slots(planner, changes);
    collect_places(planner, changes);
    collect_mail(planner, plan);
    collect_feed(planner, changes);
    changes->empty = changes->request_count == 0 && changes->mail_count == 0;
    for (size_t i = 0; i < planner->image_count; i++)
        changes->empty &= !planner->images[i].changed;
    assert(!changes->empty || (changes->slot_count == 0 && changes->label_count == 0 && changes->seat_count == 0 &&
                               changes->event_count == 0 && changes->place_count == 0));
}

void plan_write_all(struct plan *plan)
{
    for (size_t i = 0; i < plan->changes.semaphore_count; i++)
        semaphore_mark_changed(&plan->changes.semaphores[i]);
    plan->changes.empty &= plan->changes.semaphore_count == 0;
}

/* Makes the plan in the arena, which has an exit. */
static void make_plan(struct planner *planner, struct plan *ret_plan)
{
    struct plan plan = {.outcomes = arena_must_array(planner->arena, planner->operation_count, sizeof *plan.outcomes)};
    uint64_t first_id = planner->ids.next;
    planner->outcomes = plan.outcomes;
    copy_semaphores(planner);
    collect_keys(planner);
    planner_fill_slot_views(planner);
    settle_errands(planner);
    collect_due(planner);
    decide_all(planner);
    if (planner_reads_more(planner))
        collect_reads(planner, &plan);
    else
        collect_changes(planner, &plan);
    plan.notices = planner->notices;
    plan.notice_count = planner->notice_count;
    plan.overdue = planner->overdue;
    plan.overdue_count = planner->overdue_count;
    plan.ids_used = planner->ids.next - first_id;
    plan.packet_size = PACKET_BATCH + planner->view->semaphore_count * PACKET_SEMAPHORE + planner->packet_size;
    memcpy(plan.ended, planner->ended, sizeof plan.ended);
    *ret_plan = plan;
}

/*
 * The one exit for "no memory": the plan is left where it stands. It is pure, so there is nothing to undo: all that it
 * made is in the arena, and the view is as it was read.
 */
enum permit_status plan_batch(const struct view *view, const struct operation *const *operations,
                              size_t operation_count, struct id_range ids, const struct plan_settings *settings,
                              struct arena *arena, struct plan *ret_plan)
{
    assert(ids.end - ids.next >= operation_count);
    assert(view->clock.due && view->clock.from >= view->clock.due);
    assert(operation_count == 1 || !operation_is_administrative(operations[0]->kind));
    struct planner planner = {
        .view = view,
        .operations = operations,
        .operation_count = operation_count,
        .settings = settings,
        .arena = arena,
        .now = lease_time(&view->clock, view->now),
        .due_now = view->clock.due,
        .deadlines_from = view->clock.from,
        .ids = ids,
    };
    jmp_buf no_memory;
    arena->exit = &no_memory;
    if (setjmp(no_memory)) {
        arena->exit = NULL;
        return PERMIT_NO_MEMORY;
    }
    make_plan(&planner, ret_plan);
    arena->exit = NULL;
    return PERMIT_OK;
}
