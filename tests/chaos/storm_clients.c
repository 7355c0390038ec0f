/* SPDX-License-Identifier: MIT */
/*
 * The clients of the storm. A client works on one key at a time, with waiting and copies of a request at all permitd in
 * parallel; or on a crew of keys whose operations share a POST /v1/batch; now and then on another client's key. The job
 * of a key is enough to repeat it, so any client can.
 */
#include "storm.h"

enum { ANSWER_MS = 20000, CREW_MAX = 24, ROUNDS_MAX = 8 };

static bool chance(struct caller *caller, unsigned percent)
{
    return caller_random(caller, 100) < percent;
}

static struct job random_job(struct caller *caller)
{
    struct job job = caller_new_job(caller);
    job_want_some(caller, &job);
    job.ttl_ms = TAKEN_MS + 500 + caller_random(caller, LEASE_MAX_MS - TAKEN_MS - 500);
    job.wait_ms = chance(caller, 30) ? 1 + caller_random(caller, chance(caller, 20) ? 1500 : 100) : 0;
    return job;
}

/* A permitd that is running, as far as this process knows. */
static unsigned any_permitd(struct caller *caller)
{
    unsigned count = (unsigned)caller->world->permitd_count, at = caller_random(caller, count);
    for (unsigned i = 0; i < count; i++)
        if (atomic_load(&caller->world->ports[(at + i) % count]))
            return (at + i) % count;
    kit_sleep_ms(5);
    return at;
}

/* Repeats the call a few times until it has an answer that is not SAYS_NOTHING. */
static enum call_says call_retrying(struct client *client, const struct job *job, caller_call *call)
{
    struct caller *caller = &client->caller;
    enum call_says says = SAYS_NOTHING;
    for (int tries = 0; says == SAYS_NOTHING && tries < 4 && !atomic_load(&client->storm->stopping); tries++) {
        if (tries)
            kit_sleep_ms(5 + (int)caller_random(caller, 50));
        unsigned at = any_permitd(caller);
        says = call(caller, at, job);
        const struct call *last = &caller->history.calls[caller->history.count - 1];
        atomic_fetch_add(&client->storm->granted[at], last->status == 201);
        atomic_fetch_add(&client->storm->answered, says != SAYS_NOTHING);
    }
    return says;
}

/* ---- the fenced store ---- */

static bool fenced_takes(struct fenced_store *fenced, const struct call *grant, bool raise)
{
    for (size_t i = 0; i < grant->share_count; i++)
        for (size_t j = 0; j < SLOTS_MAX && grant->shares[i].slots[j]; j++) {
            uint64_t *newest = &fenced->newest[grant->shares[i].semaphore][grant->shares[i].slots[j]];
            if (*newest > grant->shares[i].token)
                return false;
            if (raise)
                *newest = grant->shares[i].token;
        }
    return true;
}

/* Writes with the tokens of this grant, whether they are still current or not. */
static void write_fenced(struct client *client, const struct call *grant)
{
    struct fenced_store *fenced = &client->storm->fenced;
    struct call call = *grant;
    call.kind = CALL_WRITE;
    call.status = 200;
    call.sent_us = kit_now_us();
    pthread_mutex_lock(&fenced->mutex);
    bool takes = fenced_takes(fenced, grant, false) && fenced_takes(fenced, grant, true);
    pthread_mutex_unlock(&fenced->mutex);
    call.says = takes ? SAYS_ACCEPTED : SAYS_REFUSED;
    call.answered_us = kit_now_us();
    history_add(&client->caller.history, &call);
}

/*
 * Writes with some of the last `latest` answers of this client. Some grants are kept for a write that comes too late.
 */
static void write_some(struct client *client, size_t latest)
{
    struct history *history = &client->caller.history;
    size_t end = history->count;
    for (size_t i = end - latest; i < end; i++) {
        struct call grant = history->calls[i];
        if (grant.says != SAYS_HELD || !chance(&client->caller, 40))
            continue;
        write_fenced(client, &grant);
        if (chance(&client->caller, 10))
            client->old_grants[caller_random(&client->caller, OLD_GRANTS)] = grant;
    }
    struct call *old = &client->old_grants[caller_random(&client->caller, OLD_GRANTS)];
    if (old->says == SAYS_HELD && chance(&client->caller, 10))
        write_fenced(client, old);
}

/* ---- one key at a time ---- */

/* Holds for a while and renews now and then; mostly releases, sometimes lets the lease run out. */
static void hold(struct client *client, const struct job *job)
{
    struct caller *caller = &client->caller;
    write_some(client, 1);
    kit_sleep_ms((int)caller_random(caller, 4));
    if (chance(caller, 20))
        call_retrying(client, job, caller_renew);
    if (chance(caller, 1)) /* just before or after the deadline */
        kit_sleep_ms((int)job->ttl_ms - 20 + (int)caller_random(caller, 40));
    if (chance(caller, 5))
        call_retrying(client, job, caller_renew);
    write_some(client, 1);
    if (chance(caller, 98))
        call_retrying(client, job, caller_release);
}

