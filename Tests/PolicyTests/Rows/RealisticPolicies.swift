import Policy

/// Policies as developers write them, each with the worst allowed classification (rls.md, "Deparsed text of realistic
/// policies").
enum RealisticPolicies {
    struct Sample {
        var sql: String
        var expected: CompiledPolicy.Classification

        init(_ sql: String, _ expected: CompiledPolicy.Classification) {
            self.sql = sql
            self.expected = expected
        }
    }

    static let schema = """
        CREATE SCHEMA auth; CREATE SCHEMA extensions;
        CREATE EXTENSION citext SCHEMA extensions;
        CREATE EXTENSION ltree SCHEMA extensions;
        CREATE FUNCTION auth.uid() RETURNS uuid LANGUAGE sql STABLE AS $$
            SELECT coalesce(nullif(current_setting('request.jwt.claim.sub', true), ''),
                nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub')::uuid $$;
        CREATE FUNCTION auth.old_uid() RETURNS uuid LANGUAGE sql STABLE AS
            $$ SELECT nullif(current_setting('request.jwt.claim.sub', true), '')::uuid $$;
        CREATE FUNCTION auth.older_uid() RETURNS uuid LANGUAGE sql STABLE SET search_path = '' AS
            $$ SELECT coalesce(current_setting('request.jwt.claim.sub', true),
                (current_setting('request.jwt.claims', true)::jsonb ->> 'sub'))::uuid $$;
        CREATE FUNCTION auth.role() RETURNS text LANGUAGE sql STABLE AS $$
            SELECT coalesce(nullif(current_setting('request.jwt.claim.role', true), ''),
                nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'role')::text $$;
        CREATE FUNCTION auth.email() RETURNS text LANGUAGE sql STABLE AS $$
            SELECT coalesce(nullif(current_setting('request.jwt.claim.email', true), ''),
                nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'email')::text $$;
        CREATE FUNCTION auth.jwt() RETURNS jsonb LANGUAGE sql STABLE AS $$
            SELECT coalesce(nullif(current_setting('request.jwt.claim', true), ''),
                nullif(current_setting('request.jwt.claims', true), ''))::jsonb $$;
        CREATE TYPE public.post_status AS ENUM ('draft', 'review', 'published');
        CREATE TYPE public."Odd Type" AS ENUM ('a', 'B''s');
        CREATE DOMAIN public.dom AS text CHECK (VALUE <> '');
        CREATE TABLE public.team_members (team_id uuid, user_id uuid, role text, since timestamptz,
            doubled uuid GENERATED ALWAYS AS (team_id) STORED);
        CREATE TABLE public.user_roles (user_id uuid, role text);
        CREATE TABLE public.t (
            id bigint, user_id uuid, sender_id uuid, recipient_id uuid, team_id uuid, tenant_id uuid, org_id text,
            is_public boolean, is_active boolean, email text, ci extensions.citext, deleted_at timestamptz,
            kind text, status public.post_status, odd public."Odd Type", collaborators uuid[], tags text[],
            published_at timestamp, created_at timestamptz, vis varchar(20), name text, meta jsonb,
            price numeric(10,2), qty integer, small smallint, dbl double precision, code char(4), dom public.dom,
            txtcol text COLLATE "C", valid tstzrange, path extensions.ltree, "Weird ""name" text);
        CREATE FUNCTION public.is_team_member(team_id uuid) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER AS $$
            SELECT EXISTS (SELECT 1 FROM public.team_members tm
                WHERE tm.team_id = is_team_member.team_id AND tm.user_id = auth.uid()) $$;
        CREATE FUNCTION public.has_role(uuid, text) RETURNS boolean LANGUAGE sql STABLE STRICT AS $$
            SELECT EXISTS (SELECT 1 FROM public.team_members tm
                WHERE tm.team_id = $1 AND tm.user_id = auth.uid() AND tm.role = $2) $$;
        CREATE FUNCTION public.get_my_teams() RETURNS SETOF uuid LANGUAGE sql STABLE SECURITY DEFINER AS
            $$ SELECT team_id FROM public.team_members WHERE user_id = auth.uid() $$;
        CREATE FUNCTION public.claim(name text) RETURNS text LANGUAGE sql STABLE AS
            $$ SELECT auth.jwt() ->> name $$;
        CREATE FUNCTION public.authorize(text) RETURNS boolean LANGUAGE plpgsql STABLE AS
            $$ BEGIN RETURN EXISTS (SELECT 1 FROM public.user_roles WHERE role = $1); END $$;
        """

