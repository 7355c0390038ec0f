/* SPDX-License-Identifier: MIT */
/*
 * A client: its settings, one try of a call, and retries, at one of its servers. The calls themselves are in calls.c.
 */
#include "client/client.h"

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/escape.h"
#include "client/wire.h"

enum {
    MESSAGE_MAX_BYTES = 4096,
    TIMEOUT_MS = 15000, /* longer than permitd's own deadline of 10 s, so that its answer arrives */
    RETRY_MS = 5000,
    FIRST_PAUSE_MS = 100,
    MAX_PAUSE_MS = 5000,
    PAUSE_DOUBLINGS = 6,
    MAX_POLL_MS = 1000, /* poll does not count the time while the machine is suspended */
};

const char *permit_version(void)
{
    return PERMIT_VERSION;
}

static char *copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

void permit_client_set_cancel_fd(struct permit_client *client, int cancel_fd)
{
    client->options.cancel_fd = cancel_fd > 0 ? cancel_fd : -1;
}

/* Creates a client with this credential, NULL: that of the options. On failure appends a sentence to `message`. */
static enum permit_status client_new(const struct permit_client_options *given,
                                     const struct client_credential *credential, struct buf *message,
                                     struct permit_client **ret_client)
{
    struct permit_client *client = calloc(1, sizeof(*client));
    struct buf about_url;
    if (!client)
        return PERMIT_NO_MEMORY;
    buf_init(&about_url, MESSAGE_MAX_BYTES);
    buf_init(&client->message, MESSAGE_MAX_BYTES);
    http_reply_init(&client->reply);
    client->max_wait_ms = INT64_MAX;

    struct permit_client_options *options = &client->options;
    *options = *given;
    options->token = options->token_file = NULL;
    options->url = copy(given->url ? given->url : PERMIT_DEFAULT_URL);
    options->ca = copy(given->ca);
    options->cert = copy(given->cert);
    options->key = copy(given->key);
    if (options->timeout_ms <= 0)
        options->timeout_ms = TIMEOUT_MS;
    if (options->retry_ms == 0)
        options->retry_ms = RETRY_MS;
    permit_client_set_cancel_fd(client, options->cancel_fd);
    enum permit_status status = PERMIT_OK;
    if (!options->url || !options->ca != !given->ca || !options->cert != !given->cert || !options->key != !given->key) {
        status = PERMIT_NO_MEMORY;
    } else if (given->timeout_ms > INT_MAX) {
        buf_printf(message, "timeout_ms must be at most %d", INT_MAX);
        status = PERMIT_INVALID;
    }

    if (!status)
        status = credential ? credential_copy(&client->credential, credential)
                            : credential_open(&client->credential, given, message);
    if (!status)
        status = credential_check_files(given, message);
    if (!status) {
        const struct http_options http = {.url = options->url,
                                          .token = client->credential.token,
                                          .ca = options->ca,
                                          .cert = options->cert,
                                          .key = options->key};
        status = endpoints_open(&client->endpoints, &http, &about_url);
        if (about_url.length)
            buf_printf(message, "the url %s", buf_text(&about_url));
    }
    const struct http *exposed = status || options->insecure ? NULL : endpoints_find_exposed(&client->endpoints);
    if (exposed) {
        buf_printf(message, "the credential would be sent in the clear to another machine, %s: use https (or insecure)",
                   http_url(exposed));
        status = PERMIT_INVALID;
    }
    buf_release(&about_url);
    if (status)
        permit_client_free(client);
    else
        *ret_client = client;
    return status;
}

static const struct permit_client_options defaults = {.url = NULL};

enum permit_status permit_client_new(const struct permit_client_options *options, struct permit_client **ret_client)
{
    struct buf unused;
    buf_init(&unused, 0);
    enum permit_status status = client_new(options ? options : &defaults, NULL, &unused, ret_client);
    buf_release(&unused);
    return status;
}

