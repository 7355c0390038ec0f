/* SPDX-License-Identifier: MIT */
#include "tasks/webhook_call.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "tasks/outgoing.h"

enum {
    TIMEOUT_MS = 10 * 1000,
    ANSWER_MAX = 4 * 1024, /* bytes of headers and body that are read */
    CONNECTION_S = 60,     /* a connection is used for so long */
    URL_TEXT = WEBHOOK_URL_MAX + 1,
    HEADER_MAX = 512,
};

struct webhook_call {
    struct webhook_caller *caller;
    CURL *easy; /* NULL: not used yet */
    bool runs;
    struct buf body;
    char host[WEBHOOK_URL_MAX];
    size_t host_length;
    struct curl_slist *headers;
    void *context;
    size_t received;
    bool answered;        /* the headers of the answer are complete: its status decides, however the rest ends */
    bool cut;             /* the answer is longer than ANSWER_MAX */
    bool address_refused; /* an address of the host is not allowed */
    char error[CURL_ERROR_SIZE];
};

struct webhook_caller {
    const struct webhook_policy *policy;
    CURLM *multi;
    struct webhook_call calls[WEBHOOKS_MAX];
};

/* ---- one call ---- */

static enum address_range range_of(const struct curl_sockaddr *address)
{
    const struct sockaddr *of_any = &address->addr;
    if (address->family == AF_INET)
        return address_range_of((const unsigned char *)&((const struct sockaddr_in *)(const void *)of_any)->sin_addr,
                                sizeof(struct in_addr));
    if (address->family == AF_INET6)
        return address_range_of((const unsigned char *)&((const struct sockaddr_in6 *)(const void *)of_any)->sin6_addr,
                                sizeof(struct in6_addr));
    return ADDRESS_NEVER;
}

static curl_socket_t open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct webhook_call *call = context;
    struct bytes host = {call->host, call->host_length};
    call->address_refused =
        purpose != CURLSOCKTYPE_IPCXN || !webhook_allows_range(call->caller->policy, host, range_of(address));
    return call->address_refused ? CURL_SOCKET_BAD
                                 : socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* Counts the bytes, and keeps none. Ends the call when there are too many. */
static size_t count_received(struct webhook_call *call, size_t bytes)
{
    call->received += bytes;
    call->cut = call->received > ANSWER_MAX;
    return call->cut ? 0 : bytes;
}

/* The line that ends the headers is empty. Those of a 100 Continue are not the last. */
static size_t on_header(char *data, size_t size, size_t count, void *context)
{
    struct webhook_call *call = context;
    long status = 0;
    if (data[0] == '\r' || data[0] == '\n')
        (void)curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    call->answered |= status >= 200;
    return count_received(call, size * count);
}

static size_t on_body(char *data, size_t size, size_t count, void *context)
{
    (void)data;
    return count_received(context, size * count);
}

static CURL *call_open(struct webhook_call *call)
{
    CURL *easy = outgoing_new(call, call->error, on_body, TIMEOUT_MS);
    if (!easy)
        return NULL;
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, ""); /* not that of the environment */
    curl_easy_setopt(easy, CURLOPT_MAXLIFETIME_CONN, (long)CONNECTION_S);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, call);
    return easy;
}

static bool add_header(struct webhook_call *call, const char *name, const char *value)
{
    char line[HEADER_MAX];
    int length = snprintf(line, sizeof line, "%s: %s", name, value);
    struct curl_slist *longer =
        length > 0 && (size_t)length < sizeof line ? curl_slist_append(call->headers, line) : NULL;
    call->headers = longer ? longer : call->headers;
    return longer;
}