    static let all: [Sample] = [
        Sample("auth.uid() = user_id", .compiled),
        Sample("auth.old_uid() = user_id", .compiled),
        Sample("auth.older_uid() = user_id", .compiled),
        Sample("(select auth.uid()) = user_id", .compiled),
        Sample("auth.uid() = sender_id OR auth.uid() = recipient_id", .compiled),
        Sample("true", .compiled), Sample("false", .compiled), Sample("is_public", .compiled),
        Sample("is_public = true OR user_id = (select auth.uid())", .compiled),
        Sample("auth.role() = 'authenticated'", .compiled),
        Sample("auth.jwt() ->> 'email' = email", .compiled),
        Sample("auth.jwt() ->> 'email' = ci::text", .compiled),
        Sample("tenant_id = (auth.jwt() -> 'app_metadata' ->> 'tenant_id')::uuid", .compiled),
        Sample("(select auth.jwt() ->> 'aal') = 'aal2'", .compiled),
        Sample("(select auth.uid()) IS NOT NULL", .compiled),
        Sample("deleted_at IS NULL AND user_id = auth.uid()", .compiled),
        Sample("kind IN ('public', 'unlisted')", .compiled),
        Sample("vis IN ('public', 'unlisted')", .compiled),
        Sample(
            "status = 'published' OR (status IN ('draft', 'review') AND user_id = auth.uid())", .compiled),
        Sample("odd = 'B''s'", .compiled),
        Sample("auth.uid() = ANY (collaborators)", .compiled),
        Sample("team_id IN (SELECT team_id FROM team_members WHERE user_id = auth.uid())", .membership),
        Sample(
            """
            EXISTS (SELECT 1 FROM team_members tm WHERE tm.team_id = t.team_id AND tm.user_id = (select auth.uid())
                AND tm.role IN ('owner', 'admin'))
            """, .membership),
        Sample("auth.uid() IN (SELECT user_id FROM team_members m WHERE m.team_id = t.team_id)", .membership),
        Sample("public.is_team_member(team_id)", .membership),
        Sample("is_public OR public.has_role(team_id, 'admin')", .membership),
        Sample("COALESCE(public.is_team_member(team_id), false)", .membership),
        Sample("team_id = ANY (ARRAY(SELECT public.get_my_teams()))", .membership),
        Sample("team_id IN (SELECT public.get_my_teams())", .membership),
        Sample("team_id IN (SELECT * FROM public.get_my_teams())", .membership),
        Sample("kind IN (SELECT value FROM jsonb_array_elements_text(auth.jwt() -> 'tags'))", .claims),
        Sample("user_id IN (SELECT auth.uid())", .compiled),
        Sample("(select public.is_team_member(t.team_id))", .membership),
        Sample("org_id = current_setting('app.current_org', true)", .claims),
        Sample("auth.jwt() -> 'app_metadata' -> 'teams' ? team_id::text", .mostly),
        Sample("(select (auth.jwt() ->> 'is_anonymous')::boolean) IS FALSE", .compiled),
        Sample("published_at <= now() AND vis <> 'private'", .mostly),
        Sample("(string_to_array(name, '/'))[1] = (select auth.uid()::text)", .mostly),
        Sample("meta ->> 'owner' = auth.uid()::text", .mostly),
        Sample("(select public.authorize('channels.read'))", .fallback),
        Sample("(SELECT role FROM user_roles WHERE user_id = auth.uid()) = 'admin'", .fallback),
        Sample("created_at > now() - interval '7 days'", .mostly),
        Sample("name LIKE 'public-%' OR name ILIKE '%shared%'", .mostly),
        Sample(
            """
            CASE WHEN is_public THEN true WHEN kind = 'team' THEN public.is_team_member(team_id)
                ELSE user_id = auth.uid() END
            """, .membership),
        Sample(
            """
            COALESCE(is_active, false)
                AND COALESCE(user_id, '00000000-0000-0000-0000-000000000000'::uuid) = auth.uid()
            """, .compiled),
        Sample(
            "price > 0 AND qty BETWEEN 1 AND 10 AND small = 3 AND dbl < 1.5::double precision", .mostly),
        Sample("code = 'AB' AND dom = 'x' AND vis = 'public'", .compiled),
        Sample("auth.jwt() @> '{\"app_metadata\": {\"role\": \"admin\"}}'", .compiled),
        Sample("user_id IS NOT DISTINCT FROM auth.uid()", .compiled),
        Sample("qty = (auth.jwt() ->> 'org')::int", .compiled),
        Sample(
            "tenant_id::text IN (SELECT jsonb_array_elements_text(auth.jwt() -> 'app_metadata' -> 'tenants'))",
            .claims),
        Sample("is_public IS NOT TRUE AND kind <> 'x'", .compiled),
        Sample("valid @> now()", .fallback),
        Sample("path OPERATOR(extensions.<@) 'top.sub'::extensions.ltree", .fallback),
        Sample("name ~ '^a'", .fallback),
        Sample(
            """
            EXISTS (SELECT 1 FROM team_members a JOIN user_roles b USING (user_id)
                WHERE a.team_id = t.team_id AND b.user_id = auth.uid())
            """, .fallback),
        Sample("txtcol < (name COLLATE \"C\")", .mostly),
        Sample("(user_id, team_id) IN (SELECT user_id, team_id FROM team_members)", .fallback),
        Sample("org_id = current_setting('request.jwt.claims', true)::json ->> 'sub'", .compiled),
        Sample("tags && ARRAY(SELECT jsonb_array_elements_text(auth.jwt() -> 'tags'))", .claims),
        Sample("lower(email) = lower(auth.email())", .mostly),
        Sample(
            "EXISTS (SELECT 1 FROM user_roles ur WHERE ur.user_id = auth.uid() AND ur.role = 'admin')", .membership),
        Sample(
            """
            NOT EXISTS (SELECT 1 FROM team_members b
                WHERE b.team_id = t.team_id AND b.user_id = auth.uid() AND b.role = 'banned')
            """, .membership),
        Sample("is_public IS NOT FALSE AND (NOT is_active) IS UNKNOWN", .compiled),
        Sample("extract(dow from created_at) = 1", .fallback),
        Sample("(created_at AT TIME ZONE 'UTC')::date = CURRENT_DATE", .fallback),
        Sample("\"Weird \"\"name\" = 'it''s \\ \"quoted\"'", .compiled),
        Sample("public.claim('org') = org_id", .compiled),
        Sample("ci = 'abc'::extensions.citext", .compiled),
        Sample("current_user = 'service_role' OR user_id = auth.uid()", .compiled),
    ]

