-- The role the hub logs in as. It has no password here: whoever applies this file sets one.
--
--   LOGIN         to connect.
--   REPLICATION   to create, read, advance and drop its replication slot. Decoding needs no privilege on the tables,
--                 so whoever can log in as this role can read every change of the database: keep its password as you
--                 keep a superuser's, and give it no `replication` line in pg_hba.conf. Logical replication comes in by
--                 the database's own line; a `replication` line would let it copy the whole cluster.
--   NOINHERIT     it holds none of the privileges of the roles it may become until it says SET ROLE. The rest of the
--                 time it reads the catalogs, which everybody may: pg_policy, pg_publication_tables, pg_class, pg_roles,
--                 and that is all the catalog side of the hub needs.
--   anon, authenticated
--                 to ask PostgreSQL "may this subscriber see this row?" in the subscriber's own role, where policies
--                 apply as they do to the subscriber.
--   CONNECT, TEMP on this database; everybody has both unless they were revoked. TEMP is for the helper functions the
--                 hub makes in pg_temp for its own connection, so that nothing needs to be installed.
--
-- What it must not have: SUPERUSER, BYPASSRLS, membership in service_role or in a role that owns tables. A policy may call
-- any function, and a function that a policy calls runs in the hub's connection: what this role cannot become, such a
-- function cannot become either.
--
-- What it cannot do, on purpose: create publications or add tables to one (that takes CREATE on the database and
-- ownership of the tables), read or write rows in its own name, install anything. 010-030 did that before it.
--
-- A role of this name that exists is not altered; it gets the two memberships and CONNECT/TEMP if it lacks them, and
-- what is dangerous or missing about it is said as a warning.

DO $tidewire$
DECLARE
    hub  record;
    role text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tidewire') THEN
        BEGIN
            CREATE ROLE tidewire LOGIN NOINHERIT REPLICATION NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS;
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN
                NULL;  -- made by another session in this moment
            WHEN insufficient_privilege THEN
                -- Before version 16 only a superuser hands out REPLICATION, since then whoever has it.
                CREATE ROLE tidewire LOGIN NOINHERIT NOSUPERUSER NOCREATEDB NOCREATEROLE;
        END;
        COMMENT ON ROLE tidewire IS 'Tidewire hub: reads the change stream, becomes anon or authenticated to ask about rows';
    END IF;

    FOREACH role IN ARRAY ARRAY['anon', 'authenticated'] LOOP
        IF NOT EXISTS (
            SELECT FROM pg_auth_members
            WHERE roleid = role::regrole AND member = 'tidewire'::regrole
        ) THEN
            EXECUTE format('GRANT %I TO tidewire', role);
        END IF;
    END LOOP;

    -- Only where it is needed: a GRANT would turn the database's default privileges into explicit ones.
    IF NOT has_database_privilege('tidewire', current_database(), 'CONNECT') THEN
        EXECUTE format('GRANT CONNECT ON DATABASE %I TO tidewire', current_database());
    END IF;
    IF NOT has_database_privilege('tidewire', current_database(), 'TEMPORARY') THEN
        EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO tidewire', current_database());
    END IF;

    SELECT * INTO STRICT hub FROM pg_roles WHERE rolname = 'tidewire';
    IF NOT hub.rolreplication THEN
        RAISE WARNING 'role tidewire lacks REPLICATION: the hub cannot read changes'
            USING HINT = 'As a superuser: ALTER ROLE tidewire REPLICATION; (managed services have a role to grant instead)';
    END IF;
    IF NOT hub.rolcanlogin THEN
        RAISE WARNING 'role tidewire may not log in' USING HINT = 'ALTER ROLE tidewire LOGIN;';
    END IF;
    IF hub.rolsuper OR hub.rolbypassrls THEN
        RAISE WARNING 'role tidewire is a superuser or bypasses Row Level Security: functions called by policies could too'
            USING HINT = 'ALTER ROLE tidewire NOSUPERUSER NOBYPASSRLS;';
    END IF;
    FOR role IN
        SELECT r.rolname FROM pg_roles r
        WHERE r.rolname <> 'tidewire'
          AND (r.rolsuper OR r.rolbypassrls OR r.rolname = 'service_role')
          AND NOT hub.rolsuper
          AND pg_has_role('tidewire', r.oid, 'MEMBER')
    LOOP
        RAISE WARNING 'role tidewire can become %', role USING HINT = format('REVOKE %I FROM tidewire;', role);
    END LOOP;
END
$tidewire$;
