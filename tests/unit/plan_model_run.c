/* SPDX-License-Identifier: MIT */
/*
 * Runs a script: gathers operations into batches as an engine would (what was put back comes first, with the locks it
 * asked for; administrative operations alone), plans, compares each outcome with the model's in the order of decision,
 * and writes the changes.
 */
#include <stdlib.h>

#include "plan_model.h"

enum { MAX_PUT_BACKS = 3 };

/* An operation in the queue. */
struct arrival {
    unsigned step;
    unsigned locks; /* a bit per semaphore */
};

struct batch {
    struct arrival arrivals[MODEL_STEPS];
    unsigned count;
    struct moment moment;
    struct operation operations[MODEL_STEPS];
    struct want wants[MODEL_STEPS][MODEL_WANTS];
    int ranks[MODEL_STEPS];
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
    run->script = script;
    run->decided_count = run->batches = 0;
}

static bool is_administrative(const struct step *step)
{
    return step->kind == OP_SEMAPHORE_PUT || step->kind == OP_SEMAPHORE_RETIRE;
}

/* --- the batch as plan_batch gets it ---------------------------------------------------------------------------- */

/* What is locked for an operation that was not put back: its wants, or what the directory says of its key. */
static unsigned locks_of_step(const struct run *run, const struct step *step)
{
    unsigned locks = 0;
    if (is_administrative(step))
        return 1U << step->semaphore;
    if (step->kind != OP_ACQUIRE)
        return step->stale ? step->stale_locks : rows_semaphores_of_key(&run->rows, step->key);
    for (unsigned i = 0; i < step->want_count; i++)
        locks |= 1U << step->wants[i].semaphore;
    return locks;
}

static void make_operation(const struct run *run, const struct step *step, struct want *wants,
                           struct operation *operation)
{
    *operation = (struct operation){.kind = step->kind};
    if (is_administrative(step)) {
        operation->semaphore = semaphore_name(step->semaphore);
        operation->change = step->change;
        return;
    }
    operation->external_id = key_name(step->key);
    operation->owner = owner_name(step->owner);
    operation->principal = BYTES("someone");
    operation->ttl = step->ttl;
    memcpy(operation->digest, step->digest, DIGEST_SIZE);
    operation->wants = wants;
    operation->want_count = step->want_count;
    for (unsigned i = 0; i < step->want_count; i++) {
        unsigned semaphore = step->wants[i].semaphore;
        wants[i] = (struct want){semaphore_name(semaphore), run->rows.semaphores[semaphore].id, step->wants[i].count};
    }
}

/* Locks and keys of all, and as many free slots as the newcomers ask for. */
static struct rows_read batch_read(const struct run *run, const struct batch *batch)
{
    struct rows_read read = {.moment = batch->moment};
    for (unsigned i = 0; i < batch->count; i++) {
        const struct step *step = &run->script->steps[batch->arrivals[i].step];
        read.locks |= batch->arrivals[i].locks;
        if (!is_administrative(step))
            read.keys |= 1U << step->key;
        for (unsigned j = 0; step->kind == OP_ACQUIRE && j < step->want_count; j++)
            read.slots_wanted[step->wants[j].semaphore] +=
                min_i64(step->wants[j].count, SLOTS_MAX_COUNT) + step->extra_slots;
    }
    return read;
}

/* "releases, renewals, then newcomers; an operation is never decided before an earlier one on its key" */
static void rank_batch(const struct run *run, struct batch *batch)
{
    for (unsigned i = 0; i < batch->count; i++) {
        const struct step *step = &run->script->steps[batch->arrivals[i].step];
        batch->ranks[i] = step->kind == OP_RELEASE ? 0 : step->kind == OP_RENEW ? 1 : 2;
        for (unsigned j = 0; j < i && !is_administrative(step); j++)
            if (run->script->steps[batch->arrivals[j].step].key == step->key && batch->ranks[j] > batch->ranks[i])
                batch->ranks[i] = batch->ranks[j];
    }
}

/* --- comparing -------------------------------------------------------------------------------------------------- */

static void verdict_of(const struct run *run, const struct outcome *outcome, struct verdict *verdict)
{
    memset(verdict, 0, sizeof *verdict);
    verdict->status = outcome->status;
    verdict->created = outcome->created;
    verdict->replayed = outcome->replayed;
    verdict->already_released = outcome->already_released;
    if (outcome->request) {
        verdict->has_request = true;
        rows_request(&run->rows, outcome->request, &verdict->request);
    }
    for (size_t i = 0; i < outcome->shortage_count && i < MODEL_WANTS; i++) {
        const struct shortage *shortage = &outcome->shortages[i];
        verdict->shortages[verdict->shortage_count++] =
            (struct model_shortage){(unsigned)rows_semaphore(&run->rows, shortage->semaphore_id), shortage->capacity,
                                    shortage->in_use, shortage->requested};
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
    };
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
    for (unsigned i = 0; i < expected->slot_count; i++)
        DIFFERS(slots[i], "%u");
    return true;
}

