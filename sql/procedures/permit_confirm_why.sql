-- The long way of permit_confirm: says why it is refused, or confirms after all.
CREATE /*M! OR REPLACE */ PROCEDURE permit_confirm_why(IN p_key VARBINARY(4096))
  MODIFIES SQL DATA SQL SECURITY DEFINER
BEGIN
  DECLARE v_id BIGINT UNSIGNED;
  DECLARE v_state, v_reason, v_errand INT;
  DECLARE v_sold BOOL;
  CALL permit_find(p_key, v_id, v_state, v_reason, v_errand, v_sold);
  IF NOT v_state <=> 1 OR v_errand & 2 THEN
    CALL permit_raise(v_state, v_reason);
  END IF;
  IF NOT v_sold THEN -- granted between the read of the short way and this one
    INSERT IGNORE INTO errand (bucket, permit_request_id, account) VALUES (CONNECTION_ID() & 63, v_id, USER());
    UPDATE permit_request FORCE INDEX (PRIMARY) SET confirmed_at = UTC_TIMESTAMP(6), errand = 1 WHERE id = v_id;
  END IF;
END
