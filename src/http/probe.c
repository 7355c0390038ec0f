/* SPDX-License-Identifier: MIT */
#include "http/probe.h"

#include <arpa/inet.h>
#include <event2/dns.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <stdlib.h>
#include <string.h>

#include "core/name.h"

enum {
    AT_ONCE = 16,
    TIMEOUT_S = 5,        /* of a question, from the look-up of the name to the end of the answer */
    STOP_LOOK_MS = 100,   /* how late a stop may be noticed */
    ANSWER_MAX = 1 << 20, /* longer ones are not read, and say nothing */
    HEADERS_MAX = 64 * 1024,
    TARGET_MAX = 16 * 1024,
    DEFAULT_PORT = 80,
};

#define PLACE "{owner}"

/* One question under way. */
struct slot {
    struct probe *probe;
    struct evhttp_connection *connection; /* NULL: nothing is asked */
    struct event *over; /* its time is over, or it has been answered: not in evhttp's callback, which still uses the
                           connection afterwards */
    struct probe_question *question;
    enum probe_answer answer;
};

struct probe {
    char *host;
    unsigned short port;
    char *target; /* path and query, with PLACE in it */
    struct event_base *base;
    struct evdns_base *dns; /* NULL: the host is an address */
    struct event *stop_look;
    struct slot slots[AT_ONCE];

    /* While it asks. */
    struct probe_question *questions;
    size_t count;
    size_t next;
    size_t under_way;
    const atomic_bool *stopping;
};

/* ---- the URL ---- */

static bool refuse_url(struct buf *message, const char *why)
{
    buf_printf(message, "liveness_url: %s", why);
    return false;
}

/* The braces of {owner} are not allowed in a URL: the rest is judged with a letter in their place. */
static bool without_place(const char *url, struct buf *out)
{
    const char *at = url;
    for (const char *place; (place = strstr(at, PLACE)); at = place + strlen(PLACE)) {
        buf_append(out, at, (size_t)(place - at));
        buf_append_char(out, 'o');
    }
    buf_append_text(out, at);
    return at != url && !out->broken;
}

static bool take_host(struct probe *probe, const struct evhttp_uri *uri, struct buf *message)
{
    const char *scheme = evhttp_uri_get_scheme(uri);
    const char *host = evhttp_uri_get_host(uri);
    int port = evhttp_uri_get_port(uri);
    if (!scheme || strcmp(scheme, "http") != 0)
        return refuse_url(message, "must begin with http://");
    if (!host || !*host)
        return refuse_url(message, "missing host");
    if (evhttp_uri_get_userinfo(uri) || evhttp_uri_get_fragment(uri))
        return refuse_url(message, "user and fragment are not allowed");
    if (port == 0 || port > UINT16_MAX)
        return refuse_url(message, "invalid port");
    size_t length = strlen(host);
    bool bracketed = host[0] == '[' && host[length - 1] == ']';
    probe->host = bracketed ? strndup(host + 1, length - 2) : strdup(host);
    probe->port = (unsigned short)(port < 0 ? DEFAULT_PORT : port);
    return probe->host != NULL;
}

static bool take_url(struct probe *probe, const char *url, struct buf *message)
{
    struct buf plain;
    buf_init(&plain, TARGET_MAX);
    bool placed = without_place(url, &plain);
    struct evhttp_uri *uri = placed ? evhttp_uri_parse(buf_text(&plain)) : NULL;
    const char *authority = strstr(url, "://");
    const char *target = authority ? strpbrk(authority + 3, "/?") : NULL;
    bool good = false;
    if (!placed)
        (void)refuse_url(message, "must contain {owner} for the owner's name, and be at most 16 KiB");
    else if (!uri)
        (void)refuse_url(message, "invalid URL");
    else if (!target || *target != '/' || !strstr(target, PLACE) || strstr(url, PLACE) < target)
        (void)refuse_url(message, "{owner} must be in the path or query");
    else
        good = take_host(probe, uri, message) && (probe->target = strdup(target));
    if (uri)
        evhttp_uri_free(uri);
    buf_release(&plain);
    return good;
}

static bool is_address(const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}

/* ---- one question ---- */

static void ask_next(struct slot *slot);

