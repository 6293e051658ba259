-- Optional: tells the hub of changed definitions in the change stream itself, in the order in which they were committed.
--
-- Without it the hub knows of tables, their policies and their rights by the stream as well (PostgreSQL announces a table
-- again before its next change), and notices the rest by asking the catalogs twice a second: functions that policies
-- call, types, schemas and rights on them. With this file these are in order, too: a row that is committed after such a
-- change is never judged by what was before it. Roles, their memberships and their settings fire no event triggers; they
-- are noticed by asking.
--
-- The triggers write one small message into the WAL for each transaction that changes a definition, and nothing else.
-- Temporary objects are left out. Only a superuser may make event triggers: for anybody else this file does nothing and
-- says so.

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
    -- It is called by whoever changes a definition, superusers too: nobody else may give it another body.
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
