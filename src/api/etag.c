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

void etag_not_modified(struct answer *answer, struct bytes tag)
{
    snprintf(answer->etag, sizeof answer->etag, "%.*s", (int)tag.length, tag.data);
    buf_clear(&answer->body);
    answer->http_status = 304;
}
