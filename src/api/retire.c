/* SPDX-License-Identifier: MIT */
/*
 * DELETE /v1/semaphores/{name}. Without force it is one operation, which is refused while the semaphore is held. With
 * ?force=true the holders are ended before, by a chain of operations and queries of the engine:
 *
 *     pause --> query: a page of holders --> force-release each of them --> query: the next page ... none --> retire
 *
 * An operator could do each step alone; each is recorded as such and committed by itself. The completed steps of an
 * aborted chain remain. Repeating the call starts the chain again, with less to do. Two concurrent calls share the
 * work.
 *
 * Threads: the loop's thread submits the pause. The thread that has completed a step starts the next one: in a query's
 * `work` a reader; in `decided` a worker, the clock tick (for operations that timed out), or the thread that stops the
 * engine. It holds no lock of the engine. Only the force-releases of a page may be decided by several threads: shared
 * members are atomic, and the thread that decides the last one starts the next step.
 */
#include "api/access.h"
#include "api/json_out.h"
#include "api/operations.h"
#include "api/problem.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/service.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/query.h"

enum {
    PAGE_MAX = 1000,    /* maximum number of force-releases in the engine */
    RESERVED_SHARE = 4, /* the last quarter of the request's time is reserved for running batches and for the answer */
    PAGE_CHUNK = 64 * 1024,
    PAGE_BYTES_MAX = 64 << 20, /* enough for 1,000 holders with all their slots */
    SENTENCE_MAX = 512,
};

/* A forced retirement, in the exchange's arena. */
struct eviction {
    struct exchange *exchange;
    struct bytes reason;
    mono_us stop_at; /* no step begins later; operations that are in no batch by then time out */
    struct query query;
    struct arena page;        /* holders, and the operations that end them */
    struct cursor after;      /* the last holder read */
    struct batch_item retire; /* the last step; the first step is the exchange's `first` */
    bool retiring;            /* the last step has begun */
    atomic_size_t left;       /* undecided operations of the page */
    atomic_size_t ended;      /* requests ended by this call */
    atomic_int failure;       /* enum permit_status: the first failure of the page; PERMIT_OK: none */
};

static struct engine *engine_of(const struct eviction *eviction)
{
    return eviction->exchange->service->engine;
}

static struct eviction *eviction_of(struct op *op)
{
    return CONTAINER_OF(op, struct batch_item, op)->exchange->context;
}

/* ---- the answer ---- */

static void finish_answer(struct eviction *eviction)
{
    struct exchange *exchange = eviction->exchange;
    write_member_i64(&exchange->answer.body, "forced", (int64_t)atomic_load(&eviction->ended));
    problem_retry_after(&exchange->answer.body, exchange->answer.retry_after_ms);
    buf_append_char(&exchange->answer.body, '}');
    arena_release(&eviction->page);
    exchange_finish(exchange);
}

static const char *failure_reason(const struct eviction *eviction, enum permit_status status)
{
    switch (operation_public_status(status)) {
    case PERMIT_BUSY: return "timed out or overloaded";
    case PERMIT_TOO_MANY: return "too many pending calls (max_pending)";
    case PERMIT_UNKNOWN_SEMAPHORE: return "another client has retired it meanwhile";
    case PERMIT_FORBIDDEN: return "a holder also holds semaphores on which you do not have the right operate";
    case PERMIT_IN_USE: return eviction->retiring ? "permits are still held" : "it was resumed meanwhile";
    case PERMIT_OUTCOME_UNKNOWN:
        return eviction->retiring ? "it may or may not have been retired"
                                  : "some requests may or may not have been ended";
    default: return permit_status_title(operation_public_status(status));
    }
}

/*
 * Maps the status of a chain that failed after the pause to the answer. Temporary failures become PERMIT_UNFINISHED,
 * except an unknown outcome of the last step.
 */
static enum permit_status reported_status(const struct eviction *eviction, enum permit_status status)
{
    bool as_it_is = status == PERMIT_UNKNOWN_SEMAPHORE || status == PERMIT_IN_USE || status == PERMIT_FORBIDDEN ||
                    (status == PERMIT_OUTCOME_UNKNOWN && eviction->retiring);
    return as_it_is ? status : PERMIT_UNFINISHED;
}

