-- The publication that carries broadcasts from the database in the stream, and the list of migration versions.
--
-- This file creates the publication if realtime.messages exists and the publication does not. On Supabase too, the Realtime
-- server creates it itself. This file fills the list only in a schema realtime that 010 created. Supabase's Realtime counts
-- the rows of the list to decide whether to migrate; everything that it would create exists already.

DO $tidewire$
DECLARE
    messages oid;
BEGIN
    SELECT c.oid INTO messages FROM pg_class c
    WHERE c.relname = 'messages' AND c.relnamespace = to_regnamespace('realtime');
    IF messages IS NULL THEN
        RETURN;
    END IF;

    BEGIN
        IF NOT EXISTS (SELECT FROM pg_publication WHERE pubname = 'supabase_realtime_messages_publication') THEN
            CREATE PUBLICATION supabase_realtime_messages_publication FOR TABLE realtime.messages;
        END IF;
    EXCEPTION WHEN insufficient_privilege THEN
        RAISE WARNING 'supabase_realtime_messages_publication was not made by %: %', current_user, SQLERRM
            USING HINT = 'As a superuser: CREATE PUBLICATION supabase_realtime_messages_publication FOR TABLE '
                'realtime.messages; Without it broadcasts from the database do not arrive.';
    END;

    IF NOT EXISTS (
        SELECT FROM pg_class WHERE relname = 'schema_migrations' AND relnamespace = to_regnamespace('realtime')
            AND obj_description(oid, 'pg_class') LIKE 'Tidewire:%'
    ) OR to_regclass('realtime.subscription') IS NULL
      OR to_regprocedure('realtime.list_changes(name, name, integer, integer)') IS NULL
      OR NOT has_table_privilege('realtime.schema_migrations', 'SELECT, INSERT')
    THEN
        RETURN;
    END IF;
    INSERT INTO realtime.schema_migrations (version, inserted_at)
    SELECT version::bigint, timezone('utc', now())
    FROM regexp_split_to_table('20211116024918 20211116045059 20211116050929 20211116051442 20211116212300 20211116213355 20211116213934
        20211116214523 20211122062447 20211124070109 20211202204204 20211202204605 20211210212804 20211228014915
        20220107221237 20220228202821 20220312004840 20220603231003 20220603232444 20220615214548 20220712093339
        20220908172859 20220916233421 20230119133233 20230128025114 20230128025212 20230227211149 20230228184745
        20230308225145 20230328144023 20231018144023 20231204144023 20231204144024 20231204144025 20240108234812
        20240109165339 20240227174441 20240311171622 20240321100241 20240401105812 20240418121054 20240523004032
        20240618124746 20240801235015 20240805133720 20240827160934 20240919163303 20240919163305 20241019105805
        20241030150047 20241108114728 20241121104152 20241130184212 20241220035512 20241220123912 20241224161212
        20250107150512 20250110162412 20250123174212 20250128220012 20250506224012 20250523164012 20250714121412
        20250905041441 20251103001201 20251120212548 20251120215549 20260218120000 20260326120000 20260514120000
        20260527120000 20260528120000 20260603120000 20260605120000 20260606110000 20260616120000 20260624120000
        20260626120000 20260706120000 20260707120000 20260709120000', '\s+') AS version
    WHERE NOT EXISTS (SELECT FROM realtime.schema_migrations);
END
$tidewire$;
