/* SPDX-License-Identifier: MIT */
/* What lists say about the owners of what is held. The routes of /v1/owners are in routes.h. */
#ifndef HTTP_OWNERS_H
#define HTTP_OWNERS_H

#include "http/exchange.h"

/*
 * Which of these requests are held by somebody who may not be alive: a heartbeat that is late or has lapsed, or a probe
 * that could not say "alive". The requests stand `stride` bytes apart; *ret_suspects has one per request, in the arena.
 * From a look's work.
 */
enum permit_status suspects_find(struct exchange *exchange, struct session *session, const struct request *requests,
                                 size_t count, size_t stride, const bool **ret_suspects) MUST_CHECK;
#endif
