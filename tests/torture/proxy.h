/* SPDX-License-Identifier: MIT */
/*
 * A proxy between permitd and its database, on Unix sockets, that understands as much of the MySQL protocol as it takes
 * to strike at a chosen moment: before a packet of statements is forwarded, after all of it ran and before anything of
 * its reply is. One thread per connection; the rule may change at any time and holds for all connections.
 */
#ifndef PROXY_H
#define PROXY_H

#include <stdbool.h>

enum proxy_fault {
    PROXY_PASS,
    PROXY_CUT_BEFORE,   /* the connection ends; the server never saw the packet */
    PROXY_CUT_AFTER,    /* the server has run it; the client learns nothing */
    PROXY_ERROR_BEFORE, /* the client gets `error`; the server never saw the packet */
    PROXY_ERROR_AFTER,  /* the same after the server has run it: a lie that only a COMMIT of unknown outcome may tell */
    PROXY_DELAY,        /* packet and reply take up to `delay_ms` longer, each */
    PROXY_BLACK_HOLE,   /* nothing passes, either way, and nobody is told; when the rule changes half of what waits
                           arrives after all, the other half is cut */
    PROXY_FAULT_COUNT
};

struct proxy_rule {
    enum proxy_fault fault;
    bool only_commit;  /* only packets with a COMMIT in them */
    bool only_batches; /* only connections that have run a batch before */
    unsigned nth;      /* only the n-th packet, once; 0: any */
    unsigned one_in;   /* of so many packets one is struck, by chance; 0 as 1: each */
    unsigned error;    /* mysql_errno */
    unsigned delay_ms;
};

struct proxy;

/* Listens on a socket of its own and connects to the server's for each client. Ends the process if it cannot. */
struct proxy *proxy_start(const char *server_socket, unsigned long long seed);
/* For permitd's --database. Valid as long as the proxy. */
const char *proxy_url(const struct proxy *proxy);
void proxy_set(struct proxy *proxy, const struct proxy_rule *rule);
/* How many packets came since the rule was set that it could have been about, whatever nth and one_in say. */
unsigned proxy_matched(struct proxy *proxy);
/* How often it has struck with this fault. */
unsigned proxy_strikes(const struct proxy *proxy, enum proxy_fault fault);
/* New connections go to this server from now on; those that are open stay (proxy_cut). */
void proxy_point(struct proxy *proxy, const char *server_socket);
/* Ends all connections. */
void proxy_cut(struct proxy *proxy);
void proxy_stop(struct proxy *proxy);
#endif
