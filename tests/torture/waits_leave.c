/* SPDX-License-Identifier: MIT */
/*
 * Clients that vanish in a storm: while they wait, while their first batch runs, while their grant is committed. Half
 * of them have a key of their own; of the others nobody could ever ask for what was granted.
 */
#include "waits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAPACITY = 64, CALM_CAPACITY = 10000, HOLD_MS = 3, CALM_LEAVE_MS = 6, ROUNDS = 1000000, MANY = 64 };

struct storm {
    const struct leave_numbers *numbers;
    struct site site;
    struct throng *throng;
    int64_t *leave_at_us; /* of each leaver */
    uint64_t random;
};

static unsigned random_below(struct storm *storm, unsigned below)
{
    storm->random = storm->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((storm->random >> 33) % below);
}

/* ---- the storm ---- */

/*
 * Stayers keep the hot semaphore busy. Of the leavers every fourth asks where there is room, at the moment at which it
 * is to leave, and so leaves around its grant; every eighth wants the two units of a semaphore of which one is held for
 * ever; they leave together, while the others of them are looked at, in vain. The rest waits for the hot one.
 */
static void set_clients(struct storm *storm)
{
    const struct leave_numbers *numbers = storm->numbers;
    int64_t now = kit_now_us();
    for (unsigned i = 0; i < storm->throng->count; i++) {
        struct client *client = &storm->throng->clients[i];
        bool leaver = i < numbers->leavers, calm = leaver && i % 4 == 3;
        bool narrow = leaver && i % 8 == 5;
        client->semaphore = calm ? "calm" : narrow ? "narrow" : "hot";
        client->count = narrow ? 2 : 1;
        client->wait = "10m";
        client->rounds = leaver && !calm ? ROUNDS : calm ? 1 : ROUNDS;
        client->hold_ms = HOLD_MS;
        client->without_key = i % 2;
        client->keeps = calm;
        client->leave_ms = calm ? (int)random_below(storm, CALM_LEAVE_MS) : -1;
        if (leaver)
            storm->leave_at_us[i] =
                now + (int64_t)(narrow ? numbers->over_ms / 2 : random_below(storm, numbers->over_ms)) * 1000;
    }
}

/* Those whose moment has come: who waits, leaves; the calm ones ask, and leave by their own timer. */
static unsigned leave_some(struct storm *storm)
{
    int64_t now = kit_now_us();
    unsigned left = 0;
    for (unsigned i = 0; i < storm->numbers->leavers; i++) {
        struct client *client = &storm->throng->clients[i];
        bool calm = client->leave_ms >= 0;
        if (client->state == CLIENT_GONE || (calm && client->round))
            continue;
        left++;
        if (now < storm->leave_at_us[i])
            continue;
        if (calm)
            throng_ask(storm->throng, client);
        else if (client->state == CLIENT_ASKING)
            throng_leave(storm->throng, client);
    }
    return left;
}

static void ask_all_but_calm(struct storm *storm)
{
    for (unsigned i = 0; i < storm->throng->count; i++)
        if (storm->throng->clients[i].leave_ms < 0)
            throng_ask(storm->throng, &storm->throng->clients[i]);
}

static void storm_run(struct storm *storm)
{
    struct throng *throng = storm->throng;
    int64_t end_us = kit_now_us() + (int64_t)WAITS_LOST_MS * 1000;
    set_clients(storm);
    ask_all_but_calm(storm);
    while (leave_some(storm)) {
        throng_step(throng, 1);
        if (kit_now_us() > end_us)
            kit_fail("leave: the storm does not end: %zu turns", throng->turn_count);
    }
    for (unsigned i = 0; i < throng->count; i++)
        throng->clients[i].rounds = 0;
}

/* ---- afterwards ---- */

struct found {
    char key[THRONG_KEY];
    uint64_t token;
};

struct found_list {
    struct found *found;
    size_t count;
};

