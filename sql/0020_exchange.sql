-- Exchanges: a request that is held gives back some of its units and takes others (docs/design.md, "Exchanges").
ALTER TABLE permit_request
  ADD COLUMN changes INT UNSIGNED NOT NULL DEFAULT 0           COMMENT 'exchanges of its permits so far',
  ADD COLUMN change_nonce VARBINARY(64) NOT NULL DEFAULT ''    COMMENT 'nonce of the last exchange; empty: none';

ALTER TABLE permit
  ADD COLUMN granted_at DATETIME(6) NULL     COMMENT 'when an exchange made this token; NULL: permit_request.acquired_at';

CREATE TABLE past_permit (
  semaphore_id BIGINT UNSIGNED NOT NULL      COMMENT 'semaphore.id',
  id BIGINT UNSIGNED NOT NULL                COMMENT 'the token',
  changes INT UNSIGNED NOT NULL              COMMENT 'permit_request.changes after the exchange',
  permit_request_id BIGINT UNSIGNED NOT NULL COMMENT 'permit_request.id',
  count BIGINT NOT NULL                      COMMENT 'as in permit before the exchange',
  slots VARBINARY(8000) NOT NULL DEFAULT ''  COMMENT 'the same',
  labels MEDIUMBLOB NULL                     COMMENT 'the same',
  granted_at DATETIME(6) NULL                COMMENT 'the same',
  ended_at DATETIME(6) NOT NULL              COMMENT 'of the exchange',
  end_reason TINYINT UNSIGNED NOT NULL       COMMENT '1 released: some or all of it was given back; 7 replaced: by one with another token',
  PRIMARY KEY (semaphore_id, id, changes),
  KEY permit_request (permit_request_id)     COMMENT 'the past permits of a request'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='permits as they were before an exchange of their request: the record';
