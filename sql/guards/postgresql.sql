-- SPDX-License-Identifier: MIT
-- Fencing guard for PostgreSQL 13+ (docs/fencing.md): refuses writers whose permit has passed to another client. Load it
-- into the database with your tables, as the user that will own it:
--
--     psql -v ON_ERROR_STOP=1 shop -f postgresql.sql
--     GRANT USAGE ON SCHEMA permit TO app;         -- writers need no right to the table
--
-- Loading it again, as the same user, keeps marks and grants. It does not load, and changes nothing, if the schema
-- permit, or anything in it, belongs to another user, if one of its tables has a trigger, or if another user has the right
-- to create objects in it: code of that user would run with the loader's rights.
--
-- A writer calls it first in the transaction of its write, with the values of its grant:
--
--     BEGIN;
--     SELECT permit.fence('backups', '3', 57);     -- semaphore, slots as in PERMIT_SLOTS ('3' or '3,4'), token
--     UPDATE ... ;
--     COMMIT;
--
-- SQLSTATE PF001: stale token; a newer holder has written there. Stop writing. DETAIL has semaphore, place, token and the
-- newer token. SQLSTATE PF002: invalid arguments. In both cases the transaction has failed. Any other error is not a
-- refusal; after 40001, 40P01 and 55P03 run the whole transaction again.
--
-- A call locks its rows, in ascending order, until the transaction ends: a writer that has passed has committed before a
-- newer one passes. Make several calls in one transaction in ascending order of names, to prevent deadlocks.
--
-- To guard single rows that one holder at a time writes, the mark can be in the row, at a third of the cost or less. Once
-- for each table:
--
--     ALTER TABLE report ADD permit_token bigint NOT NULL DEFAULT 0;
--     CREATE TRIGGER permit_fence BEFORE UPDATE ON report FOR EACH ROW
--         WHEN ((NEW.permit_token BETWEEN OLD.permit_token AND permit.fence_limit()) IS NOT TRUE)
--         EXECUTE FUNCTION permit.fence_row();
--     CREATE TRIGGER permit_fence_new BEFORE INSERT ON report FOR EACH ROW
--         WHEN ((NEW.permit_token BETWEEN 0 AND permit.fence_limit()) IS NOT TRUE) EXECUTE FUNCTION permit.fence_row();
--
-- and in each write, which need not be in a transaction:
--
--     UPDATE report SET ..., permit_token = 57 WHERE id = 7;
--
-- (The second trigger refuses an impossible token in a new row, which would be closed for good.)
--
-- Not guarded: rows that no newer holder has written yet; writes that set no token; new rows; DELETE (add the condition
-- AND permit_token <= 57), TRUNCATE.

BEGIN;

SET LOCAL search_path = pg_catalog, pg_temp;

