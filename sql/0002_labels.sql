-- SPDX-License-Identifier: MIT
-- permitd: labels of slots. The current label of a slot is in `slot`.`label` (0001). A permit keeps the labels of its slots
-- as of the grant, because labels may change later.

ALTER TABLE permit
  ADD COLUMN labels MEDIUMBLOB NULL COMMENT 'labels of the granted slots as of the grant, one per line in the order of slots, empty line: none; NULL: no slot has a label';
