/* SPDX-License-Identifier: MIT */
/*
 * The servers that permitd is compared with. Each is a child of this process, with its files in the temporary directory,
 * and dies with it.
 */
#ifndef PEER_SERVERS_H
#define PEER_SERVERS_H

#include <sys/types.h>

struct peer_server {
    const char *missing; /* why it cannot be measured; NULL: it runs */
    pid_t pid;
    char *where; /* for --server of its load program */
    char *version;
    void *own; /* private to the kind */
};

/* A single server that flushes its log before it answers, which is its default. */
struct peer_server zookeeper_start(void);
void zookeeper_stop(struct peer_server *server);
/* With appendfsync always. Valkey, if it is installed instead. */
struct peer_server redis_start(void);
void redis_stop(struct peer_server *server);
#endif
