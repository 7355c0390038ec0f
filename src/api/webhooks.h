/* SPDX-License-Identifier: MIT */
/* Webhooks in the API: the setting feed_url, their events, and what operators are told of them. */
#ifndef API_WEBHOOKS_H
#define API_WEBHOOKS_H

#include "engine/engine.h"
#include "http/exchange.h"

struct doctor_report;
struct service;

/*
 * Checks the feed_url of a change, if it has one, and makes it the stored one, with the namespace of the caller. False: the
 * exchange's answer is the refusal.
 */
bool webhook_enter(struct exchange *exchange, struct semaphore_change *change) MUST_CHECK;
/* A webhook_write, for the task. */
void webhook_write_event(struct buf *out, struct bytes stored_url, const struct feed_row *event, uint64_t epoch,
                         const struct feed_permit *permits, size_t count);
/* Writes the metrics of each URL. */
void webhooks_write_metrics(struct buf *out, struct store *store, struct arena *arena);
/* Adds a finding: which URLs are behind or fail. */
enum permit_status webhooks_find(const struct service *service, struct store *store, struct doctor_report *report);
#endif
