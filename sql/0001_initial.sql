-- permitd: the data model (docs/design.md, "Data model"). Applied by permitd itself, under GET_LOCK, statement by statement.
-- Names, keys and owners are VARBINARY: equal means equal bytes. Times are DATETIME(6) in UTC; all but `cluster`.`tick_at`
-- and `semaphore_event`.`at` are served time (docs/design.md, "Time"). No foreign keys on the hot path.

CREATE TABLE semaphore (
  id BIGINT UNSIGNED NOT NULL                        COMMENT 'from id_block; row locks are taken in this order',
  name VARBINARY(255) NOT NULL                       COMMENT 'A-Z a-z 0-9 . _ : @ -',
  kind TINYINT UNSIGNED NOT NULL                     COMMENT '1 slotted, 2 counted; never changes',
  queue TINYINT UNSIGNED NOT NULL DEFAULT 1          COMMENT '1 backfill, 2 fifo: who may pass whom while waiting',
  capacity BIGINT NOT NULL                           COMMENT 'units; 0 is closed',
  in_use BIGINT UNSIGNED NOT NULL DEFAULT 0          COMMENT 'units held; changed only with the permits it counts',
  next_permit_id BIGINT UNSIGNED NOT NULL DEFAULT 1  COMMENT 'the next token, unless the epoch is ahead of it',
  version BIGINT UNSIGNED NOT NULL DEFAULT 1         COMMENT '+1 with every change; the compare-and-set',
  config_version BIGINT UNSIGNED NOT NULL DEFAULT 1  COMMENT '+1 when an operator changes it; the ETag',
  next_due_at DATETIME(6) NULL                       COMMENT 'lower bound of the earliest deadline among its holders',
  first_free INT UNSIGNED NOT NULL DEFAULT 1         COMMENT 'lower bound of the lowest free slot; 0: the capacity shrank and slots above it may be held',
  default_ttl_ms BIGINT NOT NULL                     COMMENT 'ttl of a request that names none',
  max_ttl_ms BIGINT NULL                             COMMENT 'longest ttl allowed; NULL: any, also none at all',
  grace_ms BIGINT NOT NULL DEFAULT 0                 COMMENT 'permitd waits this much longer than it told the client',
  max_hold_ms BIGINT NOT NULL                        COMMENT 'without a ttl, unconfirmed: stale after this',
  paused_reason VARCHAR(1000) NULL                   COMMENT 'no new grants while set',
  note VARCHAR(1000) NULL                            COMMENT 'for people',
  retired_at DATETIME(6) NULL                        COMMENT 'out of service since; the name and its tokens stay',
  PRIMARY KEY (id),
  UNIQUE KEY semaphore_name (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='a name and a capacity of units';

CREATE TABLE permit_request (
  id BIGINT UNSIGNED NOT NULL                COMMENT 'from id_block',
  external_id VARBINARY(255) NOT NULL        COMMENT 'the client''s key',
  digest BINARY(32) NULL                     COMMENT 'SHA-256 of what was sent; NULL: a tombstone',
  owner VARBINARY(255) NOT NULL DEFAULT ''   COMMENT 'who holds, in the client''s words; empty: not said',
  principal VARBINARY(255) NOT NULL DEFAULT '' COMMENT 'whose credential it was',
  state TINYINT UNSIGNED NOT NULL DEFAULT 1  COMMENT '1 ACQUIRED, 2 RELEASED; one way',
  end_reason TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '0 held, 1 released, 2 expired, 3 owner_dead, 4 stale, 5 forced, 6 never_held',
  ttl_ms BIGINT NULL                         COMMENT 'NULL: until released, or stale; 0: as long as the owner''s heartbeat',
  due_at DATETIME(6) NULL                    COMMENT 'held: when permitd may end it; ended: when it may be deleted',
  grace_ms BIGINT NOT NULL DEFAULT 0         COMMENT 'part of due_at that the client was not told; fixed at the grant',
  confirmed_at DATETIME(6) NULL              COMMENT 'permanent since',
  renewals INT UNSIGNED NOT NULL DEFAULT 0   COMMENT 'times it was extended, modulo 2^32',
  replays INT UNSIGNED NOT NULL DEFAULT 0    COMMENT 'answers that asserted this row without changing it otherwise, modulo 2^32',
  acquired_at DATETIME(6) NULL               COMMENT 'NULL: it never held anything',
  ended_at DATETIME(6) NOT NULL DEFAULT '9999-12-31' COMMENT '9999-12-31: held. Not NULL, so that the row keeps its size when it ends: a third of that UPDATE',
  PRIMARY KEY (id),
  UNIQUE KEY permit_request_external_id (external_id),
  KEY permit_request_due (state, due_at)     COMMENT 'sweeper and cleaner',
  KEY permit_request_owner (state, owner)    COMMENT 'lists by owner; the owners who hold something, one seek each'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='what a client asked for under its key, and holds or held';

CREATE TABLE permit (
  semaphore_id BIGINT UNSIGNED NOT NULL      COMMENT 'semaphore.id',
  id BIGINT UNSIGNED NOT NULL                COMMENT 'the token: rises strictly within the semaphore',
  permit_request_id BIGINT UNSIGNED NOT NULL COMMENT 'permit_request.id',
  count BIGINT NOT NULL                      COMMENT 'units',
  slots VARBINARY(8000) NOT NULL DEFAULT ''  COMMENT 'granted slot numbers such as 1-3,7; what a release frees; empty if counted',
  state TINYINT UNSIGNED NOT NULL            COMMENT 'as of its request',
  PRIMARY KEY (semaphore_id, id),
  KEY permit_request (permit_request_id)     COMMENT 'the permits of a request',
  KEY permit_state (semaphore_id, state)     COMMENT 'holders of a semaphore, the oldest first'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='one request''s share of one semaphore';

CREATE TABLE slot (
  semaphore_id BIGINT UNSIGNED NOT NULL      COMMENT 'semaphore.id',
  number INT UNSIGNED NOT NULL               COMMENT 'from 1 up',
  label VARBINARY(255) NULL                  COMMENT 'such as A1',
  permit_id BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'permit.id that holds it; 0: free. Not NULL, so that the row keeps its size: a third of its UPDATE',
  last_permit_id BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'the last token that a batch left it with',
  retired TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '1: above the capacity, not granted any more',
  PRIMARY KEY (semaphore_id, number),
  UNIQUE KEY slot_label (semaphore_id, label)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='one unit of a slotted semaphore';

CREATE TABLE semaphore_event (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  semaphore_id BIGINT UNSIGNED NOT NULL      COMMENT 'semaphore.id; 0: all of them, the epoch',
  at DATETIME(6) NOT NULL                    COMMENT 'by the database''s clock',
  who VARBINARY(255) NOT NULL DEFAULT ''     COMMENT 'principal, if there are credentials',
  what VARBINARY(32) NOT NULL                COMMENT 'created, revived, retired, paused, resumed, forced, epoch, or the setting that was changed',
  from_value VARCHAR(255) NULL               COMMENT 'before; of forced: the key of the request',
  to_value VARCHAR(255) NULL                 COMMENT 'after',
  why VARCHAR(1000) NULL                     COMMENT 'the reason that was given',
  next_permit_id BIGINT UNSIGNED NOT NULL    COMMENT 'of the semaphore at that moment',
  PRIMARY KEY (id),
  KEY semaphore_event_semaphore (semaphore_id, id),
  KEY semaphore_event_at (at)                COMMENT 'the cleaner'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='what operators did to a semaphore';

CREATE TABLE owner (
  name VARBINARY(255) NOT NULL               COMMENT 'as in permit_request.owner; row locks are taken in this order',
  ttl_ms BIGINT NOT NULL                     COMMENT 'of a heartbeat; 0: there never was one, the probe found it dead',
  due_at DATETIME(6) NOT NULL                COMMENT 'last heartbeat + ttl: when it lapses without another one',
  lapsed_at DATETIME(6) NULL                 COMMENT 'judged dead since; what it acquired before ends with it',
  settled_at DATETIME(6) NULL                COMMENT 'all that ends with the lapse has ended, found at this time',
  replays INT UNSIGNED NOT NULL DEFAULT 0    COMMENT 'answers that asserted this row without changing it otherwise, modulo 2^32',
  PRIMARY KEY (name),
  KEY owner_due (lapsed_at, due_at)          COMMENT 'who lapses next',
  KEY owner_settled (settled_at, lapsed_at)  COMMENT 'lapsed and not settled; settled long ago'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='heartbeats, and who was found dead';

CREATE TABLE cluster (
  id TINYINT UNSIGNED NOT NULL               COMMENT 'always 1',
  identity VARBINARY(1000) NOT NULL          COMMENT 'of the server that last served; another one means failover',
  epoch BIGINT UNSIGNED NOT NULL             COMMENT 'tokens are at least epoch * 1024',
  tick_at DATETIME(6) NOT NULL               COMMENT 'the database''s clock at the last tick',
  offset_us BIGINT NOT NULL                  COMMENT 'served time = clock - this',
  grants_from DATETIME(6) NOT NULL DEFAULT '1970-01-01' COMMENT 'after a failover nothing is granted before this (served time)',
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='one row: served time and epoch';

CREATE TABLE id_block (
  id TINYINT UNSIGNED NOT NULL               COMMENT 'always 1',
  next_id BIGINT UNSIGNED NOT NULL           COMMENT 'the first id that nobody has reserved',
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='ids of semaphores and requests, handed out in blocks';

INSERT INTO cluster (id, identity, epoch, tick_at, offset_us) VALUES (1, '', 0, UTC_TIMESTAMP(6), 0);

INSERT INTO id_block (id, next_id) VALUES (1, 1);
