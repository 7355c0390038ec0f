-- Marks a hold, or with p_sale also a sale, to be released: a batch frees its units after the caller's COMMIT. A request that has
-- ended stays as it is.
CREATE /*M! OR REPLACE */ PROCEDURE permit_end(IN p_key VARBINARY(4096), IN p_sale BOOL)
  MODIFIES SQL DATA SQL SECURITY DEFINER
BEGIN
  DECLARE v_id BIGINT UNSIGNED;
  DECLARE v_state, v_reason, v_errand INT;
  DECLARE v_sold BOOL;
  CALL permit_find(p_key, v_id, v_state, v_reason, v_errand, v_sold);
  IF v_state = 1 THEN
    IF v_sold AND NOT v_errand & 2 AND NOT p_sale THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'permit: confirmed';
    END IF;
    IF v_errand = 0 THEN -- before the mark, as in permit_confirm
      INSERT IGNORE INTO errand (bucket, permit_request_id, account) VALUES (CONNECTION_ID() & 63, v_id, USER());
    END IF;
    UPDATE permit_request FORCE INDEX (PRIMARY) SET errand = errand | 2 WHERE id = v_id;
  ELSEIF NOT v_state <=> 2 THEN
    CALL permit_raise(v_state, v_reason);
  END IF;
END
