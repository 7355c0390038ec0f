-- SPDX-License-Identifier: MIT
-- permitd: waiting requests (docs/design.md, "The queue"). A request that waits is a row of permit_request in state 3, with a
-- row of `waiter` for each semaphore that it wants. New columns have defaults and the tables stand alone, so that an older
-- permitd works on until it notices the new version (docs/operating.md): it grants and releases as before, and knows only
-- the waiting requests of its own clients.

ALTER TABLE permit_request
  MODIFY COLUMN state TINYINT UNSIGNED NOT NULL DEFAULT 1 COMMENT '3 WAITING, 1 ACQUIRED, 2 RELEASED; only in this order',
  MODIFY COLUMN due_at DATETIME(6) NULL COMMENT 'held: when permitd may end it; ended or waiting: when it may be deleted',
  ADD COLUMN wanted MEDIUMBLOB NULL COMMENT 'waiting: ttl and permits that it asks for, in canonical form (src/core/request.h); else NULL',
  ADD COLUMN priority TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '0 to 9: each step is worth 30 s of waiting',
  ADD COLUMN place DATETIME(6) NULL COMMENT 'order in its queues: time of entry - 30 s * priority; NULL: it has never waited',
  ADD COLUMN waiting_since DATETIME(6) NULL COMMENT 'time of entry; NULL: it has never waited',
  ADD COLUMN waiting_until DATETIME(6) NULL COMMENT 'when the wait of its client ends; NULL: it has never waited',
  ADD COLUMN server_id BIGINT UNSIGNED NULL COMMENT 'waiting: server.id where its client waits, NULL: no client asks for it; held: granted for a client there that was not told yet';

ALTER TABLE semaphore
  MODIFY COLUMN max_waiters INT UNSIGNED NULL COMMENT 'requests that may wait for it; NULL: no limit of its own',
  ADD COLUMN waiting BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'its waiters whose request has a server_id; changed only with them',
  ADD COLUMN max_priority TINYINT UNSIGNED NOT NULL DEFAULT 9 COMMENT 'highest priority of a request that waits for it';

ALTER TABLE template
  MODIFY COLUMN max_waiters INT UNSIGNED NULL COMMENT 'requests that may wait for it; NULL: no limit of its own',
  ADD COLUMN max_priority TINYINT UNSIGNED NOT NULL DEFAULT 9 COMMENT 'highest priority of a request that waits for it';

CREATE TABLE waiter (
  semaphore_id BIGINT UNSIGNED NOT NULL      COMMENT 'semaphore.id',
  place DATETIME(6) NOT NULL                 COMMENT 'permit_request.place',
  permit_request_id BIGINT UNSIGNED NOT NULL COMMENT 'permit_request.id',
  count BIGINT NOT NULL                      COMMENT 'units that it wants',
  PRIMARY KEY (semaphore_id, place, permit_request_id) COMMENT 'the queue, in its order'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='queues: one row for each semaphore that a waiting request wants';

CREATE TABLE mail (
  server_id BIGINT UNSIGNED NOT NULL         COMMENT 'server.id of the permitd that has to look at the request',
  permit_request_id BIGINT UNSIGNED NOT NULL COMMENT 'permit_request.id; its row may be gone',
  PRIMARY KEY (server_id, permit_request_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='requests that another permitd has granted, called or removed';
