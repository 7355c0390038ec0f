/* SPDX-License-Identifier: MIT */
/* After COMMIT: the queue and the caches learn what happened, the gates open, the operations are decided. */
#include <stdlib.h>

#include "base/clock.h"
#include "engine/worker.h"

enum { MAX_PUT_BACKS = 3 }; /* of an acquire that does not wait */

/* The tokens that are out, and the deadlines. Engine's mutex held. */
static void remember_grants(struct engine *engine, const struct plan *plan)
{
    for (size_t i = 0; i < plan->changes.semaphore_count; i++) {
        const struct semaphore *semaphore = plan->changes.semaphores[i].semaphore;
        struct gate *gate = gates_find(&engine->queue.gates, semaphore->id);
        if (gate && semaphore->next_permit_id > gate->tokens_seen)
            gate->tokens_seen = semaphore->next_permit_id;
    }
    utc_us earliest = NEVER;
    for (size_t i = 0; i < plan->changes.request_count && plan->changes.requests[i].insert; i++)
        if (plan->changes.requests[i].request->state == REQUEST_ACQUIRED)
            earliest = min_i64(earliest, plan->changes.requests[i].request->due_at);
    sweeper_notice(engine, earliest);
}

/* What one outcome changes of what this process remembers. Engine's mutex held. */
static void remember(struct engine *engine, const struct op *op, const struct outcome *outcome)
{
    struct queue *queue = &engine->queue;
    bool held = outcome->status == PERMIT_OK && outcome->request && outcome->request->state == REQUEST_ACQUIRED;
    if (op->operation->kind == OP_ACQUIRE && held) {
        uint64_t ids[REQUEST_MAX_SEMAPHORES];
        for (size_t i = 0; i < op->gate_count; i++)
            ids[i] = op->gates[i]->id;
        directory_put(&queue->directory, op->operation->external_id, ids, op->gate_count);
    } else if (outcome->request && !held) {
        directory_forget(&queue->directory, op->operation->external_id);
    }
    for (size_t i = 0; i < op->gate_count; i++) {
        op->gates[i]->floor_stale = true;
        if (outcome->status == PERMIT_UNKNOWN_SEMAPHORE)
            gates_forget_name(&queue->gates, op->gates[i]);
    }
}

static bool may_come_back(const struct op *op)
{
    return op->operation->kind != OP_ACQUIRE || op->put_backs <= MAX_PUT_BACKS;
}

/* True if the op is in the queue again. Engine's mutex held. */
static bool put_back(struct engine *engine, struct op *op, const struct outcome *outcome)
{
    op->put_backs++;
    metrics_count(&engine->metrics.put_backs);
    if (!may_come_back(op) || outcome->need_count > BATCH_MAX_SEMAPHORES ||
        !queue_set_gates(&engine->queue, op, outcome->needs, outcome->need_count))
        return false;
    queue_put_back(&engine->queue, op);
    return true;
}

/* What a refusal is told of the holders, if that is known already and fresh. Engine's mutex held. */
static bool take_fresh_holders(struct engine *engine, const struct outcome *outcome, mono_us now,
                               struct holders **ret_holders)
{
    for (size_t i = 0; i < outcome->shortage_count; i++) {
        struct gate *gate = gates_find(&engine->queue.gates, outcome->shortages[i].semaphore_id);
        if (!gate || !gate->holders || now - gate->holders->read_at > HOLDERS_FRESH_US) {
            while (i-- > 0)
                holders_unref(ret_holders[i]);
            return false;
        }
        ret_holders[i] = gate->holders;
        ret_holders[i]->references++;
    }
    return true;
}

/* "for no_capacity at most the time to next_due_at": a unit may come back by itself. */
static int64_t retry_after_shortage(const struct view *view, const struct outcome *outcome)
{
    int64_t ms = jittered_ms(1000);
    utc_us now = served_time(&view->clock, view->now);
    for (size_t i = 0; i < outcome->shortage_count; i++)
        for (size_t j = 0; j < view->semaphore_count; j++) {
            const struct semaphore *semaphore = &view->semaphores[j];
            if (semaphore->id == outcome->shortages[i].semaphore_id && semaphore->next_due_at != NEVER)
                ms = min_i64(ms, (semaphore->next_due_at - now) / US_PER_MS);
        }
    return max_i64(ms, 50);
}

/* The name in the op's own memory, which lives as long as the refusal. */
static struct bytes own_name(const struct operation *operation, struct bytes name)
{
    for (size_t i = 0; i < operation->want_count; i++)
        if (bytes_equal(operation->wants[i].semaphore, name))
            return operation->wants[i].semaphore;
    return (struct bytes){0};
}

static struct refusal *refusal_new(struct op *op, const struct view *view, const struct outcome *outcome)
{
    struct refusal *refusal = malloc(sizeof *refusal + outcome->shortage_count * sizeof refusal->shortages[0]);
    if (!refusal)
        return NULL;
    refusal->op = op;
    refusal->clock = view->clock;
    refusal->now = view->now;
    refusal->retry_after_ms = retry_after_shortage(view, outcome);
    refusal->count = outcome->shortage_count;
    for (size_t i = 0; i < outcome->shortage_count; i++) {
        refusal->shortages[i] = outcome->shortages[i];
        refusal->shortages[i].semaphore = own_name(op->operation, outcome->shortages[i].semaphore);
    }
    return refusal;
}

