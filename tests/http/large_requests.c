/* SPDX-License-Identifier: MIT */
/* P23: a semaphore stays usable, however many units a request moves and however many holders are due. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "fixture.h"

enum { LARGEST = 65536, MOST = 1000, FULL = LARGEST / MOST }; /* slots; slots of a request; requests that fit */

static const char most[] = "{\"op\":\"acquire\",\"external_id\":\"k%d\",\"owner\":\"o\",\"ttl\":\"owner\","
                           "\"permits\":[{\"semaphore\":\"s\",\"count\":1000}]}";

/* Sends `count` acquires of MOST slots in one POST /v1/batch. */
static void acquire_together(struct talk *talk, int count)
{
    static char body[128 * 1024];
    size_t length = (size_t)snprintf(body, sizeof body, "{\"operations\":[");
    for (int i = 0; i < count; i++) {
        length += (size_t)snprintf(body + length, sizeof body - length, "%s", i ? "," : "");
        length += (size_t)snprintf(body + length, sizeof body - length, most, i);
    }
    snprintf(body + length, sizeof body - length, "]}");
    say(talk, 200, "POST", "/v1/batch", body);
}

static struct talk scene_set(struct kit_permitd **ret_permitd)
{
    *ret_permitd = own_permitd(NULL);
    struct talk talk = talk_to((*ret_permitd)->port);
    say(&talk, 201, "PUT", "/v1/semaphores/s", text("{\"capacity\":%d}", LARGEST));
    say(&talk, 201, "PUT", "/v1/owners/o", "{\"ttl\":\"1h\"}");
    return talk;
}

