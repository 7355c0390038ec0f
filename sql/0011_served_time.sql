-- SPDX-License-Identifier: MIT
-- permitd: served time goes on by the clocks of the permitd, not by the database's (docs/design.md, "Time"). The columns
-- are the same, but an older permitd writes other values into them, and ends permits by the database's clock. So it gets
-- the time to notice the new version, and to serve no more.

DO (SELECT SLEEP(8) FROM server WHERE dead_at IS NULL LIMIT 1);

ALTER TABLE cluster
  MODIFY tick_at DATETIME(6) NOT NULL        COMMENT 'lease clock at the last tick, + offset_us: about the database''s clock then',
  MODIFY offset_us BIGINT NOT NULL           COMMENT 'lease clock (served time) = database''s clock - this, from tick_at on and for at most 5 s; for what rows store, not for what has ended';
