-- SPDX-License-Identifier: MIT
-- permitd: keys and owners of namespaces (docs/security.md, Namespaces), which are longer than those that clients write: 2
-- bytes and the namespace. MariaDB and MySQL copy permit_request and owner for it. An older permitd works on.

ALTER TABLE permit_request
  MODIFY COLUMN external_id VARBINARY(289) NOT NULL COMMENT 'the client''s key; in a namespace 0x01, namespace, 0x01 and the key',
  MODIFY COLUMN owner VARBINARY(289) NOT NULL DEFAULT '' COMMENT 'owner named by the client, with its namespace as in external_id; empty: none';

ALTER TABLE owner
  MODIFY COLUMN name VARBINARY(289) NOT NULL COMMENT 'as in permit_request.owner; row locks are taken in ascending order of it';

ALTER TABLE semaphore_event
  MODIFY COLUMN from_value VARCHAR(289) NULL COMMENT 'value before; forced: the key of the request, as in permit_request.external_id';