Test(large_requests, batch_of_all_slots_is_decided, .timeout = 600)
{
    struct kit_permitd *permitd;
    struct talk talk = scene_set(&permitd);
    acquire_together(&talk, FULL + 1);
    for (int i = 0; i < FULL; i++)
        cr_assert_eq(number_of(&talk, text("results.%d.status", i)), 201, "%d: %s", i, talk.reply.body);
    cr_assert_eq(number_of(&talk, text("results.%d.status", FULL)), 423);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

static bool any_held(struct talk *talk)
{
    say(talk, 200, "GET", "/v1/requests?owner=o&state=ACQUIRED&limit=1", NULL);
    return kit_json_length(talk->reply.body, "requests") > 0;
}

static void ask(struct talk *talk)
{
    tell(talk, "POST", "/v1/requests", "{\"ttl\":\"50ms\",\"permits\":[{\"semaphore\":\"s\",\"count\":600}]}");
    reply_release(&talk->reply);
    cr_assert(kit_http_receive(&talk->http, "POST", &talk->reply), "%s", talk->reply.error);
    cr_assert(talk->reply.status == 201 || talk->reply.status == 423, "%s", talk->reply.body);
}

/* Two clients keep asking for more slots than are free, so that batches that end requests contain acquires too. */
Test(large_requests, slots_of_a_dead_owner_are_freed_while_others_acquire, .timeout = 600)
{
    struct kit_permitd *permitd;
    struct talk talk = scene_set(&permitd), others[] = {talk_to(permitd->port), talk_to(permitd->port)};
    acquire_together(&talk, FULL);
    say(&talk, 200, "DELETE", "/v1/owners/o", NULL);
    int64_t until = kit_now_us() + 120 * 1000000LL;
    while (any_held(&talk) && kit_now_us() < until)
        for (int i = 0; i < 2; i++)
            ask(&others[i]);
    cr_assert_not(any_held(&talk), "%s", talk.reply.body);
    for (int i = 0; i < 2; i++)
        talk_end(&others[i]);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- packets ---- */

enum { SLOTS = 2000, LABEL_BYTES = 255, PAGE = 1000, LONG_MS = 120000 };

/* A page of labels that are as long as they may be, from this number on. */
static const char *labels_body(int from, int count)
{
    static char body[SLOTS * (LABEL_BYTES + 4)];
    size_t length = (size_t)snprintf(body, sizeof body, "{\"labels\":[");
    for (int i = 0; i < count; i++) {
        length += (size_t)snprintf(body + length, sizeof body - length, "%s\"%06d", i ? "," : "", from + i);
        memset(body + length, 'x', LABEL_BYTES - 6);
        length += LABEL_BYTES - 6;
        body[length++] = '"';
    }
    snprintf(body + length, sizeof body - length, "]}");
    return body;
}

/* A permitd on a database that accepts packets of 1 MiB, with two semaphores of so many slots with long labels. */
struct small_packets {
    struct kit_database *database;
    struct kit_permitd *permitd;
    struct talk talk;
};

static struct small_packets small_packets_set(void)
{
    static const char *const flags[] = {"--max-allowed-packet=1M", NULL};
    static const char *const names[] = {"s", "t"};
    struct small_packets scene = {.database = kit_database_start(flags)};
    struct kit_permitd_options options = {.database = scene.database->url};
    scene.permitd = kit_permitd_start(&options);
    scene.talk = talk_to(scene.permitd->port);
    for (int i = 0; i < 2; i++) {
        say_until(&scene.talk, 201, "PUT", semaphore_path(names[i]), text("{\"capacity\":%d}", SLOTS));
        for (int from = 1; from < SLOTS; from += PAGE)
            say(&scene.talk, 200, "PUT", text("/v1/semaphores/%s/slots?from=%d", names[i], from),
                labels_body(from, PAGE));
    }
    return scene;
}

static void small_packets_end(struct small_packets *scene)
{
    char *log = kit_read_file(scene->permitd->log_path);
    cr_expect_null(strstr(log, " error "), "%s", log);
    free(log);
    talk_end(&scene->talk);
    kit_permitd_stop(scene->permitd);
    kit_database_stop(scene->database);
}

#define BIG_PERMITS "\"permits\":[{\"semaphore\":\"s\",\"count\":1000},{\"semaphore\":\"t\",\"count\":1000}]"

static void is_too_large(struct talk *talk, const char *member)
{
    char *detail = kit_json_part(talk->reply.body, member);
    cr_expect(detail && strstr(detail, "at most 1048574 (max_allowed_packet)"), "%s", talk->reply.body);
    free(detail);
}

static void holds(struct talk *talk, const char *semaphore, int64_t in_use)
{
    say(talk, 200, "GET", semaphore_path(semaphore), NULL);
    cr_expect_eq(number_of(talk, "in_use"), in_use, "%s", talk->reply.body);
}

/* P23: each try would fail, with an outcome that is said to be unknown, and so would those of other clients beside it. */
Test(large_requests, grant_that_does_not_fit_into_a_packet_is_refused_and_those_beside_it_are_granted, .timeout = 600)
{
    struct small_packets scene = small_packets_set();
    struct talk *talk = &scene.talk;
    refused(talk, 413, "too_large", "POST", "/v1/requests", "{\"external_id\":\"big\"," BIG_PERMITS "}");
    is_too_large(talk, "detail");
    refused(talk, 404, "unknown_request", "GET", "/v1/requests/big", NULL);
    say(talk, 200, "POST", "/v1/batch",
        "{\"operations\":[{\"op\":\"acquire\",\"external_id\":\"big\"," BIG_PERMITS "},"
        "{\"op\":\"acquire\",\"external_id\":\"small\",\"permits\":[{\"semaphore\":\"s\"}]},"
        "{\"op\":\"acquire\",\"external_id\":\"half\",\"permits\":[{\"semaphore\":\"t\",\"count\":1000}]}]}");
    cr_expect_eq(number_of(talk, "results.0.status"), 413);
    is_too_large(talk, "results.0.body.detail");
    cr_expect_eq(number_of(talk, "results.1.status"), 201);
    cr_expect_eq(number_of(talk, "results.2.status"), 201);
    holds(talk, "s", 1);
    holds(talk, "t", 1000);
    say(talk, 200, "DELETE", "/v1/requests/half", NULL);
    holds(talk, "t", 0);
    small_packets_end(&scene);
}

/* Two requests that fit alone and not together are decided in two transactions. */
Test(large_requests, batch_that_does_not_fit_into_a_packet_is_split, .timeout = 600)
{
    struct small_packets scene = small_packets_set();
    struct talk *talk = &scene.talk;
    say(talk, 200, "POST", "/v1/batch",
        "{\"operations\":["
        "{\"op\":\"acquire\",\"external_id\":\"one\",\"permits\":[{\"semaphore\":\"s\",\"count\":1000}]},"
        "{\"op\":\"acquire\",\"external_id\":\"two\",\"permits\":[{\"semaphore\":\"s\",\"count\":1000}]}]}");
    cr_expect_eq(number_of(talk, "results.0.status"), 201, "%s", talk->reply.body);
    cr_expect_eq(number_of(talk, "results.1.status"), 201);
    holds(talk, "s", SLOTS);
    small_packets_end(&scene);
}

/* An operator's change is one transaction, too. */
Test(large_requests, change_that_does_not_fit_into_a_packet_is_refused, .timeout = 600)
{
    struct small_packets scene = small_packets_set();
    struct talk *talk = &scene.talk;
    say(talk, 201, "PUT", "/v1/semaphores/u", text("{\"capacity\":%d}", SLOTS));
    refused(talk, 413, "too_large", "PUT", "/v1/semaphores/u/slots", labels_body(1, SLOTS));
    cr_expect_not_null(strstr(talk->reply.body, "more than 1048574 bytes (max_allowed_packet)"), "%s",
                       talk->reply.body);
    say(talk, 200, "GET", "/v1/semaphores/u/slots?limit=1", NULL);
    cr_expect_not(kit_json_has(talk->reply.body, "slots.0.label"), "%s", talk->reply.body);
    say(talk, 200, "PUT", "/v1/semaphores/u/slots", labels_body(1, PAGE));
    small_packets_end(&scene);
}

struct queue {
    struct talk *talk;
    const char *semaphore;
    int64_t length;
};

static bool queue_has(void *context)
{
    const struct queue *queue = context;
    say(queue->talk, 200, "GET", semaphore_path(queue->semaphore), NULL);
    return number_of(queue->talk, "waiting") == queue->length;
}

/*
 * A release grants waiters in its own transaction. It must not fail because of what they ask for: one that no packet can
 * hold is refused, one without room beside others is granted by the next batch.
 */
Test(large_requests, release_is_done_whatever_waits_for_its_units, .timeout = 600)
{
    enum { WAITERS = 3 };
    static const char *const waits[WAITERS] = {
        "{\"external_id\":\"big\",\"wait\":\"5m\"," BIG_PERMITS "}",
        "{\"external_id\":\"one\",\"wait\":\"5m\",\"permits\":[{\"semaphore\":\"t\",\"count\":1000}]}",
        "{\"external_id\":\"two\",\"wait\":\"5m\",\"permits\":[{\"semaphore\":\"t\",\"count\":1000}]}",
    };
    static const int answers[WAITERS] = {413, 201, 201};
    struct small_packets scene = small_packets_set();
    struct talk *talk = &scene.talk, waiters[WAITERS];
    for (int i = 0; i < 2; i++)
        say(talk, 201, "POST", "/v1/requests",
            text("{\"external_id\":\"held%d\",\"permits\":[{\"semaphore\":\"t\",\"count\":1000}]}", i));
    for (int i = 0; i < WAITERS; i++) {
        waiters[i] = talk_to(scene.permitd->port);
        waiters[i].http.timeout_ms = 3 * LONG_MS;
        tell(&waiters[i], "POST", "/v1/requests", waits[i]);
        struct queue queue = {talk, "t", i + 1};
        cr_assert(kit_wait_until(queue_has, &queue, LONG_MS));
    }
    say(talk, 200, "POST", "/v1/batch",
        "{\"operations\":[{\"op\":\"release\",\"external_id\":\"held0\"},"
        "{\"op\":\"release\",\"external_id\":\"held1\"}]}");
    cr_expect_eq(number_of(talk, "results.0.status"), 200, "%s", talk->reply.body);
    cr_expect_eq(number_of(talk, "results.1.status"), 200, "%s", talk->reply.body);
    for (int i = 0; i < WAITERS; i++) {
        hear(&waiters[i], answers[i], NULL);
        talk_end(&waiters[i]);
    }
    holds(talk, "s", 0);
    holds(talk, "t", SLOTS);
    small_packets_end(&scene);
}
