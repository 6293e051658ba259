-- realtime.messages: the table of broadcasts from the database. Policies for private channels are policies on this table.
-- The hub delivers an inserted row once its transaction commits.
--
-- The table has one partition per day (UTC), so that old days can be dropped as a whole. The hub creates and drops them
-- (tidewire.keep_messages in 090). Row Level Security is on, and this file creates no policy: until there is one, clients
-- may join no private channel.

DO $tidewire$
DECLARE
    role_before text := current_setting('role');
    today       date := timezone('utc', now())::date;
    day         date;
    partition   text;
    teams       text;
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_class WHERE relname = 'schema_migrations' AND relnamespace = to_regnamespace('realtime')
            AND obj_description(oid, 'pg_class') LIKE 'Tidewire:%'
    ) THEN
        RETURN;
    END IF;
    SET LOCAL ROLE supabase_realtime_admin;

    IF to_regclass('realtime.messages') IS NULL THEN
        CREATE TABLE realtime.messages (
            topic          text NOT NULL,
            extension      text NOT NULL,
            payload        jsonb,
            event          text,
            private        boolean DEFAULT false,
            updated_at     timestamp without time zone NOT NULL DEFAULT now(),
            inserted_at    timestamp without time zone NOT NULL DEFAULT now(),
            id             uuid NOT NULL DEFAULT gen_random_uuid(),
            binary_payload bytea,
            PRIMARY KEY (id, inserted_at)
        ) PARTITION BY RANGE (inserted_at);
        COMMENT ON TABLE realtime.messages IS 'Broadcasts from the database; its policies are those of private channels';
        ALTER TABLE realtime.messages ADD CONSTRAINT messages_payload_exclusive
            CHECK (payload IS NULL OR binary_payload IS NULL) NOT VALID;
        CREATE INDEX messages_inserted_at_topic_index ON realtime.messages (inserted_at DESC, topic)
            WHERE extension = 'broadcast' AND private IS TRUE;
        ALTER TABLE realtime.messages ENABLE ROW LEVEL SECURITY;
        GRANT SELECT, INSERT, UPDATE ON realtime.messages TO anon, authenticated, service_role;
        SELECT string_agg(quote_ident(rolname), ', ') INTO teams
        FROM pg_roles WHERE rolname IN ('postgres', 'dashboard_user');
        IF teams IS NOT NULL THEN
            EXECUTE 'GRANT ALL ON realtime.messages TO ' || teams;
        END IF;
    END IF;

    FOR day IN SELECT today + n FROM generate_series(-1, 3) AS n LOOP
        partition := 'messages_' || to_char(day, 'YYYY_MM_DD');
        CONTINUE WHEN EXISTS (
            SELECT FROM pg_class WHERE relname = partition AND relnamespace = to_regnamespace('realtime'));
        EXECUTE format('CREATE TABLE realtime.%I PARTITION OF realtime.messages FOR VALUES FROM (%L) TO (%L)',
                       partition, day, day + 1);
    END LOOP;
    PERFORM set_config('role', role_before, true);
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'realtime.messages was not made by %: %', current_user, SQLERRM
        USING HINT = 'Apply sql/realtime as a superuser or as a member of supabase_realtime_admin.';
END
$tidewire$;
