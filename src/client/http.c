/* SPDX-License-Identifier: MIT */
#include "client/http.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/credential.h"
#include "permit/permit.h"

enum {
    ANSWER_MAX_BYTES = 64 * 1024 * 1024,
    CONNECT_TIMEOUT_MS = 5000,
    POLL_MS = 1000,
    KEEPALIVE_SECONDS = 4, /* a silent connection is probed after this time */
    UNANSWERED_MS = 8000,  /* a connection is broken if the other machine has not answered for this time: less than the
                              time for which the place of a waiting request is kept */
    CA_CACHE_SECONDS = 60, /* libcurl keeps the authorities that it has read for so long */
};

/* The host of a Unix socket in the header Host, which permitd always accepts. */
#define UNIX_URL "http://localhost"

struct http {
    CURL *easy;
    CURLM *multi;
    struct curl_slist *headers_bare;
    struct curl_slist *headers_body;
    char *url;
    char *shown_url; /* without user and password */
    char *address;   /* like shown_url, with the port, and with the host in lower case */
    char *socket;    /* path of a Unix socket; NULL: none */
    bool is_clear;   /* http to another machine */
    bool has_token;
    bool has_password; /* in the url */
    struct buf target;
    pid_t process;   /* that created it */
    bool unanswered; /* the last exchange had no answer: its connection may be dead */
    unsigned sends;  /* requests sent in the current exchange */
};

static void curl_set_up(void)
{
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

/*
 * Opens the socket close-on-exec: programs that the caller starts do not inherit it. TCP finds out soon that the other
 * machine is gone; without TCP_USER_TIMEOUT it would try for a quarter of an hour.
 */
static curl_socket_t socket_open(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)context;
    (void)purpose;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    unsigned unanswered_ms = UNANSWERED_MS;
    if (fd >= 0) /* a socket that is not TCP refuses this */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
    return fd;
}

/* libcurl calls this before each request that it sends, also when it repeats one by itself. */
static int count_send(void *context, char *remote_ip, char *local_ip, int remote_port, int local_port)
{
    (void)remote_ip, (void)local_ip, (void)remote_port, (void)local_port;
    ((struct http *)context)->sends++;
    return CURL_PREREQFUNC_OK;
}

static size_t append_body(char *data, size_t size, size_t count, void *context)
{
    struct http_reply *reply = context;
    buf_append(&reply->body, data, size * count);
    return reply->body.broken ? 0 : size * count;
}

static void trim_slashes(char *url)
{
    for (size_t length = strlen(url); length > 0 && url[length - 1] == '/'; length--)
        url[length - 1] = '\0';
}

/* Returns the url without user and password; the caller frees it. NULL: out of memory. */
static char *without_password(CURLU *parts, unsigned flags)
{
    char *url = NULL;
    if (curl_url_set(parts, CURLUPART_USER, NULL, 0) != CURLUE_OK ||
        curl_url_set(parts, CURLUPART_PASSWORD, NULL, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_URL, &url, flags) != CURLUE_OK)
        return NULL;
    char *shown = strdup(url);
    curl_free(url);
    if (shown)
        trim_slashes(shown);
    return shown;
}

/* Returns true if a connection to this host does not leave the machine. */
static bool host_is_local(const char *host)
{
    static const char domain[] = ".localhost";
    struct in_addr address;
    size_t length = strlen(host);
    if (inet_pton(AF_INET, host, &address) == 1)
        return (ntohl(address.s_addr) >> 24) == 127;
    return strcasecmp(host, domain + 1) == 0 || strcmp(host, "[::1]") == 0 ||
           (length >= sizeof(domain) && strcasecmp(host + length - strlen(domain), domain) == 0);
}

/*
 * Accepts http and https without query and fragment, so that a path can be appended; and "unix:" with an absolute path
 * that fits into an address.
 */