-- Refuses to load where a user other than the loader owns the schema or anything in it, where a table in it has a trigger
-- (its function, or one that its condition calls, would run with the loader's rights), and where another user could still
-- create one. Otherwise creates what is missing. The default rights of new schemas and tables do not hold for these two.
DO $$
DECLARE
  loader CONSTANT oid := (SELECT r.oid FROM pg_roles r WHERE r.rolname = current_user);
  fault text;
  grantee text;
BEGIN
  IF to_regnamespace('permit') IS NULL THEN
    CREATE SCHEMA permit;
    FOR grantee IN SELECT CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END
                     FROM pg_namespace n, aclexplode(n.nspacl) AS g
                    WHERE n.oid = 'permit'::regnamespace AND g.grantee <> loader AND g.privilege_type = 'CREATE' LOOP
      EXECUTE 'REVOKE CREATE ON SCHEMA permit FROM ' || grantee;
    END LOOP;
  END IF;

  SELECT CASE WHEN found.owner IS NULL THEN found.what
              ELSE format('%s belongs to %s, not to %s', found.what, pg_get_userbyid(found.owner), current_user) END
    INTO fault
    FROM (SELECT 'the schema permit', n.nspowner FROM pg_namespace n WHERE n.oid = 'permit'::regnamespace
          UNION ALL
          SELECT c.oid::regclass::text, c.relowner FROM pg_class c
           WHERE c.relnamespace = 'permit'::regnamespace AND c.relkind NOT IN ('i', 'c')
          UNION ALL
          SELECT p.oid::regprocedure::text, p.proowner FROM pg_proc p WHERE p.pronamespace = 'permit'::regnamespace
          UNION ALL
          SELECT t.oid::regtype::text, t.typowner FROM pg_type t WHERE t.typnamespace = 'permit'::regnamespace
          UNION ALL
          SELECT format('%s has a trigger, %s', g.tgrelid::regclass, g.tgname), NULL
            FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
           WHERE c.relnamespace = 'permit'::regnamespace AND NOT g.tgisinternal
          UNION ALL
          SELECT format('%s has the right %s on %s', CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(g.grantee) END,
                        g.privilege_type, held.what), NULL
            FROM (SELECT 'the schema permit', n.nspacl FROM pg_namespace n WHERE n.oid = 'permit'::regnamespace
                  UNION ALL
                  SELECT c.oid::regclass::text, c.relacl FROM pg_class c WHERE c.relnamespace = 'permit'::regnamespace)
                   AS held (what, rights), aclexplode(held.rights) AS g
           WHERE g.grantee <> loader AND g.privilege_type IN ('CREATE', 'TRIGGER')) AS found (what, owner)
   WHERE found.owner IS DISTINCT FROM loader
   LIMIT 1;
  IF fault IS NOT NULL THEN
    RAISE EXCEPTION '%: the fencing guard is not loaded, nothing was changed', fault
      USING HINT = 'If you loaded the guard as another user before, load it as that user again. A right that should not be '
                   'there can be revoked. If you do not know where it comes from, find out first.';
  END IF;

  IF to_regclass('permit.fence') IS NULL THEN
    -- Rows are small, few, and updated in place (HOT): half of each page stays free for that.
    CREATE TABLE permit.fence (
      semaphore text COLLATE "C" NOT NULL,
      slot bigint NOT NULL DEFAULT 0,
      resource text COLLATE "C" NOT NULL DEFAULT '',
      token bigint NOT NULL,
      PRIMARY KEY (semaphore, slot, resource)
    ) WITH (fillfactor = 50);
    FOR grantee IN SELECT DISTINCT CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END
                     FROM pg_class c, aclexplode(c.relacl) AS g
                    WHERE c.oid = 'permit.fence'::regclass AND g.grantee <> loader LOOP
      EXECUTE 'REVOKE ALL ON permit.fence FROM ' || grantee;
    END LOOP;
  END IF;
END $$;

COMMENT ON TABLE permit.fence IS 'newest token of each place written under a permit';
COMMENT ON COLUMN permit.fence.semaphore IS 'name of the semaphore';
COMMENT ON COLUMN permit.fence.slot IS 'from 1 up; 0: a resource, or the floor';
COMMENT ON COLUMN permit.fence.resource IS 'empty: a slot, or the floor';
COMMENT ON COLUMN permit.fence.token IS 'largest token that has passed here; never decreases';

-- Returns the largest token that any semaphore can have issued by now, plus a day for wrong clocks: a token of epoch e is
-- e * 1024 or slightly more, and epochs are milliseconds since 2026. A larger one is refused: it would lock out all
-- writers permanently. (One that passes by mistake locks them out until a `permitctl fence bump` a day later.)
CREATE OR REPLACE FUNCTION permit.fence_limit() RETURNS bigint
LANGUAGE sql AS $$
  SELECT (greatest(extract(epoch FROM clock_timestamp())::bigint - 1767225600, 0) + 86400) * 1024000
$$;

-- Raises PF001 from within the upserts below.
CREATE OR REPLACE FUNCTION permit.fence_stale(semaphore text, place text, token bigint, newer bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'stale token %: % of % has seen %', token, place, semaphore, newer
    USING ERRCODE = 'PF001',
          DETAIL = format('semaphore %s, %s, token %s, newer %s', semaphore, place, token, newer),
          HINT = 'The permit has ended and somebody else has written since. Stop writing.';
END $$;

CREATE OR REPLACE FUNCTION permit.fence_invalid(routine text, semaphore text, place text, token bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '%: semaphore %, place %, token % cannot be', routine, semaphore, place, token
    USING ERRCODE = 'PF002';
END $$;

-- Passes if no larger token has passed on any of these slots, and raises all marks to this token; otherwise raises none.
-- The upsert locks the rows in order of slots, including rows that it does not write.
CREATE OR REPLACE FUNCTION permit.fence(of_semaphore text, at_slots text, with_token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF (octet_length(of_semaphore) BETWEEN 1 AND 255 AND with_token BETWEEN 1 AND permit.fence_limit()
      AND at_slots ~ '^[1-9][0-9]{0,8}(,[1-9][0-9]{0,8})*$') IS NOT TRUE THEN
    PERFORM permit.fence_invalid('permit.fence', of_semaphore, 'slots ' || at_slots, with_token);
  END IF;
  IF strpos(at_slots, ',') = 0 THEN -- one slot is the usual case; this takes a quarter less time
    INSERT INTO permit.fence AS f (semaphore, slot, token) VALUES (of_semaphore, at_slots::bigint, with_token)
    ON CONFLICT (semaphore, slot, resource) DO UPDATE SET token = excluded.token
     WHERE CASE WHEN f.token > excluded.token
                THEN permit.fence_stale(f.semaphore, 'slot ' || f.slot, excluded.token, f.token)
                ELSE f.token < excluded.token END;
    RETURN;
  END IF;
  INSERT INTO permit.fence AS f (semaphore, slot, token)
  SELECT DISTINCT of_semaphore, wanted.slot, with_token
    FROM unnest(string_to_array(at_slots, ',')::bigint[]) AS wanted (slot)
   ORDER BY wanted.slot
  ON CONFLICT (semaphore, slot, resource) DO UPDATE SET token = excluded.token
   WHERE CASE WHEN f.token > excluded.token
              THEN permit.fence_stale(f.semaphore, 'slot ' || f.slot, excluded.token, f.token)
              ELSE f.token < excluded.token END;
END $$;

-- For counted semaphores, whose permits have no slots. The mark belongs to the resource that is written: correct only if
-- one holder at a time writes it.
CREATE OR REPLACE FUNCTION permit.fence_resource(of_semaphore text, of_resource text, with_token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF (octet_length(of_semaphore) BETWEEN 1 AND 255 AND octet_length(of_resource) BETWEEN 1 AND 255
      AND with_token BETWEEN 1 AND permit.fence_limit()) IS NOT TRUE THEN
    PERFORM permit.fence_invalid('permit.fence_resource', of_semaphore, 'resource ' || of_resource, with_token);
  END IF;
  INSERT INTO permit.fence AS f (semaphore, resource, token) VALUES (of_semaphore, of_resource, with_token)
  ON CONFLICT (semaphore, slot, resource) DO UPDATE SET token = excluded.token
   WHERE CASE WHEN f.token > excluded.token
              THEN permit.fence_stale(f.semaphore, 'resource ' || f.resource, excluded.token, f.token)
              ELSE f.token < excluded.token END;
END $$;

-- For counted semaphores whose holders write the same resource: refuses tokens below the highest floor raised so far.
-- Never refuses a live holder. Refuses a stale one only after no permit older than its own is live. Holders share the
-- lock.
CREATE OR REPLACE FUNCTION permit.fence_floor(of_semaphore text, with_token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  highest bigint;
BEGIN
  SELECT f.token INTO highest FROM permit.fence f
   WHERE f.semaphore = of_semaphore AND f.slot = 0 AND f.resource = '' FOR SHARE;
  IF (highest IS NOT NULL AND with_token BETWEEN 1 AND permit.fence_limit()) IS NOT TRUE THEN
    PERFORM permit.fence_invalid('permit.fence_floor', of_semaphore,
                                 'floor ' || coalesce(highest::text, 'that nobody has told yet'), with_token);
  END IF;
  IF with_token < highest THEN
    PERFORM permit.fence_stale(of_semaphore, 'the floor', with_token, highest);
  END IF;
END $$;

-- Raises the floor to that of the caller's grant; a holder calls it first, in a separate transaction. A floor never falls.
CREATE OR REPLACE FUNCTION permit.raise_floor(of_semaphore text, to_floor bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF (octet_length(of_semaphore) BETWEEN 1 AND 255 AND to_floor BETWEEN 1 AND permit.fence_limit()) IS NOT TRUE THEN
    PERFORM permit.fence_invalid('permit.raise_floor', of_semaphore, 'the floor', to_floor);
  END IF;
  INSERT INTO permit.fence AS f (semaphore, token) VALUES (of_semaphore, to_floor)
  ON CONFLICT (semaphore, slot, resource) DO UPDATE SET token = excluded.token WHERE f.token < excluded.token;
END $$;

-- Called by a trigger of a table if the token of a row would decrease or is invalid. Never returns. In INSERT, OLD is null.
CREATE OR REPLACE FUNCTION permit.fence_row() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF (NEW.permit_token < OLD.permit_token) IS NOT TRUE THEN
    RAISE EXCEPTION 'permit.fence_row: permit_token % of a row of % cannot be', NEW.permit_token, TG_TABLE_NAME
      USING ERRCODE = 'PF002';
  END IF;
  RAISE EXCEPTION 'stale token %: a row of % has seen %', NEW.permit_token, TG_TABLE_NAME, OLD.permit_token
    USING ERRCODE = 'PF001',
          DETAIL = format('table %s, token %s, newer %s', TG_TABLE_NAME, NEW.permit_token, OLD.permit_token),
          HINT = 'The permit has ended and somebody else has written since. Stop writing.';
END $$;

COMMIT;
