/* SPDX-License-Identifier: MIT */
/*
 * TLS handshakes. A handshake costs the loop up to 1.5 ms, so that thousands of clients that connect again at once
 * would delay all others. Therefore a turn of the loop runs a few steps of handshakes only, and handshakes begin at a
 * limited rate (tls_handshakes); clients beyond it are QUEUED. The addresses of clients that wait, for the beginning or
 * for a step, take turns.
 */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/loop.h"
#include "http/tls.h"

enum {
    STEPS_MAX = 4,        /* steps of handshakes in a turn of the loop */
    BURST_MS = 100,       /* handshakes that this time allows may begin at once */
    TLS_HANDSHAKE = 0x16, /* first byte of a TLS client */
};

/* ---- lines ---- */

static void line_join(struct connection *connection, enum peer_line_kind kind)
{
    struct peer_line *line = &connection->peer->lines[kind];
    list_append(&line->waiting, &connection->of_peer);
    if (list_empty(&line->in_turn))
        list_append(&connection->server->lines[kind], &line->in_turn);
}

/* Returns the connection that is next: the oldest one of the peer whose turn it is. NULL: none waits. */
static struct connection *line_first(const struct server *server, enum peer_line_kind kind)
{
    const struct list *turns = &server->lines[kind];
    const struct peer_line *line = LIST_ENTRY(turns->next, struct peer_line, in_turn);
    return list_empty(turns) ? NULL : LIST_ENTRY(line->waiting.next, struct connection, of_peer);
}

/* Takes the connection out of the line. Its peer has had its turn. */
static void line_leave(struct connection *connection, enum peer_line_kind kind)
{
    struct peer_line *line = &connection->peer->lines[kind];
    list_remove(&connection->of_peer);
    list_remove(&line->in_turn);
    if (!list_empty(&line->waiting))
        list_append(&connection->server->lines[kind], &line->in_turn);
}

void handshake_left(struct connection *connection)
{
    for (size_t i = 0; i < LINE_KINDS; i++)
        if (list_empty(&connection->peer->lines[i].waiting))
            list_remove(&connection->peer->lines[i].in_turn);
}

/* ---- rationing ---- */

/* Returns false if this turn of the loop has run enough steps. on_turn runs in the next one. */
static bool take_step(struct server *server)
{
    static const struct timeval next_turn = {0, 0};
    if (server->handshake_steps == STEPS_MAX)
        return false;
    if (server->handshake_steps == 0 && event_add(server->turn, &next_turn) != 0)
        return true; /* out of memory: not counted */
    server->handshake_steps++;
    return true;
}

/* Returns false if no handshake may begin now. */
static bool take_beginning(struct server *server)
{
    mono_us earliest = server->now - BURST_MS * (mono_us)US_PER_MS;
    if (server->handshake_at < earliest)
        server->handshake_at = earliest;
    if (server->handshake_at > server->now)
        return false;
    server->handshake_at += US_PER_SECOND / server->settings.tls_handshakes;
    return true;
}

/* Counts and logs the end of a handshake. */
static void count(struct connection *connection, enum handshake_result result)
{
    struct server *server = connection->server;
    server->counts.handshakes[result]++;
    if (result == HANDSHAKE_OK)
        return;
    if (!server_log_is_limited(server, &server->handshake_quiet_until))
        log_write(LOG_INFO, "TLS handshake failed", "peer", connection->client.address, "reason",
                  handshake_result_word(result), NULL);
}

/*
 * Ends a connection whose handshake has failed. The socket has the alert with the reason; it would be lost if input
 * that is still unread closed the connection with a reset.
 */
static void fail(struct connection *connection, enum handshake_result result)
{
    count(connection, result);
    if (result == HANDSHAKE_CLOSED || result == HANDSHAKE_TIMED_OUT) {
        connection_close(connection);
        return;
    }
    tls_free(connection->tls);
    connection->tls = NULL;
    shutdown(connection->fd, SHUT_WR);
    connection_stop_awaiting_output(connection);
    connection_move(connection, CONNECTION_LINGERING);
}

