/* SPDX-License-Identifier: MIT */
/*
 * Runs a script: gathers operations into batches as an engine would (operations put back come first, with the locks
 * they need; administrative operations run alone), plans, compares each outcome with the model's in the order of
 * decision, and writes the changes. Each batch belongs to one of several permitd, which all use the same rows.
 */
#include <stdlib.h>

#include "plan_model.h"

/* Each put-back adds locks, or follows another operation of the key. */
enum { MAX_PUT_BACKS = 2 * MODEL_SEMAPHORES, RANK_ASK = 4, RANK_REST = 5 };

struct batch {
    struct arrival arrivals[MODEL_STEPS];
    unsigned count;
    struct moment moment;
    struct operation operations[MODEL_STEPS];
    struct bytes keys[MODEL_STEPS][2]; /* of a confirm of two */
    struct want wants[MODEL_STEPS][MODEL_WANTS];
    struct slot_name names[MODEL_STEPS][MODEL_WANTS][MODEL_NAMES];
    char wishes[MODEL_STEPS][MODEL_WANTS][WISH_SIZE];
    struct want given[MODEL_STEPS][MODEL_WANTS];
    struct slot_name given_names[MODEL_STEPS][MODEL_WANTS][MODEL_NAMES];
    struct bytes labels[MODEL_LABELS]; /* labels of the one operation that sets any */
    struct semaphore_change change;
    struct rows_read read;
    int ranks[MODEL_STEPS];
    struct plan_settings settings;
    unsigned order[MODEL_STEPS]; /* the operations in the order of decision */
    unsigned decided;
    unsigned waiters; /* a bit per waiting key that was read */
    unsigned locked;
    unsigned searched;                         /* a bit per semaphore with all its due holders read */
    struct queue_read reads[MODEL_SEMAPHORES]; /* the parts of queues that are read */
    size_t read_count;
};

#define FAIL(run, ...) return buf_printf(&(run)->rows.problem, __VA_ARGS__), false

void run_init(struct run *run)
{
    memset(run, 0, sizeof *run);
    rows_init(&run->rows);
    arena_init(&run->arena, 65536, 1 << 26);
    run->undecided = calloc(1, sizeof *run->undecided);
    if (!run->undecided)
        abort();
}

void run_release(struct run *run)
{
    rows_release(&run->rows);
    arena_release(&run->arena);
    free(run->undecided);
}

static void run_clear(struct run *run, const struct script *script)
{
    rows_clear(&run->rows);
    struct model_rules rules = run->model.rules;
    memset(&run->model, 0, sizeof run->model);
    run->model.rules = rules;
    memset(run->put_backs, 0, sizeof run->put_backs);
    memset(run->widened, 0, sizeof run->widened);
    memset(run->ended, 0, sizeof run->ended);
    memset(run->known, 0, sizeof run->known);
    run->script.count = script->count;
    run->script.max_waiters = script->max_waiters;
    run->script.queue_cut = script->queue_cut;
    run->script.rounds = script->rounds;
    run->script.max_packet = script->max_packet;
    memcpy(run->script.steps, script->steps, script->count * sizeof *script->steps);
    run->settling = false;
    run->decided_count = run->batches = 0;
    run->reclaims = 0;
    run->granted_here = run->granted_elsewhere = run->called = run->told = 0;
    run->queue.count = 0;
    run->cut_short = false;
}

bool step_is_administrative(const struct step *step)
{
    return step->kind == OP_SEMAPHORE_PUT || step->kind == OP_SEMAPHORE_LABELS || step->kind == OP_SEMAPHORE_PAUSE ||
           step->kind == OP_SEMAPHORE_RESUME || step->kind == OP_SEMAPHORE_RETIRE;
}

/* Returns the id under which the clients of the batch's server wait. */
static unsigned id_of(const struct moment *moment)
{
    return moment->server ? moment->server : moment->was;
}

/* Returns what the server of the batch knows of a client that waits there for the key; NULL: nothing. */
static const struct known *known_of(const struct run *run, const struct step *step)
{
    const struct known *known = &run->known[id_of(&run->model.batch.moment)][step->key];
    bool knows = known->here && !step->anew && step->kind == OP_ACQUIRE && same_content(known->content, step);
    return knows ? known : NULL;
}

static bool enters_again(const struct run *run, const struct step *step)
{
    bool waits = step->wait == WAIT_ASK || step->wait == WAIT_LAST;
    return waits && known_of(run, step) && run->model.batch.moment.server != 0;
}

