-- SPDX-License-Identifier: MIT
-- The fencing guard for MariaDB 10.6+ and MySQL 8.0+ (docs/fencing.md): refuses writers whose permit has passed on to
-- somebody else. Load it into the database that holds your tables, as the user who shall own it:
--
--     mariadb shop < mariadb.sql
--     GRANT EXECUTE ON PROCEDURE shop.permit_fence TO app@'%';   -- writers need no right to the table
--
-- (the same for permit_fence_resource, or permit_fence_floor and permit_fence_raise_floor, where those are called). Loading
-- it again, by the same user, keeps marks and grants; MySQL cannot replace a procedure, grant again there. It refuses to
-- load, and changes nothing, where something of its names is another user's, or is no such table.
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

-- Objects of these names that are not the loader's: another user could change such a procedure at any time, and a view, a
-- trigger or another table would stand in the place of the marks. The look needs no procedure of its own, as another user
-- could exchange that before it is called.
SET @permit_fence_stranger = (
  SELECT MIN(what) FROM (
    SELECT CONCAT('procedure ', ROUTINE_NAME, ' belongs to ', DEFINER, ', not to ', CURRENT_USER()) AS what
      FROM information_schema.ROUTINES
     WHERE ROUTINE_SCHEMA = DATABASE() AND DEFINER <> CURRENT_USER() AND ROUTINE_TYPE = 'PROCEDURE'
       AND ROUTINE_NAME IN ('permit_fence', 'permit_fence_resource', 'permit_fence_floor', 'permit_fence_raise_floor')
    UNION ALL
    SELECT CONCAT('permit_fence has a trigger ', TRIGGER_NAME, ' of ', DEFINER)
      FROM information_schema.TRIGGERS
     WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE = 'permit_fence'
    UNION ALL
    SELECT 'permit_fence is there, and is no such table'
      FROM information_schema.TABLES t
     WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = 'permit_fence'
       AND (t.TABLE_TYPE = 'BASE TABLE' AND t.ENGINE = 'InnoDB'
            AND (SELECT GROUP_CONCAT(c.COLUMN_NAME, ' ', c.DATA_TYPE, ' ', c.IS_NULLABLE, c.EXTRA
                                     ORDER BY c.ORDINAL_POSITION SEPARATOR ', ')
                   FROM information_schema.COLUMNS c
                  WHERE c.TABLE_SCHEMA = DATABASE() AND c.TABLE_NAME = 'permit_fence')
                = 'semaphore varbinary NO, slot bigint NO, resource varbinary NO, token bigint NO'
            AND (SELECT GROUP_CONCAT(i.INDEX_NAME, ' ', i.COLUMN_NAME ORDER BY i.INDEX_NAME, i.SEQ_IN_INDEX
                                     SEPARATOR ', ')
                   FROM information_schema.STATISTICS i
                  WHERE i.TABLE_SCHEMA = DATABASE() AND i.TABLE_NAME = 'permit_fence')
                = 'PRIMARY semaphore, PRIMARY slot, PRIMARY resource') IS NOT TRUE) AS found);
SELECT @permit_fence_stranger AS 'not loaded' FROM (SELECT 1) AS once WHERE @permit_fence_stranger IS NOT NULL;
SET @permit_fence_refuse = IF(@permit_fence_stranger IS NULL, 'DO 0', CONCAT(
  'SIGNAL SQLSTATE ''45000'' SET MESSAGE_TEXT = ', QUOTE(CONCAT('not loaded: ', @permit_fence_stranger))));
PREPARE permit_fence_refuse FROM @permit_fence_refuse;
EXECUTE permit_fence_refuse;
DEALLOCATE PREPARE permit_fence_refuse;

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

-- MariaDB replaces a procedure and keeps its grants, and drops nothing here; MySQL has to drop it.
DROP PROCEDURE IF EXISTS /*!80000 permit_fence */ /*M!100600 permit_fence_of_mysql */;
DROP PROCEDURE IF EXISTS /*!80000 permit_fence_resource */ /*M!100600 permit_fence_of_mysql */;
DROP PROCEDURE IF EXISTS /*!80000 permit_fence_floor */ /*M!100600 permit_fence_of_mysql */;
DROP PROCEDURE IF EXISTS /*!80000 permit_fence_raise_floor */ /*M!100600 permit_fence_of_mysql */;

DELIMITER //

-- Names come as text and are converted from the caller's character set, so that the same name is the same bytes for all.
--
-- A token is refused that is larger than any that can have been given out by now, and a day more for clocks that are
-- wrong: a token of epoch e is e * 1024 or a little more, and epochs are milliseconds since 2026. It would shut out all
-- writers for good. (One that passes by mistake shuts them out until a `permitctl fence bump` a day later.)

-- Passes if no larger token has passed on any of these slots, and raises all of them to this one; or else none.
-- The upsert locks the rows in order of slots and writes only those that rise. NULL for a NOT NULL column (1048) ends
-- it at the first row that is ahead of the token, and takes back the others. That row leaves its token in a variable:
-- to read it again would mean more locks, in another order.
CREATE /*M!100600 OR REPLACE */ PROCEDURE permit_fence(
  of_semaphore VARCHAR(256) CHARACTER SET utf8mb4, at_slots VARBINARY(12000), with_token BIGINT)