static void take_found(void *context, char **columns)
{
    struct found_list *list = context;
    list->found = realloc(list->found, (list->count + 1) * sizeof(list->found[0]));
    KIT_CHECK(list->found);
    struct found *found = &list->found[list->count++];
    snprintf(found->key, sizeof(found->key), "%s", columns[0]);
    found->token = strtoull(columns[1], NULL, 10);
}

/* The turn that a key of ours names, or NULL. */
static const struct turn *turn_of(const struct storm *storm, const char *key)
{
    unsigned client, round;
    if (sscanf(key, "leave-%u-%u", &client, &round) != 2 || client >= storm->throng->count)
        return NULL;
    for (size_t i = storm->throng->turn_count; i-- > 0;)
        if (storm->throng->turns[i].client == client && storm->throng->turns[i].round == round)
            return &storm->throng->turns[i];
    return NULL;
}

/* A retry with the key of one who left gets that very grant, or finds that it has just expired; then it is let go. */
static void settle(struct storm *storm, const struct found *found)
{
    const struct turn *turn = turn_of(storm, found->key);
    if (!turn || !turn->left)
        kit_fail("leave: %s holds, and nobody who left asked for that", found->key);
    struct kit_http http = kit_http(storm->site.permitd[0]->port);
    struct reply reply;
    char body[256];
    /* As the throng wrote it: owner, then permits. */
    snprintf(body, sizeof(body),
             "{\"external_id\":\"%s\",\"owner\":\"throng\",\"permits\":[{\"semaphore\":\"%s\",\"count\":1}]}",
             found->key, storm->throng->clients[turn->client].semaphore);
    kit_http_post(&http, "/v1/requests", body, &reply);
    bool there = reply.status == 200 && (uint64_t)kit_json_int(reply.body, "permits.0.token") == found->token;
    if (!there && !(reply.status == 410 && kit_json_text_is(reply.body, "end_reason", "expired")))
        kit_fail("leave: %s holds token %llu, a retry is answered %d %s", found->key, (unsigned long long)found->token,
                 reply.status, reply.body);
    reply_release(&reply);
    KIT_CHECK(site_release(&http, found->key) == 200);
    kit_http_close(&http);
}

static bool no_strangers(void *context)
{
    struct site *site = context;
    return kit_sql_number(site->sql, "SELECT COUNT(*) FROM permit_request WHERE state = 1 AND external_id NOT LIKE "
                                     "'leave-%%' AND external_id <> 'narrow'") == 0;
}

/*
 * Who got his unit in the calm semaphore before he could leave has kept it; and who had closed only his sending side
 * may have been answered all the same.
 */
static void release_kept(struct storm *storm)
{
    struct kit_http http = kit_http(storm->site.permitd[0]->port);
    for (unsigned i = 0; i < storm->numbers->leavers; i++) {
        const struct client *client = &storm->throng->clients[i];
        const struct turn *turn = &storm->throng->turns[client->turn];
        if (turn->token && !turn->releasing_us)
            KIT_CHECK(site_release(&http, client->key) == 200);
    }
    kit_http_close(&http);
}

/* Nobody waits any more; what permitd named itself is let go by permitd. Whoever stays is served and leaves then. */
static void await_quiet(struct storm *storm)
{
    struct throng *throng = storm->throng;
    int64_t end_us = kit_now_us() + (int64_t)WAITS_LOST_MS * 1000;
    while (throng->busy && kit_now_us() < end_us)
        throng_step(throng, 100);
    if (throng->busy)
        kit_fail("leave: %u clients who stayed are not served; %zu wait", throng->busy,
                 site_waiting(&storm->site, "hot"));
    release_kept(storm);
    site_await_waiting(&storm->site, "hot", 0, WAITS_LOST_MS);
    site_await_waiting(&storm->site, "calm", 0, WAITS_LOST_MS);
    site_await_waiting(&storm->site, "narrow", 0, WAITS_LOST_MS);
    if (!kit_wait_until(no_strangers, &storm->site, WAITS_LOST_MS))
        kit_fail(
            "leave: %lld requests with keys that permitd made are held by nobody, %lld of them where there was room",
            (long long)kit_sql_number(storm->site.sql, "SELECT COUNT(*) FROM permit_request WHERE state = 1 AND "
                                                       "external_id NOT LIKE 'leave-%%'"),
            (long long)kit_sql_number(storm->site.sql,
                                      "SELECT COUNT(*) FROM permit p JOIN semaphore s ON s.id = p.semaphore_id "
                                      "JOIN permit_request r ON r.id = p.permit_request_id WHERE s.name = 'calm' "
                                      "AND r.state = 1 AND r.external_id NOT LIKE 'leave-%%'"));
}

