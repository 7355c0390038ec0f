/* SPDX-License-Identifier: MIT */
/* Acquires and releases permits over HTTP. */
#include "permits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guards.h"

void permits_semaphore(struct kit_http *http, const char *name, const char *kind, unsigned capacity)
{
    char path[300], body[64];
    struct reply reply;
    snprintf(path, sizeof(path), "/v1/semaphores/%s", name);
    snprintf(body, sizeof(body), "{\"kind\":\"%s\",\"capacity\":%u}", kind, capacity);
    if (!kit_http_put(http, path, body, &reply) || reply.status / 100 != 2)
        kit_fail("PUT %s: %d %s", path, reply.status, reply.body);
    reply_release(&reply);
}

static void read_grant(const char *body, struct permit *ret_permit)
{
    struct permit permit = {.token = kit_json_int(body, "permits.0.token"),
                            .floor = kit_json_int(body, "permits.0.floor")};
    char *key = kit_json_text(body, "external_id"), path[64];
    long count = kit_json_length(body, "permits.0.slots");
    size_t at = 0;
    KIT_CHECK(key && count <= SLOTS_MAX && permit.token > 0);
    snprintf(permit.key, sizeof(permit.key), "%s", key);
    free(key);
    for (; (long)permit.count < count; permit.count++) {
        snprintf(path, sizeof(path), "permits.0.slots.%zu", permit.count);
        permit.numbers[permit.count] = (uint32_t)kit_json_int(body, path);
        at += (size_t)snprintf(permit.slots + at, sizeof(permit.slots) - at, "%s%u", permit.count ? "," : "",
                               permit.numbers[permit.count]);
    }
    *ret_permit = permit;
}

bool permits_acquire(struct kit_http *http, const char *semaphore, unsigned count, int ttl_ms, int wait_ms,
                     struct permit *ret_permit)
{
    char body[400];
    struct reply reply;
    snprintf(body, sizeof(body),
             "{\"permits\":[{\"semaphore\":\"%s\",\"count\":%u}],\"ttl\":\"%dms\",\"wait\":\"%dms\"}", semaphore, count,
             ttl_ms, wait_ms);
    bool answered = kit_http_post(http, "/v1/requests", body, &reply), granted = answered && reply.status == 201;
    if (granted)
        read_grant(reply.body, ret_permit);
    else if (answered && reply.status != 423 && reply.status != 503 && reply.status != 429)
        kit_fail("POST /v1/requests %s: %d %s", body, reply.status, reply.body);
    reply_release(&reply);
    return granted;
}

void permits_release(struct kit_http *http, const struct permit *permit)
{
    char path[120];
    struct reply reply;
    snprintf(path, sizeof(path), "/v1/requests/%s", permit->key);
    kit_http_delete(http, path, &reply);
    reply_release(&reply);
}

void prepare_history(struct session *session, const char *semaphore, unsigned slots)
{
    for (unsigned slot = 1; session->store->kind->transactions && slot <= slots; slot++)
        session_run(session, "INSERT INTO last VALUES ('%s', %u, 0, 0)", semaphore, slot);
}

size_t count_history(struct session *session, const char *semaphore, unsigned slot, size_t *ret_back)
{
    uint64_t *tokens;
    size_t count = session->store->kind->history(session, semaphore, slot, &tokens), back = 0;
    for (size_t i = 1; i < count; i++)
        back += tokens[i] < tokens[i - 1];
    free(tokens);
    *ret_back = back;
    return count;
}

size_t check_history(struct session *session, const char *semaphore, unsigned slot)
{
    size_t back, count = count_history(session, semaphore, slot, &back);
    if (back)
        kit_fail("%s: slot %u of %s went back %zu times in %zu lines: a stale write was accepted", session->store->name,
                 slot, semaphore, back, count);
    return count;
}
