/* SPDX-License-Identifier: MIT */
/* Shared by PUT semaphore and PUT template (semaphores.c). */
#ifndef API_SEMAPHORES_H
#define API_SEMAPHORES_H

#include "api/call.h"

/*
 * Reads the body of a template into *ret_change, whose texts are in the arena. On an error the service's message has
 * the reason.
 */
enum permit_status semaphore_read_template(struct exchange *exchange, struct semaphore_change *ret_change) MUST_CHECK;
/* Reads If-Match and If-None-Match. False: the exchange's answer is the refusal. */
bool semaphore_read_preconditions(struct exchange *exchange, struct semaphore_change *change);
/*
 * Checks that the caller may set this `feed` and `feed_url`, which becomes the stored one. False: the exchange's answer is
 * the refusal.
 */
bool semaphore_check_feed(struct exchange *exchange, struct semaphore_change *change) MUST_CHECK;
/* Takes what a PUT may make of the caller's quota `units`. False: the exchange's answer is the refusal. */
bool semaphore_take_units(struct exchange *exchange, const struct semaphore_change *change) MUST_CHECK;
#endif
