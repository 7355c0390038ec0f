-- Checks the caller, finds the request of its key, and locks the row if it is held. A request that has ended, waits or is not there
-- takes no lock: a locking read of a key that is not there would lock the gap, in which others insert.
-- OUT p_state: NULL is unknown. p_errand and p_sold are set if it is held, as of the lock.
CREATE /*M! OR REPLACE */ PROCEDURE permit_find(IN p_key VARBINARY(4096), OUT p_id BIGINT UNSIGNED, OUT p_state INT, OUT p_reason INT, OUT p_errand INT, OUT p_sold BOOL)
  MODIFIES SQL DATA SQL SECURITY DEFINER
BEGIN
  DECLARE v_namespace VARBINARY(32);
  DECLARE v_bad VARCHAR(64);
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  -- Outside a transaction each statement would be one of its own. MySQL shows that by a savepoint that is gone at once; 1305 is
  -- also "no such procedure", so its handler ends here. On MariaDB a savepoint would keep a refused INSERT of a caller's trigger.
  /*M! IF @@autocommit AND NOT @@in_transaction THEN
    SET v_bad = 'permit: no transaction';
  END IF; */
  /*!80000 BEGIN
    DECLARE CONTINUE HANDLER FOR 1305 SET v_bad = 'permit: no transaction';
    SAVEPOINT permitd_procedure;
    RELEASE SAVEPOINT permitd_procedure;
  END; */
  IF /*!80000 @@transaction_isolation *//*M! @@tx_isolation */ = 'SERIALIZABLE' THEN -- its plain reads lock
    SET v_bad = 'permit: serializable';
  END IF;
  SELECT namespace INTO v_namespace FROM sql_account FORCE INDEX (PRIMARY)
   WHERE user = LEFT(USER(), CHAR_LENGTH(USER()) - LOCATE('@', REVERSE(USER())));
  IF v_namespace IS NULL THEN
    SET v_bad = 'permit: forbidden';
  END IF;
  IF v_bad IS NOT NULL THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_bad;
  END IF;
  IF LOCATE(x'01', p_key) = 0 THEN -- it would reach into another namespace
    SELECT id, state, end_reason INTO p_id, p_state, p_reason FROM permit_request FORCE INDEX (permit_request_external_id)
     WHERE external_id = IF(v_namespace = '', p_key, CONCAT(x'01', v_namespace, x'01', p_key));
  END IF;
  IF p_state = 1 THEN
    SET p_state = NULL; -- a snapshot may show a row that is deleted by now
    SELECT state, end_reason, errand, confirmed_at IS NOT NULL INTO p_state, p_reason, p_errand, p_sold
      FROM permit_request FORCE INDEX (PRIMARY) WHERE id = p_id FOR UPDATE;
  END IF;
END