enum permit_status client_copy(const struct permit_client *client, struct permit_client **ret_client)
{
    struct buf unused;
    buf_init(&unused, 0);
    enum permit_status status = client_new(&client->options, &client->credential, &unused, ret_client);
    buf_release(&unused);
    return status;
}

enum permit_status permit_options_check(const struct permit_client_options *options, char *message, size_t size)
{
    struct buf sentence;
    struct permit_client *client = NULL;
    buf_init(&sentence, MESSAGE_MAX_BYTES);
    enum permit_status status = client_new(options ? options : &defaults, NULL, &sentence, &client);
    permit_client_free(client);
    if (status && !sentence.length)
        buf_append_text(&sentence, permit_status_title(status));
    if (!sentence.broken)
        escape_control_chars(sentence.data, sentence.length);
    if (size)
        (void)snprintf(message, size, "%s", buf_text(&sentence));
    buf_release(&sentence);
    return status;
}

void permit_client_free(struct permit_client *client)
{
    if (!client)
        return;
    endpoints_release(&client->endpoints);
    http_reply_release(&client->reply);
    buf_release(&client->message);
    credential_release(&client->credential);
    free((char *)client->options.url);
    free((char *)client->options.ca);
    free((char *)client->options.cert);
    free((char *)client->options.key);
    free(client->key);
    free(client);
}

const char *permit_client_url(const struct permit_client *client)
{
    return http_url(client->endpoints.list[client->endpoints.current].http);
}

const char *permit_client_message(const struct permit_client *client)
{
    return buf_text(&client->message);
}

const char *permit_client_answer(const struct permit_client *client)
{
    return client->reply.status ? buf_text(&client->reply.body) : "";
}

const char *permit_client_key(const struct permit_client *client)
{
    return client->key ? client->key : "";
}

bool permit_client_in_doubt(const struct permit_client *client)
{
    return client->in_doubt;
}

int64_t permit_client_retry_after_ms(const struct permit_client *client)
{
    return client->reply.retry_after_ms;
}

enum permit_status client_fail(struct permit_client *client, enum permit_status status, const char *sentence)
{
    buf_clear(&client->message);
    buf_append_text(&client->message, sentence);
    return status;
}

/* ---- One try ---- */

/*
 * Judges an answer that is not of permitd, but of a proxy. Below 500 the proxy has not passed the call on. From 500 on
 * its server is most likely unavailable, and may have received the call.
 */
static enum permit_status foreign_reply_status(struct permit_client *client)
{
    const char *url = permit_client_url(client);
    int status = client->reply.status;
    switch (status) {
    case 401:
    case 407:
        buf_printf(&client->message, "%s: HTTP status %d from a proxy, not from permitd: it requires a credential", url,
                   status);
        return PERMIT_UNAUTHENTICATED;
    case 403:
        buf_printf(&client->message, "%s: HTTP status 403 from a proxy, not from permitd: it forbids this request",
                   url);
        return PERMIT_FORBIDDEN;
    default:
        buf_printf(&client->message, "%s: HTTP status %d from another server, not from permitd", url, status);
        return PERMIT_NO_SERVER;
    }
}

static enum permit_status reply_status(struct permit_client *client, const struct http_call *call)
{
    struct http_reply *reply = &client->reply;
    enum permit_status status;
    if (reply->end == HTTP_CANCELLED)
        return client_fail(client, PERMIT_OUTCOME_UNKNOWN, "cancelled before an answer arrived");
    if (reply->status == 0) {
        buf_printf(&client->message, "%s: %s", permit_client_url(client), reply->error);
        return PERMIT_NO_SERVER;
    }
    /* Another web server may answer 200 to anything. Every success of permitd but that of /metrics is a JSON object. */
    if (reply->status >= 200 && reply->status < 300 &&
        (wire_is_object(buf_text(&reply->body)) || strcmp(call->path, "/metrics") == 0))
        return PERMIT_OK;
    if (wire_read_problem(buf_text(&reply->body), reply->status, &status, &reply->retry_after_ms, &client->message))
        return status;
    return foreign_reply_status(client);
}

