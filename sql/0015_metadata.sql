-- Metadata of requests: an object of the client, such as the number of an order. It has a table of its own, because the rows of
-- permit_request are written often.
CREATE TABLE request_metadata (
  permit_request_id BIGINT UNSIGNED NOT NULL COMMENT 'permit_request.id',
  metadata VARBINARY(2048) NOT NULL          COMMENT 'a JSON object in UTF-8, as sent',
  PRIMARY KEY (permit_request_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='of requests that have metadata: deleted with the request';
