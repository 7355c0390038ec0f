/* SPDX-License-Identifier: MIT */
/* Sends calls, reads what the answers assert, and records both. */
#include "caller.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 128, BODY_SIZE = 512, COMPLAINTS_MAX = 5 };

static const char *const words[] = {
    [CALL_ACQUIRE] = "acquire", [CALL_RELEASE] = "release", [CALL_RENEW] = "renew", [CALL_CONFIRM] = "confirm"};

void caller_init(struct caller *caller, struct world *world, unsigned number)
{
    *caller =
        (struct caller){.world = world, .random = world->seed * 0x9e3779b97f4a7c15u + number * 0xd1342543de82ef95u};
    for (size_t i = 0; i < PERMITD_MAX; i++)
        caller->http[i] = kit_http(0);
}

void caller_close(struct caller *caller)
{
    for (size_t i = 0; i < PERMITD_MAX; i++)
        kit_http_close(&caller->http[i]);
}

unsigned caller_random(struct caller *caller, unsigned below)
{
    /* splitmix64 */
    uint64_t x = caller->random += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (unsigned)((x ^ (x >> 31)) % below);
}

struct job caller_new_job(struct caller *caller)
{
    return (struct job){.key = atomic_fetch_add(&caller->world->next_key, 1)};
}

bool job_wants(const struct job *job, unsigned semaphore)
{
    for (size_t i = 0; i < job->want_count; i++)
        if (job->wants[i].semaphore == semaphore)
            return true;
    return false;
}

void job_want_some(struct caller *caller, struct job *job)
{
    const struct facts *facts = &caller->world->facts;
    size_t count = 1 + caller_random(caller, SHARES_MAX);
    while (job->want_count < count) {
        unsigned semaphore = caller_random(caller, (unsigned)facts->count);
        if (job_wants(job, semaphore))
            continue;
        unsigned capacity = facts->semaphores[semaphore].capacity;
        job->wants[job->want_count++] =
            (struct want){semaphore, 1 + caller_random(caller, capacity < 3 ? capacity : 3)};
    }
}

static pthread_mutex_t recent_mutex = PTHREAD_MUTEX_INITIALIZER;

void world_remember(struct world *world, const struct job *job)
{
    pthread_mutex_lock(&recent_mutex);
    world->recent[world->recent_count++ % RECENT_JOBS] = *job;
    pthread_mutex_unlock(&recent_mutex);
}

bool world_recall(struct caller *caller, struct job *ret_job)
{
    struct world *world = caller->world;
    pthread_mutex_lock(&recent_mutex);
    unsigned count = world->recent_count < RECENT_JOBS ? world->recent_count : RECENT_JOBS;
    if (count)
        *ret_job = world->recent[caller_random(caller, count)];
    pthread_mutex_unlock(&recent_mutex);
    return count > 0;
}

void key_name(const struct world *world, unsigned key, char *text)
{
    snprintf(text, 64, "t%llu-%u", (unsigned long long)world->seed, key);
}

int semaphore_number(const struct facts *facts, const char *name)
{
    for (size_t i = 0; name && i < facts->count; i++)
        if (!strcmp(facts->semaphores[i].name, name))
            return (int)i;
    return -1;
}

void make_semaphores(const struct facts *facts, unsigned port)
{
    struct kit_http http = kit_http(port);
    for (size_t i = 0; i < facts->count; i++) {
        const struct semaphore_facts *semaphore = &facts->semaphores[i];
        char path[PATH_SIZE], body[BODY_SIZE];
        struct reply reply;
        snprintf(path, sizeof(path), "/v1/semaphores/%s", semaphore->name);
        snprintf(body, sizeof(body), "{\"capacity\":%u,\"kind\":\"%s\",\"default_ttl\":\"1h\"}", semaphore->capacity,
                 semaphore->slotted ? "slotted" : "counted");
        if (!kit_http_put(&http, path, body, &reply) || reply.status != 201)
            kit_fail("PUT %s: %d %s", path, reply.status, reply.body);
        reply_release(&reply);
    }
    kit_http_close(&http);
}

void make_fifo(const struct queue_facts *queues, size_t count, unsigned port)
{
    struct kit_http http = kit_http(port);
    for (size_t i = 0; i < count; i++) {
        char path[PATH_SIZE];
        struct reply reply;
        if (!queues[i].fifo)
            continue;
        snprintf(path, sizeof(path), "/v1/semaphores/%s", queues[i].name);
        if (!kit_http_put(&http, path, "{\"queue\":\"fifo\"}", &reply) || reply.status != 200)
            kit_fail("PUT %s: %d %s", path, reply.status, reply.body);
        reply_release(&reply);
    }
    kit_http_close(&http);
}

