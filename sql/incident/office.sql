-- The office of `tidewire dev --incident`: who works on which listing, notes on listings, and toasts that people are shown.
--
-- A colleague of a listing reads its notes; everybody is shown the toasts that are for him. The column seller_phone is one
-- whose values commands do not show unless they are asked to.
--
-- Roles, auth functions and publication come first (010-030); then this file. A schema called office that is somebody
-- else's is left alone.

DO $tidewire$
BEGIN
    IF to_regnamespace('office') IS NOT NULL THEN
        IF obj_description(to_regnamespace('office'), 'pg_namespace') IS DISTINCT FROM 'tidewire incident' THEN
            RAISE NOTICE 'incident: left out, because this database has a schema office';
        END IF;
        RETURN;
    END IF;

    CREATE SCHEMA office;
    COMMENT ON SCHEMA office IS 'tidewire incident';
    GRANT USAGE ON SCHEMA office TO anon, authenticated, service_role;

    CREATE TABLE office.colleagues (
        listing int NOT NULL,
        person  uuid NOT NULL,
        PRIMARY KEY (listing, person)
    );
    CREATE TABLE office.notes (
        id           int PRIMARY KEY,
        listing      int NOT NULL,
        author       uuid NOT NULL,
        body         text NOT NULL,
        seller_phone text
    );
    CREATE TABLE office.toasts (
        id        int PRIMARY KEY,
        recipient uuid NOT NULL,
        words     text NOT NULL
    );

    -- FULL, so that a DELETE names what policies and filters ask about.
    ALTER TABLE office.colleagues REPLICA IDENTITY FULL;
    ALTER TABLE office.notes REPLICA IDENTITY FULL;
    ALTER TABLE office.toasts REPLICA IDENTITY FULL;

    ALTER TABLE office.colleagues ENABLE ROW LEVEL SECURITY;
    ALTER TABLE office.notes ENABLE ROW LEVEL SECURITY;
    ALTER TABLE office.toasts ENABLE ROW LEVEL SECURITY;
    GRANT SELECT ON office.colleagues, office.notes, office.toasts TO authenticated;
    GRANT ALL ON office.colleagues, office.notes, office.toasts TO service_role;

    CREATE POLICY "people see where they work" ON office.colleagues
        FOR SELECT TO authenticated USING (person = auth.uid());
    CREATE POLICY "colleagues read notes" ON office.notes
        FOR SELECT TO authenticated
        USING (listing IN (SELECT c.listing FROM office.colleagues c WHERE c.person = auth.uid()));
    CREATE POLICY "people see their toasts" ON office.toasts
        FOR SELECT TO authenticated USING (recipient = auth.uid());

    IF EXISTS (SELECT FROM pg_publication WHERE pubname = 'supabase_realtime') THEN
        ALTER PUBLICATION supabase_realtime ADD TABLE office.colleagues, office.notes, office.toasts;
    END IF;
END
$tidewire$;
