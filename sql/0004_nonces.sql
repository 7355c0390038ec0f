-- SPDX-License-Identifier: MIT
-- permitd: the nonce of a grant tells which client made it (docs/protocol.md). Older rows have no
-- nonce. The column has a default, so that an older permitd can still insert.

ALTER TABLE permit_request
  ADD COLUMN nonce VARBINARY(64) NOT NULL DEFAULT '' COMMENT 'nonce of the granted acquire; empty: none';
