/* SPDX-License-Identifier: MIT */
/* Ends of permits: expiry, races and owner death. Shared by the parts of the suite `ends`. */
#ifndef ENDS_H
#define ENDS_H

#include <pthread.h>

#include "expiry.h"
#include "fixture.h"
#include "rows.h"
#include "suite_parts.h"

typedef void ends_part(const struct part_options *options);

ends_part ends_shim;       /* the database's clock can be stepped */
ends_part ends_expiry;     /* 1,000 holders that do not renew */
ends_part ends_demand;     /* a client that wants the unit of a holder that does not renew */
ends_part ends_race;       /* a request on two semaphores, and a client that needs each of them */
ends_part ends_crowd;      /* all kinds of ends at once */
ends_part ends_steps;      /* the database's clock is set an hour forward and back */
ends_part ends_many_steps; /* it is set forward four times, and then by 4 s and back each second */
ends_part ends_away;       /* no permitd for longer than every ttl */
ends_part ends_frozen;     /* no database for longer than every ttl */
ends_part ends_leader;     /* each permitd is stopped in turn; the others expire requests */
ends_part ends_owner_kill; /* SIGKILL of permitctl run */

/* Deadlines count from so long after the grant (LEASE_MARGIN_US). */
enum { DUE_LATER_MS = 500 };
#endif
