/* SPDX-License-Identifier: MIT */
/* Holders that do not renew, and clients that want their units. */
#include "expiry.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 50, LOOK_EVERY_MS = 10, GRANT_MS = 60000, THREADS_MAX = 32, NAME_SIZE = 64 };

/* ---- holders that do not renew ---- */

static void hold_batch(struct kit_http *http, unsigned from, unsigned to, unsigned ttl_ms)
{
    char *body = malloc(64 + (size_t)(to - from) * 128);
    KIT_CHECK(body);
    int length = sprintf(body, "{\"operations\":[");
    for (unsigned i = from; i < to; i++)
        length += sprintf(body + length,
                          "%s{\"op\":\"acquire\",\"external_id\":\"forgotten-%u\",\"ttl\":\"%ums\",\"permits\":"
                          "[{\"semaphore\":\"forgotten\"}]}",
                          i > from ? "," : "", i, ttl_ms);
    sprintf(body + length, "]}");
    struct reply reply;
    kit_http_post(http, "/v1/batch", body, &reply);
    for (unsigned i = 0; i < to - from; i++) {
        char path[NAME_SIZE];
        snprintf(path, sizeof(path), "results.%u.status", i);
        if (kit_json_int(reply.body, path) != 201)
            kit_fail("a batch of acquires: %d %.300s", reply.status, reply.body);
    }
    reply_release(&reply);
    free(body);
}

/* SYSDATE is read after the rows: an ended request is at least as old as this, and the oldest holder at most as old. */
static void query_ages(struct fixture *fixture, unsigned ttl_ms, int64_t *oldest_us)
{
    int64_t early = kit_sql_number(fixture->sql,
                                   "SELECT COUNT(*) FROM permit_request WHERE state = 2 AND "
                                   "TIMESTAMPDIFF(MICROSECOND, acquired_at, SYSDATE(6)) < %u",
                                   ttl_ms * 1000);
    if (early)
        kit_fail("%lld requests were seen to have ended before their ttl of %u ms was over", (long long)early, ttl_ms);
    int64_t oldest = kit_sql_number(fixture->sql, "SELECT MAX(TIMESTAMPDIFF(MICROSECOND, acquired_at, SYSDATE(6))) "
                                                  "FROM permit_request WHERE state = 1");
    if (oldest > *oldest_us)
        *oldest_us = oldest;
}

static void check_lives(struct fixture *fixture, unsigned holders, unsigned ttl_ms, struct duration_set *lives)
{
    int64_t expired =
        kit_sql_number(fixture->sql, "SELECT COUNT(*) FROM permit_request WHERE state = 2 AND end_reason = 2");
    if (lives->count != holders || expired != holders)
        kit_fail("of %u holders %zu have ended, %lld of them expired", holders, lives->count, (long long)expired);
    if (duration_set_quantile_us(lives, 0) < (int64_t)ttl_ms * 1000)
        kit_fail("a holder with a ttl of %u ms was ended after %lld us", ttl_ms,
                 (long long)duration_set_quantile_us(lives, 0));
}

void expiry_run(struct fixture *fixture, unsigned holders, unsigned ttl_ms, int wait_ms, struct duration_set *ret_lives,
                int64_t *ret_oldest_us)
{
    fixture_semaphore(fixture, "forgotten", "{\"capacity\":1000000,\"kind\":\"counted\"}");
    struct kit_http http = kit_http(fixture->permitd[0]->port);
    int64_t oldest_us = 0;
    for (unsigned i = 0; i < holders; i += BATCH) {
        hold_batch(&http, i, i + BATCH < holders ? i + BATCH : holders, ttl_ms);
        query_ages(fixture, ttl_ms, &oldest_us);
    }
    kit_http_close(&http);
    int64_t end = kit_now_us() + ((int64_t)ttl_ms + wait_ms) * 1000;
    while (fixture_held(fixture) && kit_now_us() < end) {
        query_ages(fixture, ttl_ms, &oldest_us);
        kit_sleep_ms(LOOK_EVERY_MS);
    }
    *ret_lives =
        duration_set_read(fixture->sql, "SELECT TIMESTAMPDIFF(MICROSECOND, acquired_at, ended_at) FROM permit_request "
                                        "WHERE external_id LIKE 'forgotten-%' AND state = 2");
    check_lives(fixture, holders, ttl_ms, ret_lives);
    *ret_oldest_us = oldest_us;
}

/* ---- demand ---- */

/* LATER_US: deadlines may count from so much later than the grant. LAG_US: a permitd may see a tick so much later. */
enum { LATER_US = 6 * 1000 * 1000, LAG_US = 1500 * 1000 };

struct wanter {
    pthread_t thread;
    const struct fixture *fixture;
    const struct demand *demand;
    unsigned number;
};

