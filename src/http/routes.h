/* SPDX-License-Identifier: MIT */
/* Which handler takes which method and path: the table of docs/protocol.md. */
#ifndef HTTP_ROUTES_H
#define HTTP_ROUTES_H

#include "http/exchange.h"

/*
 * The headers are read: how many bytes of a body are taken for the method and path. False: the answer refuses the host
 * that the request names, or the page that sent it (origin.h).
 */
bool routes_admit(struct exchange *exchange, size_t *ret_body_max) MUST_CHECK;
/* Finds the route, checks what all routes have in common (query, size and type of the body), calls its handler. */
bool routes_handle(struct exchange *exchange);

/* The handlers: exchange.h says what they return. */
bool request_acquire(struct exchange *exchange); /* requests.c */
bool request_release(struct exchange *exchange);
bool request_renew(struct exchange *exchange);
bool request_confirm(struct exchange *exchange);
bool request_force_release(struct exchange *exchange);
bool request_get(struct exchange *exchange);
bool request_list(struct exchange *exchange);
bool request_why(struct exchange *exchange);      /* why.c */
bool request_batch(struct exchange *exchange);    /* batch.c */
bool semaphore_put(struct exchange *exchange);    /* semaphores.c */
bool semaphore_labels(struct exchange *exchange); /* labels.c */
bool semaphore_retire(struct exchange *exchange); /* retire.c */
bool semaphore_pause(struct exchange *exchange);  /* semaphores.c */
bool semaphore_resume(struct exchange *exchange);
bool semaphore_get(struct exchange *exchange);
bool semaphore_list(struct exchange *exchange);
bool semaphore_holders(struct exchange *exchange);
bool semaphore_waiters(struct exchange *exchange);
bool semaphore_events(struct exchange *exchange);
bool semaphore_fence(struct exchange *exchange);
bool template_put(struct exchange *exchange); /* templates.c */
bool template_get(struct exchange *exchange);
bool template_list(struct exchange *exchange);
bool template_delete(struct exchange *exchange);
bool semaphore_slots(struct exchange *exchange); /* slots.c */
bool fence_bump(struct exchange *exchange);      /* fence.c */
bool owner_put(struct exchange *exchange);       /* owners.c */
bool owner_get(struct exchange *exchange);
bool owner_delete(struct exchange *exchange);
bool ops_health(struct exchange *exchange); /* ops.c */
bool ops_ready(struct exchange *exchange);
bool ops_metrics(struct exchange *exchange);
bool ops_openapi(struct exchange *exchange);
bool ops_doctor(struct exchange *exchange); /* doctor.c */
#endif
