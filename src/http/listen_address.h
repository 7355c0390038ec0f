/* SPDX-License-Identifier: MIT */
/*
 * Listen addresses. Parses ADDRESS:PORT with a numeric address, http://ADDRESS:PORT, https://ADDRESS:PORT and
 * unix:PATH, and prints the URL of a bound socket.
 */
#ifndef HTTP_LISTEN_ADDRESS_H
#define HTTP_LISTEN_ADDRESS_H

#include <sys/socket.h>

#include "base/buf.h"
#include "http/exchange.h"

enum { ADDRESS_URL_SIZE = 128 }; /* holds the URL of every listener: a path of a Unix socket has at most 107 bytes */

struct listen_address {
    enum client_transport transport;
    struct sockaddr_storage socket;
    socklen_t length;
};

/* Parses one value of the setting `listen`. On false, `message` holds the reason and the output is undefined. */
bool address_parse(const char *text, struct listen_address *ret_address, struct buf *message) MUST_CHECK;
/* Returns true if only programs on this machine can connect: a loopback address, or a Unix socket. */
bool address_is_local(const struct listen_address *address) MUST_CHECK;
/* Returns the path of a Unix socket. */
const char *address_path(const struct listen_address *address);
/* Prints the address of a client, such as "10.0.0.7:51234", "[::1]:51234" or, with its user, "unix:1000". */
void address_print(const struct sockaddr_storage *address, uid_t uid, char *text, size_t size);
/* Writes the URL of a bound socket, such as "http://127.0.0.1:7070" or "unix:/run/permitd/permitd.sock". */
void address_url(int fd, const struct listen_address *address, char url[ADDRESS_URL_SIZE]);
#endif
