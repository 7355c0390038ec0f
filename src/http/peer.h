/* SPDX-License-Identifier: MIT */
/* The addresses that connections come from, with the connections of each. */
#ifndef HTTP_PEER_H
#define HTTP_PEER_H

#include "base/list.h"
#include "base/map.h"

struct sockaddr_storage;

enum { PEER_ADDRESS_SIZE = 16 };

struct peer {
    struct map_node by_address;
    unsigned char address[PEER_ADDRESS_SIZE]; /* of IPv6; an address of IPv6 counts by its first 64 bits */
    size_t connections;
    struct list idle; /* those of them that are idle, the longest first: `of_peer` of struct connection */
};

/* The peer of this address, with one connection more. NULL: no memory. */
struct peer *peer_join(struct map *peers, const struct sockaddr_storage *address) MUST_CHECK;
/* One connection less; frees it with the last. */
void peer_leave(struct map *peers, struct peer *peer);
#endif
