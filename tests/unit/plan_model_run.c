/* SPDX-License-Identifier: MIT */
/*
 * Runs a script: gathers operations into batches as an engine would (operations put back come first, with the locks
 * they need; waiters join every batch; administrative operations run alone), plans, compares each outcome with the
 * model's in the order of decision, and writes the changes.
 */
#include <stdlib.h>

#include "plan_model.h"

/* Each put-back adds locks, or follows another operation of the key. */
enum { MAX_PUT_BACKS = 2 * MODEL_SEMAPHORES, LAST_RANK = 6 };

struct batch {
    struct arrival arrivals[MODEL_STEPS];
    unsigned count;
    struct moment moment;
    struct wait_place stands[MODEL_STEPS];
    struct operation operations[MODEL_STEPS];
    struct want wants[MODEL_STEPS][MODEL_WANTS];
    struct slot_name names[MODEL_STEPS][MODEL_WANTS][MODEL_NAMES];
    struct bytes labels[MODEL_LABELS]; /* labels of the one operation that sets any */
    struct semaphore_change change;
    struct rows_read read;
    int ranks[MODEL_STEPS];
    unsigned locked;
    unsigned searched; /* a bit per semaphore with all its due holders read */
};

#define FAIL(run, ...) return buf_printf(&(run)->rows.problem, __VA_ARGS__), false

void run_init(struct run *run)
{
    memset(run, 0, sizeof *run);
    rows_init(&run->rows);
    arena_init(&run->arena, 65536, 1 << 26);
}

void run_release(struct run *run)
{
    rows_release(&run->rows);
    arena_release(&run->arena);
}

static void run_clear(struct run *run, const struct script *script)
{
    rows_clear(&run->rows);
    memset(&run->model, 0, sizeof run->model);
    memset(run->put_backs, 0, sizeof run->put_backs);
    memset(run->ended, 0, sizeof run->ended);
    run->script = script;
    run->decided_count = run->batches = 0;
    run->reclaims = run->kept_by_put_back = 0;
    run->queue.count = 0;
    run->cut_short = false;
}

bool step_is_administrative(const struct step *step)
{
    return step->kind == OP_SEMAPHORE_PUT || step->kind == OP_SEMAPHORE_LABELS || step->kind == OP_SEMAPHORE_PAUSE ||
           step->kind == OP_SEMAPHORE_RESUME || step->kind == OP_SEMAPHORE_RETIRE;
}

/* The order is releases, renewals, confirms, expiries, waiters, new requests. */
int step_rank(const struct step *step, const struct wait_place *stand)
{
    switch (step->kind) {
    case OP_RELEASE:
    case OP_FORCE_RELEASE: return 0;
    case OP_RENEW: return 1;
    case OP_CONFIRM: return 2;
    case OP_EXPIRE: return 3;
    case OP_ACQUIRE: return stand->place == RANK_WAITER || stand->place == RANK_AGED ? 4 : 5;
    default: return LAST_RANK;
    }
}

/* ---- the batch as plan_batch gets it ---- */

/* Returns the locks of an operation that was not put back: its wants, or the key cache's entry for its key. */
static unsigned locks_of_step(const struct run *run, const struct step *step)
{
    unsigned locks = step->more_locks;
    if (step_is_administrative(step))
        return 1U << step->semaphore;
    if (step->kind != OP_ACQUIRE)
        return locks | (step->stale ? step->stale_locks : rows_semaphores_of_key(&run->rows, step->key));
    for (unsigned i = 0; i < step->want_count; i++)
        locks |= 1U << step->wants[i].semaphore;
    return locks;
}

/* An acquire in the waitlist is a waiter from then on. */
static struct wait_place stand_of(const struct step *step, const struct arrival *arrival)
{
    struct wait_place stand = {step->stand.place, step->stand.waits || arrival->tries < step->patience};
    bool aged = stand.place == RANK_AGED || (step->aged_at && arrival->tries >= step->aged_at);
    if (arrival->waits_here)
        stand.place = aged ? RANK_AGED : RANK_WAITER;
    else if (arrival->is_behind)
        stand.place = RANK_BEHIND;
    return stand;
}

static void make_want(const struct run *run, const struct model_want *asked, struct slot_name *names, struct want *want)
{
    *want = (struct want){.semaphore = semaphore_name(asked->semaphore),
                          .semaphore_id = run->rows.semaphores[asked->semaphore].id,
                          .count = asked->count,
                          .choice = asked->choice,
                          .adjacent = asked->adjacent,
                          .named = names,
                          .named_count = asked->name_count};
    for (unsigned i = 0; i < asked->name_count; i++)
        names[i] = (struct slot_name){asked->names[i].number, label_text(asked->names[i].label)};
}

