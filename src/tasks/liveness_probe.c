/* SPDX-License-Identifier: MIT */
#include "tasks/liveness_probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/log.h"
#include "tasks/outgoing.h"

enum {
    CALLS_MAX = 16,       /* calls that run at the same time */
    TIMEOUT_MS = 5000,    /* of a call, from the look-up of the host to the end of the answer */
    STOP_CHECK_MS = 100,  /* longest delay until a stop is noticed */
    ANSWER_MAX = 1 << 20, /* bytes of headers and body */
    URL_MAX = 16 * 1024,
    FILLED_URL_MAX = 64 * 1024, /* with the owner in place of PLACEHOLDER */
};

#define PLACEHOLDER "{owner}"

struct probe {
    char *url;     /* contains PLACEHOLDER */
    char *ca_file; /* NULL: the certificates of the system */
    bool in_path;  /* PLACEHOLDER is in the path, not only in the query */
    bool loopback; /* the host is this machine, so no proxy is used */
    bool failing;  /* the last calls were not answered, which is logged */
};

struct probe_call {
    CURL *easy;                      /* NULL: not used yet */
    struct probe_question *question; /* NULL: idle */
    size_t received;                 /* bytes of the answer */
    char error[CURL_ERROR_SIZE];
};

/* ---- the settings ---- */

static bool is_loopback(const char *host)
{
    struct in_addr address;
    if (inet_pton(AF_INET, host, &address) == 1)
        return ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET;
    return strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0;
}

/* Returns the fault of the URL; NULL: it is valid. libcurl alone accepts more than the documentation says. */
static const char *url_fault(const char *url, bool *ret_loopback)
{
    size_t scheme = strncasecmp(url, "http://", 7) == 0 ? 7 : strncasecmp(url, "https://", 8) == 0 ? 8 : 0;
    const char *target = url + scheme + strcspn(url + scheme, "/?");
    char *host = NULL, *port = NULL;
    if (!scheme)
        return "must begin with http:// or https://";
    if (target == url + scheme)
        return "missing host";
    if (strlen(url) > URL_MAX)
        return "longer than 16 KiB";
    if (strchr(url, '#'))
        return "a fragment is not allowed";
    if (!strstr(target, PLACEHOLDER) || strstr(url, PLACEHOLDER) < target)
        return PLACEHOLDER " must be in the path or query";
    CURLU *parts = curl_url();
    CURLUcode code = curl_url_set(parts, CURLUPART_URL, url, CURLU_DISALLOW_USER);
    if (!code)
        code = curl_url_get(parts, CURLUPART_HOST, &host, 0);
    if (!code)
        code = curl_url_get(parts, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT);
    if (!code && strtoul(port, NULL, 10) == 0)
        code = CURLUE_BAD_PORT_NUMBER;
    if (!code)
        *ret_loopback = is_loopback(host);
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(parts);
    return code ? curl_url_strerror(code) : NULL;
}

struct probe *probe_new(const char *url, const char *ca_file, struct buf *message)
{
    outgoing_begin();
    bool has_ca = ca_file && *ca_file;
    struct probe *probe = calloc(1, sizeof *probe);
    if (!probe || !(probe->url = strdup(url)) || (has_ca && !(probe->ca_file = strdup(ca_file)))) {
        buf_append_text(message, "liveness_url: no memory");
        probe_free(probe);
        return NULL;
    }
    probe->in_path = memmem(url, strcspn(url, "?"), PLACEHOLDER, strlen(PLACEHOLDER)) != NULL;
    const char *fault = url_fault(url, &probe->loopback);
    if (fault)
        buf_printf(message, "liveness_url: %s", fault);
    else if (has_ca && access(ca_file, R_OK) != 0)
        buf_printf(message, "liveness_ca: cannot read %s: %s", ca_file, strerror(errno));
    else
        return probe;
    probe_free(probe);
    return NULL;
}

void probe_free(struct probe *probe)
{
    if (!probe)
        return;
    free(probe->url);
    free(probe->ca_file);
    free(probe);
}

/* ---- one call ---- */

/* Counts headers and body, and keeps nothing. Ends the call if it is too long. */
static size_t count_received(char *data, size_t size, size_t count, void *context)
{
    struct probe_call *call = context;
    (void)data;
    call->received += size * count;
    return call->received <= ANSWER_MAX ? size * count : 0;
}

static CURL *call_open(struct probe_call *call, const struct probe *probe)
{
    CURL *easy = outgoing_new(call, call->error, count_received, TIMEOUT_MS);
    if (!easy)
        return NULL;
    if (probe->loopback) /* for other hosts, http_proxy, https_proxy and no_proxy in the environment count */
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
    if (probe->ca_file) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, probe->ca_file);
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL); /* no certificates of the system */
    }
    return easy;
}

