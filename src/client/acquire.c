/* SPDX-License-Identifier: MIT */
/*
 * permit_acquire: repeats an acquire under one key until it is granted or its wait ends. The server does the waiting. A
 * long wait is cut into pieces, each a call that is answered in time, so that no proxy takes the connection for dead.
 * The place in the queue survives the gap between two pieces, because the next piece has the same key. If the server
 * of a piece dies or stops, the rest of the wait goes on at another server, under the same key.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "client/wire.h"

enum {
    PIECE_MS = 60000,
    SHORT_PIECE_MS = 1000,  /* after a failure, and until the caller has been told the reason of the wait */
    MIN_PAUSE_MS = 100,     /* a wait in the server counts as the pause from this length on */
    OUTAGE_MS = 60000,      /* how long a wait survives an outage of the server */
    CROWD_PAUSE_MS = 30000, /* the longest pause before a full queue is asked again, if Retry-After is not longer */
    CROWD_DOUBLINGS = 5,
};

/* One acquire in progress. */
struct wait {
    struct permit_client *client;
    const struct permit_acquire_options *options;
    boot_us until;              /* end of the wait; 0: no wait; NEVER: no limit */
    int cancel_fd;              /* -1: none */
    char nonce[UUID_TEXT_SIZE]; /* random; for calls without a nonce of the caller */
    struct call_state state;
    bool reachable;     /* the server was reachable, so the wait survives an outage */
    bool wait_reported; /* the caller knows the reason of the wait */
    unsigned crowded;   /* tries in a row that found too many waiting requests */
};

/* ---- One piece ---- */

/* Returns the wait to request from the server now. 0: the server decides immediately. */
static int64_t next_piece_ms(const struct wait *wait)
{
    int64_t piece_ms = wait->options->wait_piece_ms > 0 ? wait->options->wait_piece_ms : PIECE_MS;
    bool reports_soon = wait->options->waiting && !wait->options->waiting_late;
    if (wait->state.failures || (reports_soon && !wait->wait_reported))
        piece_ms = min_i64(piece_ms, SHORT_PIECE_MS);
    piece_ms = min_i64(piece_ms, wait->client->max_wait_ms);
    if (wait->until == NEVER)
        return piece_ms;
    int64_t left_ms = (max_i64(0, wait->until - clock_boot()) + US_PER_MS - 1) / US_PER_MS;
    /* If this server hangs, most of the wait is left for the others. */
    if (wait->client->endpoints.count > 1)
        piece_ms = min_i64(piece_ms, max_i64(SHORT_PIECE_MS, left_ms / 3));
    return min_i64(piece_ms, left_ms);
}

static enum permit_status send_piece(struct wait *wait)
{
    wait->state.asked_wait_ms = next_piece_ms(wait);
    const char *nonce = wait->options->nonce ? wait->options->nonce : wait->nonce;
    struct json_writer *body = wire_acquire(wait->options, wait->client->key, nonce, wait->state.asked_wait_ms);
    const char *text = wire_text(body);
    enum permit_status status = PERMIT_NO_MEMORY;
    if (text) {
        int64_t answer_ms =
            wait->options->retry_ms < 0 ? wait->client->options.timeout_ms : client_try_ms(wait->client, &wait->state);
        struct http_call call = {.method = "POST",
                                 .path = "/v1/requests",
                                 .body = text,
                                 .timeout_ms = wait->state.asked_wait_ms + answer_ms,
                                 .cancel_fd = wait->cancel_fd};
        status = client_try(wait->client, &call, &wait->state);
    } else {
        (void)client_fail(wait->client, status, "no memory for the request");
    }
    json_writer_free(body);
    return status;
}

/* ---- Between two pieces ---- */

/*
 * Returns true if the server refused the piece as too long and reported a shorter limit. Stores the limit in the
 * client.
 */
static bool learn_longest_wait(struct wait *wait, enum permit_status status)
{
    if (status != PERMIT_INVALID)
        return false;
    struct json_object *problem = json_read(permit_client_answer(wait->client));
    int64_t most_ms = json_integer_of(problem, "max_wait_ms", -1);
    json_free(problem);
    if (most_ms < 0 || most_ms >= wait->state.asked_wait_ms)
        return false;
    wait->client->max_wait_ms = most_ms;
    return true;
}