/* Returns the change of an administrative operation, with its labels. */
static const struct semaphore_change *make_change(const struct step *step, struct batch *batch)
{
    batch->change = step->change;
    batch->change.labels = batch->labels;
    batch->change.label_count = step->label_count;
    for (unsigned i = 0; i < step->label_count; i++)
        batch->labels[i] = label_text(step->labels[i]);
    return &batch->change;
}

static void make_operation(const struct run *run, unsigned index, struct batch *batch)
{
    const struct step *step = &run->script->steps[batch->arrivals[index].step];
    const struct wait_place *stand = &batch->stands[index];
    struct operation *operation = &batch->operations[index];
    struct want *wants = batch->wants[index];
    *operation = (struct operation){.kind = step->kind, .principal = BYTES("someone")};
    operation->why = reason_text(step->reason);
    if (step_is_administrative(step)) {
        operation->semaphore = semaphore_name(step->semaphore);
        operation->change = make_change(step, batch);
        return;
    }
    operation->external_id = key_name(step->key);
    operation->owner = owner_name(step->owner);
    operation->nonce = nonce_text(step->nonce);
    operation->allow_confirmed = step->allow_confirmed;
    operation->expire_as = step->expire_as;
    operation->ttl = step->ttl;
    memcpy(operation->digest, step->digest, DIGEST_SIZE);
    operation->wants = wants;
    operation->want_count = step->want_count;
    operation->queue_rank = stand->place;
    operation->waits = stand->waits;
    for (unsigned i = 0; i < step->want_count; i++)
        make_want(run, &step->wants[i], batch->names[index][i], &wants[i]);
}

/* Reads as many free slots as the want requests, of either kind; for adjacent slots all. Also reads the named slots. */
static void read_want(const struct model_want *want, unsigned extra, struct rows_read *read)
{
    int64_t count = want->adjacent ? SLOTS_MAX_CAPACITY : min_i64(want->count, SLOTS_MAX_COUNT) + extra;
    read->slots_wanted[want->semaphore] = min_i64(read->slots_wanted[want->semaphore] + count, SLOTS_MAX_CAPACITY);
    struct model_name *names = read->names[want->semaphore];
    unsigned *name_count = &read->name_count[want->semaphore];
    for (unsigned i = 0; i < want->name_count; i++) {
        unsigned at = 0;
        while (at < *name_count && memcmp(&names[at], &want->names[i], sizeof names[at]) != 0)
            at++;
        if (at == *name_count && at < MODEL_READ)
            names[(*name_count)++] = want->names[i];
    }
}

/*
 * Reads the locks and keys of all operations, as many free slots as they may be granted, and no more due holders than a
 * step allows.
 */
static void batch_read(const struct run *run, const struct batch *batch, struct rows_read *ret_read)
{
    struct rows_read *read = ret_read;
    memset(read, 0, sizeof *read);
    read->moment = batch->moment;
    for (unsigned i = 0; i < batch->count; i++) {
        const struct step *step = &run->script->steps[batch->arrivals[i].step];
        read->locks |= batch->arrivals[i].locks;
        if (!step_is_administrative(step))
            read->keys |= 1U << step->key;
        read->all_slots |= step->change.has_labels;
        if (step->kind == OP_ACQUIRE && step->ttl.kind == TTL_OWNER)
            read->owners |= 1U << step->owner;
        if (step->due_cut && (!read->due_cut || step->due_cut < read->due_cut))
            read->due_cut = step->due_cut;
        read->walks_due |= step->walks_due;
        for (unsigned j = 0; step->kind == OP_ACQUIRE && j < step->want_count; j++)
            if (batch->stands[i].place != RANK_BEHIND || step->wants[j].name_count)
                read_want(&step->wants[j], step->extra_slots, read);
    }
}

/* An operation is never decided before an earlier one on its key. */
static void rank_batch(const struct run *run, struct batch *batch)
{
    for (unsigned i = 0; i < batch->count; i++) {
        const struct step *step = &run->script->steps[batch->arrivals[i].step];
        batch->ranks[i] = step_rank(step, &batch->stands[i]);
        for (unsigned j = 0; j < i && !step_is_administrative(step); j++)
            if (run->script->steps[batch->arrivals[j].step].key == step->key && batch->ranks[j] > batch->ranks[i])
                batch->ranks[i] = batch->ranks[j];
    }
}

/* ---- comparing ---- */

