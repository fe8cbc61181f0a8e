-- What package pgstore needs in a database, version 2. The owner of the database runs this file, or pgstore.Setup does;
-- to run it again changes nothing.
--
--     psql "$DATABASE_URL" -v ON_ERROR_STOP=1 --single-transaction -f schema.sql
--
-- Programs need these rights, and no others:
--
--     GRANT USAGE ON SCHEMA throttle TO app;
--     GRANT SELECT ON throttle.version TO app;
--     GRANT UPDATE ON throttle.lock_0, throttle.lock_1, throttle.lock_2, throttle.lock_3, throttle.lock_4, throttle.lock_5, throttle.lock_6, throttle.lock_7 TO app;
--     GRANT SELECT, INSERT, UPDATE, DELETE ON throttle.budgets TO app;

CREATE SCHEMA IF NOT EXISTS throttle;

CREATE TABLE IF NOT EXISTS throttle.version (version integer NOT NULL);

-- A row has all that matters of one budget. After some updates a row begins anew under the next generation, and the
-- last generation counts: so a transaction that holds a snapshot for hours leaves short chains of versions behind.
-- expires is rounded, so that most updates change no column of an index (HOT). Half of each page is free for them.
--
-- A table that is there is not touched: ALTER TABLE would wait for everybody who reads the table, such as a dump, and all programs
-- would wait behind it.
DO $$ BEGIN
IF pg_catalog.to_regclass('throttle.budgets') IS NULL THEN
	CREATE TABLE throttle.budgets (
		generation bigint      NOT NULL,
		expires    timestamptz NOT NULL, -- afterwards the row may be deleted
		updates    integer     NOT NULL, -- of this generation
		key        text        NOT NULL COLLATE "C",
		value      bytea       NOT NULL,
		PRIMARY KEY (key, generation)
	) WITH (
		fillfactor = 50,
		toast_tuple_target = 8160,
		autovacuum_vacuum_scale_factor = 0,
		autovacuum_vacuum_threshold = 5000,
		autovacuum_vacuum_cost_delay = 0,
		autovacuum_analyze_scale_factor = 0,
		autovacuum_analyze_threshold = 100000
	);
	ALTER TABLE throttle.budgets ALTER COLUMN value SET STORAGE EXTERNAL;
	CREATE INDEX budgets_expires ON throttle.budgets (expires);
END IF;
END $$;

-- A program locks one of these tables, which hold nothing, for as long as it changes the budgets of a group. A role without rights in them cannot hold
-- anybody up.
DO $$ BEGIN
FOR i IN 0..7 LOOP
	EXECUTE pg_catalog.format('CREATE TABLE IF NOT EXISTS throttle.lock_%s ()', i);
END LOOP;
END $$;

INSERT INTO throttle.version SELECT 2 WHERE NOT EXISTS (SELECT FROM throttle.version);
UPDATE throttle.version SET version = 2 WHERE version = 1; -- whose programs used another lock
