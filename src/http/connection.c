/* SPDX-License-Identifier: MIT */
/* The life of a connection, from accept to close, and the pages that evhttp writes to it by itself. */
#include "http/loop.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/problem.h"
#include "http/service.h"

struct connection *connection_of(struct server *server, struct bufferevent *bev)
{
    struct map_node *node = map_find(&server->connections, (struct bytes){(const char *)&bev, sizeof bev});
    return node ? MAP_ENTRY(node, struct connection, by_bev) : NULL;
}

bool server_is_full(const struct server *server)
{
    return (int64_t)server->connections.count >= server->settings.max_connections;
}

void server_listen_again(struct server *server)
{
    if (!server->stopping && !server_is_full(server))
        (void)evconnlistener_enable(server->listener); /* without memory it fails: the tick tries again */
}

/* Whoever comes now just hangs, so it is said here: in a line a second at most. */
static void stop_accepting(struct server *server)
{
    char connections[24];
    mono_us now = clock_mono();
    evconnlistener_disable(server->listener);
    server->counts.full++;
    server_set_pace(server);
    if (now < server->full_quiet_until)
        return;
    server->full_quiet_until = now + US_PER_SECOND;
    snprintf(connections, sizeof connections, "%zu", server->connections.count);
    log_write(LOG_WARN, "as many connections as max_connections: others wait until one closes", "connections",
              connections, NULL);
}

/* Something goes into a connection's output that is not an answer of ours: evhttp refuses the request by itself. */
static void output_changed(struct evbuffer *buffer, const struct evbuffer_cb_info *info, void *context)
{
    struct connection *connection = context;
    (void)buffer;
    if (info->n_added == 0 || connection->answering || connection->error_page)
        return;
    connection->error_page = true;
    connection->next_error_page = connection->server->error_pages;
    connection->server->error_pages = connection;
    event_active(connection->server->error_page_event, EV_TIMEOUT, 1);
}

void connection_forget(struct connection *connection)
{
    struct server *server = connection->server;
    list_remove(&connection->node);
    map_remove(&server->connections, &connection->by_bev);
    for (struct connection **at = &server->error_pages; *at; at = &(*at)->next_error_page)
        if (*at == connection) {
            *at = connection->next_error_page;
            break;
        }
    evbuffer_remove_cb(bufferevent_get_output(connection->bev), output_changed, connection);
    bufferevent_decref(connection->bev);
    free(connection);
    server_listen_again(server);
}

/*
 * evhttp closes the connection. A request that it has taken off the connection is ours to free; one that is still on
 * it, evhttp frees right after this.
 */
static void connection_closed(struct evhttp_connection *evcon, void *context)
{
    struct connection *connection = context;
    struct exchange *exchange = connection->exchange;
    (void)evcon;
    if (exchange) {
        if (!evhttp_request_get_connection(exchange->request))
            evhttp_request_free(exchange->request);
        exchange->request = NULL;
        exchange->connection = NULL;
    }
    connection_forget(connection);
}

/* Moves it between idle and busy. */
void connection_set_busy(struct connection *connection, bool busy)
{
    struct server *server = connection->server;
    list_remove(&connection->node);
    connection->since = clock_mono();
    list_append(busy ? &server->busy : &server->idle, &connection->node);
}

/* evhttp lets go of a connection without a request by taking its callbacks off. */
bool connection_is_dead(const struct connection *connection)
{
    bufferevent_event_cb called = NULL;
    bufferevent_getcb(connection->bev, NULL, NULL, &called, NULL);
    return called == NULL;
}

void connection_read_ahead(struct connection *connection, size_t bytes)
{
    bufferevent_setwatermark(connection->bev, EV_READ, 0, bytes);
}

/* evhttp has accepted a connection and asks for its bufferevent. */
struct bufferevent *connection_accept(struct event_base *base, void *context)
{
    struct server *server = context;
    struct connection *connection = calloc(1, sizeof *connection);
    struct bufferevent *bev = connection ? bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE) : NULL;
    if (!bev)
        goto err_allocated;
    connection->server = server;
    connection->bev = bev;
    connection->since = clock_mono();
    if (!map_insert(&server->connections, &connection->by_bev,
                    (struct bytes){(const char *)&connection->bev, sizeof connection->bev}))
        goto err_allocated;
    list_append(&server->idle, &connection->node);
    bufferevent_incref(bev);
    evbuffer_add_cb(bufferevent_get_output(bev), output_changed, connection);
    connection_read_ahead(connection, READ_AHEAD);
    server->counts.accepted++;
    if (server_is_full(server))
        stop_accepting(server);
    return bev;

err_allocated:
    if (bev)
        bufferevent_free(bev);
    free(connection);
    return NULL; /* evhttp makes one of its own, which we do not follow */
}

void connection_follow(struct connection *connection, struct evhttp_connection *evcon)
{
    if (!connection->known_to_evhttp)
        evhttp_connection_set_closecb(evcon, connection_closed, connection);
    connection->known_to_evhttp = true;
}

/* --- refusals of evhttp itself ------------------------------------------------------------------------------------ */

static void write_problem_response(struct server *server, struct evbuffer *out, enum permit_status status,
                                   const char *detail)
{
    struct buf *body = &server->scratch;
    char id[EXCHANGE_ID_SIZE];
    request_id_make(server, id);
    buf_clear(body);
    problem_begin(body, status, detail);
    problem_end(body);
    evbuffer_add_printf(out,
                        "HTTP/1.1 %d %s\r\nContent-Type: " PROBLEM_CONTENT_TYPE "\r\nX-Request-Id: %s\r\nDate: %s\r\n"
                        "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
                        permit_status_http(status), permit_status_title(status), id, date_header(server), body->length,
                        buf_text(body));
    server->counts.answers[permit_status_http(status) / 100]++;
}

/* What evhttp's code means in our words; the last row takes the rest. */
static const struct {
    const char *code;
    enum permit_status status;
    const char *detail;
} pages[] = {
    {"413", PERMIT_TOO_LARGE, "the body has more than 1048576 bytes, or is not well chunked"},
    {"503", PERMIT_BUSY, "no memory"},
    {"", PERMIT_MALFORMED, "the request line or a header cannot be read, or they have more than 16384 bytes"},
};

/* Puts a problem in place of the page that evhttp has just written and not yet sent. */
static void replace_error_page(struct server *server, struct connection *connection)
{
    struct evbuffer *out = bufferevent_get_output(connection->bev);
    char line[16] = "";
    connection->error_page = false;
    evbuffer_unfreeze(out, 1); /* a bufferevent keeps others from reading its output */
    evbuffer_copyout(out, line, sizeof line - 1);
    evbuffer_freeze(out, 1);
    if (memcmp(line, "HTTP/1.", 7) != 0 || (line[9] != '4' && line[9] != '5'))
        return; /* 100 Continue */
    connection->answering = true;
    evbuffer_unfreeze(out, 1);
    evbuffer_drain(out, evbuffer_get_length(out));
    evbuffer_freeze(out, 1);
    for (size_t i = 0; i < ARRAY_LENGTH(pages); i++) {
        if (memcmp(line + 9, pages[i].code, strlen(pages[i].code)) != 0)
            continue;
        write_problem_response(server, out, pages[i].status, pages[i].detail);
        return;
    }
}

void error_pages_replace(evutil_socket_t fd, short what, void *context)
{
    struct server *server = context;
    (void)fd, (void)what;
    while (server->error_pages) {
        struct connection *connection = server->error_pages;
        server->error_pages = connection->next_error_page;
        replace_error_page(server, connection);
    }
}
