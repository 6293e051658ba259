-- Functions with which Supabase's Realtime checks the values of a changed row. The hub has its own code and calls none of
-- them. They exist because dumps, diffs and applications refer to them.
--
-- A value arrives as text, as in the write-ahead log, and is compared as the column's type. The types bpchar and bit are
-- written with their catalog names, because in SQL `character` and `bit` mean length one.

DO $tidewire$
DECLARE
    role_before text := current_setting('role');
    wanted      record;
    grantees    text;
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_class WHERE relname = 'schema_migrations' AND relnamespace = to_regnamespace('realtime')
            AND obj_description(oid, 'pg_class') LIKE 'Tidewire:%'
    ) THEN
        RETURN;
    END IF;
    SET LOCAL ROLE supabase_realtime_admin;
    SELECT string_agg(quote_ident(rolname), ', ') INTO grantees
    FROM pg_roles WHERE rolname IN ('postgres', 'dashboard_user', 'anon', 'authenticated', 'service_role');

    FOR wanted IN
        SELECT * FROM (VALUES
            ('to_regrole(text)', 'A role by its name', $function$
CREATE FUNCTION realtime.to_regrole(role_name text) RETURNS regrole LANGUAGE sql IMMUTABLE AS $body$
    SELECT role_name::regrole
$body$
$function$),
            ('"cast"(text, regtype)', 'A value''s text, read as its type, as JSON', $function$
CREATE FUNCTION realtime."cast"(val text, type_ regtype) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $body$
DECLARE
    type_name text := CASE type_
        WHEN 'bpchar'::regtype THEN 'pg_catalog.bpchar' WHEN 'bit'::regtype THEN 'pg_catalog."bit"' ELSE type_::text END;
    result    jsonb;
BEGIN
    IF type_ = 'bytea'::regtype THEN
        RETURN pg_catalog.to_jsonb(val);
    END IF;
    EXECUTE pg_catalog.format('SELECT pg_catalog.to_jsonb(%L::%s)', val, type_name) INTO result;
    RETURN result;
END
$body$
$function$),
            ('check_equality_op(realtime.equality_op, regtype, text, text, boolean)',
             'Whether an operator holds, or does not, between two values of a type', $function$
CREATE FUNCTION realtime.check_equality_op(
    op realtime.equality_op, type_ regtype, val_1 text, val_2 text, negate boolean
) RETURNS boolean LANGUAGE plpgsql STABLE AS $body$
DECLARE
    type_name text := CASE type_
        WHEN 'bpchar'::regtype THEN 'pg_catalog.bpchar' WHEN 'bit'::regtype THEN 'pg_catalog."bit"' ELSE type_::text END;
    negation  text := CASE WHEN negate THEN 'NOT ' ELSE '' END;
    symbol    text := CASE op
        WHEN 'eq' THEN '=' WHEN 'neq' THEN '<>' WHEN 'lt' THEN '<' WHEN 'lte' THEN '<=' WHEN 'gt' THEN '>'
        WHEN 'gte' THEN '>=' WHEN 'like' THEN 'LIKE' WHEN 'ilike' THEN 'ILIKE' WHEN 'match' THEN '~'
        WHEN 'imatch' THEN '~*' END;
    result    boolean;
BEGIN
    IF op = 'is' THEN
        IF val_2 IS NULL OR val_2 NOT IN ('null', 'true', 'false', 'unknown') THEN
            RAISE EXCEPTION 'invalid value for is filter: must be null, true, false, or unknown';
        END IF;
        EXECUTE pg_catalog.format('SELECT %L::%s IS %s%s', val_1, type_name, negation, val_2) INTO result;
    ELSIF op = 'isdistinct' THEN
        EXECUTE pg_catalog.format(
            'SELECT %L::%s IS %sDISTINCT FROM %L::%s', val_1, type_name, negation, val_2, type_name) INTO result;
    ELSIF op = 'in' THEN
        EXECUTE pg_catalog.format(
            'SELECT %s(%L::%s = ANY (%L::%s[]))', negation, val_1, type_name, val_2, type_name) INTO result;
    ELSE
        EXECUTE pg_catalog.format(
            'SELECT %s(%L::%s %s %L::%s)', negation, val_1, type_name, symbol, val_2, type_name) INTO result;
    END IF;
    RETURN result;
END
$body$
$function$),
            ('check_equality_op(realtime.equality_op, regtype, text, text)',
             'Whether an operator holds between two values of a type', $function$
CREATE FUNCTION realtime.check_equality_op(
    op realtime.equality_op, type_ regtype, val_1 text, val_2 text
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $body$
BEGIN
    RETURN realtime.check_equality_op(op, type_, val_1, val_2, false);
END
$body$
$function$),
            ('is_visible_through_filters(realtime.wal_column[], realtime.user_defined_filter[])',
             'Whether all filters hold for a row; what cannot be said counts as no', $function$
CREATE FUNCTION realtime.is_visible_through_filters(
    columns realtime.wal_column[], filters realtime.user_defined_filter[]
) RETURNS boolean LANGUAGE sql STABLE AS $body$
    SELECT pg_catalog.count(*) FILTER (WHERE NOT coalesce(
        CASE WHEN col.name IS NOT NULL THEN realtime.check_equality_op(
            filter.op, coalesce(col.type_oid::regtype, col.type_name::regtype), col.value #>> '{}', filter.value,
            coalesce(filter.negate, false)) END, false)) = 0
    FROM unnest(filters) AS filter LEFT JOIN unnest(columns) AS col ON col.name = filter.column_name
$body$
$function$),
            ('wal2json_escape_identifier(text)', 'A name as wal2json''s options take it', $function$
CREATE FUNCTION realtime.wal2json_escape_identifier(name text) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $body$
    SELECT pg_catalog.regexp_replace(name, '([\\,.[:space:]])', '\\\1', 'g')
$body$
$function$),
            ('quote_wal2json(regclass)', 'A table''s name as wal2json''s options take it', $function$
CREATE FUNCTION realtime.quote_wal2json(entity regclass) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $body$
    SELECT realtime.wal2json_escape_identifier(n.nspname::text) || '.' || realtime.wal2json_escape_identifier(c.relname::text)
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = entity
$body$
$function$)
        ) AS v (signature, purpose, definition)
    LOOP
        CONTINUE WHEN to_regprocedure('realtime.' || wanted.signature) IS NOT NULL;
        EXECUTE wanted.definition;
        EXECUTE format('COMMENT ON FUNCTION realtime.%s IS %L', wanted.signature, wanted.purpose);
        EXECUTE format('GRANT EXECUTE ON FUNCTION realtime.%s TO %s', wanted.signature, grantees);
    END LOOP;
    PERFORM set_config('role', role_before, true);
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'the functions of schema realtime were not made by %: %', current_user, SQLERRM
        USING HINT = 'Apply sql/realtime as a superuser or as a member of supabase_realtime_admin.';
END
$tidewire$;
