/* SPDX-License-Identifier: MIT */
/*
 * Where a request comes from. A browser lets every web page send requests to a server on the same machine, and a page
 * whose name resolves to 127.0.0.1 (DNS rebinding) may read the answers too. Browsers say so in Host, Origin and
 * Sec-Fetch-Site; other clients send no Origin.
 */
#ifndef HTTP_ORIGIN_H
#define HTTP_ORIGIN_H

#include "base/buf.h"
#include "permit/status.h"

/* The values of three headers; data NULL: absent. */
struct origin {
    struct bytes host;
    struct bytes origin;
    struct bytes sec_fetch_site;
    bool repeated; /* one of the last two is there twice */
};

/*
 * PERMIT_MISDIRECTED: Host is neither an address nor localhost nor listed in `allowed_hosts` (names, separated by
 * commas or spaces; data NULL: none). PERMIT_FORBIDDEN: a web page of another site sent the request. `message` then has
 * one sentence. A request without Host is HTTP/1.0, which no browser speaks: PERMIT_OK.
 */
enum permit_status origin_check(const struct origin *origin, struct bytes allowed_hosts,
                                struct buf *message) MUST_CHECK;
#endif