static bool set_request(struct webhook_call *call, const struct webhook_request *request)
{
    char url[URL_TEXT];
    snprintf(url, sizeof url, "%.*s", (int)request->url.length, request->url.data);
    struct curl_slist *no_expect = curl_slist_append(NULL, "Expect:"); /* libcurl would wait for 100 Continue */
    call->headers = no_expect;
    return no_expect && add_header(call, "Content-Type", "application/json") &&
           add_header(call, "Permit-Signature", request->signature) &&
           add_header(call, "Permit-Cursor", request->cursor) &&
           curl_easy_setopt(call->easy, CURLOPT_URL, url) == CURLE_OK &&
           curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers) == CURLE_OK &&
           curl_easy_setopt(call->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body.length) == CURLE_OK &&
           curl_easy_setopt(call->easy, CURLOPT_POSTFIELDS, call->body.data) == CURLE_OK;
}

static void call_release(struct webhook_call *call)
{
    curl_slist_free_all(call->headers);
    call->headers = NULL;
    buf_release(&call->body);
    call->runs = false;
}

bool webhook_call_begin(struct webhook_caller *caller, struct webhook_request *request)
{
    struct webhook_call *call = caller->calls;
    while (call->runs)
        call++;
    call->caller = caller;
    if (!call->easy)
        call->easy = call_open(call);
    call->body = request->body;
    call->context = request->context;
    call->host_length = request->host.length;
    memcpy(call->host, request->host.data, request->host.length);
    call->received = 0;
    call->answered = call->cut = call->address_refused = false;
    call->error[0] = '\0';
    call->runs =
        call->easy && set_request(call, request) && curl_multi_add_handle(caller->multi, call->easy) == CURLM_OK;
    if (!call->runs)
        call_release(call);
    return call->runs;
}

/* Names what went wrong; nothing of the answer but its status. */
static void set_error(const struct webhook_call *call, CURLcode result, struct webhook_answer *answer)
{
    const char *why = call->error[0] ? call->error : curl_easy_strerror(result);
    if (call->address_refused && result != CURLE_OK)
        why = "the host has an address that is not allowed (webhook_hosts, webhook_private)";
    else if (call->cut)
        why = "the headers of the answer are longer than 4 KiB";
    if (!call->answered)
        snprintf(answer->error, sizeof answer->error, "%s", why);
    else if (answer->status >= 300 && answer->status < 400)
        snprintf(answer->error, sizeof answer->error, "HTTP %u: redirects are not followed", answer->status);
    else if (answer->status < 200 || answer->status >= 300)
        snprintf(answer->error, sizeof answer->error, "HTTP %u", answer->status);
    else
        answer->error[0] = '\0';
}

/* ---- all calls ---- */

struct webhook_caller *webhook_caller_new(const struct webhook_policy *policy)
{
    struct webhook_caller *caller = calloc(1, sizeof *caller);
    outgoing_begin();
    if (!caller)
        return NULL;
    caller->policy = policy;
    caller->multi = curl_multi_init();
    if (caller->multi)
        return caller;
    free(caller);
    return NULL;
}

void webhook_caller_free(struct webhook_caller *caller)
{
    if (!caller)
        return;
    for (size_t i = 0; i < WEBHOOKS_MAX; i++) {
        struct webhook_call *call = &caller->calls[i];
        if (!call->easy)
            continue;
        (void)curl_multi_remove_handle(caller->multi, call->easy);
        curl_easy_cleanup(call->easy);
        call_release(call);
    }
    (void)curl_multi_cleanup(caller->multi);
    free(caller);
}

void webhook_caller_run(struct webhook_caller *caller, int timeout_ms)
{
    int ignored;
    (void)curl_multi_poll(caller->multi, NULL, 0, timeout_ms, NULL);
    (void)curl_multi_perform(caller->multi, &ignored);
}

bool webhook_caller_next(struct webhook_caller *caller, struct webhook_answer *ret_answer)
{
    int ignored;
    struct webhook_call *call;
    long status = 0;
    const CURLMsg *message = curl_multi_info_read(caller->multi, &ignored);
    if (!message)
        return false;
    CURLcode result = message->data.result;
    (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&call);
    (void)curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_multi_remove_handle(caller->multi, call->easy);
    ret_answer->context = call->context;
    ret_answer->status = call->answered ? (unsigned)status : 0;
    set_error(call, result, ret_answer);
    call_release(call);
    return true;
}
