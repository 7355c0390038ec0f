/* SPDX-License-Identifier: MIT */
/* Limits of memory and answer size against bodies, waiters and batches that are cheap for a client. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fixture.h"

enum { KIB = 1024, MIB = 1024 * KIB };

/* ---- memory of a process ---- */

/* Returns the value of VmRSS or VmHWM in /proc/PID/status, in bytes. */
static int64_t memory_of(const struct kit_permitd *permitd, const char *what)
{
    char *status = kit_read_file(text("/proc/%d/status", (int)permitd->pid));
    const char *line = status ? strstr(status, what) : NULL;
    cr_assert(line, "no %s", what);
    int64_t kib = strtoll(line + strlen(what) + 1, NULL, 10);
    free(status);
    return kib * KIB;
}

/* Returns false under a sanitizer, which delays frees and has shadow memory of its own. */
static bool memory_counts(void)
{
#ifdef __SANITIZE_ADDRESS__
    return false;
#else
    const char *other = getenv("PERMIT_PERMITD");
    return !other || !*other;
#endif
}

/* ---- bodies ---- */

/* HEAD UNIT,UNIT,... TAIL, of about `size` bytes. */
static const char *filled(const char *head, const char *unit, const char *tail, size_t size)
{
    char *body = kept(malloc(size + 1));
    size_t length = strlen(unit);
    char *at = stpcpy(body, head);
    char *last = body + size - strlen(tail) - length - 1;
    for (at = stpcpy(at, unit); at < last; at = stpcpy(at, unit))
        *at++ = ',';
    strcpy(at, tail);
    return body;
}

/* {"0":1,"1":1,...} */
static const char *many_members(size_t size)
{
    char *body = kept(malloc(size + 1));
    char *at = stpcpy(body, "{\"0\":1");
    for (int i = 1; at < body + size - 20; i++)
        at += sprintf(at, ",\"%x\":1", i);
    strcpy(at, "}");
    return body;
}

static const char *one_long(const char *head, char byte, const char *tail, size_t size)
{
    char *body = kept(malloc(size + 1));
    char *at = stpcpy(body, head);
    size_t length = size - strlen(head) - strlen(tail);
    memset(at, byte, length);
    strcpy(at + length, tail);
    return body;
}

#define BATCH      "/v1/batch"
#define REQUESTS   "/v1/requests"
#define DEEP       "[[[[[[[[[[[[]]]]]]]]]]]]"
#define OPERATIONS "{\"operations\":["

