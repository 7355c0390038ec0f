/* SPDX-License-Identifier: MIT */
/* The clients of the client_pool: what each sends next, on a connection of examples/lib/load_client.h. */
#include "client_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_SIZE = 1024, ASK_STEP = 64 };

/* ---- what a client does ---- */

static bool is_busy(enum client_state state)
{
    return state != CLIENT_IDLE && state != CLIENT_GONE;
}

/* Also sets the client's timer; ms < 0: none. */
static void client_set_state(struct client_pool *client_pool, struct client *client, enum client_state state, int ms)
{
    client_pool->busy -= is_busy(client->state);
    client_pool->busy += is_busy(state);
    client->state = state;
    load_wake(client_pool->connections, client->number, ms < 0 ? 0 : kit_now_us() + (int64_t)ms * 1000);
}

static void client_gone(struct client_pool *client_pool, struct client *client)
{
    if (client->state == CLIENT_ASKING || client->state == CLIENT_LEAVING)
        client_pool->turns[client->turn].gone_us = kit_now_us();
    client_set_state(client_pool, client, CLIENT_GONE, -1);
    load_close(client_pool->connections, client->number);
    client_pool->gone++;
}

void client_pool_leave(struct client_pool *client_pool, struct client *client)
{
    if (client->state == CLIENT_GONE || client->state == CLIENT_LEAVING)
        return;
    bool asking = client->state == CLIENT_ASKING;
    if (asking)
        client_pool->turns[client->turn].left = true;
    if (asking && client->without_key) {
        client_set_state(client_pool, client, CLIENT_LEAVING, -1);
        load_close_sending(client_pool->connections, client->number);
    } else {
        client_gone(client_pool, client);
    }
}

static void client_send(struct client_pool *client_pool, struct client *client, const char *method, const char *path,
                        const char *body)
{
    char *text = load_request("localhost", method, path, "", body);
    load_send(client_pool->connections, client->number, text, strlen(text));
    free(text);
}

static struct turn *turn_new(struct client_pool *client_pool, struct client *client)
{
    if (client_pool->turn_count == client_pool->turn_room) {
        client_pool->turn_room = client_pool->turn_room ? 2 * client_pool->turn_room : 1024;
        client_pool->turns = realloc(client_pool->turns, client_pool->turn_room * sizeof(client_pool->turns[0]));
        KIT_CHECK(client_pool->turns);
    }
    client->turn = client_pool->turn_count++;
    struct turn *turn = &client_pool->turns[client->turn];
    *turn = (struct turn){.client = client->number, .round = client->round};
    return turn;
}

static void client_ask(struct client_pool *client_pool, struct client *client)
{
    char body[TEXT_SIZE], key[2 * CLIENT_POOL_KEY] = "", wait[64] = "", units[64];
    client->key[0] = 0;
    if (!client->without_key) {
        snprintf(client->key, sizeof(client->key), "%s-%u-%u", client_pool->name, client->number, client->round);
        snprintf(key, sizeof(key), "\"external_id\":\"%s\",", client->key);
    }
    if (client->wait)
        snprintf(wait, sizeof(wait), ",\"wait\":\"%s\"", client->wait);
    if (client->priority)
        snprintf(wait + strlen(wait), sizeof(wait) - strlen(wait), ",\"priority\":%u", client->priority);
    snprintf(units, sizeof(units), client->slot ? "\"slots\":[%u]" : "\"count\":%u",
             client->slot ? client->slot : client->count);
    if (client->units[0])
        snprintf(units, sizeof(units), "%s", client->units);
    snprintf(body, sizeof(body), "{%s\"owner\":\"client_pool\",\"permits\":[{\"semaphore\":\"%s\",%s}]%s}", key,
             client->semaphore, units, wait);
    struct turn *turn = turn_new(client_pool, client);
    client_set_state(client_pool, client, CLIENT_ASKING, client->leave_ms);
    turn->asked_us = kit_now_us();
    client_send(client_pool, client, "POST", "/v1/requests", body);
}

void client_pool_ask(struct client_pool *client_pool, struct client *client)
{
    if (client->state == CLIENT_IDLE)
        client_ask(client_pool, client);
}

