-- SPDX-License-Identifier: MIT
-- permitd: the data model. permitd applies it under GET_LOCK, statement by statement. A database at version 12 has this schema
-- already: permitd only notes the version there.
-- Names, keys and owners are VARBINARY: equal means equal bytes. Times are DATETIME(6) in UTC, on the lease clock except
-- `server`.`since`, `server`.`seen_at` and `semaphore_event`.`at` (docs/design.md, "Time"). No foreign keys on the hot path.

CREATE TABLE semaphore (
  id BIGINT UNSIGNED NOT NULL                        COMMENT 'from id_block; row locks are taken in ascending order of it',
  name VARBINARY(255) NOT NULL                       COMMENT 'A-Z a-z 0-9 . _ : @ -',
  kind TINYINT UNSIGNED NOT NULL                     COMMENT '1 slotted, 2 counted; never changes',
  queue TINYINT UNSIGNED NOT NULL DEFAULT 1          COMMENT '1 backfill, 2 fifo: order of waiting requests',
  capacity BIGINT NOT NULL                           COMMENT 'units; 0: closed',
  in_use BIGINT UNSIGNED NOT NULL DEFAULT 0          COMMENT 'units held; changed only with the permits it counts',
  next_permit_id BIGINT UNSIGNED NOT NULL DEFAULT 1  COMMENT 'next token, unless epoch * 1024 is larger',
  version BIGINT UNSIGNED NOT NULL DEFAULT 1         COMMENT '+1 with every change; for compare-and-set',
  config_version BIGINT UNSIGNED NOT NULL DEFAULT 1  COMMENT '+1 when an operator changes a setting; the ETag',
  next_due_at DATETIME(6) NULL                       COMMENT 'lower bound of the earliest deadline among its holders; NULL: none has a deadline',
  first_free INT UNSIGNED NOT NULL DEFAULT 1         COMMENT 'lower bound of the lowest free slot; 0: the capacity shrank and slots above it may be held',
  default_ttl_ms BIGINT NOT NULL                     COMMENT 'ttl of a request without one',
  max_ttl_ms BIGINT NULL                             COMMENT 'longest ttl allowed; NULL: unlimited, and ttl "none" is allowed',
  grace_ms BIGINT NOT NULL DEFAULT 0                 COMMENT 'permitd ends a request this much later than the deadline shown to the client',
  max_hold_ms BIGINT NOT NULL                        COMMENT 'a request without a ttl, unconfirmed, is stale after this',
  paused_reason VARCHAR(1000) NULL                   COMMENT 'no new grants while set',
  note VARCHAR(1000) NULL                            COMMENT 'free text',
  retired_at DATETIME(6) NULL                        COMMENT 'retired since; the name and its tokens stay',
  max_waiters INT UNSIGNED NULL                      COMMENT 'requests that may wait for it; NULL: no limit of its own',
  waiting BIGINT UNSIGNED NOT NULL DEFAULT 0         COMMENT 'its waiters whose request has a server_id; changed only with them',
  max_priority TINYINT UNSIGNED NOT NULL DEFAULT 9   COMMENT 'highest priority of a request that waits for it',
  confirmed BIGINT UNSIGNED NOT NULL DEFAULT 0       COMMENT 'units of in_use whose request is confirmed; changed only with them',
  priority_step_ms BIGINT NULL DEFAULT 30000         COMMENT 'waiting time that one step of priority is worth; NULL: strict, more than any request waits',
  PRIMARY KEY (id),
  UNIQUE KEY semaphore_name (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='semaphores: a name and a capacity of units';

CREATE TABLE permit_request (
  id BIGINT UNSIGNED NOT NULL                COMMENT 'from id_block',
  external_id VARBINARY(289) NOT NULL        COMMENT 'the client''s key; in a namespace 0x01, namespace, 0x01 and the key',
  digest BINARY(32) NULL                     COMMENT 'SHA-256 of the acquire as sent; NULL: a tombstone',
  owner VARBINARY(289) NOT NULL DEFAULT ''   COMMENT 'owner named by the client, with its namespace as in external_id; empty: none',
  principal VARBINARY(255) NOT NULL DEFAULT '' COMMENT 'authenticated client; empty: none',
  state TINYINT UNSIGNED NOT NULL DEFAULT 1  COMMENT '3 WAITING, 1 ACQUIRED, 2 RELEASED; only in this order',
  end_reason TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '0 held, 1 released, 2 expired, 3 owner_dead, 4 stale, 5 forced, 6 never_held',
  ttl_ms BIGINT NULL                         COMMENT 'NULL: none; 0: as long as the owner''s heartbeat',
  due_at DATETIME(6) NULL                    COMMENT 'held: when permitd may end it; ended or waiting: when it may be deleted',
  grace_ms BIGINT NOT NULL DEFAULT 0         COMMENT 'included in due_at, not in expires_at; fixed at the grant',
  confirmed_at DATETIME(6) NULL              COMMENT 'confirmed (permanent) since',
  renewals INT UNSIGNED NOT NULL DEFAULT 0   COMMENT 'number of renewals, modulo 2^32',
  replays INT UNSIGNED NOT NULL DEFAULT 0    COMMENT 'answers about this row without another change to it, modulo 2^32',
  acquired_at DATETIME(6) NULL               COMMENT 'NULL: never held',
  ended_at DATETIME(6) NOT NULL DEFAULT '9999-12-31' COMMENT '9999-12-31: held. Not NULL, so that the row keeps its size when it ends: that saves a third of the UPDATE',
  nonce VARBINARY(64) NOT NULL DEFAULT ''    COMMENT 'nonce of the granted acquire; empty: none',
  wanted MEDIUMBLOB NULL                     COMMENT 'waiting: ttl and permits that it asks for, in canonical form (src/core/request.h); else NULL',
  priority TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '0 to 9: each step is worth semaphore.priority_step_ms of waiting',
  place DATETIME(6) NULL                     COMMENT 'order in its queues: time of entry - priority * the smallest step of its semaphores; NULL: it has never waited',
  waiting_since DATETIME(6) NULL             COMMENT 'time of entry; NULL: it has never waited',
  waiting_until DATETIME(6) NULL             COMMENT 'when the wait of its client ends; NULL: it has never waited',
  server_id BIGINT UNSIGNED NULL             COMMENT 'waiting: server.id where its client waits, NULL: no client asks for it; held: granted for a client there that was not told yet',
  PRIMARY KEY (id),
  UNIQUE KEY permit_request_external_id (external_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='requests: what a client acquired under its key';

CREATE TABLE permit (
  semaphore_id BIGINT UNSIGNED NOT NULL      COMMENT 'semaphore.id',
  id BIGINT UNSIGNED NOT NULL                COMMENT 'the token; strictly increasing within the semaphore',
  permit_request_id BIGINT UNSIGNED NOT NULL COMMENT 'permit_request.id',
  count BIGINT NOT NULL                      COMMENT 'units',
  slots VARBINARY(8000) NOT NULL DEFAULT ''  COMMENT 'granted slot numbers such as 1-3,7, freed by a release; empty if counted',
  labels MEDIUMBLOB NULL                     COMMENT 'labels of the granted slots as of the grant, one per line in the order of slots, empty line: none; NULL: no slot has a label',
  PRIMARY KEY (semaphore_id, id),
  KEY permit_request (permit_request_id)     COMMENT 'the permits of a request'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='one request''s share of one semaphore';

CREATE TABLE slot (
  semaphore_id BIGINT UNSIGNED NOT NULL      COMMENT 'semaphore.id',
  number INT UNSIGNED NOT NULL               COMMENT 'from 1',
  label VARBINARY(255) NULL                  COMMENT 'such as A1',
  permit_id BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'permit.id that holds it; 0: free. Not NULL, so that the row keeps its size: that saves a third of the UPDATE',
  last_permit_id BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'last token that held it at the end of a batch',
  retired TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '1: above the capacity, no longer granted',
  PRIMARY KEY (semaphore_id, number),
  UNIQUE KEY slot_label (semaphore_id, label)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='slots: the units of slotted semaphores';

CREATE TABLE semaphore_event (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  semaphore_id BIGINT UNSIGNED NOT NULL      COMMENT 'semaphore.id; 0: all semaphores (what is epoch)',
  at DATETIME(6) NOT NULL                    COMMENT 'the database''s clock',
  who VARBINARY(255) NOT NULL DEFAULT ''     COMMENT 'principal; empty: no credentials are configured',
  what VARBINARY(32) NOT NULL                COMMENT 'created, revived, retired, paused, resumed, forced, labels, epoch, or the changed setting',
  from_value VARCHAR(289) NULL               COMMENT 'value before; forced: the key of the request, as in permit_request.external_id',
  to_value VARCHAR(255) NULL                 COMMENT 'value after',
  why VARCHAR(1000) NULL                     COMMENT 'the given reason',
  next_permit_id BIGINT UNSIGNED NOT NULL    COMMENT 'the semaphore''s next_permit_id at that time',
  PRIMARY KEY (id),
  KEY semaphore_event_semaphore (semaphore_id, id),
  KEY semaphore_event_at (at)                COMMENT 'retention'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='changes of semaphores by operators';

CREATE TABLE owner (
  name VARBINARY(289) NOT NULL               COMMENT 'as in permit_request.owner; row locks are taken in ascending order of it',
  ttl_ms BIGINT NOT NULL                     COMMENT 'ttl of a heartbeat; 0: no heartbeat yet, the probe found the owner dead',
  due_at DATETIME(6) NOT NULL                COMMENT 'last heartbeat + ttl: lapses then without another heartbeat',
  lapsed_at DATETIME(6) NULL                 COMMENT 'declared dead since; requests acquired before end with the lapse',
  settled_at DATETIME(6) NULL                COMMENT 'when permitd found that all requests that end with the lapse had ended',
  replays INT UNSIGNED NOT NULL DEFAULT 0    COMMENT 'answers about this row without another change to it, modulo 2^32',
  PRIMARY KEY (name),
  KEY owner_due (lapsed_at, due_at)          COMMENT 'next owner to lapse',
  KEY owner_settled (settled_at, lapsed_at)  COMMENT 'lapsed but not settled; settled long ago'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='owners: heartbeats and lapses';

CREATE TABLE cluster (
  id TINYINT UNSIGNED NOT NULL               COMMENT 'always 1',
  identity VARBINARY(1000) NOT NULL          COMMENT 'of the database server last used; a different one means failover',
  epoch BIGINT UNSIGNED NOT NULL             COMMENT 'new tokens are at least epoch * 1024',
  tick_at DATETIME(6) NOT NULL               COMMENT 'lease clock at the last tick, + offset_us: about the database''s clock then',
  offset_us BIGINT NOT NULL                  COMMENT 'lease clock (served time) = database''s clock - this, from tick_at on and for at most 5 s; for what rows store, not for what has ended',
  grants_from DATETIME(6) NOT NULL DEFAULT '1970-01-01' COMMENT 'no grants before this time (lease clock), after a failover',
  ticks BIGINT UNSIGNED NOT NULL DEFAULT 0   COMMENT 'ticks of the lease clock, +1 with each',
  next_server_id BIGINT UNSIGNED NOT NULL DEFAULT 1 COMMENT 'next server.id, unless epoch * 1024 is larger',
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='one row: lease clock and epoch';

CREATE TABLE id_block (
  id TINYINT UNSIGNED NOT NULL               COMMENT 'always 1',
  next_id BIGINT UNSIGNED NOT NULL           COMMENT 'next unreserved id',
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='ids of semaphores and requests, reserved in blocks';

-- Settings for semaphores created on first use, by prefix of the name (docs/protocol.md, "Templates"): those of `semaphore`.
CREATE TABLE template (
  prefix VARBINARY(255) NOT NULL                     COMMENT 'applies to names with this prefix; the longest prefix wins',
  length TINYINT UNSIGNED NOT NULL                   COMMENT 'length of prefix in bytes: a lookup tries only existing lengths',
  kind TINYINT UNSIGNED NOT NULL                     COMMENT '1 slotted, 2 counted; never changes',
  queue TINYINT UNSIGNED NOT NULL DEFAULT 1          COMMENT '1 backfill, 2 fifo: order of waiting requests',
  capacity BIGINT NOT NULL                           COMMENT 'units; 0: closed',
  default_ttl_ms BIGINT NOT NULL                     COMMENT 'ttl of a request without one',
  max_ttl_ms BIGINT NULL                             COMMENT 'longest ttl allowed; NULL: unlimited, and ttl "none" is allowed',
  grace_ms BIGINT NOT NULL DEFAULT 0                 COMMENT 'permitd ends a request this much later than the deadline shown to the client',
  max_hold_ms BIGINT NOT NULL                        COMMENT 'a request without a ttl, unconfirmed, is stale after this',
  note VARCHAR(1000) NULL                            COMMENT 'free text',
  config_version BIGINT UNSIGNED NOT NULL DEFAULT 1  COMMENT '+1 when an operator changes a setting; the ETag',
  max_waiters INT UNSIGNED NULL                      COMMENT 'requests that may wait for it; NULL: no limit of its own',
  max_priority TINYINT UNSIGNED NOT NULL DEFAULT 9   COMMENT 'highest priority of a request that waits for it',
  priority_step_ms BIGINT NULL DEFAULT 30000         COMMENT 'waiting time that one step of priority is worth; NULL: strict, more than any request waits',
  PRIMARY KEY (prefix),
  KEY template_length (length)                       COMMENT 'distinct lengths, one seek each'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='settings for semaphores created on first use';

-- The permitd that run on this database (docs/design.md, "Which permitd run").
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

-- Waiting requests (docs/design.md, "The queue"): rows of permit_request in state 3, each with a row of `waiter` for each
-- semaphore that it wants. A batch does not read the waiters that watch a slot which stays held. Waiters with equal `needs`
-- want the same: if one of them can neither be granted nor reserve, then no batch reads those behind it.
CREATE TABLE waiter (
  semaphore_id BIGINT UNSIGNED NOT NULL      COMMENT 'semaphore.id',
  place DATETIME(6) NOT NULL                 COMMENT 'permit_request.place',
  permit_request_id BIGINT UNSIGNED NOT NULL COMMENT 'permit_request.id',
  count BIGINT NOT NULL                      COMMENT 'units that it wants',
  watch INT UNSIGNED NOT NULL DEFAULT 0      COMMENT 'slot.number of a slot that it cannot do without, held when it was written; + 2147483648: it wants more slots; 0: none known',
  needs BIGINT UNSIGNED NOT NULL DEFAULT 0   COMMENT 'hash of what permit_request.wanted asks for, without the ttl; 0: unknown',
  PRIMARY KEY (semaphore_id, place, permit_request_id) COMMENT 'the queue, in its order',
  KEY waiter_watch (semaphore_id, watch, place, permit_request_id, count) COMMENT 'waiters of each watched slot, in the order of the queue'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='queues: one row for each semaphore that a waiting request wants';

CREATE TABLE mail (
  server_id BIGINT UNSIGNED NOT NULL         COMMENT 'server.id of the permitd that has to look at the request',
  permit_request_id BIGINT UNSIGNED NOT NULL COMMENT 'permit_request.id; its row may be gone',
  PRIMARY KEY (server_id, permit_request_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='requests that another permitd has granted, called or removed';

-- Which permits are held, as bits, and which requests wait, by deadline (docs/design.md, "What is held").
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

CREATE TABLE waiting_due (
  due_s INT UNSIGNED NOT NULL                COMMENT 'second (UNIX time, lease clock) of permit_request.due_at',
  permit_request_id BIGINT UNSIGNED NOT NULL COMMENT 'permit_request.id',
  PRIMARY KEY (due_s, permit_request_id)     COMMENT 'expiry'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='the requests that wait, by the time when they are deleted unless a client asks for them';

INSERT INTO cluster (id, identity, epoch, tick_at, offset_us) VALUES (1, '', 0, UTC_TIMESTAMP(6), 0);

INSERT INTO id_block (id, next_id) VALUES (1, 1);

INSERT INTO held_bit (n, mask)
  SELECT a.n * 16 + b.n * 4 + c.n, 1 << (a.n * 16 + b.n * 4 + c.n)
  FROM (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) a
  JOIN (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) b
  JOIN (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) c;
