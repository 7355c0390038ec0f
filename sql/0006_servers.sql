-- SPDX-License-Identifier: MIT
-- permitd: the permitd that run on this database (docs/design.md, "Which permitd run"). New columns have defaults and the
-- table stands alone, so that an older permitd works on: it is not listed, and the ticks that it wins are not counted.

ALTER TABLE cluster
  ADD COLUMN ticks BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'ticks of the lease clock, +1 with each',
  ADD COLUMN next_server_id BIGINT UNSIGNED NOT NULL DEFAULT 1 COMMENT 'next server.id, unless epoch * 1024 is larger';

CREATE TABLE server (
  id BIGINT UNSIGNED NOT NULL                COMMENT 'from cluster.next_server_id; no two permitd ever get the same',
  address VARBINARY(255) NOT NULL            COMMENT 'setting advertise: where clients reach it',
  version VARBINARY(64) NOT NULL             COMMENT 'of permitd, such as 0.1.0',
  since DATETIME(6) NOT NULL                 COMMENT 'the database''s clock when it took this id',
  seen_at DATETIME(6) NOT NULL               COMMENT 'the database''s clock at its last heartbeat; for people, nothing is decided by it',
  ticks BIGINT UNSIGNED NOT NULL             COMMENT 'cluster.ticks at its last heartbeat; it is dead when it is 4 behind',
  waiting BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'requests that waited there at its last heartbeat',
  dead_at DATETIME(6) NULL                   COMMENT 'declared dead since, on the lease clock; NULL: alive',
  PRIMARY KEY (id),
  KEY server_dead (dead_at, ticks)           COMMENT 'those that are alive, the furthest behind first; the dead, oldest first'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='the running permitd, one row each; of one that has died for 10 s more';
