/* SPDX-License-Identifier: MIT */
/*
 * Procedures: the task that installs the procedures of shops, some seconds after the start, and again when one is
 * missing, as after a restore. What keeps it from that is logged once; it tries on, because an operator may grant a
 * right at any time. It also reads the metrics of open transactions, whose undo log any shop can make grow.
 */
#include "store/procedures.h"

#include <stdio.h>

#include "base/log.h"
#include "engine/state.h"
#include "store/doctor.h"
#include "tasks/tasks.h"

#define SOON_US   (1LL * US_PER_SECOND)
#define PAUSE_US  (10LL * US_PER_SECOND)
#define LOCKED_US (60LL * US_PER_SECOND) /* a try stalls callers for up to 1 s behind the open transaction of another */

/* Logs what was done, and an obstacle when it is new. */
static void log_result(const struct procedures_result *result, enum procedures_state before, const struct buf *message)
{
    char count[24];
    snprintf(count, sizeof count, "%u", result->installed);
    if (result->installed)
        log_write(LOG_INFO, "procedures installed", "count", count, NULL);
    if (result->state == before)
        return;
    if (result->state == PROCEDURES_DENIED)
        log_write(LOG_WARN, "no right to create the procedures for sales in SQL; see permitctl doctor", "error",
                  buf_text(message), NULL);
    if (result->state == PROCEDURES_OTHER)
        log_write(LOG_WARN, "a procedure has another text than that of this permitd; see permitctl doctor", NULL);
}

void procedures_run(struct task *task)
{
    struct procedures_result result = {.state = PROCEDURES_EARLY};
    struct buf message;
    buf_init(&message, 4 * STORE_MESSAGE_SIZE);
    while (!task_stopping(task)) {
        struct procedures_result now = {.state = result.state};
        buf_clear(&message);
        enum permit_status status = task_connect(task);
        if (status == PERMIT_OK)
            status = task->store->schema->procedures(task->store, &now, &message);
        struct doctor_undo undo = {.history = -1, .oldest_s = -1};
        if (status == PERMIT_OK)
            status = task->store->queries->undo(task->store, &undo);
        atomic_store(&task->engine->metrics.history, undo.history);
        atomic_store(&task->engine->metrics.oldest_transaction_s, undo.oldest_s);
        (void)task_record_status(task, status);
        if (status == PERMIT_OK)
            log_result(&now, result.state, &message);
        if (status == PERMIT_OK && now.state != PROCEDURES_EARLY)
            result = now;
        bool soon = status != PERMIT_OK || now.state == PROCEDURES_EARLY;
        task_sleep(task, status == PERMIT_LOCK_TIMEOUT ? LOCKED_US : soon ? SOON_US : PAUSE_US);
    }
    buf_release(&message);
}
