-- Scenario "expense sync": a personal finance app on several devices of one person. Each user has one channel. It binds to
-- all events of six tables, each with the filter owner_id=eq.<user>.
--
-- All six have REPLICA IDENTITY FULL: the filter and the policy both read owner_id. With the default identity a DELETE
-- carries only the primary key, so the hub could report it to no client. The app also reads the old record.
-- The app usually deletes rows softly (deleted_at), and the newest updated_at wins between devices.
--
-- The app's profiles, persons, groups and split tables are left out: the app fetches them, but does not listen to them
-- (and `profiles` is the name of a table of social_feed).

DO $tidewire$
DECLARE
    marker   constant text := 'tidewire scenario expense_sync';
    tables   constant text[] := ARRAY[
        'financial_transactions', 'settlements', 'chat_messages', 'reminders', 'subscriptions',
        'subscription_reminders'
    ];
    enums    constant text[] := ARRAY['transaction_kind', 'billing_cycle'];
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
        RAISE NOTICE 'expense_sync: left out, because public already has its own: %', taken;
        RETURN;
    END IF;

    SELECT count(*) INTO ours FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relname = ANY (tables) AND relkind = 'r';

    -- One run creates all tables. If none exists, create them. If only some exist, somebody dropped the others: create none.
    IF ours = 0 THEN
        IF to_regtype('public.transaction_kind') IS NULL THEN
            CREATE TYPE public.transaction_kind AS ENUM ('expense', 'income', 'transfer');
        END IF;
        IF to_regtype('public.billing_cycle') IS NULL THEN
            CREATE TYPE public.billing_cycle AS ENUM ('weekly', 'monthly', 'quarterly', 'yearly');
        END IF;

        CREATE TABLE public.financial_transactions (
            id          uuid PRIMARY KEY DEFAULT gen_random_uuid(),
            owner_id    uuid NOT NULL,
            kind        public.transaction_kind NOT NULL DEFAULT 'expense',
            title       text NOT NULL,
            amount      numeric(14,2) NOT NULL,
            currency    char(3) NOT NULL DEFAULT 'EUR',
            category    text,
            tags        text[] NOT NULL DEFAULT '{}',
            split       jsonb,
            note        text,
            occurred_at timestamptz NOT NULL DEFAULT now(),
            created_at  timestamptz NOT NULL DEFAULT now(),
            updated_at  timestamptz NOT NULL DEFAULT now(),
            deleted_at  timestamptz
        );

        CREATE TABLE public.settlements (
            id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
            owner_id        uuid NOT NULL,
            counterparty_id uuid NOT NULL,
            amount          numeric(14,2) NOT NULL CHECK (amount > 0),
            currency        char(3) NOT NULL DEFAULT 'EUR',
            is_incoming     boolean NOT NULL DEFAULT false,
            note            text,
            settled_at      timestamptz NOT NULL DEFAULT now(),
            created_at      timestamptz NOT NULL DEFAULT now(),
            updated_at      timestamptz NOT NULL DEFAULT now(),
            deleted_at      timestamptz
        );

        CREATE TABLE public.chat_messages (
            id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
            owner_id        uuid NOT NULL,
            conversation_id uuid NOT NULL,
            sender_id       uuid NOT NULL,
            body            text NOT NULL,
            attachments     jsonb NOT NULL DEFAULT '[]',
            read_at         timestamptz,
            created_at      timestamptz NOT NULL DEFAULT now(),
            updated_at      timestamptz NOT NULL DEFAULT now(),
            deleted_at      timestamptz
        );

        CREATE TABLE public.reminders (
            id             uuid PRIMARY KEY DEFAULT gen_random_uuid(),
            owner_id       uuid NOT NULL,
            transaction_id uuid REFERENCES public.financial_transactions ON DELETE SET NULL,
            person_id      uuid,
            amount         numeric(14,2),
            message        text NOT NULL DEFAULT '',
            is_read        boolean NOT NULL DEFAULT false,
            due_at         timestamptz,
            created_at     timestamptz NOT NULL DEFAULT now(),
            updated_at     timestamptz NOT NULL DEFAULT now(),
            deleted_at     timestamptz
        );

        CREATE TABLE public.subscriptions (
            id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
            owner_id        uuid NOT NULL,
            name            text NOT NULL,
            amount          numeric(14,2) NOT NULL,
            currency        char(3) NOT NULL DEFAULT 'EUR',
            cycle           public.billing_cycle NOT NULL DEFAULT 'monthly',
            member_ids      uuid[] NOT NULL DEFAULT '{}',
            is_shared       boolean NOT NULL DEFAULT false,
            is_active       boolean NOT NULL DEFAULT true,
            next_billing_on date,
            created_at      timestamptz NOT NULL DEFAULT now(),
            updated_at      timestamptz NOT NULL DEFAULT now(),
            deleted_at      timestamptz
        );

        CREATE TABLE public.subscription_reminders (
            id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
            owner_id        uuid NOT NULL,
            subscription_id uuid NOT NULL REFERENCES public.subscriptions ON DELETE CASCADE,
            person_id       uuid,
            amount          numeric(14,2),
            message         text NOT NULL DEFAULT '',
            is_read         boolean NOT NULL DEFAULT false,
            remind_at       timestamptz NOT NULL DEFAULT now(),
            created_at      timestamptz NOT NULL DEFAULT now(),
            updated_at      timestamptz NOT NULL DEFAULT now(),
            deleted_at      timestamptz
        );

        -- One policy for all six tables. PostgreSQL evaluates `(SELECT auth.uid())` once per statement, not once per row.
        FOREACH item IN ARRAY tables LOOP
            EXECUTE format('CREATE INDEX ON public.%I (owner_id, updated_at)', item);
            EXECUTE format('ALTER TABLE public.%I REPLICA IDENTITY FULL', item);
            EXECUTE format('ALTER TABLE public.%I ENABLE ROW LEVEL SECURITY', item);
            EXECUTE format(
                'CREATE POLICY "owners keep their own" ON public.%I FOR ALL TO authenticated'
                ' USING (owner_id = (SELECT auth.uid())) WITH CHECK (owner_id = (SELECT auth.uid()))', item);
            EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON public.%I TO authenticated', item);
            EXECUTE format('GRANT ALL ON public.%I TO service_role', item);
        END LOOP;

        -- Only sessions with a second factor may access settlements. Restrictive: the policy narrows what the policy above
        -- allows, and allows nothing itself.
        CREATE POLICY "settlements take a second factor" ON public.settlements
            AS RESTRICTIVE FOR ALL TO authenticated
            USING ((SELECT auth.jwt() ->> 'aal') = 'aal2');

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
