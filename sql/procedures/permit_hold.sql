-- Locks a hold until the caller's transaction ends, and returns held_until, by the database's clock (NULL: no deadline), and
-- confirmed_at. The offset of served time comes from a copy, since the row `cluster` is written by each tick.
CREATE /*M! OR REPLACE */ PROCEDURE permit_hold(IN p_key VARBINARY(4096))
  MODIFIES SQL DATA SQL SECURITY DEFINER
BEGIN
  DECLARE v_id BIGINT UNSIGNED;
  DECLARE v_state, v_reason, v_errand INT;
  DECLARE v_sold BOOL;
  DECLARE v_offset BIGINT;
  CALL permit_find(p_key, v_id, v_state, v_reason, v_errand, v_sold);
  IF NOT v_state <=> 1 OR v_errand & 2 THEN
    CALL permit_raise(v_state, v_reason);
  END IF;
  SELECT offset_us INTO v_offset FROM served_offset FORCE INDEX (PRIMARY) WHERE id = 1;
  SELECT IF(confirmed_at IS NULL, due_at - INTERVAL grace_ms * 1000 - v_offset MICROSECOND, NULL) AS held_until, confirmed_at
    FROM permit_request FORCE INDEX (PRIMARY) WHERE id = v_id FOR UPDATE;
END
