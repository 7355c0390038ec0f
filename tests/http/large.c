/* SPDX-License-Identifier: MIT */
/* P23: a semaphore stays usable, however many units a request moves and however many holders are due. */
#include <criterion/criterion.h>
#include <stdio.h>

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

Test(large, batch_of_all_slots_is_decided, .timeout = 600)
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
Test(large, slots_of_a_dead_owner_are_freed_while_others_acquire, .timeout = 600)
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
