-- What clients say about their requests, such as the number of an order. Apart from permit_request, whose rows are hot.
CREATE TABLE request_metadata (
  permit_request_id BIGINT UNSIGNED NOT NULL COMMENT 'permit_request.id',
  metadata VARBINARY(2048) NOT NULL          COMMENT 'a JSON object in UTF-8, as sent',
  PRIMARY KEY (permit_request_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='of requests that have metadata: deleted with the request';
