/* SPDX-License-Identifier: MIT */
/* Connections, from accept to close. */
#include "http/loop.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/parser.h"

enum {
    ACCEPT_MAX = 64,                 /* connections accepted in one callback */
    LINGER_MS = 2000,                /* time that a connection is LINGERING */
    LINGER_BYTES = 16 * 1024 * 1024, /* input that is dropped in that time; more closes the connection */
};

/* ---- states ---- */

static void close_watch_release(struct connection *connection)
{
    if (connection->close_watch)
        event_free(connection->close_watch);
    connection->close_watch = NULL;
}

void connection_move(struct connection *connection, enum connection_state state)
{
    assert(connection->state != CONNECTION_CLOSED);
    if (state == CONNECTION_READING || state == CONNECTION_LINGERING) {
        close_watch_release(connection);
        if (connection->paused && event_add(connection->readable, NULL) != 0)
            connection->ended = true; /* out of memory: it cannot be read any more */
        connection->paused = false;
    }
    list_remove(&connection->node);
    list_remove(&connection->of_peer);
    connection->state = state;
    connection->since = connection->server->now;
    list_append(&connection->server->connections[state], &connection->node);
    if (state != CONNECTION_READING)
        return;
    list_append(&connection->peer->idle, &connection->of_peer);
    server_resume_accepting(connection->server); /* this idle connection can be closed for a new one */
}

/*
 * Detaches the exchange from the connection. An incomplete request is dropped. An exchange that is with the engine
 * continues, and its answer is dropped.
 */
static void detach_exchange(struct connection *connection)
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
    detach_exchange(connection);
    close_watch_release(connection);
    buf_release(&connection->ahead);
    event_free(connection->readable);
    bufferevent_free(connection->bev); /* also closes the descriptor */
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
        assert(!connection->exchange);
        list_remove(&connection->node);
        peer_leave(&server->peers, connection->peer);
        free(connection);
        server->connection_count--;
    }
    server_resume_accepting(server);
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

/* Reads requests until one must wait for the engine. Returns true if all of the input is used. */
static bool process_input(struct connection *connection, struct bytes *input)
{
    while (input->length && connection->state == CONNECTION_READING)
        request_receive(connection, input);
    return input->length == 0;
}

/* Keeps the unused rest of the input read in advance. Frees the buffer if there is none. */
static void keep_unread(struct connection *connection, struct bytes rest)
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
        (void)process_input(connection, &ahead);
        if (connection->state != CONNECTION_CLOSED)
            keep_unread(connection, ahead);
    }
    if (connection->state == CONNECTION_READING && connection->ended)
        connection_close(connection);
}

/*
 * The client has closed its side, or the connection is broken. A client that has closed its side may still read, so its
 * request is answered. But a client of a waiting exchange is taken to have disconnected.
 */
static void client_closed(struct connection *connection)
{
    event_del(connection->readable);
    connection->ended = true;
    if (connection->state == CONNECTION_DECIDING)
        exchange_client_disconnected(connection->server, connection->exchange);
    else if (connection->state != CONNECTION_SENDING)
        connection_close(connection);
}

static void on_client_closed(evutil_socket_t fd, short what, void *context)
{
    struct connection *connection = context;
    struct server *server = connection->server;
    (void)fd, (void)what;
    server->now = clock_mono();
    client_closed(connection);
    connections_dispose(server);
}

void connection_watch_close(struct connection *connection)
{
    if (connection->close_watch || !connection->paused || !exchange_waits(connection->exchange))
        return;
    connection->close_watch = event_new(connection->server->base, bufferevent_getfd(connection->bev), EV_CLOSED,
                                        on_client_closed, connection);
    if (connection->close_watch && event_add(connection->close_watch, NULL) != 0)
        close_watch_release(connection);
}

/* Keeps input that arrives before it can be processed. Pauses reading while it has READ_AHEAD bytes or more. */
static void read_ahead(struct connection *connection, struct bytes input)
{
    buf_append(&connection->ahead, input.data, input.length);
    if (connection->ahead.broken) { /* the lost input cannot be read again */
        client_closed(connection);
        connection_close(connection);
        return;
    }
    if (connection->ahead.length >= READ_AHEAD) {
        event_del(connection->readable);
        connection->paused = true;
    }
    if (connection->state == CONNECTION_DECIDING)
        connection_watch_close(connection);
}