/* A client that has given up costs no handshake. */
static bool has_gone(const struct connection *connection)
{
    struct pollfd polled = {.fd = connection->fd, .events = POLLRDHUP};
    return poll(&polled, 1, 0) > 0 && polled.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

void handshakes_release(struct server *server)
{
    struct connection *connection;
    while ((connection = line_first(server, LINE_HANDSHAKE))) {
        if (has_gone(connection)) {
            fail(connection, HANDSHAKE_CLOSED);
            continue;
        }
        if (!take_beginning(server))
            return;
        line_leave(connection, LINE_HANDSHAKE);
        connection->may_begin = true;
        connection_is_new(connection);
        connection_move(connection, CONNECTION_HANDSHAKING);
        if (event_add(connection->readable, NULL) != 0)
            connection_close(connection);
    }
}

/* ---- one handshake ---- */

/* Answers a client that speaks HTTP without TLS. */
static void refuse_plain(struct connection *connection)
{
    connection->client.transport = CLIENT_TCP;
    count(connection, HANDSHAKE_PLAIN_HTTP);
    connection_move(connection, CONNECTION_READING);
    struct exchange *exchange = exchange_take(connection);
    if (exchange)
        exchange_refuse(exchange, PERMIT_MALFORMED, "this port speaks TLS: use https://");
    else
        connection_close(connection);
}

/*
 * Returns true if the client's first byte has arrived and its handshake may begin. Else the connection may be closed.
 */
static bool may_begin(struct connection *connection)
{
    struct server *server = connection->server;
    unsigned char first;
    ssize_t got = recv(connection->fd, &first, sizeof first, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got <= 0) {
        fail(connection, HANDSHAKE_CLOSED);
        return false;
    }
    if (first != TLS_HANDSHAKE) {
        refuse_plain(connection);
        return false;
    }
    bool others_wait = !list_empty(&server->connections[CONNECTION_QUEUED]);
    if (!connection->may_begin && (others_wait || !take_beginning(server))) {
        event_del(connection->readable);
        list_remove(&connection->of_new);
        connection_move(connection, CONNECTION_QUEUED);
        line_join(connection, LINE_HANDSHAKE);
        return false;
    }
    connection->may_begin = true;
    return true;
}

static void run_step(struct connection *connection)
{
    if (!connection->tls && !(connection->tls = tls_new(connection->server->tls, connection->fd))) {
        connection_close(connection);
        return;
    }
    enum handshake_result result = tls_handshake(connection->tls);
    if (result == HANDSHAKE_RESULTS) {
        if (tls_wants_output(connection->tls))
            connection_await_output(connection);
        else
            connection_stop_awaiting_output(connection);
        return;
    }
    if (result != HANDSHAKE_OK) {
        fail(connection, result);
        return;
    }
    struct client *client = &connection->client;
    client->certificate_names = tls_client_names(connection->tls, &client->certificate_name_count);
    count(connection, result);
    connection_stop_awaiting_output(connection);
    connection_move(connection, CONNECTION_READING);
}

/* Without a step for it now, the connection waits, and its events are not reported meanwhile. */
void handshake_continue(struct connection *connection)
{
    if (!connection->tls && !may_begin(connection))
        return;
    if (take_step(connection->server)) {
        run_step(connection);
        return;
    }
    event_del(connection->readable);
    connection_stop_awaiting_output(connection);
    line_join(connection, LINE_STEP);
}

static void on_turn(evutil_socket_t fd, short what, void *context)
{
    struct server *server = context;
    struct connection *connection;
    (void)fd, (void)what;
    server->now = clock_mono();
    server->handshake_steps = 0;
    while ((connection = line_first(server, LINE_STEP)) && take_step(server)) {
        line_leave(connection, LINE_STEP);
        if (event_add(connection->readable, NULL) == 0)
            run_step(connection);
        else
            connection_close(connection);
    }
    connections_dispose(server);
}

bool handshakes_open(struct server *server)
{
    server->turn = evtimer_new(server->base, on_turn, server);
    return server->turn != NULL;
}

void handshake_time_out(struct connection *connection)
{
    fail(connection, HANDSHAKE_TIMED_OUT);
}
