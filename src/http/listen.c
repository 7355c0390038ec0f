/* SPDX-License-Identifier: MIT */
/* Listeners: opens, pauses and closes them, and accepts connections. */
#include "http/loop.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/user.h"

enum {
    ACCEPT_MAX = 64, /* connections accepted in one callback */
    BACKLOG = 4096,
    UNIX_MODE_MASK = 0117, /* a Unix socket is created with the mode 0660 */
    KERNEL_BUFFER = 65536, /* bytes of a connection that the kernel keeps, in each direction; it doubles the number, for
                              its own use */
    UNSENT_MAX = 16384,    /* the socket takes no output while the kernel has so many bytes that it cannot send */
};

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
    if (!server->accept_paused || server->stopping)
        return;
    for (size_t i = 0; i < server->listener_count; i++)
        if (event_add(server->listeners[i].acceptable, NULL) != 0)
            return; /* out of memory: the tick tries again */
    server->accept_paused = false;
}

static void pause_accepting(struct server *server)
{
    listeners_pause(server);
    server->accept_paused = true;
}

/*
 * Returns the connection to close for a new one: the longest lingering one, else the longest idle one, else that of the
 * stranger who has not read for the longest time. NULL: none.
 */
static struct connection *longest_idle(struct server *server)
{
    static const enum connection_state states[] = {CONNECTION_LINGERING, CONNECTION_READING, CONNECTION_HANDSHAKING};
    for (size_t i = 0; i < ARRAY_LENGTH(states); i++)
        if (!list_empty(&server->connections[states[i]]))
            return LIST_ENTRY(server->connections[states[i]].next, struct connection, node);
    list_for_each (node, following, &server->connections[CONNECTION_SENDING]) {
        struct connection *connection = LIST_ENTRY(node, struct connection, node);
        if (connection_is_stranger(connection))
            return connection;
    }
    return NULL;
}

/* Limits a log line to one per second. */
bool server_log_is_limited(const struct server *server, mono_us *until)
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
    if (server_log_is_limited(server, &server->full_quiet_until))
        return;
    snprintf(connections, sizeof connections, "%zu", server->connection_count);
    log_write(LOG_WARN,
              server->memory_short ? "max_memory reached, new connections wait"
                                   : "max_connections reached, new connections wait",
              "connections", connections, NULL);
}

/*
 * Limits what the kernel keeps of answers; a Unix socket inherits no limit. Returns the user of the peer; -1, which is
 * no user, if it is unknown.
 */
static uid_t accept_unix(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    int most = KERNEL_BUFFER;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &most, sizeof most);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 ? peer.uid : (uid_t)-1;
}

