-- SPDX-License-Identifier: MIT
-- The fencing guard for MariaDB 10.6+ and MySQL 8.0+ (docs/fencing.md): refuses writers whose permit has passed on to
-- somebody else. Load it into the database that holds your tables, as the user who shall own it:
--
--     mariadb shop < mariadb.sql
--     GRANT EXECUTE ON PROCEDURE shop.permit_fence TO app@'%';   -- writers need no right to the table
--
-- A writer calls it in the transaction of its write, first of all, with what its grant says:
--
--     START TRANSACTION;
--     CALL permit_fence('backups', '3', 57);       -- semaphore, slots as in PERMIT_SLOTS ('3' or '3,4'), token
--     UPDATE ... ;
--     COMMIT;
--
-- SQLSTATE PF001: the token is stale, somebody has written there with a newer one: ROLLBACK, and write no more.
-- SQLSTATE PF002: the arguments make no sense. A refused call has changed nothing, on none of its slots.
-- Any other error is no refusal; after 1205, 1213 and 1020 run the whole transaction again.
--
-- A call locks its rows, in ascending order, until the transaction ends: who has passed has also committed before
-- anybody newer passes. Several calls in one transaction: in ascending order of names, so that nobody deadlocks.
--
-- Where it is single rows that are guarded, the mark can stand in the row itself, for a sixth of the cost: mariadb-row.sql.

-- The procedures keep these settings, whatever their callers have set. Without strict mode what a caller passes may
-- have been cut on its way in: hence parameters that are longer than what is allowed.
SET @permit_fence_sql_mode = @@sql_mode;
SET sql_mode = 'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES';

CREATE TABLE IF NOT EXISTS permit_fence (
  semaphore VARBINARY(255) NOT NULL             COMMENT 'its name; equal means equal bytes',
  slot BIGINT UNSIGNED NOT NULL DEFAULT 0       COMMENT 'from 1 up; 0: a resource, or the floor',
  resource VARBINARY(255) NOT NULL DEFAULT ''   COMMENT 'empty: a slot, or the floor',
  token BIGINT UNSIGNED NOT NULL                COMMENT 'the largest that has passed here; it never falls',
  PRIMARY KEY (semaphore, slot, resource)
) ENGINE=InnoDB COMMENT='the newest token of each place that is written under a permit';

DROP PROCEDURE IF EXISTS permit_fence;
DROP PROCEDURE IF EXISTS permit_fence_resource;
DROP PROCEDURE IF EXISTS permit_fence_floor;
DROP PROCEDURE IF EXISTS permit_fence_raise_floor;

DELIMITER //

-- Passes if no larger token has passed on any of these slots, and raises all of them to this one; or else none.
-- The upsert locks the rows in order of slots and writes only those that rise. NULL for a NOT NULL column (1048) ends
-- it at the first row that is ahead of the token, and takes back the others. That row leaves its token in a variable:
-- to read it again would mean more locks, in another order.
CREATE PROCEDURE permit_fence(of_semaphore VARBINARY(256), at_slots VARBINARY(12000), with_token BIGINT)
MODIFIES SQL DATA
BEGIN
  DECLARE EXIT HANDLER FOR 1048
  BEGIN
    SET @permit_fence_text = CONCAT('stale token ', with_token, ': slot ', @permit_fence_slot, ' of ',
                                    LEFT(CONVERT(of_semaphore USING utf8mb4), 50), ' has seen ', @permit_fence_newer);
    SIGNAL SQLSTATE 'PF001' SET MESSAGE_TEXT = @permit_fence_text;
  END;

  -- One slot is the usual case and takes a quarter of the time that REGEXP and JSON_TABLE would take.
  IF LOCATE(',', at_slots) = 0 THEN
    IF (LENGTH(of_semaphore) BETWEEN 1 AND 255 AND with_token BETWEEN 1 AND 9007199254740991
        AND CAST(at_slots AS UNSIGNED) BETWEEN 1 AND 999999999
        AND CAST(CAST(at_slots AS UNSIGNED) AS BINARY) = at_slots) IS NOT TRUE THEN
      SIGNAL SQLSTATE 'PF002' SET MESSAGE_TEXT = 'permit_fence: semaphore, slots (3 or 3,4) or token cannot be';
    END IF;
    INSERT INTO permit_fence (semaphore, slot, token) VALUES (of_semaphore, at_slots, with_token)
        ON DUPLICATE KEY UPDATE token = IF(permit_fence.token <= with_token, with_token,
            IF((@permit_fence_slot := permit_fence.slot) AND (@permit_fence_newer := permit_fence.token), NULL, NULL));
  ELSE
    IF (LENGTH(of_semaphore) BETWEEN 1 AND 255 AND with_token BETWEEN 1 AND 9007199254740991
        AND LENGTH(at_slots) < 12000
        AND CONVERT(at_slots USING utf8mb4) REGEXP '^[1-9][0-9]{0,8}(,[1-9][0-9]{0,8})*\z') IS NOT TRUE THEN
      SIGNAL SQLSTATE 'PF002' SET MESSAGE_TEXT = 'permit_fence: semaphore, slots (3 or 3,4) or token cannot be';
    END IF;
    INSERT INTO permit_fence (semaphore, slot, token)
    SELECT of_semaphore, wanted.slot, with_token
      FROM JSON_TABLE(CONCAT('[', CONVERT(at_slots USING utf8mb4), ']'), '$[*]'
                      COLUMNS (slot BIGINT UNSIGNED PATH '$')) AS wanted
     ORDER BY wanted.slot
        ON DUPLICATE KEY UPDATE token = IF(permit_fence.token <= with_token, with_token,
            IF((@permit_fence_slot := permit_fence.slot) AND (@permit_fence_newer := permit_fence.token), NULL, NULL));
  END IF;
