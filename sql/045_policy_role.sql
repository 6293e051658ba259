-- The login with which the hub runs row level security policies that only PostgreSQL can decide. This file sets no
-- password: set one after you apply it, and give the hub the login's connection URL as policy_database_url.
--
-- A policy may call any function, and the function runs in the session of the login: it can run RESET ROLE and act as that
-- login. So this login is only a way to the client roles. It has no privileges of its own and none of other roles. Unlike
-- the hub's role it has no REPLICATION. With REPLICATION such a function could create replication slots and read every
-- change of the database.
--
--   LOGIN, NOINHERIT, CONNECT, TEMP and membership in anon and authenticated: as for the hub's role (040).
--
-- If a role of this name exists, this file does not alter it, but grants the two memberships and CONNECT/TEMP if they are
-- missing. The hub checks the login when it connects, and runs no policy with a login that may do more than this one.

DO $tidewire$
DECLARE
    role text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tidewire_policies') THEN
        BEGIN
            CREATE ROLE tidewire_policies LOGIN NOINHERIT NOCREATEDB NOCREATEROLE;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- another session created it at the same moment
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
