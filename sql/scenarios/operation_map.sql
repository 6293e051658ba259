-- Scenario "operation map and chat": members of an operation see each other move on a map and write to each other.
-- Clients bind to INSERT on locations_stream and op_messages with the filter operation_id=eq.<operation>. Each membership
-- is a row of operation_members, so the policies read that table in a subquery. Some policies do so through a function with
-- its owner's rights, as in applications whose policies would otherwise be recursive.
--
-- Replica identity stays the default. Clients listen only to INSERT, and the location stream is the busiest table of
-- the five apps: old rows would double its WAL, and no client would read them. The policies of operation_members read only
-- its primary key. operation_members is published although no client binds to it: the hub follows it to know who joined
-- and left.
--
-- The app's table of people is called users here, because `profiles` belongs to social_feed. It is not published. Note
-- that it is public.users: this file does not touch accounts (auth.users, if that table exists).

DO $tidewire$
DECLARE
    marker    constant text := 'tidewire scenario operation_map';
    tables    constant text[] := ARRAY[
        'users', 'operations', 'operation_members', 'locations_stream', 'op_messages'
    ];
    published constant text[] := ARRAY['operations', 'operation_members', 'locations_stream', 'op_messages'];
    enums     constant text[] := ARRAY['operation_status'];
    functions constant text[] := ARRAY['is_operation_member'];
    taken     text;
    ours      int;
    item      text;
