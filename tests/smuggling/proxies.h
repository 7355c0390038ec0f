/* SPDX-License-Identifier: MIT */
/* HAProxy and nginx in front of permitd, each on a Unix socket in the temporary directory. */
#ifndef SMUGGLING_PROXIES_H
#define SMUGGLING_PROXIES_H

#include "testkit.h"

struct proxy {
    const char *name;
    pid_t pid;
    char *socket;
};

/*
 * Both keep connections to permitd and reuse them for any client, refuse requests with "smuggled" in the target, and
 * forward all others.
 */
struct proxy proxy_start_haproxy(unsigned permitd_port);
struct proxy proxy_start_nginx(unsigned permitd_port);
void proxy_stop(struct proxy *proxy);
#endif
