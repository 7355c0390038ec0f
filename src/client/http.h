/* SPDX-License-Identifier: MIT */
/*
 * One HTTP exchange at a time over a kept connection; the only file that speaks to libcurl. Knows nothing of permits
 * and never repeats anything on its own account; where libcurl does (a kept connection that turned out dead), the reply
 * says so.
 */
#ifndef CLIENT_HTTP_H
#define CLIENT_HTTP_H

#include "base/base.h"
#include "base/buf.h"
#include "permit/status.h"

struct http;

struct http_call {
    const char *method;
    const char *path;   /* from "/" on */
    const char *body;   /* JSON; NULL: none */
    int64_t timeout_ms; /* by clock_boot */
    int cancel_fd;      /* -1: none; ends the exchange when it becomes readable; not read */
};

struct http_reply {
    int status; /* HTTP status; 0: no answer, `error` says why */
    struct buf body;
    int64_t retry_after_ms; /* 0: not said */
    bool sent;              /* the request, or a part of it, may have reached the server */
    bool sent_twice;        /* libcurl repeated it: the first copy may have been carried out */
    bool timed_out;         /* no answer in its time */
    bool cancelled;
    char error[256];
};

/*
 * Strings are copied. PERMIT_INVALID: the url is not http(s)://host..., or has a query or fragment;
 * PERMIT_UNAUTHENTICATED: the token has a byte that would end its header, or that no credential has; PERMIT_NO_MEMORY.
 */
enum permit_status http_new(const char *url, const char *token, struct http **ret_http) MUST_CHECK;
/* Accepts NULL. In another process than the one that made it this leaves the connections alone. */
void http_free(struct http *http);
/* The url without user and password, for people. */
const char *http_url(const struct http *http);
/* False in a child of fork: the connections are the parent's, which would get our answers, and we its. */
bool http_is_ours(const struct http *http);
/*
 * The reply was set up with http_reply_init once; each call fills it anew. After an exchange without an answer the next
 * one is on a new connection.
 */
void http_exchange(struct http *http, const struct http_call *call, struct http_reply *reply);

void http_reply_init(struct http_reply *reply);
/* As if there had been no exchange. */
void http_reply_clear(struct http_reply *reply);
void http_reply_release(struct http_reply *reply);
#endif
