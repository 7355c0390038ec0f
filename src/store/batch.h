/* SPDX-License-Identifier: MIT */
/*
 * The two packets of a batch as text (batch_sql.c), and reading what the first one brings (batch_view.c). Only
 * mysql_store.c calls these.
 */
#ifndef STORE_BATCH_H
#define STORE_BATCH_H

#include "store/session.h"
#include "store/store.h"

/*
 * Step 1: BEGIN, locks, reads. `identity`: an SQL expression (epoch.h). The statements of named slots depend on the
 * order of the names: batch_sort_named first.
 */
void batch_lock_sql(const struct lock_set *set, const char *identity, struct buf *sql);
/* Sends it and reads all results. On failure the packet is finished, the transaction may be open. */
enum permit_status batch_read_view(struct session *session, const struct lock_set *set, const char *identity,
                                   struct buf *sql, struct arena *arena, struct view *ret_view) MUST_CHECK;
/* batch_named.c: the named slots, each key once, so that there are few statements; false: no memory. */
bool batch_sort_named(struct lock_set *set, struct arena *arena) MUST_CHECK;
void batch_named_sql(const struct lock_set *set, struct buf *sql);
/* Their results, into the view whose semaphores were read. */
enum permit_status batch_read_named(struct session *session, const struct lock_set *set, struct arena *arena,
                                    struct view *view) MUST_CHECK;
/* Still under the locks: the due holders of semaphores that are short; adds to view->requests and next_due. */
enum permit_status batch_read_due(struct session *session, const struct shortfall *shortfalls, size_t count,
                                  struct buf *sql, struct arena *arena, struct view *view) MUST_CHECK;

/* Of these tokens the ids of their requests. */
void batch_tokens_sql(uint64_t semaphore_id, const uint64_t *tokens, size_t count, struct buf *sql);

/* Step 3: all changes, guarded, and COMMIT. */
void batch_apply_sql(const struct changes *changes, struct arena *arena, struct buf *sql);
#endif