static void copy_taken(const struct shortage *shortage, struct model_shortage *copy)
{
    for (size_t i = 0; i < shortage->taken_count && i < MODEL_NAMES; i++) {
        const struct taken_slot *taken = &shortage->taken[i];
        copy->taken[copy->taken_count++] = (struct model_taken){taken->number, label_index(taken->label), taken->token,
                                                                (unsigned)key_index(taken->holder), taken->expires_at};
    }
}

static void verdict_of(const struct run *run, const struct outcome *outcome, struct verdict *verdict)
{
    memset(verdict, 0, sizeof *verdict);
    verdict->status = outcome->status;
    verdict->created = outcome->created;
    verdict->replayed = outcome->replayed;
    verdict->already_released = outcome->already_released;
    verdict->may_wait = outcome->may_wait;
    if (outcome->request) {
        verdict->has_request = true;
        rows_request(&run->rows, outcome->request, &verdict->request);
    }
    for (size_t i = 0; i < outcome->shortage_count && i < MODEL_WANTS; i++) {
        const struct shortage *shortage = &outcome->shortages[i];
        verdict->shortages[verdict->shortage_count++] =
            (struct model_shortage){(unsigned)rows_semaphore(&run->rows, shortage->semaphore_id),
                                    shortage->capacity,
                                    shortage->in_use,
                                    shortage->requested,
                                    shortage->behind,
                                    {{0}},
                                    0};
        copy_taken(shortage, &verdict->shortages[i]);
    }
}

static void verdict_add_semaphore(const struct semaphore *semaphore, struct verdict *verdict)
{
    verdict->has_semaphore = true;
    verdict->in_use = semaphore->in_use;
    verdict->semaphore = (struct model_semaphore){
        .exists = true,
        .retired = semaphore->retired_at != NEVER,
        .kind = semaphore->kind,
        .queue = semaphore->queue,
        .capacity = semaphore->capacity,
        .next_token = semaphore->next_permit_id,
        .config_version = semaphore->config_version,
        .default_ttl_ms = semaphore->default_ttl_ms,
        .max_ttl_ms = semaphore->max_ttl_ms,
        .grace_ms = semaphore->grace_ms,
        .max_hold_ms = semaphore->max_hold_ms,
        .note = semaphore->note,
        .paused_reason = semaphore->paused_reason,
    };
}

static void copy_text(struct bytes text, char ret_text[MODEL_EVENT_TEXT])
{
    size_t length = (size_t)min_i64((int64_t)text.length, MODEL_EVENT_TEXT - 1);
    memset(ret_text, 0, MODEL_EVENT_TEXT);
    if (length)
        memcpy(ret_text, text.data, length);
}

/* Returns the index of a semaphore of the plan, which may have no row yet. */
static unsigned image_index(const struct changes *changes, uint64_t id)
{
    unsigned index = MODEL_SEMAPHORES;
    for (size_t i = 0; i < changes->semaphore_count; i++)
        for (unsigned j = 0; changes->semaphores[i].semaphore->id == id && j < MODEL_SEMAPHORES; j++)
            if (bytes_equal(changes->semaphores[i].semaphore->name, semaphore_name(j)))
                index = j;
    return index;
}

/* Adds an event of the plan; events of one forced release are sorted by semaphore. */
static bool verdict_add_event(struct run *run, const struct changes *changes, const struct event *event,
                              struct verdict *verdict)
{
    unsigned semaphore = image_index(changes, event->semaphore_id);
    unsigned at = verdict->event_count++;
    if (!bytes_equal(event->who, BYTES("someone")))
        FAIL(run, "the record says %.*s", (int)event->who.length, event->who.data);
    bool forced = strcmp(event->what, "forced") == 0;
    for (; forced && at > 0 && verdict->events[at - 1].semaphore > semaphore; at--)
        verdict->events[at] = verdict->events[at - 1];
    struct model_event *copy = &verdict->events[at];
    *copy = (struct model_event){.semaphore = semaphore, .why = event->why, .next_token = event->next_permit_id};
    copy_text(bytes_of(event->what), copy->what);
    copy_text(event->from, copy->from);
    copy_text(event->to, copy->to);
    return true;
}

