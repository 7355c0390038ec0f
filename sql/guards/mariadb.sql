-- SPDX-License-Identifier: MIT
-- Fencing guard for MariaDB 10.6+ and MySQL 8.0+ (docs/fencing.md): refuses writers whose permit has passed to another
-- client. Load it into the database with your tables, as the user that will own it:
--
--     mariadb shop < mariadb.sql
--     GRANT EXECUTE ON PROCEDURE shop.permit_fence TO app@'%';   -- writers need no right to the table
--
-- (Grant permit_fence_resource, or permit_fence_floor and permit_fence_raise_floor, if you call those.) Loading it again,
-- as the same user, keeps marks and grants. On MySQL, which cannot replace a procedure, it keeps the right EXECUTE, if the
-- user may read mysql.procs_priv and grant that right; otherwise grant again. It does not load, and changes nothing, if
-- another user owns one of its names, or if permit_fence is a different table.
--
-- A writer calls it first in the transaction of its write, with the values of its grant:
--
--     START TRANSACTION;
--     CALL permit_fence('backups', '3', 57);       -- semaphore, slots as in PERMIT_SLOTS ('3' or '3,4'), token
--     UPDATE ... ;
--     COMMIT;
--
-- SQLSTATE PF001: stale token; a newer holder has written there. ROLLBACK and stop writing.
-- SQLSTATE PF002: invalid arguments. A refused call has changed none of its slots.
-- Any other error is not a refusal; after 1205, 1213 and 1020 run the whole transaction again.
--
-- A call locks its rows, in ascending order, until the transaction ends: a writer that has passed has committed before a
-- newer one passes. Make several calls in one transaction in ascending order of names, to prevent deadlocks.
--
-- To guard single rows, the mark can be in the row itself, at a sixth of the cost: mariadb-row.sql.

