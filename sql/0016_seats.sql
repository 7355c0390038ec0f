-- Where a slot is in its hall, and how good it is, apart from its number (docs/protocol.md, PUT .../slots).
ALTER TABLE slot
  ADD COLUMN section VARBINARY(32) NULL      COMMENT 'part of the hall, such as B',
  ADD COLUMN seat_row VARBINARY(32) NULL     COMMENT 'row in the section',
  ADD COLUMN seat INT UNSIGNED NULL          COMMENT 'position in the row, from 1; NULL: the seat has no neighbours',
  ADD COLUMN seat_rank INT UNSIGNED NULL     COMMENT '0 is the best; NULL: behind all that have one',
  ADD COLUMN tags VARBINARY(263) NULL        COMMENT 'at most 8 words with one space between them, such as aisle';
