-- Functions with which Supabase's Realtime turns changes of wal2json into messages for subscribers. The hub reads the
-- stream itself and calls none of them. They exist because dumps, diffs and applications refer to them, and they work.

DO $tidewire$
DECLARE
    role_before text := current_setting('role');
    wanted      record;
    teams       text;
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_class WHERE relname = 'schema_migrations' AND relnamespace = to_regnamespace('realtime')
            AND obj_description(oid, 'pg_class') LIKE 'Tidewire:%'
    ) THEN
        RETURN;
    END IF;
    SET LOCAL ROLE supabase_realtime_admin;
    SELECT string_agg(quote_ident(rolname), ', ') INTO teams
    FROM pg_roles WHERE rolname IN ('postgres', 'dashboard_user');

    FOR wanted IN
        SELECT * FROM (VALUES
            ('build_prepared_statement_sql(text, regclass, realtime.wal_column[])', true,
             'A PREPARE whose statement says whether the row with this primary key can be seen', $function$
CREATE FUNCTION realtime.build_prepared_statement_sql(
    prepared_statement_name text, entity regclass, columns realtime.wal_column[]
) RETURNS text LANGUAGE sql AS $body$
    SELECT pg_catalog.format(
        'PREPARE %I AS SELECT EXISTS (SELECT 1 FROM %s WHERE %s)', prepared_statement_name, entity,
        pg_catalog.string_agg(
            pg_catalog.format('%I = %L', key.name, key.value #>> '{}'), ' AND '))
    FROM unnest(columns) AS key
    WHERE key.is_pkey
$body$
$function$),
            ('apply_rls(jsonb, integer)', true, 'Who gets a change of wal2json, and what of it', $function$
CREATE FUNCTION realtime.apply_rls(wal jsonb, max_record_bytes integer DEFAULT 1024 * 1024)
RETURNS SETOF realtime.wal_rls LANGUAGE plpgsql AS $body$
DECLARE
    changed      regclass := pg_catalog.format('%I.%I', wal ->> 'schema', wal ->> 'table')::regclass;
    action       text := CASE wal ->> 'action' WHEN 'I' THEN 'INSERT' WHEN 'U' THEN 'UPDATE' WHEN 'D' THEN 'DELETE' END;
    has_rls      boolean;
    has_key      boolean;
    is_too_large boolean := pg_catalog.octet_length(wal::text) > max_record_bytes;
    row_now      realtime.wal_column[];
    row_before   realtime.wal_column[];
    audience     record;
    subscriber   record;
    readable     text[];
    shown        text[];
    visible_to   uuid[];
    is_visible   boolean;
    role_before  text := pg_catalog.current_setting('role');
    claims_before text := pg_catalog.current_setting('request.jwt.claims', true);
    plan_name    constant text := 'tidewire_visible_row';
    message      jsonb;
BEGIN
    IF action IS NULL THEN
        RETURN;
    END IF;
    SELECT c.relrowsecurity INTO has_rls FROM pg_catalog.pg_class c WHERE c.oid = changed;
    has_key := pg_catalog.jsonb_array_length(coalesce(wal -> 'pk', '[]')) > 0;

    SELECT
        coalesce(pg_catalog.array_agg(v.value) FILTER (WHERE v.part = 'columns'), '{}'),
        coalesce(pg_catalog.array_agg(v.value) FILTER (WHERE v.part = 'identity'), '{}')
    INTO row_now, row_before
    FROM (
        SELECT part, (
            c ->> 'name', c ->> 'type', (c ->> 'typeoid')::oid,
            realtime."cast"(c ->> 'value', coalesce((c ->> 'typeoid')::oid::regtype, (c ->> 'type')::regtype)),
            EXISTS (SELECT FROM pg_catalog.jsonb_array_elements(wal -> 'pk') k WHERE k ->> 'name' = c ->> 'name'), true
        )::realtime.wal_column AS value
        FROM unnest(ARRAY['columns', 'identity']) AS part,
            pg_catalog.jsonb_array_elements(coalesce(wal -> part, '[]')) AS c
    ) AS v;

    FOR audience IN
        SELECT s.claims_role AS role, s.selected_columns AS selected
        FROM realtime.subscription s
        WHERE s.entity = changed AND coalesce(s.action_filter, '*') IN ('*', action)
        GROUP BY 1, 2
    LOOP
        SELECT coalesce(pg_catalog.array_agg(a.attname::text ORDER BY a.attnum), '{}') INTO readable
        FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = changed AND a.attnum > 0 AND NOT a.attisdropped
            AND pg_catalog.has_column_privilege(audience.role, changed, a.attnum, 'SELECT');

        IF action <> 'DELETE' AND (NOT has_key OR EXISTS (
            SELECT FROM unnest(row_now) c WHERE c.is_pkey AND c.name <> ALL (readable)
        )) THEN
            message := pg_catalog.jsonb_build_object(
                'schema', wal ->> 'schema', 'table', wal ->> 'table', 'type', action, 'commit_timestamp', NULL,
                'columns', '[]'::jsonb, 'record', '{}'::jsonb);
            IF action = 'UPDATE' THEN
                message := message || '{"old_record": {}}';
            END IF;
            RETURN NEXT (
                message, has_rls,
                ARRAY(SELECT s.subscription_id FROM realtime.subscription s
                    WHERE s.entity = changed AND coalesce(s.action_filter, '*') IN ('*', action)
                        AND s.claims_role = audience.role AND s.selected_columns IS NOT DISTINCT FROM audience.selected),
                CASE WHEN has_key THEN ARRAY['Error 401: Unauthorized']
                    ELSE ARRAY['Error 400: Bad Request, no primary key'] END
            )::realtime.wal_rls;
            CONTINUE;
        END IF;

        -- The primary key is always included with the selected columns.
        shown := ARRAY(
            SELECT name FROM unnest(readable) AS name
            WHERE audience.selected IS NULL OR audience.selected = '{}' OR name = ANY (audience.selected)
                OR EXISTS (SELECT FROM pg_catalog.jsonb_array_elements(wal -> 'pk') k WHERE k ->> 'name' = name));
        message := pg_catalog.jsonb_build_object(
            'schema', wal ->> 'schema', 'table', wal ->> 'table', 'type', action,
            'commit_timestamp', pg_catalog.to_char(
                (wal ->> 'timestamp')::timestamptz AT TIME ZONE 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
            'columns', (
                SELECT coalesce(pg_catalog.jsonb_agg(
                    pg_catalog.jsonb_build_object('name', a.attname, 'type', t.typname) ORDER BY a.attnum), '[]')
                FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
                WHERE a.attrelid = changed AND a.attname = ANY (shown)));
        IF action <> 'DELETE' THEN
            message := message || pg_catalog.jsonb_build_object('record', (
                SELECT coalesce(pg_catalog.jsonb_object_agg(c.name, c.value), '{}') FROM unnest(row_now) c
                WHERE c.name = ANY (shown) AND (NOT is_too_large OR pg_catalog.octet_length(c.value::text) <= 64)));
        END IF;
        IF action <> 'INSERT' THEN
            message := message || pg_catalog.jsonb_build_object('old_record', (
                SELECT coalesce(pg_catalog.jsonb_object_agg(c.name, c.value), '{}') FROM unnest(row_before) c
                WHERE c.name = ANY (shown) AND (NOT is_too_large OR pg_catalog.octet_length(c.value::text) <= 64)
                    AND (action = 'UPDATE' OR NOT has_rls OR c.is_pkey)));
        END IF;

        visible_to := '{}';
        IF has_rls AND action <> 'DELETE' THEN
            IF EXISTS (SELECT FROM pg_catalog.pg_prepared_statements p WHERE p.name = plan_name) THEN
                EXECUTE pg_catalog.format('DEALLOCATE %I', plan_name);
            END IF;
            EXECUTE realtime.build_prepared_statement_sql(plan_name, changed, row_now);
        END IF;
        FOR subscriber IN
            SELECT s.subscription_id AS id, s.claims
            FROM realtime.subscription s
            WHERE s.entity = changed AND coalesce(s.action_filter, '*') IN ('*', action)
                AND s.claims_role = audience.role AND s.selected_columns IS NOT DISTINCT FROM audience.selected
                AND realtime.is_visible_through_filters(CASE action WHEN 'DELETE' THEN row_before ELSE row_now END, s.filters)
        LOOP
            is_visible := true;
            IF has_rls AND action <> 'DELETE' THEN
                PERFORM pg_catalog.set_config('request.jwt.claims', subscriber.claims::text, true);
                PERFORM pg_catalog.set_config('role', audience.role::text, true);
                EXECUTE pg_catalog.format('EXECUTE %I', plan_name) INTO is_visible;
                PERFORM pg_catalog.set_config('role', role_before, true);
            END IF;
            IF is_visible THEN
                visible_to := visible_to || subscriber.id;
            END IF;
        END LOOP;
        PERFORM pg_catalog.set_config('request.jwt.claims', coalesce(claims_before, ''), true);
        RETURN NEXT (
            message, has_rls, visible_to, CASE WHEN is_too_large THEN ARRAY['Error 413: Payload Too Large'] END
        )::realtime.wal_rls;
    END LOOP;
END
$body$
$function$),
            ('list_changes(name, name, integer, integer)', false, 'Takes changes from a slot of wal2json, for subscribers', $function$
CREATE FUNCTION realtime.list_changes(publication name, slot_name name, max_changes integer, max_record_bytes integer)
RETURNS TABLE (wal jsonb, is_rls_enabled boolean, subscription_ids uuid[], errors text[], slot_changes_count bigint)
LANGUAGE sql AS $body$
    WITH followed AS (
        SELECT
            concat_ws(',', CASE WHEN p.pubinsert THEN 'insert' END, CASE WHEN p.pubupdate THEN 'update' END,
                CASE WHEN p.pubdelete THEN 'delete' END) AS actions,
            (SELECT string_agg(realtime.quote_wal2json(format('%I.%I', t.schemaname, t.tablename)::regclass), ',')
             FROM pg_catalog.pg_publication_tables t WHERE t.pubname = p.pubname) AS tables
        FROM pg_catalog.pg_publication p WHERE p.pubname = list_changes.publication
    ), taken AS MATERIALIZED (
        SELECT change.data::jsonb AS data, change.ordinality
        FROM followed, pg_catalog.pg_logical_slot_get_changes(
            list_changes.slot_name, NULL, list_changes.max_changes,
            'include-pk', 'true', 'include-transaction', 'false', 'include-timestamp', 'true', 'include-type-oids', 'true',
            'format-version', '2', 'actions', followed.actions, 'add-tables', followed.tables
        ) WITH ORDINALITY AS change (lsn, xid, data, ordinality)
        WHERE followed.tables IS NOT NULL AND followed.actions <> ''
    ), counted AS (
        SELECT count(*) AS changes FROM taken
    )
    SELECT told.wal, told.is_rls_enabled, told.subscription_ids, told.errors, counted.changes
    FROM counted LEFT JOIN (
        SELECT rls.*, taken.ordinality
        FROM taken, realtime.apply_rls(wal := taken.data, max_record_bytes := list_changes.max_record_bytes) AS rls
        WHERE rls.subscription_ids[1] IS NOT NULL
    ) AS told ON true
    WHERE counted.changes > 0
    ORDER BY told.ordinality
$body$
$function$)
        ) AS v (signature, is_for_clients, purpose, definition)
    LOOP
        CONTINUE WHEN to_regprocedure('realtime.' || wanted.signature) IS NOT NULL;
        EXECUTE wanted.definition;
        EXECUTE format('COMMENT ON FUNCTION realtime.%s IS %L', wanted.signature, wanted.purpose);
        EXECUTE format('GRANT EXECUTE ON FUNCTION realtime.%s TO %s', wanted.signature,
                       concat_ws(', ', teams, CASE WHEN wanted.is_for_clients THEN 'anon, authenticated, service_role'
                                                   ELSE 'supabase_realtime_admin' END));
        IF wanted.signature LIKE 'list_changes(%' THEN
            BEGIN
                ALTER FUNCTION realtime.list_changes(name, name, integer, integer) SET log_min_messages TO fatal;
            EXCEPTION WHEN insufficient_privilege THEN
                NULL;  -- without it PostgreSQL logs each poll; the setting has no other purpose
            END;
        END IF;
    END LOOP;
    PERFORM set_config('role', role_before, true);
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'the functions of schema realtime were not made by %: %', current_user, SQLERRM
        USING HINT = 'Apply sql/realtime as a superuser or as a member of supabase_realtime_admin.';
END
$tidewire$;
