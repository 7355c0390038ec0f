/* SPDX-License-Identifier: MIT */
/*
 * permit_acquire: one key, asked for until it is granted or the wait is over. The server does the waiting. A long wait
 * is cut into pieces, each a call that is answered in time, so that no proxy takes it for dead; the place in the queue
 * outlives the moment between two pieces, because the same key comes back.
 */
#include <limits.h>
#include <stdlib.h>

#include "client/client.h"
#include "client/wire.h"

enum {
    PIECE_MS = 60000,
    SHORT_PIECE_MS = 1000, /* for a caller who wants to be told why he waits, and after a failure */
    LEAST_PAUSE_MS = 100,  /* a shorter wait of the server's is none */
    OUTAGE_MS = 60000,     /* how long a wait outlives a server that went away */
};

/* One acquire on its way. */
struct wait {
    struct permit_client *client;
    const struct permit_acquire_options *options;
    boot_us until;              /* 0: do not wait */
    int cancel_fd;              /* -1: none */
    char nonce[UUID_TEXT_SIZE]; /* of this call, unless the caller has one */
    struct course course;
    bool answered; /* the server was there: when it goes away now, it is waited for too */
    bool told;     /* why we wait */
};

/* The key of this acquire: the caller's, or a new one. False: no memory. */
static bool take_key(struct permit_client *client, const char *external_id)
{
    char made[UUID_TEXT_SIZE];
    if (!external_id)
        uuid_make(made);
    char *key = strdup(external_id ? external_id : made);
    if (!key)
        return false;
    free(client->key);
    client->key = key;
    return true;
}

static boot_us wait_end(int64_t wait_ms)
{
    return wait_ms <= 0 ? 0 : moment_after(clock_boot(), wait_ms);
}

/* ---- One piece ---- */

/* How long the server is asked to wait now. 0: it is to decide at once. */
static int64_t next_piece_ms(const struct wait *wait)
{
    int64_t piece_ms = wait->options->wait_piece_ms > 0 ? wait->options->wait_piece_ms : PIECE_MS;
    if (wait->course.failures || (wait->options->waiting && !wait->told))
        piece_ms = min_i64(piece_ms, SHORT_PIECE_MS);
    piece_ms = min_i64(piece_ms, wait->client->max_wait_ms);
    if (wait->until == NEVER)
        return piece_ms;
    boot_us left = max_i64(0, wait->until - clock_boot());
    return min_i64(piece_ms, (left + US_PER_MS - 1) / US_PER_MS);
}

static enum permit_status ask(struct wait *wait)
{
    struct buf body;
    buf_init(&body, BODY_MAX_BYTES);
    enum permit_status status = PERMIT_NO_MEMORY;
    wait->course.asked_wait_ms = next_piece_ms(wait);
    const char *nonce = wait->options->nonce ? wait->options->nonce : wait->nonce;
    if (wire_write_acquire(wait->options, wait->client->key, nonce, wait->course.asked_wait_ms, &body)) {
        int64_t answer_ms = client_try_ms(wait->client, &wait->course);
        struct http_call call = {.method = "POST",
                                 .path = "/v1/requests",
                                 .body = body.data,
                                 .timeout_ms = wait->course.asked_wait_ms + answer_ms,
                                 .cancel_fd = wait->cancel_fd};
        status = client_try(wait->client, &call, &wait->course);
    } else {
        (void)client_fail(wait->client, status, "no memory for the request");
    }
    buf_release(&body);
    return status;
}

/* ---- Between two pieces ---- */

/* True if the server refused the piece because it is longer than it takes, and takes a shorter one. */
static bool learn_longest_wait(struct wait *wait, enum permit_status status)
{
    int64_t most_ms;
    if (status != PERMIT_INVALID || !wire_read_max_wait(permit_client_answer(wait->client), &most_ms) || most_ms < 0 ||
        most_ms >= wait->course.asked_wait_ms)
        return false;
    wait->client->max_wait_ms = most_ms;
    return true;
}

/* What time may change, and nothing else. Of the waiters there may be too many: then we wait for a place among them. */
static bool waits_for_room(const struct wait *wait, enum permit_status status)
{
    return status == PERMIT_NO_CAPACITY || status == PERMIT_PAUSED || (status == PERMIT_TOO_MANY && wait->until > 0);
}

/* The connection ended while the server let us wait. */
static bool was_cut(const struct wait *wait)
{
    const struct http_reply *reply = &wait->client->reply;
    return wait->course.asked_wait_ms > 0 && reply->sent && !reply->status && !reply->timed_out;
}

/* Tells the caller why he waits. */
static void tell(struct wait *wait, enum permit_status status)
{
    wait->told = true;
    if (wait->options->waiting)
        wait->options->waiting(wait->options->waiting_context, status, permit_client_message(wait->client));
}

/* The server has waited, if not to the end: that was the pause. */
static bool has_waited(const struct wait *wait, boot_us now)
{
    int64_t asked_ms = wait->course.asked_wait_ms;
    return asked_ms > 0 && now - wait->course.sent >= max_i64(asked_ms / 2, LEAST_PAUSE_MS) * US_PER_MS;
}

/*
 * There is no room, and time is left. A server that answered at once although it was asked to wait (it stops, say, or
 * has no place for one who waits) is asked again after Retry-After, and for the last time when the wait is over. False:
 * cancelled.
 */
