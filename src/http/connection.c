/* SPDX-License-Identifier: MIT */
/* Connections, from accept to close. */
#include "http/loop.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/parser.h"
#include "http/tls.h"

enum {
    FIRST_MS = 10000,                /* time for the handshake and the first request */
    RECORD_MAX = 16 * 1024,          /* bytes of a TLS record */
    LINGER_MS = 2000,                /* time that a connection is LINGERING */
    LINGER_BYTES = 16 * 1024 * 1024, /* input that is dropped in that time; more closes the connection */
};

/* Called for every event of the connection's socket. */
static void on_event(evutil_socket_t fd, short what, void *context);

/* ---- states ---- */

static void close_watch_release(struct connection *connection)
{
    if (connection->close_watch)
        event_free(connection->close_watch);
    connection->close_watch = NULL;
}

static void resume_reading(struct connection *connection)
{
    if (!connection->paused)
        return;
    connection->paused = false;
    if (event_add(connection->readable, NULL) != 0)
        connection->ended = true; /* out of memory: it cannot be read any more */
    else if (connection->tls)
        event_active(connection->readable, EV_READ, 0); /* the session may have input that the socket has not */
}

void connection_move(struct connection *connection, enum connection_state state)
{
    assert(connection->state != CONNECTION_CLOSED);
    if (state == CONNECTION_READING || state == CONNECTION_LINGERING)
        close_watch_release(connection);
    if (state == CONNECTION_LINGERING || (state == CONNECTION_READING && connection->ahead.length < READ_AHEAD))
        resume_reading(connection); /* else connection_read does, when there is room */
    list_remove(&connection->node);
    list_remove(&connection->of_peer);
    handshake_left(connection);
    connection->state = state;
    connection->since = connection->server->now;
    list_append(&connection->server->connections[state], &connection->node);
    if (state != CONNECTION_READING && (state != CONNECTION_SENDING || !connection_is_stranger(connection)))
        return;
    list_append(&connection->peer->idle, &connection->of_peer);
    server_resume_accepting(connection->server); /* this connection can be closed for a new one */
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
    list_remove(&connection->of_new);
    event_free(connection->readable);
    if (connection->writable)
        event_free(connection->writable);
    if (connection->output)
        evbuffer_free(connection->output);
    if (connection->tls)
        tls_end(connection->tls);
    tls_free(connection->tls);
    connection->client.certificate_names = NULL; /* the session had them */
    connection->client.certificate_name_count = 0;
    close(connection->fd);
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
        if (connection->client.session)
            server->settings.hooks->end_session(connection->client.session);
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

/* Closes connections without a complete first request in time. */
static void close_slow_newcomers(struct server *server)
{
    list_for_each (node, following, &server->newcomers) {
        struct connection *connection = LIST_ENTRY(node, struct connection, of_new);
        if (connection->first_by > server->now)
            return;
        if (connection->state == CONNECTION_HANDSHAKING)
            handshake_time_out(connection);
        else
            connection_close(connection);
    }
}

void connection_is_new(struct connection *connection)
{
    list_remove(&connection->of_new);
    connection->first_by = connection->server->now + FIRST_MS * (mono_us)US_PER_MS;
    list_append(&connection->server->newcomers, &connection->of_new);
}

void connections_sweep(struct server *server)
{
    close_slow_newcomers(server);
    mono_us idle_since = server->now - server->settings.idle_timeout_ms * US_PER_MS;
    close_older(server, CONNECTION_READING, idle_since);
    close_older(server, CONNECTION_SENDING, idle_since);
    close_older(server, CONNECTION_LINGERING, server->now - LINGER_MS * (mono_us)US_PER_MS);
    peers_forgive(&server->peers, &server->failing_peers, server->now);
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
        if (connection->state == CONNECTION_READING)
            resume_reading(connection);
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

void connection_watch_close(struct connection *connection)
{
    if (connection->close_watch || !connection->paused || !exchange_waits(connection->exchange))
        return;
    connection->close_watch = event_new(connection->server->base, connection->fd, EV_CLOSED, on_event, connection);
    if (connection->close_watch && event_add(connection->close_watch, NULL) != 0)
        close_watch_release(connection);
}

/* Keeps input that arrives before it can be processed. Pauses reading while it has READ_AHEAD bytes or more. */
static void read_ahead(struct connection *connection, struct bytes input)
{
    if (!connection->ahead.capacity)
        connection->ahead.budget = &connection->client.share->receiving;
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
 * As recv. Of a session always a whole record is read: the rest of one would stay in the session, and no event would
 * report it.
 */
static ssize_t receive_now(struct connection *connection, char *data)
{
    if (!connection->tls)
        return recv(connection->fd, data, read_size(connection), MSG_DONTWAIT);
    ssize_t got = tls_read(connection->tls, data, RECORD_MAX);
    if (tls_wants_output(connection->tls)) {
        connection_await_output(connection);
        errno = EAGAIN;
    }
    return got;
}

/*
 * Reads from the socket directly: a bufferevent would first query the number of available bytes and allocate memory for
 * them.
 */
static void read_socket(struct connection *connection)
{
    char *data = connection->server->input;
    ssize_t got = receive_now(connection, data);
    struct bytes input = {data, got > 0 ? (size_t)got : 0};
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        client_closed(connection);
    } else if (connection->state == CONNECTION_LINGERING) {
        connection->dropped += input.length;
        if (connection->dropped > LINGER_BYTES)
            connection_close(connection);
    } else if (!process_input(connection, &input) && connection->state != CONNECTION_CLOSED) {
        read_ahead(connection, input);
    }
}

/* Returns true if the client has read its answers, or nearly all of them are on their way to it. */
static bool socket_takes_output(const struct connection *connection)
{
    struct pollfd polled = {.fd = connection->fd, .events = POLLOUT};
    return poll(&polled, 1, 0) != 0;
}

/*
 * All of an answer is in the socket: continues with the next request, or closes the connection. `unread`: so much of
 * the answers may be unread that the next one must not begin.
 */
static void answer_written(struct connection *connection, bool unread)
{
    bool more_comes = connection->refused || connection->more;
    if (!connection->closes && unread && !socket_takes_output(connection)) {
        connection_move(connection, CONNECTION_SENDING);
        connection_await_output(connection);
    } else if (!connection->closes) {
        connection_move(connection, CONNECTION_READING);
    } else if (more_comes && !connection->ended) {
        if (connection->tls)
            tls_end(connection->tls);
        shutdown(connection->fd, SHUT_WR);
        connection_move(connection, CONNECTION_LINGERING);
    } else {
        connection_close(connection);
    }
}

bool connection_client_closed(struct connection *connection)
{
    char byte;
    if (connection->ended)
        return true;
    if (connection->tls) {
        bool pending;
        bool closed = tls_client_closed(connection->tls, &pending);
        if (pending && !connection->paused)
            event_active(connection->readable, EV_READ, 0);
        return closed;
    }
    ssize_t got = recv(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
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
 * Adds the body from offset `from` to the output. Takes over `memory`, which has the body; NULL: the body is constant.
 * False: out of memory; `memory` is released.
 */
static bool output_body(struct evbuffer *output, struct bytes body, size_t from, struct buf *memory)
{
    if (!memory)
        return evbuffer_add_reference(output, body.data + from, body.length - from, NULL, NULL) == 0;
    struct buf *rest = malloc(sizeof *rest);
    if (!rest) {
        buf_release(memory);
        return false;
    }
    *rest = *memory;
    *memory = (struct buf){.max = rest->max, .budget = rest->budget};
    buf_fit(rest);
    if (evbuffer_add_reference(output, rest->data + from, rest->length - from, free_body, rest) == 0)
        return true;
    free_body(NULL, 0, rest);
    return false;
}

/* Sends head and body. A small answer is sent as one piece, which costs the kernel less than two. */
static ssize_t send_plain(int fd, struct bytes head, struct bytes body)
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

/* The same through a session: one record. A longer answer is left to `output`. */
static ssize_t send_record(struct connection *connection, struct bytes head, struct bytes body)
{
    char all[RECORD_MAX];
    size_t length = head.length + body.length;
    if (length > sizeof all)
        return 0;
    memcpy(all, head.data, head.length);
    if (body.length)
        memcpy(all + head.length, body.data, body.length);
    ssize_t sent = tls_write(connection->tls, all, length);
    if (sent < 0)
        connection->output_piece = length;
    return sent;
}

/* Writes the next piece of `output` and removes it. Returns as send. */
static ssize_t send_output(struct connection *connection)
{
    struct evbuffer *output = connection->output;
    if (!connection->tls)
        return evbuffer_write(output, connection->fd);
    size_t length = connection->output_piece;
    if (!length) {
        length = evbuffer_get_contiguous_space(output);
        length = length < RECORD_MAX ? length : RECORD_MAX;
    }
    const unsigned char *data = evbuffer_pullup(output, (ev_ssize_t)length);
    if (!data) {
        errno = ENOMEM;
        return -1;
    }
    ssize_t sent = tls_write(connection->tls, data, length);
    connection->output_piece = sent < 0 ? length : 0;
    if (sent > 0)
        evbuffer_drain(output, (size_t)sent);
    return sent;
}

/*
 * Writes `output` as far as the socket accepts it. Returns true if nothing is left. Closes a broken connection. If the
 * socket accepts some of it, the client has read, and its time begins again.
 */
static bool flush_output(struct connection *connection)
{
    bool progress = false;
    while (connection->output && evbuffer_get_length(connection->output)) {
        if (send_output(connection) > 0) {
            progress = true;
            continue;
        }
        if (errno != EAGAIN && errno != EINTR) {
            connection_close(connection);
            return false;
        }
        if (progress && connection->state == CONNECTION_SENDING)
            connection_move(connection, CONNECTION_SENDING);
        connection_await_output(connection);
        return false;
    }
    connection_stop_awaiting_output(connection);
    return connection->state != CONNECTION_CLOSED;
}

/* Writes more of `output`. When all of it is written, continues to read. */
static void write_socket(struct connection *connection)
{
    if (!flush_output(connection))
        return;
    if (connection->tls && !connection->paused && !connection->ended)
        event_active(connection->readable, EV_READ, 0); /* reading may have waited for it */
    if (connection->state == CONNECTION_SENDING) {
        answer_written(connection, true);
        connection_read(connection);
    }
}

void connection_stop_awaiting_output(struct connection *connection)
{
    if (connection->writable)
        event_del(connection->writable);
}

void connection_await_output(struct connection *connection)
{
    if (!connection->writable)
        connection->writable =
            event_new(connection->server->base, connection->fd, EV_WRITE | EV_PERSIST, on_event, connection);
    if (!connection->writable || event_add(connection->writable, NULL) != 0)
        connection_close(connection);
}

/*
 * Writes head and body: now, as far as the socket accepts them, and the rest later. Returns true if all is written. An
 * answer is sent completely or not at all: if there is no memory for the rest, the connection is closed and the client
 * has to repeat the request.
 */
static bool write_all(struct connection *connection, struct bytes head, struct bytes body, struct buf *memory)
{
    size_t sent = 0;
    bool waits = connection->output && evbuffer_get_length(connection->output);
    if (!waits) { /* else earlier output is first; a write error shows again with the rest */
        ssize_t now = connection->tls ? send_record(connection, head, body) : send_plain(connection->fd, head, body);
        sent = now > 0 ? (size_t)now : 0;
    }
    if (sent == head.length + body.length)
        return true;
    if (!connection->output)
        connection->output = evbuffer_new();
    bool kept = connection->output != NULL;
    if (kept && sent < head.length) {
        kept = evbuffer_add(connection->output, head.data + sent, head.length - sent) == 0;
        sent = head.length;
    }
    if (kept && sent < head.length + body.length)
        kept = output_body(connection->output, body, sent - head.length, memory);
    if (!kept)
        connection_close(connection);
    else if (connection->tls)
        return flush_output(connection);
    else
        connection_await_output(connection);
    return false;
}

bool connection_send_continue(struct connection *connection)
{
    (void)write_all(connection, BYTES("HTTP/1.1 100 Continue\r\n\r\n"), (struct bytes){0}, NULL);
    return connection->state != CONNECTION_CLOSED;
}

void connection_answer(struct connection *connection, struct bytes head, struct bytes body, struct buf *memory)
{
    /* The next request of a client that does not pipeline shows that it has read the answer. */
    bool unread = head.length + body.length > BUDGET_SMALL || connection->more || connection->ahead.length;
    if (write_all(connection, head, body, memory))
        answer_written(connection, unread);
    else if (connection->state != CONNECTION_CLOSED)
        connection_move(connection, CONNECTION_SENDING);
}

/* ---- events ---- */

static void on_event(evutil_socket_t fd, short what, void *context)
{
    struct connection *connection = context;
    struct server *server = connection->server;
    (void)fd;
    server->now = clock_mono();
    if (connection->state == CONNECTION_HANDSHAKING)
        handshake_continue(connection);
    else if (what & EV_CLOSED)
        client_closed(connection);
    else if (what & EV_WRITE)
        write_socket(connection);
    else
        read_socket(connection);
    connections_dispose(server);
}

bool connection_open(struct connection *connection)
{
    connection->readable =
        event_new(connection->server->base, connection->fd, EV_READ | EV_PERSIST, on_event, connection);
    if (connection->readable && event_add(connection->readable, NULL) == 0)
        return true;
    if (connection->readable)
        event_free(connection->readable);
    return false;
}