Test(hostile, bodies_of_every_kind_need_little_memory, .timeout = 300)
{
    enum { ROUNDS = 2, MOST = 24 * MIB };
    const struct {
        int status;
        const char *method;
        const char *path;
        const char *body;
    } rows[] = {
        {413, "POST", BATCH, filled(OPERATIONS, "{}", "]}", MIB)},
        {413, "POST", BATCH, filled(OPERATIONS, "[]", "]}", MIB)},
        {413, "POST", BATCH, filled(OPERATIONS, "1", "]}", MIB)},
        {413, "POST", BATCH, filled(OPERATIONS, DEEP, "]}", MIB)},
        {200, "POST", BATCH, filled(OPERATIONS "{\"op\":[", DEEP, "]}]}", MIB)},
        {200, "POST", BATCH, filled(OPERATIONS "{\"op\":[", "{\"\":{\"\":{}}}", "]}]}", MIB)},
        {200, "POST", BATCH,
         filled(OPERATIONS "{\"op\":\"acquire\",\"permits\":[", "{\"semaphore\":\"a\"}", "]}]}", MIB)},
        {200, "POST", BATCH,
         filled(OPERATIONS "{\"op\":\"acquire\",\"permits\":[{\"semaphore\":\"a\",\"slots\":[", "1", "]}]}]}", MIB)},
        {422, "POST", BATCH, many_members(MIB)},
        {422, "POST", BATCH, one_long("{\"operations\":\"", 'a', "\"}", MIB)},
        {422, "POST", BATCH, one_long("{\"operations\":", '1', "}", MIB)},
        {422, "POST", BATCH, one_long("{\"operations\":", ' ', "1}", MIB)},
        {400, "POST", BATCH, one_long("{\"operations\":", '[', "", MIB)},
        {422, "PUT", "/v1/semaphores/none/slots", filled("{\"labels\":[", "\"A1\"", "]}", MIB)},
        {422, "PUT", "/v1/semaphores/none", filled("{\"labels\":[", "null", "]}", 256 * KIB)},
        {422, "POST", REQUESTS, filled("{\"permits\":[", "{\"semaphore\":\"a\"}", "]}", 256 * KIB)},
        {422, "POST", REQUESTS, filled("{\"permits\":[{\"semaphore\":\"a\",\"any_of\":[", "1", "]}]}", 256 * KIB)},
        {422, "POST", REQUESTS, filled("{\"permits\":[{\"x\":[", DEEP, "]}]}", 256 * KIB)},
        {422, "POST", REQUESTS, many_members(256 * KIB)},
    };
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    say(&talk, 200, "GET", "/healthz", NULL);
    int64_t before = memory_of(permitd, "VmHWM:");
    for (size_t i = 0; i < ROUNDS * sizeof rows / sizeof rows[0]; i++) {
        size_t at = i / ROUNDS;
        reply_release(&talk.reply);
        cr_assert(kit_http_call(&talk.http, rows[at].method, rows[at].path, NULL, rows[at].body, &talk.reply));
        cr_expect_eq(talk.reply.status, rows[at].status, "%s %.60s...: %d %s", rows[at].path, rows[at].body,
                     talk.reply.status, talk.reply.body);
    }
    int64_t grown = memory_of(permitd, "VmHWM:") - before;
    cr_expect(grown < MOST || !memory_counts(), "it has grown by %lld bytes", (long long)grown);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- batches that are read in several loop turns ---- */

enum { LONG = 900 }; /* operations, about 100 KiB */

/*
 * A batch of LONG acquires of one unit, under KEY-0, KEY-1, ...; `odd` replaces the acquire at `at`, unless it is NULL.
 */
static const char *long_batch(const char *key, const char *semaphore, int at, const char *odd)
{
    char *body = kept(malloc((size_t)LONG * (150 + strlen(key) + strlen(semaphore))));
    char *end = stpcpy(body, OPERATIONS);
    for (int i = 0; i < LONG; i++) {
        if (i)
            *end++ = ',';
        if (i == at && odd)
            end = stpcpy(end, odd);
        else
            end += sprintf(end, "{\"op\":\"acquire\",\"external_id\":\"%s-%d\",\"permits\":[{\"semaphore\":\"%s\"}]}",
                           key, i, semaphore);
    }
    strcpy(end, "]}");
    return body;
}

static const char *counted(struct talk *talk, int capacity)
{
    return fresh_semaphore(talk, text("{\"capacity\":%d,\"kind\":\"counted\"}", capacity));
}

Test(hostile, long_batch_is_answered_in_order, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = counted(&talk, LONG);
    const char *key = fresh_name("k");
    say(&talk, 200, "POST", BATCH, long_batch(key, name, 700, "{\"op\":\"sell\"}"));
    cr_assert_eq(kit_json_length(talk.reply.body, "results"), LONG);
    for (int i = 0; i < LONG; i += 50) {
        cr_expect_eq(number_of(&talk, text("results.%d.status", i)), i == 700 ? 422 : 201, "%d", i);
        if (i != 700)
            text_is(&talk, text("results.%d.body.external_id", i), text("%s-%d", key, i));
    }
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), LONG - 1);
    talk_end(&talk);
}

Test(hostile, long_batch_malformed_at_its_end_changes_nothing, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = counted(&talk, LONG);
    static const char twice[] = "{\"op\":\"release\",\"external_id\":\"a\",\"external_id\":\"a\"}";
    static const char broken[] = "{\"op\":\"release\",\"external_id\":\"a\"";
    refused(&talk, 400, "malformed", "POST", BATCH, long_batch(fresh_name("k"), name, LONG - 1, twice));
    refused(&talk, 400, "malformed", "POST", BATCH, long_batch(fresh_name("k"), name, LONG - 1, broken));
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 0);
    talk_end(&talk);
}

Test(hostile, long_page_of_labels_is_read_completely, .timeout = 300)
{
    enum { SLOTS = 5000 };
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, text("{\"capacity\":%d}", SLOTS));
    char *body = kept(malloc(SLOTS * 20));
    char *end = stpcpy(body, "{\"labels\":[");
    for (int i = 1; i <= SLOTS; i++)
        end += sprintf(end, "%s\"row %d\"", i > 1 ? "," : "", i);
    strcpy(end, "]}");
    say(&talk, 200, "PUT", text("/v1/semaphores/%s/slots", name), body);
    say(&talk, 200, "GET", text("/v1/semaphores/%s/slots?after=%d", name, SLOTS - 1), NULL);
    text_is(&talk, "slots.0.label", text("row %d", SLOTS));
    strcpy(end, ",7]}");
    refused(&talk, 422, "invalid", "PUT", text("/v1/semaphores/%s/slots", name), body);
    cr_assert(strstr(talk.reply.body, text("labels[%d] must be a label", SLOTS)), "%s", talk.reply.body);
    talk_end(&talk);
}

