/* SPDX-License-Identifier: MIT */
/* What PUT on a semaphore and PUT on a template have in common (semaphores.c). */
#ifndef HTTP_SETTINGS_H
#define HTTP_SETTINGS_H

#include "http/exchange.h"

/* The body; the service's message says what is wrong. Its texts are in the arena. */
enum permit_status semaphore_read_settings(struct exchange *exchange, struct semaphore_change *ret_change) MUST_CHECK;
/* If-Match and If-None-Match. False: the answer says what is wrong. */
bool take_preconditions(struct exchange *exchange, struct semaphore_change *change);
#endif