#define DIFFERS(member, format)                                                                                        \
    if (expected->member != got->member)                                                                               \
    return buf_printf(problem, #member ": expected " format ", got " format, expected->member, got->member), false

static bool permits_equal(const struct model_permit *expected, const struct model_permit *got, struct buf *problem)
{
    DIFFERS(semaphore, "%u");
    DIFFERS(token, "%lu");
    DIFFERS(count, "%ld");
    DIFFERS(slot_count, "%u");
    for (unsigned i = 0; i < expected->slot_count; i++) {
        DIFFERS(slots[i], "%u");
        DIFFERS(labels[i], "%u");
    }
    return true;
}

static bool taken_equal(const struct model_shortage *expected, const struct model_shortage *got, struct buf *problem)
{
    DIFFERS(taken_count, "%u");
    for (unsigned i = 0; i < expected->taken_count; i++) {
        DIFFERS(taken[i].number, "%u");
        DIFFERS(taken[i].label, "%u");
        DIFFERS(taken[i].token, "%lu");
        DIFFERS(taken[i].key, "%u");
        DIFFERS(taken[i].expires_at, "%ld");
    }
    return true;
}

/* Finds a permit: the model's are in order of name, those of a row in the order of the read. */
static const struct model_permit *permit_of(const struct model_request *request, unsigned semaphore)
{
    for (unsigned i = 0; i < request->permit_count; i++)
        if (request->permits[i].semaphore == semaphore)
            return &request->permits[i];
    return &request->permits[0];
}

static bool requests_equal(const struct model_request *expected, const struct model_request *got, struct buf *problem)
{
    DIFFERS(state, "%u");
    DIFFERS(end_reason, "%u");
    DIFFERS(ttl_ms, "%ld");
    DIFFERS(due_at, "%ld");
    DIFFERS(grace_ms, "%ld");
    DIFFERS(confirmed_at, "%ld");
    DIFFERS(renewals, "%u");
    DIFFERS(replays, "%u");
    DIFFERS(acquired_at, "%ld");
    DIFFERS(ended_at, "%ld");
    DIFFERS(owner, "%u");
    DIFFERS(nonce, "%u");
    DIFFERS(permit_count, "%u");
    for (unsigned i = 0; i < expected->permit_count; i++)
        if (!permits_equal(&expected->permits[i], permit_of(got, expected->permits[i].semaphore), problem))
            return false;
    return true;
}

static bool settings_equal(const struct model_semaphore *expected, const struct model_semaphore *got,
                           struct buf *problem)
{
    DIFFERS(retired, "%d");
    DIFFERS(kind, "%u");
    DIFFERS(queue, "%u");
    DIFFERS(capacity, "%ld");
    DIFFERS(next_token, "%lu");
    DIFFERS(config_version, "%lu");
    DIFFERS(default_ttl_ms, "%ld");
    DIFFERS(max_ttl_ms, "%ld");
    DIFFERS(grace_ms, "%ld");
    DIFFERS(max_hold_ms, "%ld");
    if (!bytes_equal(expected->note, got->note))
        return buf_append_text(problem, "note differs"), false;
    if (!expected->paused_reason.data != !got->paused_reason.data ||
        !bytes_equal(expected->paused_reason, got->paused_reason))
        return buf_append_text(problem, "paused_reason differs"), false;
    return true;
}

static bool events_equal(const struct model_event *expected, const struct model_event *got, struct buf *problem)
{
    DIFFERS(semaphore, "%u");
    DIFFERS(next_token, "%lu");
    if (strcmp(expected->what, got->what) != 0 || strcmp(expected->from, got->from) != 0 ||
        strcmp(expected->to, got->to) != 0 || !bytes_equal(expected->why, got->why))
        return buf_printf(problem, "event: expected %s %s>%s, got %s %s>%s", expected->what, expected->from,
                          expected->to, got->what, got->from, got->to),
               false;
    return true;
}

bool verdict_equal(const struct verdict *expected, const struct verdict *got, struct buf *problem)
{
    if (expected->status != got->status)
        return buf_printf(problem, "status: expected %s, got %s", permit_status_word(expected->status),
                          permit_status_word(got->status)),
               false;
    DIFFERS(created, "%d");
    DIFFERS(replayed, "%d");
    DIFFERS(already_released, "%d");
    DIFFERS(may_wait, "%d");
    DIFFERS(has_request, "%d");
    DIFFERS(has_semaphore, "%d");
    DIFFERS(in_use, "%ld");
    DIFFERS(shortage_count, "%u");
    for (unsigned i = 0; i < expected->shortage_count; i++) {
        DIFFERS(shortages[i].semaphore, "%u");
        DIFFERS(shortages[i].capacity, "%ld");
        DIFFERS(shortages[i].in_use, "%ld");
        DIFFERS(shortages[i].requested, "%ld");
        DIFFERS(shortages[i].behind, "%d");
        if (!taken_equal(&expected->shortages[i], &got->shortages[i], problem))
            return false;
    }
    DIFFERS(event_count, "%u");
    for (unsigned i = 0; i < expected->event_count; i++)
        if (!events_equal(&expected->events[i], &got->events[i], problem))
            return false;
    if (expected->has_request && !requests_equal(&expected->request, &got->request, problem))
        return false;
    return !expected->has_semaphore || settings_equal(&expected->semaphore, &got->semaphore, problem);
}

/* ---- one batch ---- */

static void name_step(struct run *run, const struct batch *batch, unsigned index)
{
    buf_printf(&run->rows.problem, "step %u, ", batch->arrivals[index].step);
    step_print(&run->script->steps[batch->arrivals[index].step], &run->rows.problem);
}

/* Returns true if an earlier operation on its key was put back in this batch. */
static bool follows_put_back(const struct run *run, const struct batch *batch, const struct plan *plan, unsigned index)
{
    for (unsigned i = 0; i < index; i++)
        if (plan->outcomes[i].put_back &&
            run->script->steps[batch->arrivals[i].step].key == run->script->steps[batch->arrivals[index].step].key)
            return true;
    return false;
}

static unsigned needs_of(const struct run *run, const struct outcome *outcome)
{
    unsigned needs = 0;
    for (size_t i = 0; i < outcome->need_count; i++)
        needs |= 1U << rows_semaphore(&run->rows, outcome->needs[i]);
    return needs;
}

static unsigned semaphores_wanted(const struct run *run, const struct step *step)
{
    unsigned wanted = 0;
    for (unsigned i = 0; i < step->want_count; i++)
        if (run->rows.semaphores[step->wants[i].semaphore].id)
            wanted |= 1U << step->wants[i].semaphore;
    return wanted;
}

/*
 * An operation that would touch a request with an unlocked semaphore is put back with all the locks it needs; no other
 * operation is put back. Checked at the moment of the decision, when the model is at the same point.
 */
static bool check_locks(struct run *run, const struct batch *batch, const struct plan *plan, unsigned index)
{
    const struct outcome *outcome = &plan->outcomes[index];
    const struct step *step = &run->script->steps[batch->arrivals[index].step];
    unsigned touched = model_touches(&run->model, step, &batch->stands[index], &batch->moment);
    bool follows = follows_put_back(run, batch, plan, index);
    bool must = follows || (touched & ~batch->locked) != 0;
    if (outcome->put_back != must)
        FAIL(run, "put back: %d; it touches %02x of %02x", outcome->put_back, touched, batch->locked);
    if (!must)
        return true;
    for (size_t i = 0; i < outcome->need_count; i++)
        if (rows_semaphore(&run->rows, outcome->needs[i]) < 0 || (i > 0 && outcome->needs[i - 1] >= outcome->needs[i]))
            FAIL(run, "needs are not ids of semaphores, ascending");
    if (follows)
        touched = rows_semaphores_of_key(&run->rows, step->key);
    if (needs_of(run, outcome) != (touched | semaphores_wanted(run, step)))
        FAIL(run, "put back with %02x for %02x", needs_of(run, outcome), touched | semaphores_wanted(run, step));
    if (++run->put_backs[batch->arrivals[index].step] > MAX_PUT_BACKS * (1 + step->patience))
        FAIL(run, "put back for ever");
    model_put_back(&run->model, step, &batch->stands[index]);
    run->kept_by_put_back += batch->stands[index].waits;
    return true;
}

/* An ended row past its due_at may be deleted. */
static bool is_deletable(const struct request *request, const struct moment *moment)
{
    return request->state == REQUEST_RELEASED && request->due_at <= model_time(moment);
}

/* Checks that an outcome that asserts a state is in a transaction that writes it. */
static bool check_written(struct run *run, const struct outcome *outcome, const struct moment *moment,
                          const struct changes *changes)
{
    if (!outcome->request || is_deletable(outcome->request, moment))
        return true;
    for (size_t i = 0; i < changes->request_count; i++)
        if (bytes_equal(changes->requests[i].request->external_id, outcome->request->external_id))
            return true;
    FAIL(run, "asserts a state that is not written");
}

/* Checks the data that the model does not have: identity, principal, digest. */
static bool check_identity(struct run *run, const struct step *step, const struct outcome *outcome)
{
    const struct request *request = outcome->request;
    if (!request)
        return true;
    if (!bytes_equal(request->external_id, key_name(step->key)) || !bytes_equal(request->principal, BYTES("someone")))
        FAIL(run, "the request is somebody else's");
    bool tombstone = request->end_reason == END_NEVER_HELD;
    if (request->has_digest == tombstone ||
        (step->kind == OP_ACQUIRE && !tombstone && memcmp(request->digest, step->digest, DIGEST_SIZE) != 0))
        FAIL(run, "the digest is not that of the acquire");
    return true;
}

static bool remember_decision(struct run *run, const struct batch *batch, unsigned index)
{
    unsigned step = batch->arrivals[index].step;
    if (run->decided_count == MODEL_STEPS)
        FAIL(run, "too many decisions");
    run->decided[run->decided_count++] = (struct decided){.step = step,
                                                          .batch = run->batches,
                                                          .rank = batch->ranks[index],
                                                          .locks = batch->locked,
                                                          .stand = batch->stands[index],
                                                          .moment = batch->moment,
                                                          .verdict = run->verdicts[step],
                                                          .is_specific = step_is_specific(&run->script->steps[step])};
    return true;
}

/* `*event_at` is the first event of the plan without an operation so far; it moves past the events of this one. */
static bool compare_outcome(struct run *run, const struct batch *batch, const struct plan *plan, unsigned index,
                            size_t *event_at)
{
    unsigned at = batch->arrivals[index].step;
    const struct step *step = &run->script->steps[at];
    const struct outcome *outcome = &plan->outcomes[index];
    struct verdict got;
    unsigned due = run->model.ended[END_EXPIRED] + run->model.ended[END_STALE];
    model_do(&run->model, step, &batch->stands[index], &batch->moment, &run->verdicts[at]);
    run->reclaims += run->verdicts[at].created && due < run->model.ended[END_EXPIRED] + run->model.ended[END_STALE];
    verdict_of(run, outcome, &got);
    if (outcome->semaphore)
        verdict_add_semaphore(outcome->semaphore, &got);
    while (got.event_count < run->verdicts[at].event_count && *event_at < plan->changes.event_count)
        if (!verdict_add_event(run, &plan->changes, &plan->changes.events[(*event_at)++], &got))
            return false;
    run->wrote[at] = !plan->changes.empty;
    return remember_decision(run, batch, index) && verdict_equal(&run->verdicts[at], &got, &run->rows.problem) &&
           check_identity(run, step, outcome) && check_written(run, outcome, &batch->moment, &plan->changes);
}

/* next_due_at alone is written only if it says due and no holder is. */
static bool only_next_due(const struct run *run, const struct batch *batch, const struct changes *changes)
{
    utc_us now = model_time(&batch->moment);
    for (size_t i = 0; i < changes->semaphore_count; i++) {
        const struct semaphore *image = changes->semaphores[i].semaphore;
        if (!changes->semaphores[i].changed)
            continue;
        const struct semaphore *row = &run->rows.semaphores[rows_semaphore(&run->rows, image->id)];
        if (row->next_due_at > now || image->next_due_at <= now || row->in_use != image->in_use ||
            row->next_permit_id != image->next_permit_id || row->first_free != image->first_free)
            return false;
    }
    return changes->request_count == 0 && changes->slot_count == 0 && changes->event_count == 0;
}

/* Checks that nothing is written without an answer that asserts it, except that an outdated next_due_at may rise. */
static bool check_needed(struct run *run, const struct batch *batch, const struct plan *plan)
{
    bool asserts = false;
    for (unsigned i = 0; i < batch->count; i++) {
        const struct outcome *outcome = &plan->outcomes[i];
        bool forgotten = outcome->request && is_deletable(outcome->request, &batch->moment);
        asserts |= !outcome->put_back && ((outcome->request && !forgotten) || outcome->semaphore);
    }
    if (asserts ? plan->changes.empty : !plan->changes.empty && !only_next_due(run, batch, &plan->changes))
        FAIL(run, "answers that assert a state: %d, changes empty: %d", asserts, plan->changes.empty);
    return true;
}

/* Inserts into the queue, at the place of arrival. */
static void queue_insert(struct queue *queue, const struct arrival *arrival)
{
    unsigned at = queue->count++;
    for (; at > 0 && queue->arrivals[at - 1].step > arrival->step; at--)
        queue->arrivals[at] = queue->arrivals[at - 1];
    queue->arrivals[at] = *arrival;
}

/* Queues operations that were put back, and waiters that may still wait. */
static void collect_queue(struct run *run, const struct batch *batch, const struct plan *plan)
{
    for (unsigned i = 0; i < batch->count; i++) {
        const struct outcome *outcome = &plan->outcomes[i];
        struct arrival arrival = batch->arrivals[i];
        bool goes_on = outcome->may_wait && arrival.tries < run->script->steps[arrival.step].patience;
        if (!outcome->put_back && !goes_on)
            continue;
        arrival.was_put_back = outcome->put_back;
        if (outcome->put_back)
            arrival.locks |= needs_of(run, outcome);
        else
            arrival.tries++;
        arrival.waits_here |= goes_on || batch->stands[i].waits;
        queue_insert(&run->queue, &arrival);
    }
}

/* Compares the outcomes in the order of decision. */
static bool compare_outcomes(struct run *run, const struct batch *batch, const struct plan *plan)
{
    size_t event_at = 0;
    model_begin_batch(&run->model);
    for (int rank = 0; rank <= LAST_RANK; rank++)
        for (unsigned i = 0; i < batch->count; i++) {
            if (batch->ranks[i] != rank)
                continue;
            if (!check_locks(run, batch, plan, i) ||
                (!plan->outcomes[i].put_back && !compare_outcome(run, batch, plan, i, &event_at))) {
                buf_append_text(&run->rows.problem, " at ");
                name_step(run, batch, i);
                return false;
            }
        }
    if (event_at != plan->changes.event_count)
        FAIL(run, "%zu events, %zu were expected", plan->changes.event_count, event_at);
    for (unsigned i = 0; i < END_REASON_COUNT; i++)
        run->ended[i] += plan->ended[i];
    if (memcmp(run->ended, run->model.ended, sizeof run->ended) != 0)
        FAIL(run, "the counters of what ended");
    return true;
}

/*
 * Checks that next_due_at says so if all due holders were read and none is left: otherwise each new request would read
 * them again.
 */
static bool check_searched(struct run *run, const struct batch *batch)
{
    utc_us now = model_time(&batch->moment);
    unsigned due = 0;
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        if (run->rows.requests[key].state == REQUEST_ACQUIRED && run->rows.requests[key].due_at <= now)
            due |= rows_semaphores_of_key(&run->rows, key);
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++)
        if ((batch->searched & ~due) >> i & 1 && run->rows.semaphores[i].next_due_at <= now)
            FAIL(run, "next_due_at of %c is %ld, and nobody is due", 'a' + (int)i, run->rows.semaphores[i].next_due_at);
    return true;
}