/* The order is releases, renewals, confirms, expiries, asks, the walk, and the rest. */
static int step_rank(const struct run *run, const struct step *step)
{
    switch (step->kind) {
    case OP_RELEASE:
    case OP_FORCE_RELEASE: return 0;
    case OP_EXCHANGE: return step->want_count ? RANK_REST : 0;
    case OP_RENEW: return 1;
    case OP_CONFIRM: return 2;
    case OP_EXPIRE: return 3;
    case OP_ACQUIRE: return model_is_ask(&run->model, step, enters_again(run, step)) ? RANK_ASK : RANK_REST;
    default: return RANK_REST;
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
        locks |= (step->stale ? step->stale_locks : rows_semaphores_of_key(&run->rows, step->key));
    if (step->with && !step->stale)
        locks |= rows_semaphores_of_key(&run->rows, step->with - 1);
    for (unsigned i = 0; i < step->want_count; i++)
        locks |= 1U << step->wants[i].semaphore;
    return locks;
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
    const struct step *step = &run->script.steps[batch->arrivals[index].step];
    const struct known *known = known_of(run, step);
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
    if (step->with) {
        batch->keys[index][0] = key_name(step->key);
        batch->keys[index][1] = key_name(step->with - 1);
        operation->keys = batch->keys[index];
        operation->key_count = 2;
    }
    operation->owner = owner_name(step->owner);
    operation->nonce = nonce_text(step->nonce);
    operation->allow_confirmed = step->allow_confirmed;
    operation->expire_as = step->expire_as;
    operation->ttl = step->ttl;
    operation->changes = step->changes;
    memcpy(operation->digest, step->digest, DIGEST_SIZE);
    operation->wants = wants;
    operation->want_count = step->want_count;
    operation->priority = step->priority;
    operation_set_wait(operation, step->wait, step->wait_us, known != NULL);
    operation->widened = run->widened[batch->arrivals[index].step];
    operation->place = operation->kind == OP_LOOK ? known->place : 0;
    operation->since = operation->kind == OP_LOOK ? known->since : 0;
    if (step->mailed)
        operation->mailed = rows_mail_of(&run->rows, batch->moment.server, step->key);
    for (unsigned i = 0; i < step->want_count; i++) {
        make_want(run, &step->wants[i], batch->names[index][i], &wants[i]);
        wants[i].best = model_wish(&step->wants[i], batch->wishes[index][i]);
    }
    operation->given = batch->given[index];
    operation->given_count = step->given_count;
    for (unsigned i = 0; i < step->given_count; i++)
        make_want(run, &step->given[i], batch->given_names[index][i], &batch->given[index][i]);
}

/* Reads as many free slots as the want requests, of either kind; for adjacent slots and best seats all. Also reads the named slots. */
static void read_want(const struct model_want *want, unsigned extra, struct rows_read *read)
{
    bool all = want->adjacent || want->choice == CHOOSE_BEST;
    int64_t count = all ? SLOTS_MAX_CAPACITY : min_i64(want->count, SLOTS_MAX_COUNT) + extra;
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
    read->queue_cut = run->script.queue_cut;
    for (unsigned key = 0; key < MODEL_KEYS; key++) {
        const struct known *known = &run->known[id_of(&batch->moment)][key];
        read->here |= (unsigned)known->here << key;
        read->here_nonce[key] = known->nonce;
    }
    for (unsigned i = 0; i < batch->count; i++) {
        const struct step *step = &run->script.steps[batch->arrivals[i].step];
        read->locks |= batch->arrivals[i].locks;
        if (!step_is_administrative(step))
            read->keys |= step_keys(step);
        read->all_slots |= step->change.has_labels;
        if (step->kind == OP_ACQUIRE && step->ttl.kind == TTL_OWNER)
            read->owners |= 1U << step->owner;
        if (step->due_cut && (!read->due_cut || step->due_cut < read->due_cut))
            read->due_cut = step->due_cut;
        read->walks_due |= step->walks_due;
        read->locked_rows |= step->locked_rows;
        read->later |= step->later;
        for (unsigned j = 0; j < step->want_count; j++)
            read_want(&step->wants[j], step->extra_slots, read);
    }
}

/* Returns the rank of an operation now: it is never decided before an earlier one on one of its keys. */
static int rank_of(const struct run *run, const struct batch *batch, unsigned index)
{
    const struct step *step = &run->script.steps[batch->arrivals[index].step];
    int rank = step_rank(run, step);
    for (unsigned i = 0; i < index && !step_is_administrative(step); i++)
        if ((step_keys(&run->script.steps[batch->arrivals[i].step]) & step_keys(step)) && batch->ranks[i] > rank)
            rank = batch->ranks[i];
    return rank == RANK_ASK && step->kind != OP_ACQUIRE ? RANK_REST : rank;
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
    verdict->waits = outcome->waits;
    verdict->max_ttl_ms = outcome->max_ttl_ms;
    verdict->max_hold_ms = outcome->max_hold_ms;
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
        .next_token = semaphore->next_token,
        .config_version = semaphore->config_version,
        .default_ttl_ms = semaphore->default_ttl_ms,
        .max_ttl_ms = semaphore->max_ttl_ms,
        .grace_ms = semaphore->grace_ms,
        .max_hold_ms = semaphore->max_hold_ms,
        .max_waiters = semaphore->max_waiters,
        .max_priority = semaphore->max_priority,
        .priority_step_ms = semaphore->priority_step_ms,
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
    *copy = (struct model_event){.semaphore = semaphore, .why = event->why, .next_token = event->next_token};
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
    DIFFERS(changes, "%u");
    DIFFERS(change_nonce, "%u");
    DIFFERS(server, "%u");
    DIFFERS(priority, "%d");
    DIFFERS(place, "%ld");
    DIFFERS(since, "%ld");
    DIFFERS(until, "%ld");
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
    DIFFERS(max_waiters, "%ld");
    DIFFERS(max_priority, "%ld");
    DIFFERS(priority_step_ms, "%ld");
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
    DIFFERS(waits, "%d");
    DIFFERS(max_ttl_ms, "%ld");
    DIFFERS(max_hold_ms, "%ld");
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
    step_print(&run->script.steps[batch->arrivals[index].step], &run->rows.problem);
}

static unsigned needs_of(const struct run *run, const struct outcome *outcome)
{
    unsigned needs = 0;
    for (size_t i = 0; i < outcome->need_count; i++)
        needs |= 1U << rows_semaphore(&run->rows, outcome->needs[i]);
    return needs;
}

/* Returns the semaphores of the due holders that have to end before the acquires that were put back. */
static unsigned locks_of_overdue(const struct run *run, const struct plan *plan)
{
    unsigned locks = 0;
    for (size_t i = 0; i < plan->overdue_count; i++)
        locks |= rows_semaphores_of_key(&run->rows, (unsigned)key_index(plan->overdue[i]->external_id));
    return locks;
}

/*
 * Compares the due holders that have to end first. The run does not end them by operations of their own: an acquire that
 * was put back comes again with their locks, as if these were in its batch.
 */
static bool compare_overdue(struct run *run, const struct plan *plan)
{
    unsigned overdue = 0;
    for (size_t i = 0; i < plan->overdue_count; i++) {
        unsigned key = 1U << key_index(plan->overdue[i]->external_id);
        if (overdue & key)
            FAIL(run, "a due holder is overdue twice");
        overdue |= key;
    }
    if (overdue != run->model.walk.overdue)
        FAIL(run, "overdue %08x, expected %08x", overdue, run->model.walk.overdue);
    return true;
}

/*
 * An operation that would touch a request with an unlocked semaphore is put back with all the locks it needs, or for the
 * end of a due holder; no other operation is put back.
 */
static bool compare_put_back(struct run *run, const struct batch *batch, const struct plan *plan, unsigned index)
{
    const struct outcome *outcome = &plan->outcomes[index];
    const struct verdict *verdict = &run->verdicts[batch->arrivals[index].step];
    if (outcome->put_back != verdict->put_back)
        FAIL(run, "put back: %d (%s), expected %d (%s), with %02x of %02x", outcome->put_back,
             permit_status_word(outcome->status), verdict->put_back, permit_status_word(verdict->status),
             verdict->needs, batch->locked);
    if (!outcome->put_back)
        return true;
    for (size_t i = 0; i < outcome->need_count; i++)
        if (rows_semaphore(&run->rows, outcome->needs[i]) < 0 || (i > 0 && outcome->needs[i - 1] >= outcome->needs[i]))
            FAIL(run, "needs are not ids of semaphores, ascending");
    if (needs_of(run, outcome) != verdict->needs)
        FAIL(run, "put back with %02x for %02x", needs_of(run, outcome), verdict->needs);
    if (outcome->widened != verdict->widened)
        FAIL(run, "put back for kept units: %d, expected %d", outcome->widened, verdict->widened);
    run->widened[batch->arrivals[index].step] += outcome->widened;
    if (++run->put_backs[batch->arrivals[index].step] > MAX_PUT_BACKS)
        FAIL(run, "put back for ever");
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
    if (!outcome->request || is_deletable(outcome->request, moment) || outcome->request->state == REQUEST_WAITING)
        return true; /* no client is answered with a place */
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
    if (!(step_keys(step) >> key_index(request->external_id) & 1) || !bytes_equal(request->principal, BYTES("someone")))
        FAIL(run, "the request is somebody else's");
    bool tombstone = request->end_reason == END_NEVER_HELD;
    if ((!request->has_digest && !tombstone) ||
        (step->kind == OP_ACQUIRE && !tombstone && memcmp(request->digest, step->digest, DIGEST_SIZE) != 0))
        FAIL(run, "the digest is not that of the acquire");
    return true;
}

static bool remember_decision(struct run *run, const struct batch *batch, unsigned step, int rank,
                              const struct verdict *verdict)
{
    if (run->decided_count == MODEL_STEPS)
        FAIL(run, "too many decisions");
    run->decided[run->decided_count++] = (struct decided){.step = step,
                                                          .batch = run->batches,
                                                          .rank = rank,
                                                          .locks = batch->locked,
                                                          .moment = batch->moment,
                                                          .verdict = *verdict};
    return true;
}

/* Compares an outcome with that of the model. `*event_at` is the first event of the plan without an operation so far. */
static bool compare_outcome(struct run *run, const struct batch *batch, const struct plan *plan, unsigned index,
                            size_t *event_at)
{
    unsigned at = batch->arrivals[index].step;
    const struct step *step = &run->script.steps[at];
    const struct outcome *outcome = &plan->outcomes[index];
    struct verdict got;
    verdict_of(run, outcome, &got);
    if (outcome->semaphore)
        verdict_add_semaphore(outcome->semaphore, &got);
    while (got.event_count < run->verdicts[at].event_count && *event_at < plan->changes.event_count)
        if (!verdict_add_event(run, &plan->changes, &plan->changes.events[(*event_at)++], &got))
            return false;
    run->wrote[at] = !plan->changes.empty;
    return remember_decision(run, batch, at, batch->ranks[index], &run->verdicts[at]) &&
           verdict_equal(&run->verdicts[at], &got, &run->rows.problem) && check_identity(run, step, outcome) &&
           check_written(run, outcome, &batch->moment, &plan->changes);
}

static bool exchanges(const struct run *run, const struct batch *batch)
{
    for (unsigned i = 0; i < batch->count; i++)
        if (run->script.steps[batch->arrivals[i].step].kind == OP_EXCHANGE)
            return true;
    return false;
}

/*
 * next_due_at alone is written only if it says due and no holder is; and first_free beside it, if an exchange that does not
 * fit has found a better bound.
 */
static bool only_next_due(const struct run *run, const struct batch *batch, const struct changes *changes)
{
    utc_us now = model_due(&batch->moment);
    for (size_t i = 0; i < changes->semaphore_count; i++) {
        const struct semaphore *image = changes->semaphores[i].semaphore;
        if (!changes->semaphores[i].changed)
            continue;
        const struct semaphore *row = &run->rows.semaphores[rows_semaphore(&run->rows, image->id)];
        if (row->next_due_at > now || image->next_due_at <= now || row->in_use != image->in_use ||
            row->next_token != image->next_token || (row->first_free != image->first_free && !exchanges(run, batch)))
            return false;
    }
    return changes->request_count == 0 && changes->slot_count == 0 && changes->event_count == 0 &&
           changes->place_count == 0 && changes->mail_count == 0;
}

/*
 * Checks that an answer that asserts a state is written, and that a batch without waiters writes nothing without such an
 * answer, except that an outdated next_due_at may rise.
 */
static bool check_needed(struct run *run, const struct batch *batch, const struct plan *plan)
{
    bool asserts = false;
    bool waiting = batch->waiters != 0 || run->model.walk.entered != 0;
    for (unsigned i = 0; i < batch->count; i++) {
        const struct outcome *outcome = &plan->outcomes[i];
        bool forgotten = outcome->request && is_deletable(outcome->request, &batch->moment);
        asserts |=
            !outcome->put_back &&
            ((outcome->request && !forgotten && outcome->request->state != REQUEST_WAITING) || outcome->semaphore);
        waiting |= outcome->waits || batch->operations[i].mailed;
    }
    if (asserts ? plan->changes.empty : !waiting && !plan->changes.empty && !only_next_due(run, batch, &plan->changes))
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

/* Returns true if a copy of the call that waits here was refused, and the call goes on waiting, if only for its answer. */
static bool is_refused_copy(const struct run *run, const struct batch *batch, unsigned index,
                            const struct outcome *outcome)
{
    unsigned key = run->script.steps[batch->arrivals[index].step].key;
    const struct model_request *request = &run->model.requests[key];
    return run->known[id_of(&batch->moment)][key].here && batch->operations[index].kind == OP_ACQUIRE &&
           !outcome->waits && is_waiting(request);
}

/* Queues the operations that were put back, and remembers whose clients wait at this server. */
static void collect_queue(struct run *run, const struct batch *batch, const struct plan *plan)
{
    for (unsigned i = 0; i < batch->count; i++) {
        const struct outcome *outcome = &plan->outcomes[i];
        const struct step *step = &run->script.steps[batch->arrivals[i].step];
        struct arrival arrival = batch->arrivals[i];
        if (outcome->put_back) {
            arrival.locks |= needs_of(run, outcome) | (step->want_count ? locks_of_overdue(run, plan) : 0);
            queue_insert(&run->queue, &arrival);
        } else if (step->kind == OP_ACQUIRE && !is_refused_copy(run, batch, i, outcome)) {
            struct known *known = &run->known[id_of(&batch->moment)][step->key];
            known->here = outcome->waits;
            known->content = step;
            known->nonce = (step->nonce + step->mailed) % MODEL_NONCES; /* another client may join the first one */
            if (outcome->waits) {
                known->place = outcome->request->place;
                known->since = outcome->request->waiting_since;
            }
        }
    }
    for (size_t i = 0; i < plan->notice_count; i++)
        run->known[id_of(&batch->moment)][key_index(plan->notices[i].external_id)].here = false;
}

static struct model_operation model_operation(struct run *run, const struct batch *batch, unsigned index)
{
    unsigned at = batch->arrivals[index].step;
    const struct operation *operation = &batch->operations[index];
    return (struct model_operation){.step = &run->script.steps[at],
                                    .verdict = &run->verdicts[at],
                                    .entered = operation->kind == OP_LOOK,
                                    .widened = operation->widened,
                                    .place = operation->place,
                                    .since = operation->since};
}

/* Decides an operation by the model, unless it has to be put back. */
static void decide_one(struct run *run, struct batch *batch, unsigned index)
{
    const struct model_operation operation = model_operation(run, batch, index);
    unsigned due = run->model.ended[END_EXPIRED] + run->model.ended[END_STALE];
    bool is_new = true;
    batch->order[batch->decided++] = index;
    if (operation.step->with) {
        model_confirm_both(&run->model, &operation);
        return;
    }
    if (model_puts_back(&run->model, &operation, model_touches(&run->model, operation.step),
                        model_overdue_of_new(&run->model, &operation)))
        return;
    if (model_is_ask(&run->model, operation.step, enters_again(run, operation.step)))
        (void)model_ask(&run->model, &operation, &is_new);
    if (is_new)
        model_do(&run->model, &operation);
    run->reclaims += operation.verdict->created && due < run->model.ended[END_EXPIRED] + run->model.ended[END_STALE];
}

/* Hears an ask before the walk; changes its rank if it is a new request after all. */
static void hear_ask(struct run *run, struct batch *batch, unsigned index)
{
    const struct model_operation operation = model_operation(run, batch, index);
    const struct step *step = operation.step;
    unsigned touched = is_waiting(&run->model.requests[step->key]) ? model_touches(&run->model, step) : 0;
    bool is_new = false;
    bool is_put_back = model_puts_back(&run->model, &operation, touched, 0);
    if (!is_put_back && !model_is_ask(&run->model, step, enters_again(run, step)))
        is_new = true; /* the place gave way to an operation before */
    else if (!is_put_back)
        (void)model_ask(&run->model, &operation, &is_new);
    if (!is_new) {
        batch->order[batch->decided++] = index;
        return;
    }
    for (unsigned i = index; i < batch->count; i++) /* later operations on the key follow it */
        if ((step_keys(&run->script.steps[batch->arrivals[i].step]) & step_keys(step)) && batch->ranks[i] == RANK_ASK)
            batch->ranks[i] = RANK_REST;
}

/* Compares the grants to waiters whose clients are here, and no operation asks for them. */
static bool compare_granted(struct run *run, const struct batch *batch, const struct plan *plan)
{
    const struct model_walk *walk = &run->model.walk;
    unsigned count = 0;
    for (size_t i = 0; i < plan->notice_count; i++) {
        const struct notice *notice = &plan->notices[i];
        if (!notice->unasked)
            continue;
        if (count == walk->granted_count)
            FAIL(run, "%u waiters of this process are granted, and more", count);
        struct verdict got;
        unsigned key = walk->granted[count++];
        verdict_of(run, &notice->outcome, &got);
        if (!remember_decision(run, batch, MODEL_STEPS, RANK_ASK, &walk->grants[key]) ||
            !verdict_equal(&walk->grants[key], &got, &run->rows.problem))
            FAIL(run, " in the grant to %s", key_name(key).data);
        if (key_index(notice->external_id) != (int)key)
            FAIL(run, "a waiter is granted, and not %s", key_name(key).data);
    }
    if (count != walk->granted_count)
        FAIL(run, "%u waiters of this process are granted, %u were expected", count, walk->granted_count);
    run->granted_here += walk->granted_count;
    run->granted_elsewhere += (unsigned)__builtin_popcount(walk->unclaimed);
    return true;
}

static bool compare_calls(struct run *run, const struct plan *plan)
{
    unsigned calls = 0;
    for (size_t i = 0; i < plan->call_count; i++)
        calls |= 1U << run->rows.key_of_id[plan->calls[i]] % 32;
    run->called += plan->call_count;
    if (calls != run->model.walk.calls)
        FAIL(run, "calls %08x, expected %08x", calls, run->model.walk.calls);
    return true;
}

/* Mail to others is inserted; the mail of the operations is deleted, unless they are put back. */
static bool compare_mail(struct run *run, const struct batch *batch, const struct plan *plan)
{
    unsigned mail[MODEL_SERVERS] = {0};
    size_t removed = 0;
    for (size_t i = 0; i < plan->changes.mail_count; i++) {
        const struct mail *row = &plan->changes.mail[i];
        unsigned key = row->request_id < MODEL_IDS ? run->rows.key_of_id[row->request_id] : MODEL_KEYS;
        bool expected = false;
        for (unsigned j = 0; row->remove && j < batch->count; j++)
            expected |= batch->operations[j].mailed == row->request_id && !plan->outcomes[j].put_back;
        if (row->remove && (!expected || row->server_id != batch->moment.server))
            FAIL(run, "mail %lu of server %lu is deleted", row->request_id, row->server_id);
        removed += row->remove;
        if (!row->remove && (row->server_id == 0 || row->server_id >= MODEL_SERVERS || key == MODEL_KEYS))
            FAIL(run, "mail %lu to server %lu", row->request_id, row->server_id);
        if (!row->remove)
            mail[row->server_id] |= 1U << key;
    }
    for (unsigned j = 0; j < batch->count; j++) {
        uint64_t id = plan->outcomes[j].put_back ? 0 : batch->operations[j].mailed;
        bool first = id != 0;
        for (unsigned k = 0; k < j; k++)
            first = first && (batch->operations[k].mailed != id || plan->outcomes[k].put_back);
        removed -= first;
    }
    if (removed != 0)
        FAIL(run, "mail of an operation is not deleted");
    for (unsigned i = 1; i < MODEL_SERVERS; i++) {
        run->told += (unsigned)__builtin_popcount(mail[i]);
        if (mail[i] != run->model.walk.mail[i])
            FAIL(run, "mail to server %u: %08x, expected %08x", i, mail[i], run->model.walk.mail[i]);
    }
    return true;
}

/* Writes, for a transcript, what the batch did to waiters besides the outcomes of its operations. */
static void note_walk(struct run *run, const struct batch *batch)
{
    const struct model_walk *walk = &run->model.walk;
    struct buf *notes = &run->notes[batch->arrivals[batch->count - 1].step];
    unsigned granted = walk->unclaimed;
    for (unsigned i = 0; i < walk->granted_count; i++)
        granted |= 1U << walk->granted[i];
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        if (granted >> key & 1) {
            buf_printf(notes, "; %s: ", key_name(key).data);
            verdict_print(&walk->grants[key], notes);
        }
    for (unsigned server = 1; server < MODEL_SERVERS; server++)
        for (unsigned key = 0; key < MODEL_KEYS; key++)
            if (walk->mail[server] >> key & 1)
                buf_printf(notes, "; mail %u %s", server, key_name(key).data);
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        if (walk->calls >> key & 1)
            buf_printf(notes, "; call %s", key_name(key).data);
}

/* A new request behind a waiter that keeps units from it needs to know whether the waiter fits. */
static void mark_new_requests(struct run *run, const struct batch *batch)
{
    for (unsigned i = 0; i < batch->count; i++) {
        const struct step *step = &run->script.steps[batch->arrivals[i].step];
        for (unsigned j = 0;
             step->kind == OP_ACQUIRE && batch->operations[i].kind == OP_ACQUIRE && j < step->want_count; j++)
            run->model.walk.changed[step->wants[j].semaphore] = true;
    }
}

/* Decides the batch by the model, as far as to a walk that asks for more rows. */
static void decide_batch(struct run *run, struct batch *batch)
{
    batch->decided = 0;
    mark_new_requests(run, batch);
    for (int rank = 0; rank <= RANK_REST; rank++) {
        for (unsigned i = 0; rank == RANK_ASK && i < batch->count; i++)
            if (batch->ranks[i] >= RANK_ASK) /* a key may not wait any more */
                batch->ranks[i] = rank_of(run, batch, i);
        if (rank == RANK_REST)
            model_walk(&run->model);
        for (unsigned i = 0; i < batch->count && !model_reads_more(&run->model); i++) {
            if (batch->ranks[i] != rank)
                continue;
            if (rank == RANK_ASK)
                hear_ask(run, batch, i);
            else
                decide_one(run, batch, i);
            if (rank == RANK_REST && run->model.walk.again)
                model_walk(&run->model);
        }
    }
}

/* Compares what the transaction writes at most; the model knows nothing of labels. */
static bool compare_packet(struct run *run, const struct plan *plan)
{
    bool labels = false;
    for (unsigned i = 0; i < run->script.count; i++)
        labels |= run->script.steps[i].label_count > 0;
    if (labels ? plan->packet_size < run->model.walk.packet : plan->packet_size != run->model.walk.packet)
        FAIL(run, "the packet has %zu bytes, expected %zu", plan->packet_size, run->model.walk.packet);
    return true;
}

/* Compares the outcomes in the order of decision. */
static bool compare_outcomes(struct run *run, const struct batch *batch, const struct plan *plan)
{
    size_t event_at = 0;
    for (unsigned i = 0; i < batch->decided; i++) {
        unsigned index = batch->order[i];
        if (!compare_put_back(run, batch, plan, index) ||
            (!plan->outcomes[index].put_back && !compare_outcome(run, batch, plan, index, &event_at))) {
            buf_append_text(&run->rows.problem, " at ");
            name_step(run, batch, index);
            return false;
        }
    }
    if (event_at != plan->changes.event_count)
        FAIL(run, "%zu events, %zu were expected", plan->changes.event_count, event_at);
    for (unsigned i = 0; i < END_REASON_COUNT; i++)
        run->ended[i] += plan->ended[i];
    if (memcmp(run->ended, run->model.ended, sizeof run->ended) != 0)
        FAIL(run, "the counters of what ended");
    return compare_packet(run, plan) && compare_overdue(run, plan) && compare_granted(run, batch, plan) &&
           compare_calls(run, plan) && compare_mail(run, batch, plan);
}

/*
 * Checks that next_due_at says so if all due holders were read and none is left: otherwise each new request would read
 * them again.
 */
static bool check_searched(struct run *run, const struct batch *batch)
{
    utc_us now = model_due(&batch->moment);
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
        for (size_t j = 0; j < request->want_count; j++)
            if (!(batch->locked >> rows_semaphore(&run->rows, request->wants[j].semaphore_id) & 1))
                FAIL(run, "%.*s waits, and is written without all its locks", (int)request->external_id.length,
                     request->external_id.data);
    }
    return true;
}

/* A queue is read if it has waiters, and units of it may be free; never if it is closed, paused or retired. */
static bool check_queue_reads(struct run *run, const struct batch *batch, const struct view *view,
                              const struct queue_read *reads, size_t count, bool servers)
{
    if (step_is_administrative(&run->script.steps[batch->arrivals[0].step])) {
        if (count || servers)
            FAIL(run, "an administrative operation reads a queue");
        return true;
    }
    bool read[MODEL_SEMAPHORES] = {false};
    bool waits = false;
    for (size_t i = 0; i < view->request_count; i++)
        waits |= view->requests[i].state == REQUEST_WAITING || view->requests[i].server_id != 0;
    if (waits != servers)
        FAIL(run, "a row of the batch waits: %d, servers are read: %d", waits, servers);
    for (size_t i = 0; i < count; i++) {
        const struct semaphore *row = &view->semaphores[reads[i].semaphore];
        read[reads[i].semaphore] = true;
        if (row->waiting == 0 || row->paused_reason.data || row->retired_at != NEVER || row->capacity == 0 ||
            reads[i].free < 1 || reads[i].free > row->capacity || reads[i].free < row->capacity - row->in_use ||
            reads[i].fifo != (row->queue == QUEUE_FIFO))
            FAIL(run, "the queue of %.*s is read, %ld free", (int)row->name.length, row->name.data, reads[i].free);
    }
    for (size_t i = 0; i < view->semaphore_count; i++) {
        const struct semaphore *row = &view->semaphores[i];
        bool open = !row->paused_reason.data && row->retired_at == NEVER &&
                    lease_time(&view->clock, view->now) >= view->grants_from;
        if (!read[i] && open && row->waiting > 0 && row->capacity > row->in_use)
            FAIL(run, "the queue of %.*s is not read", (int)row->name.length, row->name.data);
    }
    return true;
}

/*
 * Reads the rows of a batch. Due holders are read for the operations of the batch, and a read may be limited; so the
 * model is told which holders were not read.
 */
static bool read_batch(struct run *run, struct batch *batch, const struct operation *const *operations,
                       struct view *ret_view, bool *ret_waiters)
{
    struct rows_read *read = &batch->read;
    struct shortfall shortfalls[MODEL_SEMAPHORES];
    bool servers = false;
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
        if (ret_view->next_due[shortfalls[i].semaphore] > model_due(&batch->moment))
            batch->searched |= 1U << rows_semaphore(&run->rows, ret_view->semaphores[shortfalls[i].semaphore].id);
    for (size_t i = 0; i < count && read->due_cut; i++)
        if (shortfalls[i].units > read->due_cut)
            run->model.unread = ~0U;
    if (count && read->locked_rows) /* these are among those that were read */
        run->model.unread = ~0U;
    run->cut_short |= read->locked_rows != 0;
    batch->read_count =
        plan_queue_reads(ret_view, operations, batch->count, &batch->settings, &run->arena, batch->reads, &servers);
    *ret_waiters = batch->read_count || servers;
    return check_queue_reads(run, batch, ret_view, batch->reads, batch->read_count, servers);
}

/* Returns the semaphores of these ids, a bit each. */
static unsigned semaphore_bits(const struct run *run, const uint64_t *ids, size_t count)
{
    unsigned bits = 0;
    for (size_t i = 0; i < count; i++)
        bits |= 1U << rows_semaphore(&run->rows, ids[i]);
    return bits;
}

/* The same of bits by the index of the view. */
static unsigned locked_bits(const struct run *run, const struct view *view, uint64_t indexes)
{
    unsigned bits = 0;
    for (size_t i = 0; i < view->semaphore_count; i++)
        if (indexes >> i & 1)
            bits |= 1U << rows_semaphore(&run->rows, view->semaphores[i].id);
    return bits;
}

/* Tells the model what was read of the semaphore at `i` of the view, which is locked. */
static void tell_locked(const struct run *run, const struct view *view, size_t i, struct model_batch *facts)
{
    unsigned index = (unsigned)rows_semaphore(&run->rows, view->semaphores[i].id);
    const struct queue_view *queue = view->queues ? &view->queues[i] : &(struct queue_view){0};
    const struct named_slots *named = &view->named_slots[i];
    facts->known |= 1U << index;
    facts->beyond[index] = queue->beyond ? run->rows.key_of_id[queue->beyond] : MODEL_KEYS;
    facts->queues_read |= (unsigned)(queue->limit > 0) << index;
    facts->may_read_on |= (unsigned)(queue->limit < QUEUE_PROTECTED_MAX) << index;
    facts->holders_read |= (unsigned)named->has_holders << index;
    for (size_t j = 0; j < named->count && named->rows[j].number < 64; j++) {
        facts->named[index] |= 1ULL << named->rows[j].number;
        facts->sold[index] |= (uint64_t)named->rows[j].confirmed << named->rows[j].number;
    }
}

static void tell_glimpse(const struct run *run, const struct glimpse *glimpse, struct model_batch *facts)
{
    unsigned index = (unsigned)rows_semaphore(&run->rows, glimpse->semaphore.id);
    facts->known |= 1U << index;
    facts->may_end |= (unsigned)(glimpse->semaphore.next_due_at <= model_due(&facts->moment)) << index;
    for (size_t i = 0; i < glimpse->watcher_count; i++) {
        unsigned key = 1U << run->rows.key_of_id[glimpse->watchers[i].request_id];
        facts->watch[index] |= key;
        facts->watch_sold[index] |= glimpse->watchers[i].confirmed ? key : 0;
    }
}

/* Tells the model of the batch, and of the rows that were read for it. */
static void begin_batch(struct run *run, struct batch *batch, const struct view *view)
{
    const struct rows_read *read = &batch->read;
    struct model_batch facts = {.moment = batch->moment,
                                .locks = batch->locked,
                                .owners = read->owners,
                                .has_servers = view->has_servers,
                                .here = read->here,
                                .locked_rows = read->locked_rows,
                                .later = read->later,
                                .reads_end = view->reads_end,
                                .max_waiters = batch->settings.max_semaphore_waiters,
                                .max_packet = batch->settings.max_packet,
                                .alone = batch->count == 1};
    unsigned keys = 0;
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        if (run->rows.requests[key].id == 0)
            facts.locked_rows &= ~(1U << key); /* a row that the batch inserts is its own */
    memcpy(facts.here_nonce, read->here_nonce, sizeof facts.here_nonce);
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++)
        facts.beyond[i] = MODEL_KEYS;
    for (size_t i = 0; i < view->semaphore_count; i++)
        tell_locked(run, view, i, &facts);
    for (size_t i = 0; i < view->glimpse_count; i++)
        tell_glimpse(run, &view->glimpses[i], &facts);
    for (size_t i = 0; i < view->request_count; i++) {
        unsigned key = 1U << key_index(view->requests[i].external_id);
        keys |= key;
        facts.waiters |= view->requests[i].state == REQUEST_WAITING ? key : 0;
    }
    batch->waiters = facts.waiters;
    if (facts.waiters)
        run->model.unread = ~0U;
    run->model.unread &= ~keys;
    run->cut_short |= run->model.unread != 0;
    model_begin_batch(&run->model, &facts);
    for (unsigned i = 0; i < batch->count; i++)
        batch->ranks[i] = rank_of(run, batch, i);
}

