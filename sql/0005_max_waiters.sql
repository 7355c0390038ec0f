-- SPDX-License-Identifier: MIT
-- permitd: a limit of waiting requests for each semaphore (docs/protocol.md, "PUT /v1/semaphores/{name}"). NULL is the
-- default, so that an older permitd can still insert.

ALTER TABLE semaphore
  ADD COLUMN max_waiters INT UNSIGNED NULL COMMENT 'requests that may wait for it at one permitd; NULL: no limit of its own';

ALTER TABLE template
  ADD COLUMN max_waiters INT UNSIGNED NULL COMMENT 'requests that may wait for it at one permitd; NULL: no limit of its own';