/*
 * Some clients disconnect before permitd reads their batch, some while it does. permitd continues, and stops normally.
 */
Test(hostile, clients_may_disconnect_behind_long_batches, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    const char *name = counted(&talk, LONG);
    for (int i = 0; i < 30; i++) {
        struct talk other = talk_to(permitd->port);
        tell(&other, "POST", BATCH, long_batch(fresh_name("k"), name, -1, NULL));
        kit_http_close(&other.http);
    }
    say(&talk, 200, "GET", "/readyz", NULL);
    tell(&talk, "POST", BATCH, long_batch(fresh_name("k"), name, -1, NULL));
    kit_permitd_stop(permitd);
    talk_end(&talk);
}

/* ---- waiters that name many slots ---- */

enum { CROWD = 500, TOGETHER = 50 };

/* Counts the waiters over all pages. Asserts that each page is below 2 MiB and none is refused. */
static size_t count_waiters(struct talk *talk, const char *semaphore)
{
    size_t count = 0;
    const char *path = text("/v1/semaphores/%s/waiters?limit=1000", semaphore);
    for (const char *page = path; page;) {
        say(talk, 200, "GET", page, NULL);
        cr_assert_lt(talk->reply.body_length, 2 * MIB);
        count += (size_t)kit_json_length(talk->reply.body, "waiters");
        char *next = kit_json_text(talk->reply.body, "next");
        page = next ? text("%s&after=%s", path, next) : NULL;
        free(next);
    }
    return count;
}

struct sent {
    struct talk *talk;
    int count;
};

static bool all_are_answered_or_wait(void *context)
{
    struct sent *sent = context;
    return metric_of(sent->talk, "permitd_waiting") +
               metric_of(sent->talk, "permitd_http_answers_total{class=\"4xx\"}") ==
           sent->count;
}

/*
 * Sends few at a time: the bodies of all together are more than half of max_memory, and permitd refuses some with 503 when
 * it reads them more slowly than they are sent.
 */
static void send_crowd(struct talk *talk, const struct kit_permitd *permitd, const char *body, struct talk crowd[CROWD])
{
    for (int i = 0; i < CROWD; i++) {
        crowd[i] = talk_to(permitd->port);
        tell(&crowd[i], "POST", REQUESTS, body);
        if ((i + 1) % TOGETHER == 0)
            cr_assert(kit_wait_until(all_are_answered_or_wait, &(struct sent){talk, i + 1}, 300000),
                      "%g wait, %g are refused, %g have failed", metric_of(talk, "permitd_waiting"),
                      metric_of(talk, "permitd_http_answers_total{class=\"4xx\"}"),
                      metric_of(talk, "permitd_http_answers_total{class=\"5xx\"}"));
    }
}

/* Under a sanitizer max_memory would refuse answers because of memory that was freed. */
static struct kit_permitd *permitd_with_memory(void)
{
    static const char *const more[] = {"--max-memory", "4GiB", NULL};
    return own_permitd(memory_counts() ? NULL : more);
}

static bool none_waits(void *context)
{
    return metric_of(context, "permitd_waiting") == 0;
}

