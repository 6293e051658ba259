-- The two publications that the hub follows. Each is created empty, and only if it is missing.
--
--   supabase_realtime   tables whose changes are delivered to clients. Which tables are in it, and which operations it
--                       publishes, is the database owner's choice (ALTER PUBLICATION supabase_realtime ADD TABLE ...).
--   tidewire_internal   tables that policies look into and that clients do not listen to, such as memberships. Their
--                       changes go into the hub's log and to nobody. The hub's own role (040) may not create it.
--
-- Creating them needs CREATE on the database. On a server without wal_level = logical PostgreSQL warns here; the hub cannot
-- start before that setting is changed and the server restarted.

DO $tidewire$
DECLARE
    wanted record;
BEGIN
    FOR wanted IN
        SELECT * FROM (VALUES
            ('supabase_realtime', '', 'Tables whose changes Tidewire delivers'),
            ('tidewire_internal', $$ WITH (publish = 'insert, update, delete, truncate')$$,
                'Tidewire: tables that policies look into, delivered to nobody')
        ) AS v (name, options, purpose)
    LOOP
        CONTINUE WHEN EXISTS (SELECT FROM pg_publication WHERE pubname = wanted.name);
        EXECUTE format('CREATE PUBLICATION %I', wanted.name) || wanted.options;
        EXECUTE format('COMMENT ON PUBLICATION %I IS %L', wanted.name, wanted.purpose);
        -- Where a superuser prepares a database that `postgres` works in: adding tables is part of its migrations.
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'postgres')
            AND EXISTS (SELECT FROM pg_roles WHERE rolname = current_user AND rolsuper)
            AND has_database_privilege('postgres', current_database(), 'CREATE')
        THEN
            EXECUTE format('ALTER PUBLICATION %I OWNER TO postgres', wanted.name);
        END IF;
    END LOOP;
END
$tidewire$;
