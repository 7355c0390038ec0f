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

enum {
    TICK_MS = 100, /* maximum delay until an expired deadline is noticed */
    BACKLOG = 4096,
};

/* ---- the tick ---- */

/* Sends the timeout answer. A handler that has not begun is not called any more. */
static void time_out(struct server *server, struct exchange *exchange)
{
    const struct server_hooks *hooks = server->settings.hooks;
    struct connection *connection = exchange->connection;
    struct answer answer = {.body = server->scratch};
    buf_clear(&answer.body);
    if (exchange_is_handled(exchange))
        hooks->time_out(exchange, &answer);
    else
        hooks->refuse(&answer, exchange->id, bodies_cancel(exchange) ? PERMIT_BUSY : PERMIT_OUTCOME_UNKNOWN, NULL);
    exchange->connection = NULL;
    exchange->answered_late = true;
    answer_send(connection, exchange, &answer);
    server->scratch = answer.body;
    server->counts.late++;
    connection_read(connection);
}

static void time_out_exchanges(struct server *server)
{
    struct heap_node *first;
    while ((first = heap_first(&server->under_way)) && first->time <= server->now) {
        struct exchange *exchange = HEAP_ENTRY(first, struct exchange, by_deadline);
        heap_remove(&server->under_way, first); /* it returns later through the outbox */
        if (exchange->connection)
            time_out(server, exchange);
    }
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    struct server *server = context;
    (void)fd, (void)what;
    server->now = clock_mono();
    date_update(server);
    time_out_exchanges(server);
    connections_sweep(server);
    connections_dispose(server);
    memory_watch(server);
    server_resume_accepting(server);
    if (!server->stopping)
        return;
    bool sending = !list_empty(&server->connections[CONNECTION_SENDING]);
    if (server->now >= server->stop_by || (server->counts.exchanges == 0 && !sending))
        event_base_loopbreak(server->base);
}

/* ---- start and end ---- */

static void on_woken(evutil_socket_t fd, short what, void *context)
{
    struct server *server = context;
    uint64_t count;
    (void)what;
    if (read(fd, &count, sizeof count) <= 0)
        return;
    server->now = clock_mono();
    bodies_drain(server);
    outbox_drain(server);
    connections_dispose(server);
}