static bool is_one_of(uint64_t number, const uint64_t *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (numbers[i] == number)
            return true;
    return false;
}

/*
 * Compares the needs that are not read again: those of waiters which could neither be granted nor reserve, if all before
 * them were read. Then those with the same needs that were not read stand behind them.
 */
static bool compare_hopeless(struct run *run, const struct plan *plan)
{
    const struct model_walk *walk = &run->model.walk;
    size_t found = 0, found_aged = 0;
    uint64_t needs[MODEL_KEYS];
    for (int aged = 1; aged >= 0; aged--) {
        unsigned keys = walk->hopeless_read & (aged ? walk->hopeless_aged : walk->hopeless);
        for (unsigned key = 0; key < MODEL_KEYS; key++) {
            uint64_t one = wants_needs(run->rows.requests[key].wanted);
            if ((keys >> key & 1) && !is_one_of(one, needs, found))
                needs[found++] = one;
        }
        found_aged = aged ? found : found_aged;
    }
    if (plan->hopeless_count != found || plan->hopeless_protected != found_aged)
        FAIL(run, "%zu needs are hopeless, %zu also of protected ones, expected %zu, %zu", plan->hopeless_count,
             plan->hopeless_protected, found, found_aged);
    for (size_t i = 0; i < found; i++)
        if (!is_one_of(needs[i], plan->hopeless, i < found_aged ? found_aged : found))
            FAIL(run, "needs %lx are not left out", needs[i]);
    return true;
}

