/* SPDX-License-Identifier: MIT */
/* How permits end by themselves: what the parts of the suite `ends` share. */
#ifndef ENDS_H
#define ENDS_H

#include <pthread.h>

#include "expiry.h"
#include "parts.h"
#include "rows.h"
#include "site.h"

typedef void ends_part(const struct form *form);

ends_part ends_shim;       /* the clock of the database can be stepped */
ends_part ends_expiry;     /* 1,000 holders that nobody renews */
ends_part ends_demand;     /* somebody who wants the unit */
ends_part ends_race;       /* a request on two semaphores, and one who needs each of them */
ends_part ends_crowd;      /* everything at once */
ends_part ends_steps;      /* the clock goes an hour forward and back */
ends_part ends_away;       /* no permitd for longer than every ttl */
ends_part ends_frozen;     /* no database for longer than every ttl */
ends_part ends_leader;     /* each permitd stopped in turn: the others sweep */
ends_part ends_owner_kill; /* SIGKILL of permitctl run */
#endif
