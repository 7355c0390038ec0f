/* SPDX-License-Identifier: MIT */
/* A client: its settings, one try of a call, and trying again. What calls mean is in calls.c. */
#include "client/client.h"

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/wire.h"

enum {
    MESSAGE_MAX_BYTES = 4096,
    TIMEOUT_MS = 15000, /* longer than permitd's own deadline of 10 s, so that its answer arrives */
    RETRY_MS = 5000,
    FIRST_PAUSE_MS = 100,
    LONGEST_PAUSE_MS = 5000,
    PAUSE_DOUBLINGS = 6,
    LONGEST_NAP_MS = 1000, /* poll does not count the time for which the machine is suspended */
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

static bool set_options(struct permit_client *client, const struct permit_client_options *given)
{
    struct permit_client_options *options = &client->options;
    *options = given ? *given : (struct permit_client_options){.url = NULL};
    bool wants_token = options->token != NULL;
    options->url = copy(options->url ? options->url : PERMIT_DEFAULT_URL);
    options->token = copy(options->token);
    if (options->timeout_ms <= 0)
        options->timeout_ms = TIMEOUT_MS;
    if (options->retry_ms == 0)
        options->retry_ms = RETRY_MS;
    permit_client_set_cancel_fd(client, options->cancel_fd);
    return options->url && (options->token || !wants_token);
}

static enum permit_status set_up(struct permit_client *client, const struct permit_client_options *given)
{
    if (given && given->timeout_ms > INT_MAX)
        return PERMIT_INVALID;
    if (!set_options(client, given))
        return PERMIT_NO_MEMORY;
    return http_new(client->options.url, client->options.token, &client->http);
}

enum permit_status permit_client_new(const struct permit_client_options *options, struct permit_client **ret_client)
{
    struct permit_client *client = calloc(1, sizeof(*client));
    if (!client)
        return PERMIT_NO_MEMORY;
    buf_init(&client->message, MESSAGE_MAX_BYTES);
    http_reply_init(&client->reply);
    client->max_wait_ms = INT64_MAX;
    enum permit_status status = set_up(client, options);
    if (status)
        permit_client_free(client);
    else
        *ret_client = client;
    return status;
}

void permit_client_free(struct permit_client *client)
{
    if (!client)
        return;
    http_free(client->http);
    http_reply_release(&client->reply);
    buf_release(&client->message);
    free((char *)client->options.url);
    free((char *)client->options.token);
    free(client->key);
    free(client);
}

const char *permit_client_url(const struct permit_client *client)
{
    return http_url(client->http);
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
 * Something answered, but not permitd: a proxy. Below 500 it has not handed the call on. Above, its server is away,
 * most likely, and may have had it.
 */
static enum permit_status judge_foreign(struct permit_client *client)
{
    const char *url = http_url(client->http);
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

/* A web server that is none of ours may answer 200 to anything. */
static bool is_success(const struct http_call *call, const struct http_reply *reply)
{
    return reply->status >= 200 && reply->status < 300 &&
           (wire_is_object(buf_text(&reply->body)) || strcmp(call->path, "/metrics") == 0);
}

static enum permit_status judge(struct permit_client *client, const struct http_call *call)
{
    struct http_reply *reply = &client->reply;
    enum permit_status status;
    if (reply->cancelled)
        return client_fail(client, PERMIT_OUTCOME_UNKNOWN, "cancelled before an answer arrived");
    if (reply->status == 0) {
        buf_printf(&client->message, "%s: %s", http_url(client->http), reply->error);
        return PERMIT_NO_SERVER;
    }
    if (is_success(call, reply))
        return PERMIT_OK;
    if (wire_read_problem(buf_text(&reply->body), reply->status, &status, &reply->retry_after_ms, &client->message))
        return status;
    return judge_foreign(client);
}

/* The last try may have been carried out, and its answer does not say so. */
static bool has_lost_answer(const struct http_reply *reply, enum permit_status status)
{
    bool refused = reply->status >= 300 && reply->status < 500; /* also by a proxy */
    return reply->sent_twice || (reply->sent && !refused && permit_status_retry(status) == PERMIT_RETRY_SAME);
}

int64_t client_try_ms(const struct permit_client *client, const struct course *course)
{
    int64_t whole_ms = client->options.timeout_ms;
    if (client->options.retry_ms < 0)
        return whole_ms;
    return max_i64(1, whole_ms * min_i64(course->silences + 1, TRIES_LEAST) / TRIES_LEAST);
}

enum permit_status client_try(struct permit_client *client, struct http_call *call, struct course *course)
{
    buf_clear(&client->message);
    if (!http_is_ours(client->http)) {
        http_reply_clear(&client->reply);
        return client_fail(client, PERMIT_INVALID, "this client was created before a fork; create one in the child");
    }
    int64_t given_ms = call->timeout_ms;
    if (!given_ms)
        call->timeout_ms = client_try_ms(client, course);
    course->sent = clock_boot();
    http_exchange(client->http, call, &client->reply);
    call->timeout_ms = given_ms;
    enum permit_status status = judge(client, call);
    course->silences = client->reply.timed_out ? course->silences + 1 : 0;
    course->answer_lost |= has_lost_answer(&client->reply, status);
    return status;
}

/* ---- Trying again ---- */

/* A number of [from, to). */
static int64_t random_between(int64_t from, int64_t to)
{
    return to > from ? from + (int64_t)(random_u64() % (uint64_t)(to - from)) : from;
}

int64_t client_pause_ms(const struct permit_client *client, unsigned failures)
{
    int64_t said = client->reply.retry_after_ms;
    if (client->reply.status && said > 0)
        return random_between(said, said + said / 4);
    int64_t pause = min_i64(FIRST_PAUSE_MS << min_i64(failures, PAUSE_DOUBLINGS), LONGEST_PAUSE_MS);
    return random_between(pause / 2, pause);
}

bool client_sleep(int64_t ms, int cancel_fd)
{
    boot_us end = moment_after(clock_boot(), ms);
    struct pollfd cancel = {.fd = cancel_fd, .events = POLLIN};
    int64_t left_ms = max_i64(0, ms);
    do {
        if (poll(&cancel, 1, (int)min_i64(left_ms, LONGEST_NAP_MS)) > 0)
            return false;
        left_ms = max_i64(0, (end - clock_boot() + US_PER_MS - 1) / US_PER_MS);
    } while (left_ms > 0);
    return true;
}

bool client_pause(const struct permit_client *client, struct course *course, int64_t patience_ms, int cancel_fd)
{
    boot_us now = clock_boot();
    /* As long as the server was asked to wait, no answer is no failure. */
    if (course->failures++ == 0)
        course->failing_since = min_i64(now, moment_after(course->sent, course->asked_wait_ms));
    boot_us end = moment_after(course->failing_since, patience_ms);
    if (course->silences)
        return patience_ms >= 0 && (course->silences < TRIES_LEAST || now < end) && client_sleep(0, cancel_fd);
    int64_t pause_ms = client_pause_ms(client, course->failures);
    /* A server in trouble is not asked earlier than it said. */
    return now < end && moment_after(now, pause_ms) <= moment_after(end, MS_PER_SECOND) &&
           client_sleep(pause_ms, cancel_fd);
}

/* No capacity is an answer: whoever wants to wait for it says so (acquire.c). */
bool client_may_change(enum permit_status status)
{
    return permit_status_retry(status) != PERMIT_RETRY_NEVER && status != PERMIT_NO_CAPACITY && status != PERMIT_PAUSED;
}

bool client_leaves_doubt(const struct course *course, enum permit_status status)
{
    /* These two are said of the caller, also by a proxy, and not of the call that was carried out before. */
    bool of_caller = status == PERMIT_UNAUTHENTICATED || status == PERMIT_FORBIDDEN;
    return course->answer_lost && (client_may_change(status) || of_caller);
}

enum permit_status client_persist(struct permit_client *client, struct http_call *call, struct course *course)
{
    enum permit_status status;
    do
        status = client_try(client, call, course);
    while (!client->reply.cancelled && client_may_change(status) &&
           client_pause(client, course, client->options.retry_ms, call->cancel_fd));
    client->in_doubt = client_leaves_doubt(course, status);
    return status;
}
