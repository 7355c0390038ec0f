/* SPDX-License-Identifier: MIT */
#include "http/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    return address->sa_family == AF_INET &&
           ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
}

/* "127.0.0.1:7070" or "[::1]:0". */
static bool parse_numeric_address(const char *text, struct sockaddr_storage *address, socklen_t *ret_length)
{
    char host[64];
    char *end;
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;
    bool bracketed = length > 2 && text[0] == '[' && colon[-1] == ']';
    if (!colon || length >= sizeof host || colon[1] < '0' || colon[1] > '9' || *end || port > UINT16_MAX)
        return false;
    snprintf(host, sizeof host, "%.*s", (int)(bracketed ? length - 2 : length), text + bracketed);
    struct sockaddr_in *in = (struct sockaddr_in *)address;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)address;
    memset(address, 0, sizeof *address);
    if (bracketed) {
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons((uint16_t)port);
        *ret_length = sizeof *in6;
        return inet_pton(AF_INET6, host, &in6->sin6_addr) == 1;
    }
    in->sin_family = AF_INET;
    in->sin_port = htons((uint16_t)port);
    *ret_length = sizeof *in;
    return inet_pton(AF_INET, host, &in->sin_addr) == 1;
}

/* "/run/permitd/permitd.sock". */
static bool parse_path(const char *path, struct listen_address *address)
{
    struct sockaddr_un *un = (struct sockaddr_un *)&address->socket;
    size_t length = strlen(path);
    memset(&address->socket, 0, sizeof address->socket);
    if (path[0] != '/' || length >= sizeof un->sun_path)
        return false;
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, path, length + 1);
    address->length = sizeof *un;
    return true;
}

bool address_parse(const char *text, struct listen_address *ret_address, struct buf *message)
{
    static const struct {
        const char *prefix;
        enum client_transport transport;
    } schemes[] = {{"unix:", CLIENT_UNIX}, {"https://", CLIENT_TLS}, {"http://", CLIENT_TCP}, {"", CLIENT_TCP}};
    size_t i = 0;
    while (strncmp(text, schemes[i].prefix, strlen(schemes[i].prefix)) != 0)
        i++;
    const char *rest = text + strlen(schemes[i].prefix);
    ret_address->transport = schemes[i].transport;
    if (ret_address->transport == CLIENT_UNIX) {
        if (parse_path(rest, ret_address))
            return true;
        buf_printf(message, "listen is %s: the path of a Unix socket must be absolute and at most %zu bytes long", text,
                   sizeof((struct sockaddr_un *)NULL)->sun_path - 1);
        return false;
    }
    if (parse_numeric_address(rest, &ret_address->socket, &ret_address->length))
        return true;
    buf_printf(message,
               "listen must be ADDRESS:PORT with a numeric address, such as 127.0.0.1:7070 or https://0.0.0.0:7443, or "
               "unix:PATH, not %s",
               text);
    return false;
}

bool address_is_local(const struct listen_address *address)
{
    return address->transport == CLIENT_UNIX || is_loopback((const struct sockaddr *)&address->socket);
}

const char *address_path(const struct listen_address *address)
{
    return ((const struct sockaddr_un *)&address->socket)->sun_path;
}

void address_print(const struct sockaddr_storage *address, uid_t uid, char *text, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (address->ss_family == AF_UNIX) {
        snprintf(text, size, "unix:%u", (unsigned)uid);
    } else if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
        snprintf(text, size, "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(text, size, "%s:%u", host, ntohs(in->sin_port));
    }
}

void address_url(int fd, const struct listen_address *address, char url[ADDRESS_URL_SIZE])
{
    struct sockaddr_storage bound = {0};
    socklen_t length = sizeof bound;
    char text[INET6_ADDRSTRLEN + 16];
    if (address->transport == CLIENT_UNIX) {
        snprintf(url, ADDRESS_URL_SIZE, "unix:%s", address_path(address));
        return;
    }
    (void)getsockname(fd, (struct sockaddr *)&bound, &length);
    address_print(&bound, 0, text, sizeof text);
    snprintf(url, ADDRESS_URL_SIZE, "http%s://%s", address->transport == CLIENT_TLS ? "s" : "", text);
}
