/* SPDX-License-Identifier: MIT */
/*
 * The packets of a batch: the text of the first one (lock and read) and of the last one (write and commit), and the
 * readers of the results. For the files of store/batch_*.c and mysql_store.c. Each packet is one round trip; only batch_read_due,
 * batch_lock_requests, batch_read_waiters and batch_read_glimpses send others between them. All functions that append
 * SQL set sql->broken on failure.
 */
#ifndef STORE_BATCH_H
#define STORE_BATCH_H

#include "store/mysql_session.h"
#include "store/store.h"
#include "store/tables.h"

/* Appends BEGIN and the lock of one semaphore; a lock packet that goes on follows. */
void batch_await_sql(uint64_t semaphore_id, struct buf *sql);
/*
 * Appends the lock packet: BEGIN (unless set->lock_held), locks, reads. `identity` is an SQL expression
 * (epoch_identity_sql). The statements for specific slots depend on the order of the names: call batch_sort_named
 * before.
 */
void batch_lock_sql(const struct lock_set *set, const char *identity, struct buf *sql);
/*
 * The parts of queues that were read with the locks (lock_set.waiters_ahead): valid until the transaction ends, in the
 * arena of the lock packet.
 */
struct queues_ahead {
    const uint64_t *servers; /* living ones; NULL: nothing was read */
    size_t server_count;
    struct queue_ahead *queues;
    size_t count;
};

/*
 * Sends the lock packet and reads its results. On failure the packet is finished, but the transaction may be open.
 */
enum permit_status batch_read_view(struct session *session, const struct lock_set *set, const char *identity,
                                   struct buf *sql, struct arena *arena, struct queues_ahead *ret_ahead,
                                   struct view *ret_view) MUST_CHECK;
/* Appends the statements that read ahead, and reads their results, which the session steps to. */
void batch_ahead_sql(const struct lock_set *set, struct buf *sql);
enum permit_status batch_read_ahead(struct session *session, const struct lock_set *set, struct arena *arena,
                                    struct queues_ahead *ret_ahead) MUST_CHECK;
/*
 * Sorts the names of specific slots of each semaphore and removes duplicates, so that few statements suffice. Replaces
 * set->slots_wanted by a copy in the arena. Returns false if memory runs out.
 */
bool batch_sort_named(struct lock_set *set, struct arena *arena) MUST_CHECK;
/* Appends the statements that read specific slots. The names are sorted. */
void batch_named_sql(const struct lock_set *set, struct buf *sql);
/* Reads the results of these statements into view->named_slots. The semaphores of the view are already read. */
enum permit_status batch_read_named(struct session *session, const struct lock_set *set, struct arena *arena,
                                    struct view *view) MUST_CHECK;
/* Reads the due holders of semaphores that lack units, as batch->read_due says. */
enum permit_status batch_read_due(struct session *session, const struct shortfall *shortfalls, size_t count,
                                  struct arena *arena, struct view *view) MUST_CHECK;

/* The requests with a key of the batch that it has locked. */
struct locked_rows {
    uint64_t *ids; /* ascending */
    size_t count;
};
/* Appends the statement that locks them, and reads its result. */
void batch_lock_keys_sql(const struct lock_set *set, struct buf *sql);
enum permit_status batch_read_locked(struct session *session, size_t key_count, struct arena *arena,
                                     struct locked_rows *ret_rows) MUST_CHECK;
/* Sets `lock` of all requests of the view, which have keys of the batch. */
void batch_set_locked(struct view *view, const struct locked_rows *rows);
/* Reads the errands of the locked requests of the view: sets `bucket`. */
enum permit_status batch_read_errands(struct session *session, struct view *view) MUST_CHECK;
/* Locks rows of requests, as batch->lock_requests says. */
enum permit_status batch_lock_requests(struct session *session, const uint64_t *ids, size_t count,
                                       struct view *view) MUST_CHECK;

/*
 * Reads the slots that the set names or wants free, once more, into the semaphores of the view, whose free_slots and
 * named_slots are empty. At least one semaphore; its names are sorted. `sql` is scratch.
 */
enum permit_status batch_read_slots(struct session *session, const struct lock_set *set, struct buf *sql,
                                    struct arena *arena, struct view *view) MUST_CHECK;
/* How, and into what, the batch reads queues. */
struct batch_reading {
    struct session *session;
    struct buf *sql; /* scratch */
    struct arena *arena;
    struct view *view;
};

/* Reads parts of queues, as batch->read_waiters says; takes what was read ahead, and drops it. */
enum permit_status batch_read_waiters(const struct batch_reading *reading, struct queues_ahead *ahead,
                                      const struct queue_read *reads, const struct slots_wanted *slots,
                                      size_t count) MUST_CHECK;

/* The columns of a seat in a SELECT, behind a prefix such as "l.", and their values in a row. */
#define BATCH_SEAT_COLUMNS(of) of "section," of "seat_row," of "seat," of "seat_rank," of "tags"
struct row_reader;
void batch_row_seat(struct row_reader *row, struct seat *ret_seat);
/* Reads the seats and labels of a semaphore, as batch->read_seats says. */
enum permit_status batch_read_seats(struct session *session, uint64_t semaphore_id, struct arena *arena,
                                    struct seats *ret_seats) MUST_CHECK;
struct batch_guard;
/* Appends the statements that write the seats that change. */
void batch_seats_sql(const struct changes *changes, struct batch_guard *guard, struct buf *sql);
/* Appends the statement that writes the events. */
void batch_feed_sql(const struct changes *changes, struct batch_guard *guard, struct buf *sql);

/* Reads semaphores that are not locked, as batch->read_glimpses says. */
enum permit_status batch_read_glimpses(const struct batch_reading *reading, const uint64_t *ids, size_t count,
                                       utc_us aged) MUST_CHECK;

/* Appends the statement that locks rows of requests, ascending by id. `how`: "SKIP LOCKED", or "NOWAIT;". */
void batch_lock_requests_sql(const uint64_t *ids, size_t count, const char *how, struct buf *sql);
/* Appends a SELECT of the request ids of these tokens. */
void batch_tokens_sql(uint64_t semaphore_id, const uint64_t *tokens, size_t count, struct buf *sql);

/*
 * Appends the statements that write all changes, with their guards. COMMIT comes after them. Scratch memory comes from
 * the arena. Returns true if there are requests that change and are not locked: behind the first statement, which writes
 * the semaphores, they are locked without waiting.
 */
bool batch_changes_sql(const struct changes *changes, bool is_mariadb, struct arena *arena, struct buf *sql);
/*
 * Appends the last guard of a batch in one packet: it fails unless what is assumed is true. `server` is the value that
 * epoch_identity_sql has at this server.
 */
void batch_assumed_sql(const struct assumed *assumed, const char *server, struct buf *sql);
#endif
