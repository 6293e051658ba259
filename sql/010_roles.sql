-- The three client roles a token may name: anon, authenticated, service_role.
--
-- A role that already exists is never altered, and nothing is granted to it. A role made here carries a comment
-- ("Tidewire client role ..."), because roles belong to the whole cluster and privileges to one database: by the comment
-- the file knows, in a second database of the same cluster, that the role is ours to grant to.

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
                CONTINUE;  -- made by another session in this moment
            WHEN insufficient_privilege THEN
                -- Before version 16 only a superuser hands out BYPASSRLS, since then whoever has it.
                -- Without it service_role sees less, never more; so go on and say so.
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

    -- What Supabase gives its own three roles in public. It reaches only what the role that runs this file creates
    -- from now on; tables that are there already keep their privileges. Mind what it means: a new table in public
    -- without Row Level Security is open to anyone who holds the anonymous key.
    EXECUTE format('GRANT USAGE ON SCHEMA public TO %s', mine);
    EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO %s', mine);
    EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON SEQUENCES TO %s', mine);
    EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON FUNCTIONS TO %s', mine);
END
$tidewire$;