/*
 * Pauses after a refusal while wait time is left. A server that answered immediately although a wait was requested (it
 * is stopping, say) is asked again after Retry-After, and a last time when the wait ends. If it has no place for
 * another waiter, the pauses grow: each such client would ask again. Returns false if cancelled.
 */
static bool pause_for_capacity(struct wait *wait, enum permit_status status)
{
    boot_us now = clock_boot();
    int64_t asked_ms = wait->state.asked_wait_ms;
    if (status != PERMIT_TOO_MANY)
        wait->crowded = 0;
    /* A server that waited for half of the requested wait needs no further pause. */
    if (status != PERMIT_TOO_MANY && asked_ms > 0 &&
        now - wait->state.sent >= max_i64(asked_ms / 2, MIN_PAUSE_MS) * US_PER_MS)
        return true;
    int64_t pause_ms = client_pause_ms(wait->client, 1);
    if (status == PERMIT_TOO_MANY) { /* another server may have a place */
        unsigned rounds = wait->crowded++ / (unsigned)wait->client->endpoints.count;
        pause_ms = max_i64(pause_ms, min_i64(pause_ms << min_i64(rounds, CROWD_DOUBLINGS), CROWD_PAUSE_MS));
        endpoints_next(&wait->client->endpoints);
    }
    if (wait->until != NEVER)
        pause_ms = min_i64(pause_ms, (wait->until - now + US_PER_MS - 1) / US_PER_MS);
    return client_sleep(pause_ms, wait->cancel_fd);
}

/* Returns the time for which tries without a usable answer are repeated, from the first of them in a row. */
static int64_t patience_of(const struct wait *wait)
{
    boot_us now = clock_boot();
    int64_t usual_ms = wait->client->options.retry_ms;
    int64_t asked_ms = wait->options->retry_ms;
    if (asked_ms < 0)
        return -1;
    if (asked_ms > 0 && wait->until > now) {
        boot_us since = wait->state.failures ? wait->state.failing_since : now;
        return max_i64(usual_ms, min_i64(asked_ms, (wait->until - since) / US_PER_MS));
    }
    return wait->reachable && wait->until > now ? max_i64(usual_ms, OUTAGE_MS) : usual_ms;
}

/* Pauses after a refusal that is not final. Returns false if there is no next try. */
static bool pause_before_next(struct wait *wait, enum permit_status status)
{
    const struct http_reply *reply = &wait->client->reply;
    /* If the caller may wait, the server may have room for another waiter later. */
    bool asks_again = wait->until > 0 && wait->options->retry_ms >= 0;
    if (status == PERMIT_NO_CAPACITY || status == PERMIT_PAUSED || (status == PERMIT_TOO_MANY && asks_again)) {
        wait->state.failures = 0;
        wait->reachable = true;
        if (clock_boot() >= wait->until)
            return false;
        wait->wait_reported = true;
        if (wait->options->waiting)
            wait->options->waiting(wait->options->waiting_context, status, permit_client_message(wait->client));
        return pause_for_capacity(wait, status);
    }
    bool wait_was_cut = wait->state.asked_wait_ms > 0 && reply->sends && !reply->status && reply->end != HTTP_TIMED_OUT;
    if (status == PERMIT_SHUTTING_DOWN || status == PERMIT_OUTCOME_UNKNOWN || wait_was_cut)
        wait->reachable = true;
    return client_pause(wait->client, &wait->state, status, patience_of(wait), wait->cancel_fd);
}

static enum permit_status wait_for_grant(struct wait *wait)
{
    for (;;) {
        enum permit_status status = send_piece(wait);
        if (learn_longest_wait(wait, status))
            continue;
        /* PERMIT_NO_MEMORY comes from this library only, never from the server. */
        if (status == PERMIT_NO_MEMORY || permit_status_retry(status) == PERMIT_RETRY_NEVER ||
            wait->client->reply.end == HTTP_CANCELLED || !pause_before_next(wait, status))
            return status;
    }
}

/* ---- The grant ---- */

/*
 * Renews a grant that is stale, although the server, whose time began later, still holds the permit for us. The answer
 * of a stale grant proves little of the hold: it took more than half of the time that the hold lasts without a renewal;
 * or it is a replay without a deadline, and does not show when that time began. If the renewal fails while the grant
 * still proves something, the answer of the grant becomes the last answer again. Another client's grant is not renewed.
 */
