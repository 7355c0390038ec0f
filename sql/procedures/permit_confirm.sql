-- Sells a hold in the transaction of the caller: notes the errand, and marks its row as confirmed, due or not, unless it has ended.
-- A batch of permitd settles it after the caller's COMMIT. Safe to repeat. It locks the row of the request and that of the errand,
-- and no other. The short way is inline, since each nested call and statement costs a shop; permit_confirm_why has the refusals.
-- The row of the errand comes first: if the call fails in between, without the mark it is passed over, but a mark that no row names
-- would be a sale that is not settled, if the caller commits nevertheless.
CREATE /*M! OR REPLACE */ PROCEDURE permit_confirm(IN p_key VARBINARY(4096))
  MODIFIES SQL DATA SQL SECURITY DEFINER
BEGIN
  DECLARE v_key VARBINARY(4200);
  DECLARE v_id BIGINT UNSIGNED;
  DECLARE v_noted INT;
  DECLARE v_short BOOL DEFAULT /*!80000 @@transaction_isolation *//*M! @@tx_isolation */ <> 'SERIALIZABLE' AND LOCATE(x'01', p_key) = 0;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  -- As in permit_find.
  /*M! IF @@autocommit AND NOT @@in_transaction THEN
    SET v_short = FALSE;
  END IF; */
  /*!80000 BEGIN
    DECLARE CONTINUE HANDLER FOR 1305 SET v_short = FALSE;
    SAVEPOINT permitd_procedure;
    RELEASE SAVEPOINT permitd_procedure;
  END; */
  IF v_short THEN
    SELECT IF(namespace = '', p_key, CONCAT(x'01', namespace, x'01', p_key)) INTO v_key FROM sql_account FORCE INDEX (PRIMARY)
     WHERE user = LEFT(USER(), CHAR_LENGTH(USER()) - LOCATE('@', REVERSE(USER())));
    SELECT id INTO v_id FROM permit_request FORCE INDEX (permit_request_external_id)
     WHERE external_id = v_key AND state = 1 AND confirmed_at IS NULL AND errand = 0;
    SET v_short = v_id IS NOT NULL;
  END IF;
  IF v_short THEN
    INSERT IGNORE INTO errand (bucket, permit_request_id, account) VALUES (CONNECTION_ID() & 63, v_id, USER());
    SET v_noted = ROW_COUNT();
    UPDATE permit_request FORCE INDEX (PRIMARY) SET confirmed_at = UTC_TIMESTAMP(6), errand = 1
     WHERE id = v_id AND state = 1 AND confirmed_at IS NULL AND errand = 0;
    SET v_short = ROW_COUNT() = 1;
    IF NOT v_short AND v_noted = 1 THEN
      DELETE FROM errand WHERE bucket = CONNECTION_ID() & 63 AND permit_request_id = v_id;
    END IF;
  END IF;
  IF NOT v_short <=> TRUE THEN
    CALL permit_confirm_why(p_key);
  END IF;
END
