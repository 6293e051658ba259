-- Schema demo of `tidewire dev`: the table demo.orders, and demo.step(), which makes one small change at each call.
--
-- Two people may log in, and see only their own rows:
--     ana  00000000-0000-4000-8000-00000000a0a0
--     ben  00000000-0000-4000-8000-00000000be00
-- Three more people have rows too, so that there is always something that ana and ben must not see:
--     cleo  00000000-0000-4000-8000-00000000c1e0, staff: a token with "app_metadata": {"staff": true} sees all orders
--     dora and emil
--
-- In each of the five scenarios that is installed, the five people get their profiles, memberships and so on, and
-- demo.step() changes their rows too. It changes and deletes only rows of these five people, and the two listings and
-- three tasks whose ids begin with demo_.
--
-- Apply 010-030 (roles, auth functions, publications) and the scenarios you want before this file. Apply it again after
-- you add a scenario. This file does not touch a schema demo that it did not create.

DO $tidewire$
BEGIN
    IF to_regnamespace('demo') IS NULL THEN
        CREATE SCHEMA demo;
        COMMENT ON SCHEMA demo IS 'tidewire demo';
        GRANT USAGE ON SCHEMA demo TO anon, authenticated, service_role;
    ELSIF obj_description(to_regnamespace('demo'), 'pg_namespace') IS DISTINCT FROM 'tidewire demo' THEN
        RAISE NOTICE 'demo: left out, because this database has a schema of that name';
        RETURN;
    END IF;

    IF to_regclass('demo.orders') IS NULL THEN
        CREATE TABLE demo.orders (
            id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            customer   uuid NOT NULL,
            status     text NOT NULL DEFAULT 'placed'
                       CHECK (status IN ('placed', 'paid', 'packed', 'shipped', 'delivered', 'cancelled')),
            total      numeric(12,2) NOT NULL CHECK (total >= 0),
            note       text,
            updated_at timestamptz NOT NULL DEFAULT now()
        );
        COMMENT ON TABLE demo.orders IS 'Orders of the people of the demo; demo.step() keeps them moving';
        -- FULL, so that a DELETE and the old row of an UPDATE carry the customer, which the policy checks.
        ALTER TABLE demo.orders REPLICA IDENTITY FULL;
        ALTER TABLE demo.orders ENABLE ROW LEVEL SECURITY;
        CREATE POLICY "customers see their orders" ON demo.orders
            FOR SELECT TO authenticated USING (customer = auth.uid());
        CREATE POLICY "customers place orders" ON demo.orders
            FOR INSERT TO authenticated WITH CHECK (customer = auth.uid());
        CREATE POLICY "customers change their orders" ON demo.orders
            FOR UPDATE TO authenticated USING (customer = auth.uid()) WITH CHECK (customer = auth.uid());
        CREATE POLICY "customers delete their orders" ON demo.orders
            FOR DELETE TO authenticated USING (customer = auth.uid());
        GRANT SELECT, INSERT, UPDATE, DELETE ON demo.orders TO authenticated;
        GRANT ALL ON demo.orders TO service_role;
        GRANT SELECT ON demo.orders TO anon;  -- may query, but gets no rows: no policy is for anon

        INSERT INTO demo.orders (customer, status, total, note) VALUES
            ('00000000-0000-4000-8000-00000000a0a0', 'placed',    24.90, NULL),
            ('00000000-0000-4000-8000-00000000be00', 'paid',     112.00, 'gift wrapping'),
            ('00000000-0000-4000-8000-00000000c1e0', 'packed',     7.50, NULL),
            ('00000000-0000-4000-8000-00000000a0a0', 'shipped',   59.99, 'leave it with the neighbour'),
            ('00000000-0000-4000-8000-00000000be00', 'placed',    18.20, NULL),
            ('00000000-0000-4000-8000-00000000d0a0', 'delivered', 340.00, NULL);
    END IF;
    IF NOT EXISTS (
        SELECT FROM pg_policy WHERE polrelid = 'demo.orders'::regclass AND polname = 'staff see all orders'
    ) THEN
        CREATE POLICY "staff see all orders" ON demo.orders
            FOR SELECT TO authenticated USING ((auth.jwt() -> 'app_metadata' ->> 'staff') = 'true');
    END IF;

    IF EXISTS (SELECT FROM pg_publication WHERE pubname = 'supabase_realtime')
       AND NOT EXISTS (
           SELECT FROM pg_publication_tables
           WHERE pubname = 'supabase_realtime' AND schemaname = 'demo' AND tablename = 'orders'
       )
    THEN
        ALTER PUBLICATION supabase_realtime ADD TABLE demo.orders;
    END IF;

    CREATE OR REPLACE FUNCTION demo.people() RETURNS TABLE (id uuid, name text)
    LANGUAGE sql IMMUTABLE SET search_path = '' AS $body$
        SELECT v.id::uuid, v.name FROM (VALUES
            ('00000000-0000-4000-8000-00000000a0a0', 'ana'),
            ('00000000-0000-4000-8000-00000000be00', 'ben'),
            ('00000000-0000-4000-8000-00000000c1e0', 'cleo'),
            ('00000000-0000-4000-8000-00000000d0a0', 'dora'),
            ('00000000-0000-4000-8000-00000000e111', 'emil')
        ) AS v (id, name)
    $body$;

    -- True if Tidewire's scenario is installed: all of its tables that the demo uses must carry its marker.
    CREATE OR REPLACE FUNCTION demo.has_scenario(scenario text) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = '' AS $body$
        SELECT count(*) > 0 AND bool_and(
            obj_description(to_regclass('public.' || t.name), 'pg_class') IS NOT DISTINCT FROM
            'tidewire scenario ' || scenario)
        FROM (VALUES
            ('expense_sync', 'financial_transactions'), ('expense_sync', 'chat_messages'),
            ('operation_map', 'users'), ('operation_map', 'operations'), ('operation_map', 'operation_members'),
            ('operation_map', 'locations_stream'), ('operation_map', 'op_messages'),
            ('social_feed', 'profiles'), ('social_feed', 'posts'), ('social_feed', 'likes'),
            ('social_feed', 'comments'), ('social_feed', 'follows'),
            ('real_estate', 'staff'), ('real_estate', 'listings'), ('real_estate', 'listing_notes'),
            ('real_estate', 'agent_tasks'),
            ('friendships', 'friendships')
        ) AS t (scenario, name)
        WHERE t.scenario = has_scenario.scenario
    $body$;

    -- Makes one step in one transaction and returns a description. Ana and ben act twice as often as the others. To repeat
    -- a run from the same rows, call SELECT setseed(0.5) before the first step of a session (new uuids still differ).
    -- Each table stays small: once it has its maximum of demo rows, the oldest row is deleted when a new one is inserted.
    -- Concurrent steps do not wait for each other's rows (SKIP LOCKED).
    CREATE OR REPLACE FUNCTION demo.step() RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = '' AS $body$
    DECLARE
        least_orders constant int := 20;
        most_orders  constant int := 180;
        cast_ids  constant uuid[] := ARRAY(SELECT p.id FROM demo.people() p);
        life      constant text[] := ARRAY['placed', 'paid', 'packed', 'shipped', 'delivered'];
        who       uuid;
        whose     text;
        dice      double precision := random();
        scenarios text[];
        did       text;
        one       record;
        orders    bigint;
        amount    numeric(12,2) := round((5 + 120 * random() * random())::numeric, 2);
    BEGIN
        SELECT p.id, p.name INTO who, whose
        FROM demo.people() p
        ORDER BY random() ^ (CASE WHEN p.name IN ('ana', 'ben') THEN 1 ELSE 2 END) DESC LIMIT 1;

        IF dice < 0.45 THEN
            scenarios := ARRAY(
                SELECT s.name
                FROM unnest(ARRAY['expense_sync', 'operation_map', 'social_feed', 'real_estate', 'friendships'])
                    AS s (name)
                WHERE demo.has_scenario(s.name)
            );
            IF cardinality(scenarios) > 0 THEN
                EXECUTE format('SELECT demo.step_%s($1, $2)',
                               scenarios[1 + floor(random() * cardinality(scenarios))::int]) INTO did USING who, whose;
                IF did IS NOT NULL THEN
                    RETURN did;
                END IF;
            END IF;  -- no change in the scenario: change an order instead
        END IF;

        -- An order needs four status changes until it is delivered, and is deleted after that. The probabilities keep
        -- the table near least_orders rows.
        dice := random();
        SELECT count(*) INTO orders FROM demo.orders;

        IF orders >= least_orders AND dice < 0.58 THEN
            SELECT o.id, o.status INTO one FROM demo.orders o
            WHERE o.customer = ANY (cast_ids) AND o.status IN ('placed', 'paid', 'packed', 'shipped')
            ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED;
            IF FOUND THEN
                UPDATE demo.orders o
                SET status = CASE
                        WHEN one.status = 'placed' AND random() < 0.1 THEN 'cancelled'
                        ELSE life[array_position(life, one.status) + 1]
                    END,
                    updated_at = clock_timestamp()
                WHERE o.id = one.id
                RETURNING format('order %s: %s, now %s', o.id, one.status, o.status) INTO did;
            END IF;
        ELSIF orders >= least_orders AND dice < 0.7 THEN
            SELECT o.id INTO one FROM demo.orders o WHERE o.customer = ANY (cast_ids)
            ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED;
            IF FOUND THEN
                UPDATE demo.orders o
                SET note = (ARRAY['ring twice', 'gift wrapping', 'leave it with the neighbour', 'call before delivery',
                                  'fragile', NULL])[1 + floor(random() * 6)::int],
                    updated_at = clock_timestamp()
                WHERE o.id = one.id
                RETURNING format('order %s: note is now %s', o.id, coalesce(quote_literal(o.note), 'empty')) INTO did;
            END IF;
        ELSIF orders > least_orders AND dice < 0.85 THEN
            DELETE FROM demo.orders d WHERE d.id IN (
                SELECT o.id FROM demo.orders o
                WHERE o.customer = ANY (cast_ids) AND o.status IN ('delivered', 'cancelled')
                ORDER BY o.id LIMIT 1 FOR UPDATE SKIP LOCKED
            )
            RETURNING format('order %s deleted (it was %s)', d.id, d.status) INTO did;
        END IF;
        IF did IS NOT NULL THEN
            RETURN did;
        END IF;

        INSERT INTO demo.orders AS o (customer, total, note)
        VALUES (who, amount, CASE WHEN random() < 0.2 THEN 'gift wrapping' END)
        RETURNING format('%s placed order %s over %s', whose, o.id, o.total) INTO did;
        DELETE FROM demo.orders d WHERE d.id IN (
            SELECT o.id FROM demo.orders o WHERE o.customer = ANY (cast_ids) ORDER BY o.id DESC OFFSET most_orders
            LIMIT 3 FOR UPDATE SKIP LOCKED
        );
        RETURN did;
    END
    $body$;

    CREATE OR REPLACE FUNCTION demo.step_expense_sync(who uuid, whose text) RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = '' AS $body$
    DECLARE
        dice double precision := random();
        one  record;
        did  text;
    BEGIN
        IF dice < 0.45 THEN
            INSERT INTO public.financial_transactions AS t (owner_id, title, amount, category, tags, split)
            VALUES (
                who, (ARRAY['Groceries', 'Train ticket', 'Dinner', 'Coffee', 'Cinema'])[1 + floor(random() * 5)::int],
                round((2 + 60 * random())::numeric, 2), 'everyday',
                CASE WHEN random() < 0.3 THEN ARRAY['shared', 'demo'] ELSE ARRAY['demo'] END,
                CASE WHEN random() < 0.3 THEN '{"method": "equal", "people": 2}'::jsonb END)
            RETURNING format('%s spent %s on %s', whose, t.amount, t.title) INTO did;
            DELETE FROM public.financial_transactions d WHERE d.id IN (
                SELECT t.id FROM public.financial_transactions t WHERE t.owner_id = who AND 'demo' = ANY (t.tags)
                ORDER BY t.created_at DESC OFFSET 40 LIMIT 3 FOR UPDATE SKIP LOCKED
            );
        ELSIF dice < 0.65 THEN
            UPDATE public.financial_transactions t SET amount = t.amount + 0.50, updated_at = clock_timestamp()
            WHERE t.id = (SELECT f.id FROM public.financial_transactions f
                          WHERE f.owner_id = who AND 'demo' = ANY (f.tags) AND f.deleted_at IS NULL
                          ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED)
            RETURNING format('%s corrected %s to %s', whose, t.title, t.amount) INTO did;
        ELSIF dice < 0.75 THEN
            UPDATE public.financial_transactions t SET deleted_at = clock_timestamp(), updated_at = clock_timestamp()
            WHERE t.id = (SELECT f.id FROM public.financial_transactions f
                          WHERE f.owner_id = who AND 'demo' = ANY (f.tags) AND f.deleted_at IS NULL
                          ORDER BY f.created_at LIMIT 1 FOR UPDATE SKIP LOCKED)
            RETURNING format('%s put %s in the bin', whose, t.title) INTO did;
        ELSE
            INSERT INTO public.chat_messages (owner_id, conversation_id, sender_id, body)
            SELECT who, '00000000-0000-4000-8000-0000000c4a70', p.id, 'Shall we settle up?'
            FROM demo.people() p WHERE p.id <> who ORDER BY random() LIMIT 1
            RETURNING format('%s got a chat message', whose) INTO did;
            DELETE FROM public.chat_messages d WHERE d.id IN (
                SELECT m.id FROM public.chat_messages m
                WHERE m.owner_id = who AND m.conversation_id = '00000000-0000-4000-8000-0000000c4a70'
                ORDER BY m.created_at DESC OFFSET 20 LIMIT 3 FOR UPDATE SKIP LOCKED
            );
        END IF;
        RETURN did;
    END
    $body$;

    CREATE OR REPLACE FUNCTION demo.step_operation_map(who uuid, whose text) RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = '' AS $body$
    DECLARE
        op   uuid;
        name text;
        did  text;
    BEGIN
        SELECT o.id, o.name INTO op, name
        FROM public.operation_members m JOIN public.operations o ON o.id = m.operation_id
        WHERE m.user_id = who
          AND o.id IN ('00000000-0000-4000-8000-000000000091', '00000000-0000-4000-8000-000000000092')
        ORDER BY random() LIMIT 1;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;

        IF random() < 0.75 THEN
            -- Adds a position near the person's last one.
            INSERT INTO public.locations_stream AS l
                (operation_id, user_id, latitude, longitude, accuracy, speed, heading)
            SELECT op, who, s.latitude + (random() - 0.5) / 500, s.longitude + (random() - 0.5) / 500,
                   round((3 + 12 * random())::numeric, 1), round((2 * random())::numeric, 2),
                   floor(360 * random())
            FROM (
                (SELECT b.latitude, b.longitude FROM public.locations_stream b
                 WHERE b.operation_id = op AND b.user_id = who ORDER BY b."timestamp" DESC LIMIT 1)
                UNION ALL
                SELECT 53.5461, 9.9937
                LIMIT 1
            ) AS s
            RETURNING format('%s is at %s, %s (%s)', whose, round(l.latitude::numeric, 4),
                             round(l.longitude::numeric, 4), name) INTO did;
            DELETE FROM public.locations_stream d WHERE d.id IN (
                SELECT l.id FROM public.locations_stream l WHERE l.operation_id = op AND l.user_id = who
                ORDER BY l."timestamp" DESC OFFSET 60 LIMIT 3 FOR UPDATE SKIP LOCKED
            );
        ELSE
            INSERT INTO public.op_messages (operation_id, user_id, content)
            VALUES (op, who, (ARRAY['On my way', 'In position', 'Need ten minutes', 'All clear', 'Seen, thanks'])
                             [1 + floor(random() * 5)::int])
            RETURNING format('%s to %s: %s', whose, name, content) INTO did;
            DELETE FROM public.op_messages d WHERE d.id IN (
                SELECT m.id FROM public.op_messages m WHERE m.operation_id = op AND m.user_id = who
                ORDER BY m.created_at DESC OFFSET 30 LIMIT 3 FOR UPDATE SKIP LOCKED
            );
        END IF;
        RETURN did;
    END
    $body$;

    CREATE OR REPLACE FUNCTION demo.step_social_feed(who uuid, whose text) RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = '' AS $body$
    DECLARE
        cast_ids constant uuid[] := ARRAY(SELECT p.id FROM demo.people() p);
        dice double precision := random();
        post record;
        did  text;
    BEGIN
        IF NOT EXISTS (SELECT FROM public.profiles p WHERE p.user_id = who) THEN
            RETURN NULL;
        END IF;

        SELECT p.id, a.name AS author INTO post
        FROM public.posts p JOIN demo.people() a ON a.id = p.author
        ORDER BY random() LIMIT 1
        FOR KEY SHARE OF p SKIP LOCKED;  -- else another step could delete the post before this one likes it

        IF dice < 0.2 OR NOT FOUND THEN
            INSERT INTO public.posts (author, caption, media_key, media_type)
            VALUES (who, (ARRAY['Morning light', 'Look at this', 'Finally home', NULL])[1 + floor(random() * 4)::int],
                    'demo/' || whose || '.jpg', 'photo')
            RETURNING format('%s posted %s', whose, coalesce(quote_literal(caption), 'a picture')) INTO did;
            DELETE FROM public.posts d WHERE d.id IN (
                SELECT p.id FROM public.posts p WHERE p.author = ANY (cast_ids)
                ORDER BY p.created_at DESC OFFSET 30 LIMIT 2 FOR UPDATE SKIP LOCKED
            );
        ELSIF dice < 0.65 THEN
            DELETE FROM public.likes l WHERE l.post_id = post.id AND l.user_id = who
            RETURNING format('%s no longer likes a post of %s', whose, post.author) INTO did;
            IF did IS NULL THEN
                INSERT INTO public.likes (post_id, user_id) VALUES (post.id, who) ON CONFLICT DO NOTHING
                RETURNING format('%s likes a post of %s', whose, post.author) INTO did;
            END IF;
        ELSIF dice < 0.9 THEN
            INSERT INTO public.comments (post_id, user_id, body)
            VALUES (post.id, who, (ARRAY['Wonderful!', 'Where is that?', 'Next time with me'])
                                  [1 + floor(random() * 3)::int])
            RETURNING format('%s to %s: %s', whose, post.author, body) INTO did;
        ELSE
            DELETE FROM public.comments d WHERE d.id = (
                SELECT c.id FROM public.comments c WHERE c.user_id = who ORDER BY c.created_at LIMIT 1
                FOR UPDATE SKIP LOCKED
            )
            RETURNING format('%s took back a comment', whose) INTO did;
        END IF;
        RETURN did;
    END
    $body$;

    CREATE OR REPLACE FUNCTION demo.step_real_estate(who uuid, whose text) RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = '' AS $body$
    DECLARE
        dice    double precision := random();
        listing record;
        did     text;
    BEGIN
        SELECT l.id, l.address INTO listing FROM public.listings l WHERE l.id LIKE 'demo\_%' ORDER BY random() LIMIT 1;
        IF NOT FOUND OR NOT EXISTS (SELECT FROM public.staff s WHERE s.id = who AND s.is_active) THEN
            RETURN NULL;
        END IF;

        IF dice < 0.3 THEN
            INSERT INTO public.listing_notes (listing_id, content, is_private, created_by)
            VALUES (listing.id, (ARRAY['Keys are at the office', 'Photographer on Tuesday', 'Owner prefers mornings'])
                                [1 + floor(random() * 3)::int], random() < 0.25, who)
            RETURNING format('%s noted on %s: %s', whose, listing.address, content) INTO did;
            DELETE FROM public.listing_notes d WHERE d.id IN (
                SELECT n.id FROM public.listing_notes n WHERE n.listing_id = listing.id AND n.created_by = who
                ORDER BY n.created_at DESC OFFSET 15 LIMIT 3 FOR UPDATE SKIP LOCKED
            );
        ELSIF dice < 0.8 THEN
            -- Moves a task through its cycle: open, claimed, in progress, done, and open again.
            UPDATE public.agent_tasks t
            SET status = CASE t.status WHEN 'OPEN' THEN 'CLAIMED' WHEN 'CLAIMED' THEN 'IN_PROGRESS'
                                       WHEN 'IN_PROGRESS' THEN 'DONE' ELSE 'OPEN' END::public.task_status,
                assigned_staff_id = CASE t.status WHEN 'OPEN' THEN who WHEN 'DONE' THEN NULL
                                                  ELSE t.assigned_staff_id END,
                updated_at = clock_timestamp()
            WHERE t.id = (SELECT c.id FROM public.agent_tasks c WHERE c.id LIKE 'demo\_%' AND c.status <> 'CANCELLED'
                          ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED)
            RETURNING format('task %s is now %s', quote_literal(t.title), t.status) INTO did;
        ELSE
            UPDATE public.listings l
            SET progress = CASE WHEN l.progress >= 100 THEN 0 ELSE least(l.progress + 12.5, 100) END,
                status = CASE WHEN l.progress >= 100 THEN 'new' WHEN l.progress + 12.5 >= 100 THEN 'completed'
                              ELSE 'in_progress' END,
                assignee = who, updated_at = clock_timestamp()
            WHERE l.id = listing.id
            RETURNING format('%s is at %s%%', l.address, l.progress) INTO did;
        END IF;
        RETURN did;
    END
    $body$;

    CREATE OR REPLACE FUNCTION demo.step_friendships(who uuid, whose text) RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = '' AS $body$
    DECLARE
        other record;
        bond  record;
        did   text;
    BEGIN
        SELECT p.id, p.name INTO other FROM demo.people() p WHERE p.id <> who ORDER BY random() LIMIT 1;
        SELECT f.id, f.status, f.addressee_id INTO bond FROM public.friendships f
        WHERE (f.requester_id = who AND f.addressee_id = other.id)
           OR (f.requester_id = other.id AND f.addressee_id = who)
        FOR UPDATE SKIP LOCKED;

        IF NOT FOUND THEN
            INSERT INTO public.friendships (requester_id, addressee_id) VALUES (who, other.id) ON CONFLICT DO NOTHING
            RETURNING format('%s asked %s to be friends', whose, other.name) INTO did;
        ELSIF bond.status = 'pending' THEN
            UPDATE public.friendships f
            SET status = CASE WHEN random() < 0.8 THEN 'accepted' ELSE 'declined' END::public.friendship_status,
                updated_at = clock_timestamp()
            WHERE f.id = bond.id
            RETURNING format('%s: friend request %s',
                             CASE WHEN bond.addressee_id = who THEN whose ELSE other.name END, f.status) INTO did;
        ELSE
            DELETE FROM public.friendships f WHERE f.id = bond.id
            RETURNING format('%s and %s: nothing between them now', whose, other.name) INTO did;
        END IF;
        RETURN did;
    END
    $body$;

    -- By default every role may call a new function. These are only for their owner, who runs the demo.
    REVOKE ALL ON ALL FUNCTIONS IN SCHEMA demo FROM PUBLIC;

    -- Adds the people to each installed scenario. Existing rows stay unchanged.
    IF demo.has_scenario('operation_map') THEN
        INSERT INTO public.users (id, full_name, callsign)
        SELECT p.id, initcap(p.name), upper(p.name) FROM demo.people() p ON CONFLICT DO NOTHING;
        -- Ana and ben both belong to Harbour. Only ben and cleo belong to Night Watch, so ana must not see it.
        INSERT INTO public.operations (id, name, status, created_by, area)
        SELECT v.id::uuid, v.name, 'active', v.creator::uuid, v.area::jsonb
        FROM (VALUES
            ('00000000-0000-4000-8000-000000000091', 'Harbour', '00000000-0000-4000-8000-00000000a0a0',
             '{"center": [53.5461, 9.9937], "radius_m": 2500}'),
            ('00000000-0000-4000-8000-000000000092', 'Night Watch', '00000000-0000-4000-8000-00000000c1e0', NULL)
        ) AS v (id, name, creator, area)
        ON CONFLICT DO NOTHING;
        INSERT INTO public.operation_members (operation_id, user_id, member_role)
        SELECT o.id, p.id, CASE WHEN o.created_by = p.id THEN 'lead' ELSE 'member' END
        FROM (VALUES
            ('00000000-0000-4000-8000-000000000091', ARRAY['ana', 'ben', 'dora']),
            ('00000000-0000-4000-8000-000000000092', ARRAY['ben', 'cleo'])
        ) AS v (operation, members)
        JOIN public.operations o ON o.id = v.operation::uuid
        JOIN demo.people() p ON p.name = ANY (v.members)
        JOIN public.users u ON u.id = p.id
        ON CONFLICT DO NOTHING;
    END IF;

    IF demo.has_scenario('social_feed') THEN
        INSERT INTO public.profiles (user_id, username, display_name)
        SELECT p.id, p.name, initcap(p.name) FROM demo.people() p ON CONFLICT DO NOTHING;
        INSERT INTO public.follows (follower_id, followee_id)
        SELECT a.id, b.id
        FROM (VALUES ('ana', 'ben'), ('ben', 'ana'), ('ana', 'cleo'), ('ben', 'dora'), ('emil', 'ana')) AS v (who, whom)
        JOIN demo.people() a ON a.name = v.who JOIN demo.people() b ON b.name = v.whom
        WHERE EXISTS (SELECT FROM public.profiles WHERE user_id = a.id)
          AND EXISTS (SELECT FROM public.profiles WHERE user_id = b.id)
        ON CONFLICT DO NOTHING;
    END IF;

    IF demo.has_scenario('real_estate') THEN
        -- Emil has left the office, so he no longer sees its listings, notes and tasks.
        INSERT INTO public.staff (id, name, job, is_active)
        SELECT p.id, initcap(p.name), CASE WHEN p.name = 'cleo' THEN 'marketing' ELSE 'operations' END, p.name <> 'emil'
        FROM demo.people() p ON CONFLICT DO NOTHING;
        INSERT INTO public.listings (id, address, realtor_name, price, latitude, longitude) VALUES
            ('demo_elm', '12 Elm Street', 'R. Mason', 415000, 47.6205, -122.3493),
            ('demo_quay', '3 Old Quay', 'R. Mason', 289500, 47.6062, -122.3321)
        ON CONFLICT DO NOTHING;
        INSERT INTO public.agent_tasks (id, title, labels) VALUES
            ('demo_sign', 'Order the sign', ARRAY['demo']),
            ('demo_photos', 'Book the photographer', ARRAY['demo', 'marketing']),
            ('demo_keys', 'Collect the keys', ARRAY['demo'])
        ON CONFLICT DO NOTHING;
    END IF;
END
$tidewire$;