/* Says who holds what is missing: at once if we know, else by way of the reader. */
static void refuse_no_capacity(struct engine *engine, struct op *op, const struct view *view,
                               const struct outcome *outcome)
{
    struct refusal *refusal = refusal_new(op, view, outcome);
    if (!refusal) {
        decide_status(engine, op, PERMIT_NO_CAPACITY, NULL);
        return;
    }
    struct holders *holders[REQUEST_MAX_SEMAPHORES];
    pthread_mutex_lock(&engine->mutex);
    bool known = take_fresh_holders(engine, outcome, clock_mono(), holders);
    if (!known) {
        list_append(&engine->refusal_list, &refusal->node);
        pthread_cond_signal(&engine->looks);
    }
    pthread_mutex_unlock(&engine->mutex);
    if (known)
        decide_refusal(engine, refusal, holders);
}

static struct bytes name_in_view(const struct view *view, uint64_t semaphore_id)
{
    for (size_t i = 0; i < view->semaphore_count; i++)
        if (view->semaphores[i].id == semaphore_id)
            return view->semaphores[i].name;
    return (struct bytes){0};
}

/* Only this worker's gates are looked at, which nobody else changes but for the floor: read under the mutex before. */
static void decide_outcome(struct worker *worker, struct run *run, size_t index, const uint64_t *floors_of_run)
{
    struct op *op = run->ops[index];
    const struct outcome *outcome = &run->plan.outcomes[index];
    if (outcome->status == PERMIT_NO_CAPACITY) {
        refuse_no_capacity(worker->engine, op, &run->view, outcome);
        return;
    }
    struct bytes names[REQUEST_MAX_SEMAPHORES];
    uint64_t floors[REQUEST_MAX_SEMAPHORES];
    for (size_t i = 0; outcome->request && i < outcome->request->permit_count; i++) {
        uint64_t semaphore_id = outcome->request->permits[i].semaphore_id;
        names[i] = name_in_view(&run->view, semaphore_id);
        floors[i] = 1;
        for (size_t j = 0; j < run->view.semaphore_count; j++)
            if (run->view.semaphores[j].id == semaphore_id)
                floors[i] = floors_of_run[j];
    }
    struct decision decision = {
        .outcome = outcome,
        .status = outcome->status,
        .detail = outcome->detail,
        .clock = &run->view.clock,
        .now = run->view.now,
        .semaphore_names = names,
        .floors = floors,
    };
    decide(worker->engine, op, &decision);
}

static uint64_t *copy_floors(struct worker *worker, const struct view *view)
{
    uint64_t *floors = arena_array(&worker->arena, view->semaphore_count, sizeof *floors);
    for (size_t i = 0; floors && i < view->semaphore_count; i++) {
        const struct gate *gate = gates_find(&worker->engine->queue.gates, view->semaphores[i].id);
        floors[i] = gate ? gate->floor : 1;
    }
    return floors;
}

static void count_ended(struct engine *engine, const struct plan *plan)
{
    for (int reason = 0; reason < END_REASON_COUNT; reason++)
        metrics_add(&engine->metrics.ended[reason], plan->ended[reason]);
}

/* Under the mutex only what others look at: the next batch starts while this one's answers are still being written. */
void deliver(struct worker *worker, struct run *run, bool open_gates)
{
    struct engine *engine = worker->engine;
    count_ended(engine, &run->plan);
    bool *done = arena_array(&worker->arena, run->count, sizeof *done);
    bool *back = arena_array(&worker->arena, run->count, sizeof *back);
    pthread_mutex_lock(&engine->mutex);
    uint64_t *floors = copy_floors(worker, &run->view);
    bool whole = done && back && floors;
    remember_grants(engine, &run->plan);
    for (size_t i = 0; whole && i < run->count; i++) {
        const struct outcome *outcome = &run->plan.outcomes[i];
        if (outcome->put_back)
            back[i] = put_back(engine, run->ops[i], outcome);
        else
            remember(engine, run->ops[i], outcome);
        if (!back[i])
            queue_forget_key(&engine->queue, run->ops[i]);
    }
    if (open_gates)
        queue_finish(&engine->queue, &worker->batch);
    pthread_mutex_unlock(&engine->mutex);
    for (size_t i = 0; i < run->count; i++) {
        if (!whole)
            give_up(engine, run->ops[i], PERMIT_NO_MEMORY, NULL);
        else if (!run->plan.outcomes[i].put_back)
            decide_outcome(worker, run, i, floors);
        else if (!back[i])
            decide_status(engine, run->ops[i], may_come_back(run->ops[i]) ? PERMIT_BUSY : PERMIT_NO_CAPACITY,
                          "the semaphores it needs are busy");
    }
}
