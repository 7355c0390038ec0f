/* SPDX-License-Identifier: MIT */
/* The life of a connection, from accept to close. */
#include "http/loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/parser.h"
#include "http/problem.h"

enum {
    ACCEPT_MAX = 64,                 /* in one turn of the loop */
    LINGER_MS = 2000,                /* of a client that goes on sending behind its last answer */
    LINGER_BYTES = 16 * 1024 * 1024, /* that are dropped meanwhile */
};

/* ---- states ---- */

static void end_watch_release(struct connection *connection)
{
    if (connection->end_watch)
        event_free(connection->end_watch);
    connection->end_watch = NULL;
}

/* Whoever sends much before it is wanted is not read from until it is. */
static void pause_reading(struct connection *connection)
{
    if (connection->ahead.length < READ_AHEAD)
        return;
    event_del(connection->readable);
    connection->paused = true;
}

static void resume_reading(struct connection *connection)
{
    end_watch_release(connection);
    if (connection->paused && event_add(connection->readable, NULL) != 0)
        connection->ended = true; /* without memory it is not read any more */
    connection->paused = false;
}

void connection_move(struct connection *connection, enum connection_state state)
{
    if (state == CONNECTION_READING || state == CONNECTION_LINGERING)
        resume_reading(connection);
    list_remove(&connection->node);
    list_remove(&connection->of_peer);
    connection->state = state;
    connection->since = connection->server->now;
    list_append(&connection->server->connections[state], &connection->node);
    if (state != CONNECTION_READING)
        return;
    list_append(&connection->peer->idle, &connection->of_peer);
    server_listen_again(connection->server); /* now one may yield to a newcomer */
}

/* A request of which not all has come is dropped; one that is with the engine goes on, and is answered to nobody. */
static void leave_exchange(struct connection *connection)
{
    struct exchange *exchange = connection->exchange;
    if (!exchange)
        return;
    connection->exchange = NULL;
    exchange->connection = NULL;
    if (connection->state == CONNECTION_READING)
        exchange_recycle(connection->server, exchange);
}

void connection_close(struct connection *connection)
{
    if (connection->state == CONNECTION_CLOSED)
        return;
    leave_exchange(connection);
    end_watch_release(connection);
    buf_release(&connection->ahead);
    event_free(connection->readable);
    bufferevent_free(connection->bev); /* with the descriptor */
    connection->bev = NULL;
    connection_move(connection, CONNECTION_CLOSED);
}

void connections_dispose(struct server *server)
{
    struct list *closed = &server->connections[CONNECTION_CLOSED];
    if (list_empty(closed))
        return;
    list_for_each (node, following, closed) {
        struct connection *connection = LIST_ENTRY(node, struct connection, node);
        list_remove(&connection->node);
        peer_leave(&server->peers, connection->peer);
        free(connection);
        server->connection_count--;
    }
    server_listen_again(server);
}

static void close_older(struct server *server, enum connection_state state, mono_us too_old)
{
    list_for_each (node, following, &server->connections[state]) {
        struct connection *connection = LIST_ENTRY(node, struct connection, node);
        if (connection->since >= too_old)
            return;
        connection_close(connection);
    }
}

void connections_sweep(struct server *server)
{
    mono_us idle_since = server->now - server->settings.idle_timeout_ms * US_PER_MS;
    close_older(server, CONNECTION_READING, idle_since);
    close_older(server, CONNECTION_SENDING, idle_since);
    close_older(server, CONNECTION_LINGERING, server->now - LINGER_MS * (mono_us)US_PER_MS);
}

/* ---- reading ---- */

/* Reads requests until one has to be waited for; true: all of the input is read. */
static bool take_input(struct connection *connection, struct bytes *input)
{
    while (input->length && connection->state == CONNECTION_READING)
        request_receive(connection, input);
    return input->length == 0;
}

/* What was read ahead and is not yet used; without any it takes no memory. */
static void keep_ahead(struct connection *connection, struct bytes rest)
{
    struct buf *ahead = &connection->ahead;
    if (!rest.length) {
        buf_release(ahead);
        return;
    }
    memmove(ahead->data, rest.data, rest.length);
    ahead->length = rest.length;
}

