/* SPDX-License-Identifier: MIT */
/*
 * DELETE /v1/semaphores/{name}. Plainly it is one operation, which is refused while the semaphore is held. With
 * ?force=true whoever holds it is ended before that, by a chain of the engine's operations and looks:
 *
 *     pause --> look: a page of holders --> force-release each of them --> look: the next page ... none --> retire
 *
 * Each is what an operator could have said himself, is recorded as such, and is committed by itself. What a chain that
 * broke off has done stays done; the same call again begins at its beginning, and finds less to do. So do two at once.
 *
 * Threads: the loop's submits the pause. Every further step is taken by the thread that has just ended the one before:
 * in a look's `work` the reader; in `decided` a worker, the keeper (of what no worker took in time), or, of what is
 * left at the end, the thread that stops the engine. None of the engine's locks is held there. Only the force-releases
 * of a page may be decided by several threads: what they touch is atomic, and whoever decides the last one takes the
 * next step.
 */
#include "base/clock.h"
#include "base/log.h"
#include "http/look.h"
#include "http/operations.h"
#include "http/problem.h"
#include "http/routes.h"
#include "http/service.h"
#include "http/write.h"
#include "store/query.h"

enum {
    AT_ONCE_MAX = 1000, /* force-releases in the engine */
    TIME_TO_SPARE = 4,  /* the last quarter of the request's time is for what is in a batch then, and for the answer */
    PAGE_CHUNK = 64 * 1024,
    PAGE_BYTES_MAX = 64 << 20, /* 1,000 holders with all their slots */
    SENTENCE_MAX = 512,
};

/* A semaphore on its way out by force. In the exchange's arena. */
struct eviction {
    struct exchange *exchange;
    struct bytes reason;
    mono_us stop_at; /* nothing begins later, and what has not come into a batch by then is given up */
    struct look look;
    struct arena page;   /* holders, and the operations that end them */
    uint64_t after;      /* the token of the last holder that was looked at */
    struct part retire;  /* the last step; the first is the exchange's `first` */
    bool retiring;       /* the last step has begun */
    atomic_size_t left;  /* of the page: not yet decided */
    atomic_size_t ended; /* requests, of all pages */
    atomic_int failure;  /* enum permit_status: the first failure of the page; PERMIT_OK: none */
};

static struct engine *engine_of(const struct eviction *eviction)
{
    return eviction->exchange->service->engine;
}

static struct eviction *eviction_of(struct op *op)
{
    return CONTAINER_OF(op, struct part, op)->exchange->context;
}

/* ---- the answer ---- */

static void answer(struct eviction *eviction)
{
    struct exchange *exchange = eviction->exchange;
    write_member_i64(&exchange->answer.body, "forced", (int64_t)atomic_load(&eviction->ended));
    problem_retry_after(&exchange->answer.body, exchange->answer.retry_after_ms);
    buf_append_char(&exchange->answer.body, '}');
    arena_release(&eviction->page);
    exchange_finish(exchange);
}

static const char *why(const struct eviction *eviction, enum permit_status status)
{
    switch (operation_public_status(status)) {
    case PERMIT_BUSY: return "timed out or overloaded";
    case PERMIT_TOO_MANY: return "too many pending calls (max_pending)";
    case PERMIT_UNKNOWN_SEMAPHORE: return "another client has retired it meanwhile";
    case PERMIT_IN_USE: return eviction->retiring ? "permits are still held" : "it was resumed meanwhile";
    case PERMIT_OUTCOME_UNKNOWN:
        return eviction->retiring ? "it may or may not have been retired"
                                  : "some requests may or may not have been ended";
    default: return permit_status_title(operation_public_status(status));
    }
}

/* After the pause. What passes is told as PERMIT_UNFINISHED, but for a last step of which nobody knows. */
static enum permit_status told_as(const struct eviction *eviction, enum permit_status status)
{
    bool as_it_is = status == PERMIT_UNKNOWN_SEMAPHORE || status == PERMIT_IN_USE ||
                    (status == PERMIT_OUTCOME_UNKNOWN && eviction->retiring);
    return as_it_is ? status : PERMIT_UNFINISHED;
}