BEGIN
    -- A table, type or function belongs to this scenario if its comment is the marker. If another object has one of the
    -- names, this file creates nothing: half a scenario is useless, and a policy on another program's table would do harm.
    SELECT string_agg(name, ', ' ORDER BY name) INTO taken
    FROM (
        SELECT relname::text AS name FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relname = ANY (tables)
          AND obj_description(oid, 'pg_class') IS DISTINCT FROM marker
        UNION ALL
        SELECT typname::text FROM pg_type
        WHERE typnamespace = 'public'::regnamespace AND typname = ANY (enums)
          AND obj_description(oid, 'pg_type') IS DISTINCT FROM marker
        UNION ALL
        SELECT proname::text FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace AND proname = ANY (functions)
          AND obj_description(oid, 'pg_proc') IS DISTINCT FROM marker
    ) AS strangers;
    IF taken IS NOT NULL THEN
        RAISE NOTICE 'operation_map: left out, because public already has its own: %', taken;
        RETURN;
    END IF;

    SELECT count(*) INTO ours FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relname = ANY (tables) AND relkind = 'r';

    -- One run creates all tables. If none exists, create them. If only some exist, somebody dropped the others: create none.
    IF ours = 0 THEN
        IF to_regtype('public.operation_status') IS NULL THEN
            CREATE TYPE public.operation_status AS ENUM ('draft', 'active', 'ended');
        END IF;

        CREATE TABLE public.users (
            id         uuid PRIMARY KEY,
            full_name  text NOT NULL,
            callsign   text,
            avatar_url text,
            created_at timestamptz NOT NULL DEFAULT now()
        );

        CREATE TABLE public.operations (
            id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
            name       text NOT NULL,
            status     public.operation_status NOT NULL DEFAULT 'draft',
            created_by uuid NOT NULL REFERENCES public.users,
            area       jsonb,
            starts_at  timestamptz,
            ends_at    timestamptz,
            created_at timestamptz NOT NULL DEFAULT now()
        );

        CREATE TABLE public.operation_members (
            operation_id uuid NOT NULL REFERENCES public.operations ON DELETE CASCADE,
            user_id      uuid NOT NULL REFERENCES public.users ON DELETE CASCADE,
            member_role  text NOT NULL DEFAULT 'member' CHECK (member_role IN ('lead', 'member', 'observer')),
            color        text,
            joined_at    timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (operation_id, user_id)
        );
        CREATE INDEX ON public.operation_members (user_id);

        CREATE TABLE public.locations_stream (
            id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
            operation_id uuid NOT NULL REFERENCES public.operations ON DELETE CASCADE,
            user_id      uuid NOT NULL REFERENCES public.users,
            "timestamp"  timestamptz NOT NULL DEFAULT now(),
            latitude     double precision NOT NULL CHECK (latitude BETWEEN -90 AND 90),
            longitude    double precision NOT NULL CHECK (longitude BETWEEN -180 AND 180),
            accuracy     double precision NOT NULL,
            speed        double precision,
            heading      double precision,
            created_at   timestamptz NOT NULL DEFAULT now()
        );
        CREATE INDEX ON public.locations_stream (operation_id, "timestamp");

        CREATE TABLE public.op_messages (
            id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
            operation_id uuid NOT NULL REFERENCES public.operations ON DELETE CASCADE,
            user_id      uuid NOT NULL REFERENCES public.users,
            content      text NOT NULL,
            created_at   timestamptz NOT NULL DEFAULT now()
        );
        CREATE INDEX ON public.op_messages (operation_id, created_at);

        CREATE OR REPLACE FUNCTION public.is_operation_member(operation uuid) RETURNS boolean
        LANGUAGE sql STABLE SECURITY DEFINER SET search_path = '' AS $body$
            SELECT EXISTS (
                SELECT 1 FROM public.operation_members m WHERE m.operation_id = operation AND m.user_id = auth.uid()
            )
        $body$;
        COMMENT ON FUNCTION public.is_operation_member(uuid) IS 'tidewire scenario operation_map';

        FOREACH item IN ARRAY tables LOOP
            EXECUTE format('ALTER TABLE public.%I ENABLE ROW LEVEL SECURITY', item);
            EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON public.%I TO authenticated', item);
            EXECUTE format('GRANT ALL ON public.%I TO service_role', item);
        END LOOP;

        CREATE POLICY "names are known to everyone signed in" ON public.users
            FOR SELECT TO authenticated USING (true);
        CREATE POLICY "people write their own entry" ON public.users
            FOR ALL TO authenticated USING (id = auth.uid()) WITH CHECK (id = auth.uid());

        -- Members see only their own memberships. A policy that looked up other members would have to read this same table,
        -- and so would apply to its own query: PostgreSQL refuses that as infinite recursion.
        CREATE POLICY "members see their memberships" ON public.operation_members
            FOR SELECT TO authenticated USING (user_id = auth.uid());
        CREATE POLICY "creators admit members" ON public.operation_members
            FOR INSERT TO authenticated
            WITH CHECK (operation_id IN (SELECT o.id FROM public.operations o WHERE o.created_by = auth.uid()));
        CREATE POLICY "members leave" ON public.operation_members
            FOR DELETE TO authenticated USING (user_id = auth.uid());

        CREATE POLICY "members see the operation" ON public.operations
            FOR SELECT TO authenticated
            USING (
                created_by = auth.uid()
                OR id IN (SELECT m.operation_id FROM public.operation_members m WHERE m.user_id = auth.uid())
            );
        CREATE POLICY "creators open operations" ON public.operations
            FOR INSERT TO authenticated WITH CHECK (created_by = auth.uid());
        CREATE POLICY "creators run operations" ON public.operations
            FOR UPDATE TO authenticated USING (created_by = auth.uid()) WITH CHECK (created_by = auth.uid());

        CREATE POLICY "members see locations" ON public.locations_stream
            FOR SELECT TO authenticated
            USING (
                operation_id IN (SELECT m.operation_id FROM public.operation_members m WHERE m.user_id = auth.uid())
            );
        CREATE POLICY "members report where they are" ON public.locations_stream
            FOR INSERT TO authenticated
            WITH CHECK (
                user_id = auth.uid()
                AND operation_id IN (SELECT m.operation_id FROM public.operation_members m WHERE m.user_id = auth.uid())
            );

        CREATE POLICY "members read messages" ON public.op_messages
            FOR SELECT TO authenticated USING (public.is_operation_member(operation_id));
        CREATE POLICY "members write messages" ON public.op_messages
            FOR INSERT TO authenticated
            WITH CHECK (user_id = auth.uid() AND public.is_operation_member(operation_id));

        FOREACH item IN ARRAY tables LOOP
            EXECUTE format('COMMENT ON TABLE public.%I IS %L', item, marker);
        END LOOP;
        FOREACH item IN ARRAY enums LOOP
            EXECUTE format('COMMENT ON TYPE public.%I IS %L', item, marker);
        END LOOP;
    END IF;

    -- This step runs every time, because a publication may have been created again. A publication FOR ALL TABLES already
    -- lists the tables, and would refuse ADD TABLE.
    FOR item IN
        SELECT c.relname FROM pg_class c, unnest(published) AS p (name)
        WHERE c.relnamespace = 'public'::regnamespace AND c.relname = p.name AND c.relkind = 'r'
          AND EXISTS (SELECT FROM pg_publication WHERE pubname = 'supabase_realtime')
          AND NOT EXISTS (
              SELECT FROM pg_publication_tables
              WHERE pubname = 'supabase_realtime' AND schemaname = 'public' AND tablename = p.name
          )
        ORDER BY c.relname
    LOOP
        EXECUTE format('ALTER PUBLICATION supabase_realtime ADD TABLE public.%I', item);
    END LOOP;
END
$tidewire$;