void connection_read(struct connection *connection)
{
    struct bytes ahead = {connection->ahead.data, connection->ahead.length};
    if (ahead.length && connection->state == CONNECTION_READING) {
        (void)take_input(connection, &ahead);
        if (connection->state != CONNECTION_CLOSED)
            keep_ahead(connection, ahead);
    }
    if (connection->state == CONNECTION_READING && connection->ended)
        connection_close(connection);
}

/*
 * The client has closed its side, or the connection is broken. One that has closed its side may still read: what was
 * asked is answered. But one that waits for room is taken to have gone.
 */
static void client_ended(struct connection *connection)
{
    event_del(connection->readable);
    connection->ended = true;
    if (connection->state == CONNECTION_DECIDING)
        exchange_client_gone(connection->server, connection->exchange);
    else if (connection->state != CONNECTION_SENDING)
        connection_close(connection);
}

static void on_ended(evutil_socket_t fd, short what, void *context)
{
    struct connection *connection = context;
    struct server *server = connection->server;
    (void)fd, (void)what;
    server->now = clock_mono();
    client_ended(connection);
    connections_dispose(server);
}

void connection_watch_end(struct connection *connection)
{
    if (connection->end_watch || !connection->paused || !exchange_waits(connection->exchange))
        return;
    connection->end_watch =
        event_new(connection->server->base, bufferevent_getfd(connection->bev), EV_CLOSED, on_ended, connection);
    if (connection->end_watch && event_add(connection->end_watch, NULL) != 0)
        end_watch_release(connection);
}

/* What comes before it is wanted is kept. */
static void read_ahead(struct connection *connection, struct bytes input)
{
    buf_append(&connection->ahead, input.data, input.length);
    if (connection->ahead.broken) { /* what is lost cannot be read again */
        client_ended(connection);
        connection_close(connection);
        return;
    }
    pause_reading(connection);
    if (connection->state == CONNECTION_DECIDING)
        connection_watch_end(connection);
}

/* Behind the last answer nobody reads any more. */
static void drop(struct connection *connection, size_t length)
{
    connection->dropped += length;
    if (connection->dropped > LINGER_BYTES)
        connection_close(connection);
}

/* A piece at a time, so that nobody who sends much holds up the others; a larger one where much is wanted. */
static size_t piece_of(const struct connection *connection)
{
    bool reads = connection->state == CONNECTION_READING && connection->exchange;
    bool much = reads ? connection->exchange->parser->state == READ_BODY : connection->state == CONNECTION_LINGERING;
    return much ? INPUT_SIZE : READ_AHEAD;
}

/* Reads from the socket itself: a bufferevent would first ask how much is there, and make memory for it. */
static void on_readable(evutil_socket_t fd, short what, void *context)
{
    struct connection *connection = context;
    struct server *server = connection->server;
    (void)what;
    server->now = clock_mono();
    ssize_t got = recv(fd, server->input, piece_of(connection), MSG_DONTWAIT);
    struct bytes input = {server->input, got > 0 ? (size_t)got : 0};
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        client_ended(connection);
    else if (connection->state == CONNECTION_LINGERING)
        drop(connection, input.length);
    else if (!take_input(connection, &input) && connection->state != CONNECTION_CLOSED)
        read_ahead(connection, input);
    connections_dispose(server);
}

/* All of an answer is in the socket: the next request, or the end. */
static void answered(struct connection *connection)
{
    bool more_comes = connection->refused || connection->more;
    if (!connection->closes) {
        connection_move(connection, CONNECTION_READING);
    } else if (more_comes && !connection->ended) {
        shutdown(bufferevent_getfd(connection->bev), SHUT_WR);
        connection_move(connection, CONNECTION_LINGERING);
    } else {
        connection_close(connection);
    }
}

static void on_written(struct bufferevent *bev, void *context)
{
    struct connection *connection = context;
    struct server *server = connection->server;
    (void)bev;
    server->now = clock_mono();
    if (connection->state == CONNECTION_SENDING) {
        answered(connection);
        connection_read(connection);
    }
    connections_dispose(server);
}

/* The output cannot be written. */
static void on_broken(struct bufferevent *bev, short what, void *context)
{
    struct connection *connection = context;
    struct server *server = connection->server;
    (void)bev, (void)what;
    server->now = clock_mono();
    connection_close(connection);
    connections_dispose(server);
}

