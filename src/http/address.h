/* SPDX-License-Identifier: MIT */
/* Listen addresses: parses ADDRESS:PORT with a numeric address, and prints the URL of a bound socket. */
#ifndef HTTP_ADDRESS_H
#define HTTP_ADDRESS_H

#include <sys/socket.h>

#include "base/buf.h"

/*
 * Parses "127.0.0.1:7070" or "[::1]:0". Unless any_address is true, only loopback addresses are valid. On false,
 * `message` holds the reason and the outputs are undefined.
 */
bool address_parse(const char *text, bool any_address, struct sockaddr_storage *ret_address, socklen_t *ret_length,
                   struct buf *message) MUST_CHECK;
/* Writes the URL of a bound socket, such as "http://127.0.0.1:7070". */
void address_url(int fd, char *url, size_t size);
#endif
