/* SPDX-License-Identifier: MIT */
/* Shared by the parts of the suite `waiting`. */
#ifndef WAITING_H
#define WAITING_H

#include "suite_parts.h"
#include "waits.h"

typedef void waiting_part(const struct part_options *options);

waiting_part waiting_crowd;   /* 10,000 clients on 10 units: order, and each is served once */
waiting_part waiting_latency; /* from a release to the grant, at one permitd and through another */
waiting_part waiting_wide;    /* backfill: a request for 5 units among requests for one */
waiting_part waiting_fifo;    /* the same under fifo */
waiting_part waiting_leave;   /* clients that disconnect */
waiting_part waiting_parked;  /* tens of thousands of clients that wait long */
waiting_part waiting_stop;    /* SIGTERM of permitd */

waiting_part waiting_killed;            /* SIGKILL of permitd */
waiting_part waiting_database;          /* SIGKILL of mariadbd */
waiting_part waiting_expiry;            /* a holder expires */
waiting_part waiting_changes;           /* capacity raised and lowered, pause, retirement, deletes */
waiting_part waiting_changes_elsewhere; /* the same through another permitd */
waiting_part waiting_together;          /* several semaphores, several permitd */
waiting_part waiting_pieces;            /* the same key in two connections, and in several shorter waits */

waiting_part waiting_turns;         /* a crowd takes units by turns at one permitd, others wait at another */
waiting_part waiting_kept_killed;   /* SIGKILL of a permitd; its waiters come again at another */
waiting_part waiting_kept_stopped;  /* SIGTERM */
waiting_part waiting_kept_frozen;   /* SIGSTOP until it counts as dead; its waiters leave it */
waiting_part waiting_kept_thawed;   /* the same, but they stay */
waiting_part waiting_twice;         /* the same keys at two permitd */
waiting_part waiting_priorities;    /* priorities at two permitd */
waiting_part waiting_changes_queue; /* shrink, pause, retirement with waiters at two permitd */
#endif
