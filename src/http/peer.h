/* SPDX-License-Identifier: MIT */
/* Peers: the client addresses, with the connections of each. */
#ifndef HTTP_PEER_H
#define HTTP_PEER_H

#include "base/list.h"
#include "base/map.h"

struct sockaddr_storage;

enum { PEER_ADDRESS_SIZE = 16 };

struct peer {
    struct map_node by_address;
    unsigned char address[PEER_ADDRESS_SIZE]; /* an IPv6 address (IPv4 is mapped); of IPv6 only the first 64 bits are
                                                 kept */
    size_t connections;
    struct list idle; /* idle connections, longest idle first: `of_peer` of struct connection */
};

/* Returns the peer of this address and adds a connection to it. NULL: out of memory. */
struct peer *peer_join(struct map *peers, const struct sockaddr_storage *address) MUST_CHECK;
/* Removes a connection from the peer. Frees the peer with its last connection. */
void peer_leave(struct map *peers, struct peer *peer);
#endif
