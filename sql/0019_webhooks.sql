-- Webhooks: events of the feed are sent to the URL that a semaphore names (docs/design.md, "Webhooks").
ALTER TABLE semaphore
  ADD COLUMN feed_url VARBINARY(1100) NULL COMMENT 'to which its events are sent, with a namespace as in a stored key; NULL: none';

ALTER TABLE semaphore
  ADD KEY semaphore_feed_url (feed_url, retired_at);

ALTER TABLE template
  ADD COLUMN feed_url VARBINARY(1100) NULL COMMENT 'as in semaphore',
  ADD KEY template_feed_url (feed_url);

CREATE TABLE webhook (
  url VARBINARY(1100) NOT NULL               COMMENT 'as in semaphore.feed_url',
  namings BIGINT UNSIGNED NOT NULL           COMMENT '+1 with each change that names it: the row is deleted only if it has not risen',
  epoch BIGINT UNSIGNED NOT NULL             COMMENT 'with seq the position: the events up to there were taken, or are of other semaphores',
  seq BIGINT UNSIGNED NOT NULL               COMMENT 'feed.seq',
  server_id BIGINT UNSIGNED NOT NULL         COMMENT 'server.id of the permitd that sends to it; 0: none does',
  claimed_until DATETIME(6) NULL             COMMENT 'served time; NULL unless server_id is set',
  failures INT UNSIGNED NOT NULL             COMMENT 'calls that failed since the last that did not',
  retry_at DATETIME(6) NULL                  COMMENT 'served time: no call before; NULL: at once',
  status SMALLINT UNSIGNED NOT NULL          COMMENT 'HTTP status of the last call; 0: none, or no answer',
  error VARBINARY(255) NOT NULL              COMMENT 'why the last call failed; empty: it did not',
  called_at DATETIME(6) NULL                 COMMENT 'the database''s clock at the end of the last call; NULL: none yet',
  failing_since DATETIME(6) NULL             COMMENT 'the same of the first of these failures; NULL: none',
  PRIMARY KEY (url)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='the URLs that semaphores and templates name, and how far each is';
