/* SPDX-License-Identifier: MIT */
/* Answers as JSON, written straight into a buffer: the objects of docs/protocol.md. No library, no tree. */
#ifndef HTTP_WRITE_H
#define HTTP_WRITE_H

#include "base/buf.h"
#include "core/request.h"
#include "core/served_time.h"
#include "core/template.h"
#include "engine/engine.h"
#include "store/history.h"
#include "store/slot_list.h"

/* A JSON string; what is not UTF-8 becomes U+FFFD. */
void write_text(struct buf *out, struct bytes text);
/* "2026-11-21T09:14:31.123456Z" with its quotes. */
void write_time(struct buf *out, utc_us time);
/* ,"name":"text" */
void write_member_text(struct buf *out, const char *name, struct bytes text);

/*
 * A request as POST, GET, DELETE and renew answer it, without its closing brace. names and floors: one per permit;
 * floors may be NULL (then they are left out).
 */
void write_request_begin(struct buf *out, const struct request *request, const struct bytes *names,
                         const uint64_t *floors, const struct served_clock *clock, utc_us now);
/* ,"overdue":... of a held one: due, and not yet ended. */
void write_overdue(struct buf *out, const struct request *request, const struct served_clock *clock, utc_us now);
/* ,"suspect":... of a held one: its owner may not be alive (owners.h). */
void write_suspect(struct buf *out, const struct request *request, bool suspect);
/* A semaphore, without its closing brace. floor 0: left out. */
void write_semaphore_begin(struct buf *out, const struct semaphore *semaphore, uint64_t floor, struct waiting waiting);
/* The same, whole. */
void write_semaphore(struct buf *out, const struct semaphore *semaphore, uint64_t floor, struct waiting waiting);
/* A template, whole. */
void write_template(struct buf *out, const struct template *template);
/* An entry of /holders, whole. */
void write_holder(struct buf *out, const struct holder_row *holder, const struct query_time *time, bool suspect);
/* An entry of /slots, whole. */
void write_slot(struct buf *out, const struct slot_list_row *slot, const struct query_time *time);
/* An entry of /events, whole. */
void write_event(struct buf *out, const struct event_row *event);
/* An entry of /waiters, whole; now: this machine's clock. */
void write_waiter(struct buf *out, const struct waiter_row *waiter, utc_us now);
/* ,"since":... and how long a waiter has waited and will wait; now: this machine's clock. */
void write_wait(struct buf *out, const struct waiter_row *waiter, utc_us now);
/* ,"name":["key",...] */
void write_keys(struct buf *out, const char *name, const struct bytes *keys, size_t count);
/* ,"name":true */
void write_member_bool(struct buf *out, const char *name, bool value);
/* ,"name":7 */
void write_member_i64(struct buf *out, const char *name, int64_t number);
/* ,"holders":[...] ; now: the database's clock. */
void write_longest_holders(struct buf *out, const struct blocking_holder *holders, size_t count, utc_us now);
/* ,"slots":[...] or ,"any_of":[...] and ,"adjacent":true: what it asked for beside a count. */
void write_choice(struct buf *out, const struct want *want);
/* ,"blocking":[...] ; now: the database's clock; clock: for those that have `taken`. */
void write_blocking(struct buf *out, const struct blocking *blocking, size_t count, const struct served_clock *clock,
                    utc_us now);
#endif
