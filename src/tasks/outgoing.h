/* SPDX-License-Identifier: MIT */
/* Calls that permitd makes: each begins with a handle of libcurl from here. */
#ifndef TASKS_OUTGOING_H
#define TASKS_OUTGOING_H

#include <curl/curl.h>

/* Initialises libcurl, once; any thread may call it. */
void outgoing_begin(void);
/*
 * A handle for calls over http and https: CURLINFO_PRIVATE is `call`, the reason of a failure is in `error`, and `receive`
 * gets the pieces of headers and body. NULL: no memory.
 */
CURL *outgoing_new(void *call, char error[CURL_ERROR_SIZE], curl_write_callback receive, long timeout_ms);
#endif
