/* SPDX-License-Identifier: MIT */
#include "proxy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "testkit.h"

enum {
    LINKS_MAX = 512,
    HEADER = 4, /* of a packet: three bytes length, one byte sequence number */
    COMMAND_QUERY = 3,
    MORE_RESULTS = 8, /* SERVER_MORE_RESULTS_EXISTS */
    TURN_MS = 20,     /* longest sleep of a thread before it reads the rule again */
    READ_SIZE = 64 * 1024,
};

/* Bytes received and not yet processed. */
struct stream {
    unsigned char *data;
    size_t length;
    size_t room;
};

/* Position in the reply to a packet of statements. */
enum reply_state { REPLY_START, REPLY_COLUMNS, REPLY_ROWS, REPLY_DONE };

struct link {
    struct proxy *proxy;
    pthread_t thread;
    atomic_bool used;
    atomic_bool cut; /* asks the thread to close the connection */
    int client, server;
    uint64_t random;
    struct stream from_client, from_server;
    enum reply_state reply;
    uint64_t columns_left;
    enum proxy_fault owed; /* PROXY_CUT_AFTER or PROXY_ERROR_AFTER: due when the reply is complete; PROXY_CUT_WITHIN */
    unsigned owed_error;
    bool in_hole;      /* has been in a black hole */
    bool runs_batches; /* has locked semaphores */
};

struct proxy {
    char *server_socket; /* under mutex */
    char *path;
    char *url;
    int listener;
    pthread_t thread;
    atomic_bool stopping;
    pthread_mutex_t mutex;
    struct proxy_rule rule; /* under mutex, like `matched` */
    unsigned matched;
    uint64_t seed;
    atomic_uint strikes[PROXY_FAULT_COUNT];
    struct link links[LINKS_MAX];
};

static unsigned chance(struct link *link, unsigned below)
{
    uint64_t x = link->random += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (unsigned)((x ^ (x >> 31)) % below);
}

static struct proxy_rule rule_now(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mutex);
    struct proxy_rule rule = proxy->rule;
    pthread_mutex_unlock(&proxy->mutex);
    return rule;
}

/* ---- bytes ---- */

static bool stream_read(struct stream *stream, int fd)
{
    if (stream->room - stream->length < READ_SIZE) {
        stream->room = stream->room * 2 + READ_SIZE;
        stream->data = realloc(stream->data, stream->room);
        KIT_CHECK(stream->data);
    }
    ssize_t got = recv(fd, stream->data + stream->length, READ_SIZE, 0);
    if (got <= 0)
        return false;
    stream->length += (size_t)got;
    return true;
}

static void stream_drop(struct stream *stream, size_t count)
{
    memmove(stream->data, stream->data + count, stream->length - count);
    stream->length -= count;
}

static bool write_all(int fd, const unsigned char *data, size_t length)
{
    while (length) {
        ssize_t put = send(fd, data, length, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        data += put;
        length -= (size_t)put;
    }
    return true;
}

/* Length of the first packet with its header; 0: incomplete. */
static size_t whole_packet(const struct stream *stream)
{
    if (stream->length < HEADER)
        return 0;
    const unsigned char *data = stream->data;
    size_t length = HEADER + ((size_t)data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16);
    return stream->length >= length ? length : 0;
}

/* ---- the protocol ---- */

static const unsigned char *skip_number(const unsigned char *at, uint64_t *ret_value)
{
    unsigned width = *at < 0xfb ? 0 : *at == 0xfc ? 2 : *at == 0xfd ? 3 : 8;
    *ret_value = width ? 0 : *at;
    for (unsigned i = 0; i < width; i++)
        *ret_value |= (uint64_t)at[1 + i] << 8 * i;
    return at + 1 + width;
}

static void reply_ends(struct link *link, unsigned status)
{
    link->reply = status & MORE_RESULTS ? REPLY_START : REPLY_DONE;
}

/* Parses one packet of the server's reply. */
static void follow_reply(struct link *link, const unsigned char *packet, size_t length)
{
    const unsigned char *body = packet + HEADER;
    uint64_t number;
    bool is_eof = body[0] == 0xfe && length - HEADER < 9;
    if (body[0] == 0xff) {
        link->reply = REPLY_DONE;
    } else if (link->reply == REPLY_START && body[0] == 0x00) {
        const unsigned char *status = skip_number(skip_number(body + 1, &number), &number);
        reply_ends(link, (unsigned)status[0]);
    } else if (link->reply == REPLY_START) {
        (void)skip_number(body, &link->columns_left);
        link->reply = REPLY_COLUMNS;
    } else if (link->reply == REPLY_COLUMNS && is_eof) {
        link->reply = REPLY_ROWS;
    } else if (link->reply == REPLY_ROWS && is_eof) {
        reply_ends(link, body[3]);
    }
}

static bool send_error(struct link *link, unsigned error)
{
    char text[64];
    unsigned char packet[HEADER + 128];
    int length = snprintf(text, sizeof(text), "struck by the proxy");
    size_t size = 9 + (size_t)length;
    packet[0] = (unsigned char)size;
    packet[1] = packet[2] = 0;
    packet[3] = 1;
    packet[4] = 0xff;
    packet[5] = (unsigned char)error;
    packet[6] = (unsigned char)(error >> 8);
    memcpy(packet + 7, "#HY000", 6);
    memcpy(packet + 13, text, (size_t)length);
    return write_all(link->client, packet, HEADER + size);
}

/* ---- injecting faults ---- */

/* The number of this packet among those that match the rule. */
static unsigned count_match(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mutex);
    unsigned number = ++proxy->matched;
    pthread_mutex_unlock(&proxy->mutex);
    return number;
}

