/* SPDX-License-Identifier: MIT */
/*
 * Webhooks: the URLs to which events of the feed are sent, which hosts and addresses they may have, and the signatures of
 * the calls (docs/protocol.md, "Webhooks"). A stored URL has its namespace, as a stored key has.
 */
#ifndef CORE_WEBHOOK_H
#define CORE_WEBHOOK_H

#include "base/address_range.h"
#include "base/buf.h"
#include "base/digest.h"

enum {
    WEBHOOKS_MAX = 100,       /* URLs that are called */
    WEBHOOK_EVENTS_MAX = 100, /* events of a call */
    WEBHOOK_URL_MAX = 1024,   /* bytes, without the namespace */
    WEBHOOK_STORED_URL_MAX = 1100,
    WEBHOOK_ERROR_MAX = 255, /* bytes */
    WEBHOOK_SECRETS_MAX = 2, /* two while they change */
    WEBHOOK_SECRET_MIN = 32, /* bytes */
    WEBHOOK_SECRET_MAX = 255,
    WEBHOOK_HOSTS_MAX = 4095, /* bytes of webhook_hosts */
    WEBHOOK_ID_SIZE = 12 + 1, /* of webhook_id, with its zero */
};

/* The hosts and addresses that an operator allows. */
struct webhook_policy {
    char secrets[WEBHOOK_SECRETS_MAX][WEBHOOK_SECRET_MAX + 1];
    size_t secret_count;               /* 0: nothing is sent */
    char hosts[WEBHOOK_HOSTS_MAX + 1]; /* separated by commas or spaces; "": any */
    bool may_be_private;               /* hosts of the list may have private addresses */
};

/*
 * Reads secrets, one a line. Returns the reason why they are none; NULL: they are. A line has 32 to 255 bytes of printable
 * ASCII without space.
 */
const char *webhook_read_secrets(struct bytes text, struct webhook_policy *policy) MUST_CHECK;

/*
 * Returns why a URL cannot be called; NULL: it can. It is http://HOST[:PORT][/PATH] or https://..., without user and
 * fragment. *ret_host is its host, without brackets.
 */
const char *webhook_url_fault(struct bytes url, struct bytes *ret_host) MUST_CHECK;
/* Returns true if the operator allows this host at all. */
bool webhook_allows_host(const struct webhook_policy *policy, struct bytes host) MUST_CHECK;
/* Returns true if it may have an address of this range: a private one only if the host is listed. */
bool webhook_allows_range(const struct webhook_policy *policy, struct bytes host, enum address_range range) MUST_CHECK;

/* A name for a stored URL in metrics and the log, which do not show it: 12 hex digits. */
void webhook_id(struct bytes stored_url, char ret_id[WEBHOOK_ID_SIZE]);
/* The key of a stored URL: HMAC-SHA256 of "NAMESPACE\nURL" with the secret. False: no memory. */
bool webhook_key(const char *secret, struct bytes stored_url, unsigned char ret_key[DIGEST_SIZE]) MUST_CHECK;
/*
 * Appends the value of Permit-Signature, with a signature for each secret: t=UNIX,v1=HEX,v1=HEX. HEX is the HMAC-SHA256 of
 * "UNIX.BODY" with the key. False: no memory.
 */
bool webhook_sign(const struct webhook_policy *policy, struct bytes stored_url, int64_t unix_s, struct bytes body,
                  struct buf *out) MUST_CHECK;

/* How long no call is made after so many failures in a row, at least 1: 1 s, then twice as long each time, up to 5 min. */
int64_t webhook_backoff_ms(uint64_t failures);
#endif