int64_t client_try_ms(const struct permit_client *client, const struct call_state *state)
{
    int64_t whole_ms = client->options.timeout_ms;
    if (client->options.retry_ms < 0)
        return whole_ms;
    return max_i64(1, whole_ms * min_i64(state->silences + 1, MIN_TRIES) / MIN_TRIES);
}

/* Notes why this server failed, and with several servers writes a message about all that failed in this call. */
static void report_failure(struct permit_client *client, enum permit_status status)
{
    const struct http_reply *reply = &client->reply;
    struct endpoints *endpoints = &client->endpoints;
    struct endpoint *endpoint = endpoints_current(endpoints);
    const char *why = reply->error;
    if (endpoints->count == 1)
        return;
    if (reply->os_error)
        why = strerror(reply->os_error);
    else if (reply->status)
        why = permit_status_word(status);
    if (reply->status && status == PERMIT_NO_SERVER)
        (void)snprintf(endpoint->failure, sizeof(endpoint->failure), "HTTP status %d, not from permitd", reply->status);
    else
        (void)snprintf(endpoint->failure, sizeof(endpoint->failure), "%.*s", ENDPOINT_FAILURE_SIZE - 1, why);
    if (status == PERMIT_NO_SERVER || status == PERMIT_SHUTTING_DOWN) {
        buf_clear(&client->message);
        endpoints_write_failures(endpoints, "no permitd answers at ", &client->message);
    } else {
        endpoints_write_failures(endpoints, "; servers tried: ", &client->message);
    }
}

enum permit_status client_try(struct permit_client *client, struct http_call *call, struct call_state *state)
{
    struct http *http = endpoints_current(&client->endpoints)->http;
    struct http_reply *reply = &client->reply;
    buf_clear(&client->message);
    if (!http_is_ours(http)) {
        http_reply_clear(reply);
        return client_fail(client, PERMIT_INVALID, "this client was created before a fork; create one in the child");
    }
    int64_t given_ms = call->timeout_ms;
    if (!given_ms)
        call->timeout_ms = client_try_ms(client, state);
    if (credential_refresh(&client->credential))
        endpoints_set_token(&client->endpoints, client->credential.token);
    if (state->failures == 0)
        endpoints_clear_failures(&client->endpoints);
    state->sent = clock_boot();
    http_exchange(http, call, reply);
    call->timeout_ms = given_ms;
    enum permit_status status = reply_status(client, call);
    state->untrusted = reply->end == HTTP_UNTRUSTED ? state->untrusted + 1 : 0;
    if (reply->end == HTTP_TIMED_OUT) {
        state->silences++;
        state->round_was_silent = true;
    } else if (reply->status) {
        state->silences = 0;
        state->round_was_silent = false;
    }
    bool refused = reply->status >= 300 && reply->status < 500; /* by permitd or by a proxy */
    state->answer_lost |=
        reply->sends > 1 || (reply->sends && !refused && permit_status_retry(status) == PERMIT_RETRY_SAME);
    if (reply->end == HTTP_CANCELLED)
        return status;
    if (client_retry_may_help(status))
        report_failure(client, status);
    else
        state->gone = 0;
    return status;
}

/* ---- Trying again ---- */

/* Returns a random number in [from, to). */
static int64_t random_between(int64_t from, int64_t to)
{
    return to > from ? from + (int64_t)(random_u64() % (uint64_t)(to - from)) : from;
}

/* Returns true if the last answer has a Retry-After. */
static bool has_retry_after(const struct permit_client *client)
{
    return client->reply.status && client->reply.retry_after_ms > 0;
}

int64_t client_pause_ms(const struct permit_client *client, unsigned failures)
{
    int64_t said = client->reply.retry_after_ms;
    if (has_retry_after(client))
        return random_between(said, said + said / 4);
    int64_t rounds = max_i64(1, (int64_t)(failures / client->endpoints.count));
    int64_t pause = min_i64(FIRST_PAUSE_MS << min_i64(rounds, PAUSE_DOUBLINGS), MAX_PAUSE_MS);
    return random_between(pause / 2, pause);
}