static enum permit_status set_url(struct http *http, const char *url)
{
    if (strncmp(url, "unix:", strlen("unix:")) == 0) {
        const char *path = url + strlen("unix:");
        struct sockaddr_un address;
        if (*path != '/' || strpbrk(path, "?#") || strlen(path) >= sizeof(address.sun_path))
            return PERMIT_INVALID;
        http->url = strdup(UNIX_URL);
        http->shown_url = strdup(url);
        http->address = strdup(url);
        http->socket = strdup(path);
        return http->url && http->shown_url && http->address && http->socket ? PERMIT_OK : PERMIT_NO_MEMORY;
    }
    char *scheme = NULL, *host = NULL, *user = NULL, *password = NULL;
    CURLU *parts = curl_url();
    if (!parts)
        return PERMIT_NO_MEMORY;
    enum permit_status status = PERMIT_INVALID;
    if (!strpbrk(url, "?#") && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
        (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0))
        status = curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK ? PERMIT_OK : PERMIT_NO_MEMORY;
    if (!status) {
        http->is_clear = strcmp(scheme, "http") == 0 && !host_is_local(host);
        http->has_password = curl_url_get(parts, CURLUPART_USER, &user, 0) == CURLUE_OK ||
                             curl_url_get(parts, CURLUPART_PASSWORD, &password, 0) == CURLUE_OK;
        http->url = strdup(url);
        http->shown_url = without_password(parts, 0);
        http->address = without_password(parts, CURLU_DEFAULT_PORT);
        status = http->url && http->shown_url && http->address ? PERMIT_OK : PERMIT_NO_MEMORY;
    }
    if (!status) {
        trim_slashes(http->url);
        for (char *at = strstr(http->address, "://") + 3; *at && *at != '/'; at++)
            *at = (char)tolower((unsigned char)*at);
    }
    curl_free(scheme);
    curl_free(host);
    curl_free(user);
    curl_free(password);
    curl_url_cleanup(parts);
    return status;
}

/* Appends a line, NULL: none. Returns false if out of memory. */
static bool add_header(struct curl_slist **list, const char *line)
{
    struct curl_slist *longer = line ? curl_slist_append(*list, line) : *list;
    if (longer)
        *list = longer;
    return !line || longer;
}

enum permit_status http_set_token(struct http *http, const char *token)
{
    struct curl_slist *bare = NULL, *body = NULL;
    char line[sizeof("Authorization: Bearer ") + TOKEN_MAX_BYTES];
    const char *authorization = token ? line : NULL;
    (void)snprintf(line, sizeof(line), "Authorization: Bearer %s", token ? token : "");
    /* An empty value makes libcurl omit a header that it sends by default. */
    bool added = add_header(&bare, "Content-Type:") && add_header(&bare, authorization) &&
                 add_header(&body, "Content-Type: application/json") && add_header(&body, "Expect:") &&
                 add_header(&body, authorization);
    explicit_bzero(line, sizeof(line));
    curl_slist_free_all(added ? http->headers_bare : bare);
    curl_slist_free_all(added ? http->headers_body : body);
    if (!added)
        return PERMIT_NO_MEMORY;
    http->headers_bare = bare;
    http->headers_body = body;
    http->has_token = token != NULL;
    return PERMIT_OK;
}

/* libcurl copies the strings. Returns false if out of memory. */
static bool set_options(struct http *http, const struct http_options *options)
{
    CURL *easy = http->easy;
    bool set = !http->socket || curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, http->socket) == CURLE_OK;
    if (options->ca) /* and no other authority, so also none of libcurl's default directory */
        set = set && curl_easy_setopt(easy, CURLOPT_CAINFO, options->ca) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_CAPATH, NULL) == CURLE_OK;
    if (options->cert) /* a key with a passphrase fails: it is never asked for */
        set = set && curl_easy_setopt(easy, CURLOPT_SSLCERT, options->cert) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_SSLKEY, options->key ? options->key : options->cert) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_KEYPASSWD, "") == CURLE_OK;
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    /* "." and ".." are names like others; the server refuses them. */
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, (long)CA_CACHE_SECONDS);
#endif
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "libpermit/" PERMIT_VERSION);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_TIMEOUT_MS);
    /*
     * The connection is silent while a call waits. Keep-alive stops middleboxes from dropping it, and detects a lost
     * machine.
     */
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, (long)KEEPALIVE_SECONDS);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, (long)KEEPALIVE_SECONDS / 2);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, socket_open);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, count_send);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, http);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, append_body);
    return set;
}

size_t permit_path_encode(const char *word, char *to, size_t size)
{
    char *encoded = curl_easy_escape(NULL, word, 0);
    size_t length = encoded ? strlen(encoded) : 0;
    length = length < size ? length : 0;
    if (size)
        (void)snprintf(to, size, "%.*s", (int)length, encoded ? encoded : "");
    curl_free(encoded);
    return length;
}

