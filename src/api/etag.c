/* SPDX-License-Identifier: MIT */
#include "api/etag.h"

#include <inttypes.h>
#include <stdio.h>

void etag_of_semaphore(struct answer *answer, const struct semaphore *semaphore)
{
    snprintf(answer->etag, sizeof answer->etag, "\"%" PRIu64 ".%" PRIu64 "\"", semaphore->config_version,
             semaphore->version);
}

struct bytes etag_next(struct bytes *list)
{
    struct bytes rest = *list;
    if (!rest.length)
        return rest;
    while (rest.length && *rest.data != '"')
        rest = (struct bytes){rest.data + 1, rest.length - 1};
    const char *end = rest.length > 1 ? memchr(rest.data + 1, '"', rest.length - 1) : NULL;
    struct bytes tag = {rest.data, end ? (size_t)(end + 1 - rest.data) : 0};
    *list = (struct bytes){tag.data + tag.length, end ? rest.length - tag.length : 0};
    return tag;
}

uint64_t etag_digest_add(uint64_t digest, uint64_t value)
{
    return (digest ^ value) * 0x100000001b3;
}

uint64_t etag_digest(struct bytes text)
{
    uint64_t digest = ETAG_DIGEST_BEGIN;
    for (size_t i = 0; i < text.length; i++)
        digest = etag_digest_add(digest, (unsigned char)text.data[i]);
    return digest;
}

void etag_not_modified(struct answer *answer, struct bytes tag)
{
    snprintf(answer->etag, sizeof answer->etag, "%.*s", (int)tag.length, tag.data);
    buf_clear(&answer->body);
    answer->http_status = 304;
}
