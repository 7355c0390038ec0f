/* SPDX-License-Identifier: MIT */
#include "http/peer.h"

#include <netinet/in.h>
#include <stdlib.h>

static void take_address(unsigned char to[PEER_ADDRESS_SIZE], const struct sockaddr_storage *address, uid_t uid)
{
    enum { NETWORK = 8, MAPPED_AT = 10, V4_AT = 12 }; /* IPv4 as ::ffff:a.b.c.d */
    memset(to, 0, PEER_ADDRESS_SIZE);
    if (address->ss_family == AF_INET) {
        memset(to + MAPPED_AT, 0xFF, V4_AT - MAPPED_AT);
        memcpy(to + V4_AT, &((const struct sockaddr_in *)address)->sin_addr, PEER_ADDRESS_SIZE - V4_AT);
    } else if (address->ss_family == AF_INET6) {
        const struct in6_addr *from = &((const struct sockaddr_in6 *)address)->sin6_addr;
        memcpy(to, from, IN6_IS_ADDR_V4MAPPED(from) ? PEER_ADDRESS_SIZE : NETWORK);
    } else if (address->ss_family == AF_UNIX) {
        memset(to, 0xFF, V4_AT); /* a multicast address, which no client has */
        memcpy(to + V4_AT, &uid, sizeof uid);
    }
}

struct peer *peer_join(struct map *peers, const struct sockaddr_storage *address, uid_t uid,
                       struct memory_share *strangers)
{
    unsigned char bytes[PEER_ADDRESS_SIZE];
    take_address(bytes, address, uid);
    struct map_node *node = map_find(peers, (struct bytes){(const char *)bytes, sizeof bytes});
    struct peer *peer = node ? MAP_ENTRY(node, struct peer, by_address) : calloc(1, sizeof *peer);
    if (peer && !node) {
        memcpy(peer->address, bytes, sizeof bytes);
        share_init(&peer->share, strangers, ADDRESS_PART);
        list_init(&peer->idle);
        for (size_t i = 0; i < LINE_KINDS; i++) {
            list_init(&peer->lines[i].waiting);
            list_init(&peer->lines[i].in_turn);
        }
        list_init(&peer->node);
        if (!map_insert(peers, &peer->by_address, (struct bytes){(const char *)peer->address, sizeof peer->address})) {
            free(peer);
            return NULL;
        }
    }
    if (!peer)
        return NULL;
    peer->connections++;
    return peer_ref(peer);
}

/* Frees the peer if nothing refers to it and it is not failing. */
static void release_unused(struct map *peers, struct peer *peer)
{
    if (peer->references || !list_empty(&peer->node))
        return;
    map_remove(peers, &peer->by_address);
    free(peer);
}

void peer_leave(struct map *peers, struct peer *peer)
{
    peer->connections--;
    peer_unref(peers, peer);
}

void peer_unref(struct map *peers, struct peer *peer)
{
    peer->references--;
    release_unused(peers, peer);
}

/* ---- failures ---- */

void peer_count_failure(struct list *failing, struct peer *peer, mono_us now)
{
    if (now - peer->failing_since >= US_PER_SECOND) {
        peer->failing_since = now;
        peer->failures = 0;
    }
    if (++peer->failures >= PEER_MAX_FAILURES)
        peer->closed_until = now + US_PER_SECOND;
    if (list_empty(&peer->node))
        list_append(failing, &peer->node);
}

bool peer_is_closed(const struct peer *peer, mono_us now)
{
    return peer->closed_until > now;
}

void peers_forgive(struct map *peers, struct list *failing, mono_us now)
{
    list_for_each (node, following, failing) {
        struct peer *peer = LIST_ENTRY(node, struct peer, node);
        if (peer_is_closed(peer, now) || now - peer->failing_since < US_PER_SECOND)
            continue;
        list_remove(&peer->node);
        release_unused(peers, peer);
    }
}
