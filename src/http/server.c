/* SPDX-License-Identifier: MIT */
#include "http/server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/uuid.h"
#include "http/event_memory.h"
#include "http/loop.h"
#include "http/tls.h"

enum { TICK_MS = 100 /* maximum delay until an expired deadline is noticed */ };

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
    handshakes_release(server);
    connections_sweep(server);
    connections_dispose(server);
    memory_watch(server);
    listeners_warn(server);
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
    event_set_mem_functions(event_memory_alloc, event_memory_realloc, event_memory_free);
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
    server->wake_fd = -1;
    server->outbox_end = &server->outbox;
    server->id_seed = (uint32_t)random_u64();
    for (size_t i = 0; i < CONNECTION_STATES; i++)
        list_init(&server->connections[i]);
    share_init_whole(&server->memory, 0, 0); /* memory_watch sets the limits */
    share_init(&server->strangers, &server->memory, STRANGERS_PART);
    list_init(&server->newcomers);
    list_init(&server->failing_peers);
    for (size_t i = 0; i < LINE_KINDS; i++)
        list_init(&server->lines[i]);
    buf_init(&server->scratch, 16 * 1024);
    mutex_init(&server->outbox_mutex);
}

static bool has_tls(const struct server_tls *files)
{
    return files->certificate || files->key || files->client_ca;
}

/* Loads the files of TLS, if there are any. On false the loaded ones stay, and `message` has the reason. */
static bool load_tls(struct server *server, const struct server_tls *files, struct buf *message)
{
    struct tls_context *fresh = has_tls(files) || server->tls ? tls_context_load(files, message) : NULL;
    if (!fresh)
        return !has_tls(files) && !server->tls;
    tls_context_free(server->tls);
    server->tls = fresh;
    server->counts.tls_until = tls_context_until(fresh);
    return true;
}

bool server_check(const struct server_settings *settings, struct buf *message)
{
    struct tls_context *context = has_tls(&settings->tls) ? tls_context_load(&settings->tls, message) : NULL;
    tls_context_free(context);
    return context || !has_tls(&settings->tls);
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
    if (server->base && open_events(server) && handshakes_open(server) && bodies_start(server) &&
        load_tls(server, &settings->tls, message) && listeners_open(server, message)) {
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

bool server_open_paths(struct server *server, struct buf *message)
{
    bool open = listeners_open_paths(server, message);
    if (!open && !message->length)
        buf_append_text(message, "cannot create the HTTP server: no memory");
    return open;
}

const char *server_url_at(const struct server *server, size_t index)
{
    return index < server->listener_count ? server->listeners[index].url : NULL;
}

static void on_signal(evutil_socket_t fd, short what, void *context)
{
    const struct signal_watch *watch = context;
    struct signalfd_siginfo received;
    (void)what;
    if (read(fd, &received, sizeof received) == (ssize_t)sizeof received)
        watch->called(watch->context);
}

bool server_on_signal(struct server *server, int number, void (*called)(void *context), void *context)
{
    sigset_t one;
    if (server->signal_count == MAX_SIGNALS)
        return false;
    sigemptyset(&one);
    sigaddset(&one, number);
    if (pthread_sigmask(SIG_BLOCK, &one, NULL) != 0 || signal(number, SIG_DFL) == SIG_ERR)
        return false; /* SIG_DFL: a signal that is ignored, as by nohup, would not be read */
    struct signal_watch *watch = &server->signals[server->signal_count];
    *watch = (struct signal_watch){
        .fd = signalfd(-1, &one, SFD_NONBLOCK | SFD_CLOEXEC), .called = called, .context = context};
    if (watch->fd < 0)
        return false;
    server->signal_count++;
    watch->readable = event_new(server->base, watch->fd, EV_READ | EV_PERSIST, on_signal, watch);
    return watch->readable && event_add(watch->readable, NULL) == 0;
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
    listeners_pause(server);
}

void server_flush(struct server *server)
{
    enum { TURNS = 3 }; /* read the outbox, write, process the write events */
    for (int turn = 0; turn < TURNS; turn++)
        event_base_loop(server->base, EVLOOP_NONBLOCK);
}

void server_reload(struct server *server, const struct server_settings *settings)
{
    struct buf message;
    config_copy_values(&server_section, settings, &server->settings);
    buf_init(&message, 4096);
    if (!load_tls(server, &settings->tls, &message)) {
        server->counts.tls_reload_failed++;
        log_write(LOG_ERROR, "TLS reload failed, the certificate in use stays", "why", buf_text(&message), NULL);
    }
    buf_release(&message);
}

void server_share_init(struct server *server, struct memory_share *share)
{
    share_init(share, &server->memory, PRINCIPAL_PART);
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
    peers_forgive(&server->peers, &server->failing_peers, INT64_MAX);
    map_release(&server->peers);
    heap_release(&server->under_way);
    exchanges_free_spare(server);
    listeners_close(server);
    event_release(server->woken);
    event_release(server->tick);
    event_release(server->turn);
    tls_context_free(server->tls);
    for (size_t i = 0; i < server->signal_count; i++) {
        event_release(server->signals[i].readable);
        close(server->signals[i].fd);
    }
    if (server->base)
        event_base_free(server->base); /* frees also the events that connections left in it */
    if (server->wake_fd >= 0)
        close(server->wake_fd);
    mutex_destroy(&server->outbox_mutex);
    buf_release(&server->scratch);
    free(server);
}

void server_counts(const struct server *server, struct server_counts *ret_counts)
{
    *ret_counts = server->counts;
    ret_counts->connections = server->connection_count;
    const struct budget *receiving = &server->memory.receiving, *handling = &server->memory.handling;
    ret_counts->buffered = atomic_load(&receiving->used) + atomic_load(&handling->used);
    ret_counts->memory_refused = atomic_load(&receiving->refused) + atomic_load(&handling->refused);
    ret_counts->share_refused = atomic_load(&receiving->share_refused) + atomic_load(&handling->share_refused);
}
