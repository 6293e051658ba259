-- The types of schema realtime. Like 030-070, this file creates objects only in a schema that 010 created, and only if they
-- are missing.

DO $tidewire$
DECLARE
    role_before text := current_setting('role');
    wanted      record;
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_class WHERE relname = 'schema_migrations' AND relnamespace = to_regnamespace('realtime')
            AND obj_description(oid, 'pg_class') LIKE 'Tidewire:%'
    ) THEN
        RETURN;
    END IF;
    SET LOCAL ROLE supabase_realtime_admin;

    FOR wanted IN
        SELECT * FROM (VALUES
            ('action', $type$ENUM ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'ERROR')$type$),
            ('equality_op', $type$ENUM ('eq', 'neq', 'lt', 'lte', 'gt', 'gte', 'in', 'like', 'ilike', 'is', 'match',
                'imatch', 'isdistinct')$type$),
            ('user_defined_filter', $type$(column_name text, op realtime.equality_op, value text, negate boolean)$type$),
            ('wal_column', $type$(name text, type_name text, type_oid oid, value jsonb, is_pkey boolean,
                is_selectable boolean)$type$),
            ('wal_rls', $type$(wal jsonb, is_rls_enabled boolean, subscription_ids uuid[], errors text[])$type$)
        ) AS v (name, definition)
    LOOP
        IF to_regtype('realtime.' || wanted.name) IS NULL THEN
            EXECUTE format('CREATE TYPE realtime.%I AS %s', wanted.name, wanted.definition);
        END IF;
    END LOOP;
    PERFORM set_config('role', role_before, true);
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'the types of schema realtime were not made by %: %', current_user, SQLERRM
        USING HINT = 'Apply sql/realtime as a superuser or as a member of supabase_realtime_admin.';
END
$tidewire$;