/* Compares what the plan asks for with what the model's walk asks for. */
static bool compare_reads(struct run *run, const struct view *view, const struct plan *plan)
{
    const struct model_walk *walk = &run->model.walk;
    unsigned more = locked_bits(run, view, plan->read_more);
    unsigned held = locked_bits(run, view, plan->read_held);
    unsigned unknown = semaphore_bits(run, plan->unknown, plan->unknown_count);
    if (more != walk->read_more || held != walk->read_held || unknown != walk->unknown)
        FAIL(run, "reads more of %02x, holders of %02x, semaphores %02x; expected %02x, %02x, %02x", more, held,
             unknown, walk->read_more, walk->read_held, walk->unknown);
    run->model.rules.reads_more += walk->read_more != 0;
    run->model.rules.reads_held += walk->read_held != 0;
    run->model.rules.glimpsed += plan->unknown_count;
    return !plan->read_more || walk->entered || compare_hopeless(run, plan);
}

/* Returns true if the plan fails with so little memory, and leaves only the arena in another state. */
static bool fails_without_memory(const struct batch *batch, const struct operation *const *operations,
                                 const struct view *view, struct id_range ids, size_t limit)
{
    struct arena arena;
    struct plan plan = {.ids_used = UINT64_MAX};
    arena_init(&arena, 4096, limit);
    enum permit_status status = plan_batch(view, operations, batch->count, ids, &batch->settings, &arena, &plan);
    bool untouched = plan.ids_used == UINT64_MAX && !plan.outcomes && !arena.exit;
    arena_release(&arena);
    return status == PERMIT_NO_MEMORY && untouched;
}

