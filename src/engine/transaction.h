/* SPDX-License-Identifier: MIT */
/*
 * The one loop that tries a transaction, retries it and gives up. It runs operations together until they are decided,
 * or until they must be split, and leaves to its caller how. Users: batches and resolve (worker.c, resolve.c), calls
 * about owners (owners.c).
 */
#ifndef ENGINE_TRANSACTION_H
#define ENGINE_TRANSACTION_H

#include "base/base.h"
#include "engine/stage.h"
#include "permit/status.h"

struct transaction {
    /*
     * Answers the operations that are past their deadline, or were answered, with the status of the last try. Returns
     * how many are left.
     */
    size_t (*drop_late)(struct transaction *transaction, enum permit_status status);
    enum permit_status (*attempt)(struct transaction *transaction);
    /* Logs and counts a failed try, and rolls back. */
    void (*failed)(struct transaction *transaction, enum permit_status status);
    size_t count;         /* operations of this try; `attempt` sets it when it adds some */
    bool is_indivisible;  /* it cannot be split, so it is tried as a single operation is */
    bool waits_for_locks; /* a lock time-out is tried again until the deadlines; `attempt` may change it */
    bool was_too_long;    /* set: a try has lost the connection after LONG_TRY_MS; it may have been too large */
    bool gives_up_losses; /* a single operation that has lost the connection twice fails, because others wait for it */
};

/*
 * Tries until an attempt succeeds, no operation is left, or trying again does not help. PERMIT_OK: the first two. On
 * another status the caller splits the operations, so that only the one that causes the error fails; a single one it
 * fails or postpones.
 *
 * A conflict is tried 3 times together, then 10 times alone; a lost connection twice together, because the transaction
 * may be too large, then until the deadline; an unavailable database until the deadlines. Between two tries it sleeps
 * with jitter: about 2 to 16 ms after a conflict, up to 1 s while the database is unavailable.
 */
enum permit_status transaction_run(struct transaction *transaction) MUST_CHECK;

/*
 * The answer to an operation that failed with this status. P5: only a plan decides no_capacity. The outcome of an
 * operation that was sent with a COMMIT is unknown.
 */
enum permit_status transaction_answer(enum permit_status status, const struct stage *stage);
#endif
