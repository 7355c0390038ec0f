/* SPDX-License-Identifier: MIT */
#include "http/server.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/uuid.h"
#include "http/address.h"
#include "http/loop.h"
#include "http/problem.h"
#include "http/service.h"
#include "http/write.h"

enum {
    TICK_MS = 100,     /* how late a deadline may be noticed */
    TICK_FULL_MS = 10, /* and that a client has gone without a request, while others wait for its place */
    BACKLOG = 4096,
};

/* --- the tick ----------------------------------------------------------------------------------------------------- */

/* The engine has not answered in time. What was sent with a COMMIT may have happened. */
static void exchange_expire(struct server *server, struct exchange *exchange)
{
    enum permit_status status = exchange_commit_sent(exchange)                         ? PERMIT_OUTCOME_UNKNOWN
                                : engine_database_up(server->settings.service->engine) ? PERMIT_BUSY
                                                                                       : PERMIT_DATABASE_UNAVAILABLE;
    struct answer answer = {.body = server->scratch, .close = exchange->answer.close};
    struct evhttp_request *request = exchange->request;
    problem_head(&answer, status, 0);
    buf_clear(&answer.body);
    problem_begin(&answer.body, status, NULL);
    if (exchange->part_count == 1 && !exchange->batch && exchange->first.operation.external_id.data)
        write_member_text(&answer.body, "external_id", exchange->first.operation.external_id);
    problem_retry_after(&answer.body, answer.retry_after_ms);
    problem_end(&answer.body);
    exchange->request = NULL;
    exchange->answered_late = true;
    answer_send(server, request, exchange->connection, exchange->id, &answer);
    server->scratch = answer.body;
    server->counts.late++;
}

static void expire_exchanges(struct server *server, mono_us now)
{
    struct heap_node *first;
    while ((first = heap_first(&server->under_way)) && first->time <= now) {
        struct exchange *exchange = HEAP_ENTRY(first, struct exchange, by_deadline);
        heap_remove(&server->under_way, first); /* it comes back through the outbox, some time */
        if (exchange->request)
            exchange_expire(server, exchange);
    }
}

/* Closes what has been idle, or slow, for too long; notices what evhttp has closed. */
static void sweep_connections(struct server *server, mono_us now)
{
    mono_us too_old = now - server->settings.idle_timeout_ms * US_PER_MS;
    list_for_each (node, following, &server->idle) {
        struct connection *connection = LIST_ENTRY(node, struct connection, node);
        if (!connection->known_to_evhttp && connection_is_dead(connection))
            connection_forget(connection);
        else if (connection->since < too_old)
            bufferevent_trigger_event(connection->bev, BEV_EVENT_READING | BEV_EVENT_TIMEOUT, 0);
    }
}

/* True while an answer is not yet in the socket. */
static bool still_sending(struct server *server)
{
    list_for_each (node, following, &server->idle) {
        if (LIST_ENTRY(node, struct connection, node)->answering)
            return true;
    }
    return false;
}

static void leave_when_done(struct server *server, mono_us now)
{
    if (now >= server->stop_by || (server->counts.exchanges == 0 && !still_sending(server)))
        event_base_loopbreak(server->base);
}

void server_set_pace(struct server *server)
{
    const struct timeval usual = {0, TICK_MS * 1000};
    const struct timeval full = {0, TICK_FULL_MS * 1000};
    (void)event_add(server->tick, server_is_full(server) ? &full : &usual); /* if it fails: as often as before */
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    struct server *server = context;
    mono_us now = clock_mono();
    (void)fd, (void)what;
    expire_exchanges(server, now);
    sweep_connections(server, now);
    server_listen_again(server);
    server_set_pace(server);
    if (server->stopping)
        leave_when_done(server, now);
}

/* --- start and end ------------------------------------------------------------------------------------------------ */

static void on_woken(evutil_socket_t fd, short what, void *context)
{
    uint64_t count;
    (void)what;
    if (read(fd, &count, sizeof count) > 0)
        outbox_drain(context);
}

/* No file descriptor, for example. The tick tries again, and so this comes again: a line a second is enough. */
static void on_accept_error(struct evconnlistener *listener, void *http)
{
    static mono_us quiet_until; /* not the server's: evhttp has put itself into the place of the listener's context */
    int error = errno;
    mono_us now = clock_mono();
    (void)http;
    evconnlistener_disable(listener);
    if (now < quiet_until)
        return;
    quiet_until = now + US_PER_SECOND;
    log_write(LOG_WARN, "a connection could not be accepted", "error", strerror(error), NULL);
}