void client_pool_ask_again(struct client_pool *client_pool, struct client *client, unsigned port)
{
    KIT_CHECK(client->state == CLIENT_GONE || client->state == CLIENT_IDLE);
    client_pool->gone -= client->state == CLIENT_GONE;
    load_close(client_pool->connections, client->number);
    load_set_port(client_pool->connections, client->number, port);
    client->round = client_pool->turns[client->turn].round;
    client_ask(client_pool, client);
}

void client_pool_ask_all(struct client_pool *client_pool)
{
    for (unsigned i = 0; i < client_pool->count; i++) {
        client_pool_ask(client_pool, &client_pool->clients[i]);
        if (i % ASK_STEP == 0)
            client_pool_step(client_pool, 0);
    }
}

static void client_release(struct client_pool *client_pool, struct client *client)
{
    char path[TEXT_SIZE];
    snprintf(path, sizeof(path), "/v1/requests/%s", client->key);
    client_set_state(client_pool, client, CLIENT_RELEASING, -1);
    client_pool->turns[client->turn].releasing_us = kit_now_us();
    client_send(client_pool, client, "DELETE", path, NULL);
}

/* Ends the turn and starts the next one, if any. */
static void client_next_turn(struct client_pool *client_pool, struct client *client)
{
    client->round++;
    client_set_state(client_pool, client, CLIENT_IDLE, -1);
    if (client->round < client->rounds)
        client_ask(client_pool, client);
    else if (client_pool->done)
        client_pool->done(client_pool, client);
}

static void client_woken(void *context, unsigned number)
{
    struct client_pool *client_pool = context;
    struct client *client = &client_pool->clients[number];
    if (client->state == CLIENT_ASKING)
        client_pool_leave(client_pool, client);
    else if (client->state == CLIENT_HOLDING)
        client_release(client_pool, client);
}

/* ---- answers ---- */

/* The text after the mark, or NULL. */
static const char *find(const char *text, const char *mark)
{
    const char *at = strstr(text, mark);
    return at ? at + strlen(mark) : NULL;
}

/* Copies up to the quote, as far as it fits. */
static void copy_word(const char *from, char *to, size_t room)
{
    size_t length = 0;
    for (; from && length + 1 < room && from[length] && from[length] != '"'; length++)
        to[length] = from[length];
    to[length] = 0;
}

static void read_grant(struct client *client, struct turn *turn, const char *text)
{
    const char *token = find(text, "\"token\":");
    const char *slot = find(text, "\"slots\":[");
    turn->token = token ? strtoull(token, NULL, 10) : 0;
    turn->slot = slot ? (unsigned)strtoul(slot, NULL, 10) : 0;
    turn->replayed = find(text, "\"replayed\":true") != NULL;
    copy_word(find(text, "\"external_id\":\""), client->key, sizeof(client->key));
}

static void take_acquired(struct client_pool *client_pool, struct client *client, const struct load_answer *answer)
{
    struct turn *turn = &client_pool->turns[client->turn];
    turn->status = answer->status;
    turn->answered_us = answer->arrived_us;
    if (answer->status != 200 && answer->status != 201) {
        copy_word(find(answer->body, "/problems/"), turn->word, sizeof(turn->word));
        if (client->state == CLIENT_ASKING)
            client_next_turn(client_pool, client);
        return;
    }
    read_grant(client, turn, answer->body);
    if (client->state == CLIENT_LEAVING)
        return;
    if (client->keeps) {
        client_next_turn(client_pool, client);
        return;
    }
    client_set_state(client_pool, client, CLIENT_HOLDING, (int)client->hold_ms);
    if (!client->hold_ms)
        client_release(client_pool, client);
}

static void take_released(struct client_pool *client_pool, struct client *client, const struct load_answer *answer)
{
    struct turn *turn = &client_pool->turns[client->turn];
    if (answer->status == 200)
        turn->released_us = answer->arrived_us;
    else
        client_pool->failed++;
    client_next_turn(client_pool, client);
}