/*
 * Plans the batch, and decides it by the model, on the rows that were read up to now. Some batches are planned again with
 * less memory than they need: it ends at any of the allocations.
 */
static bool plan_round(struct run *run, struct batch *batch, const struct operation *const *operations,
                       const struct view *view, struct plan *ret_plan)
{
    enum { ONE_OF = 4, SPARE = 128 }; /* more than the last allocations count beside what they need: they are empty */
    uint64_t before = view_checksum(view);
    struct id_range ids = {run->rows.next_id, run->rows.next_id + batch->count};
    size_t used = run->arena.used;
    enum permit_status status =
        plan_batch(view, operations, batch->count, ids, &batch->settings, &run->arena, ret_plan);
    if (status != PERMIT_OK)
        FAIL(run, "plan_batch: %s", permit_status_word(status));
    size_t limit = before / ONE_OF % (run->arena.used - used - SPARE);
    if (before % ONE_OF == 0 && !fails_without_memory(batch, operations, view, ids, limit))
        FAIL(run, "plan_batch with %zu bytes does not fail as it should", limit);
    if (view_checksum(view) != before)
        FAIL(run, "the view was modified");
    if (ret_plan->ids_used > batch->count)
        FAIL(run, "%lu ids used", ret_plan->ids_used);
    if (plan_reads_more(ret_plan) && view->reads_end)
        FAIL(run, "more is to be read in the end");
    begin_batch(run, batch, view);
    decide_batch(run, batch);
    for (unsigned i = 0; i < run->model.walk.stander_count && batch->count > 1; i++)
        run->cut_short |= run->model.walk.standers[i].put_back;
    return compare_reads(run, view, ret_plan);
}