static enum permit_status renew_if_stale(struct permit_client *client, struct permit_request *request)
{
    int64_t lasts_ms = request->ttl_ms > 0 ? request->ttl_ms : request->max_hold_ms;
    bool is_dated = request->ttl_ms > 0 || !request->replayed;
    if (!request->yours || lasts_ms <= 0 ||
        (is_dated && request->held_until_us - clock_boot() >= lasts_ms * US_PER_MS / 2))
        return PERMIT_OK;
    struct http_reply grant = client->reply;
    struct permit_request *renewed = NULL;
    http_reply_init(&client->reply);
    enum permit_status status = permit_renew(client, request->external_id, 0, &renewed);
    bool ended = status == PERMIT_ENDED || status == PERMIT_UNKNOWN_REQUEST || (renewed && !renewed->held);
    if (!status && ended)
        status = client_fail(client, PERMIT_INTERNAL, "the server renewed a request that is not held");
    else if (!status)
        request->held_until_us = renewed->held_until_us;
    permit_request_free(renewed);
    if (status && !ended && clock_boot() < request->held_until_us) {
        struct http_reply refusal = client->reply;
        client->reply = grant;
        grant = refusal;
        status = client_fail(client, PERMIT_OK, "");
    }
    http_reply_release(&grant);
    return status;
}

/* Returns why the answer is not the grant that was asked for; NULL: it is. */
static const char *grant_defect(const struct wait *wait, const struct permit_request *request)
{
    if (strcmp(request->external_id, wait->client->key) != 0)
        return "the server's answer is about another request";
    if (!request->held)
        return "the server granted a request that is not held";
    bool whole = request->permit_count == wait->options->permit_count;
    for (size_t i = 0; i < request->permit_count; i++)
        whole &= request->permits[i].token > 0;
    return whole ? NULL : "the server's answer has no token for each semaphore";
}

static enum permit_status read_grant(const struct wait *wait, struct permit_request **ret_request)
{
    struct permit_request *request = NULL;
    enum permit_status status = client_take_request(wait->client, &wait->state, &request);
    const char *defect = status ? NULL : grant_defect(wait, request);
    if (defect)
        status = client_fail(wait->client, PERMIT_INTERNAL, defect);
    else if (!status)
        status = renew_if_stale(wait->client, request);
    if (status)
        permit_request_free(request);
    else
        *ret_request = request;
    return status;
}

/* Runs the acquire under the caller's key, or a new random one, from the first try to the grant. */
static enum permit_status try_key(struct wait *wait, struct permit_request **ret_request)
{
    struct permit_client *client = wait->client;
    char made[UUID_TEXT_SIZE];
    wait->state = (struct call_state){.sent = 0};
    client->in_doubt = false;
    if (!wait->options->external_id)
        uuid_make(made);
    char *key = strdup(wait->options->external_id ? wait->options->external_id : made);
    if (!key)
        return client_fail(client, PERMIT_NO_MEMORY, "no memory for the key");
    free(client->key);
    client->key = key;
    enum permit_status status = wait_for_grant(wait);
    if (!status) {
        wait->state.answer_lost = true; /* even if this answer cannot be parsed, the request is granted */
        status = read_grant(wait, ret_request);
    }
    client->in_doubt = client_leaves_doubt(&wait->state, status);
    return status;
}

enum permit_status permit_acquire(struct permit_client *client, const struct permit_acquire_options *options,
                                  struct permit_request **ret_request)
{
    struct wait wait = {.client = client,
                        .options = options,
                        .until = options->wait_ms > 0 ? moment_after(clock_boot(), options->wait_ms) : 0,
                        .cancel_fd = options->cancel_fd > 0 ? options->cancel_fd : client->options.cancel_fd};
    if (options->wait_piece_ms > INT_MAX)
        return client_fail(client, PERMIT_INVALID, "wait_piece_ms must be at most 2147483647");
    if (!options->nonce)
        uuid_make(wait.nonce);
    for (;;) {
        enum permit_status status = try_key(&wait, ret_request);
        /*
         * The request may have been granted while this process could not know (it was suspended, or the network was
         * down), and its ttl has expired. A random key is then replaced by another; a key of the caller is used up.
         */
        if (status != PERMIT_ENDED || options->external_id || clock_boot() >= wait.until ||
            !wire_is_expired(permit_client_answer(client)))
            return status;
    }
}