/* How the semaphore is left, and what the same call again would do. */
static const char *left_as(const struct eviction *eviction, enum permit_status told)
{
    switch (told) {
    case PERMIT_UNKNOWN_SEMAPHORE: return "";
    case PERMIT_IN_USE:
        return eviction->retiring ? "; the semaphore is paused unless another client has resumed it" : "";
    case PERMIT_OUTCOME_UNKNOWN: return ": repeat the call to continue or to find it done";
    default: return " so far, and the semaphore is paused: repeat the call to continue";
    }
}

static void break_off(struct eviction *eviction, enum permit_status status)
{
    struct exchange *exchange = eviction->exchange;
    size_t ended = atomic_load(&eviction->ended);
    enum permit_status told = told_as(eviction, status);
    struct buf sentence;
    buf_init(&sentence, SENTENCE_MAX);
    buf_printf(&sentence, "%s; %zu request%s ended%s", why(eviction, status), ended, ended == 1 ? " was" : "s were",
               left_as(eviction, told));
    if (status == PERMIT_INTERNAL)
        log_write(LOG_ERROR, "cannot retire a semaphore", "request_id", exchange->id, NULL);
    problem_head(&exchange->answer, told, 0);
    problem_begin(&exchange->answer.body, told, buf_text(&sentence));
    buf_release(&sentence);
    answer(eviction);
}

/* ---- retire ---- */

static void retired(struct op *op, const struct decision *decision)
{
    struct eviction *eviction = eviction_of(op);
    if (decision->status != PERMIT_OK) {
        break_off(eviction, decision->status);
        return;
    }
    const struct semaphore *semaphore = decision->outcome->semaphore;
    write_semaphore_begin(&eviction->exchange->answer.body, semaphore, 0,
                          engine_waiting(engine_of(eviction), semaphore->name));
    answer(eviction);
}

static void retire(struct eviction *eviction)
{
    struct part *part = &eviction->retire;
    eviction->retiring = true;
    part->exchange = eviction->exchange;
    part->operation = (struct operation){
        .kind = OP_SEMAPHORE_RETIRE, .semaphore = eviction->exchange->parts[0], .why = eviction->reason};
    op_init(&part->op, &part->operation, eviction->stop_at, retired);
    enum permit_status status = engine_submit(engine_of(eviction), &part->op);
    if (status != PERMIT_OK)
        break_off(eviction, status);
}

/* ---- a page ---- */

static void next_page(struct eviction *eviction);

/* So many less to decide. The eviction is the business of whoever takes the last one, and of nobody else. */
static void count_down(struct eviction *eviction, size_t count)
{
    if (atomic_fetch_sub(&eviction->left, count) != count)
        return;
    enum permit_status failure = (enum permit_status)atomic_load(&eviction->failure);
    if (failure == PERMIT_OK)
        next_page(eviction);
    else
        break_off(eviction, failure);
}

static void note_failure(struct eviction *eviction, enum permit_status status)
{
    int none = PERMIT_OK;
    (void)atomic_compare_exchange_strong(&eviction->failure, &none, (int)status);
}

/* One that has ended otherwise meanwhile, or even been forgotten, is as good as one that we have ended. */
static void holder_decided(struct op *op, const struct decision *decision)
{
    struct eviction *eviction = eviction_of(op);
    if (decision->status == PERMIT_OK)
        atomic_fetch_add(&eviction->ended, !decision->outcome->already_released);
    else if (decision->status != PERMIT_UNKNOWN_REQUEST)
        note_failure(eviction, decision->status);
    count_down(eviction, 1);
}

static enum permit_status end_holder(struct eviction *eviction, const struct holder_row *holder, struct part *part)
{
    part->exchange = eviction->exchange;
    part->operation = (struct operation){
        .kind = OP_FORCE_RELEASE, .external_id = holder->request.external_id, .why = eviction->reason};
    op_init(&part->op, &part->operation, eviction->stop_at, holder_decided);
    return engine_submit(engine_of(eviction), &part->op);
}

