/* SPDX-License-Identifier: MIT */
/* The clients of the client_pool: epoll, one shared read buffer, one heap of timers. */
#include "client_pool.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    INPUT_SIZE = 1 << 18,
    TEXT_SIZE = 1024,
    EVENTS_MAX = 256,
    PORTS_PER_SOURCE = 2000, /* of about 28,000 ports per address; searching for the last ones is slow */
    ASK_STEP = 64,
};

static char input[INPUT_SIZE];

/* ---- connections ---- */

size_t client_pool_raise_file_limit(void)
{
    struct rlimit files;
    KIT_CHECK(!getrlimit(RLIMIT_NOFILE, &files));
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    return files.rlim_max;
}

/* A loopback address that this process has used for few connections. */
static uint32_t next_source(void)
{
    static uint32_t used;
    uint32_t number = used++ / PORTS_PER_SOURCE;
    return (127u << 24) + (((uint32_t)getpid() & 0x7fff) << 8) + 1 + number % 250;
}

static int connect_from(uint32_t source, unsigned port)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(source)};
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        kit_fail("socket: %s", strerror(errno));
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&from, sizeof(from)) || connect(fd, (struct sockaddr *)&to, sizeof(to)))
        kit_fail("connect: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

struct client_pool *client_pool_open(const char *name, unsigned port, unsigned count)
{
    struct client_pool *client_pool = calloc(1, sizeof(*client_pool));
    KIT_CHECK(client_pool);
    snprintf(client_pool->name, sizeof(client_pool->name), "%s", name);
    client_pool->port = port;
    client_pool->count = count;
    client_pool->clients = calloc(count, sizeof(client_pool->clients[0]));
    client_pool->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    KIT_CHECK(client_pool->clients && client_pool->epoll_fd >= 0);
    client_pool_raise_file_limit();
    for (unsigned i = 0; i < count; i++) {
        struct client *client = &client_pool->clients[i];
        *client = (struct client){.number = i, .count = 1, .rounds = 1, .leave_ms = -1};
        client->fd = connect_from(next_source(), port);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
        KIT_CHECK(!epoll_ctl(client_pool->epoll_fd, EPOLL_CTL_ADD, client->fd, &event));
    }
    return client_pool;
}

static void client_drop_partial(struct client *client)
{
    free(client->partial);
    client->partial = NULL;
    client->partial_length = 0;
}

void client_pool_close(struct client_pool *client_pool)
{
    if (!client_pool)
        return;
    for (unsigned i = 0; i < client_pool->count; i++) {
        client_drop_partial(&client_pool->clients[i]);
        if (client_pool->clients[i].fd >= 0)
            close(client_pool->clients[i].fd);
    }
    heap_release(&client_pool->timers);
    close(client_pool->epoll_fd);
    free(client_pool->clients);
    free(client_pool->turns);
    free(client_pool);
}

/* ---- what a client does ---- */

static bool is_busy(enum client_state state)
{
    return state != CLIENT_IDLE && state != CLIENT_GONE;
}

static void client_set_state(struct client_pool *client_pool, struct client *client, enum client_state state)
{
    client_pool->busy -= is_busy(client->state);
    client_pool->busy += is_busy(state);
    client->state = state;
    heap_remove(&client_pool->timers, &client->timer);
}

static void client_set_timer(struct client_pool *client_pool, struct client *client, unsigned ms)
{
    KIT_CHECK(heap_add(&client_pool->timers, &client->timer, kit_now_us() + (int64_t)ms * 1000));
}

static void client_gone(struct client_pool *client_pool, struct client *client)
{
    client_set_state(client_pool, client, CLIENT_GONE);
    client_drop_partial(client);
    close(client->fd);
    client->fd = -1;
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
        client_set_state(client_pool, client, CLIENT_LEAVING);
        shutdown(client->fd, SHUT_WR);
    } else {
        client_gone(client_pool, client);
    }
}