/* Describes the state of the semaphore, and the effect of repeating the call. */
static const char *state_suffix(const struct eviction *eviction, enum permit_status reported)
{
    switch (reported) {
    case PERMIT_UNKNOWN_SEMAPHORE: return "";
    case PERMIT_IN_USE:
        return eviction->retiring ? "; the semaphore is paused unless another client has resumed it" : "";
    case PERMIT_OUTCOME_UNKNOWN: return ": repeat the call to continue or to find it done";
    default: return " so far, and the semaphore is paused: repeat the call to continue";
    }
}

static void fail_retirement(struct eviction *eviction, enum permit_status status)
{
    struct exchange *exchange = eviction->exchange;
    size_t ended = atomic_load(&eviction->ended);
    enum permit_status reported = reported_status(eviction, status);
    struct buf sentence;
    buf_init(&sentence, SENTENCE_MAX);
    buf_printf(&sentence, "%s; %zu request%s ended%s", failure_reason(eviction, status), ended,
               ended == 1 ? " was" : "s were", state_suffix(eviction, reported));
    if (status == PERMIT_INTERNAL)
        log_write(LOG_ERROR, "cannot retire a semaphore", "request_id", exchange->id, NULL);
    problem_head(&exchange->answer, reported, 0);
    problem_begin(&exchange->answer.body, reported, buf_text(&sentence));
    buf_release(&sentence);
    finish_answer(eviction);
}

/* ---- retire ---- */

static void on_retired(struct op *op, const struct decision *decision)
{
    struct eviction *eviction = eviction_of(op);
    if (decision->status != PERMIT_OK) {
        fail_retirement(eviction, decision->status);
        return;
    }
    const struct semaphore *semaphore = decision->outcome->semaphore;
    const struct viewer viewer = viewer_of(eviction->exchange);
    write_semaphore_begin(&eviction->exchange->answer.body, &viewer, semaphore);
    finish_answer(eviction);
}

static void retire(struct eviction *eviction)
{
    struct batch_item *item = &eviction->retire;
    eviction->retiring = true;
    item->exchange = eviction->exchange;
    item->operation = (struct operation){
        .kind = OP_SEMAPHORE_RETIRE, .semaphore = eviction->exchange->path_values[0], .why = eviction->reason};
    access_mark(eviction->exchange, &item->operation);
    op_init(&item->op, &item->operation, eviction->stop_at, on_retired);
    enum permit_status status = engine_submit(engine_of(eviction), &item->op);
    if (status != PERMIT_OK)
        fail_retirement(eviction, status);
}

/* ---- a page ---- */

static void next_page(struct eviction *eviction);

/*
 * Decrements the count of undecided operations. Only the thread that decides the last one may use the eviction
 * afterwards.
 */
static void count_down(struct eviction *eviction, size_t count)
{
    if (atomic_fetch_sub(&eviction->left, count) != count)
        return;
    enum permit_status failure = (enum permit_status)atomic_load(&eviction->failure);
    if (failure == PERMIT_OK)
        next_page(eviction);
    else
        fail_retirement(eviction, failure);
}

static void record_failure(struct eviction *eviction, enum permit_status status)
{
    int none = PERMIT_OK;
    (void)atomic_compare_exchange_strong(&eviction->failure, &none, (int)status);
}

/* A holder that has ended otherwise, or whose row has been deleted, counts as ended. */
static void holder_decided(struct op *op, const struct decision *decision)
{
    struct eviction *eviction = eviction_of(op);
    if (decision->status == PERMIT_OK)
        atomic_fetch_add(&eviction->ended, !decision->outcome->already_released);
    else if (decision->status != PERMIT_UNKNOWN_REQUEST)
        record_failure(eviction, decision->status);
    count_down(eviction, 1);
}

