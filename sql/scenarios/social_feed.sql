-- Scenario "social feed": posts of the people that a user follows, with live counts of likes and comments.
-- Clients bind to INSERT and DELETE on posts, likes and comments, without filters.
--
-- comments has REPLICA IDENTITY FULL: for a deleted comment, the app and the policy must know the post (to count down and
-- to check access), and the primary key (id) does not name the post. posts has it too: the right to learn of a
-- deletion depends on the post's author, and the event log does not know a post that is older than the log (before the
-- hub, or before a gap). likes and follows need no more than their primary keys, which are the two columns that matter.
-- follows is published although no client binds to it: the policy of posts reads it, so the hub follows it. profiles
-- rarely changes and is not published.

DO $tidewire$
DECLARE
    marker    constant text := 'tidewire scenario social_feed';
    tables    constant text[] := ARRAY['profiles', 'posts', 'likes', 'comments', 'follows'];
    published constant text[] := ARRAY['posts', 'likes', 'comments', 'follows'];
    enums     constant text[] := ARRAY['media_kind'];
    taken     text;
    ours      int;
    item      text;
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
        RAISE NOTICE 'social_feed: left out, because public already has its own: %', taken;
        RETURN;
    END IF;

    SELECT count(*) INTO ours FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relname = ANY (tables) AND relkind = 'r';

    -- One run creates all tables. If none exists, create them. If only some exist, somebody dropped the others: create none.
    IF ours = 0 THEN
        IF to_regtype('public.media_kind') IS NULL THEN
            CREATE TYPE public.media_kind AS ENUM ('photo', 'video');
        END IF;

        CREATE TABLE public.profiles (
            user_id      uuid PRIMARY KEY,
            username     text NOT NULL UNIQUE,
            display_name text,
            bio          text,
            avatar_key   text,
            interests    text[] NOT NULL DEFAULT '{}',
            created_at   timestamptz NOT NULL DEFAULT now()
        );

        CREATE TABLE public.posts (
            id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
            author     uuid NOT NULL REFERENCES public.profiles ON DELETE CASCADE,
            caption    text,
            media_key  text NOT NULL,
            media_type public.media_kind NOT NULL DEFAULT 'photo',
            created_at timestamptz NOT NULL DEFAULT now()
        );
        CREATE INDEX ON public.posts (author, created_at);
        ALTER TABLE public.posts REPLICA IDENTITY FULL;

        CREATE TABLE public.likes (
            post_id    uuid NOT NULL REFERENCES public.posts ON DELETE CASCADE,
            user_id    uuid NOT NULL REFERENCES public.profiles ON DELETE CASCADE,
            created_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (post_id, user_id)
        );

        CREATE TABLE public.comments (
            id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
            post_id    uuid NOT NULL REFERENCES public.posts ON DELETE CASCADE,
            user_id    uuid NOT NULL REFERENCES public.profiles ON DELETE CASCADE,
            body       text NOT NULL,
            created_at timestamptz NOT NULL DEFAULT now()
        );
        CREATE INDEX ON public.comments (post_id, created_at);
        ALTER TABLE public.comments REPLICA IDENTITY FULL;

        CREATE TABLE public.follows (
            follower_id uuid NOT NULL REFERENCES public.profiles ON DELETE CASCADE,
            followee_id uuid NOT NULL REFERENCES public.profiles ON DELETE CASCADE,
            created_at  timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (follower_id, followee_id),
            CHECK (follower_id <> followee_id)
        );

        FOREACH item IN ARRAY tables LOOP
            EXECUTE format('ALTER TABLE public.%I ENABLE ROW LEVEL SECURITY', item);
            EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON public.%I TO authenticated', item);
            EXECUTE format('GRANT ALL ON public.%I TO service_role', item);
        END LOOP;
        GRANT SELECT ON public.profiles TO anon;

        CREATE POLICY "profiles are public" ON public.profiles
            FOR SELECT USING (true);
        CREATE POLICY "people create their profile" ON public.profiles
            FOR INSERT TO authenticated WITH CHECK (user_id = auth.uid());
        CREATE POLICY "people edit their profile" ON public.profiles
            FOR UPDATE TO authenticated USING (user_id = auth.uid()) WITH CHECK (user_id = auth.uid());

        CREATE POLICY "followers and authors see posts" ON public.posts
            FOR SELECT TO authenticated
            USING (
                author = auth.uid()
                OR EXISTS (
                    SELECT 1 FROM public.follows f WHERE f.follower_id = auth.uid() AND f.followee_id = posts.author
                )
            );
        CREATE POLICY "authors write posts" ON public.posts
            FOR ALL TO authenticated USING (author = auth.uid()) WITH CHECK (author = auth.uid());

        -- A like holds two ids and no content. Everyone signed in may see it, to count likes.
        CREATE POLICY "likes are seen by everyone signed in" ON public.likes
            FOR SELECT TO authenticated USING (true);
        CREATE POLICY "people like" ON public.likes
            FOR INSERT TO authenticated
            WITH CHECK (user_id = auth.uid() AND EXISTS (SELECT 1 FROM public.posts p WHERE p.id = likes.post_id));
        CREATE POLICY "people take back their likes" ON public.likes
            FOR DELETE TO authenticated USING (user_id = auth.uid());

        -- A user who sees a post also sees its comments: the policies of posts apply to the subquery too.
        CREATE POLICY "comments are seen with their post" ON public.comments
            FOR SELECT TO authenticated
            USING (EXISTS (SELECT 1 FROM public.posts p WHERE p.id = comments.post_id));
        CREATE POLICY "people comment on what they see" ON public.comments
            FOR INSERT TO authenticated
            WITH CHECK (user_id = auth.uid() AND EXISTS (SELECT 1 FROM public.posts p WHERE p.id = comments.post_id));
        CREATE POLICY "people take back their comments" ON public.comments
            FOR DELETE TO authenticated USING (user_id = auth.uid());

        CREATE POLICY "both ends see a follow" ON public.follows
            FOR SELECT TO authenticated USING (follower_id = auth.uid() OR followee_id = auth.uid());
        CREATE POLICY "people follow" ON public.follows
            FOR INSERT TO authenticated WITH CHECK (follower_id = auth.uid());
        CREATE POLICY "people unfollow" ON public.follows
            FOR DELETE TO authenticated USING (follower_id = auth.uid());

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
