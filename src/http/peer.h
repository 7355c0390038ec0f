/* SPDX-License-Identifier: MIT */
/* Peers: the addresses of clients, and the users of clients on Unix sockets, with the connections of each. */
#ifndef HTTP_PEER_H
#define HTTP_PEER_H

#include <sys/types.h>

#include "base/list.h"
#include "base/map.h"
#include "http/share.h"

struct sockaddr_storage;

enum { PEER_ADDRESS_SIZE = 16 };

/* The lines in which TLS connections wait. Peers take turns, so that one with many connections delays no other one. */
enum peer_line_kind {
    LINE_HANDSHAKE, /* the beginning of the handshake: `tls_handshakes` a second */
    LINE_STEP,      /* the next step of the handshake: a few in each turn of the loop */
    LINE_KINDS,
};

/* The connections of a peer that wait for one of these. */
struct peer_line {
    struct list waiting; /* oldest first: `of_peer` of struct connection */
    struct list in_turn; /* on the server's list of peers with such connections */
};

struct peer {
    struct map_node by_address;
    unsigned char address[PEER_ADDRESS_SIZE]; /* an IPv6 address (IPv4 is mapped); of IPv6 only the first 64 bits are
                                                 kept; a user is an address that no client has */
    size_t connections;
    size_t references;         /* of its connections and their exchanges */
    struct memory_share share; /* of its clients without a credential */
    struct list idle;          /* connections that may be closed for new ones, longest idle first: `of_peer` of struct
                           connection */
    struct peer_line lines[LINE_KINDS];
    struct list node;  /* on the server's list of failing peers; a peer on it is kept without references */
    unsigned failures; /* requests without a valid credential since failing_since */
    mono_us failing_since;
    mono_us closed_until; /* new connections are closed until then; 0: they are not */
};

/* Requests without a valid credential in one second, after which new connections are closed for a second. */
enum { PEER_MAX_FAILURES = 10 };

/*
 * Returns the peer of this address (a Unix socket: of this user) and adds a connection to it. The share of a new peer
 * is one of `strangers`. NULL: out of memory.
 */
struct peer *peer_join(struct map *peers, const struct sockaddr_storage *address, uid_t uid,
                       struct memory_share *strangers) MUST_CHECK;
/* Removes a connection from the peer, as peer_unref. */
void peer_leave(struct map *peers, struct peer *peer);
static inline struct peer *peer_ref(struct peer *peer)
{
    peer->references++;
    return peer;
}
/* Drops a reference. Frees the peer with its last one, unless it is failing. */
void peer_unref(struct map *peers, struct peer *peer);
/* Counts a request without a valid credential, and puts the peer on the list of failing peers. */
void peer_count_failure(struct list *failing, struct peer *peer, mono_us now);
/* Returns true if new connections of the peer are closed at this time. */
bool peer_is_closed(const struct peer *peer, mono_us now) MUST_CHECK;
/* Takes peers off the list whose last failures are forgotten. Frees those without references. */
void peers_forgive(struct map *peers, struct list *failing, mono_us now);
#endif
