-- Answers the first of those who ask, as many as it comes to within its time. The words that begin with a colon are put in
-- by Sources/queries/Authorizing/ProbeScript.swift.
CREATE FUNCTION pg_temp.:name(
    "tw$topics" pg_catalog.text[], "tw$probes" pg_catalog.text[], "tw$claims" pg_catalog.text[],
    "tw$subjects" pg_catalog.text[], "tw$headers" pg_catalog.text[], "tw$milliseconds" pg_catalog.int4)
RETURNS TABLE ("tw$who" pg_catalog.int4, "tw$broadcast" pg_catalog.bool, "tw$presence" pg_catalog.bool,
    "tw$error" pg_catalog.text, "tw$step" pg_catalog.text,
    "tw$partition" pg_catalog.bool)
LANGUAGE plpgsql AS :quote
#variable_conflict use_column
DECLARE
    "tw$end" pg_catalog.timestamptz :=
        pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => "tw$milliseconds" / 1000.0);
    "tw$now" pg_catalog.timestamp := pg_catalog.timezone('UTC', pg_catalog.now());
    "tw$ids" pg_catalog.uuid[];
    "tw$extensions" pg_catalog.text[];
    "tw$done" pg_catalog.bool;
    "tw$table" pg_catalog.text;
    "tw$schema" pg_catalog.text;
    "tw$constraint" pg_catalog.text;
BEGIN
    FOR "tw$index" IN 1 .. pg_catalog.cardinality("tw$topics") LOOP
        EXIT WHEN "tw$index" > 1 AND pg_catalog.clock_timestamp() > "tw$end";
        "tw$who" := "tw$index";
        "tw$broadcast" := NULL;
        "tw$presence" := NULL;
        "tw$error" := NULL;
        "tw$partition" := false;
        "tw$done" := false;
        BEGIN
            IF "tw$probes"["tw$index"] <> 'w' THEN
                "tw$step" := 'insert';
                "tw$extensions" := CASE WHEN "tw$probes"["tw$index"] = 'p'
                    THEN ARRAY['broadcast', 'presence'] ELSE ARRAY['broadcast'] END;
                "tw$ids" := CASE WHEN "tw$probes"["tw$index"] = 'p'
                    THEN ARRAY[pg_catalog.gen_random_uuid(), pg_catalog.gen_random_uuid()]
                    ELSE ARRAY[pg_catalog.gen_random_uuid()] END;
                :insertion
            END IF;
            "tw$step" := 'role';
            PERFORM pg_catalog.set_config('role', :'role', true);
            PERFORM pg_catalog.set_config('realtime.topic', "tw$topics"["tw$index"], true),
                pg_catalog.set_config('request.jwt.claims', "tw$claims"["tw$index"], true),
                pg_catalog.set_config('request.jwt.claim.sub', "tw$subjects"["tw$index"], true),
                pg_catalog.set_config('request.jwt.claim.role', :'role', true),
                pg_catalog.set_config('request.headers', "tw$headers"["tw$index"], true);
            "tw$step" := 'policy';
            IF "tw$probes"["tw$index"] = 'w' THEN
                -- Without RETURNING, which would ask for a policy that lets them read too.
                BEGIN
                    INSERT INTO realtime.messages (topic, extension, inserted_at, updated_at)
                    VALUES ("tw$topics"["tw$index"], 'broadcast', "tw$now", "tw$now");
                    "tw$broadcast" := true;
                EXCEPTION WHEN insufficient_privilege THEN
                    "tw$broadcast" := false;
                END;
                BEGIN
                    INSERT INTO realtime.messages (topic, extension, inserted_at, updated_at)
                    VALUES ("tw$topics"["tw$index"], 'presence', "tw$now", "tw$now");
                    "tw$presence" := true;
                EXCEPTION WHEN insufficient_privilege THEN
                    "tw$presence" := false;
                END;
            ELSE
                -- No column but id is named, so that no privilege on another is asked for.
                SELECT COALESCE(pg_catalog.bool_or("tw$seen"."id" = "tw$ids"[1]), false),
                    CASE WHEN pg_catalog.cardinality("tw$ids") = 2
                        THEN COALESCE(pg_catalog.bool_or("tw$seen"."id" = "tw$ids"[2]), false) END
                INTO "tw$broadcast", "tw$presence"
                FROM (SELECT id FROM realtime.messages WHERE id = ANY ("tw$ids")) AS "tw$seen";
            END IF;
            "tw$done" := true;
            -- Of no class that PostgreSQL uses.
            RAISE EXCEPTION USING ERRCODE = 'TWUND';
        EXCEPTION
            WHEN query_canceled THEN
                "tw$error" := SQLSTATE;
            WHEN OTHERS OR assert_failure THEN
                IF NOT "tw$done" THEN
                    GET STACKED DIAGNOSTICS "tw$table" = TABLE_NAME, "tw$schema" = SCHEMA_NAME,
                        "tw$constraint" = CONSTRAINT_NAME;
                    "tw$error" := SQLSTATE;
                    "tw$partition" := SQLSTATE = '23514' AND "tw$constraint" = ''
                        AND "tw$table" = 'messages' AND "tw$schema" = 'realtime';
                END IF;
        END;
        IF "tw$error" IS NOT NULL THEN
            "tw$broadcast" := NULL;
            "tw$presence" := NULL;
        END IF;
        RETURN NEXT;
        -- The server cancels a statement only once.
        EXIT WHEN "tw$error" = '57014';
    END LOOP;
END
:quote
