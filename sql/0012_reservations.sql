-- SPDX-License-Identifier: MIT
-- permitd: what a waiter reserves (docs/design.md, "The queue"). A waiter that needs units which are confirmed can never
-- have them, so it reserves nothing: `confirmed` counts them. Waiters with equal `needs` want the same: if one of them can
-- neither be granted nor reserve, then no batch reads those behind it.

ALTER TABLE semaphore
  ADD COLUMN confirmed BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'units of in_use whose request is confirmed; changed only with them',
  ADD COLUMN priority_step_ms BIGINT NULL DEFAULT 30000 COMMENT 'waiting time that one step of priority is worth; NULL: strict, more than any request waits';

ALTER TABLE template
  ADD COLUMN priority_step_ms BIGINT NULL DEFAULT 30000 COMMENT 'waiting time that one step of priority is worth; NULL: strict, more than any request waits';

UPDATE semaphore s
  JOIN (SELECT p.semaphore_id, SUM(p.count) AS units
        FROM held h FORCE INDEX (held_due)
        STRAIGHT_JOIN held_bit b ON h.bits & b.mask
        STRAIGHT_JOIN permit p FORCE INDEX (PRIMARY) ON p.semaphore_id = h.semaphore_id AND p.id = h.block * 64 + b.n
        STRAIGHT_JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id = p.permit_request_id
        WHERE h.due_s = 4294967295 AND r.confirmed_at IS NOT NULL
        GROUP BY p.semaphore_id) c ON c.semaphore_id = s.id
  SET s.confirmed = c.units;

ALTER TABLE waiter
  MODIFY COLUMN watch INT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'slot.number of a slot that it cannot do without, held when it was written; + 2147483648: it wants more slots; 0: none known',
  ADD COLUMN needs BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'hash of what permit_request.wanted asks for, without the ttl; 0: unknown';

ALTER TABLE permit_request
  MODIFY COLUMN priority TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '0 to 9: each step is worth semaphore.priority_step_ms of waiting',
  MODIFY COLUMN place DATETIME(6) NULL COMMENT 'order in its queues: time of entry - priority * the smallest step of its semaphores; NULL: it has never waited';
