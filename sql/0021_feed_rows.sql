-- The feed: a row has many events of a batch (docs/design.md, "The feed").
-- From here on a permitd of before cannot write events: its rows have no `events`.
ALTER TABLE feed
  ADD COLUMN count INT UNSIGNED NOT NULL     COMMENT 'of its events: their numbers are seq and those that follow',
  ADD COLUMN events MEDIUMBLOB NOT NULL      COMMENT 'one behind the other (src/core/feed.h)',
  MODIFY COLUMN seq BIGINT UNSIGNED NULL     COMMENT 'the number of its first event, from 1 without gaps; NULL: not numbered yet, readers do not see it';

UPDATE feed SET count = 1,
  events = CONCAT(what, ' ', end_reason, ' ', LENGTH(external_id), ':', external_id, LENGTH(owner), ':', owner,
    LENGTH(principal), ':', principal, LENGTH(permits), ':', permits)
  WHERE count = 0;

ALTER TABLE feed
  DROP COLUMN what,
  DROP COLUMN end_reason,
  DROP COLUMN external_id,
  DROP COLUMN owner,
  DROP COLUMN principal,
  DROP COLUMN permits;
