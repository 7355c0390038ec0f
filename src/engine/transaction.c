/* SPDX-License-Identifier: MIT */
#include "engine/transaction.h"

#include <time.h>

#include "base/clock.h"
#include "engine/state.h"

enum {
    TRIES_TOGETHER = 3,
    TRIES_ALONE = 10,
    LOSSES_TOGETHER = 2,
    LONG_TRY_MS = 3000, /* a try that lost the connection after this time counts as LOSSES_TOGETHER */
};

static void back_off(enum permit_status status, unsigned tries)
{
    bool conflict = status == PERMIT_CONFLICT || status == PERMIT_LOCK_TIMEOUT;
    int64_t doubled = (int64_t)1 << (tries < 6 ? tries : 6);
    int64_t ms = jittered_ms(conflict ? min_i64(16, doubled) : min_i64(1000, 20 * doubled));
    struct timespec time = {.tv_sec = ms / MS_PER_SECOND, .tv_nsec = ms % MS_PER_SECOND * 1000000};
    nanosleep(&time, NULL);
}

/* Returns true if another try may help. `losses`: tries that have lost the connection. */
static bool retries(const struct transaction *transaction, enum permit_status status, bool alone, unsigned tries,
                    unsigned losses)
{
    switch (status) {
    case PERMIT_DATABASE_LOST: return losses < LOSSES_TOGETHER || (alone && !transaction->gives_up_losses);
    case PERMIT_DATABASE_UNAVAILABLE: return true;
    case PERMIT_LOCK_TIMEOUT: return transaction->waits_for_locks;
    case PERMIT_CONFLICT: return tries < (alone ? TRIES_ALONE : TRIES_TOGETHER);
    default: return false;
    }
}

enum permit_status transaction_run(struct transaction *transaction)
{
    enum permit_status status = PERMIT_BUSY;
    unsigned losses = 0;
    for (unsigned tries = 1;; tries++) {
        transaction->count = transaction->drop_late(transaction, status);
        if (transaction->count == 0)
            return PERMIT_OK;
        mono_us began = clock_mono();
        status = transaction->attempt(transaction);
        if (status == PERMIT_OK)
            return status;
        bool is_long = clock_mono() - began >= LONG_TRY_MS * US_PER_MS;
        if (status == PERMIT_DATABASE_LOST) {
            losses += is_long ? LOSSES_TOGETHER : 1;
            transaction->was_too_long |= is_long;
        }
        transaction->failed(transaction, status);
        if (!retries(transaction, status, transaction->count == 1 || transaction->is_indivisible, tries, losses))
            return status;
        back_off(status, tries);
    }
}

enum permit_status transaction_answer(enum permit_status status, const struct stage *stage)
{
    if (stage_is_sent(stage))
        return PERMIT_OUTCOME_UNKNOWN;
    if (status == PERMIT_DATABASE_LOST || status == PERMIT_DATABASE_FULL)
        return PERMIT_DATABASE_UNAVAILABLE;
    if (status == PERMIT_CONFLICT || status == PERMIT_LOCK_TIMEOUT || status == PERMIT_NO_MEMORY)
        return PERMIT_BUSY;
    return status;
}
