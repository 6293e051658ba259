-- Functions that triggers and policies call: realtime.send(), send_binary(), broadcast_changes() and topic().
--
-- They run with the caller's privileges, so the policies on realtime.messages decide who may send. send() and send_binary()
-- never fail their transaction: they turn an error into a warning, and the message is not sent. Only broadcast_changes()
-- raises errors, because there the trigger is defined wrongly.
--
-- Before they insert, send() and send_binary() set `realtime.topic` for the rest of the transaction: policies read it.

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
            ('topic()', 'The topic of the channel that is asked about', $function$
CREATE FUNCTION realtime.topic() RETURNS text LANGUAGE sql STABLE AS $body$
    SELECT nullif(current_setting('realtime.topic', true), '')::text
$body$
$function$),
            ('send(jsonb, text, text, boolean)', 'Broadcasts a JSON object to a topic', $function$
CREATE FUNCTION realtime.send(payload jsonb, event text, topic text, private boolean DEFAULT true) RETURNS void
LANGUAGE plpgsql AS $body$
DECLARE
    message_id uuid := pg_catalog.gen_random_uuid();
    message    jsonb := payload;
BEGIN
    -- Receivers use the id to recognize messages that they have already seen.
    IF NOT pg_catalog.jsonb_exists(payload, 'id') THEN
        message := pg_catalog.jsonb_set(payload, '{id}', pg_catalog.to_jsonb(message_id));
    END IF;
    PERFORM pg_catalog.set_config('realtime.topic', topic, true);
    INSERT INTO realtime.messages (id, payload, event, topic, private, extension)
    VALUES (message_id, message, event, topic, private, 'broadcast');
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'WarnSendingBroadcastMessage: %', SQLERRM;
END
$body$
$function$),
            ('send_binary(bytea, text, text, boolean)', 'Broadcasts bytes to a topic', $function$
CREATE FUNCTION realtime.send_binary(payload bytea, event text, topic text, private boolean DEFAULT true) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    PERFORM pg_catalog.set_config('realtime.topic', topic, true);
    INSERT INTO realtime.messages (id, binary_payload, event, topic, private, extension)
    VALUES (pg_catalog.gen_random_uuid(), payload, event, topic, private, 'broadcast');
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'WarnSendingBroadcastMessage: %', SQLERRM;
END
$body$
$function$),
            ('broadcast_changes(text, text, text, text, text, record, record, text)',
             'Broadcasts the change a trigger was called for', $function$
CREATE FUNCTION realtime.broadcast_changes(
    topic_name text, event_name text, operation text, table_name text, table_schema text, new record, old record,
    level text DEFAULT 'ROW'
) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    IF level = 'STATEMENT' THEN
        RAISE EXCEPTION 'function can only be triggered for each row, not for each statement';
    ELSIF operation IN ('INSERT', 'UPDATE', 'DELETE') THEN
        PERFORM realtime.send(
            pg_catalog.jsonb_build_object(
                'schema', table_schema, 'table', table_name, 'operation', operation, 'record', new, 'old_record', old),
            event_name, topic_name);
    ELSE
        RAISE EXCEPTION 'Unexpected operation type: %', operation;
    END IF;
EXCEPTION WHEN OTHERS THEN
    RAISE EXCEPTION 'Failed to process the row: %', SQLERRM;
END
$body$
$function$)
        ) AS v (signature, purpose, definition)
    LOOP
        CONTINUE WHEN to_regprocedure('realtime.' || wanted.signature) IS NOT NULL;
        EXECUTE wanted.definition;
        EXECUTE format('COMMENT ON FUNCTION realtime.%s IS %L', wanted.signature, wanted.purpose);
        EXECUTE format('GRANT EXECUTE ON FUNCTION realtime.%s TO supabase_realtime_admin', wanted.signature);
        IF teams IS NOT NULL THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION realtime.%s TO %s', wanted.signature, teams);
        END IF;
    END LOOP;
    PERFORM set_config('role', role_before, true);
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'the functions of schema realtime were not made by %: %', current_user, SQLERRM
        USING HINT = 'Apply sql/realtime as a superuser or as a member of supabase_realtime_admin.';
END
$tidewire$;
