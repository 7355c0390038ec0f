/* SPDX-License-Identifier: MIT */
/*
 * A probe asks the database. It is the only route that does so for clients without a credential, so these have a rate
 * together: beyond it they get the last answer, if it is young enough. They are not refused, because a load balancer
 * would take a refusal for a permitd that cannot serve.
 */
#include "api/readiness.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/access.h"
#include "api/problem.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/service.h"
#include "base/bucket.h"
#include "base/clock.h"
#include "base/mutex.h"

enum { PROBES_A_SECOND = 10 };
#define OLDEST_US US_PER_SECOND /* of an answer that is given again */

struct readiness {
    struct mutex mutex;
    struct bucket probes; /* without a credential; under `mutex`, like all members */
    mono_us looked_at;    /* when the last look began; 0: there was none */
    bool ready;
    char detail[STORE_MESSAGE_SIZE]; /* why not; "": unknown */
};

struct readiness *readiness_new(void)
{
    struct readiness *readiness = calloc(1, sizeof *readiness);
    if (readiness)
        mutex_init(&readiness->mutex);
    return readiness;
}

void readiness_free(struct readiness *readiness)
{
    if (readiness)
        mutex_destroy(&readiness->mutex);
    free(readiness);
}

/* Makes the last look the answer, if it began at `since` or later. False: it did not, and there is no answer. */
static bool answer_from(struct exchange *exchange, mono_us since)
{
    struct readiness *readiness = exchange->service->readiness;
    char detail[STORE_MESSAGE_SIZE];
    mutex_lock(&readiness->mutex);
    bool is_young = readiness->looked_at && readiness->looked_at >= since;
    bool ready = readiness->ready;
    memcpy(detail, readiness->detail, sizeof detail);
    mutex_unlock(&readiness->mutex);
    if (is_young && ready)
        buf_append_text(&exchange->answer.body, "{\"status\":\"ready\"}");
    else if (is_young) /* the reason is only for clients that are known */
        problem_answer(exchange, PERMIT_DATABASE_UNAVAILABLE, access_is_known(exchange) && detail[0] ? detail : NULL);
    return is_young;
}

/*
 * Finds out whether permitd can serve: the database is reachable, has our tables and, as far as the engine has checked,
 * is safe (P14).
 */
static void look(const struct exchange *exchange, struct store *store, enum permit_status status)
{
    struct readiness *readiness = exchange->service->readiness;
    char refusal[STORE_MESSAGE_SIZE];
    struct query_time time;
    mono_us began = clock_mono();
    if (status == PERMIT_OK)
        status = store->queries->clock(store, &time);
    bool refuses = engine_refusal(exchange->service->engine, refusal);
    mutex_lock(&readiness->mutex);
    readiness->looked_at = began;
    readiness->ready = status == PERMIT_OK && !refuses;
    snprintf(readiness->detail, sizeof readiness->detail, "%s", refuses ? refusal : store ? store->message : "");
    mutex_unlock(&readiness->mutex);
}

/* A probe that has waited while another one looked takes its answer: one look answers all that wait. */
static void ready_work(struct query *query, struct store *store, enum permit_status status)
{
    struct exchange *exchange = query_exchange(query);
    if (!answer_from(exchange, exchange->arrived_at)) {
        look(exchange, store, status);
        (void)answer_from(exchange, 0);
    }
    exchange_finish(exchange);
}

static bool is_beyond_rate(struct readiness *readiness)
{
    mutex_lock(&readiness->mutex);
    mono_us wait = bucket_take(&readiness->probes, PROBES_A_SECOND, US_PER_SECOND, 1, clock_mono());
    mutex_unlock(&readiness->mutex);
    return wait > 0;
}

bool ops_ready(struct exchange *exchange)
{
    enum { TOO_MANY = 429 };
    if (!access_is_known(exchange) && is_beyond_rate(exchange->service->readiness) &&
        answer_from(exchange, clock_mono() - OLDEST_US))
        return true;
    bool answered = query_submit_always(exchange, QUERY_PROBE, ready_work, NULL);
    if (answered && exchange->answer.http_status == TOO_MANY) /* thousands of probes wait for the database */
        problem_answer(exchange, PERMIT_DATABASE_UNAVAILABLE, NULL);
    return answered;
}