/* Returns a listening socket, or -1 with errno. On Linux, accepted sockets inherit TCP_NODELAY. */
static int listen_at(const struct sockaddr_storage *address, socklen_t length)
{
    int on = 1;
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0 &&
        bind(fd, (const struct sockaddr *)address, length) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static bool open_listener(struct server *server, struct buf *message)
{
    struct sockaddr_storage address;
    socklen_t length;
    if (!address_parse(server->settings.listen, server->settings.any_address, &address, &length, message))
        return false;
    server->listen_fd = listen_at(&address, length);
    if (server->listen_fd < 0) {
        buf_printf(message, "cannot listen on %s: %s%s", server->settings.listen, strerror(errno),
                   errno == EADDRINUSE ? "; another program uses the port" : "");
        return false;
    }
    address_url(server->listen_fd, server->url, sizeof server->url);
    server->acceptable = event_new(server->base, server->listen_fd, EV_READ | EV_PERSIST, connections_accept, server);
    return server->acceptable && event_add(server->acceptable, NULL) == 0;
}

static bool open_events(struct server *server)
{
    const struct timeval tick = {0, TICK_MS * 1000};
    server->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (server->wake_fd < 0)
        return false;
    server->woken = event_new(server->base, server->wake_fd, EV_READ | EV_PERSIST, on_woken, server);
    server->tick = event_new(server->base, -1, EV_PERSIST, on_tick, server);
    return server->woken && server->tick && event_add(server->woken, NULL) == 0 && event_add(server->tick, &tick) == 0;
}

/*
 * Creates the event base without locks, because only one thread uses it. Without EPOLL_USE_CHANGELIST: with it libevent
 * removes a closed descriptor from epoll a turn later, when its number may already be another thread's descriptor.
 */
static struct event_base *open_base(void)
{
    struct event_config *config = event_config_new();
    if (!config)
        return NULL;
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

static void server_init(struct server *server, const struct server_settings *settings)
{
    server->settings = *settings;
    server->listen_fd = server->wake_fd = -1;
    server->outbox_end = &server->outbox;
    server->id_seed = (uint32_t)random_u64();
    for (size_t i = 0; i < CONNECTION_STATES; i++)
        list_init(&server->connections[i]);
    buf_init(&server->scratch, 16 * 1024);
    pthread_mutex_init(&server->outbox_mutex, NULL);
}

bool server_open(const struct server_settings *settings, struct server **ret_server, struct buf *message)
{
    struct server *server = calloc(1, sizeof *server);
    if (!server) {
        buf_append_text(message, "no memory");
        return false;
    }
    server_init(server, settings);
    server->base = open_base();
    if (server->base && open_events(server) && bodies_start(server) && open_listener(server, message)) {
        server->now = clock_mono();
        memory_watch(server);
        date_update(server);
        *ret_server = server;
        return true;
    }
    if (!message->length)
        buf_printf(message, "cannot create the HTTP server: %s", strerror(errno));
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

static void event_release(struct event *event)
{
    if (event)
        event_free(event);
}

static void on_readable(evutil_socket_t fd, short what, void *base)
{
    (void)fd, (void)what;
    event_base_loopbreak(base);
}

bool server_run_until(struct server *server, int fd)
{
    struct event *readable = event_new(server->base, fd, EV_READ, on_readable, server->base);
    bool added = readable && event_add(readable, NULL) == 0;
    if (added)
        server_run(server);
    event_release(readable);
    return added;
}

void server_stop(struct server *server, int64_t grace_ms)
{
    if (server->stopping)
        return;
    server->stopping = true;
    server->stop_by = clock_mono() + grace_ms * US_PER_MS;
    event_del(server->acceptable);
}

void server_flush(struct server *server)
{
    enum { TURNS = 3 }; /* read the outbox, write, process the write events */
    for (int turn = 0; turn < TURNS; turn++)
        event_base_loop(server->base, EVLOOP_NONBLOCK);
}

void server_reload(struct server *server, const struct server_settings *settings)
{
    server->settings.max_connections = settings->max_connections;
    server->settings.max_connections_per_address = settings->max_connections_per_address;
    server->settings.max_memory = settings->max_memory;
    server->settings.idle_timeout_ms = settings->idle_timeout_ms;
    server->settings.request_timeout_ms = settings->request_timeout_ms;
}

void server_free(struct server *server)
{
    if (!server)
        return;
    server->stopping = true;
    bodies_stop(server);
    bodies_drain(server);
    outbox_drain(server);
    for (size_t state = 0; state < CONNECTION_CLOSED; state++) {
        list_for_each (node, following, &server->connections[state])
            connection_close(LIST_ENTRY(node, struct connection, node));
    }
    connections_dispose(server);
    map_release(&server->peers);
    heap_release(&server->under_way);
    while (server->free_exchanges) {
        struct exchange *exchange = server->free_exchanges;
        server->free_exchanges = exchange->next;
        exchange_free(exchange);
    }
    event_release(server->acceptable);
    event_release(server->woken);
    event_release(server->tick);
    for (size_t i = 0; i < server->signal_count; i++)
        event_release(server->signals[i]);
    if (server->base)
        event_base_free(server->base); /* frees also the events that connections left in it */
    if (server->listen_fd >= 0)
        close(server->listen_fd);
    if (server->wake_fd >= 0)
        close(server->wake_fd);
    pthread_mutex_destroy(&server->outbox_mutex);
    buf_release(&server->scratch);
    free(server);
}

void server_counts(const struct server *server, struct server_counts *ret_counts)
{
    *ret_counts = server->counts;
    ret_counts->connections = server->connection_count;
    ret_counts->buffered = atomic_load(&server->receiving.used) + atomic_load(&server->answering.used);
    ret_counts->memory_refused = atomic_load(&server->receiving.refused) + atomic_load(&server->answering.refused);
}
