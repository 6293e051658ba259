import Policy
import Postgres
import TestSupport
import Testing

@testable import Catalog

/// Tests of the policies that apply to a role, and of their combined condition. They compare it with the rows that
/// PostgreSQL shows the role.
@Suite(.within(minutes: 10)) struct PolicyBindingTests {
    private static let rows = """
        CREATE TABLE t (id int PRIMARY KEY, kind text, owner text, n int);
        CREATE TABLE copy (id int PRIMARY KEY, kind text, owner text, n int);
        INSERT INTO t SELECT i, CASE i % 3 WHEN 0 THEN 'a' WHEN 1 THEN 'b' END, NULLIF('o' || i % 4, 'o2'), i
            FROM generate_series(1, 24) i;
        INSERT INTO copy SELECT * FROM t;
        ALTER TABLE t ENABLE ROW LEVEL SECURITY;
        GRANT SELECT ON t, copy TO READER;
        """

    private func stage(_ policies: String = "") throws -> CatalogStage {
        try CatalogStage(PolicyBindingTests.rows + policies, publication: "FOR TABLE t")
    }

    /// Compares the ids that the role itself sees with those that the binding's expression finds in a copy without
    /// policies.
    private func compare(_ stage: CatalogStage, role: String, _ what: String = "") throws {
        let binding = try stage.binding(stage.request("t", role: role))
        let condition = binding.policy?.combinedSQL ?? "true"
        let seen = try ids(stage, role, "SELECT id FROM t ORDER BY id")
        let judged = try ids(
            stage, role, "SELECT t.id FROM (SELECT * FROM copy) AS t WHERE \(condition) ORDER BY t.id")
        #expect(seen == judged, "\(what) \(role): \(condition)")
        if let policy = binding.policy, !policy.parts.contains(where: \.isPermissive) {
            #expect(policy.rowPolicy.term == .never && seen == "{}" && policy.warning != nil)
        }
    }

    private func ids(_ stage: CatalogStage, _ role: String, _ sql: String) throws -> String? {
        try stage.database.run("BEGIN")
        defer { _ = try? stage.database.run("ROLLBACK") }
        try stage.database.run("SET LOCAL ROLE \(role)")
        return try stage.database.value("SELECT ARRAY(\(sql))::text")
    }

    @Test(arguments: [
        ("none", ""),
        ("only restrictive", "CREATE POLICY r ON t AS RESTRICTIVE USING (n > 3);"),
        ("for update only", "CREATE POLICY u ON t FOR UPDATE USING (true);"),
        (
            "insert and delete",
            "CREATE POLICY i ON t FOR INSERT WITH CHECK (true); CREATE POLICY d ON t FOR DELETE USING (true);"
        ),
        ("all with another check", "CREATE POLICY a ON t USING (n < 9) WITH CHECK (n > 100);"),
        ("all without using", "CREATE POLICY a ON t WITH CHECK (true);"),
        ("one without using", "CREATE POLICY a ON t WITH CHECK (true); CREATE POLICY b ON t FOR SELECT USING (n = 5);"),
        (
            "permissive twice",
            "CREATE POLICY a ON t USING (kind = 'a'); CREATE POLICY b ON t FOR SELECT USING (n > 20);"
        ),
        (
            "both kinds",
            "CREATE POLICY a ON t USING (kind = 'a'); CREATE POLICY b ON t USING (n > 20);"
                + "CREATE POLICY r ON t AS RESTRICTIVE USING (n <> 21); CREATE POLICY s ON t AS RESTRICTIVE FOR SELECT USING (n > 4 OR n < 2);"
        ),
        (
            "null hides",
            "CREATE POLICY a ON t USING (owner <> 'o1'); CREATE POLICY r ON t AS RESTRICTIVE USING (NOT (kind = 'a'));"
        ),
        (
            "restrictive for update",
            "CREATE POLICY a ON t USING (true); CREATE POLICY r ON t AS RESTRICTIVE FOR UPDATE USING (false);"
        ),
        ("to the reader", "CREATE POLICY a ON t TO READER USING (n < 7);"),
        ("to another", "CREATE POLICY a ON t TO pg_monitor USING (n < 7);"),
        ("to both", "CREATE POLICY a ON t TO pg_monitor, READER USING (n < 7);"),
        (
            "own name",
            "CREATE POLICY a ON t USING (t.n < 7 AND EXISTS (SELECT 1 FROM copy c WHERE c.id = t.id AND c.n > 2));"
        ),
    ])
    func `policies together say what PostgreSQL says`(name: String, policies: String) throws {
        let stage = try stage(policies)
        try compare(stage, role: stage.role, name)
    }

    @Test func `memberships between roles count as they do for PostgreSQL`() throws {
        let stage = try stage(
            """
            CREATE ROLE READER_group; CREATE ROLE READER_heir IN ROLE READER_group;
            CREATE ROLE READER_apart NOINHERIT IN ROLE READER_group;
            CREATE ROLE READER_bypass BYPASSRLS; CREATE ROLE READER_below IN ROLE READER_bypass;
            CREATE ROLE READER_owner; CREATE ROLE READER_heirofowner IN ROLE READER_owner;
            GRANT USAGE ON SCHEMA public TO PUBLIC; GRANT SELECT ON t, copy TO PUBLIC;
            CREATE POLICY g ON t TO READER_group USING (n < 10);
            CREATE POLICY p ON t USING (n > 20);
            ALTER TABLE t OWNER TO READER_owner;
            """)
        let suffixes = ["", "_group", "_heir", "_apart", "_bypass", "_below", "_owner", "_heirofowner"]
        for suffix in suffixes { try compare(stage, role: stage.role + suffix) }
        try stage.run("ALTER TABLE t FORCE ROW LEVEL SECURITY")
        _ = stage.fresh()
        for suffix in suffixes { try compare(stage, role: stage.role + suffix, "forced") }
    }

    @Test func `a change of policies or of roles is another binding`() throws {
        let stage = try stage("CREATE POLICY a ON t USING (n < 7);")
        var last = try stage.binding(stage.request("t")).policy
        // Up to PostgreSQL 15, INHERIT is set for all memberships of a role; from 16 on, for later memberships only.
        let isOfEach = try TestServer.major() >= 16
        let steps = [
            "ALTER POLICY a ON t USING (n < 9)", "CREATE POLICY b ON t USING (n = 20)",
            "ALTER POLICY b ON t RENAME TO c",
            "DROP POLICY c ON t", "CREATE POLICY d ON t TO pg_monitor USING (n = 21)", "GRANT pg_monitor TO READER",
            isOfEach ? "GRANT pg_monitor TO READER WITH INHERIT FALSE" : "ALTER ROLE READER NOINHERIT",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 2'", "DROP FUNCTION f()",
            "CREATE SCHEMA s", "GRANT USAGE ON SCHEMA s TO PUBLIC", "CREATE TYPE mood AS ENUM ('a')",
            "ALTER ROLE READER SET app.x = 'y'",
            isOfEach ? "GRANT pg_monitor TO READER WITH INHERIT TRUE" : "ALTER ROLE READER INHERIT",
            "REVOKE pg_monitor FROM READER",
        ]
        for step in steps {
            // No notification arrives: the service finds the change by polling.
            try stage.run(step)
            #expect(
                eventually {
                    guard case .tables(let found)? = stage.service.resolved(stage.request("t")) else { return false }
                    return found[0].policy != last
                }, "\(step)")
            last = try stage.binding(stage.request("t")).policy
        }
    }

    @Test func `a binding says what it takes to have PostgreSQL judge`() throws {
        let stage = try CatalogStage(
            """
            CREATE DOMAIN tag AS varchar(20);
            CREATE TABLE "Odd t" (id int PRIMARY KEY, "A b" tag, v varchar(5), gone int, g int GENERATED ALWAYS AS (id) STORED);
            ALTER TABLE "Odd t" DROP COLUMN gone; ALTER TABLE "Odd t" ENABLE ROW LEVEL SECURITY;
            CREATE POLICY p ON "Odd t" USING ("A b" = 'x' AND g > 1);
            GRANT SELECT ON "Odd t" TO READER;
            """, publication: #"FOR TABLE "Odd t""#)
        let policy = try #require(try stage.binding(stage.request("Odd t")).policy)
        #expect(policy.row.relation == "Odd t" && policy.row.type == #""public"."Odd t""#)
        #expect(policy.row.columns.map(\.name) == ["id", "A b", "v", "g"])
        #expect(policy.row.columns.map(\.type) == ["integer", "public.tag", "character varying(5)", "integer"])
        #expect(policy.row.columns.filter(\.isNeeded).map(\.name) == ["A b", "g"])
        #expect(policy.combinedSQL == #"((((("A b")::text = 'x'::text) AND (g > 1))))"#)
        #expect(policy.warning == nil)
        #expect(policy.parts.map(\.name) == ["p"] && policy.parts[0].isPermissive)
    }

    @Test(.postgres(15)) func `a policy that reads what no row will have says so, and not of what is computed`() throws
    {
        let stage = try CatalogStage(
            """
            CREATE TABLE t (id int PRIMARY KEY, a int, b int, g int GENERATED ALWAYS AS (a) STORED,
                h int GENERATED ALWAYS AS (b) STORED);
            CREATE TABLE u (LIKE t INCLUDING ALL);
            ALTER TABLE t ENABLE ROW LEVEL SECURITY; ALTER TABLE u ENABLE ROW LEVEL SECURITY;
            CREATE POLICY p ON t USING (g > 1); CREATE POLICY p ON u USING (g > 1 AND h > 1);
            GRANT SELECT ON t, u TO READER;
            """, publication: "FOR TABLE t (id, a), TABLE u (id, a)")
        #expect(try stage.binding(stage.request("t")).policy?.warning == nil)
        #expect(try stage.binding(stage.request("u")).policy?.warning?.contains("column h") == true)
    }

    @Test func `leaf and root have their own policies`() throws {
        let stage = try CatalogStage(
            """
            CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id);
            CREATE TABLE leaf PARTITION OF root FOR VALUES FROM (0) TO (100);
            ALTER TABLE root ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON root USING (id < 5);
            GRANT SELECT ON root, leaf TO READER;
            """, publication: "FOR TABLE root")
        #expect(try stage.binding(stage.request("leaf")).policy == nil)
        try stage.run("ALTER PUBLICATION supabase_realtime SET (publish_via_partition_root = true)")
        _ = stage.fresh()
        #expect(try stage.binding(stage.request("root")).policy?.parts.map(\.name) == ["p"])
    }

    @Test func `who looks at the row as a whole needs all of it`() throws {
        let stage = try CatalogStage(
            """
            CREATE TABLE t (id int PRIMARY KEY, a int, b text);
            CREATE FUNCTION f(t) RETURNS bool LANGUAGE plpgsql AS 'BEGIN RETURN $1.a > 1; END';
            ALTER TABLE t ENABLE ROW LEVEL SECURITY; GRANT SELECT ON t TO READER;
            """, publication: "FOR TABLE t")
        let conditions = [
            ("to_jsonb(t) ->> 'b' = 'x'", 3), ("t IS NOT NULL", 3), ("f(t)", 3), ("t.f", 3), ("t::text <> '.*'", 3),
            ("EXISTS (SELECT FROM (SELECT t AS p) s WHERE (s.p).a = 1)", 3), ("(t).a = 1 AND b ~ 'x'", 2),
            ("b ~ '.*'", 1), ("a * 2 = 4 AND b ~ 'x'", 2),
            ("EXISTS (SELECT FROM (SELECT t.*) s WHERE s.a > 1 AND b ~ 'x')", 3),
        ]
        for (condition, needed) in conditions {
            try stage.run("DROP POLICY IF EXISTS p ON t; CREATE POLICY p ON t USING (\(condition))")
            _ = stage.fresh()
            let row = try #require(try stage.binding(stage.request("t")).policy).row
            #expect(row.columns.count { $0.isNeeded } == needed, "\(condition)")
        }
    }
}