/* The model's are in order of name; those of a row that was read are in the order of the read. */
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
    DIFFERS(renewals, "%u");
    DIFFERS(replays, "%u");
    DIFFERS(acquired_at, "%ld");
    DIFFERS(ended_at, "%ld");
    DIFFERS(owner, "%u");
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
    DIFFERS(has_request, "%d");
    DIFFERS(has_semaphore, "%d");
    DIFFERS(in_use, "%ld");
    DIFFERS(shortage_count, "%u");
    for (unsigned i = 0; i < expected->shortage_count; i++) {
        DIFFERS(shortages[i].semaphore, "%u");
        DIFFERS(shortages[i].capacity, "%ld");
        DIFFERS(shortages[i].in_use, "%ld");
        DIFFERS(shortages[i].requested, "%ld");
    }
    if (expected->has_request && !requests_equal(&expected->request, &got->request, problem))
        return false;
    return !expected->has_semaphore || settings_equal(&expected->semaphore, &got->semaphore, problem);
}

/* --- one batch -------------------------------------------------------------------------------------------------- */

static void name_step(struct run *run, const struct batch *batch, unsigned index)
{
    buf_printf(&run->rows.problem, "step %u, ", batch->arrivals[index].step);
    step_print(&run->script->steps[batch->arrivals[index].step], &run->rows.problem);
}

/* An earlier operation on its key was put back in this batch. */
static bool follows_put_back(const struct run *run, const struct batch *batch, const struct plan *plan, unsigned index)
{
    for (unsigned i = 0; i < index; i++)
        if (plan->outcomes[i].put_back &&
            run->script->steps[batch->arrivals[i].step].key == run->script->steps[batch->arrivals[index].step].key)
            return true;
    return false;
}

/* "An operation that would touch a request of which some semaphore is not locked is put back", and no other. */
static bool check_put_back(struct run *run, const struct batch *batch, const struct plan *plan, unsigned index,
                           unsigned locked, unsigned *ret_locks)
{
    const struct outcome *outcome = &plan->outcomes[index];
    const struct step *step = &run->script->steps[batch->arrivals[index].step];
    unsigned needs = 0;
    for (size_t i = 0; i < outcome->need_count; i++) {
        int semaphore = rows_semaphore(&run->rows, outcome->needs[i]);
        if (i > 0 && outcome->needs[i - 1] >= outcome->needs[i])
            FAIL(run, "needs are not ascending");
        if (semaphore < 0)
            FAIL(run, "needs id %lu, which no semaphore has", outcome->needs[i]);
        needs |= 1U << semaphore;
    }
    unsigned touched = rows_semaphores_of_key(&run->rows, step->key);
    if ((touched & ~locked) == 0 && !follows_put_back(run, batch, plan, index))
        FAIL(run, "put back although all was locked");
    if ((touched & ~needs) != 0)
        FAIL(run, "put back without all that it needs");
    if (++run->put_backs[batch->arrivals[index].step] > MAX_PUT_BACKS)
        FAIL(run, "put back for ever");
    *ret_locks = batch->arrivals[index].locks | needs;
    return true;
}

/* An outcome that asserts a state is in a transaction that writes it. */
static bool check_written(struct run *run, const struct outcome *outcome, const struct changes *changes)
{
    if (!outcome->request)
        return true;
    for (size_t i = 0; i < changes->request_count; i++)
        if (bytes_equal(changes->requests[i].request->external_id, outcome->request->external_id))
            return true;
    FAIL(run, "asserts a state that is not written");
}

/* What the model does not know: identity, who asked, the digest. */
static bool check_identity(struct run *run, const struct step *step, const struct outcome *outcome)
{
    const struct request *request = outcome->request;
    if (!request)
        return true;
    if (!bytes_equal(request->external_id, key_name(step->key)) || !bytes_equal(request->principal, BYTES("someone")) ||
        request->confirmed_at != NEVER)
        FAIL(run, "the request is somebody else's");
    bool tombstone = request->end_reason == END_NEVER_HELD;
    if (request->has_digest == tombstone ||
        (step->kind == OP_ACQUIRE && !tombstone && memcmp(request->digest, step->digest, DIGEST_SIZE) != 0))
        FAIL(run, "the digest is not that of the acquire");
    return true;
}

static bool compare_outcome(struct run *run, const struct batch *batch, const struct plan *plan, unsigned index)
{
    unsigned at = batch->arrivals[index].step;
    const struct step *step = &run->script->steps[at];
    const struct outcome *outcome = &plan->outcomes[index];
    struct verdict got;
    model_do(&run->model, step, &batch->moment, &run->verdicts[at]);
    verdict_of(run, outcome, &got);
    if (outcome->semaphore)
        verdict_add_semaphore(outcome->semaphore, &got);
    run->wrote[at] = !plan->changes.empty;
    run->decided[run->decided_count++] = (struct decided){at, batch->ranks[index], batch->moment};
    return verdict_equal(&run->verdicts[at], &got, &run->rows.problem) && check_identity(run, step, outcome) &&
           check_written(run, outcome, &plan->changes);
}

