/* SPDX-License-Identifier: MIT */
/*
 * libpermit on any answers: of a proxy, another server, or a permitd of another version. The first byte selects the
 * call, and one server or two. The answers follow, separated by zero bytes: the HTTP status and optionally the seconds of Retry-After on a
 * line of their own; then the body. This file replaces src/client/http.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/escape.h"
#include "client/client.h"
#include "client/http.h"
#include "fuzz.h"

enum { ANSWERS_MAX = 64, ANSWER_BYTES_MAX = 1024 * 1024, DAY_MS = 24 * 3600 * 1000 };

/* ---- in place of src/client/http.c ---- */

/* The answers not yet used. */
static const uint8_t *answers;
static size_t answers_left;
static unsigned exchanges;

/* The client uses `http` for its exchanges only. */
enum permit_status http_new(const struct http_options *options, struct http **ret_http)
{
    *ret_http = (struct http *)(void *)strdup(options->url);
    return *ret_http ? PERMIT_OK : PERMIT_NO_MEMORY;
}

enum permit_status http_set_token(struct http *http, const char *token)
{
    (void)http, (void)token;
    return PERMIT_OK;
}

bool http_exposes_credential(const struct http *http)
{
    (void)http;
    return false;
}

const char *http_url(const struct http *http)
{
    return (const char *)http;
}

bool http_same_server(const struct http *a, const struct http *b)
{
    return strcmp(http_url(a), http_url(b)) == 0;
}

bool http_is_ours(const struct http *http)
{
    return http != NULL;
}

void http_free(struct http *http)
{
    free(http);
}

/* No server reads the path. */
size_t permit_path_encode(const char *word, char *to, size_t size)
{
    size_t length = strlen(word);
    if (length >= size)
        return 0;
    memcpy(to, word, length + 1);
    return length;
}

void http_reply_init(struct http_reply *reply)
{
    *reply = (struct http_reply){.status = 0};
    buf_init(&reply->body, ANSWER_BYTES_MAX);
}

void http_reply_clear(struct http_reply *reply)
{
    struct buf body = reply->body;
    buf_clear(&body);
    *reply = (struct http_reply){.body = body};
}

void http_reply_release(struct http_reply *reply)
{
    buf_release(&reply->body);
}

/* Returns the bytes before the next `end`, and moves `text` past it. */
static struct bytes cut(struct bytes *text, char end)
{
    const char *at = text->length ? memchr(text->data, end, text->length) : NULL;
    struct bytes first = {text->data, at ? (size_t)(at - text->data) : text->length};
    size_t used = first.length + (at != NULL);
    *text = (struct bytes){text->data + used, text->length - used};
    return first;
}

static int64_t number_in(struct bytes text)
{
    int64_t number = 0;
    for (size_t i = 0; i < text.length && number < 100000; i++)
        if (text.data[i] >= '0' && text.data[i] <= '9')
            number = number * 10 + (text.data[i] - '0');
    return number;
}

void http_exchange(struct http *http, const struct http_call *call, struct http_reply *reply)
{
    (void)http;
    MUST(call->path[0] == '/' && call->timeout_ms > 0);
    MUST(++exchanges < 10 * ANSWERS_MAX); /* no answer makes the client retry for ever without a pause */
    struct bytes left = {(const char *)answers, answers_left};
    struct bytes answer = cut(&left, '\0');
    answers = (const uint8_t *)left.data;
    answers_left = left.length;
    struct bytes head = cut(&answer, '\n');
    http_reply_clear(reply);
    reply->status = (int)(number_in(cut(&head, ' ')) % 1000);
    reply->retry_after_ms = reply->status ? min_i64(number_in(head), 86400) * MS_PER_SECOND : 0;
    reply->sends = 1;
    reply->end = reply->status ? HTTP_ANSWERED : HTTP_TIMED_OUT;
    snprintf(reply->error, sizeof reply->error, "no answer");
    if (reply->status)
        buf_append(&reply->body, answer.data, answer.length);
}

/* ---- the calls ---- */

static void check_request(const struct permit_request *request)
{
    MUST(request->external_id);
    MUST(request->held ? request->held_until_us > 0 : request->held_until_us == 0);
    for (size_t i = 0; i < request->permit_count; i++) {
        const struct permit_held *held = &request->permits[i];
        MUST(held->semaphore && strlen(held->semaphore) < ANSWER_BYTES_MAX);
        MUST(held->slot_count == 0 || held->slots);
        MUST(!held->labels || held->slot_count);
        for (size_t slot = 0; held->labels && slot < held->slot_count; slot++)
            MUST(!held->labels[slot] || strlen(held->labels[slot]) < ANSWER_BYTES_MAX);
    }
}

