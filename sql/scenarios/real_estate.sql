-- Scenario "real-estate operations": an office works through listings. Every screen listens to whole tables, some
-- with a filter on status, assignee or staff_id.
--
-- All six tables have REPLICA IDENTITY FULL, as in the app's own migration. The app decodes the old record of deletions,
-- and the hub can check a filter such as status=eq.OPEN on a deleted row only if the change contains the row.
--
-- Ids are text except for people: staff.id is the person's user id (claim "sub"), so that a filter
-- staff_id=eq.<user> and the policies refer to the same id.

DO $tidewire$
DECLARE
    marker   constant text := 'tidewire scenario real_estate';
    tables   constant text[] := ARRAY[
        'staff', 'listings', 'listing_notes', 'activities', 'agent_tasks', 'listing_acknowledgments'
    ];
    enums    constant text[] := ARRAY['task_status'];
    functions constant text[] := ARRAY['may_work_on'];
    taken    text;
    ours     int;
    item     text;
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
        RAISE NOTICE 'real_estate: left out, because public already has its own: %', taken;
        RETURN;
    END IF;

    SELECT count(*) INTO ours FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relname = ANY (tables) AND relkind = 'r';

    -- One run creates all tables. If none exists, create them. If only some exist, somebody dropped the others: create none.
    IF ours = 0 THEN
        IF to_regtype('public.task_status') IS NULL THEN
            CREATE TYPE public.task_status AS ENUM ('OPEN', 'CLAIMED', 'IN_PROGRESS', 'DONE', 'CANCELLED');
        END IF;

        CREATE TABLE public.staff (
            id         uuid PRIMARY KEY,
            name       text NOT NULL,
            email      text UNIQUE,
            job        text NOT NULL DEFAULT 'operations' CHECK (job IN ('operations', 'marketing', 'admin')),
            skills     text[] NOT NULL DEFAULT '{}',
            is_active  boolean NOT NULL DEFAULT true,
            created_at timestamptz NOT NULL DEFAULT now(),
            updated_at timestamptz NOT NULL DEFAULT now()
        );

        CREATE TABLE public.listings (
            id           text PRIMARY KEY DEFAULT 'lst_' || replace(gen_random_uuid()::text, '-', ''),
            address      text NOT NULL,
            listing_type text NOT NULL DEFAULT 'SALE' CHECK (listing_type IN ('SALE', 'LEASE')),
            status       text NOT NULL DEFAULT 'new' CHECK (status IN ('new', 'in_progress', 'completed', 'archived')),
            assignee     uuid REFERENCES public.staff ON DELETE SET NULL,
            realtor_name text,
            price        numeric(12,2),
            latitude     double precision,
            longitude    double precision,
            progress     numeric(5,2) NOT NULL DEFAULT 0 CHECK (progress BETWEEN 0 AND 100),
            details      jsonb NOT NULL DEFAULT '{}',
            due_on       date,
            created_at   timestamptz NOT NULL DEFAULT now(),
            updated_at   timestamptz NOT NULL DEFAULT now(),
            deleted_at   timestamptz
        );

        CREATE TABLE public.listing_notes (
            id         text PRIMARY KEY DEFAULT 'note_' || replace(gen_random_uuid()::text, '-', ''),
            listing_id text NOT NULL REFERENCES public.listings ON DELETE CASCADE,
            content    text NOT NULL,
            is_private boolean NOT NULL DEFAULT false,
            created_by uuid REFERENCES public.staff ON DELETE SET NULL,
            created_at timestamptz NOT NULL DEFAULT now(),
            updated_at timestamptz NOT NULL DEFAULT now()
        );

        CREATE TABLE public.activities (
            id                text PRIMARY KEY DEFAULT 'act_' || replace(gen_random_uuid()::text, '-', ''),
            listing_id        text NOT NULL REFERENCES public.listings ON DELETE CASCADE,
            name              text NOT NULL,
            task_category     text,
            status            public.task_status NOT NULL DEFAULT 'OPEN',
            assigned_staff_id uuid REFERENCES public.staff ON DELETE SET NULL,
            priority          smallint NOT NULL DEFAULT 0,
            inputs            jsonb,
            due_at            timestamptz,
            claimed_at        timestamptz,
            completed_at      timestamptz,
            created_at        timestamptz NOT NULL DEFAULT now(),
            updated_at        timestamptz NOT NULL DEFAULT now()
        );

        CREATE TABLE public.agent_tasks (
            id                text PRIMARY KEY DEFAULT 'task_' || replace(gen_random_uuid()::text, '-', ''),
            title             text NOT NULL,
            description       text,
            status            public.task_status NOT NULL DEFAULT 'OPEN',
            assigned_staff_id uuid REFERENCES public.staff ON DELETE SET NULL,
            priority          smallint NOT NULL DEFAULT 0,
            labels            text[] NOT NULL DEFAULT '{}',
            due_at            timestamptz,
            created_at        timestamptz NOT NULL DEFAULT now(),
            updated_at        timestamptz NOT NULL DEFAULT now()
        );

        CREATE TABLE public.listing_acknowledgments (
            id                  text PRIMARY KEY DEFAULT 'ack_' || replace(gen_random_uuid()::text, '-', ''),
            listing_id          text NOT NULL REFERENCES public.listings ON DELETE CASCADE,
            staff_id            uuid NOT NULL REFERENCES public.staff ON DELETE CASCADE,
            acknowledged_at     timestamptz NOT NULL DEFAULT now(),
            acknowledged_from   text CHECK (acknowledged_from IN ('mobile', 'web', 'notification')),
            UNIQUE (listing_id, staff_id)
        );

        FOREACH item IN ARRAY tables LOOP
            EXECUTE format('ALTER TABLE public.%I REPLICA IDENTITY FULL', item);
            EXECUTE format('ALTER TABLE public.%I ENABLE ROW LEVEL SECURITY', item);
            EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON public.%I TO authenticated', item);
            EXECUTE format('GRANT ALL ON public.%I TO service_role', item);
        END LOOP;

        -- People see active colleagues, and always themselves. An administrator, identified by a claim, sees everyone.
        CREATE POLICY "staff see colleagues" ON public.staff
            FOR SELECT TO authenticated
            USING (is_active OR id = auth.uid() OR (auth.jwt() -> 'app_metadata' ->> 'office_role') = 'admin');
        CREATE POLICY "staff edit their own entry" ON public.staff
            FOR UPDATE TO authenticated USING (id = auth.uid()) WITH CHECK (id = auth.uid());

        -- Active staff share the work: the policy has a condition on the caller, and none on the row.
        FOREACH item IN ARRAY ARRAY['listings', 'listing_notes', 'agent_tasks'] LOOP
            EXECUTE format(
                'CREATE POLICY "active staff share the work" ON public.%I FOR ALL TO authenticated'
                ' USING (EXISTS (SELECT 1 FROM public.staff s WHERE s.id = auth.uid() AND s.is_active))'
                ' WITH CHECK (EXISTS (SELECT 1 FROM public.staff s WHERE s.id = auth.uid() AND s.is_active))', item);
        END LOOP;

        -- A PL/pgSQL function decides which job may see which work. Only PostgreSQL can tell what such a function returns.
        CREATE OR REPLACE FUNCTION public.may_work_on(category text) RETURNS boolean
        LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = '' AS $body$
        DECLARE
            own_job text;
        BEGIN
            SELECT s.job INTO own_job FROM public.staff s WHERE s.id = auth.uid() AND s.is_active;
            IF NOT FOUND THEN
                RETURN false;
            END IF;
            RETURN category IS NULL OR own_job IN (category, 'admin');
        END
        $body$;
        COMMENT ON FUNCTION public.may_work_on(text) IS 'tidewire scenario real_estate';
        CREATE POLICY "staff see the work of their job" ON public.activities
            FOR ALL TO authenticated USING (public.may_work_on(task_category)) WITH CHECK (public.may_work_on(task_category));

        -- Restrictive: narrows what the policy above allows.
        CREATE POLICY "private notes are their author's" ON public.listing_notes
            AS RESTRICTIVE FOR ALL TO authenticated
            USING (NOT is_private OR created_by = auth.uid())
            WITH CHECK (created_by = auth.uid());

        CREATE POLICY "staff acknowledge for themselves" ON public.listing_acknowledgments
            FOR ALL TO authenticated USING (staff_id = auth.uid()) WITH CHECK (staff_id = auth.uid());
        -- No condition on the row: the issuer of the tokens decides who is an administrator.
        CREATE POLICY "administrators read acknowledgments" ON public.listing_acknowledgments
            FOR SELECT TO authenticated
            USING ((SELECT auth.jwt() -> 'app_metadata' ->> 'office_role') = 'admin');

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
