-- The role that row level security policies run as, where only PostgreSQL can decide them. It has no password here:
-- whoever applies this file sets one and gives the hub its address as policy_database_url.
--
-- A policy may call any function, and a function runs in the session of whoever asks: it can say RESET ROLE and be that
-- login. So this one is nothing but a way to the client roles: no privilege of its own, none of others, and, unlike the
-- hub's role, no REPLICATION, with which such a function could make replication slots and read every change of the database.
--
--   LOGIN, NOINHERIT, CONNECT, TEMP and membership in anon and authenticated: as for the hub's role (040).
--
-- A role of this name that exists is not altered; it gets the two memberships and CONNECT/TEMP if it lacks them. The hub
-- looks at what it is when it connects, and runs no policy as a login that is more than this.

DO $tidewire$
DECLARE
    role text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tidewire_policies') THEN
        BEGIN
            CREATE ROLE tidewire_policies LOGIN NOINHERIT NOCREATEDB NOCREATEROLE;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- made by another session in this moment
        END;
        COMMENT ON ROLE tidewire_policies IS 'Tidewire: becomes anon or authenticated to run policies for the hub';
    END IF;

    FOREACH role IN ARRAY ARRAY['anon', 'authenticated'] LOOP
        IF NOT EXISTS (
            SELECT FROM pg_auth_members
            WHERE roleid = role::regrole AND member = 'tidewire_policies'::regrole
        ) THEN
            EXECUTE format('GRANT %I TO tidewire_policies', role);
        END IF;
    END LOOP;

    IF NOT has_database_privilege('tidewire_policies', current_database(), 'CONNECT') THEN
        EXECUTE format('GRANT CONNECT ON DATABASE %I TO tidewire_policies', current_database());
    END IF;
    IF NOT has_database_privilege('tidewire_policies', current_database(), 'TEMPORARY') THEN
        EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO tidewire_policies', current_database());
    END IF;
END
$tidewire$;
