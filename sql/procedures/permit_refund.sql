-- Ends a hold or a sale in the transaction of the caller.
CREATE /*M! OR REPLACE */ PROCEDURE permit_refund(IN p_key VARBINARY(4096))
  MODIFIES SQL DATA SQL SECURITY DEFINER
CALL permit_end(p_key, TRUE)
