/* SPDX-License-Identifier: MIT */
/* The body of PUT on a semaphore, which PUT on a template takes too (semaphores.c). */
#ifndef HTTP_SETTINGS_H
#define HTTP_SETTINGS_H

#include "http/exchange.h"

/* The body; the service's message says what is wrong. Its texts are in the arena. */
enum permit_status semaphore_read_settings(struct exchange *exchange, struct semaphore_change *ret_change) MUST_CHECK;
#endif
