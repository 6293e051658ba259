-- Creates schema realtime, and supabase_realtime_admin, the role that owns the objects in it.
--
-- If the schema already holds objects, this file does nothing: an earlier run created them, or another program did (usually
-- Supabase's own Realtime). The later files add nothing to another program's schema either, even if objects are missing,
-- because that program's own migrations must find the schema as they left it. The comment on realtime.schema_migrations
-- ("Tidewire: ...") marks a schema that this file created.
--
-- If supabase_admin exists and a superuser applies this file, supabase_admin owns the schema. Otherwise the applying role
-- owns it. Unless they are superusers, `postgres` and the applying role become members of supabase_realtime_admin: policies
-- and triggers on realtime.messages are part of an application's migrations, and only an owner may create them.

DO $tidewire$
DECLARE
    schema_oid    oid;
    is_superuser  boolean;
    owner         text := current_user;
    teams         text;      -- postgres and dashboard_user, if they exist and are not the owner
    grantee       text;
    becoming      text := CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END;
BEGIN
    SELECT oid INTO schema_oid FROM pg_namespace WHERE nspname = 'realtime';
    SELECT rolsuper INTO is_superuser FROM pg_roles WHERE rolname = current_user;

    IF EXISTS (SELECT FROM pg_class WHERE relnamespace = schema_oid)
        OR EXISTS (SELECT FROM pg_proc WHERE pronamespace = schema_oid)
        OR EXISTS (SELECT FROM pg_type WHERE typnamespace = schema_oid)
    THEN
        RETURN;  -- another program's schema, or created by an earlier run
    END IF;

    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'supabase_realtime_admin') THEN
        BEGIN
            CREATE ROLE supabase_realtime_admin NOLOGIN NOINHERIT NOCREATEDB NOCREATEROLE NOBYPASSRLS;
            ALTER ROLE supabase_realtime_admin SET search_path = public, extensions, realtime;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- another session created it at the same moment
        END;
        COMMENT ON ROLE supabase_realtime_admin IS 'Tidewire: owns what is in schema realtime';
        FOREACH grantee IN ARRAY ARRAY['anon', 'authenticated', 'service_role'] LOOP
            BEGIN
                EXECUTE format('GRANT %I TO supabase_realtime_admin', grantee);
            EXCEPTION WHEN insufficient_privilege THEN
                NULL;  -- the role has this membership on Supabase; nothing here depends on it
            END;
        END LOOP;
        IF is_superuser AND current_setting('server_version_num')::int >= 150000 THEN
            EXECUTE 'GRANT SET ON PARAMETER log_min_messages TO supabase_realtime_admin';
        END IF;
    END IF;

    IF NOT is_superuser AND NOT pg_has_role(current_user, 'supabase_realtime_admin', becoming) THEN
        EXECUTE format('GRANT supabase_realtime_admin TO %I', current_user);
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'postgres' AND NOT rolsuper)
        AND NOT pg_has_role('postgres', 'supabase_realtime_admin', becoming)
        AND shobj_description('supabase_realtime_admin'::regrole, 'pg_authid') LIKE 'Tidewire:%'
    THEN
        GRANT supabase_realtime_admin TO postgres;
    END IF;

    IF schema_oid IS NULL THEN
        IF is_superuser AND EXISTS (SELECT FROM pg_roles WHERE rolname = 'supabase_admin') THEN
            owner := 'supabase_admin';
        END IF;
        EXECUTE format('CREATE SCHEMA realtime AUTHORIZATION %I', owner);
    ELSE
        SELECT pg_get_userbyid(nspowner) INTO owner FROM pg_namespace WHERE oid = schema_oid;
    END IF;

    GRANT USAGE ON SCHEMA realtime TO anon, authenticated, service_role;
    GRANT ALL ON SCHEMA realtime TO supabase_realtime_admin WITH GRANT OPTION;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'postgres') AND owner <> 'postgres' THEN
        GRANT USAGE ON SCHEMA realtime TO postgres WITH GRANT OPTION;
    END IF;

    -- Supabase's Realtime counts the rows of this table if it later runs on this database. File 080 fills the table, when
    -- the other objects exist.
    CREATE TABLE realtime.schema_migrations (
        version bigint PRIMARY KEY, inserted_at timestamp(0) without time zone
    );
    COMMENT ON TABLE realtime.schema_migrations IS 'Tidewire: schema realtime was made by sql/realtime';
    REVOKE ALL ON TABLE realtime.schema_migrations FROM PUBLIC;
    IF owner <> current_user AND is_superuser THEN
        EXECUTE format('ALTER TABLE realtime.schema_migrations OWNER TO %I', owner);
    END IF;

    SELECT string_agg(quote_ident(rolname), ', ') INTO teams
    FROM pg_roles WHERE rolname IN ('postgres', 'dashboard_user') AND rolname <> owner;
    IF teams IS NOT NULL AND (is_superuser OR owner = current_user) THEN
        FOREACH grantee IN ARRAY ARRAY['TABLES', 'SEQUENCES', 'FUNCTIONS'] LOOP
            EXECUTE format('ALTER DEFAULT PRIVILEGES FOR ROLE %I IN SCHEMA realtime GRANT ALL ON %s TO %s',
                           owner, grantee, teams);
        END LOOP;
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'schema realtime was not made by %: %', current_user, SQLERRM
        USING HINT = 'Apply sql/realtime as a superuser, or as a role that may create roles and schemas and is a member of '
            'supabase_realtime_admin where that role exists.';
END
$tidewire$;
