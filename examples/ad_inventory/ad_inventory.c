/* SPDX-License-Identifier: MIT */
/*
 * An inventory of 200 advertising slots and 500 clients. Each client holds one slot for at most ten minutes, then buys
 * or releases it, while permitd is killed now and then. examples/ad_inventory/run.sh runs it, kills permitd, and checks
 * the rows.
 *
 * A hold has a soft deadline, its ttl, and is kept for `grace` longer, until the hard deadline. A client that decides
 * in time confirms (the slot is sold; when its campaign ends, the slot is free again) or releases. A client that gets
 * no answer repeats the request. It keeps no list of things to clean up: the second answer is true, whatever the killed
 * server had done. A client whose orders are in the database server of permitd needs no second answer: it confirms with
 * CALL permit_confirm in the transaction of the order (docs/recipes.md, "Sell").
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crowd.h"

enum { UNITS = 200, DECIDE_MS = 40, CAMPAIGN_MS = 200, BROWSE_MS = 200, BUYS_ONE_OF = 10 };

struct client {
    unsigned round; /* each hold has its own key: ad-CLIENT-ROUND */
    int64_t unit;   /* held or bought; 0: none */
    int64_t token;
    bool bought;
};

struct inventory {
    struct client *clients;
    unsigned held_by[UNITS + 1]; /* as the clients know it: from the answer to a hold until its release is sent */
    unsigned twice;              /* units given to one client while another one had them */
    unsigned unexpected;         /* answers that a client cannot explain */
    unsigned sold, let_go;
    struct durations holds;
};

static void hold(struct crowd *crowd, unsigned number);

/* Returns "/v1/requests/ad-7-42" and the rest. */
static const char *path_of(const struct client *client, unsigned number, const char *rest)
{
    static char path[96];

    snprintf(path, sizeof(path), "/v1/requests/ad-%u-%u%s", number, client->round, rest);
    return path;
}

static unsigned around(unsigned ms)
{
    return ms / 2 + (unsigned)rand() % ms;
}

/* Returns true if the answer is the expected one. Otherwise this client stops, and the example fails. */
static bool expected(struct inventory *all, unsigned number, const struct answer *answer, bool holds)
{
    if (!holds) {
        all->unexpected++;
        fprintf(stderr, "client %u: %d %s\n", number, answer->status, answer->text);
    }
    return holds;
}

/* ---- A client's round: hold, decide, buy or let go, and again ---- */

/* Starts the next round, unless the example is to end. */
static void again(struct crowd *crowd, unsigned number)
{
    struct inventory *all = crowd_context(crowd);

    all->clients[number].round++;
    if (!crowd_told_to_stop())
        crowd_wait(crowd, number, around(BROWSE_MS), hold);
}

/* Expects "released", not "never_held": the client held its unit until now, through every kill. */
static void ended(struct crowd *crowd, unsigned number, struct answer *answer)
{
    const char *how = json_object_get_string(answer_find(answer, "/end_reason"));

    if (expected(crowd_context(crowd), number, answer, answer->status == 200 && how && !strcmp(how, "released")))
        again(crowd, number);
}

/* Releases the unit. From here on another client may have it. */
static void give_back(struct crowd *crowd, unsigned number, const char *rest)
{
    struct inventory *all = crowd_context(crowd);
    struct client *client = &all->clients[number];

    all->held_by[client->unit] = 0;
    client->unit = 0;
    client->bought = false;
    crowd_send(crowd, number, ended, "DELETE", path_of(client, number, rest), NULL);
}

/* Ends a campaign. Units that are sold when the example ends stay sold. */
static void campaign_is_over(struct crowd *crowd, unsigned number)
{
    if (!crowd_told_to_stop())
        give_back(crowd, number, "?confirmed=true");
}

static void bought(struct crowd *crowd, unsigned number, struct answer *answer)
{
    struct inventory *all = crowd_context(crowd);

    if (!expected(all, number, answer, answer->status == 200))
        return;
    all->sold++;
    all->clients[number].bought = true;
    crowd_wait(crowd, number, around(CAMPAIGN_MS), campaign_is_over);
}

static void decide(struct crowd *crowd, unsigned number)
{
    struct inventory *all = crowd_context(crowd);

    if (rand() % BUYS_ONE_OF == 0) {
        crowd_send(crowd, number, bought, "POST", path_of(&all->clients[number], number, "/confirm"), NULL);
    } else {
        all->let_go++;
        give_back(crowd, number, "");
    }
}

static void held(struct crowd *crowd, unsigned number, struct answer *answer)
{
    struct inventory *all = crowd_context(crowd);
    struct client *client = &all->clients[number];

    if (answer->status == 423) { /* all 200 are held */
        again(crowd, number);
        return;
    }
    if (!expected(all, number, answer, answer->status == 201 || answer->status == 200))
        return;
    durations_add(&all->holds, answer->ms);
    client->unit = answer_number(answer, "/permits/0/slots/0");
    client->token = answer_number(answer, "/permits/0/token");
    all->twice += all->held_by[client->unit] != 0;
    all->held_by[client->unit] = number + 1;
    crowd_wait(crowd, number, around(DECIDE_MS), decide);
}

static void hold(struct crowd *crowd, unsigned number)
{
    struct inventory *all = crowd_context(crowd);

    crowd_send(crowd, number, held, "POST", "/v1/requests",
               "{\"external_id\":\"ad-%u-%u\",\"permits\":[{\"semaphore\":\"ads\"}]}", number,
               all->clients[number].round);
}

/* ---- Soft and hard deadline ---- */

