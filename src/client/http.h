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

struct http;

struct http_call {
    const char *method;
    const char *path; /* from "/" on */
    const char *body; /* JSON; NULL: none */
    int64_t timeout_ms;
    int cancel_fd; /* -1: none; ends the exchange when it becomes readable; not read */
};

struct http_reply {
    int status; /* HTTP status; 0: no answer, `error` says why */
    struct buf body;
    int64_t retry_after_ms; /* 0: not said */
    bool sent;              /* the request, or a part of it, may have reached the server */
    bool sent_twice;        /* libcurl repeated it: the first copy may have been carried out */
    bool cancelled;
    char error[256];
};

/* Strings are copied. NULL: the url is not http(s)://host..., or no memory. */
struct http *http_new(const char *url, const char *token) MUST_CHECK;
/* Accepts NULL. */
void http_free(struct http *http);
/* The reply was set up with http_reply_init once; each call fills it anew. */
void http_exchange(struct http *http, const struct http_call *call, struct http_reply *reply);

void http_reply_init(struct http_reply *reply);
void http_reply_release(struct http_reply *reply);
#endif
