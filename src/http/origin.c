/* SPDX-License-Identifier: MIT */
#include "http/origin.h"

#include <arpa/inet.h>
#include <strings.h>

enum { SHOWN_MAX = 200 }; /* bytes of a header that a message quotes */

/* "host:port"; a host in brackets is an IPv6 address. */
struct authority {
    struct bytes host; /* without a trailing dot */
    struct bytes port; /* length 0: none */
    bool bracketed;
};

static bool is_same_text(struct bytes a, struct bytes b)
{
    return a.length == b.length && (a.length == 0 || strncasecmp(a.data, b.data, a.length) == 0);
}

static bool is_port(struct bytes text)
{
    for (size_t i = 0; i < text.length; i++)
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
    return text.length <= 5;
}

static bool parse_authority(struct bytes text, struct authority *ret_authority)
{
    struct authority authority = {.bracketed = text.length && text.data[0] == '['};
    const char *end = text.length ? memchr(text.data, authority.bracketed ? ']' : ':', text.length) : NULL;
    size_t length = end ? (size_t)(end - text.data) : text.length;
    size_t used = length + (authority.bracketed && end);
    struct bytes rest = {text.data + used, text.length - used};
    if ((authority.bracketed && !end) || (rest.length && rest.data[0] != ':'))
        return false;
    authority.host = (struct bytes){text.data + authority.bracketed, length - authority.bracketed};
    if (rest.length)
        authority.port = (struct bytes){rest.data + 1, rest.length - 1};
    if (!authority.bracketed && authority.host.length && authority.host.data[authority.host.length - 1] == '.')
        authority.host.length--;
    *ret_authority = authority;
    return authority.host.length > 0 && is_port(authority.port);
}

static bool is_address(const struct authority *authority)
{
    char text[INET6_ADDRSTRLEN + 1];
    struct in6_addr address;
    if (authority->host.length >= sizeof text)
        return false;
    memcpy(text, authority->host.data, authority->host.length);
    text[authority->host.length] = '\0';
    return inet_pton(authority->bracketed ? AF_INET6 : AF_INET, text, &address) == 1;
}

static bool is_listed(struct bytes host, struct bytes list)
{
    static const char separators[] = ", \t";
    for (size_t at = 0; at < list.length;) {
        size_t end = at;
        while (end < list.length && !strchr(separators, list.data[end]))
            end++;
        struct authority listed;
        if (parse_authority((struct bytes){list.data + at, end - at}, &listed) && is_same_text(listed.host, host))
            return true;
        at = end + 1;
    }
    return false;
}

static int shown_length(struct bytes text)
{
    return (int)(text.length < SHOWN_MAX ? text.length : SHOWN_MAX);
}

static bool host_is_served(struct bytes text, struct bytes allowed_hosts, struct authority *ret_authority)
{
    if (!parse_authority(text, ret_authority))
        return false;
    struct bytes host = ret_authority->host;
    bool named =
        !ret_authority->bracketed && (is_same_text(host, BYTES("localhost")) || is_listed(host, allowed_hosts));
    return named || is_address(ret_authority);
}

/* Returns the port, or the default port of the scheme if there is none. */
static struct bytes port_or_default(struct bytes port, struct bytes usual)
{
    return port.length ? port : usual;
}

/*
 * Returns true if the origin has this host: "http://localhost:7070" has the host "localhost:7070". https: a proxy in
 * front of permitd terminates TLS.
 */
static bool origin_has_host(struct bytes origin, const struct authority *host)
{
    static const struct {
        const char *prefix;
        const char *port;
    } schemes[] = {{"http://", "80"}, {"https://", "443"}};
    for (size_t i = 0; i < ARRAY_LENGTH(schemes); i++) {
        struct bytes scheme = bytes_of(schemes[i].prefix);
        struct bytes port = bytes_of(schemes[i].port);
        struct authority page;
        if (origin.length < scheme.length || !is_same_text((struct bytes){origin.data, scheme.length}, scheme))
            continue;
        struct bytes rest = {origin.data + scheme.length, origin.length - scheme.length};
        return parse_authority(rest, &page) && page.bracketed == host->bracketed &&
               is_same_text(page.host, host->host) &&
               is_same_text(port_or_default(page.port, port), port_or_default(host->port, port));
    }
    return false;
}

enum permit_status origin_check(const struct origin *origin, struct bytes allowed_hosts, struct buf *message)
{
    struct authority host = {0};
    struct bytes site = origin->sec_fetch_site;
    buf_clear(message);
    if (origin->host.data && !host_is_served(origin->host, allowed_hosts, &host)) {
        struct bytes name = host.host.length ? host.host : origin->host;
        buf_printf(message,
                   "the URL names the host \"%.*s\", which this permitd does not serve: use its address, or add the "
                   "host to its setting allowed_hosts",
                   shown_length(name), name.data);
        return PERMIT_MISDIRECTED;
    }
    if (origin->repeated) {
        buf_append_text(message, "duplicate Origin or Sec-Fetch-Site header");
        return PERMIT_FORBIDDEN;
    }
    if (origin->origin.data && !origin_has_host(origin->origin, &host)) {
        buf_printf(message,
                   "a web page of \"%.*s\" sent this request (Origin); only pages of the host \"%.*s\" itself may",
                   shown_length(origin->origin), origin->origin.data, shown_length(origin->host),
                   origin->host.data ? origin->host.data : "");
        return PERMIT_FORBIDDEN;
    }
    if (site.data && !is_same_text(site, BYTES("same-origin")) && !is_same_text(site, BYTES("none"))) {
        buf_printf(message, "a web page of another site sent this request (Sec-Fetch-Site: %.*s)", shown_length(site),
                   site.data);
        return PERMIT_FORBIDDEN;
    }
    return PERMIT_OK;
}
