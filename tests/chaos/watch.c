/* SPDX-License-Identifier: MIT */
/* Queries requests until they have ended. */
#include "watch.h"

#include <stdio.h>
#include <string.h>

enum { LOOK_EVERY_MS = 20 };

void watch_acquire(struct watch *watch, struct kit_http *http, const char *semaphore, unsigned ttl_ms)
{
    KIT_CHECK(watch->count < WATCHED_MAX);
    struct watched *watched = &watch->list[watch->count++];
    char ttl[16];
    struct reply reply;
    snprintf(watched->key, sizeof(watched->key), "watched-%zu-%lld", watch->count, (long long)kit_now_us());
    snprintf(ttl, sizeof(ttl), "%ums", ttl_ms);
    watched->ttl_us = (int64_t)ttl_ms * 1000;
    watched->granted_from_us = kit_now_us();
    if (fixture_acquire(http, watched->key, semaphore, 1, ttl, &reply) != 201)
        kit_fail("acquire %s: %d %s", watched->key, reply.status, reply.body);
    watched->granted_to_us = kit_now_us();
    reply_release(&reply);
}

struct looking {
    struct watch *watch;
    int64_t before_us;
    bool held[WATCHED_MAX];
};

static void take_held(void *context, char **columns)
{
    struct looking *looking = context;
    for (size_t i = 0; i < looking->watch->count; i++)
        if (!strcmp(looking->watch->list[i].key, columns[0]))
            looking->held[i] = true;
}

size_t watch_query(struct watch *watch)
{
    struct looking looking = {.watch = watch, .before_us = kit_now_us()};
    size_t held = 0;
    kit_sql_each(watch->fixture->sql,
                 "SELECT external_id FROM permit_request WHERE state = 1 AND external_id LIKE 'watched-%'", take_held,
                 &looking);
    int64_t after_us = kit_now_us();
    for (size_t i = 0; i < watch->count; i++) {
        struct watched *watched = &watch->list[i];
        held += looking.held[i];
        if (looking.held[i] || watched->ended_to_us)
            continue;
        watched->ended_from_us = watch->looked_us > watched->granted_to_us ? watch->looked_us : watched->granted_to_us;
        watched->ended_to_us = after_us;
    }
    watch->looked_us = looking.before_us;
    return held;
}

void watch_until_ended(struct watch *watch, int ms)
{
    int64_t end = kit_now_us() + (int64_t)ms * 1000;
    while (watch_query(watch)) {
        if (kit_now_us() > end)
            kit_fail("requests without renewal are still held after %d ms", ms);
        kit_sleep_ms(LOOK_EVERY_MS);
    }
}

void watch_judge(const struct watch *watch, int64_t uncounted_us, int early_ms, int late_ms, const char *what)
{
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (size_t i = 0; i < watch->count; i++) {
        const struct watched *watched = &watch->list[i];
        int64_t due = watched->ttl_us + uncounted_us;
        int64_t latest = watched->ended_to_us - watched->granted_from_us - due;
        int64_t earliest = watched->ended_from_us - watched->granted_to_us - due;
        least = latest < least ? latest : least;
        most = earliest > most ? earliest : most;
    }
    printf("ends: %s: %zu requests ended %.2f to %.2f s after their ttl\n", what, watch->count, (double)least / 1e6,
           (double)most / 1e6);
    if (least < -(int64_t)early_ms * 1000)
        kit_fail("%s: a request was ended %.2f s early", what, (double)-least / 1e6);
    if (most > (int64_t)late_ms * 1000)
        kit_fail("%s: a request was kept %.2f s too long", what, (double)most / 1e6);
}
