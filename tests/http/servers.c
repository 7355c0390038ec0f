/* SPDX-License-Identifier: MIT */
/* GET /v1/servers: two permitd on one database, and what each shows when the other stops, dies or stands still. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

enum { PATIENCE_MS = 120000, AWAY_MS = 8000, TICKS = 6 /* more than a permitd may miss */ };

struct pair {
    struct kit_database *database;
    struct kit_permitd *permitd[2];
    struct talk talks[2];
};

static void start_one(struct pair *pair, int i, const char *const *flags)
{
    struct kit_permitd_options options = {.database = pair->database->url, .flags = flags};
    pair->permitd[i] = kit_permitd_start(&options);
    pair->talks[i] = talk_to(pair->permitd[i]->port);
}

/* The row of one permitd in the list that another one, or itself, answers. */
struct shown {
    struct talk *by;
    const char *address;
    bool own;   /* it is the one that shows it */
    int64_t id; /* 0: it is not listed */
    int64_t waiting;
    bool alive, is_this;
    long count; /* of servers that are listed */
};

static void look(struct shown *shown)
{
    say(shown->by, 200, "GET", "/v1/servers", NULL);
    const char *body = shown->by->reply.body;
    shown->id = 0;
    shown->count = kit_json_length(body, "servers");
    for (int i = 0; i < (int)shown->count; i++) {
        if (!kit_json_text_is(body, text("servers.%d.address", i), shown->address))
            continue;
        shown->id = kit_json_int(body, text("servers.%d.id", i)); /* the latest, if it has taken a new one */
        shown->waiting = kit_json_int(body, text("servers.%d.waiting", i));
        shown->alive = kit_json_true(body, text("servers.%d.alive", i));
        shown->is_this = kit_json_true(body, text("servers.%d.this", i));
    }
}

/* A permitd knows its id a little later than others see its row: when COMMIT has returned. */
static bool is_alive(void *context)
{
    struct shown *shown = context;
    look(shown);
    return shown->id && shown->alive && shown->is_this == shown->own;
}

static bool is_dead(void *context)
{
    struct shown *shown = context;
    look(shown);
    return shown->id && !shown->alive;
}

static bool is_alone(void *context)
{
    struct shown *shown = context;
    look(shown);
    return shown->count == 1;
}

static bool is_waited_at(void *context)
{
    struct shown *shown = context;
    look(shown);
    return shown->waiting == 1;
}

/* Waits until permitd `by` shows permitd `of` so, and returns what it shows. */
static struct shown wait_shown(struct pair *pair, int by, int of, bool (*as)(void *context))
{
    struct shown shown = {.by = &pair->talks[by], .address = pair->permitd[of]->url, .own = by == of};
    cr_assert(kit_wait_until(as, &shown, PATIENCE_MS), "%s", shown.by->reply.body);
    return shown;
}

static struct pair pair_start(struct kit_database *database)
{
    struct pair pair = {.database = database};
    for (int i = 0; i < 2; i++)
        start_one(&pair, i, patient_flags);
    for (int i = 0; i < 4; i++)
        (void)wait_shown(&pair, i / 2, i % 2, is_alive);
    return pair;
}

static void stop_one(struct pair *pair, int i)
{
    talk_end(&pair->talks[i]);
    kit_permitd_stop(pair->permitd[i]);
}

static void pair_stop(struct pair *pair)
{
    for (int i = 0; i < 2; i++)
        stop_one(pair, i);
    kit_database_stop(pair->database);
}

Test(servers, two_list_both_and_mark_themselves, .timeout = 300)
{
    struct pair pair = pair_start(kit_database_start(NULL));
    int64_t ids[2];
    for (int by = 0; by < 2; by++)
        for (int of = 0; of < 2; of++) {
            struct shown shown = wait_shown(&pair, by, of, is_alive);
            cr_assert_eq(shown.count, 2);
            cr_assert(by == 0 || shown.id == ids[of], "both show the same id");
            ids[of] = shown.id;
        }
    cr_assert_neq(ids[0], ids[1]);
    const char *body = pair.talks[0].reply.body;
    for (int i = 0; i < 2; i++) {
        cr_assert(kit_json_has(body, text("servers.%d.version", i)), "%s", body);
        char *since = kit_json_text(body, text("servers.%d.since", i));
        char *seen_at = kit_json_text(body, text("servers.%d.seen_at", i));
        cr_assert(strlen(since) == strlen("2026-11-21T09:14:31.123456Z") && strcmp(since, seen_at) <= 0, "%s", body);
        free(since);
        free(seen_at);
    }
    refused(&pair.talks[0], 422, "invalid", "GET", "/v1/servers?limit=1", NULL);

    say(&pair.talks[0], 201, "PUT", "/v1/semaphores/s", "{\"capacity\":1}");
    say(&pair.talks[0], 201, "POST", "/v1/requests", "{\"external_id\":\"a\",\"permits\":[{\"semaphore\":\"s\"}]}");
    struct talk waiter = talk_to(pair.permitd[0]->port);
    tell(&waiter, "POST", "/v1/requests",
         "{\"external_id\":\"b\",\"permits\":[{\"semaphore\":\"s\"}],\"wait\":\"100s\"}");
    (void)wait_shown(&pair, 1, 0, is_waited_at);
    say(&pair.talks[0], 200, "DELETE", "/v1/requests/a", NULL);
    hear(&waiter, 201, NULL);
    talk_end(&waiter);
    pair_stop(&pair);
}