/*
 * Returns how many bytes to read at once: a small number, so that no client delays the others; more for bodies and for
 * input that is dropped.
 */
static size_t read_size(const struct connection *connection)
{
    bool reads = connection->state == CONNECTION_READING && connection->exchange;
    bool much = reads ? connection->exchange->parser->state == READ_BODY : connection->state == CONNECTION_LINGERING;
    return much ? INPUT_SIZE : READ_AHEAD;
}

/*
 * Reads from the socket directly: a bufferevent would first query the number of available bytes and allocate memory for
 * them.
 */
static void on_readable(evutil_socket_t fd, short what, void *context)
{
    struct connection *connection = context;
    struct server *server = connection->server;
    (void)what;
    server->now = clock_mono();
    ssize_t got = recv(fd, server->input, read_size(connection), MSG_DONTWAIT);
    struct bytes input = {server->input, got > 0 ? (size_t)got : 0};
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        client_closed(connection);
    } else if (connection->state == CONNECTION_LINGERING) {
        connection->dropped += input.length;
        if (connection->dropped > LINGER_BYTES)
            connection_close(connection);
    } else if (!process_input(connection, &input) && connection->state != CONNECTION_CLOSED) {
        read_ahead(connection, input);
    }
    connections_dispose(server);
}

/* All of an answer is in the socket: continues with the next request, or closes the connection. */
static void answer_written(struct connection *connection)
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
        answer_written(connection);
        connection_read(connection);
    }
    connections_dispose(server);
}

/* The output cannot be written: closes the connection. */
static void on_broken(struct bufferevent *bev, short what, void *context)
{
    struct connection *connection = context;
    struct server *server = connection->server;
    (void)bev, (void)what;
    server->now = clock_mono();
    connection_close(connection);
    connections_dispose(server);
}

