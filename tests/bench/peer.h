/* SPDX-License-Identifier: MIT */
/*
 * What the load programs of the peers share: options, connections in one epoll, phases and counters. N clients in one
 * thread, each with a connection, acquire and release by turns, one operation in flight each, as loadgen does with
 * permitd. A program gives the four calls; its protocol is its own.
 *
 *     NAME --server WHERE [--clients N] [--seconds S] [--warmup S] [--watch PID,PID]
 */
#ifndef PEER_H
#define PEER_H

#include <stdbool.h>

struct peer_calls {
    /* Opens the connection of this client and returns its socket. */
    int (*open)(unsigned number, const char *server);
    /* Send one operation; its answer is reported with peer_answered. */
    void (*acquire)(unsigned number);
    void (*release)(unsigned number);
    /* Reads what has arrived. */
    void (*readable)(unsigned number);
};

enum { PEER_CLIENTS_MAX = 1024 };

/* The main function of a load program. Prints what measure.h says. */
int peer_main(int argc, char **argv, const struct peer_calls *calls);
/* The operation of this client is answered; not granted: it counts as failed. Sends its next one. */
void peer_answered(unsigned number, bool granted);
/* Ends the process. */
_Noreturn void peer_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
#endif