Test(hostile, waiters_that_name_many_slots_are_bounded, .timeout = 700)
{
    enum { MOST = 64 * MIB };
    struct kit_permitd *permitd = permitd_with_memory();
    struct talk talk = talk_to(permitd->port);
    struct talk crowd[CROWD];
    const char *name, *body = stalls_waited_for(&talk, NULL, "5m", &name);
    int64_t before = memory_of(permitd, "VmRSS:");
    send_crowd(&talk, permitd, body, crowd);
    size_t waiting = (size_t)metric_of(&talk, "permitd_waiting");
    int64_t grown = memory_of(permitd, "VmRSS:") - before;
    cr_log_info("%zu of %d wait, and permitd has %lld MB more", waiting, CROWD, (long long)grown / MIB);
    cr_expect(waiting == CROWD, "%zu wait", waiting);
    cr_expect(grown < MOST || !memory_counts(), "it has grown by %lld bytes", (long long)grown);
    cr_expect_eq(count_waiters(&talk, name), waiting);
    say(&talk, 423, "POST", REQUESTS, text("{\"permits\":[{\"semaphore\":\"%s\"}]}", name));
    for (int i = 0; i < CROWD; i++)
        talk_end(&crowd[i]);
    cr_assert(kit_wait_until(none_waits, &talk, 300000));
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- answers ---- */

/* Creates ten holders of one unit of each semaphore, with long keys and owners. */
static void hold_tenfold(struct talk *talk, const char *const *names, size_t count)
{
    for (size_t i = 0; i < 10 * count; i++)
        say(talk, 201, "POST", REQUESTS,
            text("{\"external_id\":\"%s-%s\",\"owner\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}]}", fresh_name("k"),
                 one_long("", 'y', "", 200), one_long("", 'o', "", 250), names[i % count]));
}

struct refusals {
    long count;
    long naming; /* refusals that list holders */
};

static void count_refusal(void *context, size_t at, const char *result)
{
    struct refusals *refusals = context;
    (void)at;
    refusals->count += kit_json_int(result, "status") == 423 && kit_json_has(result, "body.retry_after_ms");
    refusals->naming += kit_json_length(result, "body.blocking.0.holders") == 10;
}

Test(hostile, batch_refusals_name_few_holders, .timeout = 300)
{
    enum { SEMAPHORES = 8, MOST = 1536 * KIB };
    struct talk talk = talk_to(shared_port());
    const char *names[SEMAPHORES];
    const char *permits = "";
    for (size_t i = 0; i < SEMAPHORES; i++) {
        names[i] = fresh_semaphore(&talk, "{\"capacity\":10}");
        permits = text("%s%s{\"semaphore\":\"%s\"}", permits, i ? "," : "", names[i]);
    }
    hold_tenfold(&talk, names, SEMAPHORES);
    const char *operation = text("{\"op\":\"acquire\",\"permits\":[%s]}", permits);
    const char *body = filled(OPERATIONS, operation, "]}", 999 * (strlen(operation) + 1));
    say(&talk, 200, "POST", BATCH, body);
    long count = kit_json_length(talk.reply.body, "results");
    cr_log_info("%ld refusals: %zu bytes are answered with %zu", count, strlen(body), talk.reply.body_length);
    cr_expect_lt(talk.reply.body_length, MOST, "%zu bytes", talk.reply.body_length);
    struct refusals refusals = {0, 0};
    (void)kit_json_each(talk.reply.body, "results", count_refusal, &refusals);
    cr_expect_eq(refusals.count, count);
    cr_expect(refusals.naming > 0 && refusals.naming < 100, "%ld refusals name holders", refusals.naming);
    talk_end(&talk);
}

Test(hostile, batch_refusals_name_few_taken_slots, .timeout = 300)
{
    enum { MOST = 1536 * KIB };
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1000}");
    say(&talk, 201, "POST", REQUESTS,
        text("{\"external_id\":\"%s-%s\",\"permits\":[{\"semaphore\":\"%s\",\"count\":1000}]}", fresh_name("k"),
             one_long("", 'y', "", 200), name));
    char *slots = kept(malloc(6000));
    char *end = stpcpy(slots, "1");
    for (int i = 2; i <= 1000; i++)
        end += sprintf(end, ",%d", i);
    const char *operation =
        text("{\"op\":\"acquire\",\"permits\":[{\"semaphore\":\"%s\",\"slots\":[%s]}]}", name, slots);
    say(&talk, 200, "POST", BATCH, filled(OPERATIONS, operation, "]}", 100 * (strlen(operation) + 1)));
    cr_expect_lt(talk.reply.body_length, MOST, "%zu bytes", talk.reply.body_length);
    talk_end(&talk);
}

/* permitd shortens the page: a 503 would make clients repeat GET /v1/requests?limit=1000 for ever. */
Test(hostile, requests_with_many_long_labels_are_listed, .timeout = 300)
{
    enum { SHORT = 20, HELD = 100 }; /* the first ones let permitd expect short ones */
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    const char *name = hall(&talk, NULL);
    for (int i = 0; i < SHORT + HELD; i++) {
        const char *key = fresh_name("k");
        say(&talk, 201, "POST", REQUESTS,
            text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\",\"count\":%d}]}", key, name,
                 i < SHORT ? 1 : HALL_SLOTS));
        release(&talk, key);
    }
    long count = 0;
    for (const char *after = "0"; after;) {
        say(&talk, 200, "GET", text("/v1/requests?semaphore=%s&limit=1000&after=%s", name, after), NULL);
        cr_assert_lt(talk.reply.body_length, 4 * MIB);
        count += kit_json_length(talk.reply.body, "requests");
        after = kit_json_has(talk.reply.body, "next") ? kept(kit_json_text(talk.reply.body, "next")) : NULL;
    }
    cr_expect_eq(count, SHORT + HELD);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}