    /// Policies that nearly have a supported form. Each must be left to PostgreSQL.
    static let nearMisses: [String] = [
        "team_id IN (SELECT DISTINCT ON (role) team_id FROM team_members WHERE user_id = auth.uid())",
        "team_id IN (SELECT team_id FROM team_members WHERE user_id = auth.uid() LIMIT 1)",
        "team_id IN (SELECT team_id FROM team_members GROUP BY team_id)",
        "team_id IN (SELECT team_id FROM team_members UNION SELECT user_id FROM user_roles)",
        "team_id IN (SELECT team_id FROM team_members WHERE since > now())",
        "team_id IN (SELECT doubled FROM team_members WHERE user_id = auth.uid())",
        "team_id NOT IN (SELECT m.team_id FROM team_members m WHERE m.user_id = t.user_id)",
        "EXISTS (SELECT 1 FROM team_members m WHERE m.team_id = t.team_id OR m.user_id = auth.uid())",
        "EXISTS (SELECT 1 FROM team_members m WHERE m.team_id = t.team_id AND m.user_id = t.user_id)",
        "EXISTS (SELECT 1 FROM team_members m WHERE m.team_id <> t.team_id)",
        "EXISTS (SELECT count(*) FROM team_members m WHERE m.team_id = t.team_id)",
        "NOT (auth.uid() IN (SELECT user_id FROM team_members m WHERE m.team_id = t.team_id))",
        "EXISTS (SELECT 1 FROM team_members m WHERE m.team_id = t.team_id AND public.authorize(m.role))",
        "ci OPERATOR(extensions.=) 'abc'::extensions.citext", "meta->>'when' = now()::text", "random() < 0.5",
        "email = current_setting('TimeZone')::text || now()::text",
        "(auth.jwt() ->> 'dom')::public.dom = name || random()::text",
        "NOT (auth.uid()::text = ANY (SELECT m.role FROM team_members m WHERE m.team_id = t.team_id))",
        "t IS NOT NULL", "t.* = t.*", "xmin::text = '1'",
    ]
}