static void put(struct crowd *crowd, const char *name, unsigned capacity, const char *ttl, const char *grace)
{
    char path[96];

    snprintf(path, sizeof(path), "/v1/semaphores/%s", name);
    if (crowd_ask(crowd, NULL, "PUT", path, "{\"capacity\":%u,\"default_ttl\":\"%s\",\"grace\":\"%s\"}", capacity, ttl,
                  grace) > 201)
        exit(1);
}

static int take(struct crowd *crowd, const char *key, const char *semaphore)
{
    return crowd_ask(crowd, NULL, "POST", "/v1/requests",
                     "{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}]}", key, semaphore);
}

/* Shows both deadlines with short times: between them a late client can still confirm; after the hard one it cannot. */
static void deadlines(struct crowd *crowd)
{
    double from = now_ms();
    int confirm, next;
    int64_t left;

    put(crowd, "ads-in-grace", 1, "500ms", "10m");
    put(crowd, "ads-too-late", 1, "500ms", "500ms");
    take(crowd, "in-grace", "ads-in-grace");
    take(crowd, "too-late", "ads-too-late");
    do {
        struct json_object *shown;

        crowd_ask(crowd, &shown, "GET", "/v1/requests/in-grace", NULL);
        left = json_number(shown, "/expires_in_ms");
        json_object_put(shown);
    } while (left > 0 && now_ms() < from + 30000);
    confirm = crowd_ask(crowd, NULL, "POST", "/v1/requests/in-grace/confirm", NULL);
    claim(left == 0 && confirm == 200, "between the soft and the hard deadline a hold can still be confirmed (%d)",
          confirm);

    /* The acquire that needs the unit ends the overdue hold. It uses a new key each time, as another client. */
    for (unsigned try = 0;; try++) {
        char key[32];

        snprintf(key, sizeof(key), "next-%u", try);
        if ((next = take(crowd, key, "ads-too-late")) <= 201 || now_ms() > from + 30000)
            break;
    }
    confirm = crowd_ask(crowd, NULL, "POST", "/v1/requests/too-late/confirm", NULL);
    claim(next <= 201 && confirm == 410,
          "after the hard one the next client has it (%d), and a confirm is refused (%d)", next, confirm);
}

/* ---- Afterwards ---- */

/* Compares the sales at the end with the list of holders: same keys, units and tokens, nothing more, nothing less. */
static void compare(struct crowd *crowd, struct inventory *all, unsigned clients)
{
    struct json_object *list, *holders;
    unsigned own = 0, agree = 0, listed;

    for (unsigned i = 0; i < clients; i++)
        own += all->clients[i].bought;
    crowd_ask(crowd, &list, "GET", "/v1/semaphores/ads/holders?limit=1000", NULL);
    holders = json_object_object_get(list, "holders");
    listed = (unsigned)json_object_array_length(holders);
    for (unsigned i = 0; i < listed; i++) {
        struct json_object *holder = json_object_array_get_idx(holders, i);
        unsigned number = 0, round = 0;

        sscanf(json_object_get_string(json_object_object_get(holder, "external_id")), "ad-%u-%u", &number, &round);
        agree += number < clients && all->clients[number].bought && all->clients[number].round == round &&
                 all->clients[number].unit == json_number(holder, "/slots/0") &&
                 all->clients[number].token == json_number(holder, "/token") &&
                 json_object_object_get(holder, "confirmed_at") != NULL;
    }
    json_object_put(list);
    claim(own == agree && agree == listed,
          "nothing to reconcile: the clients own %u units, permitd lists %u, %u are the same", own, listed, agree);
    figure("ad_inventory: holds and sales that were lost, or given to two", "none",
           own == agree && agree == listed && all->unexpected == 0 && all->twice == 0, "%u of %zu",
           all->unexpected + all->twice + (own - agree) + (listed - agree), all->holds.count);
}

int main(int argc, char **argv)
{
    unsigned clients = argc > 2 ? (unsigned)atoi(argv[2]) : 500;
    struct inventory all = {.clients = calloc(clients, sizeof(*all.clients))};
    struct crowd *crowd;
    double from, seconds;

    if (argc < 2 || !all.clients) {
        fprintf(stderr, "usage: ad_inventory URL [CLIENTS]     until SIGTERM or Ctrl-C\n");
        return 64;
    }
    crowd = crowd_new(argv[1], clients, &all);
    put(crowd, "ads", UNITS, "10m", "30s");
    deadlines(crowd);
    crowd_connect(crowd);
    from = now_ms();
    for (unsigned i = 0; i < clients; i++)
        crowd_wait(crowd, i, around(BROWSE_MS), hold);
    crowd_run(crowd);
    seconds = (now_ms() - from) / 1000;

    printf("     %zu holds: %u sold, %u let go\n", all.holds.count, all.sold, all.let_go);
    claim(all.sold > 0 && all.let_go > 0 && all.unexpected == 0, "%u answers that a client cannot explain",
          all.unexpected);
    claim(all.twice == 0, "%u units given to two clients at once", all.twice);
    compare(crowd, &all, clients);
    figure("ad_inventory: time of a hold, for 95 % of them, kills included", "under 34 ms",
           durations_percentile(&all.holds, 95) < 34, "%.1f ms (median %.1f, 99 %% %.1f, longest %.0f)",
           durations_percentile(&all.holds, 95), durations_percentile(&all.holds, 50),
           durations_percentile(&all.holds, 99), durations_percentile(&all.holds, 100));
    figure("ad_inventory: holds granted, the time without a server included", "1,400/s",
           (double)all.holds.count / seconds >= 1400, "%.0f/s (%zu in %.0f s, %u clients)",
           (double)all.holds.count / seconds, all.holds.count, seconds, clients);
    crowd_free(crowd);
    free(all.holds.ms);
    free(all.clients);
    return claims_kept() ? 0 : 1;
}
