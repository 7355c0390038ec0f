/* SPDX-License-Identifier: MIT */
/* Routing: the table of methods, paths and handlers in docs/protocol.md. */
#ifndef API_ROUTES_H
#define API_ROUTES_H

#include <limits.h>
#include <stdio.h>

#include "http/exchange.h"

/*
 * Costs of routes for the quota `rate`, in operations that take about as long. LATER: the handler counts, when it knows
 * how many operations a batch has, or what is read; a call that does not get there counts as ONE.
 */
enum { COST_NONE, COST_ONE, COST_LIST = 20, COST_LABELS = 50, COST_LATER = INT_MAX };

/*
 * Called when the headers are complete. Sets *ret_body_max to the body size accepted for the method and path. False:
 * the exchange's answer refuses the host that the request names or the page that sent it (origin.h), or the credential
 * (access.h).
 */
bool routes_admit(struct exchange *exchange, size_t *ret_body_max) MUST_CHECK;
/* Finds the route, checks query parameters, size and type of the body, and calls the handler. */
bool routes_handle(struct exchange *exchange);

/*
 * Prints a line for each route: method, path, and the rights of which a client needs one; none: the route is open. For
 * the tests, which try all rights on all routes.
 */
void routes_print(FILE *to);

/* The handlers, beside list_answer (lists.h). exchange.h documents their result. */
bool request_acquire(struct exchange *exchange); /* requests.c */
bool request_release(struct exchange *exchange);
bool request_renew(struct exchange *exchange);
bool request_shrink(struct exchange *exchange); /* changes.c */
bool request_grow(struct exchange *exchange);
bool request_exchange(struct exchange *exchange);
bool request_confirm(struct exchange *exchange);
bool request_confirm_all(struct exchange *exchange);
bool request_force_release(struct exchange *exchange);
bool request_get(struct exchange *exchange);
bool request_why(struct exchange *exchange);      /* why.c */
bool request_batch(struct exchange *exchange);    /* batch.c */
bool semaphore_put(struct exchange *exchange);    /* semaphores.c */
bool semaphore_labels(struct exchange *exchange); /* labels.c */
bool semaphore_retire(struct exchange *exchange); /* retire.c */
bool semaphore_pause(struct exchange *exchange);  /* semaphores.c */
bool semaphore_resume(struct exchange *exchange);
bool semaphore_get(struct exchange *exchange);
bool semaphore_fence(struct exchange *exchange);
bool semaphore_report(struct exchange *exchange); /* report.c */
bool sql_account_put(struct exchange *exchange);  /* sql_accounts.c */
bool sql_account_get(struct exchange *exchange);
bool sql_account_delete(struct exchange *exchange);
bool availability_get(struct exchange *exchange); /* availability.c */
bool template_put(struct exchange *exchange);     /* templates.c */
bool template_get(struct exchange *exchange);
bool template_delete(struct exchange *exchange);
bool feed_get(struct exchange *exchange);   /* feed.c */
bool fence_bump(struct exchange *exchange); /* fence.c */
bool owner_put(struct exchange *exchange);  /* owners.c */
bool owner_get(struct exchange *exchange);
bool owner_delete(struct exchange *exchange);
bool access_whoami(struct exchange *exchange); /* whoami.c */
bool ops_health(struct exchange *exchange);    /* health.c */
bool ops_ready(struct exchange *exchange);
bool ops_metrics(struct exchange *exchange);
bool ops_openapi(struct exchange *exchange);
bool ops_doctor(struct exchange *exchange);   /* doctor.c */
bool ops_locks(struct exchange *exchange);    /* locks.c */
bool webhooks_get(struct exchange *exchange); /* webhooks.c */
#endif
