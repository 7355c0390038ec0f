-- Gives a hold back in the transaction of the caller. A sale, settled or not, is refused, as HTTP does: permit_refund ends it.
CREATE /*M! OR REPLACE */ PROCEDURE permit_release(IN p_key VARBINARY(4096))
  MODIFIES SQL DATA SQL SECURITY DEFINER
CALL permit_end(p_key, FALSE)
