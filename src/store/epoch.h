/* SPDX-License-Identifier: MIT */
/*
 * The epoch: every new token is at least epoch << 10. The epoch rises when the server has changed, when a semaphore's
 * tokens went back, or when an operator orders it. So tokens issued afterwards are above all tokens in transactions
 * that a failover or a restore may have lost.
 */
#ifndef STORE_EPOCH_H
#define STORE_EPOCH_H

#include "base/buf.h"
#include "store/mysql_session.h"
#include "store/store.h"

/*
 * Appends an SQL expression for the identity of the server that the session is connected to. With Galera or group
 * replication it is the identity of the cluster, so that a change of node is no failover.
 */
enum permit_status epoch_identity_sql(struct session *session, struct buf *out) MUST_CHECK;

/*
 * Raises the epoch as store_raise_epoch says. `why` is written into `semaphore_event` of semaphore 0. ret_epoch may be
 * NULL; *ret_epoch is the epoch after the call, raised or not.
 */
enum permit_status epoch_raise(struct session *session, enum epoch_cause cause, uint64_t seen, int64_t hold_ms,
                               struct bytes why, uint64_t *ret_epoch) MUST_CHECK;
/*
 * Raises the epoch for an operator. Each raise stops all grants for hold_ms, so the next one is accepted only hold_ms
 * after the last hold has ended. Before that the call returns PERMIT_TOO_MANY, with the time left in *ret_wait_ms and
 * the unchanged *ret_epoch. The limit does not apply if the server's identity differs from the one in `cluster`.
 */
enum permit_status epoch_bump(struct session *session, int64_t hold_ms, struct bytes why, uint64_t *ret_epoch,
                              int64_t *ret_wait_ms) MUST_CHECK;
#endif