struct ask *asks_of_history(const struct history *history, const struct world *world, size_t *ret_count)
{
    struct ask *asks = calloc(history->count + 1, sizeof(asks[0]));
    size_t count = 0;
    KIT_CHECK(asks);
    for (size_t i = 0; i < history->count; i++) {
        const struct call *call = &history->calls[i];
        if (call->kind != CALL_ACQUIRE || !call->wait_us)
            continue;
        asks[count] = (struct ask){.port = call->port,
                                   .status = call->status,
                                   .cut = !call->status,
                                   .wait_us = call->wait_us,
                                   .sent_us = call->sent_us,
                                   .answered_us = call->answered_us};
        key_name(world, call->key, asks[count++].key);
    }
    *ret_count = count;
    return asks;
}

/* ---- meaning of an answer ---- */

static void read_slots(const char *body, size_t permit, struct share *share)
{
    char path[64];
    for (size_t i = 0; i < SLOTS_MAX; i++) {
        snprintf(path, sizeof(path), "permits.%zu.slots.%zu", permit, i);
        int64_t slot = kit_json_int(body, path);
        share->slots[i] = slot > 0 ? (unsigned)slot : 0;
    }
}

/* Returns false if the permit cannot have been asked for. */
static bool read_share(const struct facts *facts, const char *body, size_t permit, struct share *ret_share)
{
    char path[64];
    snprintf(path, sizeof(path), "permits.%zu.semaphore", permit);
    char *name = kit_json_text(body, path);
    int semaphore = semaphore_number(facts, name);
    free(name);
    snprintf(path, sizeof(path), "permits.%zu.count", permit);
    int64_t count = kit_json_int(body, path);
    snprintf(path, sizeof(path), "permits.%zu.token", permit);
    int64_t token = kit_json_int(body, path);
    if (semaphore < 0 || count < 1 || token < 1)
        return false;
    *ret_share = (struct share){.semaphore = (unsigned)semaphore, .count = (unsigned)count, .token = (uint64_t)token};
    if (facts->semaphores[semaphore].slotted)
        read_slots(body, permit, ret_share);
    return true;
}

/* A grant that cannot be parsed gets no shares, so check_keys fails. */
static void read_shares(const struct facts *facts, const char *body, struct call *call)
{
    call->share_count = 0;
    long count = kit_json_length(body, "permits");
    if (count < 1 || count > SHARES_MAX)
        return;
    for (long i = 0; i < count; i++)
        if (!read_share(facts, body, (size_t)i, &call->shares[i]))
            return;
    call->share_count = (size_t)count;
}

static enum call_says meaning_of(enum call_kind kind, int status, const char *body)
{
    if (status == 200 && kit_json_text_is(body, "state", "WAITING"))
        return kind == CALL_QUERY ? SAYS_UNKNOWN : SAYS_NOTHING; /* neither held nor ended */
    if (status == 200 || status == 201)
        return kit_json_text_is(body, "state", "RELEASED") ? SAYS_ENDED
               : kind == CALL_RELEASE                      ? SAYS_NOTHING
                                                           : SAYS_HELD;
    if (status == 410)
        return SAYS_ENDED;
    if (status == 423)
        return SAYS_NO_CAPACITY;
    if (status == 404 && kind == CALL_QUERY)
        return SAYS_UNKNOWN;
    return SAYS_NOTHING;
}

/* The requested units, which an acquire records whatever its result. */
static void set_wanted_shares(const struct job *job, struct call *call)
{
    call->share_count = job->want_count;
    for (size_t i = 0; i < job->want_count; i++)
        call->shares[i] = (struct share){.semaphore = job->wants[i].semaphore, .count = job->wants[i].count};
}

/* ---- calls ---- */

struct request {
    const char *method;
    char path[PATH_SIZE];
    char body[BODY_SIZE];
};

/* All members of an acquire after the key, up to the closing brace. */
static int acquire_members(const struct world *world, const struct job *job, char *text, size_t size)
{
    int length = snprintf(text, size, ",\"owner\":\"chaos\",\"permits\":[");
    for (size_t i = 0; i < job->want_count; i++)
        length += snprintf(text + length, size - (size_t)length, "%s{\"semaphore\":\"%s\",\"count\":%u}", i ? "," : "",
                           world->facts.semaphores[job->wants[i].semaphore].name, job->wants[i].count);
    length += snprintf(text + length, size - (size_t)length, "]");
    if (job->ttl_ms)
        length += snprintf(text + length, size - (size_t)length, ",\"ttl\":\"%ums\"", job->ttl_ms);
    return length;
}

