/* SPDX-License-Identifier: MIT */
/*
 * SQL on the tables `held` and `waiting_due` (docs/design.md, "What is held"), written without any of permitd's code: for
 * tests that write requests directly, and for those that check what permitd has written.
 */
#ifndef HELD_ROWS_H
#define HELD_ROWS_H

/* SQL expression: due_s of a deadline, which may be NULL. */
#define HELD_ROWS_DUE_S(due_at)                                                                                        \
    "COALESCE(LEAST(GREATEST(TIMESTAMPDIFF(SECOND, '1970-01-01', " due_at "), 0), 4294967294), 4294967295)"

/*
 * Adds the bits of the held permits p of requests r that fulfil the condition, as batches do. Bits that
 * are set already stay set.
 */
#define HELD_ROWS_ADD(condition)                                                                                       \
    "INSERT INTO held (semaphore_id, block, due_s, owner, bits) "                                                      \
    "SELECT p.semaphore_id, p.id DIV 64, " HELD_ROWS_DUE_S(                                                            \
        "r.due_at") " AS due_second, r.owner, "                                                                        \
                    "BIT_OR(1 << (p.id & 63)) FROM permit p JOIN permit_request r ON r.id = p.permit_request_id "      \
                    "WHERE r.state = 1 AND " condition " GROUP BY p.semaphore_id, p.id DIV 64, due_second, r.owner "   \
                    "ON DUPLICATE KEY UPDATE bits = held.bits | VALUES(bits)"
#endif
