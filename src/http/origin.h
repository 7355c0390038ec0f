/* SPDX-License-Identifier: MIT */
/*
 * Checks the origin of a request. A browser lets every web page send requests to a server on the same machine, and a
 * page whose host name resolves to 127.0.0.1 (DNS rebinding) can also read the answers. Browsers report the page in
 * Host, Origin and Sec-Fetch-Site; other clients send no Origin.
 */
#ifndef HTTP_ORIGIN_H
#define HTTP_ORIGIN_H

#include "base/buf.h"
#include "permit/status.h"

/* The host that the request is for, and the values of two headers; data NULL: absent. */
struct origin {
    struct bytes host;
    struct bytes origin;
    struct bytes sec_fetch_site;
    bool repeated; /* Origin or Sec-Fetch-Site is duplicate */
};

/*
 * Returns PERMIT_OK if the request may be served. PERMIT_MISDIRECTED: the host is neither an address nor localhost nor
 * listed in `allowed_hosts` (names, separated by commas or spaces; data NULL: none). PERMIT_FORBIDDEN: a web page of
 * another site sent the request. On an error `message` has the reason. A request without a host is HTTP/1.0, which no
 * browser sends: PERMIT_OK.
 */
enum permit_status origin_check(const struct origin *origin, struct bytes allowed_hosts,
                                struct buf *message) MUST_CHECK;
#endif
