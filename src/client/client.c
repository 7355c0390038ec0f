/* SPDX-License-Identifier: MIT */
/* A client: its settings, one try of a call, and trying again. What calls mean is in calls.c. */
#include "client/client.h"

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

enum permit_status permit_client_new(const struct permit_client_options *options, struct permit_client **ret_client)
{
    struct permit_client *client = calloc(1, sizeof(*client));
    if (!client)
        return PERMIT_NO_MEMORY;
    buf_init(&client->message, MESSAGE_MAX_BYTES);
    http_reply_init(&client->reply);
    client->max_wait_ms = INT64_MAX;
    enum permit_status status = PERMIT_NO_MEMORY;
    if (set_options(client, options)) {
        client->http = http_new(client->options.url, client->options.token);
        status = client->http ? PERMIT_OK : PERMIT_INVALID;
    }
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

/* Something answered, but not permitd: a proxy whose server is away, most likely. */
static enum permit_status fail_foreign(struct permit_client *client)
{
    buf_printf(&client->message, "%s: an answer that is not permitd's, HTTP status %d", client->options.url,
               client->reply.status);
    return PERMIT_NO_SERVER;
}

static enum permit_status judge(struct permit_client *client)
{
    struct http_reply *reply = &client->reply;
    enum permit_status status;
    if (reply->cancelled)
        return client_fail(client, PERMIT_OUTCOME_UNKNOWN, "cancelled before there was an answer");
    if (reply->status == 0) {
        buf_printf(&client->message, "%s: %s", client->options.url, reply->error);
        return PERMIT_NO_SERVER;
    }
    if (reply->status >= 200 && reply->status < 300)
        return PERMIT_OK;
    if (wire_read_problem(buf_text(&reply->body), reply->status, &status, &reply->retry_after_ms, &client->message))
        return status;
    return fail_foreign(client);
}

enum permit_status client_try(struct permit_client *client, struct http_call *call, mono_us *ret_sent)
{
    if (call->timeout_ms == 0)
        call->timeout_ms = client->options.timeout_ms;
    buf_clear(&client->message);
    *ret_sent = clock_mono();
    http_exchange(client->http, call, &client->reply);
    return judge(client);
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
    mono_us end = clock_mono() + ms * US_PER_MS;
    struct pollfd cancel = {.fd = cancel_fd, .events = POLLIN};
    for (mono_us now = clock_mono(); now < end; now = clock_mono()) {
        int64_t left_ms = (end - now + US_PER_MS - 1) / US_PER_MS;
        if (poll(&cancel, 1, (int)min_i64(left_ms, 3600 * MS_PER_SECOND)) > 0)
            return false;
    }
    return true;
}

enum permit_status client_try_on(struct permit_client *client, struct http_call *call, struct course *course)
{
    enum permit_status status = client_try(client, call, &course->sent);
    bool unknown = permit_status_retry(status) == PERMIT_RETRY_SAME && client->reply.sent;
    if (unknown || client->reply.sent_twice)
        course->answer_lost = true;
    return status;
}

bool client_pause(const struct permit_client *client, struct course *course, int64_t patience_ms, int cancel_fd)
{
    mono_us now = clock_mono();
    /* As long as the server was asked to wait, no answer is no failure. */
    if (course->failures++ == 0)
        course->failing_since = min_i64(now, course->sent + course->asked_wait_ms * US_PER_MS);
    mono_us end = course->failing_since + patience_ms * US_PER_MS;
    int64_t pause_ms = client_pause_ms(client, course->failures);
    /* A server in trouble is not asked earlier than it said. */
    return now < end && now + pause_ms * US_PER_MS <= end + US_PER_MS && client_sleep(pause_ms, cancel_fd);
}

/* No capacity is an answer: whoever wants to wait for it says so (acquire.c). */
bool client_may_change(enum permit_status status)
{
    return permit_status_retry(status) != PERMIT_RETRY_NEVER && status != PERMIT_NO_CAPACITY && status != PERMIT_PAUSED;
}

enum permit_status client_persist(struct permit_client *client, struct http_call *call, struct course *course)
{
    enum permit_status status;
    do
        status = client_try_on(client, call, course);
    while (!client->reply.cancelled && client_may_change(status) &&
           client_pause(client, course, client->options.retry_ms, call->cancel_fd));
    client->in_doubt = course->answer_lost && client_may_change(status);
    return status;
}
