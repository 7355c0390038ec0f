/* SPDX-License-Identifier: MIT */
/* The loop that tries, retries and gives up, on a transaction that fails by a script. */
#include <criterion/criterion.h>

#include "base/base.h"
#include "engine/transaction.h"

enum { FOREVER = 1000 };

struct script {
    struct transaction transaction;
    enum permit_status status; /* of the failing tries */
    unsigned failing;          /* the first tries, which fail */
    unsigned late_after;       /* all operations are late after this number of tries */
    size_t count;              /* operations */
    unsigned tries, failures;
    enum permit_status late_status; /* with which drop_late answered the operations */
};

static size_t drop_late(struct transaction *transaction, enum permit_status status)
{
    struct script *script = CONTAINER_OF(transaction, struct script, transaction);
    if (script->tries < script->late_after)
        return script->count;
    script->late_status = status;
    return 0;
}

static enum permit_status attempt(struct transaction *transaction)
{
    struct script *script = CONTAINER_OF(transaction, struct script, transaction);
    return script->tries++ < script->failing ? script->status : PERMIT_OK;
}

static void failed(struct transaction *transaction, enum permit_status status)
{
    struct script *script = CONTAINER_OF(transaction, struct script, transaction);
    cr_assert_eq(status, script->status);
    script->failures++;
}

static struct script script_of(enum permit_status status, unsigned failing, size_t count)
{
    return (struct script){
        .transaction = {.drop_late = drop_late, .attempt = attempt, .failed = failed},
        .status = status,
        .failing = failing,
        .late_after = FOREVER,
        .count = count,
    };
}

static void runs(struct script *script, enum permit_status result, unsigned tries)
{
    enum permit_status status = transaction_run(&script->transaction);
    cr_assert_eq(status, result, "%s", permit_status_word(status));
    cr_assert_eq(script->tries, tries, "%u tries", script->tries);
    cr_assert_eq(script->failures, tries < script->failing ? tries : script->failing);
}

Test(transaction, success_ends_it)
{
    struct script script = script_of(PERMIT_CONFLICT, 0, 2);
    runs(&script, PERMIT_OK, 1);
}

Test(transaction, conflict_is_tried_three_times_together_and_ten_times_alone)
{
    struct script passing = script_of(PERMIT_CONFLICT, 2, 2);
    struct script together = script_of(PERMIT_CONFLICT, FOREVER, 2);
    struct script alone = script_of(PERMIT_CONFLICT, FOREVER, 1);
    struct script indivisible = script_of(PERMIT_CONFLICT, FOREVER, 2);
    indivisible.transaction.is_indivisible = true;
    runs(&passing, PERMIT_OK, 3);
    runs(&together, PERMIT_CONFLICT, 3);
    runs(&alone, PERMIT_CONFLICT, 10);
    runs(&indivisible, PERMIT_CONFLICT, 10);
}

Test(transaction, lost_connection_is_tried_twice_together_and_until_the_deadline_alone)
{
    struct script together = script_of(PERMIT_DATABASE_LOST, FOREVER, 2);
    struct script alone = script_of(PERMIT_DATABASE_LOST, FOREVER, 1);
    struct script yielding = script_of(PERMIT_DATABASE_LOST, FOREVER, 1);
    alone.late_after = 4;
    yielding.transaction.gives_up_losses = true;
    runs(&together, PERMIT_DATABASE_LOST, 2);
    runs(&alone, PERMIT_OK, 4);
    cr_assert_eq(alone.late_status, PERMIT_DATABASE_LOST);
    runs(&yielding, PERMIT_DATABASE_LOST, 2);
}

Test(transaction, unavailable_database_is_tried_until_the_deadlines)
{
    struct script script = script_of(PERMIT_DATABASE_UNAVAILABLE, FOREVER, 2);
    script.late_after = 4;
    runs(&script, PERMIT_OK, 4);
    cr_assert_eq(script.late_status, PERMIT_DATABASE_UNAVAILABLE);
}

Test(transaction, lock_timeout_is_tried_again_only_if_it_waits_for_locks)
{
    struct script splitting = script_of(PERMIT_LOCK_TIMEOUT, FOREVER, 2);
    struct script waiting = script_of(PERMIT_LOCK_TIMEOUT, 4, 2);
    waiting.transaction.waits_for_locks = true;
    runs(&splitting, PERMIT_LOCK_TIMEOUT, 1);
    runs(&waiting, PERMIT_OK, 5);
}

Test(transaction, other_failures_are_not_tried_again)
{
    static const enum permit_status statuses[] = {PERMIT_DATABASE_FULL, PERMIT_NO_MEMORY, PERMIT_INTERNAL};
    for (size_t i = 0; i < ARRAY_LENGTH(statuses); i++) {
        struct script script = script_of(statuses[i], FOREVER, 1);
        runs(&script, statuses[i], 1);
    }
}

Test(transaction, nothing_is_tried_for_late_operations)
{
    struct script script = script_of(PERMIT_CONFLICT, FOREVER, 2);
    script.late_after = 0;
    runs(&script, PERMIT_OK, 0);
    cr_assert_eq(script.late_status, PERMIT_BUSY);
}

/* P5, P22 */
Test(transaction, answer_after_a_failure_claims_nothing_that_is_unknown)
{
    struct stage unsent = {0}, sent = {0};
    cr_assert(stage_send(&sent));
    cr_assert_eq(transaction_answer(PERMIT_CONFLICT, &unsent), PERMIT_BUSY);
    cr_assert_eq(transaction_answer(PERMIT_LOCK_TIMEOUT, &unsent), PERMIT_BUSY);
    cr_assert_eq(transaction_answer(PERMIT_NO_MEMORY, &unsent), PERMIT_BUSY);
    cr_assert_eq(transaction_answer(PERMIT_DATABASE_LOST, &unsent), PERMIT_DATABASE_UNAVAILABLE);
    cr_assert_eq(transaction_answer(PERMIT_DATABASE_FULL, &unsent), PERMIT_DATABASE_UNAVAILABLE);
    cr_assert_eq(transaction_answer(PERMIT_SHUTTING_DOWN, &unsent), PERMIT_SHUTTING_DOWN);
    cr_assert_eq(transaction_answer(PERMIT_CONFLICT, &sent), PERMIT_OUTCOME_UNKNOWN);
    cr_assert_eq(transaction_answer(PERMIT_SHUTTING_DOWN, &sent), PERMIT_OUTCOME_UNKNOWN);
}
