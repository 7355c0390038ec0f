/* SPDX-License-Identifier: MIT */
/*
 * Writes answers as JSON directly into a buffer: the objects of docs/protocol.md. Uses no library and no tree.
 * Functions that write keys and owners get stored ones, and a viewer: they write only what it may see (namespaces.h).
 */
#ifndef API_JSON_OUT_H
#define API_JSON_OUT_H

#include "api/namespaces.h"
#include "base/buf.h"
#include "core/feed.h"
#include "core/lease_clock.h"
#include "core/request.h"
#include "core/template.h"
#include "engine/engine.h"
#include "store/query.h"

/* Writes a JSON string. Bytes that are not UTF-8 become U+FFFD. */
void write_text(struct buf *out, struct bytes text);
/* Writes "2026-11-21T09:14:31.123456Z" with its quotes. */
void write_time(struct buf *out, utc_us time);
/* Writes ,"name":"text" */
void write_member_text(struct buf *out, const char *name, struct bytes text);

/* An answer says this about the semaphores of a request: a value per permit. */
struct permit_facts {
    const struct bytes *names;
    const uint64_t *floors;   /* NULL: not written */
    const int64_t *available; /* NULL: not written */
};
/* Writes a request as POST, GET, DELETE and renew answer it, without its closing brace. */
void write_request_begin(struct buf *out, const struct viewer *viewer, const struct request *request,
                         const struct permit_facts *facts, const struct query_time *time);
/* Writes ,"metadata":{...} as the client has sent it, if there is any (data) and the viewer sees the key. */
void write_metadata(struct buf *out, const struct viewer *viewer, struct bytes external_id, struct bytes metadata);
/* Writes ,"overdue":... for a held request: true if it is due and its end is not committed. */
void write_overdue(struct buf *out, const struct request *request, const struct lease_clock *clock);
/* Writes ,"suspect":... for a held request: true if its owner may not be alive (owners.h). */
void write_suspect(struct buf *out, const struct request *request, bool suspect);
/* Writes a semaphore as the answer to a change of it, without its closing brace. */
void write_semaphore_begin(struct buf *out, const struct viewer *viewer, const struct semaphore *semaphore);
/* Like write_semaphore_begin, with the closing brace. */
void write_semaphore(struct buf *out, const struct viewer *viewer, const struct semaphore *semaphore);
/* Writes a semaphore as queries answer it, with its floor and the age of its first wait. */
void write_semaphore_row(struct buf *out, const struct viewer *viewer, const struct semaphore_row *row,
                         const struct query_time *time);
/* Writes an entry of /v1/availability. */
void write_availability(struct buf *out, const struct availability *row);
/* Writes an SQL account, without and with its closing brace. */
void write_sql_account_begin(struct buf *out, const struct sql_account *account);
void write_sql_account(struct buf *out, const struct sql_account *account);
/* Writes a template. */
void write_template(struct buf *out, const struct viewer *viewer, const struct template *template);
/* Writes an entry of /holders. */
void write_holder(struct buf *out, const struct viewer *viewer, const struct holder_row *holder,
                  const struct query_time *time, bool suspect);
/* Writes an entry of /slots. */
void write_slot(struct buf *out, const struct viewer *viewer, const struct slot_list_row *slot,
                const struct query_time *time);
/* Writes an entry of /events. */
void write_event(struct buf *out, const struct viewer *viewer, const struct event_row *event);
/* Writes an entry of /v1/feed with these permits of it. `epoch`: of its cursor. */
void write_feed_event(struct buf *out, const struct viewer *viewer, const struct feed_row *event, uint64_t epoch,
                      const struct feed_permit *permits, size_t count);
/* Writes an entry of /waiters. kept_until: as store_queries.kept_until found it; 0: a client asks for it. */
void write_waiter(struct buf *out, const struct viewer *viewer, const struct waiter_row *waiter, utc_us kept_until,
                  const struct query_time *time);
/* Writes ,"priority":... and the times and the server of a wait. */
void write_wait(struct buf *out, const struct request *request, utc_us kept_until, const struct query_time *time);
/* Writes ,"place":... and the requests before it. */
void write_position(struct buf *out, const struct viewer *viewer, const struct queue_position *position);
/* Writes a WAITING request. positions has one element per want; NULL: without its places. */
void write_waiting_begin(struct buf *out, const struct viewer *viewer, const struct request *request,
                         const struct queue_position *positions, utc_us kept_until, const struct query_time *time);
/* Writes ,"name":"key" and, if the viewer needs it, ,"namespace":"..."; nothing if he may not see the key. */
void write_member_key(struct buf *out, const struct viewer *viewer, const char *name, struct bytes stored);
/* Writes {"external_id":"..." and, if the viewer needs it, the namespace; {"hidden":true if he may not see the key. */
void write_key_begin(struct buf *out, const struct viewer *viewer, struct bytes stored);
/* Writes ,"owner":"..." if there is one and the viewer may see it. */
void write_owner(struct buf *out, const struct viewer *viewer, struct bytes stored);
/* Writes ,"name":true */
void write_member_bool(struct buf *out, const char *name, bool value);
/* Writes ,"name":7 */
void write_member_i64(struct buf *out, const char *name, int64_t number);
void write_member_u64(struct buf *out, const char *name, uint64_t number);
/* Writes ,"holders":[...]. */
void write_longest_holders(struct buf *out, const struct viewer *viewer, const struct front_holder *holders,
                           size_t count, const struct query_time *time);
/* Writes the slots that a want names: ,"slots":[...] or ,"any_of":[...], and ,"adjacent":true. */
void write_choice(struct buf *out, const struct want *want);
/* A semaphore that lacks the units or slots that a refused acquire requests, and what is in the way. */
struct blocking {
    const struct shortage *shortage;
    struct semaphore_front front; /* holders NULL: it could not be read */
    size_t ahead;                 /* requests that wait before this one, at any server */
};
/* Writes ,"blocking":[...]. */
void write_blocking(struct buf *out, const struct viewer *viewer, const struct blocking *blocking, size_t count,
                    const struct query_time *time);
#endif
