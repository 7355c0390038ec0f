-- SPDX-License-Identifier: MIT
-- permitd: which permits are held, as bits (docs/design.md, "What is held"). Before, KEY `permit_state`, `permit_request_due` and
-- `permit_request_owner` told it: six entries of an index for each permit, of which three moved when it ended. The bits of
-- a batch are a few rows. An older permitd cannot write any more when `permit` has no `state`; so it gets the time to notice the
-- new version, and to serve no more.

DO (SELECT SLEEP(8) FROM server WHERE dead_at IS NULL LIMIT 1);

CREATE TABLE held (
  semaphore_id BIGINT UNSIGNED NOT NULL      COMMENT 'semaphore.id',
  block BIGINT UNSIGNED NOT NULL             COMMENT 'tokens block * 64 to block * 64 + 63',
  due_s INT UNSIGNED NOT NULL                COMMENT 'second (UNIX time, lease clock) of permit_request.due_at; 4294967295: never due',
  owner VARBINARY(289) NOT NULL              COMMENT 'permit_request.owner',
  bits BIGINT UNSIGNED NOT NULL              COMMENT 'bit n: the permit with token block * 64 + n is held; not 0',
  PRIMARY KEY (semaphore_id, block, due_s, owner),
  KEY held_due (due_s, semaphore_id, block)  COMMENT 'expiry; due holders of a semaphore with many',
  KEY held_owner (owner)                     COMMENT 'what an owner holds; distinct owners, one seek each'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='the permits that are held: one bit each, in rows of those with the same second of the deadline and the same owner';

CREATE TABLE held_bit (
  n TINYINT UNSIGNED NOT NULL                COMMENT '0 to 63',
  mask BIGINT UNSIGNED NOT NULL              COMMENT '1 << n',
  PRIMARY KEY (n)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='the bits of held.bits, for joins; never changes';

INSERT IGNORE INTO held_bit (n, mask)
  SELECT a.n * 16 + b.n * 4 + c.n, 1 << (a.n * 16 + b.n * 4 + c.n)
  FROM (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) a
  JOIN (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) b
  JOIN (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) c;

CREATE TABLE waiting_due (
  due_s INT UNSIGNED NOT NULL                COMMENT 'second (UNIX time, lease clock) of permit_request.due_at',
  permit_request_id BIGINT UNSIGNED NOT NULL COMMENT 'permit_request.id',
  PRIMARY KEY (due_s, permit_request_id)     COMMENT 'expiry'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='the requests that wait, by the time when they are deleted unless a client asks for them';

ALTER TABLE permit
  DROP KEY permit_state,
  DROP COLUMN state;

INSERT INTO held (semaphore_id, block, due_s, owner, bits)
  SELECT p.semaphore_id, p.id DIV 64,
         COALESCE(LEAST(GREATEST(TIMESTAMPDIFF(SECOND, '1970-01-01', r.due_at), 0), 4294967294), 4294967295) AS due_second,
         r.owner, BIT_OR(1 << (p.id % 64))
  FROM permit_request r FORCE INDEX (permit_request_due)
  STRAIGHT_JOIN permit p FORCE INDEX (permit_request) ON p.permit_request_id = r.id
  WHERE r.state = 1
  GROUP BY p.semaphore_id, p.id DIV 64, due_second, r.owner
  ON DUPLICATE KEY UPDATE bits = VALUES(bits);

INSERT IGNORE INTO waiting_due (due_s, permit_request_id)
  SELECT COALESCE(LEAST(GREATEST(TIMESTAMPDIFF(SECOND, '1970-01-01', due_at), 0), 4294967294), 4294967295), id
  FROM permit_request FORCE INDEX (permit_request_due)
  WHERE state = 3;

ALTER TABLE permit_request
  DROP KEY permit_request_due,
  DROP KEY permit_request_owner;
