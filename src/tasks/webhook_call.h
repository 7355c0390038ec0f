/* SPDX-License-Identifier: MIT */
/*
 * The calls of webhooks over HTTP or HTTPS. Each has 10 s, from the look-up of the host to the end of the answer, of which 4
 * KiB are read. Calls run at the same time, on one thread, so that one that hangs delays no other. No redirect is followed
 * and no proxy used; an address is judged when its socket is opened, so that no other look-up of the host can change it.
 * Speaks to libcurl.
 */
#ifndef TASKS_WEBHOOK_CALL_H
#define TASKS_WEBHOOK_CALL_H

#include "core/webhook.h"

struct webhook_caller;

struct webhook_request {
    struct bytes url, host; /* host: as webhook_url_fault finds it */
    struct buf body;        /* the call takes it over, begun or not */
    const char *signature;  /* Permit-Signature */
    const char *cursor;     /* Permit-Cursor */
    void *context;
};

struct webhook_answer {
    void *context;
    unsigned status;                   /* 0: no answer */
    char error[WEBHOOK_ERROR_MAX + 1]; /* why the events were not taken; "": they were */
};

/* `policy` decides at each connection; it must outlive the caller, and may change between its calls. NULL: no memory. */
struct webhook_caller *webhook_caller_new(const struct webhook_policy *policy) MUST_CHECK;
/* Breaks off all calls. Accepts NULL. */
void webhook_caller_free(struct webhook_caller *caller);
/* Begins a call; at most WEBHOOKS_MAX run. False: no memory. */
bool webhook_call_begin(struct webhook_caller *caller, struct webhook_request *request) MUST_CHECK;
/* Runs the calls until one of them has something to do, or so long. */
void webhook_caller_run(struct webhook_caller *caller, int timeout_ms);
/* Takes a call that has ended. False: there is none. */
bool webhook_caller_next(struct webhook_caller *caller, struct webhook_answer *ret_answer) MUST_CHECK;
#endif
