-- Scenario "friendships": both people of a friendship receive the request, the answer and the end of it. Clients bind to
-- INSERT, UPDATE and DELETE without a filter and rely on the policy alone.
--
-- REPLICA IDENTITY FULL: a DELETE must carry both people, otherwise neither the policy nor the app can tell whom it
-- concerns.

DO $tidewire$
DECLARE
    marker   constant text := 'tidewire scenario friendships';
    tables   constant text[] := ARRAY['friendships'];
    enums    constant text[] := ARRAY['friendship_status'];
    taken    text;
    ours     int;
    item     text;
BEGIN
    -- A table or type belongs to this scenario if its comment is the marker. If another object has one of the names, this
    -- file creates nothing: half a scenario is useless, and a policy on another program's table would do harm.
    SELECT string_agg(name, ', ' ORDER BY name) INTO taken
    FROM (
        SELECT relname::text AS name FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relname = ANY (tables)
          AND obj_description(oid, 'pg_class') IS DISTINCT FROM marker
        UNION ALL
        SELECT typname::text FROM pg_type
        WHERE typnamespace = 'public'::regnamespace AND typname = ANY (enums)
          AND obj_description(oid, 'pg_type') IS DISTINCT FROM marker
    ) AS strangers;
    IF taken IS NOT NULL THEN
        RAISE NOTICE 'friendships: left out, because public already has its own: %', taken;
        RETURN;
    END IF;

    SELECT count(*) INTO ours FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relname = ANY (tables) AND relkind = 'r';

    -- One run creates all tables. If none exists, create them. If only some exist, somebody dropped the others: create none.
    IF ours = 0 THEN
        IF to_regtype('public.friendship_status') IS NULL THEN
            CREATE TYPE public.friendship_status AS ENUM ('pending', 'accepted', 'declined', 'blocked');
        END IF;

        CREATE TABLE public.friendships (
            id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
            requester_id uuid NOT NULL,
            addressee_id uuid NOT NULL,
            status       public.friendship_status NOT NULL DEFAULT 'pending',
            message      text,
            created_at   timestamptz NOT NULL DEFAULT now(),
            updated_at   timestamptz NOT NULL DEFAULT now(),
            CHECK (requester_id <> addressee_id)
        );
        -- Two people can have only one friendship, no matter which of them asked.
        CREATE UNIQUE INDEX ON public.friendships (least(requester_id, addressee_id), greatest(requester_id, addressee_id));
        CREATE INDEX ON public.friendships (requester_id);
        CREATE INDEX ON public.friendships (addressee_id);

        ALTER TABLE public.friendships REPLICA IDENTITY FULL;
        ALTER TABLE public.friendships ENABLE ROW LEVEL SECURITY;
        GRANT SELECT, INSERT, UPDATE, DELETE ON public.friendships TO authenticated;
        GRANT ALL ON public.friendships TO service_role;

        CREATE POLICY "both sides see a friendship" ON public.friendships
            FOR SELECT TO authenticated
            USING (requester_id = auth.uid() OR addressee_id = auth.uid());
        CREATE POLICY "people ask in their own name" ON public.friendships
            FOR INSERT TO authenticated
            WITH CHECK (requester_id = auth.uid());
        CREATE POLICY "both sides answer" ON public.friendships
            FOR UPDATE TO authenticated
            USING (requester_id = auth.uid() OR addressee_id = auth.uid())
            WITH CHECK (requester_id = auth.uid() OR addressee_id = auth.uid());
        CREATE POLICY "both sides end it" ON public.friendships
            FOR DELETE TO authenticated
            USING (requester_id = auth.uid() OR addressee_id = auth.uid());

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
        SELECT c.relname FROM pg_class c, unnest(tables) AS p (name)
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