static bool open_listener(struct server *server, struct buf *message)
{
    struct sockaddr_storage address;
    socklen_t length;
    if (!address_parse(server->settings.listen, server->settings.any_address, &address, &length, message))
        return false;
    server->listener = evconnlistener_new_bind(server->base, NULL, NULL,
                                               LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE,
                                               BACKLOG, (struct sockaddr *)&address, (int)length);
    if (!server->listener) {
        buf_printf(message, "cannot listen on %s: %s%s", server->settings.listen, strerror(errno),
                   errno == EADDRINUSE ? "; another program has the port" : "");
        return false;
    }
    /* On Linux the accepted sockets inherit it. */
    int on = 1;
    setsockopt(evconnlistener_get_fd(server->listener), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    address_url(evconnlistener_get_fd(server->listener), server->url, sizeof server->url);
    return true;
}

static bool open_http(struct server *server)
{
    server->http = evhttp_new(server->base);
    if (!server->http)
        return false;
    evhttp_set_max_headers_size(server->http, SERVER_MAX_HEADERS);
    evhttp_set_max_body_size(server->http, SERVER_MAX_BODY);
    /* Read on and drop what is too large, so that the client gets to read the answer. */
    evhttp_set_flags(server->http, EVHTTP_SERVER_LINGERING_CLOSE);
    evhttp_set_allowed_methods(server->http, 0xFFFF); /* 405 and 404 are ours */
    evhttp_set_bevcb(server->http, connection_accept, server);
    evhttp_set_gencb(server->http, request_received, server);
    if (!evhttp_bind_listener(server->http, server->listener))
        return false;
    evconnlistener_set_error_cb(server->listener, on_accept_error);
    return true;
}

static bool open_events(struct server *server)
{
    const struct timeval tick = {0, TICK_MS * 1000};
    server->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (server->wake_fd < 0)
        return false;
    server->woken = event_new(server->base, server->wake_fd, EV_READ | EV_PERSIST, on_woken, server);
    server->tick = event_new(server->base, -1, EV_PERSIST, on_tick, server);
    server->error_page_event = event_new(server->base, -1, 0, error_pages_replace, server);
    return server->woken && server->tick && server->error_page_event && event_add(server->woken, NULL) == 0 &&
           event_add(server->tick, &tick) == 0;
}

/* Only one thread has to do with the base: no locks. Changes of interest go to epoll once a turn. */
static struct event_base *open_base(void)
{
    struct event_config *config = event_config_new();
    if (!config)
        return NULL;
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    event_config_set_flag(config, EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST);
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

bool server_open(const struct server_settings *settings, struct server **ret_server, struct buf *message)
{
    struct server *server = calloc(1, sizeof *server);
    if (!server) {
        buf_append_text(message, "no memory");
        return false;
    }
    server->settings = *settings;
    server->wake_fd = -1;
    server->outbox_end = &server->outbox;
    server->id_seed = (uint32_t)random_u64();
    list_init(&server->idle);
    list_init(&server->busy);
    buf_init(&server->scratch, 16 * 1024);
    pthread_mutex_init(&server->outbox_mutex, NULL);
    server->base = open_base();
    if (server->base && open_events(server)) {
        if (open_listener(server, message) && open_http(server)) {
            *ret_server = server;
            return true;
        }
    }
    if (!message->length)
        buf_printf(message, "the HTTP server cannot be made: %s", strerror(errno));
    server_free(server);
    return false;
}

const char *server_url(const struct server *server)
{
    return server->url;
}

struct signal_call {
    void (*called)(void *context);
    void *context;
};

static void on_signal(evutil_socket_t number, short what, void *context)
{
    const struct signal_call *call = context;
    (void)number, (void)what;
    call->called(call->context);
}

bool server_on_signal(struct server *server, int number, void (*called)(void *context), void *context)
{
    static struct signal_call calls[MAX_SIGNALS];
    if (server->signal_count == MAX_SIGNALS)
        return false;
    struct signal_call *call = &calls[server->signal_count];
    *call = (struct signal_call){called, context};
    struct event *event = evsignal_new(server->base, number, on_signal, call);
    if (!event || event_add(event, NULL) != 0)
        return false;
    server->signals[server->signal_count++] = event;
    return true;
}

void server_run(struct server *server)
{
    event_base_dispatch(server->base);
}

void server_stop(struct server *server, int64_t grace_ms)
{
    if (server->stopping)
        return;
    server->stopping = true;
    server->stop_by = clock_mono() + grace_ms * US_PER_MS;
    evconnlistener_disable(server->listener);
}

void server_flush(struct server *server)
{
    enum { TURNS = 3 }; /* read the outbox, write, take note */
    for (int turn = 0; turn < TURNS; turn++)
        event_base_loop(server->base, EVLOOP_NONBLOCK);
}

void server_reload(struct server *server, const struct server_settings *settings)
{
    server->settings.max_connections = settings->max_connections;
    server->settings.idle_timeout_ms = settings->idle_timeout_ms;
    server->settings.request_timeout_ms = settings->request_timeout_ms;
}

static void free_connections(struct list *list)
{
    list_for_each (node, following, list) {
        connection_forget(LIST_ENTRY(node, struct connection, node));
    }
}

static void event_release(struct event *event)
{
    if (event)
        event_free(event);
}

void server_free(struct server *server)
{
    if (!server)
        return;
    server->stopping = true;
    outbox_drain(server);
    if (server->http)
        evhttp_free(server->http); /* with the listener; tells us of the connections it knows */
    else if (server->listener)
        evconnlistener_free(server->listener);
    server->listener = NULL;
    free_connections(&server->idle);
    free_connections(&server->busy);
    map_release(&server->connections);
    heap_release(&server->under_way);
    while (server->free_exchanges) {
        struct exchange *exchange = server->free_exchanges;
        server->free_exchanges = exchange->next;
        exchange_free(exchange);
    }
    event_release(server->woken);
    event_release(server->tick);
    event_release(server->error_page_event);
    for (size_t i = 0; i < server->signal_count; i++)
        event_release(server->signals[i]);
    if (server->base)
        event_base_free(server->base);
    if (server->wake_fd >= 0)
        close(server->wake_fd);
    pthread_mutex_destroy(&server->outbox_mutex);
    buf_release(&server->scratch);
    free(server);
}

void server_counts(const struct server *server, struct server_counts *ret_counts)
{
    *ret_counts = server->counts;
    ret_counts->connections = server->connections.count;
}

const char *server_library_warning(void)
{
    enum { FIRST_SAFE = 0x02010c00 };
    if (event_get_version_number() < FIRST_SAFE)
        return "libevent is older than 2.1.12 and has known HTTP request smuggling";
    return NULL;
}
