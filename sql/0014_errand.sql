-- Errands: the procedures mark a request in the transaction of their caller, and a batch settles the mark (docs/design.md, "Errands").
ALTER TABLE permit_request
  ADD COLUMN errand TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'done in SQL, and not settled by a batch yet, as bits: 1 confirmed, 2 to be released';

CREATE TABLE errand (
  bucket TINYINT UNSIGNED NOT NULL           COMMENT '0 to 63, by connection, so that shops do not meet',
  permit_request_id BIGINT UNSIGNED NOT NULL COMMENT 'permit_request.id, whose errand is not 0; 0: keeps the buckets apart',
  account VARBINARY(800) NOT NULL DEFAULT '' COMMENT 'USER() of the caller',
  PRIMARY KEY (bucket, permit_request_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='requests whose errand is to be settled: a batch deletes the row with the mark';

INSERT IGNORE INTO errand (bucket, permit_request_id) SELECT n, 0 FROM held_bit;

CREATE TABLE sql_account (
  user VARBINARY(128) NOT NULL               COMMENT 'name of an SQL user, without its host',
  namespace VARBINARY(32) NOT NULL           COMMENT 'of the keys that it may work on; empty: those without a namespace',
  PRIMARY KEY (user)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='SQL users that may call the procedures, and on which keys';

CREATE TABLE served_offset (
  id TINYINT UNSIGNED NOT NULL               COMMENT 'always 1',
  offset_us BIGINT NOT NULL                  COMMENT 'cluster.offset_us',
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='a copy of the offset for permit_hold, which must not wait for the row of the clock';

INSERT IGNORE INTO served_offset (id, offset_us) SELECT 1, offset_us FROM cluster;