enum permit_status http_new(const struct http_options *options, struct http **ret_http)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, curl_set_up);
    struct http *http = calloc(1, sizeof(*http));
    if (!http)
        return PERMIT_NO_MEMORY;
    buf_init(&http->target, 16 * 1024);
    http->process = getpid();
    enum permit_status status = set_url(http, options->url);
    if (!status)
        status = http_set_token(http, options->token);
    if (!status) {
        http->easy = curl_easy_init();
        http->multi = curl_multi_init();
        status = http->easy && http->multi && set_options(http, options) ? PERMIT_OK : PERMIT_NO_MEMORY;
    }
    if (status) {
        http_free(http);
        return status;
    }
    *ret_http = http;
    return PERMIT_OK;
}

void http_free(struct http *http)
{
    if (!http)
        return;
    if (http_is_ours(http)) { /* else libcurl would send on a connection of the parent */
        curl_easy_cleanup(http->easy);
        curl_multi_cleanup(http->multi);
    }
    curl_slist_free_all(http->headers_bare);
    curl_slist_free_all(http->headers_body);
    buf_release(&http->target);
    free(http->url);
    free(http->shown_url);
    free(http->address);
    free(http->socket);
    free(http);
}

const char *http_url(const struct http *http)
{
    return http->shown_url;
}

bool http_exposes_credential(const struct http *http)
{
    return http->is_clear && (http->has_token || http->has_password);
}

bool http_same_server(const struct http *a, const struct http *b)
{
    return strcmp(a->address, b->address) == 0;
}

bool http_is_ours(const struct http *http)
{
    return http->process == getpid();
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
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, (long)http->unanswered);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, reply);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, reply->error);
}

/*
 * Runs the exchange until it ends (HTTP_ANSWERED, also without an answer), its time has passed, or cancel_fd is
 * readable. libcurl's own timeout does not count the time while the machine is suspended, and is at most INT_MAX.
 */
static enum http_end run_exchange(struct http *http, const struct http_call *call)
{
    struct curl_waitfd cancel = {.fd = call->cancel_fd, .events = CURL_WAIT_POLLIN};
    boot_us end = moment_after(clock_boot(), call->timeout_ms);
    int running = 1;
    while (curl_multi_perform(http->multi, &running) == CURLM_OK && running) {
        int64_t left_ms = (end - clock_boot() + US_PER_MS - 1) / US_PER_MS;
        if (left_ms <= 0)
            return HTTP_TIMED_OUT;
        cancel.revents = 0;
        if (curl_multi_poll(http->multi, &cancel, call->cancel_fd >= 0, (int)min_i64(left_ms, POLL_MS), NULL) !=
            CURLM_OK)
            break;
        if (cancel.revents)
            return HTTP_CANCELLED;
    }
    return HTTP_ANSWERED;
}

/* Returns true if the server has ended the handshake because of this client's certificate, or because it has none. */
static bool client_is_refused(CURLcode result, const char *error)
{
    bool in_handshake = result == CURLE_SSL_CONNECT_ERROR || result == CURLE_RECV_ERROR || result == CURLE_SEND_ERROR;
    return in_handshake && strstr(error, " alert ") && (strstr(error, "certificate") || strstr(error, "unknown ca"));
}