/*
 * Returns true if the name can be one segment of a path. Encoded as %2F, a slash leads many services and proxies to
 * another path; `.` and `..` cannot be encoded at all. An owner could choose such a name to be judged by the answer
 * to another URL.
 */
static bool is_segment(struct bytes name)
{
    return !memchr(name.data, '/', name.length) && !memchr(name.data, '\\', name.length) &&
           !bytes_equal(name, BYTES(".")) && !bytes_equal(name, BYTES(".."));
}

static void append_url(struct buf *out, const char *url, const char *owner)
{
    for (const char *at; (at = strstr(url, PLACEHOLDER)); url = at + strlen(PLACEHOLDER)) {
        buf_append(out, url, (size_t)(at - url));
        buf_append_text(out, owner);
    }
    buf_append_text(out, url);
}

/* False: no memory, or the URL is too long with this owner in it. */
static bool call_begin(struct probe_call *call, const struct probe *probe, CURLM *multi,
                       struct probe_question *question)
{
    struct buf url;
    if (!call->easy)
        call->easy = call_open(call, probe);
    /* All but letters, digits and - . _ ~ becomes %XX. */
    char *owner = curl_easy_escape(call->easy, question->owner.data, (int)question->owner.length);
    call->received = 0;
    call->error[0] = '\0';
    buf_init(&url, FILLED_URL_MAX);
    if (owner)
        append_url(&url, probe->url, owner);
    bool begun = call->easy && owner && !url.broken &&
                 curl_easy_setopt(call->easy, CURLOPT_URL, buf_text(&url)) == CURLE_OK &&
                 curl_multi_add_handle(multi, call->easy) == CURLM_OK;
    call->question = begun ? question : NULL;
    buf_release(&url);
    curl_free(owner);
    return begun;
}

/* Sets the answer. Returns the reason if there was none; NULL: the call was answered. */
static const char *call_end(struct probe_call *call, CURLM *multi, CURLcode result)
{
    long status = 0;
    (void)curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    if (result == CURLE_OK && status == 200)
        call->question->ret_answer = PROBE_ALIVE;
    else if (result == CURLE_OK && (status == 404 || status == 410))
        call->question->ret_answer = PROBE_DEAD;
    call->question = NULL;
    (void)curl_multi_remove_handle(multi, call->easy);
    if (result == CURLE_OK)
        return NULL;
    return call->error[0] ? call->error : curl_easy_strerror(result);
}

/* ---- all calls ---- */

/* Logs when no call was answered, and when one is answered again. `error`: of the last failed call. */
static void log_change(struct probe *probe, bool failing, const char *error)
{
    if (failing && !probe->failing)
        log_write(LOG_WARN, "no answer from liveness_url", "error", error, NULL);
    else if (!failing && probe->failing)
        log_write(LOG_INFO, "liveness_url answers again", NULL);
    probe->failing = failing;
}

/*
 * Connections end with the call of this function, so the two answers that end a request come over different ones.
 */
void probe_ask_all(void *context, struct probe_question *questions, size_t count, const atomic_bool *stopping)
{
    struct probe *probe = context;
    struct probe_call calls[CALLS_MAX] = {0};
    CURLM *multi = curl_multi_init();
    size_t next = 0, running = 0, askable = 0, answered = 0;
    const char *error = "no memory";
    int ignored;
    for (size_t i = 0; i < count; i++)
        questions[i].ret_answer = PROBE_UNKNOWN;
    for (;;) {
        for (size_t i = 0; i < CALLS_MAX; i++)
            while (!calls[i].question && next < count) {
                struct probe_question *question = &questions[next++];
                if (probe->in_path && !is_segment(question->owner))
                    continue;
                askable++;
                running += call_begin(&calls[i], probe, multi, question);
            }
        if (!running || atomic_load(stopping) || curl_multi_poll(multi, NULL, 0, STOP_CHECK_MS, NULL) ||
            curl_multi_perform(multi, &ignored))
            break;
        for (const CURLMsg *message; (message = curl_multi_info_read(multi, &ignored)); running--) {
            struct probe_call *call;
            (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&call);
            const char *failure = call_end(call, multi, message->data.result);
            error = failure ? failure : error;
            answered += !failure;
        }
    }
    if (askable && !atomic_load(stopping))
        log_change(probe, answered == 0, error);
    for (size_t i = 0; i < CALLS_MAX; i++) {
        if (!calls[i].easy)
            continue;
        (void)curl_multi_remove_handle(multi, calls[i].easy);
        curl_easy_cleanup(calls[i].easy);
    }
    (void)curl_multi_cleanup(multi);
}
