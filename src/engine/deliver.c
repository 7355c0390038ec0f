/* SPDX-License-Identifier: MIT */
/* After COMMIT: the queue and the caches learn what happened, the gates open, the operations are decided. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/plant.h"
#include "engine/waits.h"
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

static int compare_shares(const void *a, const void *b)
{
    return compare_u64(&((const struct share *)a)->semaphore_id, &((const struct share *)b)->semaphore_id);
}

static void remember_grant(struct engine *engine, const struct request *request)
{
    struct share shares[REQUEST_MAX_SEMAPHORES];
    for (size_t i = 0; i < request->permit_count; i++)
        shares[i] = (struct share){request->permits[i].semaphore_id, request->permits[i].count};
    if (request->permit_count > 1)
        qsort(shares, request->permit_count, sizeof *shares, compare_shares);
    directory_put(&engine->queue.directory, request->external_id, shares, request->permit_count);
}

/* What one outcome changes of what this process remembers. Engine's mutex held. */
static void remember(struct engine *engine, const struct op *op, const struct outcome *outcome)
{
    struct queue *queue = &engine->queue;
    bool held = outcome->status == PERMIT_OK && outcome->request && outcome->request->state == REQUEST_ACQUIRED;
    if (op->operation->kind == OP_ACQUIRE && held)
        remember_grant(engine, outcome->request);
    else if (outcome->request && !held)
        directory_forget(&queue->directory, op->operation->external_id);
    bool retired = op->operation->kind == OP_SEMAPHORE_RETIRE && outcome->status == PERMIT_OK;
    bool gone = retired || outcome->status == PERMIT_UNKNOWN_SEMAPHORE;
    for (size_t i = 0; i < op->gate_count; i++) {
        op->gates[i]->floor_stale = true;
        if (gone)
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

static size_t taken_size(const struct outcome *outcome)
{
    size_t size = 0;
    for (size_t i = 0; i < outcome->shortage_count; i++) {
        const struct shortage *shortage = &outcome->shortages[i];
        size += shortage->taken_count * sizeof *shortage->taken;
        for (size_t j = 0; j < shortage->taken_count; j++)
            size += shortage->taken[j].label.length + shortage->taken[j].holder.length;
    }
    return size;
}

static struct bytes keep_text(char **at, struct bytes text)
{
    struct bytes copy = {*at, text.length};
    if (text.length)
        memcpy(*at, text.data, text.length);
    *at += text.length;
    return copy;
}

/* The slots that are taken, copied to where `*slots` and `*texts` point. */
static void keep_taken(struct shortage *shortage, struct taken_slot **slots, char **texts)
{
    struct taken_slot *copies = *slots;
    for (size_t i = 0; i < shortage->taken_count; i++) {
        copies[i] = shortage->taken[i];
        copies[i].label = keep_text(texts, copies[i].label);
        copies[i].holder = keep_text(texts, copies[i].holder);
    }
    shortage->taken = copies;
    *slots += shortage->taken_count;
}

static struct refusal *refusal_new(struct op *op, const struct view *view, const struct outcome *outcome)
{
    size_t fixed = sizeof(struct refusal) + outcome->shortage_count * sizeof(struct shortage);
    struct refusal *refusal = malloc(fixed + taken_size(outcome));
    if (!refusal)
        return NULL;
    size_t taken_count = 0;
    for (size_t i = 0; i < outcome->shortage_count; i++)
        taken_count += outcome->shortages[i].taken_count;
    struct taken_slot *slots = (struct taken_slot *)((char *)refusal + fixed);
    char *texts = (char *)(slots + taken_count);
    refusal->op = op;
    refusal->aheads = NULL;
    refusal->clock = view->clock;
    refusal->now = view->now;
    refusal->retry_after_ms = retry_after_shortage(view, outcome);
    refusal->count = outcome->shortage_count;
    for (size_t i = 0; i < outcome->shortage_count; i++) {
        refusal->shortages[i] = outcome->shortages[i];
        refusal->shortages[i].semaphore = own_name(op->operation, outcome->shortages[i].semaphore);
        keep_taken(&refusal->shortages[i], &slots, &texts);
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
    waits_note_ahead(engine, refusal);
    bool known = take_fresh_holders(engine, outcome, clock_mono(), holders);
    if (!known) {
        list_append(&engine->refusals, &refusal->node);
        pthread_cond_signal(&engine->lanes[LOOK_ROW].wake);
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
static void decide_outcome(struct worker *worker, struct run *run, struct op *op, const struct outcome *outcome,
                           const uint64_t *floors_of_run)
{
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

/* What becomes of an op of the run, once the queue has been told. */
enum fate {
    FATE_DECIDED,  /* by its outcome */
    FATE_REFUSED,  /* by `status` */
    FATE_BACK,     /* it is in the queue again, or waits: nothing to say yet */
    FATE_ANSWERED, /* a waiter's own: those in `answered` are decided, by the outcome or by `status` */
};

struct end {
    enum fate fate;
    enum permit_status status; /* PERMIT_OK: the outcome's */
    const char *detail;
    struct list answered;
};

static const char busy_sentence[] = "the semaphores it needs are busy";

/* Somewhere others stand before it, whatever is free. */
static bool was_behind(const struct outcome *outcome)
{
    for (size_t i = 0; i < outcome->shortage_count; i++)
        if (outcome->shortages[i].behind)
            return true;
    return false;
}

/*
 * "Those who wait for a semaphore while it is retired are told so; the next acquire makes it again": which may be one
 * that joined a place in the queue. Engine's mutex held.
 */
static void look_again(struct engine *engine, const struct outcome *outcome, struct list *answered)
{
    list_for_each (node, next, answered) {
        struct op *op = LIST_ENTRY(node, struct op, node);
        if (op->untried && maker_may_help(op, outcome)) {
            list_remove(node);
            maker_look_again(engine, op);
        }
    }
}

/* A waiter's own op: it is put back, goes on waiting, or its askers are answered. Engine's mutex held. */
static void end_waiter(struct engine *engine, struct op *op, const struct outcome *outcome, struct end *ret_end)
{
    struct waiter *waiter = waiter_of(op);
    ret_end->fate = FATE_BACK;
    if (outcome->put_back && (put_back(engine, op, outcome) || waits_try_later(engine, waiter)))
        return;
    bool refused = outcome->put_back || outcome->may_wait;
    if (!outcome->put_back)
        remember(engine, op, outcome);
    ret_end->fate = FATE_ANSWERED;
    ret_end->status = outcome->put_back ? PERMIT_BUSY : PERMIT_OK;
    ret_end->detail = outcome->put_back ? busy_sentence : NULL;
    if (refused && engine->queue.waiters.closed)
        ret_end->status = PERMIT_SHUTTING_DOWN;
    if (refused && outcome->status == PERMIT_BUSY)
        waits_look_later(engine, waiter);
    waiter->behind = was_behind(outcome);
    waits_settle(engine, waiter, refused, &ret_end->answered);
    look_again(engine, outcome, &ret_end->answered);
}

/* P6: whoever waits under a key that was released is to find the tombstone. */
static void call_released(struct queue *queue, const struct op *op)
{
    struct waiter *waiter =
        op->operation->kind == OP_RELEASE ? waiters_find(&queue->waiters, op->operation->external_id) : NULL;
    if (waiter && waiter_is_asked(waiter))
        queue_call(queue, waiter);
}

/* Engine's mutex held. */
static void end_op(struct worker *worker, struct op *op, const struct outcome *outcome, struct end *ret_end)
{
    struct engine *engine = worker->engine;
    list_init(&ret_end->answered);
    if (op->stands) {
        end_waiter(engine, op, outcome, ret_end);
        return;
    }
    bool back = outcome->put_back && put_back(engine, op, outcome);
    if (!outcome->put_back)
        remember(engine, op, outcome);
    if (maker_may_help(op, outcome)) {
        maker_look_again(engine, op);
        ret_end->fate = FATE_BACK;
        return;
    }
    if (!back)
        queue_forget_key(&engine->queue, op);
    bool may_wait = !back && (outcome->put_back ? op->operation->kind == OP_ACQUIRE : outcome->may_wait);
    if (back || (may_wait && waits_park(engine, op, worker->batch.taken_at, &ret_end->status))) {
        ret_end->fate = FATE_BACK;
        if (op->asks && (outcome->put_back || outcome->status == PERMIT_BUSY))
            waits_look_later(engine, op->asks);
        if (op->asks)
            op->asks->behind |= was_behind(outcome);
        return;
    }
    ret_end->fate = outcome->put_back || ret_end->status != PERMIT_OK ? FATE_REFUSED : FATE_DECIDED;
    if (outcome->put_back && ret_end->status == PERMIT_OK) {
        ret_end->status = may_come_back(op) ? PERMIT_BUSY : PERMIT_NO_CAPACITY;
        ret_end->detail = busy_sentence;
    }
    if (ret_end->status == PERMIT_TOO_MANY)
        ret_end->detail = waits_why_full(engine, op, &worker->arena);
    call_released(&engine->queue, op);
}

/*
 * Who of those that want certain slots is to be called after the batch. What others did, through another permitd, is
 * only seen as a version; what an operator changed, they may have been refused before it.
 */
static enum certain certain_news(const struct gate *gate, const struct semaphore_image *image)
{
    if (image->settings && !PLANTED(27))
        return CERTAIN_ALL;
    return gate->version == image->expected_version ? CERTAIN_FREED : CERTAIN_UNSEEN;
}

/* Of each semaphore of the run; before learn_rows. */
static void note_news(struct engine *engine, const struct run *run, enum certain *ret_news)
{
    const struct changes *changes = &run->plan.changes;
    for (size_t i = 0; i < changes->semaphore_count; i++) {
        const struct gate *gate = gates_find(&engine->queue.gates, changes->semaphores[i].semaphore->id);
        ret_news[i] = gate ? certain_news(gate, &changes->semaphores[i]) : CERTAIN_FREED;
    }
}

/* What the rows look like now, and then whoever may fit into them. Engine's mutex held. */
static void learn_rows(struct engine *engine, const struct run *run)
{
    utc_us now = served_time(&run->view.clock, run->view.now);
    for (size_t i = 0; i < run->plan.changes.semaphore_count; i++)
        waits_learn(engine, run->plan.changes.semaphores[i].semaphore, now);
}

/* Also those of this very batch: what ended in it may have ended after their turn. */
static void call_certain(struct engine *engine, struct gate *gate, const struct semaphore_image *image,
                         enum certain news, const struct changes *changes)
{
    if (news != CERTAIN_FREED || image->changed)
        waits_call_certain(engine, gate, news, changes);
    else if (gate->doubtful) /* somebody has given up who may have stood before them */
        waits_call_certain(engine, gate, CERTAIN_FREED, NULL);
}

static void call_waiters(struct engine *engine, const struct run *run, const enum certain *news)
{
    const struct changes *changes = &run->plan.changes;
    for (size_t i = 0; i < changes->semaphore_count; i++) {
        const struct semaphore_image *image = &changes->semaphores[i];
        struct gate *gate = gates_find(&engine->queue.gates, image->semaphore->id);
        if (!gate)
            continue;
        waits_call(engine, gate);
        call_certain(engine, gate, image, news[i], changes);
    }
}

/* What the queue is told of each op, and where it stands afterwards. Engine's mutex held. */
static void end_ops(struct worker *worker, struct run *run, struct end *ends)
{
    struct engine *engine = worker->engine;
    enum certain news[BATCH_MAX_SEMAPHORES + 1];
    remember_grants(engine, &run->plan);
    note_news(engine, run, news);
    learn_rows(engine, run);
    for (size_t i = 0; i < run->count; i++)
        end_op(worker, run->ops[i], &run->plan.outcomes[i], &ends[i]);
    call_waiters(engine, run, news);
    waits_changed(engine);
}

static void decide_end(struct worker *worker, struct run *run, struct op *op, const struct outcome *outcome,
                       const struct end *end, const uint64_t *floors)
{
    if (end->status == PERMIT_OK)
        decide_outcome(worker, run, op, outcome, floors);
    else
        decide_status(worker->engine, op, end->status, end->detail);
}

/* A grant is new to the first who asked; the others are told that the key has it, as if they had asked after it. */
static void decide_answered(struct worker *worker, struct run *run, const struct outcome *outcome, struct end *end,
                            const uint64_t *floors)
{
    struct outcome told = *outcome;
    list_for_each (node, next, &end->answered) {
        list_remove(node);
        decide_end(worker, run, LIST_ENTRY(node, struct op, node), &told, end, floors);
        told.replayed = told.replayed || told.created;
        told.created = false;
    }
}

/* Under the mutex only what others look at: the next batch starts while this one's answers are still being written. */
void deliver(struct worker *worker, struct run *run, bool open_gates)
{
    struct engine *engine = worker->engine;
    count_ended(engine, &run->plan);
    struct end *ends = arena_array(&worker->arena, run->count, sizeof *ends);
    pthread_mutex_lock(&engine->mutex);
    uint64_t *floors = copy_floors(worker, &run->view);
    bool whole = ends && floors;
    if (whole)
        end_ops(worker, run, ends);
    else
        for (size_t i = 0; i < run->count; i++)
            queue_forget_key(&engine->queue, run->ops[i]);
    if (open_gates)
        queue_finish(&engine->queue, &worker->batch);
    pthread_mutex_unlock(&engine->mutex);
    for (size_t i = 0; i < run->count; i++) {
        const struct outcome *outcome = &run->plan.outcomes[i];
        if (!whole)
            give_up(engine, run->ops[i], PERMIT_NO_MEMORY, NULL);
        else if (ends[i].fate == FATE_ANSWERED)
            decide_answered(worker, run, outcome, &ends[i], floors);
        else if (ends[i].fate != FATE_BACK)
            decide_end(worker, run, run->ops[i], outcome, &ends[i], floors);
    }
}