/*
 * The rounds of a batch: reads waiters, plans, and does so again with more rows as long as the plan asks for them, as the
 * engine does. The decisions of the model count in the last round only.
 */
static bool plan_in_rounds(struct run *run, struct batch *batch, const struct operation *const *operations,
                           struct view *view, bool read, struct plan *ret_plan)
{
    unsigned rounds = run->script.rounds ? run->script.rounds : MODEL_ROUNDS;
    utc_us aged = model_time(&batch->moment) - batch->settings.backfill_bound_us;
    unsigned reclaims = run->reclaims;
    for (unsigned round = 1;; round++) {
        if (read && !rows_read_waiters(&run->rows, &batch->read, batch->reads, batch->read_count, &run->arena, view))
            FAIL(run, "no memory");
        view->reads_end = round == rounds;
        if (round == 1)
            memcpy(run->undecided, &run->model, offsetof(struct model, rules));
        if (!plan_round(run, batch, operations, view, ret_plan))
            return false;
        if (!plan_reads_more(ret_plan))
            return true;
        memcpy(&run->model, run->undecided, offsetof(struct model, rules));
        run->reclaims = reclaims;
        read = plan_read_on(ret_plan, view, &batch->settings, batch->reads, &batch->read_count);
        unsigned unknown = semaphore_bits(run, ret_plan->unknown, ret_plan->unknown_count);
        if (unknown && !rows_read_glimpses(&run->rows, &batch->read, unknown, aged, &run->arena, view))
            FAIL(run, "no memory");
    }
}