MODIFIES SQL DATA
BEGIN
  DECLARE EXIT HANDLER FOR 1048
  BEGIN
    SET @permit_fence_text = CONCAT('stale token ', with_token, ': slot ', @permit_fence_slot, ' of ',
                                    LEFT(of_semaphore, 50), ' has seen ', @permit_fence_newer);
    SIGNAL SQLSTATE 'PF001' SET MESSAGE_TEXT = @permit_fence_text;
  END;

  -- One slot is the usual case and takes a quarter of the time that REGEXP and JSON_TABLE would take.
  IF LOCATE(',', at_slots) = 0 THEN
    IF (LENGTH(of_semaphore) BETWEEN 1 AND 255
        AND with_token BETWEEN 1 AND (GREATEST(TIMESTAMPDIFF(SECOND, '2026-01-01', SYSDATE()), 0) + 86400) * 1024000
        AND CAST(at_slots AS UNSIGNED) BETWEEN 1 AND 999999999
        AND CAST(CAST(at_slots AS UNSIGNED) AS BINARY) = at_slots) IS NOT TRUE THEN
      SIGNAL SQLSTATE 'PF002' SET MESSAGE_TEXT = 'permit_fence: semaphore, slots (3 or 3,4) or token cannot be';
    END IF;
    INSERT INTO permit_fence (semaphore, slot, token) VALUES (of_semaphore, at_slots, with_token)
        ON DUPLICATE KEY UPDATE token = IF(permit_fence.token <= with_token, with_token,
            IF((@permit_fence_slot := permit_fence.slot) AND (@permit_fence_newer := permit_fence.token), NULL, NULL));
  ELSE
    IF (LENGTH(of_semaphore) BETWEEN 1 AND 255
        AND with_token BETWEEN 1 AND (GREATEST(TIMESTAMPDIFF(SECOND, '2026-01-01', SYSDATE()), 0) + 86400) * 1024000
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
CREATE /*M!100600 OR REPLACE */ PROCEDURE permit_fence_resource(
  of_semaphore VARCHAR(256) CHARACTER SET utf8mb4, of_resource VARCHAR(256) CHARACTER SET utf8mb4, with_token BIGINT)
MODIFIES SQL DATA
BEGIN
  DECLARE EXIT HANDLER FOR 1048
  BEGIN
    SET @permit_fence_text = CONCAT('stale token ', with_token, ': ', LEFT(of_resource, 25), ' of ',
                                    LEFT(of_semaphore, 25), ' has seen ', @permit_fence_newer);
    SIGNAL SQLSTATE 'PF001' SET MESSAGE_TEXT = @permit_fence_text;
  END;

  IF (LENGTH(of_semaphore) BETWEEN 1 AND 255 AND LENGTH(of_resource) BETWEEN 1 AND 255
      AND with_token BETWEEN 1 AND (GREATEST(TIMESTAMPDIFF(SECOND, '2026-01-01', SYSDATE()), 0) + 86400) * 1024000) IS NOT TRUE THEN
    SIGNAL SQLSTATE 'PF002' SET MESSAGE_TEXT = 'permit_fence_resource: semaphore, resource or token cannot be';
  END IF;

  INSERT INTO permit_fence (semaphore, resource, token) VALUES (of_semaphore, of_resource, with_token)
      ON DUPLICATE KEY UPDATE token = IF(permit_fence.token <= with_token, with_token,
          IF(@permit_fence_newer := permit_fence.token, NULL, NULL));
END //

-- For counted semaphores where several holders write the same: refuses what is below the highest floor that was told.
-- Never refuses a live holder, and a stale one only when no older permit than his is live any more. Holders share the
-- lock.
CREATE /*M!100600 OR REPLACE */ PROCEDURE permit_fence_floor(
  of_semaphore VARCHAR(256) CHARACTER SET utf8mb4, with_token BIGINT)
MODIFIES SQL DATA
BEGIN
  DECLARE highest BIGINT UNSIGNED;

  SELECT f.token INTO highest FROM permit_fence f
   WHERE f.semaphore = CONVERT(of_semaphore USING binary) AND f.slot = 0 AND f.resource = '' LOCK IN SHARE MODE;
  IF (highest IS NOT NULL
      AND with_token BETWEEN 1 AND (GREATEST(TIMESTAMPDIFF(SECOND, '2026-01-01', SYSDATE()), 0) + 86400) * 1024000) IS NOT TRUE THEN
    SIGNAL SQLSTATE 'PF002' SET MESSAGE_TEXT = 'permit_fence_floor: no floor was told yet, or the token cannot be';
  END IF;
  IF with_token < highest THEN
    SET @permit_fence_text = CONCAT('stale token ', with_token, ': the floor of ',
                                    LEFT(of_semaphore, 50), ' has seen ', highest);
    SIGNAL SQLSTATE 'PF001' SET MESSAGE_TEXT = @permit_fence_text;
  END IF;
END //

-- What a holder tells first: the floor that its grant names. In a transaction of its own. A floor never falls.
CREATE /*M!100600 OR REPLACE */ PROCEDURE permit_fence_raise_floor(
  of_semaphore VARCHAR(256) CHARACTER SET utf8mb4, to_floor BIGINT)
MODIFIES SQL DATA
BEGIN
  IF (LENGTH(of_semaphore) BETWEEN 1 AND 255
      AND to_floor BETWEEN 1 AND (GREATEST(TIMESTAMPDIFF(SECOND, '2026-01-01', SYSDATE()), 0) + 86400) * 1024000) IS NOT TRUE THEN
    SIGNAL SQLSTATE 'PF002' SET MESSAGE_TEXT = 'permit_fence_raise_floor: semaphore or floor cannot be';
  END IF;
  INSERT INTO permit_fence (semaphore, token) VALUES (of_semaphore, to_floor)
      ON DUPLICATE KEY UPDATE token = GREATEST(permit_fence.token, to_floor);
END //

DELIMITER ;

SET sql_mode = @permit_fence_sql_mode;