/* Those who left and hold, each with a key of its own; how many. */
static size_t settle_some(struct storm *storm)
{
    struct found_list list = {NULL, 0};
    kit_sql_each(storm->site.sql,
                 "SELECT r.external_id, p.id FROM permit_request r JOIN permit p ON p.permit_request_id = r.id "
                 "WHERE r.state = 1 AND r.external_id LIKE 'leave-%'",
                 take_found, &list);
    for (size_t i = 0; i < list.count; i++)
        settle(storm, &list.found[i]);
    free(list.found);
    return list.count;
}

/* What somebody asked for and left at once may be granted only now: it is in nobody's queue before. */
static void judge_quiet(struct storm *storm, struct leave_figures *figures)
{
    char message[MESSAGE_SIZE];
    int64_t end_us = kit_now_us() + (int64_t)WAITS_LOST_MS * 1000;
    do
        figures->granted += settle_some(storm);
    while (site_held(&storm->site) && kit_now_us() < end_us);
    if (site_held(&storm->site))
        kit_fail("leave: %lld requests are held in the end", (long long)site_held(&storm->site));
    if (!rows_check(storm->site.sql, message) || !rows_check_past(storm->site.sql, message))
        kit_fail("leave: %s", message);
    for (size_t i = 0; i < storm->throng->turn_count; i++) {
        figures->left_waiting += storm->throng->turns[i].left;
        figures->served += storm->throng->turns[i].status == 201;
    }
}

/* One of the two units, for as long as the storm lasts. */
static void narrow_call(struct site *site, bool acquires)
{
    struct kit_http http = kit_http(site->permitd[0]->port);
    struct reply reply = {.status = 0};
    if (acquires)
        KIT_CHECK(site_acquire(&http, "narrow", "narrow", 1, "1h", &reply) == 201);
    else
        KIT_CHECK(site_release(&http, "narrow") == 200);
    reply_release(&reply);
    kit_http_close(&http);
}

void leave_measure(const struct leave_numbers *numbers, struct leave_figures *ret_figures)
{
    struct storm storm = {.numbers = numbers, .site = site_start(1, false), .random = numbers->seed};
    char body[64];
    snprintf(body, sizeof(body), "{\"capacity\":%d,\"default_ttl\":\"3s\"}", CAPACITY);
    site_semaphore(&storm.site, "hot", body);
    snprintf(body, sizeof(body), "{\"capacity\":%d}", CALM_CAPACITY);
    site_semaphore(&storm.site, "calm", body);
    site_semaphore(&storm.site, "narrow", "{\"capacity\":2}");
    narrow_call(&storm.site, true);
    storm.throng = throng_open("leave", storm.site.permitd[0]->port, numbers->leavers + numbers->stayers);
    storm.leave_at_us = calloc(numbers->leavers, sizeof(storm.leave_at_us[0]));
    KIT_CHECK(storm.leave_at_us);
    *ret_figures = (struct leave_figures){.served = 0};

    storm_run(&storm);
    await_quiet(&storm);
    narrow_call(&storm.site, false);
    judge_quiet(&storm, ret_figures);
    free(storm.leave_at_us);
    throng_close(storm.throng);
    site_stop(&storm.site);
}