static void acquire_body(const struct world *world, const struct job *job, const char *key, char body[BODY_SIZE])
{
    int length = snprintf(body, BODY_SIZE, "{\"external_id\":\"%s\"", key);
    length += acquire_members(world, job, body + length, BODY_SIZE - (size_t)length);
    if (job->wait_ms)
        length += snprintf(body + length, BODY_SIZE - (size_t)length, ",\"wait\":\"%ums\"", job->wait_ms);
    snprintf(body + length, BODY_SIZE - (size_t)length, "}");
}

static struct request request_for(const struct world *world, enum call_kind kind, const struct job *job)
{
    static const struct {
        const char *method;
        const char *suffix;
    } routes[] = {[CALL_ACQUIRE] = {"POST", ""},
                  [CALL_RELEASE] = {"DELETE", ""},
                  [CALL_QUERY] = {"GET", ""},
                  [CALL_RENEW] = {"POST", "/renew"},
                  [CALL_CONFIRM] = {"POST", "/confirm"}};
    struct request request = {.method = routes[kind].method};
    char key[64];
    key_name(world, job->key, key);
    if (kind == CALL_ACQUIRE) {
        acquire_body(world, job, key, request.body);
        snprintf(request.path, sizeof(request.path), "/v1/requests");
    } else {
        snprintf(request.path, sizeof(request.path), "/v1/requests/%s%s%s", key, routes[kind].suffix,
                 kind == CALL_RELEASE && job->confirmed ? "?confirmed=true" : "");
    }
    return request;
}

/* The connection to that permitd, whose port may have changed. */
static struct kit_http *connection_to(struct caller *caller, unsigned at)
{
    struct kit_http *http = &caller->http[at];
    unsigned port = atomic_load(&caller->world->ports[at]);
    if (http->port != port) {
        kit_http_close(http);
        http->port = port;
    }
    return http;
}

static void start_call(struct caller *caller, unsigned at, const struct request *request)
{
    (void)kit_http_send(connection_to(caller, at), request->method, request->path, NULL,
                        request->body[0] ? request->body : NULL);
}

/* Prints the body of an unexpected 5xx answer; the history has only the status. */
static void print_unexpected(struct world *world, const struct request *request, const struct call *call,
                             const struct reply *reply)
{
    bool strange = call->status >= 500 && !((world->faults || call->wait_us) && call->status == 503);
    if (!strange || atomic_fetch_add(&world->complaints, 1) >= COMPLAINTS_MAX)
        return;
    fprintf(stderr, "%s %s after %lld ms: %d %.400s\n", request->method, request->path,
            (long long)(call->answered_us - call->sent_us) / 1000, call->status, reply->body);
}

static enum call_says finish_call(struct caller *caller, unsigned at, const struct request *request, struct call *call)
{
    struct reply reply;
    (void)kit_http_receive(&caller->http[at], request->method, &reply);
    call->answered_us = kit_now_us();
    call->port = caller->http[at].port;
    call->status = reply.status;
    if (reply.status && reply.body_length < 2) /* an answer has a body */
        kit_fail("%s %s: answered %d without a body", request->method, request->path, reply.status);
    call->says = meaning_of(call->kind, reply.status, reply.body);
    print_unexpected(caller->world, request, call, &reply);
    if (call->says == SAYS_HELD)
        read_shares(&caller->world->facts, reply.body, call);
    history_add(&caller->history, call);
    reply_release(&reply);
    return call->says;
}

static struct call new_call(enum call_kind kind, const struct job *job)
{
    struct call call = {
        .kind = kind, .key = job->key, .lease_us = (int64_t)job->ttl_ms * 1000, .sent_us = kit_now_us()};
    if (kind == CALL_ACQUIRE) {
        set_wanted_shares(job, &call);
        call.wait_us = (int64_t)job->wait_ms * 1000;
    }
    return call;
}

static enum call_says call_one(struct caller *caller, unsigned at, enum call_kind kind, const struct job *job)
{
    struct request request = request_for(caller->world, kind, job);
    struct call call = new_call(kind, job);
    start_call(caller, at, &request);
    return finish_call(caller, at, &request, &call);
}

static enum call_says call_all(struct caller *caller, enum call_kind kind, const struct job *job)
{
    struct request request = request_for(caller->world, kind, job);
    struct call call = new_call(kind, job);
    enum call_says last = SAYS_NOTHING;
    for (unsigned at = 0; at < caller->world->permitd_count; at++)
        start_call(caller, at, &request);
    for (unsigned at = 0; at < caller->world->permitd_count; at++) {
        struct call copy = call;
        last = finish_call(caller, at, &request, &copy);
    }
    return last;
}

