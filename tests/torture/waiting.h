/* SPDX-License-Identifier: MIT */
/* What the parts of the suite `waiting` share. */
#ifndef WAITING_H
#define WAITING_H

#include "parts.h"
#include "waits.h"

typedef void waiting_part(const struct form *form);

waiting_part waiting_crowd;   /* 10,000 on 10 units: order, everybody once */
waiting_part waiting_latency; /* from a release to the grant, in one permitd and through another */
waiting_part waiting_wide;    /* backfill: 5 units among those who want one */
waiting_part waiting_fifo;    /* the same where nobody passes */
waiting_part waiting_leave;   /* clients that vanish */
waiting_part waiting_parked;  /* tens of thousands who wait for long */
waiting_part waiting_stop;    /* SIGTERM */

waiting_part waiting_killed;            /* SIGKILL of permitd */
waiting_part waiting_database;          /* SIGKILL of mariadbd */
waiting_part waiting_expiry;            /* a holder's time is over */
waiting_part waiting_changes;           /* growth, shrink, pause, retirement, deletes */
waiting_part waiting_changes_elsewhere; /* the same by another permitd */
waiting_part waiting_together;          /* several semaphores, several permitd */
waiting_part waiting_pieces;            /* the same key twice, in pieces */
#endif