/* Creates a connection. Takes over the descriptor. NULL: out of memory; the descriptor is closed. */
static struct connection *connection_new(const struct listener *listener, int fd,
                                         const struct sockaddr_storage *address)
{
    struct server *server = listener->server;
    struct connection *connection = calloc(1, sizeof *connection);
    if (!connection)
        goto err_accepted;
    connection->server = server;
    connection->fd = fd;
    connection->client.transport = listener->address.transport;
    connection->client.uid = connection->client.transport == CLIENT_UNIX ? accept_unix(fd) : (uid_t)-1;
    buf_init(&connection->ahead, 2 * READ_AHEAD + INPUT_SIZE);
    list_init(&connection->node);
    list_init(&connection->of_peer);
    list_init(&connection->of_new);
    connection->peer = peer_join(&server->peers, address, connection->client.uid, &server->strangers);
    if (!connection->peer)
        goto err_allocated;
    connection->client.share = server->settings.has_credentials ? &connection->peer->share : &server->memory;
    address_print(address, connection->client.uid, connection->client.address, sizeof connection->client.address);
    if (connection_open(connection))
        return connection;

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

/*
 * Answers 429, or closes a connection of TLS: max_connections_per_address is reached, and none of the peer's
 * connections is idle.
 */
static void refuse_crowded(struct connection *connection)
{
    struct server *server = connection->server;
    bool plain = connection->client.transport != CLIENT_TLS; /* a handshake would cost more than the connection */
    struct exchange *exchange = plain ? exchange_take(connection) : NULL;
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

/* Starts a new connection. Closes `victim` for it, or an idle connection of the same peer if the peer has too many. */
static void connection_begin(struct connection *connection, struct connection *victim)
{
    struct server *server = connection->server;
    struct peer *peer = connection->peer;
    bool crowded = (int64_t)peer->connections > peer_limit(&server->settings);
    if (crowded)
        victim = list_empty(&peer->idle) ? NULL : LIST_ENTRY(peer->idle.next, struct connection, of_peer);
    server->connection_count++;
    server->counts.accepted++;
    bool tls = connection->client.transport == CLIENT_TLS;
    if (tls || server->settings.has_credentials)
        connection_is_new(connection);
    connection_move(connection, tls ? CONNECTION_HANDSHAKING : CONNECTION_READING);
    if (peer_is_closed(peer, server->now)) {
        server->counts.guessing++;
        connection_close(connection);
    } else if (victim) {
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
    if (!server_log_is_limited(server, &server->accept_quiet_until))
        log_write(LOG_WARN, "cannot accept a connection", "error", strerror(error), NULL);
}

/* Accepts one connection. False: none can be accepted now. */
static bool accept_one(struct listener *listener)
{
    struct server *server = listener->server;
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    struct connection *victim = NULL;
    if (server_is_full(server) && !(victim = longest_idle(server))) {
        pause_accepting(server);
        log_full(server);
        return false;
    }
    int fd = accept4(listener->fd, (struct sockaddr *)&address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        accept_failed(server, errno);
        return false;
    }
    struct connection *connection = connection_new(listener, fd, &address);
    if (connection)
        connection_begin(connection, victim);
    return true;
}

static void on_acceptable(evutil_socket_t fd, short what, void *context)
{
    struct listener *listener = context;
    struct server *server = listener->server;
    (void)fd, (void)what;
    server->now = clock_mono();
    for (int i = 0; i < ACCEPT_MAX && accept_one(listener); i++)
        ;
    connections_dispose(server);
}

/* ---- opening ---- */

/*
 * Sets the options of a listener; on Linux, accepted sockets inherit them. Without limits the kernel keeps megabytes
 * for a client that does not read, and for one that sends while permitd does not read.
 */
static bool set_options(int fd)
{
    static const struct {
        int level;
        int name;
        int value;
    } options[] = {
        {SOL_SOCKET, SO_REUSEADDR, 1},          {SOL_SOCKET, SO_SNDBUF, KERNEL_BUFFER},
        {SOL_SOCKET, SO_RCVBUF, KERNEL_BUFFER}, {IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_MAX},
        {IPPROTO_TCP, TCP_NODELAY, 1},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(options); i++)
        if (setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof options[i].value) != 0)
            return false;
    return true;
}

/* Returns a bound socket, or -1 with errno. */
static int bind_internet(const struct listen_address *address)
{
    int fd = socket(address->socket.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (set_options(fd) && bind(fd, (const struct sockaddr *)&address->socket, address->length) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Returns true if no process accepts connections on the Unix socket. Else, or if that cannot be known, sets errno. */
static bool path_is_stale(const struct listen_address *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    int error = connect(fd, (const struct sockaddr *)&address->socket, address->length) == 0 ? 0 : errno;
    close(fd);
    errno = error == EACCES ? EACCES : EADDRINUSE;
    return error == ECONNREFUSED;
}

/* Removes the socket of a process that has ended. Leaves anything else, and sets errno. */
static bool remove_stale(const struct listen_address *address)
{
    struct stat info;
    const char *path = address_path(address);
    if (lstat(path, &info) != 0)
        return errno == ENOENT;
    if (!S_ISSOCK(info.st_mode)) {
        errno = EEXIST;
        return false;
    }
    return path_is_stale(address) && (unlink(path) == 0 || errno == ENOENT);
}

/* Returns a bound socket, or -1 with errno. Only its user and its group can connect. */
static int bind_path(struct listener *listener)
{
    const struct listen_address *address = &listener->address;
    struct stat info;
    bool is_safe = geteuid() != 0 || user_only_root_changes(address_path(address));
    if (!is_safe || !remove_stale(address))
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    mode_t usual = umask(UNIX_MODE_MASK);
    bool bound = bind(fd, (const struct sockaddr *)&address->socket, address->length) == 0;
    int error = errno;
    umask(usual);
    if (bound && lstat(address_path(address), &info) == 0) {
        listener->device = info.st_dev;
        listener->inode = info.st_ino;
        return fd;
    }
    close(fd);
    errno = bound ? errno : error;
    return -1;
}

/* Refuses an address that other machines can reach, unless clients must authenticate there, or `insecure` is set. */
static bool check_protection(const struct server_settings *settings, const char *text,
                             const struct listen_address *address, struct buf *message)
{
    if (address_is_local(address) || settings->insecure)
        return true;
    if (address->transport == CLIENT_TLS && settings->has_credentials)
        return true;
    buf_printf(message,
               "listen is %s: an address that is not loopback requires https:// and credentials; --insecure serves any "
               "address to anybody",
               text);
    return false;
}

static bool listener_prepare(struct listener *listener, const char *text, struct buf *message)
{
    struct server *server = listener->server;
    if (!address_parse(text, &listener->address, message) ||
        !check_protection(&server->settings, text, &listener->address, message))
        return false;
    if (listener->address.transport == CLIENT_TLS && !server->tls)
        buf_printf(message, "listen is %s: TLS requires tls_certificate and tls_key", text);
    return listener->address.transport != CLIENT_TLS || server->tls;
}

/* Says why a listener cannot be opened, by errno. */
static void append_reason(struct buf *message, const char *text, bool by_path)
{
    int error = errno;
    buf_printf(message, "cannot listen on %s: %s", text, strerror(error));
    if (error == EADDRINUSE)
        buf_append_text(message, by_path ? "; another program serves it" : "; another program uses the port");
    else if (error == EEXIST)
        buf_append_text(message, "; it is not a socket");
    else if (error == EACCES && by_path)
        buf_printf(message, "; user %u must be able to write to its directory, and to the socket if it is there",
                   (unsigned)geteuid());
    else if (error == EPERM && by_path)
        buf_append_text(message, "; other users than root can change its directory: name the user of permitd (--user)");
}

static bool listener_open(struct listener *listener, const char *text, struct buf *message)
{
    bool by_path = listener->address.transport == CLIENT_UNIX;
    listener->fd = by_path ? bind_path(listener) : bind_internet(&listener->address);
    if (listener->fd < 0 || listen(listener->fd, BACKLOG) != 0) {
        append_reason(message, text, by_path);
        return false;
    }
    address_url(listener->fd, &listener->address, listener->url);
    listener->acceptable =
        event_new(listener->server->base, listener->fd, EV_READ | EV_PERSIST, on_acceptable, listener);
    return listener->acceptable && event_add(listener->acceptable, NULL) == 0;
}

bool listeners_open(struct server *server, struct buf *message)
{
    for (char *const *text = server->settings.listen.texts; *text; text++) {
        if (server->listener_count == LISTENERS_MAX) {
            buf_printf(message, "listen has more than %d addresses", LISTENERS_MAX);
            return false;
        }
        struct listener *listener = &server->listeners[server->listener_count++];
        *listener = (struct listener){.server = server, .fd = -1};
        if (!listener_prepare(listener, *text, message))
            return false;
        if (listener->address.transport != CLIENT_UNIX && !listener_open(listener, *text, message))
            return false;
    }
    return true;
}

bool listeners_open_paths(struct server *server, struct buf *message)
{
    for (size_t i = 0; i < server->listener_count; i++) {
        struct listener *listener = &server->listeners[i];
        if (listener->address.transport == CLIENT_UNIX &&
            !listener_open(listener, server->settings.listen.texts[i], message))
            return false;
    }
    return true;
}

void listeners_pause(struct server *server)
{
    for (size_t i = 0; i < server->listener_count; i++)
        event_del(server->listeners[i].acceptable);
}

/* Removes the Unix socket, unless another one has taken its place. */
static void remove_path(const struct listener *listener)
{
    struct stat info;
    const char *path = address_path(&listener->address);
    if (lstat(path, &info) == 0 && info.st_dev == listener->device && info.st_ino == listener->inode)
        (void)!unlink(path);
}

void listeners_close(struct server *server)
{
    for (size_t i = 0; i < server->listener_count; i++) {
        struct listener *listener = &server->listeners[i];
        if (listener->acceptable)
            event_free(listener->acceptable);
        if (listener->fd < 0)
            continue;
        if (listener->address.transport == CLIENT_UNIX)
            remove_path(listener);
        close(listener->fd);
    }
    server->listener_count = 0;
}

/* Warns of `insecure` each hour: it is meant for closed networks, and a network may be opened later. */
void listeners_warn(struct server *server)
{
    enum { WARN_S = 3600 };
    if (!server->settings.insecure || server->now < server->insecure_quiet_until)
        return;
    server->insecure_quiet_until = server->now + WARN_S * (mono_us)US_PER_SECOND;
    for (size_t i = 0; i < server->listener_count; i++) {
        const struct listener *listener = &server->listeners[i];
        bool tls = listener->address.transport == CLIENT_TLS;
        if (address_is_local(&listener->address) || (tls && server->settings.has_credentials))
            continue;
        log_write(LOG_WARN,
                  server->settings.has_credentials
                      ? "insecure: credentials and answers cross the network without encryption"
                      : "insecure: every client that reaches this address may do everything",
                  "listen", listener->url, NULL);
    }
}