static bool rule_matches(struct link *link, const struct proxy_rule *rule, const unsigned char *packet, size_t length)
{
    bool is_query = packet[3] == 0 && length > HEADER && packet[HEADER] == COMMAND_QUERY;
    bool knew = link->runs_batches;
    link->runs_batches = knew || (is_query && memmem(packet, length, "FOR UPDATE", 10));
    if (rule->fault == PROXY_BLACK_HOLE || !is_query || (rule->only_batches && !knew))
        return false;
    return !rule->only_commit || memmem(packet, length, "COMMIT", 6);
}

static bool strikes(struct link *link, const struct proxy_rule *rule, const unsigned char *packet, size_t length)
{
    if (!rule_matches(link, rule, packet, length))
        return false;
    unsigned number = count_match(link->proxy);
    if (rule->fault == PROXY_PASS || (rule->nth && number != rule->nth))
        return false;
    if (rule->one_in > 1 && chance(link, rule->one_in))
        return false;
    atomic_fetch_add(&link->proxy->strikes[rule->fault], 1);
    return true;
}

static void delay(struct link *link, unsigned delay_ms)
{
    kit_sleep_ms((int)chance(link, delay_ms + 1));
}

/* Handles one packet of the client. Returns false to close the connection. */
static bool pass_packet(struct link *link, size_t length)
{
    struct proxy_rule rule = rule_now(link->proxy);
    enum proxy_fault fault = PROXY_PASS;
    if (strikes(link, &rule, link->from_client.data, length))
        fault = rule.fault;
    if (fault == PROXY_CUT_BEFORE)
        return false;
    if (fault == PROXY_ERROR_BEFORE) {
        stream_drop(&link->from_client, length);
        return send_error(link, rule.error);
    }
    if (fault == PROXY_DELAY)
        delay(link, rule.delay_ms);
    bool later = fault == PROXY_CUT_AFTER || fault == PROXY_CUT_WITHIN || fault == PROXY_ERROR_AFTER;
    link->owed = later ? fault : PROXY_PASS;
    link->owed_error = rule.error;
    link->reply = REPLY_START;
    if (!write_all(link->server, link->from_client.data, length))
        return false;
    stream_drop(&link->from_client, length);
    return true;
}

static bool pass_client(struct link *link)
{
    for (size_t length; (length = whole_packet(&link->from_client)) > 0;)
        if (!pass_packet(link, length))
            return false;
    return true;
}

/* Holds the reply back while a fault is due for it, but for PROXY_CUT_WITHIN. */
static bool pass_server(struct link *link)
{
    if (link->owed == PROXY_PASS) {
        bool passed = write_all(link->client, link->from_server.data, link->from_server.length);
        link->from_server.length = 0;
        return passed;
    }
    for (size_t length; link->reply != REPLY_DONE && (length = whole_packet(&link->from_server)) > 0;) {
        follow_reply(link, link->from_server.data, length);
        if (link->owed == PROXY_CUT_WITHIN && !write_all(link->client, link->from_server.data, length))
            return false;
        stream_drop(&link->from_server, length);
        if (link->owed == PROXY_CUT_WITHIN && link->reply == REPLY_ROWS && chance(link, 2))
            return false;
    }
    if (link->reply != REPLY_DONE)
        return true;
    enum proxy_fault owed = link->owed;
    link->owed = PROXY_PASS;
    if (owed == PROXY_CUT_WITHIN) /* it had no result, or all of it has passed */
        return true;
    return owed == PROXY_ERROR_AFTER && send_error(link, link->owed_error);
}

/* ---- a connection ---- */

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Returns true while nothing may pass. False: *ret_cut is set if this connection is in the half to be closed. */
static bool is_in_hole(struct link *link, bool *ret_cut)
{
    struct proxy_rule rule = rule_now(link->proxy);
    *ret_cut = false;
    if (rule.fault == PROXY_BLACK_HOLE) {
        if (!link->in_hole)
            atomic_fetch_add(&link->proxy->strikes[PROXY_BLACK_HOLE], 1);
        link->in_hole = true;
        return true;
    }
    *ret_cut = link->in_hole && chance(link, 2);
    link->in_hole = false;
    return false;
}

