import Postgres

/// A function that tries for many askers of one role what `realtime.messages` lets them do, one after the other.
///
/// For whoever wants to read, rows are inserted before the role is taken on, and it is looked which of them can be seen
/// afterwards; whoever wants to write inserts in that role. Each asker has a subtransaction that is rolled back, so that
/// nobody sees another's rows and nothing that a policy's functions do outlives the answer.
///
/// There is a function for each role: a plan that was made for one role never answers for another.
enum ProbeScript {
    /// Who inserts the rows that askers try to see.
    enum Insertion: Sendable, Equatable {
        /// A function of the database's, for a login without privileges of its own.
        case byFunction
        /// The login itself, which no policy binds.
        case directly
    }

    /// In the order of the function's columns.
    enum Column {
        static let who = 0
        static let broadcast = 1
        static let presence = 2
        static let error = 3
        static let message = 4
        static let step = 5
        static let isPartition = 6
        static let count = 7
    }

    /// What was being done when it failed.
    enum Step: String {
        case insert, role, policy
    }

    /// As the function knows what is asked.
    static func code(_ probe: ChannelQuestion.Probe) -> String {
        switch probe {
        case .read(presence: false): "b"
        case .read(presence: true): "p"
        case .write: "w"
        }
    }

    /// Its rows are the first askers', as many as it came to within its time; what was cancelled ends it, because the
    /// server cancels a statement only once.
    static func function(named name: String, as role: String, inserting insertion: Insertion) -> String {
        let body = """
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
                    "tw$message" := NULL;
                    "tw$partition" := false;
                    "tw$done" := false;
                    BEGIN
                        IF "tw$probes"["tw$index"] = 'w' THEN
                            \(settings(role))
                            "tw$step" := 'policy';
                            \(write("broadcast"))
                            \(write("presence"))
                        ELSE
                            "tw$step" := 'insert';
                            "tw$extensions" := CASE WHEN "tw$probes"["tw$index"] = 'p'
                                THEN ARRAY['broadcast', 'presence'] ELSE ARRAY['broadcast'] END;
                            "tw$ids" := CASE WHEN "tw$probes"["tw$index"] = 'p'
                                THEN ARRAY[pg_catalog.gen_random_uuid(), pg_catalog.gen_random_uuid()]
                                ELSE ARRAY[pg_catalog.gen_random_uuid()] END;
                            \(insert(insertion))
                            \(settings(role))
                            "tw$step" := 'policy';
                            \(read)
                        END IF;
                        "tw$done" := true;
                        RAISE EXCEPTION USING ERRCODE = '\(undo)';
                    EXCEPTION
                        WHEN query_canceled THEN
                            "tw$error" := SQLSTATE;
                            "tw$message" := SQLERRM;
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
                    EXIT WHEN "tw$error" = '57014';
                END LOOP;
            END
            """
        let quote = dollarQuote(notIn: body)
        return """
            CREATE FUNCTION pg_temp.\(name)(
                "tw$topics" pg_catalog.text[], "tw$probes" pg_catalog.text[], "tw$claims" pg_catalog.text[],
                "tw$subjects" pg_catalog.text[], "tw$headers" pg_catalog.text[], "tw$milliseconds" pg_catalog.int4)
            RETURNS TABLE ("tw$who" pg_catalog.int4, "tw$broadcast" pg_catalog.bool, "tw$presence" pg_catalog.bool,
                "tw$error" pg_catalog.text, "tw$message" pg_catalog.text, "tw$step" pg_catalog.text,
                "tw$partition" pg_catalog.bool)
            LANGUAGE plpgsql AS \(quote)\(body)\(quote)
            """
    }

    /// `payload` and `event` stay NULL and `private` is what the table says, which is false: policies are written for that.
    private static func insert(_ insertion: Insertion) -> String {
        switch insertion {
        case .byFunction:
            """
            PERFORM tidewire.add_channel_probes(
                pg_catalog.array_fill("tw$topics"["tw$index"], ARRAY[pg_catalog.cardinality("tw$ids")]),
                "tw$extensions", "tw$ids");
            """
        case .directly:
            """
            INSERT INTO realtime.messages (id, topic, extension, inserted_at, updated_at)
            SELECT "tw$new"."id", "tw$topics"["tw$index"], "tw$new"."extension", "tw$now", "tw$now"
            FROM ROWS FROM (pg_catalog.unnest("tw$ids"), pg_catalog.unnest("tw$extensions"))
                AS "tw$new" ("id", "extension");
            """
        }
    }

    private static func settings(_ role: String) -> String {
        """
        "tw$step" := 'role';
        PERFORM pg_catalog.set_config('role', \(Quoted.literal(role)), true);
        PERFORM pg_catalog.set_config('realtime.topic', "tw$topics"["tw$index"], true),
            pg_catalog.set_config('request.jwt.claims', "tw$claims"["tw$index"], true),
            pg_catalog.set_config('request.jwt.claim.sub', "tw$subjects"["tw$index"], true),
            pg_catalog.set_config('request.jwt.claim.role', \(Quoted.literal(role)), true),
            pg_catalog.set_config('request.headers', "tw$headers"["tw$index"], true);
        """
    }

    /// No column but `id` is named, so that no privilege on another is asked for.
    private static let read = """
        SELECT COALESCE(pg_catalog.bool_or("tw$seen"."id" = "tw$ids"[1]), false),
            CASE WHEN pg_catalog.cardinality("tw$ids") = 2
                THEN COALESCE(pg_catalog.bool_or("tw$seen"."id" = "tw$ids"[2]), false) END
        INTO "tw$broadcast", "tw$presence"
        FROM (SELECT id FROM realtime.messages WHERE id = ANY ("tw$ids")) AS "tw$seen";
        """

    /// Without RETURNING, which would ask for a policy that lets them read too.
    private static func write(_ kind: String) -> String {
        """
        BEGIN
            INSERT INTO realtime.messages (topic, extension, inserted_at, updated_at)
            VALUES ("tw$topics"["tw$index"], '\(kind)', "tw$now", "tw$now");
            "tw$\(kind)" := true;
        EXCEPTION WHEN insufficient_privilege THEN
            "tw$\(kind)" := false;
        END;
        """
    }

    /// Of no class that PostgreSQL uses.
    private static let undo = "TWUND"

    private static func dollarQuote(notIn text: String) -> String {
        var number = 0
        while text.contains("$tidewire\(number)$") { number += 1 }
        return "$tidewire\(number)$"
    }
}
