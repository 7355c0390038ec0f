-- SPDX-License-Identifier: MIT
-- Labels of slots. The label of a slot stands in `slot`.`label` (0001); what a grant says of its slots stays what it said,
-- whatever they are called later, so it is kept with the permit.

ALTER TABLE permit
  ADD COLUMN labels MEDIUMBLOB NULL COMMENT 'labels of the granted slots as of the grant, a line each in the order of slots, empty: none; NULL: none of them has one';