/*
 * Checks the order by the rows alone. An operation that follows another one on its key may free units after the walk, and
 * a waiter whose row another session has locked keeps its need: then it is not known what a request could have got. A
 * request is put back for units that are kept; after that it is refused although it may fit. `unfit`: waiters that did
 * not fit before the batch.
 */
static bool check_order(struct run *run, const struct batch *batch, const struct plan *plan, unsigned unfit)
{
    unsigned keys = 0;
    bool administrative = step_is_administrative(&run->script.steps[batch->arrivals[0].step]);
    for (unsigned i = 0; i < batch->count; i++) {
        unsigned own = step_keys(&run->script.steps[batch->arrivals[i].step]);
        if (administrative || (keys & own))
            return true;
        keys |= own;
    }
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        if ((batch->read.locked_rows >> key & 1) && run->rows.requests[key].state == REQUEST_WAITING)
            return true;
    if (!order_holds(run, &plan->changes) || !order_tells(run, unfit & ~keys))
        return false;
    for (unsigned i = 0; i < batch->count && !run->model.walk.put_back; i++) {
        const struct operation *operation = &batch->operations[i];
        bool is_new = batch->ranks[i] == RANK_REST && (operation->kind == OP_ACQUIRE || operation->kind == OP_LOOK);
        if (is_new && operation->widened < WIDENED_MAX && plan->outcomes[i].status == PERMIT_NO_CAPACITY &&
            !order_refuses(run, &run->script.steps[batch->arrivals[i].step]))
            return false;
    }
    return true;
}

