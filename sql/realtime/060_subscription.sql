-- The table realtime.subscription. The hub keeps its subscriptions in memory; the table exists because dashboards and
-- policies refer to it. As on Supabase, a trigger checks the rows that are written into it.

DO $tidewire$
DECLARE
    role_before text := current_setting('role');
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

    IF to_regprocedure('realtime.subscription_check_filters()') IS NULL THEN
        CREATE FUNCTION realtime.subscription_check_filters() RETURNS trigger LANGUAGE plpgsql AS $body$
DECLARE
    subscriber  regrole := realtime.to_regrole(new.claims ->> 'role');
    readable    text[];
    filter      realtime.user_defined_filter;
    column_name text;
    column_type regtype;
    type_name   text;
    operator    text;
    is_too_long boolean;
BEGIN
    SELECT coalesce(array_agg(a.attname::text), '{}') INTO readable
    FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = new.entity AND a.attnum > 0 AND NOT a.attisdropped
        AND pg_catalog.has_column_privilege(subscriber, new.entity, a.attnum, 'SELECT');

    FOREACH filter IN ARRAY coalesce(new.filters, '{}') LOOP
        IF filter.column_name IS NULL OR filter.column_name <> ALL (readable) THEN
            RAISE EXCEPTION 'invalid column for filter %', filter.column_name;
        END IF;
        SELECT a.atttypid::regtype INTO STRICT column_type
        FROM pg_catalog.pg_attribute a WHERE a.attrelid = new.entity AND a.attname = filter.column_name;
        type_name := CASE column_type WHEN 'bpchar'::regtype THEN 'pg_catalog.bpchar'
            WHEN 'bit'::regtype THEN 'pg_catalog."bit"' ELSE column_type::text END;

        IF filter.op = 'in' THEN
            -- Reads the value as an array of the column's type, as the comparison will.
            EXECUTE pg_catalog.format('SELECT pg_catalog.cardinality(%L::%s[]) > 100', filter.value, type_name)
            INTO STRICT is_too_long;
            IF is_too_long THEN
                RAISE EXCEPTION 'too many values for `in` filter. Maximum 100';
            END IF;
        ELSIF filter.op = 'is' THEN
            IF filter.value IS NULL OR filter.value NOT IN ('null', 'true', 'false', 'unknown') THEN
                RAISE EXCEPTION 'invalid value for is filter: must be null, true, false, or unknown';
            ELSIF filter.value <> 'null' AND column_type <> 'boolean'::regtype THEN
                RAISE EXCEPTION 'is % filter requires a boolean column, got %', filter.value, column_type;
            END IF;
        ELSIF filter.op IN ('like', 'ilike', 'match', 'imatch') THEN
            operator := CASE filter.op WHEN 'like' THEN '~~' WHEN 'ilike' THEN '~~*' WHEN 'match' THEN '~' ELSE '~*' END;
            IF column_type <> 'varchar'::regtype AND NOT EXISTS (
                SELECT FROM pg_catalog.pg_operator o WHERE o.oprname = operator AND o.oprleft = column_type
            ) THEN
                RAISE EXCEPTION 'operator % requires a text-compatible column type, got %', filter.op, column_type;
            END IF;
            PERFORM realtime."cast"(filter.value, column_type);
            IF filter.op IN ('match', 'imatch') THEN
                BEGIN
                    PERFORM '' ~ filter.value;
                EXCEPTION WHEN OTHERS THEN
                    RAISE EXCEPTION 'invalid regular expression for % filter: %', filter.op, SQLERRM;
                END;
            END IF;
        ELSE
            PERFORM realtime."cast"(filter.value, column_type);
        END IF;
    END LOOP;

    FOREACH column_name IN ARRAY coalesce(new.selected_columns, '{}') LOOP
        IF column_name IS NULL OR column_name <> ALL (readable) THEN
            RAISE EXCEPTION 'invalid column for select %', column_name;
        END IF;
    END LOOP;

    -- Sorts filters and columns, so that subscriptions with the same meaning compare as equal.
    SELECT coalesce(array_agg(f ORDER BY f.column_name, f.op, f.value, f.negate), '{}') INTO new.filters
    FROM unnest(new.filters) AS f;
    IF new.selected_columns IS NOT NULL THEN
        SELECT coalesce(array_agg(c ORDER BY c), '{}') INTO new.selected_columns FROM unnest(new.selected_columns) AS c;
    END IF;
    RETURN new;
END
$body$;
        GRANT EXECUTE ON FUNCTION realtime.subscription_check_filters() TO anon, authenticated, service_role;
        IF teams IS NOT NULL THEN
            EXECUTE 'GRANT EXECUTE ON FUNCTION realtime.subscription_check_filters() TO ' || teams;
        END IF;
    END IF;

    IF to_regclass('realtime.subscription') IS NULL THEN
        CREATE TABLE realtime.subscription (
            id               bigint GENERATED ALWAYS AS IDENTITY,
            subscription_id  uuid NOT NULL,
            entity           regclass NOT NULL,
            filters          realtime.user_defined_filter[] NOT NULL DEFAULT '{}',
            claims           jsonb NOT NULL,
            claims_role      regrole NOT NULL GENERATED ALWAYS AS (realtime.to_regrole(claims ->> 'role')) STORED,
            created_at       timestamp without time zone NOT NULL DEFAULT timezone('utc', now()),
            action_filter    text DEFAULT '*',
            selected_columns text[],
            CONSTRAINT pk_subscription PRIMARY KEY (id),
            CONSTRAINT subscription_action_filter_check CHECK (action_filter IN ('*', 'INSERT', 'UPDATE', 'DELETE'))
        );
        CREATE INDEX ix_realtime_subscription_entity ON realtime.subscription (entity);
        CREATE UNIQUE INDEX subscription_subscription_id_entity_filters_action_filter_key ON realtime.subscription
            (subscription_id, entity, filters, action_filter, coalesce(selected_columns, '{}'));
        CREATE TRIGGER tr_check_filters BEFORE INSERT OR UPDATE ON realtime.subscription
            FOR EACH ROW EXECUTE FUNCTION realtime.subscription_check_filters();
        GRANT SELECT ON realtime.subscription TO anon, authenticated, service_role;
        GRANT USAGE ON SEQUENCE realtime.subscription_id_seq TO anon, authenticated, service_role;
        IF teams IS NOT NULL THEN
            EXECUTE 'GRANT ALL ON realtime.subscription TO ' || teams;
            EXECUTE 'GRANT ALL ON SEQUENCE realtime.subscription_id_seq TO ' || teams;
        END IF;
    END IF;
    PERFORM set_config('role', role_before, true);
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'realtime.subscription was not made by %: %', current_user, SQLERRM
        USING HINT = 'Apply sql/realtime as a superuser or as a member of supabase_realtime_admin.';
END
$tidewire$;
