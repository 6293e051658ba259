-- Functions that policies call to learn about the caller: auth.uid(), auth.role(), auth.email(), auth.jwt().
--
-- This file creates a function only if it is missing. An existing function keeps its body, its owner and its privileges.
-- This file creates no table auth.users: the issuer of the tokens manages accounts.
--
-- A session has the claims in one of two forms. `request.jwt.claims` holds the whole token as JSON (the current form).
-- `request.jwt.claim.<name>` holds one claim (older gateways) and takes precedence where it is set. A setting that was set
-- with SET LOCAL reads as '' afterwards, not as NULL. So '' means "not set" in all functions.
--
-- The bodies are strings in LANGUAGE sql without a SET clause: the planner inlines them, and the hub can read them.

DO $tidewire$
DECLARE
    wanted record;
BEGIN
    IF to_regnamespace('auth') IS NULL THEN
        CREATE SCHEMA auth;
        COMMENT ON SCHEMA auth IS 'Tidewire: the claims of the caller';
        GRANT USAGE ON SCHEMA auth TO anon, authenticated, service_role;
        -- A role needs USAGE on the schema to write policies that name these functions.
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'postgres') AND current_user <> 'postgres' THEN
            GRANT USAGE ON SCHEMA auth TO postgres;
        END IF;
    END IF;

    FOR wanted IN
        SELECT * FROM (VALUES
            ('uid', 'uuid', 'The caller''s user id: claim "sub"', $body$
    SELECT coalesce(
        nullif(current_setting('request.jwt.claim.sub', true), ''),
        nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub'
    )::uuid
$body$),
            ('role', 'text', 'The role the caller''s token names: claim "role"', $body$
    SELECT coalesce(
        nullif(current_setting('request.jwt.claim.role', true), ''),
        nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'role'
    )::text
$body$),
            ('email', 'text', 'The caller''s mail address: claim "email"', $body$
    SELECT coalesce(
        nullif(current_setting('request.jwt.claim.email', true), ''),
        nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'email'
    )::text
$body$),
            ('jwt', 'jsonb', 'All claims of the caller''s token', $body$
    SELECT coalesce(
        nullif(current_setting('request.jwt.claim', true), ''),
        nullif(current_setting('request.jwt.claims', true), '')
    )::jsonb
$body$)
        ) AS v (name, result, purpose, body)
    LOOP
        CONTINUE WHEN to_regprocedure(format('auth.%I()', wanted.name)) IS NOT NULL;
        BEGIN
            EXECUTE format('CREATE FUNCTION auth.%I() RETURNS %s LANGUAGE sql STABLE AS %L',
                           wanted.name, wanted.result, wanted.body);
            EXECUTE format('COMMENT ON FUNCTION auth.%I() IS %L', wanted.name, wanted.purpose);
            -- Every role may execute a new function, unless the database's default privileges revoke that.
            EXECUTE format('GRANT EXECUTE ON FUNCTION auth.%I() TO anon, authenticated, service_role', wanted.name);
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE WARNING 'auth.%() is missing and % may not create it: %', wanted.name, current_user, SQLERRM;
        END;
    END LOOP;
END
$tidewire$;
