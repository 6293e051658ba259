-- Schema office of `tidewire dev --incident`: the people who work on each listing, notes on listings, and toasts (short
-- messages shown to one person).
--
-- The colleagues of a listing can read its notes. Each person can read the toasts addressed to that person. The commands
-- show the values of the column seller_phone only on request.
--
-- Apply 010-030 (roles, auth functions, publications) before this file. This file does not touch a schema office that it
-- did not create.

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

    -- FULL, so that a DELETE carries the columns that policies and filters read.
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
