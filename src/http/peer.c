/* SPDX-License-Identifier: MIT */
#include "http/peer.h"

#include <netinet/in.h>
#include <stdlib.h>

static void take_address(unsigned char to[PEER_ADDRESS_SIZE], const struct sockaddr_storage *address)
{
    enum { NETWORK = 8, MAPPED_AT = 10, V4_AT = 12 }; /* IPv4 as ::ffff:a.b.c.d */
    memset(to, 0, PEER_ADDRESS_SIZE);
    if (address->ss_family == AF_INET) {
        memset(to + MAPPED_AT, 0xFF, V4_AT - MAPPED_AT);
        memcpy(to + V4_AT, &((const struct sockaddr_in *)address)->sin_addr, PEER_ADDRESS_SIZE - V4_AT);
    } else if (address->ss_family == AF_INET6) {
        const struct in6_addr *from = &((const struct sockaddr_in6 *)address)->sin6_addr;
        memcpy(to, from, IN6_IS_ADDR_V4MAPPED(from) ? PEER_ADDRESS_SIZE : NETWORK);
    }
}

struct peer *peer_join(struct map *peers, const struct sockaddr_storage *address)
{
    unsigned char bytes[PEER_ADDRESS_SIZE];
    take_address(bytes, address);
    struct map_node *node = map_find(peers, (struct bytes){(const char *)bytes, sizeof bytes});
    struct peer *peer = node ? MAP_ENTRY(node, struct peer, by_address) : calloc(1, sizeof *peer);
    if (peer && !node) {
        memcpy(peer->address, bytes, sizeof bytes);
        list_init(&peer->idle);
        if (!map_insert(peers, &peer->by_address, (struct bytes){(const char *)peer->address, sizeof peer->address})) {
            free(peer);
            return NULL;
        }
    }
    if (peer)
        peer->connections++;
    return peer;
}

void peer_leave(struct map *peers, struct peer *peer)
{
    if (--peer->connections)
        return;
    map_remove(peers, &peer->by_address);
    free(peer);
}