/* Writes the certificate or file in question before libcurl's reason, and a hint behind it. */
static void explain_tls(struct http *http, CURLcode result, struct http_reply *reply)
{
    enum { NO_ISSUER = 20, NO_LEAF_ISSUER = 21, SELF_SIGNED = 18, SELF_SIGNED_IN_CHAIN = 19 }; /* X509_V_ERR_... */
    static const char *const prefixes[] = {"SSL certificate problem: ", "SSL: "};
    const char *before = "", *after = "";
    char why[sizeof(reply->error)];
    long verified = 0;
    (void)snprintf(why, sizeof(why), "%s", reply->error);
    reply->end = HTTP_UNTRUSTED;
    if (result == CURLE_PEER_FAILED_VERIFICATION) {
        (void)curl_easy_getinfo(http->easy, CURLINFO_SSL_VERIFYRESULT, &verified);
        before = "the server's certificate is refused: ";
        if (verified == NO_ISSUER || verified == NO_LEAF_ISSUER || verified == SELF_SIGNED ||
            verified == SELF_SIGNED_IN_CHAIN)
            after = "; the option ca names the file of its authority";
        else if (strstr(why, "match")) /* no name of the certificate is that of the host */
            after = "; use a URL with a name of the certificate, or give the server one with this name";
    } else if (result == CURLE_SSL_CERTPROBLEM) {
        before = "the certificate or key of this client cannot be used: ";
    } else if (result == CURLE_SSL_CACERT_BADFILE) {
        before = "the file of authorities cannot be used: ";
    } else if (client_is_refused(result, why)) {
        before = "the server refuses the certificate of this client, or requires one: ";
    } else {
        reply->end = HTTP_FAILED;
        if (result == CURLE_SSL_CONNECT_ERROR && strstr(why, "wrong version number"))
            after = "; the server may speak http, not https";
    }
    const char *rest = why;
    for (size_t i = 0; i < ARRAY_LENGTH(prefixes); i++)
        if (strncmp(rest, prefixes[i], strlen(prefixes[i])) == 0)
            rest += strlen(prefixes[i]);
    (void)snprintf(reply->error, sizeof(reply->error), "%s%.*s%s", before,
                   (int)(sizeof(reply->error) - strlen(before) - strlen(after) - 1), rest, after);
}

/* Describes an exchange that libcurl has ended without an answer. */
static void read_failure(struct http *http, CURLcode result, struct http_reply *reply)
{
    long error = 0;
    if (result == CURLE_COULDNT_CONNECT)
        (void)curl_easy_getinfo(http->easy, CURLINFO_OS_ERRNO, &error);
    reply->os_error = (int)error;
    if (!reply->error[0])
        (void)snprintf(reply->error, sizeof(reply->error), "%s", curl_easy_strerror(result));
    if (result == CURLE_COULDNT_CONNECT && http->socket) /* libcurl's text has the host and port of UNIX_URL */
        (void)snprintf(reply->error, sizeof(reply->error), "cannot connect to the socket%s%s%s", error ? ": " : "",
                       error ? strerror((int)error) : "",
                       error == EACCES ? ": this user may not use the socket, or may not enter its directory" : "");
    explain_tls(http, result, reply);
    /* Nothing is carried out before the handshake has succeeded; TLS 1.3 lets a client send its request earlier. */
    if (reply->end == HTTP_UNTRUSTED)
        reply->sends = 0;
}

void http_reply_clear(struct http_reply *reply)
{
    struct buf body = reply->body;
    buf_clear(&body);
    *reply = (struct http_reply){.body = body};
}

void http_exchange(struct http *http, const struct http_call *call, struct http_reply *reply)
{
    CURLcode result = CURLE_URL_MALFORMAT;
    http_reply_clear(reply);
    http->sends = 0;
    set_call(http, call, reply);
    if (!http->target.broken && curl_multi_add_handle(http->multi, http->easy) == CURLM_OK) {
        reply->end = run_exchange(http, call);
        int left;
        const CURLMsg *message = curl_multi_info_read(http->multi, &left);
        result = message && message->msg == CURLMSG_DONE ? message->data.result : CURLE_FAILED_INIT;
        (void)curl_multi_remove_handle(http->multi, http->easy);
    }
    reply->sends = http->sends;
    if (reply->end == HTTP_CANCELLED) {
        (void)snprintf(reply->error, sizeof(reply->error), "cancelled");
    } else if (reply->end == HTTP_TIMED_OUT) {
        (void)snprintf(reply->error, sizeof(reply->error), "no answer within %lld ms", (long long)call->timeout_ms);
    } else if (result != CURLE_OK) {
        read_failure(http, result, reply);
    } else {
        long status = 0;
        curl_off_t seconds = 0;
        (void)curl_easy_getinfo(http->easy, CURLINFO_RESPONSE_CODE, &status);
        (void)curl_easy_getinfo(http->easy, CURLINFO_RETRY_AFTER, &seconds);
        reply->status = (int)status;
        reply->retry_after_ms = min_i64(seconds, 86400) * MS_PER_SECOND;
    }
    http->unanswered = reply->status == 0;
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
