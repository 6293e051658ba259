-- Optional: reports changed definitions to the hub in the change stream itself, in commit order.
--
-- Without this file, the hub still learns of changed tables, policies and table privileges from the stream: PostgreSQL
-- announces a table again before its next change. The hub finds other changes by polling the catalogs twice a second:
-- functions that policies call, types, schemas, and privileges on them. With this file, the hub learns of these in commit
-- order too: it never judges a row by a definition that changed before the row was committed. Roles, their memberships and
-- their settings fire no event triggers; the hub finds their changes by polling.
--
-- The triggers write small messages into the WAL in each transaction that changes a definition, and nothing else. They
-- ignore temporary objects. Only a superuser may create event triggers: for other roles this file only raises a warning.

DO $tidewire$
BEGIN
    IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        RAISE WARNING 'only a superuser may make event triggers: the hub notices changed functions by asking'
            USING HINT = 'Apply sql/050_ddl_messages.sql as a superuser, or leave it out.';
        RETURN;
    END IF;

    IF to_regnamespace('tidewire') IS NULL THEN
        CREATE SCHEMA tidewire;
    END IF;

    CREATE OR REPLACE FUNCTION tidewire.tell_of_definitions() RETURNS event_trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
    BEGIN
        -- A role without rights here must not be kept from its work.
        IF TG_EVENT = 'sql_drop' THEN
            IF NOT EXISTS (SELECT FROM pg_event_trigger_dropped_objects() WHERE NOT is_temporary) THEN RETURN; END IF;
        ELSIF NOT EXISTS (
            SELECT FROM pg_event_trigger_ddl_commands() WHERE schema_name IS DISTINCT FROM 'pg_temp'
        ) THEN
            RETURN;
        END IF;
        PERFORM pg_logical_emit_message(true, 'rt:ddl', TG_TAG);
    END
    $body$;
    -- The function runs as any role that changes a definition, superusers too. So no other role may replace its body.
    EXECUTE format('ALTER FUNCTION tidewire.tell_of_definitions() OWNER TO %I', current_user);

    IF NOT EXISTS (SELECT FROM pg_event_trigger WHERE evtname = 'tidewire_definitions_made') THEN
        CREATE EVENT TRIGGER tidewire_definitions_made ON ddl_command_end
            EXECUTE FUNCTION tidewire.tell_of_definitions();
    END IF;
    IF NOT EXISTS (SELECT FROM pg_event_trigger WHERE evtname = 'tidewire_definitions_dropped') THEN
        CREATE EVENT TRIGGER tidewire_definitions_dropped ON sql_drop
            EXECUTE FUNCTION tidewire.tell_of_definitions();
    END IF;
END
$tidewire$;