enum call_says caller_acquire(struct caller *caller, unsigned at, const struct job *job)
{
    return call_one(caller, at, CALL_ACQUIRE, job);
}

enum call_says caller_release(struct caller *caller, unsigned at, const struct job *job)
{
    return call_one(caller, at, CALL_RELEASE, job);
}

enum call_says caller_query(struct caller *caller, unsigned at, const struct job *job)
{
    return call_one(caller, at, CALL_QUERY, job);
}

enum call_says caller_renew(struct caller *caller, unsigned at, const struct job *job)
{
    return call_one(caller, at, CALL_RENEW, job);
}

enum call_says caller_confirm(struct caller *caller, unsigned at, const struct job *job)
{
    return call_one(caller, at, CALL_CONFIRM, job);
}

enum call_says caller_acquire_everywhere(struct caller *caller, const struct job *job)
{
    return call_all(caller, CALL_ACQUIRE, job);
}

enum call_says caller_release_everywhere(struct caller *caller, const struct job *job)
{
    return call_all(caller, CALL_RELEASE, job);
}

/* ---- batches ---- */

static int operation_text(const struct world *world, const struct operation *operation, char *text, size_t size)
{
    const struct job *job = operation->job;
    char key[64];
    key_name(world, job->key, key);
    int length = snprintf(text, size, "{\"op\":\"%s\",\"external_id\":\"%s\"", words[operation->kind], key);
    if (operation->kind == CALL_ACQUIRE)
        length += acquire_members(world, job, text + length, size - (size_t)length);
    length += snprintf(text + length, size - (size_t)length, "%s}",
                       operation->kind == CALL_RELEASE && job->confirmed ? ",\"confirmed\":true" : "");
    return length;
}

/* The answer to a batch, while it is parsed. */
struct batch_reply {
    struct caller *caller;
    struct operation *operations;
    size_t count;
    unsigned port;
    int64_t sent_us;
    int64_t answered_us;
};

static void record(struct batch_reply *batch, size_t at, int status, const char *body)
{
    struct operation *operation = &batch->operations[at];
    struct call call = new_call(operation->kind, operation->job);
    call.port = batch->port;
    call.sent_us = batch->sent_us;
    call.answered_us = batch->answered_us;
    call.status = operation->status = status;
    call.says = operation->says = meaning_of(call.kind, status, body);
    if (call.says == SAYS_HELD)
        read_shares(&batch->caller->world->facts, body, &call);
    print_unexpected(batch->caller->world, &(struct request){.method = "batch", .path = "/v1/batch"}, &call,
                     &(struct reply){.status = status, .body = (char *)(uintptr_t)body});
    history_add(&batch->caller->history, &call);
}

static void take_result(void *context, size_t at, const char *element)
{
    struct batch_reply *batch = context;
    char *body = kit_json_part(element, "body");
    if (at >= batch->count || !body)
        kit_fail("a batch of %zu operations got the result %zu: %s", batch->count, at, element);
    record(batch, at, (int)kit_json_int(element, "status"), body);
    free(body);
}

void caller_batch(struct caller *caller, unsigned at, struct operation *operations, size_t count)
{
    static const char head[] = "{\"operations\":[";
    size_t size = sizeof(head) + count * BODY_SIZE + 4;
    char *text = malloc(size);
    KIT_CHECK(text && count >= 1 && count <= OPERATIONS_MAX);
    size_t length = (size_t)snprintf(text, size, "%s", head);
    for (size_t i = 0; i < count; i++) {
        length += (size_t)snprintf(text + length, size - length, "%s", i ? "," : "");
        length += (size_t)operation_text(caller->world, &operations[i], text + length, size - length);
    }
    snprintf(text + length, size - length, "]}");
    struct kit_http *http = connection_to(caller, at);
    struct batch_reply batch = {
        .caller = caller, .operations = operations, .count = count, .port = http->port, .sent_us = kit_now_us()};
    struct reply reply;
    (void)kit_http_post(http, "/v1/batch", text, &reply);
    batch.answered_us = kit_now_us();
    if (reply.status != 200)
        for (size_t i = 0; i < count; i++)
            record(&batch, i, reply.status, reply.body ? reply.body : "");
    else if (kit_json_each(reply.body, "results", take_result, &batch) != (long)count)
        kit_fail("a batch of %zu operations got another number of results: %.300s", count, reply.body);
    reply_release(&reply);
    free(text);
}
