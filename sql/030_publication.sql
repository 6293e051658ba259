-- The two publications that the hub follows. This file creates each one empty, and only if it is missing.
--
--   supabase_realtime   tables whose changes the hub delivers to clients. The database owner chooses the tables and the
--                       published operations (ALTER PUBLICATION supabase_realtime ADD TABLE ...).
--   tidewire_internal   tables that policies read and that clients do not listen to, such as memberships. The hub logs
--                       their changes and delivers them to no client. The hub's own role (040) may not create it.
--
-- Creating them needs CREATE on the database. On a server without wal_level = logical, PostgreSQL raises a warning here,
-- and the hub cannot start until that setting is changed and the server is restarted.

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
        -- If a superuser applies this and `postgres` has CREATE here, `postgres` owns it then: its migrations add tables.
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'postgres')
            AND EXISTS (SELECT FROM pg_roles WHERE rolname = current_user AND rolsuper)
            AND has_database_privilege('postgres', current_database(), 'CREATE')
        THEN
            EXECUTE format('ALTER PUBLICATION %I OWNER TO postgres', wanted.name);
        END IF;
    END LOOP;
END
$tidewire$;