/* Nothing is written unless an answer asserts it. */
static bool check_needed(struct run *run, const struct batch *batch, const struct plan *plan)
{
    bool asserts = false;
    for (unsigned i = 0; i < batch->count; i++)
        asserts |= !plan->outcomes[i].put_back && (plan->outcomes[i].request || plan->outcomes[i].semaphore);
    if (plan->changes.empty == asserts)
        FAIL(run, "answers that assert a state: %d, changes empty: %d", asserts, plan->changes.empty);
    return true;
}

/* What was put back goes into `ret_next`, in its order of arrival, and so does all that follows it on its key. */
static bool collect_put_backs(struct run *run, const struct batch *batch, const struct plan *plan, unsigned locked,
                              struct batch *ret_next)
{
    for (unsigned i = 0; i < batch->count; i++) {
        struct arrival *again = &ret_next->arrivals[ret_next->count];
        again->step = batch->arrivals[i].step;
        bool good = !follows_put_back(run, batch, plan, i);
        if (plan->outcomes[i].put_back) {
            good = check_put_back(run, batch, plan, i, locked, &again->locks);
            ret_next->count++;
        }
        if (!good) {
            buf_append_text(&run->rows.problem, " (put back, or decided before what was put back): ");
            name_step(run, batch, i);
            return false;
        }
    }
    return true;
}

/* In the order of decision. */
static bool compare_outcomes(struct run *run, const struct batch *batch, const struct plan *plan)
{
    for (int rank = 0; rank <= 2; rank++)
        for (unsigned i = 0; i < batch->count; i++)
            if (batch->ranks[i] == rank && !plan->outcomes[i].put_back && !compare_outcome(run, batch, plan, i)) {
                buf_append_text(&run->rows.problem, " at ");
                name_step(run, batch, i);
                return false;
            }
    return true;
}

static bool run_batch(struct run *run, struct batch *batch, struct batch *ret_next)
{
    const struct operation *operations[MODEL_STEPS];
    struct rows_read read = batch_read(run, batch);
    struct view view;
    struct plan plan;
    run->batches++;
    arena_clear(&run->arena);
    rank_batch(run, batch);
    for (unsigned i = 0; i < batch->count; i++) {
        make_operation(run, &run->script->steps[batch->arrivals[i].step], batch->wants[i], &batch->operations[i]);
        operations[i] = &batch->operations[i];
    }
    if (!rows_view(&run->rows, &read, &run->arena, &view))
        FAIL(run, "no memory");
    uint64_t before = view_checksum(&view);
    struct id_range ids = {run->rows.next_id, run->rows.next_id + batch->count};
    enum permit_status status = plan_batch(&view, operations, batch->count, ids, &model_settings, &run->arena, &plan);
    if (status != PERMIT_OK)
        FAIL(run, "plan_batch: %s", permit_status_word(status));
    if (view_checksum(&view) != before)
        FAIL(run, "the view was modified");
    if (plan.ids_used > batch->count)
        FAIL(run, "%lu ids used", plan.ids_used);
    return collect_put_backs(run, batch, &plan, read.locks, ret_next) && compare_outcomes(run, batch, &plan) &&
           check_needed(run, batch, &plan) && rows_apply(&run->rows, &plan);
}

/* --- the script ------------------------------------------------------------------------------------------------- */

static void take_step(const struct run *run, unsigned at, struct batch *batch)
{
    const struct step *step = &run->script->steps[at];
    batch->arrivals[batch->count++] = (struct arrival){at, locks_of_step(run, step)};
    if (step->moment.now)
        batch->moment = step->moment;
}

/* The steps that arrive with the one at `at`, unless it is administrative and has to be alone. */
static unsigned take_steps(const struct run *run, unsigned at, struct batch *batch)
{
    const struct step *steps = run->script->steps;
    unsigned count = run->script->count;
    if (batch->count > 0 && (steps[at].new_batch || is_administrative(&steps[at])))
        return at; /* what was put back runs first */
    do
        take_step(run, at++, batch);
    while (at < count && !is_administrative(&steps[at - 1]) && !is_administrative(&steps[at]) && !steps[at].new_batch);
    return at;
}

/* At the end the rows say what the model says. */
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
    struct batch batches[2];
    unsigned at = 0;
    unsigned turn = 0;
    run_clear(run, script);
    batches[0].count = 0;
    batches[0].moment = (struct moment){MODEL_START, {MODEL_START, 0}, 0};
    while (at < script->count || batches[turn].count > 0) {
        struct batch *batch = &batches[turn];
        struct batch *next = &batches[turn ^ 1];
        if (at < script->count)
            at = take_steps(run, at, batch);
        next->count = 0;
        next->moment = batch->moment;
        if (!run_batch(run, batch, next))
            return false;
        turn ^= 1;
    }
    return compare_rows(run);
}