/* A transaction that changes a request, its permits or its slots holds the X locks of all its semaphores. */
static bool check_touched(struct run *run, const struct batch *batch, const struct changes *changes)
{
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request *request = changes->requests[i].request;
        for (size_t j = 0; j < request->permit_count; j++)
            if (!(batch->locked >> rows_semaphore(&run->rows, request->permits[j].semaphore_id) & 1))
                FAIL(run, "%.*s is written without all its locks", (int)request->external_id.length,
                     request->external_id.data);
    }
    return true;
}

/*
 * Reads the rows of a batch. A limited read of due holders may lead to a refusal although others are due, so the model
 * is told which holders were not read. A read without a limit must be enough for the outcome.
 */
static bool read_batch(struct run *run, struct batch *batch, const struct operation *const *operations,
                       struct view *ret_view)
{
    struct rows_read *read = &batch->read;
    struct shortfall shortfalls[MODEL_SEMAPHORES];
    batch_read(run, batch, read);
    batch->locked = read->locks;
    run->model.unread = 0;
    if (!rows_view(&run->rows, read, &run->arena, ret_view))
        FAIL(run, "no memory");
    size_t count = plan_shortfalls(ret_view, operations, batch->count, shortfalls);
    if (count && !rows_read_due(&run->rows, read, shortfalls, count, &run->arena, ret_view))
        FAIL(run, "no memory");
    batch->searched = 0;
    for (size_t i = 0; i < count; i++)
        if (ret_view->next_due[shortfalls[i].semaphore] > model_time(&batch->moment))
            batch->searched |= 1U << rows_semaphore(&run->rows, ret_view->semaphores[shortfalls[i].semaphore].id);
    for (size_t i = 0; i < count && read->due_cut; i++)
        if (shortfalls[i].units > read->due_cut)
            run->model.unread = ~0U;
    for (size_t i = 0; i < ret_view->request_count; i++)
        run->model.unread &= ~(1U << key_index(ret_view->requests[i].external_id));
    run->cut_short |= run->model.unread != 0;
    return true;
}

