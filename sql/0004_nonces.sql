-- SPDX-License-Identifier: MIT
-- permitd: which caller made a grant (docs/protocol.md, "Retrying, and why it is safe"). Rows from before this migration have
-- no nonce. The column has a default, so a permitd of an older version can still insert.

ALTER TABLE permit_request
  ADD COLUMN nonce VARBINARY(64) NOT NULL DEFAULT '' COMMENT 'the caller''s nonce in the acquire that was granted; empty: it sent none';