END //

-- For counted semaphores, whose permits have no slots. The maximum is that of the resource which is written: right only
-- where one holder at a time writes it.
CREATE PROCEDURE permit_fence_resource(of_semaphore VARBINARY(256), of_resource VARBINARY(256), with_token BIGINT)
MODIFIES SQL DATA
BEGIN
  DECLARE EXIT HANDLER FOR 1048
  BEGIN
    SET @permit_fence_text = CONCAT('stale token ', with_token, ': ',
                                    LEFT(COALESCE(CONVERT(of_resource USING utf8mb4), '?'), 25), ' of ',
                                    LEFT(CONVERT(of_semaphore USING utf8mb4), 25), ' has seen ', @permit_fence_newer);
    SIGNAL SQLSTATE 'PF001' SET MESSAGE_TEXT = @permit_fence_text;
  END;

  IF (LENGTH(of_semaphore) BETWEEN 1 AND 255 AND LENGTH(of_resource) BETWEEN 1 AND 255
      AND with_token BETWEEN 1 AND 9007199254740991) IS NOT TRUE THEN
    SIGNAL SQLSTATE 'PF002' SET MESSAGE_TEXT = 'permit_fence_resource: semaphore, resource or token cannot be';
  END IF;

  INSERT INTO permit_fence (semaphore, resource, token) VALUES (of_semaphore, of_resource, with_token)
      ON DUPLICATE KEY UPDATE token = IF(permit_fence.token <= with_token, with_token,
          IF(@permit_fence_newer := permit_fence.token, NULL, NULL));
END //

-- For counted semaphores where several holders write the same: refuses what is below the highest floor that was told.
-- Never refuses a live holder, and a stale one only when no older permit than his is live any more. Holders share the
-- lock.
CREATE PROCEDURE permit_fence_floor(of_semaphore VARBINARY(256), with_token BIGINT)
MODIFIES SQL DATA
BEGIN
  DECLARE highest BIGINT UNSIGNED;

  SELECT f.token INTO highest FROM permit_fence f
   WHERE f.semaphore = of_semaphore AND f.slot = 0 AND f.resource = '' LOCK IN SHARE MODE;
  IF (highest IS NOT NULL AND with_token BETWEEN 1 AND 9007199254740991) IS NOT TRUE THEN
    SIGNAL SQLSTATE 'PF002' SET MESSAGE_TEXT = 'permit_fence_floor: no floor was told yet, or the token cannot be';
  END IF;
  IF with_token < highest THEN
    SET @permit_fence_text = CONCAT('stale token ', with_token, ': the floor of ',
                                    LEFT(CONVERT(of_semaphore USING utf8mb4), 50), ' has seen ', highest);
    SIGNAL SQLSTATE 'PF001' SET MESSAGE_TEXT = @permit_fence_text;
  END IF;
END //

-- What a holder tells first: the floor that its grant names. In a transaction of its own. A floor never falls.
CREATE PROCEDURE permit_fence_raise_floor(of_semaphore VARBINARY(256), to_floor BIGINT)
MODIFIES SQL DATA
BEGIN
  IF (LENGTH(of_semaphore) BETWEEN 1 AND 255 AND to_floor BETWEEN 1 AND 9007199254740991) IS NOT TRUE THEN
    SIGNAL SQLSTATE 'PF002' SET MESSAGE_TEXT = 'permit_fence_raise_floor: semaphore or floor cannot be';
  END IF;
  INSERT INTO permit_fence (semaphore, token) VALUES (of_semaphore, to_floor)
      ON DUPLICATE KEY UPDATE token = GREATEST(permit_fence.token, to_floor);
END //

DELIMITER ;

SET sql_mode = @permit_fence_sql_mode;