static bool run_batch(struct run *run, struct batch *batch)
{
    const struct operation *operations[MODEL_STEPS];
    struct view view;
    struct plan plan;
    unsigned first = run->decided_count;
    run->batches++;
    arena_clear(&run->arena);
    for (unsigned i = 0; i < batch->count; i++) {
        const struct step *step = &run->script->steps[batch->arrivals[i].step];
        batch->stands[i] = stand_of(step, &batch->arrivals[i]);
        make_operation(run, i, batch);
        operations[i] = &batch->operations[i];
    }
    rank_batch(run, batch);
    if (!read_batch(run, batch, operations, &view))
        return false;
    uint64_t before = view_checksum(&view);
    struct id_range ids = {run->rows.next_id, run->rows.next_id + batch->count};
    enum permit_status status = plan_batch(&view, operations, batch->count, ids, &model_settings, &run->arena, &plan);
    if (status != PERMIT_OK)
        FAIL(run, "plan_batch: %s", permit_status_word(status));
    if (view_checksum(&view) != before)
        FAIL(run, "the view was modified");
    if (plan.ids_used > batch->count)
        FAIL(run, "%lu ids used", plan.ids_used);
    collect_queue(run, batch, &plan);
    return compare_outcomes(run, batch, &plan) && check_needed(run, batch, &plan) &&
           check_touched(run, batch, &plan.changes) && rows_apply(&run->rows, &plan) && check_searched(run, batch) &&
           order_holds(run, first);
}

