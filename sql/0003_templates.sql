-- SPDX-License-Identifier: MIT
-- permitd: templates (docs/protocol.md, "Templates"): what a semaphore is made with on its first use, by how its name begins.
-- The settings are those of `semaphore`.

CREATE TABLE template (
  prefix VARBINARY(255) NOT NULL                     COMMENT 'names that begin so; the longest one decides',
  length TINYINT UNSIGNED NOT NULL                   COMMENT 'bytes of prefix: which beginnings of a name are worth looking for',
  kind TINYINT UNSIGNED NOT NULL                     COMMENT '1 slotted, 2 counted; never changes',
  queue TINYINT UNSIGNED NOT NULL DEFAULT 1          COMMENT '1 backfill, 2 fifo: who may pass whom while waiting',
  capacity BIGINT NOT NULL                           COMMENT 'units; 0 is closed',
  default_ttl_ms BIGINT NOT NULL                     COMMENT 'ttl of a request that names none',
  max_ttl_ms BIGINT NULL                             COMMENT 'longest ttl allowed; NULL: any, also none at all',
  grace_ms BIGINT NOT NULL DEFAULT 0                 COMMENT 'permitd waits this much longer than it told the client',
  max_hold_ms BIGINT NOT NULL                        COMMENT 'without a ttl, unconfirmed: stale after this',
  note VARCHAR(1000) NULL                            COMMENT 'for people',
  config_version BIGINT UNSIGNED NOT NULL DEFAULT 1  COMMENT '+1 when an operator changes it; the ETag',
  PRIMARY KEY (prefix),
  KEY template_length (length)                       COMMENT 'the lengths that there are, one seek each'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='settings for semaphores that are made on their first use';