/* One round of the loop. Returns false to close the connection. */
static bool serve(struct link *link)
{
    bool cut;
    if (atomic_load(&link->cut) || atomic_load(&link->proxy->stopping))
        return false;
    if (is_in_hole(link, &cut)) {
        kit_sleep_ms(TURN_MS);
        return true;
    }
    struct pollfd polled[2] = {{link->client, POLLIN, 0}, {link->server, POLLIN, 0}};
    if (cut || (poll(polled, 2, TURN_MS) < 0 && errno != EINTR))
        return false;
    if (polled[0].revents && (!stream_read(&link->from_client, link->client) || !pass_client(link)))
        return false;
    return !polled[1].revents || (stream_read(&link->from_server, link->server) && pass_server(link));
}

static void *link_run(void *context)
{
    struct link *link = context;
    while (serve(link))
        ;
    close(link->client);
    close(link->server);
    free(link->from_client.data);
    free(link->from_server.data);
    atomic_store(&link->used, false);
    return NULL;
}

static struct link *free_link(struct proxy *proxy)
{
    for (size_t i = 0; i < LINKS_MAX; i++)
        if (!atomic_load(&proxy->links[i].used))
            return &proxy->links[i];
    kit_fail("proxy: more than %d connections", LINKS_MAX);
}

static void begin_link(struct proxy *proxy, int client)
{
    pthread_mutex_lock(&proxy->mutex);
    int server = connect_to(proxy->server_socket);
    pthread_mutex_unlock(&proxy->mutex);
    if (server < 0) { /* the server is not running */
        close(client);
        return;
    }
    struct link *link = free_link(proxy);
    *link = (struct link){.proxy = proxy, .client = client, .server = server, .random = proxy->seed++};
    atomic_store(&link->used, true);
    KIT_CHECK(!pthread_create(&link->thread, NULL, link_run, link));
    pthread_detach(link->thread);
}

static void *listen_run(void *context)
{
    struct proxy *proxy = context;
    while (!atomic_load(&proxy->stopping)) {
        struct pollfd polled = {proxy->listener, POLLIN, 0};
        if (poll(&polled, 1, TURN_MS) <= 0)
            continue;
        int client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);
        if (client >= 0)
            begin_link(proxy, client);
    }
    return NULL;
}

/* ---- all of it ---- */

struct proxy *proxy_start(const char *server_socket, unsigned long long seed)
{
    struct proxy *proxy = calloc(1, sizeof(*proxy));
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    KIT_CHECK(proxy);
    proxy->server_socket = strdup(server_socket);
    proxy->path = kit_path("proxy.sock");
    KIT_CHECK(asprintf(&proxy->url, "mysql://root@/permitd?socket=%s", proxy->path) > 0);
    proxy->seed = seed * 0xd1342543de82ef95u;
    pthread_mutex_init(&proxy->mutex, NULL);
    KIT_CHECK(strlen(proxy->path) < sizeof(address.sun_path));
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", proxy->path);
    proxy->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    KIT_CHECK(proxy->listener >= 0 && !bind(proxy->listener, (struct sockaddr *)&address, sizeof(address)) &&
              !listen(proxy->listener, 128));
    KIT_CHECK(!pthread_create(&proxy->thread, NULL, listen_run, proxy));
    return proxy;
}

const char *proxy_url(const struct proxy *proxy)
{
    return proxy->url;
}

void proxy_set(struct proxy *proxy, const struct proxy_rule *rule)
{
    pthread_mutex_lock(&proxy->mutex);
    proxy->rule = *rule;
    proxy->matched = 0;
    pthread_mutex_unlock(&proxy->mutex);
}

unsigned proxy_matched(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mutex);
    unsigned matched = proxy->matched;
    pthread_mutex_unlock(&proxy->mutex);
    return matched;
}

unsigned proxy_strikes(const struct proxy *proxy, enum proxy_fault fault)
{
    return atomic_load(&proxy->strikes[fault]);
}

void proxy_point(struct proxy *proxy, const char *server_socket)
{
    pthread_mutex_lock(&proxy->mutex);
    free(proxy->server_socket);
    proxy->server_socket = strdup(server_socket);
    pthread_mutex_unlock(&proxy->mutex);
}

void proxy_cut(struct proxy *proxy)
{
    for (size_t i = 0; i < LINKS_MAX; i++)
        if (atomic_load(&proxy->links[i].used))
            atomic_store(&proxy->links[i].cut, true);
}

static bool has_no_links(void *context)
{
    const struct proxy *proxy = context;
    for (size_t i = 0; i < LINKS_MAX; i++)
        if (atomic_load(&proxy->links[i].used))
            return false;
    return true;
}

void proxy_stop(struct proxy *proxy)
{
    if (!proxy)
        return;
    atomic_store(&proxy->stopping, true);
    pthread_join(proxy->thread, NULL);
    KIT_CHECK(kit_wait_until(has_no_links, proxy, 10000));
    close(proxy->listener);
    unlink(proxy->path);
    pthread_mutex_destroy(&proxy->mutex);
    free(proxy->server_socket);
    free(proxy->path);
    free(proxy->url);
    free(proxy);
}