static void end_holders(struct eviction *eviction, const struct holder_row *holders, size_t count)
{
    struct part *parts = arena_array(&eviction->page, count, sizeof *parts);
    if (!parts) {
        break_off(eviction, PERMIT_NO_MEMORY);
        return;
    }
    eviction->after = holders[count - 1].permit.token;
    atomic_store(&eviction->left, count + 1); /* one for this thread, so that nobody goes on before all are submitted */
    size_t submitted = 0;
    enum permit_status status = PERMIT_OK;
    while (submitted < count && status == PERMIT_OK) {
        status = end_holder(eviction, &holders[submitted], &parts[submitted]);
        submitted += status == PERMIT_OK;
    }
    if (status != PERMIT_OK)
        note_failure(eviction, status);
    count_down(eviction, count - submitted + 1);
}

/*
 * While it is paused nobody comes to hold it. If it is not, somebody wants it back in service (or had it retired, and
 * made anew): what is granted from now on is not what the call was about.
 */
static enum permit_status look_at_page(struct eviction *eviction, struct session *session, struct holder_row **ret_rows,
                                       size_t *ret_count)
{
    struct bytes name = eviction->exchange->parts[0];
    struct semaphore_row row;
    struct query_time time;
    enum permit_status status = query_semaphore(session, name, &eviction->page, &row, &time);
    if (status == PERMIT_OK && !row.semaphore.paused_reason.data)
        status = PERMIT_IN_USE;
    if (status != PERMIT_OK)
        return status;
    return query_holders(session, name, eviction->after, AT_ONCE_MAX, &eviction->page, ret_rows, ret_count, &time);
}

static void page_work(struct look *look, struct session *session, enum permit_status status)
{
    struct eviction *eviction = CONTAINER_OF(look, struct eviction, look);
    struct holder_row *holders;
    size_t count;
    arena_clear(&eviction->page);
    if (status == PERMIT_OK)
        status = look_at_page(eviction, session, &holders, &count);
    if (status != PERMIT_OK)
        break_off(eviction, status);
    else if (count > 0)
        end_holders(eviction, holders, count);
    else
        retire(eviction);
}

static void next_page(struct eviction *eviction)
{
    enum permit_status status = PERMIT_BUSY;
    eviction->look = (struct look){.work = page_work, .lane = LOOK_OPERATOR, .deadline = eviction->stop_at};
    if (clock_mono() < eviction->stop_at)
        status = engine_look(engine_of(eviction), &eviction->look);
    if (status != PERMIT_OK)
        break_off(eviction, status);
}

/* ---- the handler ---- */

static void paused(struct op *op, const struct decision *decision)
{
    if (decision->status == PERMIT_OK)
        next_page(eviction_of(op));
    else
        operation_decided(op, decision);
}

static bool retire_by_force(struct exchange *exchange, struct bytes reason)
{
    struct eviction *eviction = arena_alloc(&exchange->arena, sizeof *eviction);
    if (!eviction)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    eviction->exchange = exchange;
    eviction->reason = reason;
    eviction->stop_at = exchange->deadline - (exchange->deadline - exchange->arrived_at) / TIME_TO_SPARE;
    arena_init(&eviction->page, PAGE_CHUNK, PAGE_BYTES_MAX);
    exchange->context = eviction;
    exchange->first.operation =
        (struct operation){.kind = OP_SEMAPHORE_PAUSE, .semaphore = exchange->parts[0], .why = reason};
    return operation_submit_to(exchange, paused);
}

/* ?force=true&reason=...: also while it is held. */
bool semaphore_retire(struct exchange *exchange)
{
    struct bytes reason = exchange->values[1];
    bool force;
    if (!query_flag(exchange, 0, "force", &force))
        return true;
    if (!force && reason.data)
        return problem_answer(exchange, PERMIT_INVALID, "reason requires force=true");
    if (force) {
        enum permit_status status = operation_check_reason(exchange, reason);
        return status == PERMIT_OK ? retire_by_force(exchange, reason)
                                   : problem_answer(exchange, status, buf_text(&exchange->service->message));
    }
    exchange->first.operation = (struct operation){.kind = OP_SEMAPHORE_RETIRE, .semaphore = exchange->parts[0]};
    return operation_submit(exchange);
}
