-- The role that the hub logs in as. This file sets no password: set one after you apply it.
--
--   LOGIN         to connect.
--   REPLICATION   to create, read, advance and drop its replication slot. Decoding needs no privilege on the tables, so
--                 anyone who can log in as this role can read every change of the database. Protect its password like a
--                 superuser's, and give it no `replication` line in pg_hba.conf. Logical replication connects by the
--                 line for the database; a `replication` line would let the role copy the whole cluster.
--   NOINHERIT     so that it has the privileges of the roles it may become only after SET ROLE. Otherwise it only reads
--                 catalogs, such as pg_policy, pg_publication_tables, pg_class and pg_roles. Every role may read them,
--                 and the hub needs no other privilege for its catalog queries.
--   anon, authenticated
--                 to ask PostgreSQL "may this subscriber see this row?" in the subscriber's own role, so that policies
--                 apply as they do to the subscriber.
--   CONNECT, TEMP on this database. Every role has both unless they were revoked. TEMP is for the helper functions that
--                 the hub creates in pg_temp for its own connection, so that nothing needs to be installed.
--
-- The role must not have SUPERUSER, BYPASSRLS, or membership in service_role or in a role that owns tables. A policy may
-- call any function, and the function runs in the hub's connection. The function cannot become a role that the hub's role
-- cannot become.
--
-- By design, the role cannot create publications or add tables to one (this takes CREATE on the database and ownership of
-- the tables), read or write rows with privileges of its own, or install anything. Files 010-030 do the setup.
--
-- If a role of this name exists, this file does not alter it, but grants the two memberships and CONNECT/TEMP if they are
-- missing. It raises a warning for what is dangerous or missing in the role.

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
                NULL;  -- another session created it at the same moment
            WHEN insufficient_privilege THEN
                -- Before PostgreSQL 16 only a superuser can grant REPLICATION; since then, also a role that has it.
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

    -- Grants only if needed: a GRANT would turn the database's default privileges into explicit ones.
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
