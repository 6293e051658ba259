-- Two functions that give the hub what it needs of realtime.messages without owning the table: rows to test policies on,
-- and today's partition.
--
-- Both functions are in schema tidewire and run with the rights of the owner of realtime.messages. Only the hub's two logins
-- may call them: `tidewire` both, `tidewire_policies` only add_channel_probes. PUBLIC may call neither, so no client can.
--
--   tidewire.add_channel_probes(topics, extensions, ids)
--       Inserts one row for each element, in the form that policies of private channels expect: no payload, no event, and
--       `private` with its default. The hub then checks which of the rows the subscriber sees, and always rolls back. If a
--       row were kept, the hub would deliver it to no client, because the row has no event.
--   tidewire.keep_messages(hours)
--       Creates the partitions from yesterday to three days ahead (UTC) and drops those of days that ended more than that
--       many hours ago. Only one call works at a time; a concurrent call does nothing. If the lock for a partition is not
--       available soon, the function postpones the partition and reports its name. Dropping a partition locks the whole
--       table for a moment, and every broadcast waits behind a session that waits for this lock. The function keeps a
--       partition that it may not drop, or that other objects depend on, and reports its name too.
--
-- This file replaces an older version of these functions. It also grants the hub's roles USAGE on the two schemas.

DO $tidewire$
DECLARE
    is_superuser boolean;
    owner        text;
    wanted       record;
    role         text;
BEGIN
    SELECT rolsuper INTO is_superuser FROM pg_roles WHERE rolname = current_user;
    SELECT pg_get_userbyid(relowner) INTO owner FROM pg_class
    WHERE relname = 'messages' AND relnamespace = to_regnamespace('realtime');
    IF owner IS NULL THEN
        RAISE WARNING 'there is no realtime.messages: private channels and broadcasts from the database will not work'
            USING HINT = 'Apply the other files of sql/realtime first, or start Supabase''s Realtime once.';
        RETURN;
    END IF;

    IF to_regnamespace('tidewire') IS NULL THEN
        CREATE SCHEMA tidewire;
    END IF;
    FOREACH role IN ARRAY ARRAY['tidewire', 'tidewire_policies'] LOOP
        IF NOT has_schema_privilege(role, 'tidewire', 'USAGE') THEN
            EXECUTE format('GRANT USAGE ON SCHEMA tidewire TO %I', role);
        END IF;
        IF NOT has_schema_privilege(role, 'realtime', 'USAGE') THEN
            EXECUTE format('GRANT USAGE ON SCHEMA realtime TO %I', role);
            IF NOT has_schema_privilege(role, 'realtime', 'USAGE') THEN
                RAISE insufficient_privilege USING MESSAGE = 'schema realtime cannot be granted';
            END IF;
        END IF;
    END LOOP;

    FOR wanted IN
        SELECT * FROM (VALUES
            ('add_channel_probes(text[], text[], uuid[])', 'tidewire, tidewire_policies',
             'Rows to try the policies of private channels on; for a transaction that is rolled back', $function$
-- The search_path is for triggers that an application may have on the table. This function does not depend on it.
CREATE OR REPLACE FUNCTION tidewire.add_channel_probes(topics text[], extensions text[], ids uuid[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, extensions, realtime, pg_temp AS $body$
BEGIN
    -- In PL/pgSQL the statement is planned once for a session: that is a third of what a probe costs.
    INSERT INTO realtime.messages (id, topic, extension, inserted_at, updated_at)
    SELECT probe.id, probe.topic, probe.extension,
        pg_catalog.timezone('utc', pg_catalog.now()), pg_catalog.timezone('utc', pg_catalog.now())
    FROM ROWS FROM (pg_catalog.unnest(ids), pg_catalog.unnest(topics), pg_catalog.unnest(extensions))
        AS probe (id, topic, extension);
END
$body$
$function$),
            ('keep_messages(integer)', 'tidewire',
             'Makes the partitions of realtime.messages that are needed and drops those that are too old', $function$
CREATE OR REPLACE FUNCTION tidewire.keep_messages(
    hours integer DEFAULT 72, OUT made text[], OUT dropped text[], OUT postponed text[], OUT refused text[]
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS $body$
DECLARE
    today     date := timezone('utc', now())::date;
    oldest    date := (timezone('utc', now()) - make_interval(hours => greatest(coalesce(hours, 72), 0)))::date;
    day       date;
    partition text;
BEGIN
    made := '{}';
    dropped := '{}';
    postponed := '{}';
    refused := '{}';
    IF NOT pg_try_advisory_xact_lock(hashtextextended('tidewire.keep_messages', 0)) THEN
        RETURN;
    END IF;

    FOR day IN SELECT today + n FROM generate_series(-1, 3) AS n LOOP
        partition := 'messages_' || to_char(day, 'YYYY_MM_DD');
        CONTINUE WHEN day < oldest OR EXISTS (
            SELECT FROM pg_class WHERE relname = partition AND relnamespace = 'realtime'::regnamespace);
        BEGIN
            EXECUTE format('CREATE TABLE realtime.%I PARTITION OF realtime.messages FOR VALUES FROM (%L) TO (%L)',
                           partition, day, day + 1);
            made := made || partition;
        EXCEPTION
            WHEN lock_not_available THEN
                postponed := postponed || partition;
            WHEN duplicate_table OR invalid_object_definition THEN
                NULL;  -- made by another in this moment, or that day is covered by a partition of another name
        END;
    END LOOP;

    FOR partition IN
        SELECT c.relname
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'realtime.messages'::regclass AND c.relname ~ '^messages_\d{4}_(0\d|1[0-2])_([0-2]\d|3[01])$'
            AND c.relnamespace = 'realtime'::regnamespace
            AND substr(c.relname, 10) < to_char(oldest, 'YYYY_MM_DD')
        ORDER BY 1
    LOOP
        BEGIN
            EXECUTE format('DROP TABLE realtime.%I', partition);
            dropped := dropped || partition;
        EXCEPTION
            WHEN lock_not_available THEN
                postponed := postponed || partition;
            WHEN insufficient_privilege OR dependent_objects_still_exist THEN
                refused := refused || partition;
        END;
    END LOOP;
END
$body$
$function$)
        ) AS v (signature, callers, purpose, definition)
    LOOP
        EXECUTE wanted.definition;
        EXECUTE format('COMMENT ON FUNCTION tidewire.%s IS %L', wanted.signature, wanted.purpose);
        EXECUTE format('REVOKE ALL ON FUNCTION tidewire.%s FROM PUBLIC', wanted.signature);
        EXECUTE format('GRANT EXECUTE ON FUNCTION tidewire.%s TO %s', wanted.signature, wanted.callers);
        -- Unless a superuser changes the owner, the new owner needs CREATE on the schema at that moment.
        IF is_superuser OR owner = current_user THEN
            EXECUTE format('ALTER FUNCTION tidewire.%s OWNER TO %I', wanted.signature, owner);
        ELSE
            EXECUTE format('GRANT CREATE ON SCHEMA tidewire TO %I', owner);
            EXECUTE format('ALTER FUNCTION tidewire.%s OWNER TO %I', wanted.signature, owner);
            EXECUTE format('REVOKE CREATE ON SCHEMA tidewire FROM %I', owner);
        END IF;
    END LOOP;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'the hub''s functions for realtime.messages were not made by %: %', current_user, SQLERRM
        USING HINT = format('Apply sql/realtime/090_upkeep.sql as a superuser or as a member of %I, the owner of '
            'realtime.messages. Without it private channels are refused, and the hub''s login cannot make the partition of '
            'each day.', owner);
END
$tidewire$;
