/* SPDX-License-Identifier: MIT */
#include "api/quota.h"

#include <stdio.h>

#include "api/call.h"
#include "api/problem.h"
#include "base/clock.h"
#include "http/server.h"

void quota_state_init(struct quota_state *state, struct server *server)
{
    *state = (struct quota_state){0};
    server_share_init(server, &state->share);
    mutex_init(&state->mutex);
}

void quota_state_release(struct quota_state *state)
{
    mutex_destroy(&state->mutex);
}

static bool refuse(struct exchange *exchange, enum quota quota, int64_t limit, mono_us wait)
{
    static const char *const per[] = {
        [QUOTA_CONNECTIONS] = "",   [QUOTA_WAITING] = "",        [QUOTA_BYTES] = " under way",
        [QUOTA_RATE] = " a second", [QUOTA_UNITS] = " a minute", [QUOTA_ANSWERS] = " bytes unread",
    };
    char detail[PRINCIPAL_NAME_MAX + 100];
    snprintf(detail, sizeof detail, "%s is beyond its quota: %s = %lld%s", access_principal(exchange)->name,
             quota_word(quota), (long long)limit, per[quota]);
    problem_answer_after(exchange, PERMIT_TOO_MANY, detail, (wait + US_PER_MS - 1) / US_PER_MS);
    return false;
}

bool quota_take(struct exchange *exchange, enum quota quota, int64_t amount)
{
    struct caller *caller = &call_of(exchange)->caller;
    struct quota_state *state = caller->quotas;
    if (!state || amount == 0)
        return true;
    const struct quotas *quotas = &caller->principal->quotas;
    bool is_limited = quotas->limits[quota] != 0;
    mono_us wait = 0;
    if (!is_limited && quota_period(quota))
        return true;
    mutex_lock(&state->mutex);
    bool taken = usage_take(&state->usage, quotas, quota, amount, is_limited ? clock_mono() : 0, &wait);
    state->refused[quota] += !taken;
    state->limited[quota] |= is_limited;
    mutex_unlock(&state->mutex);
    if (!taken)
        return refuse(exchange, quota, quotas->limits[quota], wait);
    if (quota == QUOTA_BYTES) /* these two are given back at the end of the call */
        caller->bytes = amount;
    else if (quota == QUOTA_WAITING)
        caller->waits = true;
    return true;
}

void quota_limit_answers(struct quota_state *state, const struct quotas *quotas)
{
    mutex_lock(&state->mutex);
    state->limited[QUOTA_ANSWERS] |= quotas->limits[QUOTA_ANSWERS] != 0;
    mutex_unlock(&state->mutex);
    atomic_store(&state->share.answering.limit, (size_t)quotas->limits[QUOTA_ANSWERS]);
}

void quota_refuse_share(struct exchange *exchange)
{
    struct quota_state *state = call_of(exchange)->caller.quotas;
    if (!state) {
        problem_answer(exchange, PERMIT_TOO_MANY, "too much memory for unread answers to clients without a credential");
        return;
    }
    mutex_lock(&state->mutex);
    state->refused[QUOTA_ANSWERS]++;
    state->limited[QUOTA_ANSWERS] = true;
    mutex_unlock(&state->mutex);
    (void)refuse(exchange, QUOTA_ANSWERS, (int64_t)budget_limit(&state->share.answering), 0);
}

bool quota_has_answers(struct exchange *exchange)
{
    const struct quota_state *state = call_of(exchange)->caller.quotas;
    if (!state || atomic_load(&state->share.answering.used) < budget_limit(&state->share.answering))
        return true;
    quota_refuse_share(exchange);
    return false;
}

void quota_give_back(struct quota_state *state, enum quota quota, int64_t amount)
{
    mutex_lock(&state->mutex);
    usage_give_back(&state->usage, quota, amount);
    mutex_unlock(&state->mutex);
}
