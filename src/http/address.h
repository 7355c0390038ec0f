/* SPDX-License-Identifier: MIT */
/* Addresses to listen on: ADDRESS:PORT, numeric, and as URLs. */
#ifndef HTTP_ADDRESS_H
#define HTTP_ADDRESS_H

#include <sys/socket.h>

#include "base/buf.h"

/*
 * "127.0.0.1:7070" or "[::1]:0". Other than loopback addresses only if any_address. False: a sentence in `message`, and
 * the outputs are undefined.
 */
bool address_parse(const char *text, bool any_address, struct sockaddr_storage *ret_address, socklen_t *ret_length,
                   struct buf *message) MUST_CHECK;
/* What a bound socket listens on: "http://127.0.0.1:7070". */
void address_url(int fd, char *url, size_t size);
#endif
