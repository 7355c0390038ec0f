/* SPDX-License-Identifier: MIT */
/*
 * A session of the database in memory: its calls, their failures, and the remains of a lost connection. For
 * fake_store.c and fake_batch.c.
 */
#ifndef SIM_FAKE_SESSION_H
#define SIM_FAKE_SESSION_H

#include "checked_store.h"
#include "database.h"
#include "fake_store.h"

enum { SESSION_TIME_OUT_US = 7000000 }; /* until a session gives up a statement */

struct zombie;

struct fake_store {
    struct store store;
    struct checked_store checked;
    struct list node; /* in the list of all sessions */
    int process;
    bool connected;
    uint64_t start; /* database.start when it connected */
    struct transaction *transaction;
    struct zombie *left; /* of the previous connection, if the server may still have it */
    uint64_t call;       /* number of its last call */
    mono_us prepared_at; /* of the batch that is being written */
    char message[STORE_MESSAGE_SIZE];
};

static inline struct fake_store *fake_of(struct store *store)
{
    return CONTAINER_OF(store, struct fake_store, store);
}

/* The way to the server and the way back. Each can lose the connection. */
enum permit_status call_enter(struct fake_store *fake);
enum permit_status call_leave(struct fake_store *fake);
/* Returns true if the call fails in this way, at random or because it is the chosen call. */
bool call_fails(const struct fake_store *fake, enum fault_kind kind, unsigned once_in);
/* An error of the server in a transaction: 1205, or 1213, which has rolled it back. */
enum permit_status call_random_error(struct fake_store *fake);
/* True while the server knows the session. */
bool call_reaches(const struct fake_store *fake);
/* Loses the connection. `commits`: its COMMIT was sent and will run. Returns PERMIT_DATABASE_LOST. */
enum permit_status call_lose(struct fake_store *fake, bool commits);
/* Sets the message and returns the status. */
enum permit_status call_report(struct fake_store *fake, enum permit_status status, const char *message);
/* The duration of a flush; and the flush of the commit `lsn`, followed by the answer. */
int64_t call_flush_us(void);
enum permit_status call_flush(struct fake_store *fake, uint64_t lsn);

/* Methods of the store: those of a session, those of a batch, and the part of resolve that reads templates. */
enum permit_status fake_session_reconnect(struct store *store);
enum permit_status fake_session_rollback(struct store *store);
struct fake_store *fake_session_open(void);
void fake_session_free(struct fake_store *fake);
void fake_session_break_off(struct fake_store *fake, bool commits);
enum permit_status fake_batch_resolve(struct store *store, struct resolve *what, struct arena *arena);
enum permit_status fake_batch_await(struct store *store, uint64_t semaphore_id);
enum permit_status fake_batch_lock(struct store *store, const struct lock_set *set, struct arena *arena,
                                   struct view *ret_view);
enum permit_status fake_batch_read_due(struct store *store, const struct shortfall *shortfalls, size_t count,
                                       struct arena *arena, struct view *view);
enum permit_status fake_batch_read_seats(struct store *store, uint64_t semaphore_id, struct arena *arena,
                                         struct seats *ret_seats);
enum permit_status fake_batch_read_glimpses(struct store *store, const uint64_t *ids, size_t count, utc_us aged,
                                            struct arena *arena, struct view *view) MUST_CHECK;
enum permit_status fake_batch_lock_requests(struct store *store, const uint64_t *ids, size_t count, struct view *view);
enum permit_status fake_batch_read_waiters(struct store *store, const struct queue_read *reads,
                                           const struct slots_wanted *slots, size_t count, struct arena *arena,
                                           struct view *view);
enum permit_status fake_batch_commit_if_unchanged(struct store *store, const struct changes *changes,
                                                  const struct assumed *assumed, enum mismatch *ret_mismatch);
enum permit_status fake_batch_prepare(struct store *store, const struct changes *changes,
                                      const struct assumed *assumed);
enum permit_status fake_batch_commit_changes(struct store *store, const struct changes *changes);
enum permit_status fake_templates_match(struct fake_store *fake, struct resolve_name *names, size_t count,
                                        struct arena *arena);
/* BEGIN; and COMMIT of all writes of the transaction, with its possible failures. */
void fake_batch_begin(struct fake_store *fake);
enum permit_status fake_batch_commit(struct fake_store *fake);
uint64_t fake_batch_floor_of(const struct db_semaphore *semaphore);
/* Copies the row as queries read it, with its permits, and with its wants if it waits. */
void fake_batch_copy_request(const struct request_row *row, struct arena *arena, struct request *ret_request);
/* The most waiters that a read of a queue returns without one beyond; at most QUEUE_READ_MAX. A deeper read
   returns as many times more as fake_queue_read_max says. */
extern size_t fake_queue_read_max;
/* Held requests with a deadline, sorted by it: of one semaphore, or (0) of all and those that wait. */
size_t fake_batch_sort_due(uint64_t semaphore_id, struct arena *arena, struct db_key ***ret_keys);
#endif