/* ---- the script ---- */

bool step_wants(const struct step *step, unsigned semaphore)
{
    for (unsigned i = 0; i < step->want_count; i++)
        if (step->wants[i].semaphore == semaphore)
            return true;
    return false;
}

bool step_is_specific(const struct step *step)
{
    bool is_specific = false;
    for (unsigned i = 0; i < step->want_count; i++)
        is_specific |= step->wants[i].choice != CHOOSE_LOWEST || step->wants[i].adjacent;
    return is_specific;
}

static unsigned wants_of(const struct step *step)
{
    unsigned wants = 0;
    for (unsigned i = 0; i < step->want_count; i++)
        wants |= 1U << step->wants[i].semaphore;
    return wants;
}

/*
 * Takes from the queue the operations put back, and the first waiters, as many as one batch may have. Returns a bit per
 * semaphore of the waiters left out.
 */
static unsigned take_queue(struct run *run, struct batch *batch)
{
    struct queue *queue = &run->queue;
    unsigned left_out = 0;
    unsigned waiters = 0;
    unsigned left = 0;
    for (unsigned i = 0; i < queue->count; i++) {
        struct arrival *arrival = &queue->arrivals[i];
        if (!arrival->waits_here || waiters < run->script->max_waiters || run->script->max_waiters == 0) {
            waiters += arrival->waits_here;
            batch->arrivals[batch->count++] = *arrival;
        } else {
            const struct step *step = &run->script->steps[arrival->step];
            left_out |= step_is_specific(step) ? 0 : wants_of(step); /* blocks no free units */
            queue->arrivals[left++] = *arrival;
        }
    }
    queue->count = left;
    return left_out;
}