bool connection_client_closed(const struct connection *connection)
{
    char byte;
    if (connection->ended)
        return true;
    ssize_t got = recv(bufferevent_getfd(connection->bev), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

/* ---- writing ---- */

/* Frees the rest of a body, which the output refers to until it is in the socket. */
static void free_body(const void *data, size_t length, void *context)
{
    struct buf *body = context;
    (void)data, (void)length;
    buf_release(body);
    free(body);
}

/*
 * Adds the body from offset `from` to the output. Takes over the body's memory. False: out of memory; the body is
 * released.
 */
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
    if (evbuffer_add_reference(output, rest->data + from, rest->length - from, free_body, rest) == 0)
        return true;
    free_body(NULL, 0, rest);
    return false;
}

/* Sends head and body. A small answer is sent as one piece, which costs the kernel less than two. */
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

/*
 * Writes head and body: now, as far as the socket accepts them, and the rest later through the bufferevent. Returns
 * true if all is written. An answer is sent completely or not at all: if there is no memory for the rest, the
 * connection is closed and the client has to repeat the request.
 */
static bool write_all(struct connection *connection, struct bytes head, struct buf *body)
{
    struct evbuffer *output = bufferevent_get_output(connection->bev);
    size_t length = body ? body->length : 0;
    size_t sent = 0;
    if (!evbuffer_get_length(output)) { /* else earlier output still waits; a write error shows again with the rest */
        ssize_t now =
            send_now(bufferevent_getfd(connection->bev), head, (struct bytes){body ? body->data : NULL, length});
        sent = now > 0 ? (size_t)now : 0;
    }
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

bool connection_send_continue(struct connection *connection)
{
    (void)write_all(connection, BYTES("HTTP/1.1 100 Continue\r\n\r\n"), NULL);
    return connection->state != CONNECTION_CLOSED;
}

void connection_answer(struct connection *connection, struct bytes head, struct buf *body)
{
    if (write_all(connection, head, body))
        answer_written(connection);
    else if (connection->state != CONNECTION_CLOSED)
        connection_move(connection, CONNECTION_SENDING);
}

/* ---- accepting ---- */

/* Returns true if the server accepts no more connections. Short memory never stops the first ALWAYS_ACCEPTED. */
static bool server_is_full(const struct server *server)
{
    enum { ALWAYS_ACCEPTED = 1000 };
    return (int64_t)server->connection_count >= server->settings.max_connections ||
           (server->memory_short && server->connection_count >= ALWAYS_ACCEPTED);
}

void server_resume_accepting(struct server *server)
{
    if (!server->accept_paused || server->stopping || event_add(server->acceptable, NULL) != 0)
        return; /* out of memory: the tick tries again */
    server->accept_paused = false;
}

static void pause_accepting(struct server *server)
{
    event_del(server->acceptable);
    server->accept_paused = true;
}

/* Returns the connection to close for a new one: the longest lingering one, else the longest idle one. NULL: none. */
static struct connection *longest_idle(struct server *server)
{
    static const enum connection_state states[] = {CONNECTION_LINGERING, CONNECTION_READING};
    for (size_t i = 0; i < ARRAY_LENGTH(states); i++)
        if (!list_empty(&server->connections[states[i]]))
            return LIST_ENTRY(server->connections[states[i]].next, struct connection, node);
    return NULL;
}

/* Limits a log line to one per second. */
static bool is_log_limited(const struct server *server, mono_us *until)
{
    if (server->now < *until)
        return true;
    *until = server->now + US_PER_SECOND;
    return false;
}

/* Counts and logs that the server is full. New clients wait in the backlog without an answer. */
static void log_full(struct server *server)
{
    char connections[24];
    server->counts.full++;
    if (is_log_limited(server, &server->full_quiet_until))
        return;
    snprintf(connections, sizeof connections, "%zu", server->connection_count);
    log_write(LOG_WARN,
              server->memory_short ? "max_memory reached, new connections wait"
                                   : "max_connections reached, new connections wait",
              "connections", connections, NULL);
}

/* Creates a connection. Takes over the descriptor. NULL: out of memory; the descriptor is closed. */
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

static int64_t peer_limit(const struct server_settings *settings)
{
    enum { PEER_SHARE = 4 };
    int64_t most = settings->max_connections_per_address;
    return most ? most : max_i64(1, settings->max_connections / PEER_SHARE);
}

/* Answers 429: max_connections_per_address is reached and none of the peer's connections is idle. */
static void refuse_crowded(struct connection *connection)
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
             (long long)peer_limit(&server->settings));
    exchange_refuse(exchange, PERMIT_TOO_MANY, sentence);
}

/* Starts a new connection. Closes `yields` for it, or an idle connection of the same peer if the peer has too many. */
static void connection_begin(struct connection *connection, struct connection *victim)
{
    struct server *server = connection->server;
    struct peer *peer = connection->peer;
    bool crowded = (int64_t)peer->connections > peer_limit(&server->settings);
    if (crowded)
        victim = list_empty(&peer->idle) ? NULL : LIST_ENTRY(peer->idle.next, struct connection, of_peer);
    server->connection_count++;
    server->counts.accepted++;
    connection_move(connection, CONNECTION_READING);
    if (victim) {
        server->counts.yielded++;
        connection_close(victim);
    } else if (crowded) {
        refuse_crowded(connection);
    }
}

/* Stops accepting after an error such as no free file descriptor. The tick tries again. */
static void accept_failed(struct server *server, int error)
{
    if (error == EAGAIN || error == EINTR || error == ECONNABORTED)
        return;
    pause_accepting(server);
    if (!is_log_limited(server, &server->accept_quiet_until))
        log_write(LOG_WARN, "cannot accept a connection", "error", strerror(error), NULL);
}

/* Accepts one connection. False: none can be accepted now. */
static bool accept_one(struct server *server)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    struct connection *victim = NULL;
    if (server_is_full(server) && !(victim = longest_idle(server))) {
        pause_accepting(server);
        log_full(server);
        return false;
    }
    int fd = accept4(server->listen_fd, (struct sockaddr *)&address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        accept_failed(server, errno);
        return false;
    }
    struct connection *connection = connection_new(server, fd, &address);
    if (connection)
        connection_begin(connection, victim);
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
