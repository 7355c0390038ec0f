/* SPDX-License-Identifier: MIT */
#include "client/http.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { ANSWER_MAX_BYTES = 64 * 1024 * 1024, CONNECT_TIMEOUT_MS = 5000, POLL_MS = 1000, KEEPALIVE_SECONDS = 20 };

struct http {
    CURL *easy;
    CURLM *multi;
    struct curl_slist *headers_bare;
    struct curl_slist *headers_body;
    char *url;
    struct buf target;
    unsigned sends; /* of the exchange that runs */
};

static void curl_set_up(void)
{
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* No descriptor of ours reaches a program that the caller starts. */
static curl_socket_t socket_open(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)context;
    (void)purpose;
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* Called each time before a request goes out, also when libcurl repeats one on its own. */
static int count_send(void *context, char *remote_ip, char *local_ip, int remote_port, int local_port)
{
    (void)remote_ip, (void)local_ip, (void)remote_port, (void)local_port;
    ((struct http *)context)->sends++;
    return CURL_PREREQFUNC_OK;
}

static size_t take_body(char *data, size_t size, size_t count, void *context)
{
    struct http_reply *reply = context;
    buf_append(&reply->body, data, size * count);
    return reply->body.broken ? 0 : size * count;
}

static bool url_is_usable(const char *url)
{
    CURLU *parts = curl_url();
    char *scheme = NULL;
    bool usable = parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
                  curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                  (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0);
    curl_free(scheme);
    curl_url_cleanup(parts);
    return usable;
}

/* Appends a line to both lists of headers; false: no memory. */
static bool add_header(struct http *http, const char *bare, const char *with_body)
{
    struct curl_slist *longer = bare ? curl_slist_append(http->headers_bare, bare) : http->headers_bare;
    if (bare && !longer)
        return false;
    http->headers_bare = longer;
    longer = curl_slist_append(http->headers_body, with_body);
    if (longer)
        http->headers_body = longer;
    return longer != NULL;
}

static bool add_headers(struct http *http, const char *token)
{
    /* An empty value tells libcurl to leave out a header that it would send by itself. */
    if (!add_header(http, "Content-Type:", "Content-Type: application/json") || !add_header(http, NULL, "Expect:"))
        return false;
    if (!token || !*token)
        return true;
    struct buf line;
    buf_init(&line, 16 * 1024);
    buf_printf(&line, "Authorization: Bearer %s", token);
    bool added = !line.broken && add_header(http, line.data, line.data);
    buf_release(&line);
    return added;
}

static void set_lasting_options(struct http *http)
{
    CURL *easy = http->easy;
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS,
                     1L); /* "." and ".." are names like others, to be refused by the server */
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "libpermit/" PERMIT_VERSION);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_TIMEOUT_MS);
    /* While a call waits the connection is silent: so that what stands between does not forget it, and that a machine
     * which has vanished is noticed. */
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, (long)KEEPALIVE_SECONDS);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, (long)KEEPALIVE_SECONDS / 2);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, socket_open);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, count_send);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, http);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
}

struct http *http_new(const char *url, const char *token)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, curl_set_up);
    struct http *http = url_is_usable(url) ? calloc(1, sizeof(*http)) : NULL;
    if (!http)
        return NULL;
    buf_init(&http->target, 16 * 1024);
    http->url = strdup(url);
    http->easy = curl_easy_init();
    http->multi = curl_multi_init();
    if (!http->url || !http->easy || !http->multi || !add_headers(http, token)) {
        http_free(http);
        return NULL;
    }
    for (size_t length = strlen(url); length > 0 && url[length - 1] == '/'; length--)
        http->url[length - 1] = '\0';
    set_lasting_options(http);
    return http;
}

void http_free(struct http *http)
{
    if (!http)
        return;
    if (http->easy)
        curl_easy_cleanup(http->easy);
    if (http->multi)
        curl_multi_cleanup(http->multi);
    curl_slist_free_all(http->headers_bare);
    curl_slist_free_all(http->headers_body);
    buf_release(&http->target);
    free(http->url);
    free(http);
}

static void set_call(struct http *http, const struct http_call *call, struct http_reply *reply)
{
    CURL *easy = http->easy;
    bool get = strcmp(call->method, "GET") == 0;
    bool has_body = call->body != NULL || strcmp(call->method, "POST") == 0 || strcmp(call->method, "PUT") == 0;
    buf_clear(&http->target);
    buf_printf(&http->target, "%s%s", http->url, call->path);
    curl_easy_setopt(easy, CURLOPT_URL, buf_text(&http->target));
    if (has_body) {
        curl_easy_setopt(easy, CURLOPT_POST, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body ? call->body : "");
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)(call->body ? strlen(call->body) : 0));
    } else {
        curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
    }
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, get ? NULL : call->method);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->body ? http->headers_body : http->headers_bare);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)call->timeout_ms);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, reply);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, reply->error);
}

/* Runs the exchange to its end. False: cancel_fd became readable first. */
static bool drive(struct http *http, int cancel_fd)
{
    struct curl_waitfd cancel = {.fd = cancel_fd, .events = CURL_WAIT_POLLIN};
    int running = 1;
    while (curl_multi_perform(http->multi, &running) == CURLM_OK && running) {
        cancel.revents = 0;
        if (curl_multi_poll(http->multi, &cancel, cancel_fd >= 0, POLL_MS, NULL) != CURLM_OK)
            break;
        if (cancel.revents)
            return false;
    }
    return true;
}

static CURLcode exchange_result(struct http *http)
{
    int left;
    CURLMsg *message = curl_multi_info_read(http->multi, &left);
    return message && message->msg == CURLMSG_DONE ? message->data.result : CURLE_FAILED_INIT;
}

static void take_answer(struct http *http, struct http_reply *reply)
{
    long status = 0;
    curl_off_t seconds = 0;
    (void)curl_easy_getinfo(http->easy, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(http->easy, CURLINFO_RETRY_AFTER, &seconds);
    reply->status = (int)status;
    reply->retry_after_ms = min_i64(seconds, 86400) * MS_PER_SECOND;
}

void http_exchange(struct http *http, const struct http_call *call, struct http_reply *reply)
{
    buf_clear(&reply->body);
    reply->status = 0;
    reply->retry_after_ms = 0;
    reply->error[0] = '\0';
    http->sends = 0;
    set_call(http, call, reply);
    CURLcode result = CURLE_FAILED_INIT;
    reply->cancelled = false;
    if (http->target.broken) {
        result = CURLE_URL_MALFORMAT;
    } else if (curl_multi_add_handle(http->multi, http->easy) == CURLM_OK) {
        reply->cancelled = !drive(http, call->cancel_fd);
        result = exchange_result(http);
        (void)curl_multi_remove_handle(http->multi, http->easy);
    }
    reply->sent = http->sends > 0;
    reply->sent_twice = http->sends > 1;
    if (reply->cancelled)
        (void)snprintf(reply->error, sizeof(reply->error), "cancelled");
    else if (result == CURLE_OK)
        take_answer(http, reply);
    else if (!reply->error[0])
        (void)snprintf(reply->error, sizeof(reply->error), "%s", curl_easy_strerror(result));
}

void http_reply_init(struct http_reply *reply)
{
    *reply = (struct http_reply){.status = 0};
    buf_init(&reply->body, ANSWER_MAX_BYTES);
}

void http_reply_release(struct http_reply *reply)
{
    buf_release(&reply->body);
}
