-- Guards: rows that the database refuses (docs/design.md, "The database refuses a plan that sells twice"). Existing rows are not
-- read, so each statement takes milliseconds, however large the table is: a CHECK of a table would copy it, while nothing is
-- written. On MariaDB the CHECK belongs to a column, whose definition is otherwise the same. MySQL copies for each CHECK, so there
-- a column that is computed from the others must not be NULL; it takes no room.
ALTER TABLE permit_request
  /*M! MODIFY COLUMN errand TINYINT UNSIGNED NOT NULL DEFAULT 0
    COMMENT 'done in SQL, and not settled by a batch yet, as bits: 1 confirmed, 2 to be released'
    CHECK ((errand = 0 OR (errand <= 3 AND state = 1 AND (errand <> 1 AND errand <> 3 OR confirmed_at IS NOT NULL)))
      AND (confirmed_at IS NULL OR state = 1 OR (state = 2 AND ended_at < '9999-12-31'))) */
  /*!80000 ADD COLUMN valid TINYINT GENERATED ALWAYS AS (IF(
      (errand = 0 OR (errand <= 3 AND state = 1 AND (errand <> 1 AND errand <> 3 OR confirmed_at IS NOT NULL)))
      AND (confirmed_at IS NULL OR state = 1 OR (state = 2 AND ended_at < '9999-12-31')), 1, NULL)) VIRTUAL NOT NULL
    COMMENT 'an errand is of a held request; a confirmed one is held or has an end' */;

ALTER TABLE permit
  /*M! MODIFY COLUMN count BIGINT NOT NULL COMMENT 'units' CHECK (count > 0) */
  /*!80000 ADD COLUMN valid TINYINT GENERATED ALWAYS AS (IF(count > 0, 1, NULL)) VIRTUAL NOT NULL COMMENT 'count > 0' */;

ALTER TABLE waiter
  /*M! MODIFY COLUMN count BIGINT NOT NULL COMMENT 'units that it wants' CHECK (count > 0) */
  /*!80000 ADD COLUMN valid TINYINT GENERATED ALWAYS AS (IF(count > 0, 1, NULL)) VIRTUAL NOT NULL COMMENT 'count > 0' */;

ALTER TABLE semaphore
  /*M! MODIFY COLUMN capacity BIGINT NOT NULL COMMENT 'units; 0: closed' CHECK (capacity >= 0) */
  /*!80000 ADD COLUMN valid TINYINT GENERATED ALWAYS AS (IF(capacity >= 0, 1, NULL)) VIRTUAL NOT NULL COMMENT 'capacity >= 0' */;

ALTER TABLE template
  /*M! MODIFY COLUMN capacity BIGINT NOT NULL COMMENT 'units; 0: closed' CHECK (capacity >= 0) */
  /*!80000 ADD COLUMN valid TINYINT GENERATED ALWAYS AS (IF(capacity >= 0, 1, NULL)) VIRTUAL NOT NULL COMMENT 'capacity >= 0' */;
