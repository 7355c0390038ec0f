-- SPDX-License-Identifier: MIT
-- Fencing guard with the mark in the row, for MariaDB 10.6+ and MySQL 8.0+ (docs/fencing.md). It guards single rows that
-- one holder at a time writes. Load this file into the database with your tables, and add to each table a column for the
-- mark and a trigger:
--
--     mariadb shop < mariadb-row.sql
--
--     ALTER TABLE report ADD permit_token BIGINT UNSIGNED NOT NULL DEFAULT 0;
--     CREATE TRIGGER report_permit_fence BEFORE UPDATE ON report FOR EACH ROW
--         SET NEW.permit_token = IF(NEW.permit_token BETWEEN OLD.permit_token
--                 AND (TIMESTAMPDIFF(SECOND, '2026-01-01', UTC_TIMESTAMP()) + 86400) * 1024000,
--             NEW.permit_token, permit_fence_row('report', NEW.permit_token, OLD.permit_token));
--     CREATE TRIGGER report_permit_fence_new BEFORE INSERT ON report FOR EACH ROW
--         SET NEW.permit_token = IF(NEW.permit_token
--                 BETWEEN 0 AND (TIMESTAMPDIFF(SECOND, '2026-01-01', UTC_TIMESTAMP()) + 86400) * 1024000,
--             NEW.permit_token, permit_fence_row('report', NEW.permit_token, NULL));
--
-- (Both triggers refuse tokens larger than any issued so far, as mariadb.sql explains: one would lock out all writers of
-- the row.) Loading the file again, as the same user, keeps grants (on MySQL as in mariadb.sql). It does not load if
-- another user owns the function.
--
-- If the server writes a binary log, creating functions and triggers requires SUPER or
-- log_bin_trust_function_creators = 1.
--
-- A writer sets its token in each write, in a transaction or not:
--
--     UPDATE report SET ..., permit_token = 57 WHERE id = 7;
--
-- SQLSTATE PF001: stale token; a newer holder has written this row. Stop writing. SQLSTATE PF002: invalid token. In both
-- cases the statement has changed no row.
--
-- Not guarded: rows that no newer holder has written yet; writes that set no token; new rows; DELETE (add the condition
-- AND permit_token <= 57), REPLACE, TRUNCATE.

SET @permit_fence_stranger = (
  SELECT MIN(CONCAT('function permit_fence_row belongs to ', DEFINER, ', not to ', CURRENT_USER()))
    FROM information_schema.ROUTINES
   WHERE ROUTINE_SCHEMA = DATABASE() AND ROUTINE_TYPE = 'FUNCTION' AND ROUTINE_NAME = 'permit_fence_row'
     AND DEFINER <> CURRENT_USER());
SELECT @permit_fence_stranger AS 'not loaded' FROM (SELECT 1) AS once WHERE @permit_fence_stranger IS NOT NULL;
SET @permit_fence_refuse = IF(@permit_fence_stranger IS NULL, 'DO 0', CONCAT(
  'SIGNAL SQLSTATE ''45000'' SET MESSAGE_TEXT = ', QUOTE(CONCAT('not loaded: ', @permit_fence_stranger))));
PREPARE permit_fence_refuse FROM @permit_fence_refuse;
EXECUTE permit_fence_refuse;
DEALLOCATE PREPARE permit_fence_refuse;

SET @permit_fence_sql_mode = @@sql_mode;
SET sql_mode = 'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES';

-- As in mariadb.sql.
/*!80000 SET @permit_fence_max_len = @@group_concat_max_len, group_concat_max_len = 4194304, @permit_fence_to = NULL */;
/*!80000 SET @permit_fence_read = IF(
  EXISTS (SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'mysql' AND TABLE_NAME = 'procs_priv'),
  'SELECT GROUP_CONCAT(QUOTE(User), ''@'', QUOTE(Host)) INTO @permit_fence_to
     FROM mysql.procs_priv
    WHERE Db = DATABASE() AND Routine_type = ''FUNCTION'' AND Routine_name = ''permit_fence_row''
      AND FIND_IN_SET(''Execute'', Proc_priv) AND CONCAT(User, ''@'', Host) <> CURRENT_USER()
      AND LENGTH(QUOTE(CONCAT(User, Host))) = LENGTH(User) + LENGTH(Host) + 2', 'DO 0') */;
/*!80000 PREPARE permit_fence_read FROM @permit_fence_read */;
/*!80000 EXECUTE permit_fence_read */;
/*!80000 DEALLOCATE PREPARE permit_fence_read */;
DROP FUNCTION IF EXISTS /*!80000 permit_fence_row */ /*M!100600 permit_fence_of_mysql */;

DELIMITER //

-- Called by a trigger of a table if the token of a row would decrease or is invalid. Never returns. `newer` is NULL in
-- INSERT.
CREATE /*M!100600 OR REPLACE */ FUNCTION permit_fence_row(of_table VARCHAR(64), with_token DECIMAL(20), newer DECIMAL(20)) RETURNS INT
NO SQL
BEGIN
  IF (with_token < newer) IS NOT TRUE THEN
    SIGNAL SQLSTATE 'PF002' SET MESSAGE_TEXT = 'permit_fence_row: permit_token cannot be';
  END IF;
  SET @permit_fence_text = CONCAT('stale token ', with_token, ': a row of ', of_table, ' has seen ', newer);
  SIGNAL SQLSTATE 'PF001' SET MESSAGE_TEXT = @permit_fence_text;
  RETURN 0;
END //

DELIMITER ;

SET sql_mode = @permit_fence_sql_mode;

-- MySQL: as read above.
/*!80000 SET @permit_fence_grant = COALESCE(CONCAT('GRANT EXECUTE ON FUNCTION permit_fence_row TO ', @permit_fence_to), 'DO 0') */;
/*!80000 PREPARE permit_fence_grant FROM @permit_fence_grant */;
/*!80000 EXECUTE permit_fence_grant */;
/*!80000 DEALLOCATE PREPARE permit_fence_grant */;
/*!80000 SET group_concat_max_len = @permit_fence_max_len */;
