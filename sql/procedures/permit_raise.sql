-- Raises the refusal of a request in this state (NULL: there is none) with this end_reason (0 with errand 2, to be released).
CREATE /*M! OR REPLACE */ PROCEDURE permit_raise(IN p_state INT, IN p_reason INT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE v_text VARCHAR(64) DEFAULT CASE WHEN p_state = 3 THEN 'permit: waiting' WHEN p_state IS NULL THEN 'permit: unknown_request'
    ELSE CONCAT('permit: ended (', COALESCE(ELT(p_reason, 'released', 'expired', 'owner_dead', 'stale', 'forced', 'never_held'), 'released'), ')') END;
  SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_text;
END
