-- SPDX-License-Identifier: MIT
-- permitd: the slot that a waiter for specific slots waits for (docs/design.md, "The queue"). A batch does not read the
-- waiters that watch a slot which stays held. The new column has a default, and 0 is always right: such a waiter is
-- always read. An older permitd neither sets nor clears it, until it notices the new version.

ALTER TABLE waiter
  ADD COLUMN watch INT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'slot.number of a slot that it cannot do without, held when it was written; 0: none known',
  ADD KEY waiter_watch (semaphore_id, watch, place, permit_request_id, count) COMMENT 'waiters of each watched slot, in the order of the queue';
