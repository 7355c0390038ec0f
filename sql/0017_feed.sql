-- The feed: what happened to requests, in order (docs/design.md, "The feed").
ALTER TABLE semaphore
  ADD COLUMN feed TINYINT UNSIGNED NOT NULL DEFAULT 1 COMMENT '1 none, 2 sales, 3 all: what the feed tells of it';

ALTER TABLE template
  ADD COLUMN feed TINYINT UNSIGNED NOT NULL DEFAULT 1 COMMENT 'as in semaphore';

CREATE TABLE feed (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT COMMENT 'in the order of the changes of each key and of each semaphore',
  seq BIGINT UNSIGNED NULL                   COMMENT 'from 1 without gaps; NULL: not numbered yet, readers do not see it',
  at DATETIME(6) NOT NULL                    COMMENT 'the database''s clock',
  what TINYINT UNSIGNED NOT NULL             COMMENT '1 waiting, 2 acquired, 3 renewed, 4 confirmed, 5 ended, 6 gap, 7 changed',
  end_reason TINYINT UNSIGNED NOT NULL       COMMENT 'ended: as in permit_request; else 0',
  external_id VARBINARY(289) NOT NULL        COMMENT 'as in permit_request; empty: gap',
  owner VARBINARY(289) NOT NULL              COMMENT 'as in permit_request',
  principal VARBINARY(255) NOT NULL          COMMENT 'as in permit_request',
  permits MEDIUMBLOB NOT NULL                COMMENT 'those of semaphores in the feed, one per line: name, count, token, slots (src/core/feed.h)',
  PRIMARY KEY (id),
  UNIQUE KEY feed_seq (seq)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='events of requests, complete: a request may be deleted earlier';

CREATE TABLE feed_head (
  id TINYINT UNSIGNED NOT NULL               COMMENT 'always 1',
  seq BIGINT UNSIGNED NOT NULL               COMMENT 'the last number that was given',
  full TINYINT UNSIGNED NOT NULL             COMMENT '0 no, 1 batches write no events, 2 they do again, and the second gap is to be written',
  since DATETIME(6) NOT NULL                 COMMENT 'of that, by the database''s clock',
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='the end of the feed; its lock orders the numbering';

INSERT IGNORE INTO feed_head (id, seq, full, since) VALUES (1, 0, 0, UTC_TIMESTAMP(6));

CREATE TABLE feed_epoch (
  epoch BIGINT UNSIGNED NOT NULL             COMMENT 'cluster.epoch',
  seq BIGINT UNSIGNED NOT NULL               COMMENT 'feed_head.seq when this epoch began: numbers above it that an earlier epoch gave are lost',
  PRIMARY KEY (epoch)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='where the feed continued after each rise of the epoch';
