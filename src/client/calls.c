/* SPDX-License-Identifier: MIT */
/* The calls of permit.h, each one exchange of docs/protocol.md. permit_acquire is in acquire.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/client.h"
#include "client/wire.h"

/* Writes "<before>WORD<suffix>" with WORD percent-encoded. Returns false if it is too long or there is no word. */
static bool path_write(const char *before, const char *word, const char *suffix, char path[PATH_MAX_BYTES])
{
    size_t length = strlen(before);
    memcpy(path, before, length);
    size_t encoded = !word ? 0 : permit_path_encode(word, path + length, PATH_MAX_BYTES - length);
    size_t room = PATH_MAX_BYTES - length - encoded;
    return encoded > 0 && (size_t)snprintf(path + length + encoded, room, "%s", suffix) < room;
}

bool client_request_path(const char *external_id, const char *suffix, char path[PATH_MAX_BYTES])
{
    return path_write("/v1/requests/", external_id, suffix, path);
}

enum permit_status client_take_request(struct permit_client *client, const struct call_state *state,
                                       struct permit_request **ret_request)
{
    struct permit_request *request = wire_read_request(permit_client_answer(client), state->sent);
    if (!request)
        return client_fail(client, PERMIT_INTERNAL, "cannot parse the server's answer");
    *ret_request = request;
    return PERMIT_OK;
}

/* Runs one call about the request with this key. */
static enum permit_status call_request(struct permit_client *client, const char *method, const char *external_id,
                                       const char *suffix, const char *body, struct permit_request **ret_request)
{
    char path[PATH_MAX_BYTES];
    if (!client_request_path(external_id, suffix, path))
        return client_fail(client, PERMIT_INVALID, "the key must have 1 to 255 bytes");
    struct http_call call = {.method = method, .path = path, .body = body, .cancel_fd = client->options.cancel_fd};
    struct call_state state = {.sent = 0};
    struct permit_request *request = NULL;
    enum permit_status status = client_call(client, &call, &state);
    if (!status)
        status = client_take_request(client, &state, &request);
    if (!status && strcmp(request->external_id, external_id) != 0)
        status = client_fail(client, PERMIT_INTERNAL, "the server's answer is about another request");
    if (status || !ret_request)
        permit_request_free(request);
    else
        *ret_request = request;
    return status;
}

/* ---- Renew, confirm, release ---- */

/* The same with a body, which it frees. */
static enum permit_status send_request(struct permit_client *client, const char *external_id, const char *suffix,
                                       struct json_writer *body, struct permit_request **ret_request)
{
    const char *text = wire_text(body);
    enum permit_status status =
        text ? call_request(client, "POST", external_id, suffix, text, ret_request) : PERMIT_NO_MEMORY;
    json_writer_free(body);
    return status;
}

enum permit_status permit_renew(struct permit_client *client, const char *external_id, int64_t ttl_ms,
                                struct permit_request **ret_request)
{
    if (ttl_ms == 0)
        return call_request(client, "POST", external_id, "/renew", NULL, ret_request);
    struct json_writer *body = json_writer_new();
    json_add_duration(body, "ttl", ttl_ms);
    return send_request(client, external_id, "/renew", body, ret_request);
}

enum permit_status permit_release(struct permit_client *client, const char *external_id,
                                  struct permit_request **ret_request)
{
    return call_request(client, "DELETE", external_id, "", NULL, ret_request);
}

enum permit_status permit_release_confirmed(struct permit_client *client, const char *external_id,
                                            struct permit_request **ret_request)
{
    return call_request(client, "DELETE", external_id, "?confirmed=true", NULL, ret_request);
}

enum permit_status permit_confirm(struct permit_client *client, const char *external_id,
                                  struct permit_request **ret_request)
{
    return call_request(client, "POST", external_id, "/confirm", NULL, ret_request);
}

enum permit_status permit_confirm_all(struct permit_client *client, const char *const *external_ids, size_t count)
{
    struct json_writer *body = json_writer_new();
    json_add_texts(body, "external_ids", external_ids, count);
    const char *text = wire_text(body);
    enum permit_status status = text ? permit_call(client, "POST", "/v1/confirm", text) : PERMIT_NO_MEMORY;
    json_writer_free(body);
    struct json_object *answer = status ? NULL : json_read(permit_client_answer(client));
    if (!status && json_length_of(answer, "confirmed") != count)
        status = client_fail(client, PERMIT_INTERNAL, "the server's answer is not about these requests");
    json_free(answer);
    return status;
}

/* ---- Shrink, grow, exchange ---- */

/* A kind of change: its route, and the names of its lists in the body; NULL: it has none. */
struct change_kind {
    const char *suffix, *give, *take;
};

static enum permit_status send_change(struct permit_client *client, const char *external_id,
                                      const struct change_kind *kind, const struct permit_change *change,
                                      struct permit_request **ret_request)
{
    char made[UUID_TEXT_SIZE];
    if ((!kind->give && change->give_count) || (!kind->take && change->take_count))
        return client_fail(client, PERMIT_INVALID, "a shrink takes nothing, and a grow gives nothing back");
    if (!change->nonce)
        uuid_make(made);
    return send_request(client, external_id, kind->suffix,
                        wire_change(change, kind->give, kind->take, change->nonce ? change->nonce : made), ret_request);
}