/* Everything but letters, digits and - . _ ~ as %XX. */
static void append_encoded(struct buf *out, struct bytes name)
{
    static const char unreserved[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (size_t i = 0; i < name.length; i++) {
        if (name.data[i] && strchr(unreserved, name.data[i]))
            buf_append_char(out, name.data[i]);
        else
            buf_printf(out, "%%%02X", (unsigned)(unsigned char)name.data[i]);
    }
}

static void append_target(struct buf *out, const char *target, struct bytes owner)
{
    for (const char *place; (place = strstr(target, PLACE)); target = place + strlen(PLACE)) {
        buf_append(out, target, (size_t)(place - target));
        append_encoded(out, owner);
    }
    buf_append_text(out, target);
}

static enum probe_answer answer_of(int code)
{
    switch (code) {
    case 200: return PROBE_ALIVE;
    case 404:
    case 410: return PROBE_DEAD;
    default: return PROBE_UNKNOWN;
    }
}

/* Also when there is no answer: then without a request, or with code 0. */
static void answered(struct evhttp_request *request, void *context)
{
    struct slot *slot = context;
    slot->answer = request ? answer_of(evhttp_request_get_response_code(request)) : PROBE_UNKNOWN;
    event_active(slot->over, EV_TIMEOUT, 0);
}

static void slot_close(struct slot *slot)
{
    event_del(slot->over);
    if (slot->connection)
        evhttp_connection_free(slot->connection);
    slot->connection = NULL;
}

static void slot_over(evutil_socket_t fd, short what, void *context)
{
    struct slot *slot = context;
    (void)fd, (void)what;
    slot->question->ret_answer = slot->answer;
    slot_close(slot);
    slot->probe->under_way--;
    ask_next(slot);
}

/* Host: as in the URL; brackets around an IPv6 address. */
static bool add_headers(struct slot *slot, struct evhttp_request *request)
{
    const struct probe *probe = slot->probe;
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    struct buf host;
    buf_init(&host, TARGET_MAX);
    buf_printf(&host, strchr(probe->host, ':') ? "[%s]:%u" : "%s:%u", probe->host, (unsigned)probe->port);
    bool added = !host.broken && evhttp_add_header(headers, "Host", buf_text(&host)) == 0 &&
                 evhttp_add_header(headers, "Connection", "close") == 0 &&
                 evhttp_add_header(headers, "User-Agent", "permitd/" PERMIT_VERSION) == 0;
    buf_release(&host);
    return added;
}

static bool slot_ask(struct slot *slot)
{
    struct probe *probe = slot->probe;
    const struct timeval timeout = {.tv_sec = TIMEOUT_S};
    struct buf target;
    slot->answer = PROBE_UNKNOWN;
    slot->connection = evhttp_connection_base_new(probe->base, probe->dns, probe->host, probe->port);
    struct evhttp_request *request = slot->connection ? evhttp_request_new(answered, slot) : NULL;
    if (!request)
        return false;
    evhttp_connection_set_timeout(slot->connection, TIMEOUT_S);
    evhttp_connection_set_max_body_size(slot->connection, ANSWER_MAX);
    evhttp_connection_set_max_headers_size(slot->connection, HEADERS_MAX);
    buf_init(&target, TARGET_MAX + 3 * NAME_MAX_BYTES);
    append_target(&target, probe->target, slot->question->owner);
    bool ready = !target.broken && add_headers(slot, request) && event_add(slot->over, &timeout) == 0;
    if (!ready)
        evhttp_request_free(request);
    else /* frees the request in any case */
        ready = evhttp_make_request(slot->connection, request, EVHTTP_REQ_GET, buf_text(&target)) == 0;
    buf_release(&target);
    return ready;
}

/* The slot takes the next question, or rests; the last one ends the loop. */
static void ask_next(struct slot *slot)
{
    struct probe *probe = slot->probe;
    while (probe->next < probe->count && !atomic_load(probe->stopping)) {
        slot->question = &probe->questions[probe->next++];
        if (slot_ask(slot)) {
            probe->under_way++;
            return;
        }
        slot_close(slot);
    }
    if (probe->under_way == 0)
        event_base_loopbreak(probe->base);
}

/* ---- all of them ---- */

static void look_for_stop(evutil_socket_t fd, short what, void *context)
{
    struct probe *probe = context;
    (void)fd, (void)what;
    if (atomic_load(probe->stopping))
        event_base_loopbreak(probe->base);
}

void probe_ask_all(void *context, struct probe_question *questions, size_t count, const atomic_bool *stopping)
{
    struct probe *probe = context;
    const struct timeval every = {.tv_usec = STOP_LOOK_MS * US_PER_MS};
    probe->questions = questions;
    probe->count = count;
    probe->next = probe->under_way = 0;
    probe->stopping = stopping;
    for (size_t i = 0; i < count; i++)
        questions[i].ret_answer = PROBE_UNKNOWN;
    for (size_t i = 0; i < AT_ONCE; i++)
        ask_next(&probe->slots[i]);
    if (probe->under_way && event_add(probe->stop_look, &every) == 0)
        event_base_dispatch(probe->base);
    event_del(probe->stop_look);
    for (size_t i = 0; i < AT_ONCE; i++)
        slot_close(&probe->slots[i]);
}

/* ---- life ---- */

static bool open_loop(struct probe *probe)
{
    probe->base = event_base_new();
    if (!probe->base)
        return false;
    if (!is_address(probe->host)) {
        probe->dns = evdns_base_new(probe->base, EVDNS_BASE_INITIALIZE_NAMESERVERS);
        if (!probe->dns)
            return false;
    }
    probe->stop_look = event_new(probe->base, -1, EV_PERSIST, look_for_stop, probe);
    bool made = probe->stop_look != NULL;
    for (size_t i = 0; i < AT_ONCE; i++) {
        probe->slots[i].probe = probe;
        probe->slots[i].over = evtimer_new(probe->base, slot_over, &probe->slots[i]);
        made = made && probe->slots[i].over;
    }
    return made;
}

struct probe *probe_new(const char *url, struct buf *message)
{
    struct probe *probe = calloc(1, sizeof *probe);
    if (probe && take_url(probe, url, message) && open_loop(probe))
        return probe;
    if (!message->length)
        buf_append_text(message, "cannot create the liveness probe: out of memory, or no name server");
    probe_free(probe);
    return NULL;
}

void probe_free(struct probe *probe)
{
    if (!probe)
        return;
    for (size_t i = 0; i < AT_ONCE; i++)
        if (probe->slots[i].over)
            event_free(probe->slots[i].over);
    if (probe->stop_look)
        event_free(probe->stop_look);
    if (probe->dns)
        evdns_base_free(probe->dns, 0);
    if (probe->base)
        event_base_free(probe->base);
    free(probe->target);
    free(probe->host);
    free(probe);
}
