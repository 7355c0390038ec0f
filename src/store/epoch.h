/* SPDX-License-Identifier: MIT */
/*
 * The epoch (docs/design.md, "Fencing"): tokens are at least epoch << 10. It rises when the server is another one than
 * before, when a semaphore's tokens went back, or when an operator says so, so that what is granted afterwards is above
 * all that a lost tail may have handed out.
 */
#ifndef STORE_EPOCH_H
#define STORE_EPOCH_H

#include "base/buf.h"
#include "store/session.h"
#include "store/store.h"

/*
 * Appends an SQL expression whose value is the identity of the server that answers: with Galera or Group Replication
 * that of the cluster, so that a change of node is no failover.
 */
enum permit_status epoch_identity_sql(struct session *session, struct buf *out) MUST_CHECK;

/*
 * store_raise_epoch on a session. `why` goes into the record (`semaphore_event` of semaphore 0). *ret_epoch, which may
 * be NULL: the epoch as it is then, raised or not.
 */
enum permit_status epoch_raise(struct session *session, enum epoch_cause cause, uint64_t seen, int64_t hold_ms,
                               struct bytes why, uint64_t *ret_epoch) MUST_CHECK;
/*
 * The same for an operator, who may stop all grants for hold_ms each time. So the epoch is raised again only hold_ms
 * after the last hold is over: before, PERMIT_TOO_MANY, with *ret_wait_ms, and *ret_epoch as it is. A server that is
 * another one than `cluster` knows raises it in any case.
 */
enum permit_status epoch_bump(struct session *session, int64_t hold_ms, struct bytes why, uint64_t *ret_epoch,
                              int64_t *ret_wait_ms) MUST_CHECK;
#endif