enum permit_status permit_shrink(struct permit_client *client, const char *external_id,
                                 const struct permit_change *shrink, struct permit_request **ret_request)
{
    return send_change(client, external_id, &(struct change_kind){"/shrink", "permits", NULL}, shrink, ret_request);
}

enum permit_status permit_grow(struct permit_client *client, const char *external_id, const struct permit_change *grow,
                               struct permit_request **ret_request)
{
    return send_change(client, external_id, &(struct change_kind){"/grow", NULL, "permits"}, grow, ret_request);
}

enum permit_status permit_exchange(struct permit_client *client, const char *external_id,
                                   const struct permit_change *exchange, struct permit_request **ret_request)
{
    return send_change(client, external_id, &(struct change_kind){"/exchange", "give", "take"}, exchange, ret_request);
}

/* ---- Force-release, show ---- */

enum permit_status permit_force_release(struct permit_client *client, const char *external_id, const char *reason,
                                        struct permit_request **ret_request)
{
    struct json_writer *body = json_writer_new();
    json_add_text(body, "reason", reason);
    return send_request(client, external_id, "/force-release", body, ret_request);
}

enum permit_status permit_show(struct permit_client *client, const char *external_id,
                               struct permit_request **ret_request)
{
    return call_request(client, "GET", external_id, "", NULL, ret_request);
}

void permit_request_free(struct permit_request *request)
{
    if (!request)
        return;
    for (size_t i = 0; i < request->permit_count && request->permits; i++) {
        struct permit_held *held = &request->permits[i];
        for (size_t j = 0; held->labels && j < held->slot_count; j++)
            free(held->labels[j]);
        free(held->labels);
        free(held->slots);
        free(held->semaphore);
    }
    free(request->permits);
    free(request->external_id);
    free(request->owner);
    free(request->end_reason);
    free(request->acquired_at);
    free(request->confirmed_at);
    free(request->expires_at);
    free(request->ended_at);
    free(request);
}

/* ---- Semaphores, fencing, and the rest ---- */

/* The method goes into the request line unescaped, so only these are accepted. */
static bool is_method(const char *method)
{
    static const char *const methods[] = {"GET", "PUT", "POST", "DELETE"};
    for (size_t i = 0; i < ARRAY_LENGTH(methods); i++)
        if (strcmp(method, methods[i]) == 0)
            return true;
    return false;
}

enum permit_status permit_call(struct permit_client *client, const char *method, const char *path, const char *body)
{
    if (!is_method(method))
        return client_fail(client, PERMIT_INVALID, "the method must be GET, PUT, POST or DELETE");
    struct http_call call = {.method = method, .path = path, .body = body, .cancel_fd = client->options.cancel_fd};
    struct call_state state = {.sent = 0};
    enum permit_status status = client_call(client, &call, &state);
    bool is_missing = status == PERMIT_UNKNOWN_SEMAPHORE || status == PERMIT_UNKNOWN_TEMPLATE;
    if (!is_missing || !state.answer_lost || strcmp(method, "DELETE") != 0)
        return status;
    /* An earlier try, whose answer was lost, has deleted it. */
    buf_clear(&client->reply.body);
    buf_append_text(&client->reply.body, "{}");
    return client_fail(client, PERMIT_OK, "");
}

enum permit_status permit_semaphore_put(struct permit_client *client, const char *semaphore,
                                        const struct permit_semaphore_options *options)
{
    char path[PATH_MAX_BYTES];
    if (!path_write("/v1/semaphores/", semaphore, "", path))
        return client_fail(client, PERMIT_INVALID, "the name must have 1 to 255 bytes");
    struct json_writer *body = json_writer_new();
    json_add_number(body, "capacity", options->capacity < 0 ? JSON_ABSENT : options->capacity);
    json_add_text(body, "kind", options->kind);
    json_add_duration(body, "default_ttl", options->default_ttl_ms ? options->default_ttl_ms : JSON_ABSENT);
    const char *text = wire_text(body);
    enum permit_status status = text ? permit_call(client, "PUT", path, text) : PERMIT_NO_MEMORY;
    json_writer_free(body);
    return status;
}

enum permit_status permit_fence_check(struct permit_client *client, const char *semaphore, uint64_t token,
                                      uint32_t slot, struct permit_fence *ret_fence)
{
    char query[64];
    char path[PATH_MAX_BYTES];
    int length = snprintf(query, sizeof(query), "/fence?token=%" PRIu64, token);
    if (slot)
        (void)snprintf(query + length, sizeof(query) - (size_t)length, "&slot=%" PRIu32, slot);
    if (!path_write("/v1/semaphores/", semaphore, query, path))
        return client_fail(client, PERMIT_INVALID, "the name must have 1 to 255 bytes");
    enum permit_status status = permit_call(client, "GET", path, NULL);
    if (status)
        return status;
    return wire_read_fence(permit_client_answer(client), ret_fence)
               ? PERMIT_OK
               : client_fail(client, PERMIT_INTERNAL, "cannot parse the server's answer");
}