/* A request is far smaller than the empty buffer of its socket. */
static void client_send(struct client_pool *client_pool, struct client *client, const char *text, size_t length)
{
    for (size_t sent = 0; sent < length;) {
        ssize_t part = send(client->fd, text + sent, length - sent, MSG_NOSIGNAL);
        if (part < 0 && errno == EINTR)
            continue;
        if (part < 0) {
            client_gone(client_pool, client);
            return;
        }
        sent += (size_t)part;
    }
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

static size_t write_acquire(const struct client *client, char text[TEXT_SIZE])
{
    char body[TEXT_SIZE / 2], key[2 * CLIENT_POOL_KEY] = "", wait[32] = "";
    if (client->key[0])
        snprintf(key, sizeof(key), "\"external_id\":\"%s\",", client->key);
    if (client->wait)
        snprintf(wait, sizeof(wait), ",\"wait\":\"%s\"", client->wait);
    int length = snprintf(body, sizeof(body),
                          "{%s\"owner\":\"client_pool\",\"permits\":[{\"semaphore\":\"%s\",\"count\":%u}]%s}", key,
                          client->semaphore, client->count, wait);
    return (size_t)snprintf(text, TEXT_SIZE,
                            "POST /v1/requests HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                            "Content-Length: %d\r\n\r\n%s",
                            length, body);
}

static void client_ask(struct client_pool *client_pool, struct client *client)
{
    char text[TEXT_SIZE];
    client->key[0] = 0;
    if (!client->without_key)
        snprintf(client->key, sizeof(client->key), "%s-%u-%u", client_pool->name, client->number, client->round);
    struct turn *turn = turn_new(client_pool, client);
    size_t length = write_acquire(client, text);
    client_set_state(client_pool, client, CLIENT_ASKING);
    if (client->leave_ms >= 0)
        client_set_timer(client_pool, client, (unsigned)client->leave_ms);
    turn->asked_us = kit_now_us();
    client_send(client_pool, client, text, length);
}

void client_pool_ask(struct client_pool *client_pool, struct client *client)
{
    if (client->state == CLIENT_IDLE)
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
    char text[TEXT_SIZE];
    int length =
        snprintf(text, sizeof(text), "DELETE /v1/requests/%s HTTP/1.1\r\nHost: localhost\r\n\r\n", client->key);
    client_set_state(client_pool, client, CLIENT_RELEASING);
    client_pool->turns[client->turn].releasing_us = kit_now_us();
    client_send(client_pool, client, text, (size_t)length);
}

/* Ends the turn and starts the next one, if any. */
static void client_next_turn(struct client_pool *client_pool, struct client *client)
{
    client->round++;
    client_set_state(client_pool, client, CLIENT_IDLE);
    if (client->round < client->rounds)
        client_ask(client_pool, client);
    else if (client_pool->done)
        client_pool->done(client_pool, client);
}

static void client_timer(struct client_pool *client_pool, struct client *client)
{
    if (client->state == CLIENT_ASKING)
        client_pool_leave(client_pool, client);
    else if (client->state == CLIENT_HOLDING)
        client_release(client_pool, client);
}

/* ---- answers ---- */

/* The text after the mark, or NULL. */
static const char *find(const char *text, size_t length, const char *mark)
{
    const char *at = memmem(text, length, mark, strlen(mark));
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

static void read_grant(struct client *client, struct turn *turn, const char *text, size_t length)
{
    const char *token = find(text, length, "\"token\":");
    const char *slot = find(text, length, "\"slots\":[");
    turn->token = token ? strtoull(token, NULL, 10) : 0;
    turn->slot = slot ? (unsigned)strtoul(slot, NULL, 10) : 0;
    turn->replayed = find(text, length, "\"replayed\":true") != NULL;
    copy_word(find(text, length, "\"external_id\":\""), client->key, sizeof(client->key));
}

static void take_acquired(struct client_pool *client_pool, struct client *client, int status, const char *text,
                          size_t length)
{
    struct turn *turn = &client_pool->turns[client->turn];
    turn->status = status;
    turn->answered_us = kit_now_us();
    if (status != 200 && status != 201) {
        copy_word(find(text, length, "/problems/"), turn->word, sizeof(turn->word));
        if (client->state == CLIENT_ASKING)
            client_next_turn(client_pool, client);
        return;
    }
    read_grant(client, turn, text, length);
    if (client->state == CLIENT_LEAVING)
        return;
    if (client->keeps) {
        client_next_turn(client_pool, client);
        return;
    }
    client_set_state(client_pool, client, CLIENT_HOLDING);
    if (client->hold_ms)
        client_set_timer(client_pool, client, client->hold_ms);
    else
        client_release(client_pool, client);
}

static void take_released(struct client_pool *client_pool, struct client *client, int status)
{
    struct turn *turn = &client_pool->turns[client->turn];
    if (status == 200)
        turn->released_us = kit_now_us();
    else
        client_pool->failed++;
    client_next_turn(client_pool, client);
}

/* The length of the answer if it is complete, else 0. */
static size_t answer_length(const char *text, size_t length)
{
    const char *end = find(text, length, "\r\n\r\n");
    if (!end)
        return 0;
    size_t header = (size_t)(end - text);
    const char *size = find(text, header, "Content-Length: ");
    size_t whole = header + (size ? strtoul(size, NULL, 10) : 0);
    return length >= whole ? whole : 0;
}

static void keep_partial(struct client *client, size_t length)
{
    char *copy = realloc(client->partial, length);
    KIT_CHECK(copy);
    memcpy(copy, input, length);
    client->partial = copy;
    client->partial_length = length;
}

static void client_readable(struct client_pool *client_pool, struct client *client)
{
    if (client->fd < 0)
        return; /* it left in this round of the loop */
    if (client->partial_length)
        memcpy(input, client->partial, client->partial_length);
    ssize_t got =
        recv(client->fd, input + client->partial_length, INPUT_SIZE - 1 - client->partial_length, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got <= 0) {
        client_gone(client_pool, client);
        return;
    }
    size_t length = client->partial_length + (size_t)got;
    input[length] = 0;
    if (!answer_length(input, length)) {
        keep_partial(client, length);
        return;
    }
    client_drop_partial(client);
    int status = atoi(input + strlen("HTTP/1.1 "));
    if (client->state == CLIENT_ASKING || client->state == CLIENT_LEAVING)
        take_acquired(client_pool, client, status, input, length);
    else if (client->state == CLIENT_RELEASING)
        take_released(client_pool, client, status);
    else
        kit_fail("client_pool: unexpected answer: %.300s", input);
}

/* ---- the loop ---- */

static void run_timers(struct client_pool *client_pool)
{
    int64_t now = kit_now_us();
    for (struct heap_node *node; (node = heap_first(&client_pool->timers)) && node->time <= now;) {
        heap_remove(&client_pool->timers, node);
        client_timer(client_pool, HEAP_ENTRY(node, struct client, timer));
    }
}

void client_pool_step(struct client_pool *client_pool, int ms)
{
    struct epoll_event events[EVENTS_MAX];
    struct heap_node *first = heap_first(&client_pool->timers);
    int64_t left_us = first ? first->time - kit_now_us() : (int64_t)ms * 1000;
    int64_t left_ms = left_us <= 0 ? 0 : (left_us + 999) / 1000;
    int count = epoll_wait(client_pool->epoll_fd, events, EVENTS_MAX, (int)(left_ms < ms ? left_ms : ms));
    if (count < 0 && errno != EINTR)
        kit_fail("epoll_wait: %s", strerror(errno));
    for (int i = 0; i < count; i++)
        client_readable(client_pool, events[i].data.ptr);
    run_timers(client_pool);
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

size_t client_pool_count(const struct client_pool *client_pool, int status, const char *word)
{
    size_t count = 0;
    for (size_t i = 0; i < client_pool->turn_count; i++)
        count += client_pool->turns[i].status == status && (!word || !strcmp(client_pool->turns[i].word, word));
    return count;
}
