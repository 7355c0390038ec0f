/* SPDX-License-Identifier: MIT */
/*
 * The reader of the feed: a process that follows it from its first event through all kills, at either permitd. It must be
 * told each sale once, and its refund once after it.
 */
#include "sale.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 256, CURSOR_SIZE = 64, AGAIN_MS = 10 };

/* Notes an event, and complains of one that does not follow what was told of its purchase. */
static void take_event(void *context, size_t at, const char *event)
{
    const struct sale *sale = context;
    char *key = kit_json_text(event, "external_id"), *what = kit_json_text(event, "what");
    const char *number = key ? strrchr(key, '-') : NULL;
    unsigned long purchase = number ? strtoul(number + 1, NULL, 10) : RECORDS_MAX;
    bool sold = what && !strcmp(what, "confirmed");
    (void)at;
    if (purchase >= RECORDS_MAX || !what || !(sold || !strcmp(what, "ended")))
        sale_complain(sale, "the feed has %s", event);
    else if (atomic_exchange(&sale->hall->told[purchase], sold ? TOLD_SOLD : TOLD_ENDED) !=
             (sold ? TOLD_NOTHING : TOLD_SOLD))
        sale_complain(sale, "the feed tells once more, or before the sale, that %s is %s", key, what);
    free(key);
    free(what);
}

/* Reads the next page, and sets `after` behind it. False: no answer, or none with a page. */
static bool read_page(const struct sale *sale, unsigned port, char after[CURSOR_SIZE])
{
    char path[PATH_SIZE];
    struct reply reply;
    struct kit_http http = kit_http(port);
    snprintf(path, sizeof path, "/v1/feed?limit=1000&wait=1s%s%s", *after ? "&after=" : "", after);
    bool read = kit_http_get(&http, path, &reply) && reply.status == 200;
    if (reply.status == 410)
        sale_complain(sale, "the feed is gone at %s: %s", after, reply.body);
    if (read) {
        char *next = kit_json_text(reply.body, "next");
        KIT_CHECK(next && strlen(next) < CURSOR_SIZE);
        kit_json_each(reply.body, "events", take_event, (void *)(uintptr_t)sale);
        strcpy(after, next);
        free(next);
    }
    reply_release(&reply);
    kit_http_close(&http);
    return read;
}

void feed_run(const struct sale *sale)
{
    char after[CURSOR_SIZE] = "";
    unsigned permitd = 0;
    for (;;) {
        if (!read_page(sale, atomic_load(&sale->hall->ports[permitd]), after)) {
            permitd = (permitd + 1) % PERMITDS;
            kit_sleep_ms(AGAIN_MS);
        }
        const char *number = strchr(after, '-');
        atomic_store(&sale->hall->feed_read, number ? strtoull(number + 1, NULL, 10) : 0);
    }
}