static void take_step(const struct run *run, unsigned at, struct batch *batch)
{
    const struct step *step = &run->script->steps[at];
    batch->arrivals[batch->count++] = (struct arrival){.step = at, .locks = locks_of_step(run, step)};
    if (step->moment.now)
        batch->moment = step->moment;
}

static bool any_put_back(const struct queue *queue)
{
    bool any = false;
    for (unsigned i = 0; i < queue->count; i++)
        any |= queue->arrivals[i].was_put_back;
    return any;
}

/*
 * Takes the next batch: the queue, and the steps that arrive with the one at `at`. An administrative step runs alone,
 * after all operations put back. Returns the position in the script.
 */
static unsigned take_batch(struct run *run, unsigned at, struct batch *batch)
{
    const struct step *steps = run->script->steps;
    unsigned count = run->script->count;
    bool waits_for_others = any_put_back(&run->queue);
    batch->count = 0;
    if (at < count && step_is_administrative(&steps[at]) && !waits_for_others)
        return take_step(run, at, batch), at + 1;
    unsigned left_out = take_queue(run, batch);
    if (at < count && !(waits_for_others && steps[at].new_batch))
        for (bool first = true; at < count && !step_is_administrative(&steps[at]) && (first || !steps[at].new_batch);
             first = false)
            take_step(run, at++, batch);
    for (unsigned i = 0; i < batch->count; i++)
        batch->arrivals[i].is_behind = left_out & wants_of(&steps[batch->arrivals[i].step]);
    return at;
}

/* Checks that the rows and the model agree at the end. */
static bool compare_rows(struct run *run)
{
    for (unsigned i = 0; i < MODEL_KEYS; i++) {
        struct model_request got;
        rows_request(&run->rows, &run->rows.requests[i], &got);
        if ((run->rows.requests[i].id != 0) != run->model.requests[i].exists)
            FAIL(run, "row of %s", key_name(i).data);
        if (run->model.requests[i].exists && !requests_equal(&run->model.requests[i], &got, &run->rows.problem))
            FAIL(run, " in the row of %s", key_name(i).data);
    }
    return true;
}

bool script_run(struct run *run, const struct script *script)
{
    struct batch batch;
    batch.moment = (struct moment){.now = MODEL_START, .clock = {MODEL_START, 0}};
    run_clear(run, script);
    for (unsigned at = 0; at < script->count || run->queue.count > 0;) {
        at = take_batch(run, at, &batch);
        if (!run_batch(run, &batch))
            return false;
    }
    return compare_rows(run);
}