/*
 * Returns true if the holder was due at that time by the clock of every permitd, which is that of the last tick or later.
 * While it is held, its row has the deadline. After its end the deadline was at most LATER_US later than its ttl says.
 */
static bool was_due(const struct fixture *fixture, const char *holder, int64_t at_us)
{
    struct kit_sql *sql = fixture_sql(fixture->database);
    int64_t served_us = rows_ticked(sql) - LAG_US, since_us = kit_now_us() - at_us;
    int64_t due_us = kit_sql_number(sql,
                                    "SELECT IF(state = 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', due_at),"
                                    " TIMESTAMPDIFF(MICROSECOND, '1970-01-01', acquired_at) + ttl_ms * 1000 + %d) "
                                    "FROM permit_request WHERE external_id = '%s'",
                                    LATER_US, holder);
    kit_sql_close(sql);
    return served_us - since_us > due_us;
}

/*
 * Repeats the acquire until it is granted. P7: a request sent after the holder is due is not refused. The holder must
 * be due on the lease clock too.
 */
static void acquire_until_granted(const struct fixture *fixture, struct kit_http *http, const char *key,
                                  const char *semaphore, const char *ttl, unsigned retry_ms, const char *holder,
                                  int64_t due_us)
{
    int64_t end = kit_now_us() + (int64_t)GRANT_MS * 1000;
    for (;;) {
        struct reply reply;
        int64_t sent_us = kit_now_us();
        int status = fixture_acquire(http, key, semaphore, 1, ttl, &reply);
        if (status != 201 && status != 423)
            kit_fail("an acquire of %s: %d %s", semaphore, status, reply.body);
        reply_release(&reply);
        if (status == 201)
            return;
        if (sent_us > due_us && was_due(fixture, holder, sent_us))
            kit_fail("%s was refused to %s, %lld us after its holder was due", semaphore, key,
                     (long long)(sent_us - due_us));
        if (kit_now_us() > end)
            kit_fail("%s is not granted to %s within %d s", semaphore, key, GRANT_MS / 1000);
        kit_sleep_ms((int)retry_ms);
    }
}

static void *wanter_run(void *context)
{
    const struct wanter *wanter = context;
    const struct fixture *fixture = wanter->fixture;
    struct kit_http http = kit_http(fixture->permitd[wanter->number % fixture->count]->port);
    char semaphore[NAME_SIZE], ttl[NAME_SIZE];
    snprintf(semaphore, sizeof(semaphore), "wanted-%u", wanter->number);
    snprintf(ttl, sizeof(ttl), "%ums", wanter->demand->ttl_ms);
    for (unsigned round = 0; round < wanter->demand->rounds; round++) {
        char holder[NAME_SIZE], next[NAME_SIZE];
        snprintf(holder, sizeof(holder), "held-%u-%u", wanter->number, round);
        snprintf(next, sizeof(next), "want-%u-%u", wanter->number, round);
        acquire_until_granted(fixture, &http, holder, semaphore, ttl, wanter->demand->retry_ms, NULL, INT64_MAX);
        int64_t due_us = kit_now_us() + (int64_t)wanter->demand->ttl_ms * 1000;
        acquire_until_granted(fixture, &http, next, semaphore, "1h", wanter->demand->retry_ms, holder, due_us);
        KIT_CHECK(fixture_release(&http, next) == 200);
    }
    kit_http_close(&http);
    return NULL;
}

void demand_run(struct fixture *fixture, const struct demand *demand, struct duration_set *ret_late)
{
    static struct wanter wanters[THREADS_MAX];
    KIT_CHECK(demand->threads <= THREADS_MAX);
    for (unsigned i = 0; i < demand->threads; i++) {
        char name[NAME_SIZE];
        snprintf(name, sizeof(name), "wanted-%u", i);
        fixture_semaphore(fixture, name, "{\"capacity\":1}");
        wanters[i] = (struct wanter){.fixture = fixture, .demand = demand, .number = i};
        KIT_CHECK(!pthread_create(&wanters[i].thread, NULL, wanter_run, &wanters[i]));
    }
    for (unsigned i = 0; i < demand->threads; i++)
        pthread_join(wanters[i].thread, NULL);
    *ret_late = duration_set_read(fixture->sql,
                                  "SELECT TIMESTAMPDIFF(MICROSECOND, h.acquired_at, w.acquired_at) - h.ttl_ms * 1000 "
                                  "FROM permit_request h JOIN permit_request w "
                                  "ON w.external_id = CONCAT('want', SUBSTR(h.external_id, 5)) "
                                  "WHERE h.external_id LIKE 'held-%'");
    KIT_CHECK(ret_late->count == (size_t)demand->threads * demand->rounds);
    if (duration_set_quantile_us(ret_late, 0) < 0)
        kit_fail("a unit was granted again %lld us before its deadline",
                 (long long)-duration_set_quantile_us(ret_late, 0));
}