static bool pause_for_room(const struct wait *wait, enum permit_status status)
{
    boot_us now = clock_boot();
    if (status != PERMIT_TOO_MANY && has_waited(wait, now))
        return true;
    int64_t pause_ms = client_pause_ms(wait->client, 1);
    if (wait->until != NEVER)
        pause_ms = min_i64(pause_ms, (wait->until - now + US_PER_MS - 1) / US_PER_MS);
    return client_sleep(pause_ms, wait->cancel_fd);
}

/* After a refusal that time may change. False: there is to be no other try. */
static bool pause_before_next(struct wait *wait, enum permit_status status)
{
    int64_t patience_ms = wait->client->options.retry_ms;
    if (waits_for_room(wait, status)) {
        wait->course.failures = 0;
        wait->answered = true;
        if (clock_boot() >= wait->until)
            return false;
        tell(wait, status);
        return pause_for_room(wait, status);
    }
    if (status == PERMIT_SHUTTING_DOWN || was_cut(wait))
        wait->answered = true;
    if (wait->answered && wait->until > clock_boot())
        patience_ms = max_i64(patience_ms, OUTAGE_MS);
    return client_pause(wait->client, &wait->course, patience_ms, wait->cancel_fd);
}

/* No memory is our own: the server says other words. */
static bool is_final(const struct wait *wait, enum permit_status status)
{
    return status == PERMIT_NO_MEMORY || wait->client->reply.cancelled ||
           permit_status_retry(status) == PERMIT_RETRY_NEVER;
}

static enum permit_status wait_for_grant(struct wait *wait)
{
    for (;;) {
        enum permit_status status = ask(wait);
        if (learn_longest_wait(wait, status))
            continue;
        if (is_final(wait, status) || !pause_before_next(wait, status))
            return status;
    }
}

/* ---- The grant ---- */

/* At least half of its ttl is left. */
static bool is_fresh(const struct permit_request *request)
{
    return request->held_until_us - clock_boot() >= request->ttl_ms * US_PER_MS / 2;
}

/* One renewal. *ret_ended: by the answer it is not held any more. */
static enum permit_status renew(struct permit_client *client, struct permit_request *request, bool *ret_ended)
{
    struct permit_request *renewed = NULL;
    enum permit_status status = permit_renew(client, request->external_id, 0, &renewed);
    *ret_ended = status == PERMIT_ENDED || status == PERMIT_UNKNOWN_REQUEST || (renewed && !renewed->held);
    if (!status && *ret_ended)
        status = client_fail(client, PERMIT_INTERNAL, "the server renewed a request that is not held");
    else if (!status)
        request->held_until_us = renewed->held_until_us;
    permit_request_free(renewed);
    return status;
}

/*
 * An answer that took long proves little, although the server, whose time began later, holds the permit for us still:
 * one renewal settles it. If that fails, and the grant still proves something, the last answer is the grant's again.
 * What is somebody else's is not ours to renew.
 */
static enum permit_status prove(struct permit_client *client, struct permit_request *request)
{
    if (!request->yours || is_fresh(request))
        return PERMIT_OK;
    struct http_reply grant = client->reply;
    bool ended;
    http_reply_init(&client->reply);
    enum permit_status status = renew(client, request, &ended);
    if (status && !ended && clock_boot() < request->held_until_us) {
        struct http_reply refusal = client->reply;
        client->reply = grant;
        grant = refusal;
        status = client_fail(client, PERMIT_OK, "");
    }
    http_reply_release(&grant);
    return status;
}

static enum permit_status take_grant(const struct wait *wait, struct permit_request **ret_request)
{
    struct permit_request *request = NULL;
    enum permit_status status = client_take_request(wait->client, &wait->course, &request);
    if (!status && !request->held)
        status = client_fail(wait->client, PERMIT_INTERNAL, "the server granted a request that is not held");
    else if (!status)
        status = prove(wait->client, request);
    if (status)
        permit_request_free(request);
    else
        *ret_request = request;
    return status;
}

/* One key, from asking to holding. */
static enum permit_status try_key(struct wait *wait, struct permit_request **ret_request)
{
    wait->course = (struct course){.sent = 0};
    wait->client->in_doubt = false;
    if (!take_key(wait->client, wait->options->external_id))
        return client_fail(wait->client, PERMIT_NO_MEMORY, "no memory for the key");
    enum permit_status status = wait_for_grant(wait);
    if (!status) {
        wait->course.answer_lost = true; /* if it cannot be read it is granted all the same */
        status = take_grant(wait, ret_request);
    }
    wait->client->in_doubt = client_leaves_doubt(&wait->course, status);
    return status;
}

/*
 * It was granted while we could not know (this process was stopped, or the network away), and its ttl is over. A key of
 * the caller's has had its time; for one of ours another may take its place.
 */
static bool was_missed(const struct wait *wait, enum permit_status status)
{
    return status == PERMIT_ENDED && !wait->options->external_id && clock_boot() < wait->until &&
           wire_is_expired(permit_client_answer(wait->client));
}

enum permit_status permit_acquire(struct permit_client *client, const struct permit_acquire_options *options,
                                  struct permit_request **ret_request)
{
    struct wait wait = {.client = client,
                        .options = options,
                        .until = wait_end(options->wait_ms),
                        .cancel_fd = options->cancel_fd > 0 ? options->cancel_fd : client->options.cancel_fd};
    enum permit_status status;
    if (options->wait_piece_ms > INT_MAX)
        return client_fail(client, PERMIT_INVALID, "wait_piece_ms is longer than any");
    if (!options->nonce)
        uuid_make(wait.nonce);
    do
        status = try_key(&wait, ret_request);
    while (was_missed(&wait, status));
    return status;
}
