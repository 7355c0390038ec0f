-- SPDX-License-Identifier: MIT
-- The fencing guard in the row itself, for MariaDB 10.6+ and MySQL 8.0+ (docs/fencing.md): where what is guarded is
-- single rows, each written by one holder at a time. Load this file into the database that holds your tables, and give
-- each table a column for the mark and a trigger:
--
--     mariadb shop < mariadb-row.sql
--
--     ALTER TABLE report ADD permit_token BIGINT UNSIGNED NOT NULL DEFAULT 0;
--     CREATE TRIGGER report_permit_fence BEFORE UPDATE ON report FOR EACH ROW
--         SET NEW.permit_token = IF(NEW.permit_token BETWEEN OLD.permit_token AND 9007199254740991,
--             NEW.permit_token, permit_fence_row('report', NEW.permit_token, OLD.permit_token));
--
-- Where the server writes a binary log, functions and triggers are made by who has SUPER, or with
-- log_bin_trust_function_creators = 1.
--
-- A writer says its token in each write, in a transaction or not:
--
--     UPDATE report SET ..., permit_token = 57 WHERE id = 7;
--
-- SQLSTATE PF001: the token is stale, somebody has written this row with a newer one: write no more. SQLSTATE PF002: the
-- token cannot be. The statement has changed nothing, in none of its rows.
--
-- Not guarded: rows that nobody newer has written yet; writes that say no token; INSERT; DELETE (say so: AND
-- permit_token <= 57), REPLACE, TRUNCATE.

SET @permit_fence_sql_mode = @@sql_mode;
SET sql_mode = 'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES';

DROP FUNCTION IF EXISTS permit_fence_row;

DELIMITER //

-- What the trigger of a table calls when a row's token would fall or cannot be. It never returns.
CREATE FUNCTION permit_fence_row(of_table VARCHAR(64), with_token DECIMAL(20), newer DECIMAL(20)) RETURNS INT
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