bool connection_has_ended(const struct connection *connection)
{
    char byte;
    if (connection->ended)
        return true;
    ssize_t got = recv(bufferevent_getfd(connection->bev), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

/* ---- writing ---- */

/* The rest of a body, which the output refers to until it is in the socket. */
static void rest_sent(const void *data, size_t length, void *context)
{
    struct buf *body = context;
    (void)data, (void)length;
    buf_release(body);
    free(body);
}

/* Takes the memory of the body over. False: no memory; then the body is released. */
static bool output_body(struct evbuffer *output, struct buf *body, size_t from)
{
    struct buf *rest = malloc(sizeof *rest);
    if (!rest) {
        buf_release(body);
        return false;
    }
    *rest = *body;
    *body = (struct buf){.max = rest->max, .budget = rest->budget};
    buf_fit(rest);
    if (evbuffer_add_reference(output, rest->data + from, rest->length - from, rest_sent, rest) == 0)
        return true;
    rest_sent(NULL, 0, rest);
    return false;
}

/* Small answers go as one piece, which is cheaper for the system than two. */
static ssize_t send_now(int fd, struct bytes head, struct bytes body)
{
    enum { SMALL = 2048 };
    char all[SMALL];
    struct iovec parts[] = {{(void *)head.data, head.length}, {(void *)body.data, body.length}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = ARRAY_LENGTH(parts)};
    if (head.length + body.length > sizeof all)
        return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    memcpy(all, head.data, head.length);
    if (body.length)
        memcpy(all + head.length, body.data, body.length);
    return send(fd, all, head.length + body.length, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* How much of it the socket takes now, if nothing else waits to be written; what fails shows again with the rest. */
static size_t write_now(struct connection *connection, struct bytes head, struct bytes body)
{
    if (evbuffer_get_length(bufferevent_get_output(connection->bev)))
        return 0;
    ssize_t sent = send_now(bufferevent_getfd(connection->bev), head, body);
    return sent > 0 ? (size_t)sent : 0;
}

/*
 * What the socket does not take now, the bufferevent writes later; true: nothing of that is left. It is sent whole or
 * not at all: without memory for it the connection is closed, and whoever asked asks again.
 */
static bool write_all(struct connection *connection, struct bytes head, struct buf *body)
{
    struct evbuffer *output = bufferevent_get_output(connection->bev);
    size_t length = body ? body->length : 0;
    size_t sent = write_now(connection, head, (struct bytes){body ? body->data : NULL, length});
    if (sent == head.length + length)
        return true;
    bool kept = true;
    if (sent < head.length) {
        kept = evbuffer_add(output, head.data + sent, head.length - sent) == 0;
        sent = head.length;
    }
    if (kept && sent < head.length + length)
        kept = output_body(output, body, sent - head.length);
    if (!kept)
        connection_close(connection);
    return false;
}

bool connection_say_continue(struct connection *connection)
{
    (void)write_all(connection, BYTES("HTTP/1.1 100 Continue\r\n\r\n"), NULL);
    return connection->state != CONNECTION_CLOSED;
}

void connection_answer(struct connection *connection, struct bytes head, struct buf *body)
{
    if (write_all(connection, head, body))
        answered(connection);
    else if (connection->state != CONNECTION_CLOSED)
        connection_move(connection, CONNECTION_SENDING);
}

/* ---- accepting ---- */

/* A few connections are taken however short memory is. */
static bool server_is_full(const struct server *server)
{
    enum { A_FEW = 1000 };
    return (int64_t)server->connection_count >= server->settings.max_connections ||
           (server->memory_short && server->connection_count >= A_FEW);
}

void server_listen_again(struct server *server)
{
    if (!server->deaf || server->stopping || event_add(server->acceptable, NULL) != 0)
        return; /* without memory the tick tries again */
    server->deaf = false;
}

static void stop_listening(struct server *server)
{
    event_del(server->acceptable);
    server->deaf = true;
}

/* The connection that yields to a newcomer: the longest idle one. NULL: none is idle. */
static struct connection *longest_idle(struct server *server)
{
    static const enum connection_state states[] = {CONNECTION_LINGERING, CONNECTION_READING};
    for (size_t i = 0; i < ARRAY_LENGTH(states); i++)
        if (!list_empty(&server->connections[states[i]]))
            return LIST_ENTRY(server->connections[states[i]].next, struct connection, node);
    return NULL;
}

/* For a line in the log each second at most. */
static bool is_quiet(const struct server *server, mono_us *until)
{
    if (server->now < *until)
        return true;
    *until = server->now + US_PER_SECOND;
    return false;
}

/* Further clients just hang. */
static void say_full(struct server *server)
{
    char connections[24];
    server->counts.full++;
    if (is_quiet(server, &server->full_quiet_until))
        return;
    snprintf(connections, sizeof connections, "%zu", server->connection_count);
    log_write(LOG_WARN,
              server->memory_short ? "max_memory reached, new connections wait"
                                   : "max_connections reached, new connections wait",
              "connections", connections, NULL);
}

/* Takes the descriptor over. NULL: no memory; then it is closed. */
static struct connection *connection_new(struct server *server, int fd, const struct sockaddr_storage *address)
{
    struct connection *connection = calloc(1, sizeof *connection);
    if (!connection)
        goto err_accepted;
    connection->server = server;
    buf_init(&connection->ahead, 2 * READ_AHEAD + INPUT_SIZE);
    connection->ahead.budget = &server->receiving;
    list_init(&connection->node);
    list_init(&connection->of_peer);
    connection->peer = peer_join(&server->peers, address);
    if (!connection->peer)
        goto err_allocated;
    connection->readable = event_new(server->base, fd, EV_READ | EV_PERSIST, on_readable, connection);
    if (!connection->readable || event_add(connection->readable, NULL) != 0)
        goto err_joined;
    connection->bev = bufferevent_socket_new(server->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!connection->bev)
        goto err_joined;
    bufferevent_setcb(connection->bev, NULL, on_written, on_broken, connection);
    return connection;

err_joined:
    if (connection->readable)
        event_free(connection->readable);
    peer_leave(&server->peers, connection->peer);
err_allocated:
    free(connection);
err_accepted:
    close(fd);
    return NULL;
}

static int64_t most_from_one_address(const struct server_settings *settings)
{
    enum { A_PART = 4 };
    int64_t most = settings->max_connections_per_address;
    return most ? most : max_i64(1, settings->max_connections / A_PART);
}

/* As many connections come from its address as may, and none of them is idle. */
static void refuse_crowd(struct connection *connection)
{
    struct server *server = connection->server;
    struct exchange *exchange = exchange_take(connection);
    char sentence[128];
    server->counts.crowded++;
    if (!exchange) {
        connection_close(connection);
        return;
    }
    snprintf(sentence, sizeof sentence, "too many connections from this address (max_connections_per_address is %lld)",
             (long long)most_from_one_address(&server->settings));
    problem_answer(exchange, PERMIT_TOO_MANY, sentence);
    exchange_refuse(exchange);
}

/* `yields` is closed for it, or an idle one from the same address, if too many come from there. */
static void connection_begin(struct connection *connection, struct connection *yields)
{
    struct server *server = connection->server;
    struct peer *peer = connection->peer;
    bool crowded = (int64_t)peer->connections > most_from_one_address(&server->settings);
    if (crowded)
        yields = list_empty(&peer->idle) ? NULL : LIST_ENTRY(peer->idle.next, struct connection, of_peer);
    server->connection_count++;
    server->counts.accepted++;
    connection_move(connection, CONNECTION_READING);
    if (yields) {
        server->counts.yielded++;
        connection_close(yields);
    } else if (crowded) {
        refuse_crowd(connection);
    }
}

/* No file descriptor, for example. The tick tries again. */
static void accept_failed(struct server *server, int error)
{
    if (error == EAGAIN || error == EINTR || error == ECONNABORTED)
        return;
    stop_listening(server);
    if (!is_quiet(server, &server->accept_quiet_until))
        log_write(LOG_WARN, "cannot accept a connection", "error", strerror(error), NULL);
}

/* False: there is none to accept now. */
static bool accept_one(struct server *server)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    struct connection *yields = NULL;
    if (server_is_full(server) && !(yields = longest_idle(server))) {
        stop_listening(server);
        say_full(server);
        return false;
    }
    int fd = accept4(server->listen_fd, (struct sockaddr *)&address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        accept_failed(server, errno);
        return false;
    }
    struct connection *connection = connection_new(server, fd, &address);
    if (connection)
        connection_begin(connection, yields);
    return true;
}

void connections_accept(evutil_socket_t fd, short what, void *context)
{
    struct server *server = context;
    (void)fd, (void)what;
    server->now = clock_mono();
    for (int i = 0; i < ACCEPT_MAX && accept_one(server); i++)
        ;
    connections_dispose(server);
}
