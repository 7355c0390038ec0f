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

/* Raises the epoch as store->clock->advance_epoch does, and writes a row of semaphore_event for semaphore 0. */
enum permit_status epoch_advance(struct session *session, struct epoch_advance *advance) MUST_CHECK;
#endif
