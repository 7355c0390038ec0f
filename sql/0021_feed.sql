-- The feed: metadata in its events, many events of a batch in a row, and numbers that a crash does not undo
-- (docs/design.md, "The feed"). From the second statement on a permitd of before cannot write events: its rows have no
-- `events`.
ALTER TABLE permit_request
  ADD COLUMN has_metadata TINYINT UNSIGNED NOT NULL DEFAULT 1 COMMENT '0: it has no row in request_metadata; 1: it may have one';

ALTER TABLE feed
  ADD COLUMN count INT UNSIGNED NOT NULL     COMMENT 'of its events: their numbers are seq and those that follow',
  ADD COLUMN events MEDIUMBLOB NOT NULL      COMMENT 'one behind the other (src/core/feed.h)',
  MODIFY COLUMN seq BIGINT UNSIGNED NULL     COMMENT 'the number of its first event, from 1 without gaps; NULL: not numbered yet, readers do not see it';

UPDATE feed SET count = 1,
  events = CONCAT(what, ' ', end_reason, ' ', LENGTH(external_id), ':', external_id, LENGTH(owner), ':', owner,
    LENGTH(principal), ':', principal, LENGTH(permits), ':', permits, '0:')
  WHERE count = 0;

ALTER TABLE feed
  DROP COLUMN what,
  DROP COLUMN end_reason,
  DROP COLUMN external_id,
  DROP COLUMN owner,
  DROP COLUMN principal,
  DROP COLUMN permits;

ALTER TABLE feed_head
  ADD COLUMN durable BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'readers see the numbers up to this one: their transaction is flushed',
  ADD COLUMN flushes BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '+1 by a task that only flushes the numbers of another one';

CREATE TABLE feed_full (
  id TINYINT UNSIGNED NOT NULL               COMMENT 'always 1',
  full TINYINT UNSIGNED NOT NULL             COMMENT '1: batches write no events',
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='a batch that leaves events out locks the row until it ends';

INSERT IGNORE INTO feed_full (id, full) SELECT 1, full<>0 FROM feed_head WHERE id=1;

ALTER TABLE feed_head
  DROP COLUMN full,
  DROP COLUMN since;
