/* SPDX-License-Identifier: MIT */
#include "http/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

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

bool address_parse(const char *text, bool any_address, struct sockaddr_storage *ret_address, socklen_t *ret_length,
                   struct buf *message)
{
    if (!parse_numeric_address(text, ret_address, ret_length)) {
        buf_printf(message, "listen must be ADDRESS:PORT with a numeric address, such as 127.0.0.1:7070, not %s", text);
        return false;
    }
    if (!any_address && !is_loopback((struct sockaddr *)ret_address)) {
        buf_printf(message,
                   "listen is %s: there are no credentials yet, so only a loopback address such as 127.0.0.1:7070 is "
                   "served; --insecure serves any address to anybody",
                   text);
        return false;
    }
    return true;
}

void address_url(int fd, char *url, size_t size)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    char host[INET6_ADDRSTRLEN] = "?";
    (void)getsockname(fd, (struct sockaddr *)&address, &length);
    if (address.ss_family == AF_INET6) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&address;
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
        snprintf(url, size, "http://[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        struct sockaddr_in *in = (struct sockaddr_in *)&address;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(url, size, "http://%s:%u", host, ntohs(in->sin_port));
    }
}