static bool run_batch(struct run *run, struct batch *batch)
{
    const struct operation *operations[MODEL_STEPS];
    struct view view;
    struct plan plan;
    run->batches++;
    arena_clear(&run->arena);
    batch->settings = model_settings;
    batch->settings.server_id = batch->moment.server;
    if (run->script.max_waiters)
        batch->settings.max_semaphore_waiters = run->script.max_waiters;
    batch->settings.max_packet = run->script.max_packet;
    run->cut_short |= run->script.max_packet != 0;
    run->model.batch.moment = batch->moment;
    for (unsigned i = 0; i < batch->count; i++) {
        const struct step *step = &run->script.steps[batch->arrivals[i].step];
        if (step->vanished)
            run->known[id_of(&batch->moment)][step->key].here = false;
    }
    for (unsigned i = 0; i < batch->count; i++) {
        make_operation(run, i, batch);
        operations[i] = &batch->operations[i];
    }
    bool read;
    unsigned fit, unfit;
    order_note(run);
    if (!read_batch(run, batch, operations, &view, &read) ||
        !plan_in_rounds(run, batch, operations, &view, read, &plan))
        return false;
    order_find(run, &fit, &unfit);
    for (size_t i = 0; i < plan.changes.request_count; i++)
        if (plan.changes.requests[i].insert && plan.changes.requests[i].request->id < MODEL_IDS)
            run->rows.key_of_id[plan.changes.requests[i].request->id] =
                (unsigned char)key_index(plan.changes.requests[i].request->external_id);
    if (!compare_outcomes(run, batch, &plan))
        return false;
    if (run->notes)
        note_walk(run, batch);
    collect_queue(run, batch, &plan);
    return check_needed(run, batch, &plan) && check_touched(run, batch, &plan.changes) &&
           rows_apply(&run->rows, &plan) && check_searched(run, batch) && check_order(run, batch, &plan, unfit);
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

static void take_step(const struct run *run, unsigned at, struct batch *batch)
{
    const struct step *step = &run->script.steps[at];
    batch->arrivals[batch->count++] = (struct arrival){.step = at, .locks = locks_of_step(run, step)};
    if (step->moment.now)
        batch->moment = step->moment;
}

/*
 * Takes the next batch: the operations put back, and the steps that arrive with the one at `at`. An administrative step
 * runs alone, after all operations put back. Returns the position in the script.
 */
static unsigned take_batch(struct run *run, unsigned at, struct batch *batch)
{
    const struct step *steps = run->script.steps;
    unsigned count = run->script.count;
    bool put_back = run->queue.count > 0;
    batch->count = 0;
    if (at < count && step_is_administrative(&steps[at]) && !put_back)
        return take_step(run, at, batch), at + 1;
    for (unsigned i = 0; i < run->queue.count; i++)
        batch->arrivals[batch->count++] = run->queue.arrivals[i];
    run->queue.count = 0;
    if (at < count && !(put_back && steps[at].new_batch))
        for (bool first = true; at < count && !step_is_administrative(&steps[at]) && (first || !steps[at].new_batch);
             first = false)
            take_step(run, at++, batch);
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

/* Runs the steps from `at` on, and all that are put back. */
static bool run_from(struct run *run, unsigned at, struct batch *batch)
{
    while (at < run->script.count || run->queue.count > 0) {
        at = take_batch(run, at, batch);
        if (!run_batch(run, batch))
            return false;
    }
    return true;
}

/* Adds the ask of a waiter by its own server. */
static void add_look(struct run *run, unsigned key, const struct moment *moment)
{
    const struct known *known = &run->known[run->rows.requests[key].server_id][key];
    struct step *step = &run->script.steps[run->script.count++];
    *step = *known->content;
    step->moment = *moment;
    step->moment.server = (unsigned)run->rows.requests[key].server_id;
    step->wait = WAIT_ASK;
    step->nonce = known->nonce;
    step->new_batch = true;
    step->anew = step->vanished = false;
    step->later = 0;
}

/*
 * Each permitd looks at its waiters (the net), each for itself, until nothing is granted any more: then no waiter is left
 * that fits.
 */
static bool settle(struct run *run, struct batch *batch)
{
    unsigned granted;
    run->script.queue_cut = run->script.rounds = run->script.max_packet = 0;
    run->settling = true;
    do {
        granted = run->decided_count;
        for (unsigned key = order_next(run, MODEL_KEYS); key < MODEL_KEYS; key = order_next(run, key)) {
            uint64_t server = run->rows.requests[key].server_id;
            if (run->script.count == MODEL_STEPS || run->decided_count + MODEL_KEYS > MODEL_STEPS)
                return true;
            if (!run->known[server][key].here || (batch->moment.servers_dead >> server & 1))
                continue;
            add_look(run, key, &batch->moment);
            if (!run_from(run, run->script.count - 1, batch))
                return false;
        }
        bool any = false;
        for (; granted < run->decided_count; granted++)
            any |= run->decided[granted].verdict.created;
        run->settled += any;
        if (!any)
            return order_is_settled(run);
    } while (true);
}

static bool any_waits(const struct run *run)
{
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        if (run->rows.requests[key].id && run->rows.requests[key].state == REQUEST_WAITING)
            return true;
    return false;
}

bool script_run(struct run *run, const struct script *script)
{
    struct batch batch;
    batch.moment = (struct moment){.now = MODEL_START, .clock = {.tick_at = MODEL_START}};
    run_clear(run, script);
    if (!run_from(run, 0, &batch) || !compare_rows(run))
        return false;
    return run->notes || !any_waits(run) || model_time(&batch.moment) < batch.moment.grants_from ||
           (settle(run, &batch) && compare_rows(run));
}
