-- Creates the three client roles that a token may name: anon, authenticated, service_role.
--
-- This file never alters a role that already exists, and grants privileges only to roles that it created. A role created
-- here carries a comment ("Tidewire client role ..."). Roles belong to the whole cluster, but privileges to one database:
-- in a second database of the same cluster, this file recognizes its own roles by the comment.

DO $tidewire$
DECLARE
    wanted record;
    mine   text;
BEGIN
    FOR wanted IN
        SELECT * FROM (VALUES
            ('anon',          'NOLOGIN NOINHERIT',           'callers without a token of their own'),
            ('authenticated', 'NOLOGIN NOINHERIT',           'signed-in users'),
            ('service_role',  'NOLOGIN NOINHERIT BYPASSRLS', 'trusted servers, past Row Level Security')
        ) AS v (name, attributes, purpose)
    LOOP
        CONTINUE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = wanted.name);
        BEGIN
            EXECUTE format('CREATE ROLE %I %s', wanted.name, wanted.attributes);
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN
                CONTINUE;  -- another session created it at the same moment
            WHEN insufficient_privilege THEN
                -- Before PostgreSQL 16 only a superuser can grant BYPASSRLS; since then, also a role that has it.
                -- Without BYPASSRLS service_role sees fewer rows, never more. So this file continues, with a warning.
                IF wanted.name <> 'service_role' THEN
                    RAISE;
                END IF;
                EXECUTE 'CREATE ROLE service_role NOLOGIN NOINHERIT';
                RAISE WARNING 'service_role was created without BYPASSRLS: % may not grant it', current_user
                    USING HINT = 'As a superuser: ALTER ROLE service_role BYPASSRLS;';
        END;
        EXECUTE format('COMMENT ON ROLE %I IS %L', wanted.name, 'Tidewire client role: ' || wanted.purpose);
    END LOOP;

    SELECT string_agg(quote_ident(rolname), ', ' ORDER BY rolname) INTO mine
    FROM pg_roles
    WHERE rolname IN ('anon', 'authenticated', 'service_role')
      AND shobj_description(oid, 'pg_authid') LIKE 'Tidewire client role:%';

    IF mine IS NULL OR to_regnamespace('public') IS NULL THEN
        RETURN;
    END IF;

    -- The privileges that Supabase gives its own three roles in public. The default privileges apply only to objects that
    -- the role running this file creates from now on; existing tables keep their privileges. Caution: a new table in
    -- public without Row Level Security is open to anyone who holds the anonymous key.
    EXECUTE format('GRANT USAGE ON SCHEMA public TO %s', mine);
    EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO %s', mine);
    EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON SEQUENCES TO %s', mine);
    EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON FUNCTIONS TO %s', mine);
END
$tidewire$;