-- Finds objects of these names that belong to another user. That user could change such a procedure at any time; a view,
-- a trigger or another table would replace the marks. The check uses no procedure, because another user could replace it
-- before the call.
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
       AND (t.TABLE_TYPE = 'BASE TABLE' AND t.ENGINE = 'InnoDB' AND t.CREATE_OPTIONS NOT LIKE '%partitioned%'
            AND (SELECT GROUP_CONCAT(c.COLUMN_NAME, ' ', REPLACE(c.COLUMN_TYPE, '(20)', ''), ' ', c.IS_NULLABLE, c.EXTRA,
                                     IF(COALESCE(c.COLUMN_DEFAULT, '') IN ('', '''''', '0x'), '', c.COLUMN_DEFAULT)
                                     ORDER BY c.ORDINAL_POSITION SEPARATOR ', ')
                   FROM information_schema.COLUMNS c
                  WHERE c.TABLE_SCHEMA = DATABASE() AND c.TABLE_NAME = 'permit_fence')
                = 'semaphore varbinary(255) NO, slot bigint unsigned NO0, resource varbinary(255) NO, token bigint unsigned NO'
            AND (SELECT GROUP_CONCAT(k.CONSTRAINT_TYPE) FROM information_schema.TABLE_CONSTRAINTS k
                  WHERE k.TABLE_SCHEMA = DATABASE() AND k.TABLE_NAME = 'permit_fence') = 'PRIMARY KEY'
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

-- The procedures keep these settings, whatever their callers have set. If a caller has no strict mode, its arguments may
-- be truncated: the parameters are longer than the allowed values so that the checks notice.
SET @permit_fence_sql_mode = @@sql_mode;
SET sql_mode = 'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES';

CREATE TABLE IF NOT EXISTS permit_fence (
  semaphore VARBINARY(255) NOT NULL             COMMENT 'its name; equal means equal bytes',
  slot BIGINT UNSIGNED NOT NULL DEFAULT 0       COMMENT 'from 1 up; 0: a resource, or the floor',
  resource VARBINARY(255) NOT NULL DEFAULT ''   COMMENT 'empty: a slot, or the floor',
  token BIGINT UNSIGNED NOT NULL                COMMENT 'largest token that has passed here; never decreases',
  PRIMARY KEY (semaphore, slot, resource)
) ENGINE=InnoDB COMMENT='newest token of each place written under a permit';

-- MySQL must drop a procedure to replace it, and its grants with it: who has the right EXECUTE is read here, and granted it
-- again at the end. MariaDB replaces it below, keeping its grants, and neither reads nor drops anything here.
/*!80000 SET @permit_fence_max_len = @@group_concat_max_len, group_concat_max_len = 4194304 */;
/*!80000 SET @permit_fence_to = NULL, @permit_fence_resource_to = NULL, @permit_fence_floor_to = NULL,
             @permit_fence_raise_floor_to = NULL */;
/*!80000 SET @permit_fence_read = IF(
  EXISTS (SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'mysql' AND TABLE_NAME = 'procs_priv'),
  'SELECT GROUP_CONCAT(IF(routine = ''permit_fence'', grantee, NULL)),
          GROUP_CONCAT(IF(routine = ''permit_fence_resource'', grantee, NULL)),
          GROUP_CONCAT(IF(routine = ''permit_fence_floor'', grantee, NULL)),
          GROUP_CONCAT(IF(routine = ''permit_fence_raise_floor'', grantee, NULL))
     INTO @permit_fence_to, @permit_fence_resource_to, @permit_fence_floor_to, @permit_fence_raise_floor_to
     FROM (SELECT Routine_name AS routine, CONCAT(QUOTE(User), ''@'', QUOTE(Host)) AS grantee
             FROM mysql.procs_priv
            WHERE Db = DATABASE() AND Routine_type = ''PROCEDURE'' AND FIND_IN_SET(''Execute'', Proc_priv)
              AND CONCAT(User, ''@'', Host) <> CURRENT_USER()
              AND LENGTH(QUOTE(CONCAT(User, Host))) = LENGTH(User) + LENGTH(Host) + 2) AS granted', 'DO 0') */;
/*!80000 PREPARE permit_fence_read FROM @permit_fence_read */;
/*!80000 EXECUTE permit_fence_read */;
/*!80000 DEALLOCATE PREPARE permit_fence_read */;
DROP PROCEDURE IF EXISTS /*!80000 permit_fence */ /*M!100600 permit_fence_of_mysql */;
DROP PROCEDURE IF EXISTS /*!80000 permit_fence_resource */ /*M!100600 permit_fence_of_mysql */;
DROP PROCEDURE IF EXISTS /*!80000 permit_fence_floor */ /*M!100600 permit_fence_of_mysql */;
DROP PROCEDURE IF EXISTS /*!80000 permit_fence_raise_floor */ /*M!100600 permit_fence_of_mysql */;

DELIMITER //

-- Names are text and are converted from the caller's character set, so that the same name has the same bytes for all.
--
-- A token is refused if it is larger than any that can have been issued by now, plus a day for wrong clocks: a token of
-- epoch e is e * 1024 or slightly more, and epochs are milliseconds since 2026. It would lock out all writers
-- permanently. (One that passes by mistake locks them out until a `permitctl fence bump` a day later.)

-- Passes if no larger token has passed on any of these slots, and raises all marks to this token; otherwise raises none.
-- The upsert locks the rows in order of slots and writes only marks that rise. At the first row with a larger token, NULL
-- for a NOT NULL column (error 1048) ends the statement and undoes the other rows. That row leaves its token in a
-- variable: reading it again would take more locks, in a different order.
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

  -- One slot is the usual case; it takes a quarter of the time of REGEXP and JSON_TABLE.
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

-- For counted semaphores, whose permits have no slots. The mark belongs to the resource that is written: correct only if
-- one holder at a time writes it.
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

-- For counted semaphores whose holders write the same resource: refuses tokens below the highest floor raised so far.
-- Never refuses a live holder. Refuses a stale one only after no permit older than its own is live. Holders share the
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

-- Raises the floor to that of the caller's grant; a holder calls it first, in a separate transaction. A floor never falls.
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

-- MySQL: as read above.
/*!80000 SET @permit_fence_grant = COALESCE(CONCAT('GRANT EXECUTE ON PROCEDURE permit_fence TO ', @permit_fence_to), 'DO 0') */;
/*!80000 PREPARE permit_fence_grant FROM @permit_fence_grant */;
/*!80000 EXECUTE permit_fence_grant */;
/*!80000 SET @permit_fence_grant = COALESCE(CONCAT('GRANT EXECUTE ON PROCEDURE permit_fence_resource TO ', @permit_fence_resource_to), 'DO 0') */;
/*!80000 PREPARE permit_fence_grant FROM @permit_fence_grant */;
/*!80000 EXECUTE permit_fence_grant */;
/*!80000 SET @permit_fence_grant = COALESCE(CONCAT('GRANT EXECUTE ON PROCEDURE permit_fence_floor TO ', @permit_fence_floor_to), 'DO 0') */;
/*!80000 PREPARE permit_fence_grant FROM @permit_fence_grant */;
/*!80000 EXECUTE permit_fence_grant */;
/*!80000 SET @permit_fence_grant = COALESCE(CONCAT('GRANT EXECUTE ON PROCEDURE permit_fence_raise_floor TO ', @permit_fence_raise_floor_to), 'DO 0') */;
/*!80000 PREPARE permit_fence_grant FROM @permit_fence_grant */;
/*!80000 EXECUTE permit_fence_grant */;
/*!80000 DEALLOCATE PREPARE permit_fence_grant */;
/*!80000 SET group_concat_max_len = @permit_fence_max_len */;