static void client_answered(void *context, unsigned number, const struct load_answer *answer)
{
    struct client_pool *client_pool = context;
    struct client *client = &client_pool->clients[number];
    if (!answer)
        client_gone(client_pool, client);
    else if (client->state == CLIENT_ASKING || client->state == CLIENT_LEAVING)
        take_acquired(client_pool, client, answer);
    else if (client->state == CLIENT_RELEASING)
        take_released(client_pool, client, answer);
    else
        kit_fail("client_pool: unexpected answer: %.300s", answer->text);
}

/* ---- all clients ---- */

struct client_pool *client_pool_open(const char *name, unsigned port, unsigned count)
{
    return client_pool_open_at(name, &port, 1, count);
}

struct client_pool *client_pool_open_at(const char *name, const unsigned *ports, size_t port_count, unsigned count)
{
    struct client_pool *client_pool = calloc(1, sizeof(*client_pool));
    KIT_CHECK(client_pool);
    snprintf(client_pool->name, sizeof(client_pool->name), "%s", name);
    client_pool->count = count;
    client_pool->clients = calloc(count, sizeof(client_pool->clients[0]));
    KIT_CHECK(client_pool->clients);
    for (unsigned i = 0; i < count; i++)
        client_pool->clients[i] = (struct client){.number = i, .count = 1, .rounds = 1, .leave_ms = -1};
    client_pool->connections = load_pool_open(&(struct load_settings){.host = "127.0.0.1",
                                                                      .port = ports[0],
                                                                      .count = count,
                                                                      .many_sources = true,
                                                                      .answered = client_answered,
                                                                      .woken = client_woken,
                                                                      .context = client_pool});
    for (unsigned i = 0; i < count; i++)
        load_set_port(client_pool->connections, i, ports[i % port_count]);
    if (!load_pool_connect(client_pool->connections))
        kit_fail("client_pool: %s: cannot connect %u clients", name, count);
    return client_pool;
}

void client_pool_close(struct client_pool *client_pool)
{
    if (!client_pool)
        return;
    load_pool_close(client_pool->connections);
    free(client_pool->clients);
    free(client_pool->turns);
    free(client_pool);
}

void client_pool_step(struct client_pool *client_pool, int ms)
{
    load_pool_step(client_pool->connections, ms);
}

bool client_pool_run(struct client_pool *client_pool, int64_t until_us)
{
    while (client_pool->busy) {
        int64_t left_us = until_us - kit_now_us();
        if (left_us <= 0)
            return false;
        client_pool_step(client_pool, left_us > 1000000 ? 1000 : (int)(left_us / 1000) + 1);
    }
    return true;
}

static int64_t wait_us_of(const char *wait)
{
    char *unit;
    int64_t number = wait ? strtoll(wait, &unit, 10) : 0;
    return !wait ? 0 : !strcmp(unit, "ms") ? number * 1000 : !strcmp(unit, "m") ? number * 60000000 : number * 1000000;
}

struct ask client_pool_ask_of(const struct client_pool *client_pool, const struct turn *turn)
{
    struct ask ask = {.status = turn->status,
                      .cut = !turn->status && turn->gone_us,
                      .wait_us = wait_us_of(client_pool->clients[turn->client].wait),
                      .sent_us = turn->asked_us,
                      .answered_us = turn->status ? turn->answered_us : turn->gone_us};
    snprintf(ask.key, sizeof(ask.key), "%s-%u-%u", client_pool->name, turn->client, turn->round);
    return ask;
}

struct ask *client_pool_asks(const struct client_pool *client_pool)
{
    struct ask *asks = calloc(client_pool->turn_count + 1, sizeof(asks[0]));
    KIT_CHECK(asks);
    for (size_t i = 0; i < client_pool->turn_count; i++)
        asks[i] = client_pool_ask_of(client_pool, &client_pool->turns[i]);
    return asks;
}

size_t client_pool_count(const struct client_pool *client_pool, int status, const char *word)
{
    size_t count = 0;
    for (size_t i = 0; i < client_pool->turn_count; i++)
        count += client_pool->turns[i].status == status && (!word || !strcmp(client_pool->turns[i].word, word));
    return count;
}