/* Checks the result of a call: a request, or a message with the reason. */
static void check_outcome(struct permit_client *client, enum permit_status status, struct permit_request *request)
{
    MUST(status >= PERMIT_OK && status < PERMIT_STATUS_COUNT && permit_status_word(status));
    MUST(permit_client_message(client) && permit_client_answer(client) && permit_client_key(client));
    const char *message = permit_client_message(client);
    MUST(escape_shown_length(message, strlen(message)) == strlen(message));
    MUST(permit_client_retry_after_ms(client) >= 0 && permit_client_retry_after_ms(client) <= DAY_MS);
    for (unsigned failures = 0; failures < 70; failures += 7) {
        int64_t pause_ms = client_pause_ms(client, failures);
        MUST(pause_ms >= 0 && pause_ms <= 2 * DAY_MS);
    }
    if (request)
        check_request(request);
    else
        MUST(status != PERMIT_OK || permit_client_answer(client)[0] || client->reply.body.length == 0);
    permit_request_free(request);
}

/* The calls, as a program makes them. */
static enum permit_status acquire(struct permit_client *client, struct permit_request **ret_request)
{
    const struct permit_want wants[] = {{.semaphore = "backups", .count = 1}, {.semaphore = "tapes"}};
    const struct permit_acquire_options options = {
        .external_id = "job-42", .permits = wants, .permit_count = ARRAY_LENGTH(wants), .ttl_ms = 90000};
    enum permit_status status = permit_acquire(client, &options, ret_request);
    MUST(status != PERMIT_OK || (*ret_request)->held);
    return status;
}

static enum permit_status acquire_waiting(struct permit_client *client, struct permit_request **ret_request)
{
    const struct permit_want want = {.semaphore = "backups"};
    const struct permit_acquire_options options = {.permits = &want, .permit_count = 1, .wait_ms = PERMIT_FOREVER};
    enum permit_status status = permit_acquire(client, &options, ret_request);
    MUST(status != PERMIT_OK || (*ret_request)->held);
    return status;
}

static enum permit_status acquire_slots(struct permit_client *client, struct permit_request **ret_request)
{
    static const char *const slots[] = {"A1", "#2", "##3", ""};
    const struct permit_want wants[] = {
        {.semaphore = "hall", .slots = slots, .slot_count = ARRAY_LENGTH(slots), .choice = PERMIT_THESE},
        {.semaphore = "yard", .slots = slots, .slot_count = 1, .choice = PERMIT_ANY_OF, .adjacent = true}};
    const struct permit_acquire_options options = {.permits = wants, .permit_count = ARRAY_LENGTH(wants)};
    enum permit_status status = permit_acquire(client, &options, ret_request);
    MUST(status != PERMIT_OK || (*ret_request)->held);
    return status;
}

static enum permit_status renew(struct permit_client *client, struct permit_request **ret_request)
{
    return permit_renew(client, "job-42", PERMIT_TTL_OWNER, ret_request);
}

static enum permit_status release(struct permit_client *client, struct permit_request **ret_request)
{
    return permit_release(client, "job/42", ret_request);
}

static enum permit_status show(struct permit_client *client, struct permit_request **ret_request)
{
    return permit_show(client, "job-42", ret_request);
}

static enum permit_status force(struct permit_client *client, struct permit_request **ret_request)
{
    return permit_force_release(client, "job-42", "the \"disk\"\nis gone", ret_request);
}

static enum permit_status fence(struct permit_client *client, struct permit_request **ret_request)
{
    struct permit_fence unused;
    (void)ret_request;
    return permit_fence_check(client, "backups", 57, 2, &unused);
}

static enum permit_status (*const calls[])(struct permit_client *client, struct permit_request **ret_request) = {
    acquire, acquire_waiting, renew, release, show, force, fence, acquire_slots,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int readable = -1; /* a readable descriptor ends all waits, so that nothing sleeps */
    if (readable < 0)
        readable = eventfd(1, EFD_CLOEXEC);
    struct permit_client_options options = {.cancel_fd = readable};
    struct permit_client *client = NULL;
    struct permit_request *request = NULL;
    unsigned choice = fuzz_choice(&data, &size);
    if (choice / ARRAY_LENGTH(calls) % 2)
        options.url = "http://a:7070,http://b:7070";
    answers = data;
    answers_left = size;
    exchanges = 0;
    MUST(permit_client_new(&options, &client) == PERMIT_OK);
    enum permit_status status = calls[choice % ARRAY_LENGTH(calls)](client, &request);
    check_outcome(client, status, request);
    permit_client_free(client);
    return 0;
}