static void use_key(struct client *client)
{
    struct caller *caller = &client->caller;
    struct job job = random_job(caller);
    world_remember(caller->world, &job);
    if (chance(caller, 3)) /* the release arrives before the acquire */
        call_retrying(client, &job, caller_release);
    enum call_says says = chance(caller, 10) ? caller_acquire_everywhere(caller, &job) : SAYS_NOTHING;
    if (says != SAYS_HELD)
        says = call_retrying(client, &job, caller_acquire);
    if (says == SAYS_HELD)
        hold(client, &job);
    else if (chance(caller, 60))
        call_retrying(client, &job, caller_release);
    if (chance(caller, 10)) /* a late copy of the acquire */
        call_retrying(client, &job, caller_acquire);
}

static void use_other_key(struct client *client)
{
    struct caller *caller = &client->caller;
    struct job job;
    if (!world_recall(caller, &job))
        return;
    unsigned what = caller_random(caller, 10);
    call_retrying(client, &job, what < 6 ? caller_acquire : what < 9 ? caller_query : caller_release);
}

/* ---- a crew: several keys whose operations share a batch ---- */

struct errand {
    struct job job;
    enum call_kind next;
    bool over;
};

static void errand_begin(struct client *client, struct errand *errand)
{
    struct caller *caller = &client->caller;
    *errand = (struct errand){.job = random_job(caller), .next = CALL_ACQUIRE};
    errand->job.wait_ms = 0;
    if (chance(caller, 60)) /* otherwise few would fit */
        errand->job.want_count = 1;
    world_remember(caller->world, &errand->job);
}

static void errand_held(struct caller *caller, struct errand *errand)
{
    unsigned dice = caller_random(caller, 100);
    errand->next = dice < 20 ? CALL_RENEW : dice < 28 ? CALL_CONFIRM : CALL_RELEASE;
    errand->job.confirmed |= errand->next == CALL_CONFIRM;
    errand->over = dice >= 97 && !errand->job.confirmed; /* left to expire */
}

static void errand_refused(struct caller *caller, struct errand *errand)
{
    unsigned dice = caller_random(caller, 100);
    errand->next = dice < 40 ? CALL_ACQUIRE : CALL_RELEASE;
    errand->over = dice >= 70;
}

/* Chooses the next operation. After SAYS_NOTHING it is the same again. */
static void errand_advance(struct caller *caller, struct errand *errand, enum call_says says)
{
    if (says == SAYS_HELD)
        errand_held(caller, errand);
    else if (says == SAYS_NO_CAPACITY)
        errand_refused(caller, errand);
    else if (says == SAYS_ENDED && chance(caller, 5)) /* a late copy of the acquire */
        errand->next = CALL_ACQUIRE;
    else
        errand->over = says == SAYS_ENDED;
}

/* Sends one operation per key, and for some keys a second one right after it. Returns false if all are SAYS_NOTHING. */
static bool crew_call(struct client *client, struct errand *errands, size_t count)
{
    static const enum call_kind seconds[] = {CALL_ACQUIRE, CALL_RELEASE};
    struct caller *caller = &client->caller;
    struct operation operations[2 * CREW_MAX];
    size_t last[CREW_MAX], length = 0, told = 0;
    unsigned at = any_permitd(caller);
    for (size_t i = 0; i < count; i++) {
        operations[length++] = (struct operation){.kind = errands[i].next, .job = &errands[i].job};
        if (chance(caller, 4))
            operations[length++] = (struct operation){.kind = seconds[chance(caller, 50)], .job = &errands[i].job};
        last[i] = length - 1;
    }
    caller_batch(caller, at, operations, length);
    for (size_t i = 0; i < length; i++) {
        told += operations[i].says != SAYS_NOTHING;
        atomic_fetch_add(&client->storm->granted[at], operations[i].status == 201);
    }
    atomic_fetch_add(&client->storm->answered, told);
    write_some(client, length);
    for (size_t i = 0; i < count; i++)
        errand_advance(caller, &errands[i], operations[last[i]].says);
    return told > 0;
}

static void crew(struct client *client)
{
    struct caller *caller = &client->caller;
    struct errand errands[CREW_MAX];
    size_t count = 2 + caller_random(caller, CREW_MAX - 1), left;
    for (size_t i = 0; i < count; i++)
        errand_begin(client, &errands[i]);
    for (int round = 0; count && round < ROUNDS_MAX && !atomic_load(&client->storm->stopping); round++) {
        bool told = crew_call(client, errands, count);
        left = 0;
        for (size_t i = 0; i < count; i++)
            if (!errands[i].over)
                errands[left++] = errands[i];
        count = left;
        kit_sleep_ms((int)caller_random(caller, told ? 4 : 50));
    }
    for (size_t i = 0; i < count; i++) /* a confirmed request ends only by a release */
        while (errands[i].job.confirmed && !atomic_load(&client->storm->stopping) &&
               call_retrying(client, &errands[i].job, caller_release) != SAYS_ENDED)
            ;
}

/* ---- all of it ---- */

void *client_run(void *context)
{
    struct client *client = context;
    for (size_t i = 0; i < PERMITD_MAX; i++)
        client->caller.http[i].timeout_ms = ANSWER_MS;
    while (!atomic_load(&client->storm->stopping)) {
        unsigned dice = caller_random(&client->caller, 100);
        if (dice < 40)
            use_key(client);
        else if (dice < 90)
            crew(client);
        else
            use_other_key(client);
    }
    caller_close(&client->caller);
    return NULL;
}
