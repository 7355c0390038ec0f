/* SPDX-License-Identifier: MIT */
/*
 * A proxy between permitd and its database, on Unix sockets. It parses enough of the MySQL protocol to inject a fault
 * at a chosen point: before a packet of statements is forwarded, or after the server ran it and before any of the reply
 * is forwarded, or all of it. One thread per connection. The rule can be changed at any time and applies to all connections.
 */
#ifndef PROXY_H
#define PROXY_H

#include <stdbool.h>

enum proxy_fault {
    PROXY_PASS,
    PROXY_CUT_BEFORE, /* closes the connection; the server never sees the packet */
    PROXY_CUT_AFTER,  /* the server runs the packet; the client gets no reply */
    PROXY_CUT_WITHIN, /* the server runs the packet; the client gets a part of the reply, up to somewhere in a result */
    PROXY_ERROR_BEFORE, /* the client gets `error`; the server never sees the packet */
    PROXY_ERROR_AFTER,  /* the server runs the packet and the client gets `error`; only valid for a COMMIT of unknown
                         * outcome */
    PROXY_DELAY,        /* delays packet and reply by up to `delay_ms` each */
    PROXY_BLACK_HOLE,   /* forwards nothing, without closing; when the rule changes, half of the connections continue
                         * and half are closed */
    PROXY_FAULT_COUNT
};

struct proxy_rule {
    enum proxy_fault fault;
    bool only_commit;  /* only packets that contain a COMMIT */
    bool only_batches; /* only connections that have run a batch before */
    unsigned nth;      /* only the n-th matching packet, once; 0: any */
    unsigned one_in;   /* hits one in so many packets, at random; 0 or 1: all */
    unsigned error;    /* value of mysql_errno */
    unsigned delay_ms;
};

struct proxy;

/*
 * Listens on its own socket and opens one connection to the server's socket per client. Ends the process if it cannot.
 */
struct proxy *proxy_start(const char *server_socket, unsigned long long seed);
/* The value for permitd's --database. Valid as long as the proxy. */
const char *proxy_url(const struct proxy *proxy);
void proxy_set(struct proxy *proxy, const struct proxy_rule *rule);
/* Number of packets since the rule was set that match it, regardless of nth and one_in. */
unsigned proxy_matched(struct proxy *proxy);
/* Number of times this fault was injected. */
unsigned proxy_strikes(const struct proxy *proxy, enum proxy_fault fault);
/* Connects new clients to this server; open connections stay (see proxy_cut). */
void proxy_point(struct proxy *proxy, const char *server_socket);
/* Closes all connections. */
void proxy_cut(struct proxy *proxy);
void proxy_stop(struct proxy *proxy);
#endif
