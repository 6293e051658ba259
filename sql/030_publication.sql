-- The publication whose tables the hub follows. Created empty, and only if it is missing: which tables are in it, and
-- which operations it publishes, is the database owner's choice (ALTER PUBLICATION supabase_realtime ADD TABLE ...).
--
-- Creating it needs CREATE on the database. On a server without wal_level = logical PostgreSQL warns here; the hub cannot
-- start before that setting is changed and the server restarted.

DO $tidewire$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_publication WHERE pubname = 'supabase_realtime') THEN
        CREATE PUBLICATION supabase_realtime;
        COMMENT ON PUBLICATION supabase_realtime IS 'Tables whose changes Tidewire delivers';
        -- Where a superuser prepares a database that `postgres` works in: adding tables is part of its migrations.
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'postgres')
            AND EXISTS (SELECT FROM pg_roles WHERE rolname = current_user AND rolsuper)
            AND has_database_privilege('postgres', current_database(), 'CREATE')
        THEN
            ALTER PUBLICATION supabase_realtime OWNER TO postgres;
        END IF;
    END IF;
END
$tidewire$;