Test(servers, advertised_address_is_listed, .timeout = 300)
{
    static const char *const flags[] = {"--advertise", "http://permit.example:7070", NULL};
    struct pair pair = {.database = kit_database_start(NULL)};
    start_one(&pair, 0, flags);
    struct shown shown = {.by = &pair.talks[0], .address = flags[1], .own = true};
    cr_assert(kit_wait_until(is_alive, &shown, PATIENCE_MS), "%s", shown.by->reply.body);
    stop_one(&pair, 0);
    kit_database_stop(pair.database);
}

Test(servers, killed_one_is_shown_as_dead_and_later_not_at_all, .timeout = 300)
{
    struct pair pair = pair_start(kit_database_start(NULL));
    struct shown before = wait_shown(&pair, 0, 1, is_alive);
    cr_assert_eq(kill(pair.permitd[1]->pid, SIGKILL), 0);
    struct shown dead = wait_shown(&pair, 0, 1, is_dead);
    cr_assert_eq(dead.id, before.id);
    (void)wait_shown(&pair, 0, 1, is_alone);
    talk_end(&pair.talks[1]);
    kit_permitd_kill(pair.permitd[1]);
    stop_one(&pair, 0);
    kit_database_stop(pair.database);
}

Test(servers, stopped_one_takes_a_new_id_when_it_goes_on, .timeout = 300)
{
    struct pair pair = pair_start(kit_database_start(NULL));
    struct shown before = wait_shown(&pair, 0, 1, is_alive);
    kit_permitd_freeze(pair.permitd[1]);
    (void)wait_shown(&pair, 0, 1, is_dead);
    kit_permitd_thaw(pair.permitd[1]);
    struct shown after = wait_shown(&pair, 0, 1, is_alive);
    cr_assert_gt(after.id, before.id);
    after = wait_shown(&pair, 1, 1, is_alive);
    cr_assert(after.is_this);
    pair_stop(&pair);
}

Test(servers, clean_stop_removes_it_at_once, .timeout = 300)
{
    struct pair pair = pair_start(kit_database_start(NULL));
    stop_one(&pair, 1);
    struct shown shown = {.by = &pair.talks[0], .address = pair.permitd[0]->url};
    look(&shown);
    cr_assert(shown.id && shown.count == 1, "%s", pair.talks[0].reply.body);
    stop_one(&pair, 0);
    kit_database_stop(pair.database);
}

/* ---- outages and clocks ---- */

struct ticking {
    struct kit_sql *sql;
    int64_t until;
};

static bool has_ticked(void *context)
{
    const struct ticking *ticking = context;
    return kit_sql_number(ticking->sql, "SELECT ticks FROM cluster") >= ticking->until;
}

/* Lets the clock tick long enough for a permitd that is behind to be declared dead. */
static void let_it_tick(const struct kit_database *database)
{
    struct ticking ticking = {.sql = kit_sql_open(database->socket, "permitd")};
    ticking.until = kit_sql_number(ticking.sql, "SELECT ticks FROM cluster") + TICKS;
    cr_assert(kit_wait_until(has_ticked, &ticking, PATIENCE_MS));
    kit_sql_close(ticking.sql);
}

static void go_forward(struct kit_database *database)
{
    kit_database_step_clock(database, 3600 * 1000000LL);
}

static void go_back(struct kit_database *database)
{
    kit_database_step_clock(database, -3600 * 1000000LL);
}

static void freeze(struct kit_database *database)
{
    kit_database_freeze(database);
    kit_sleep_ms(AWAY_MS);
    kit_database_thaw(database);
}

static void crash(struct kit_database *database)
{
    kit_database_kill(database);
    kit_sleep_ms(AWAY_MS);
    kit_database_restart(database);
}

/* Returns true if both permitd still have the ids that they had before. */
static bool both_live_through(struct pair *pair, void (*disturb)(struct kit_database *database))
{
    bool kept = true;
    int64_t ids[2];
    for (int of = 0; of < 2; of++)
        ids[of] = wait_shown(pair, 0, of, is_alive).id;
    disturb(pair->database);
    let_it_tick(pair->database);
    for (int of = 0; of < 2; of++) {
        struct shown shown = wait_shown(pair, 1 - of, of, is_alive);
        kept &= shown.id == ids[of];
    }
    return kept;
}

/* On a machine that stalls, a permitd may miss its ticks and die rightly; but not three times in a row. */
Test(servers, outage_or_clock_of_the_database_kills_no_server, .timeout = 600)
{
    static void (*const disturbances[])(struct kit_database *) = {go_forward, go_back, freeze, crash};
    struct pair pair = pair_start(kit_database_start_shifted(NULL));
    for (size_t i = 0; i < sizeof disturbances / sizeof disturbances[0]; i++) {
        int tries = 1;
        while (!both_live_through(&pair, disturbances[i]))
            cr_assert_lt(tries++, 3, "disturbance %zu", i);
    }
    pair_stop(&pair);
}
