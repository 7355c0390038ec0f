-- permitd: the data model. permitd applies it under GET_LOCK, statement by statement.
-- Names, keys and owners are VARBINARY: equal means equal bytes. Times are DATETIME(6) in UTC, on the lease clock except
-- `cluster`.`tick_at` and `semaphore_event`.`at` (docs/design.md, "Time"). No foreign keys on the hot path.

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
  PRIMARY KEY (id),
  UNIQUE KEY semaphore_name (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='semaphores: a name and a capacity of units';

CREATE TABLE permit_request (
  id BIGINT UNSIGNED NOT NULL                COMMENT 'from id_block',
  external_id VARBINARY(255) NOT NULL        COMMENT 'the client''s key',
  digest BINARY(32) NULL                     COMMENT 'SHA-256 of the acquire as sent; NULL: a tombstone',
  owner VARBINARY(255) NOT NULL DEFAULT ''   COMMENT 'owner named by the client; empty: none',
  principal VARBINARY(255) NOT NULL DEFAULT '' COMMENT 'authenticated client; empty: none',
  state TINYINT UNSIGNED NOT NULL DEFAULT 1  COMMENT '1 ACQUIRED, 2 RELEASED; never back',
  end_reason TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '0 held, 1 released, 2 expired, 3 owner_dead, 4 stale, 5 forced, 6 never_held',
  ttl_ms BIGINT NULL                         COMMENT 'NULL: none; 0: as long as the owner''s heartbeat',
  due_at DATETIME(6) NULL                    COMMENT 'held: when permitd may end it; ended: when it may be deleted',
  grace_ms BIGINT NOT NULL DEFAULT 0         COMMENT 'included in due_at, not in expires_at; fixed at the grant',
  confirmed_at DATETIME(6) NULL              COMMENT 'confirmed (permanent) since',
  renewals INT UNSIGNED NOT NULL DEFAULT 0   COMMENT 'number of renewals, modulo 2^32',
  replays INT UNSIGNED NOT NULL DEFAULT 0    COMMENT 'answers about this row without another change to it, modulo 2^32',
  acquired_at DATETIME(6) NULL               COMMENT 'NULL: never held',
  ended_at DATETIME(6) NOT NULL DEFAULT '9999-12-31' COMMENT '9999-12-31: held. Not NULL, so that the row keeps its size when it ends: that saves a third of the UPDATE',
  PRIMARY KEY (id),
  UNIQUE KEY permit_request_external_id (external_id),
  KEY permit_request_due (state, due_at)     COMMENT 'expiry and retention',
  KEY permit_request_owner (state, owner)    COMMENT 'lists by owner; distinct owners of held requests, one seek each'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='requests: what a client acquired under its key';

CREATE TABLE permit (
  semaphore_id BIGINT UNSIGNED NOT NULL      COMMENT 'semaphore.id',
  id BIGINT UNSIGNED NOT NULL                COMMENT 'the token; strictly increasing within the semaphore',
  permit_request_id BIGINT UNSIGNED NOT NULL COMMENT 'permit_request.id',
  count BIGINT NOT NULL                      COMMENT 'units',
  slots VARBINARY(8000) NOT NULL DEFAULT ''  COMMENT 'granted slot numbers such as 1-3,7, freed by a release; empty if counted',
  state TINYINT UNSIGNED NOT NULL            COMMENT 'same as its request''s',
  PRIMARY KEY (semaphore_id, id),
  KEY permit_request (permit_request_id)     COMMENT 'the permits of a request',
  KEY permit_state (semaphore_id, state)     COMMENT 'holders of a semaphore, oldest first'
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
  from_value VARCHAR(255) NULL               COMMENT 'value before; forced: the key of the request',
  to_value VARCHAR(255) NULL                 COMMENT 'value after',
  why VARCHAR(1000) NULL                     COMMENT 'the given reason',
  next_permit_id BIGINT UNSIGNED NOT NULL    COMMENT 'the semaphore''s next_permit_id at that time',
  PRIMARY KEY (id),
  KEY semaphore_event_semaphore (semaphore_id, id),
  KEY semaphore_event_at (at)                COMMENT 'retention'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='changes of semaphores by operators';

CREATE TABLE owner (
  name VARBINARY(255) NOT NULL               COMMENT 'as in permit_request.owner; row locks are taken in ascending order of it',
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
  tick_at DATETIME(6) NOT NULL               COMMENT 'the database''s clock at the last tick',
  offset_us BIGINT NOT NULL                  COMMENT 'lease clock (served time) = database''s clock - this',
  grants_from DATETIME(6) NOT NULL DEFAULT '1970-01-01' COMMENT 'no grants before this time (lease clock), after a failover',
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='one row: lease clock and epoch';

CREATE TABLE id_block (
  id TINYINT UNSIGNED NOT NULL               COMMENT 'always 1',
  next_id BIGINT UNSIGNED NOT NULL           COMMENT 'next unreserved id',
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='ids of semaphores and requests, reserved in blocks';

INSERT INTO cluster (id, identity, epoch, tick_at, offset_us) VALUES (1, '', 0, UTC_TIMESTAMP(6), 0);

INSERT INTO id_block (id, next_id) VALUES (1, 1);
