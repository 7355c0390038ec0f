/* SPDX-License-Identifier: MIT */
/*
 * One HTTP exchange at a time over a kept connection. The only file that uses libcurl. It knows nothing of permits and
 * never repeats an exchange by itself. If libcurl repeats one (a kept connection turned out dead), the reply says so.
 */
#ifndef CLIENT_HTTP_H
#define CLIENT_HTTP_H

#include "base/base.h"
#include "base/buf.h"
#include "permit/status.h"

struct http;

struct http_call {
    const char *method;
    const char *path;   /* begins with "/" */
    const char *body;   /* JSON; NULL: none */
    int64_t timeout_ms; /* on clock_boot */
    int cancel_fd;      /* the exchange ends when it becomes readable; it is never read; -1: none */
};

enum http_end {
    HTTP_FAILED, /* no connection, or it broke; see `error` and `os_error` */
    HTTP_ANSWERED,
    HTTP_TIMED_OUT, /* no answer within timeout_ms */
    HTTP_CANCELLED,
    HTTP_UNTRUSTED, /* TLS: the certificate of the server or of this client was refused, or cannot be used */
};

struct http_reply {
    enum http_end end;
    int status; /* HTTP status; 0: no answer, see `error` */
    struct buf body;
    int64_t retry_after_ms; /* from Retry-After; 0: none */
    unsigned sends; /* requests of which a part may have reached the server; 2: libcurl has repeated the first one */
    int os_error;   /* errno of a failed connect; 0: another failure, or none */
    char error[256];
};

/* The strings are copied; all but `url` may be NULL. */
struct http_options {
    const char *url;
    const char *token; /* printable ASCII without space, at most TOKEN_MAX_BYTES */
    const char *ca;    /* file of authorities; NULL: those of the machine */
    const char *cert;  /* file of this client's certificate */
    const char *key;   /* file of its key; NULL: it is in the file of the certificate */
};

/*
 * PERMIT_INVALID: the url is not http(s)://host... or unix:/path, or has a query or fragment. PERMIT_NO_MEMORY. Reads
 * the files when it connects.
 */
enum permit_status http_new(const struct http_options *options, struct http **ret_http) MUST_CHECK;
/* Replaces the token for later exchanges. PERMIT_NO_MEMORY: unchanged. */
enum permit_status http_set_token(struct http *http, const char *token) MUST_CHECK;
/* Accepts NULL. In a child of fork the connections stay open: they belong to the parent. */
void http_free(struct http *http);
/* The url without user and password, for messages. */
const char *http_url(const struct http *http);
/* Returns true if a token or a password is sent to another machine without TLS. */
bool http_exposes_credential(const struct http *http);
/* Returns true if both urls lead to the same host, port and path; the text of two host names is compared. */
bool http_same_server(const struct http *a, const struct http *b);
/* Returns false in a child of fork: parent and child would get each other's answers on a shared connection. */
bool http_is_ours(const struct http *http);
/*
 * Runs one exchange and overwrites `reply`, which http_reply_init has set up. After an exchange without an answer the
 * next one opens a new connection.
 */
void http_exchange(struct http *http, const struct http_call *call, struct http_reply *reply);

void http_reply_init(struct http_reply *reply);
/* Resets the reply to its state before the first exchange. */
void http_reply_clear(struct http_reply *reply);
void http_reply_release(struct http_reply *reply);
#endif