static void end_holders(struct eviction *eviction, const struct page *page)
{
    const struct holder_row *holders = page->holders;
    const size_t count = page->count;
    struct batch_item *items = arena_array(&eviction->page, count, sizeof *items);
    if (!items) {
        fail_retirement(eviction, PERMIT_NO_MEMORY);
        return;
    }
    eviction->after = page->next;
    atomic_store(&eviction->left, count + 1); /* 1 for this thread: no thread continues before all are submitted */
    size_t submitted = 0;
    enum permit_status status = PERMIT_OK;
    while (submitted < count && status == PERMIT_OK) {
        struct batch_item *item = &items[submitted];
        item->exchange = eviction->exchange;
        item->operation = (struct operation){
            .kind = OP_FORCE_RELEASE, .external_id = holders[submitted].request.external_id, .why = eviction->reason};
        access_mark(eviction->exchange, &item->operation);
        op_init(&item->op, &item->operation, eviction->stop_at, holder_decided);
        status = engine_submit(engine_of(eviction), &item->op);
        submitted += status == PERMIT_OK;
    }
    if (status != PERMIT_OK)
        record_failure(eviction, status);
    count_down(eviction, count - submitted + 1);
}

/*
 * Reads the next page of holders. While the semaphore is paused there are no new holders. If it is not paused, another
 * client has resumed it, or has retired and created it again: its new grants are not the subject of this call.
 */
static enum permit_status read_page(struct eviction *eviction, struct store *store, struct page *ret_page)
{
    struct bytes name = eviction->exchange->path_values[0];
    struct semaphore_row row;
    struct query_time time;
    enum permit_status status = store->queries->semaphore(store, name, &eviction->page, &row, &time);
    if (status == PERMIT_OK && !row.semaphore.paused_reason.data)
        status = PERMIT_IN_USE;
    if (status != PERMIT_OK)
        return status;
    *ret_page = (struct page){.arena = &eviction->page, .limit = PAGE_MAX, .after = eviction->after};
    return store->queries->holders(store, name, ret_page);
}

static void page_work(struct query *query, struct store *store, enum permit_status status)
{
    struct eviction *eviction = CONTAINER_OF(query, struct eviction, query);
    struct page page;
    arena_clear(&eviction->page);
    if (status == PERMIT_OK)
        status = read_page(eviction, store, &page);
    if (status != PERMIT_OK)
        fail_retirement(eviction, status);
    else if (page.count > 0)
        end_holders(eviction, &page);
    else
        retire(eviction);
}

static void next_page(struct eviction *eviction)
{
    enum permit_status status = PERMIT_BUSY;
    eviction->query = (struct query){.work = page_work,
                                     .lane = QUERY_OPERATOR,
                                     .deadline = eviction->stop_at,
                                     .turn.principal = access_name(eviction->exchange)};
    if (clock_mono() < eviction->stop_at)
        status = engine_query(engine_of(eviction), &eviction->query);
    if (status != PERMIT_OK)
        fail_retirement(eviction, status);
}

/* ---- the handler ---- */

static void on_paused(struct op *op, const struct decision *decision)
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
    eviction->stop_at = exchange->deadline - (exchange->deadline - exchange->arrived_at) / RESERVED_SHARE;
    arena_init(&eviction->page, PAGE_CHUNK, PAGE_BYTES_MAX);
    exchange->context = eviction;
    call_of(exchange)->first.operation =
        (struct operation){.kind = OP_SEMAPHORE_PAUSE, .semaphore = exchange->path_values[0], .why = reason};
    return operation_submit_to(exchange, on_paused);
}

/* With ?force=true&reason=... also retires a semaphore that is held. */
bool semaphore_retire(struct exchange *exchange)
{
    struct bytes reason = query_param(exchange, "reason");
    bool force;
    if (!param_flag(exchange, "force", &force))
        return true;
    if (!force && reason.data)
        return problem_answer(exchange, PERMIT_INVALID, "reason requires force=true");
    if (force) {
        enum permit_status status = operation_check_reason(exchange, reason);
        return status == PERMIT_OK ? retire_by_force(exchange, reason)
                                   : problem_answer(exchange, status, buf_text(&exchange->service->message));
    }
    call_of(exchange)->first.operation =
        (struct operation){.kind = OP_SEMAPHORE_RETIRE, .semaphore = exchange->path_values[0]};
    return operation_submit(exchange);
}