bool client_sleep(int64_t ms, int cancel_fd)
{
    boot_us end = moment_after(clock_boot(), ms);
    struct pollfd cancel = {.fd = cancel_fd, .events = POLLIN};
    int64_t left_ms = max_i64(0, ms);
    do {
        if (poll(&cancel, 1, (int)min_i64(left_ms, MAX_POLL_MS)) > 0)
            return false;
        left_ms = max_i64(0, (end - clock_boot() + US_PER_MS - 1) / US_PER_MS);
    } while (left_ms > 0);
    return true;
}

bool client_next_server(struct permit_client *client, struct call_state *state, enum permit_status status)
{
    state->silent_elsewhere |= client->reply.end == HTTP_TIMED_OUT && client->endpoints.count > 1;
    endpoints_next(&client->endpoints);
    /* The request may have moved to another server. Its wait continues there, before its place is removed. */
    bool wait_moved = status == PERMIT_OUTCOME_UNKNOWN && state->asked_wait_ms > 0;
    bool is_gone = status == PERMIT_NO_SERVER || status == PERMIT_SHUTTING_DOWN || wait_moved;
    if (is_gone && ++state->gone < client->endpoints.count)
        return true;
    if (!state->round_was_silent)
        state->silences = 0;
    state->round_was_silent = false;
    state->gone = 0;
    return false;
}

bool client_pause(struct permit_client *client, struct call_state *state, enum permit_status status,
                  int64_t patience_ms, int cancel_fd)
{
    boot_us now = clock_boot();
    /* Silence during the requested wait is no failure. */
    if (state->failures++ == 0)
        state->failing_since = min_i64(now, moment_after(state->sent, state->asked_wait_ms));
    if (client_next_server(client, state, status))
        return client_sleep(0, cancel_fd);
    if (state->untrusted >= client->endpoints.count)
        return false;
    boot_us end = moment_after(state->failing_since, patience_ms);
    if (state->silences)
        return patience_ms >= 0 && (state->silences < MIN_TRIES || now < end) && client_sleep(0, cancel_fd);
    if (now >= end)
        return false;
    int64_t pause_ms = client_pause_ms(client, state->failures);
    if (has_retry_after(client)) /* gives up rather than ask earlier */
        return moment_after(now, pause_ms) <= moment_after(end, MS_PER_SECOND) && client_sleep(pause_ms, cancel_fd);
    return client_sleep(min_i64(pause_ms, (end - now) / US_PER_MS + 1), cancel_fd); /* the last try is at the end */
}

bool client_retry_may_help(enum permit_status status)
{
    return permit_status_retry(status) != PERMIT_RETRY_NEVER && status != PERMIT_NO_CAPACITY && status != PERMIT_PAUSED;
}

bool client_leaves_doubt(const struct call_state *state, enum permit_status status)
{
    /* These two refuse the caller, possibly at a proxy. They say nothing of an earlier try that was carried out. */
    bool of_caller = status == PERMIT_UNAUTHENTICATED || status == PERMIT_FORBIDDEN;
    /* A refusal for now by one server does not settle what a silent one will do when it continues. */
    bool of_another = state->silent_elsewhere && permit_status_retry(status) == PERMIT_RETRY_LATER;
    /* Another change of the request came before this try, but perhaps after an earlier one that was carried out. */
    bool of_change = status == PERMIT_VERSION_MISMATCH;
    return state->answer_lost && (client_retry_may_help(status) || of_caller || of_another || of_change);
}

enum permit_status client_call(struct permit_client *client, struct http_call *call, struct call_state *state)
{
    enum permit_status status;
    do
        status = client_try(client, call, state);
    while (client->reply.end != HTTP_CANCELLED && client_retry_may_help(status) &&
           client_pause(client, state, status, client->options.retry_ms, call->cancel_fd));
    client->in_doubt = client_leaves_doubt(state, status);
    return status;
}
