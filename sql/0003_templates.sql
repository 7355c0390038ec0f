-- SPDX-License-Identifier: MIT
-- permitd: templates (docs/protocol.md, "Templates"): settings for semaphores created on first use, by prefix of the name.
-- The settings are those of `semaphore`.

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
  PRIMARY KEY (prefix),
  KEY template_length (length)                       COMMENT 'distinct lengths, one seek each'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='settings for semaphores created on first use';
