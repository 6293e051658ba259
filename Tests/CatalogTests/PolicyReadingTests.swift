import Embedded
import Policy
import Postgres
import Synchronization
import TestSupport
import Testing

@testable import Catalog

/// Tests of how the hub reads policies' texts with PostgreSQL's help.
@Suite(.serialized, .inChain(minutes: 10)) struct PolicyReadingTests {
    private static let schema = """
        CREATE TABLE t (id int PRIMARY KEY, owner uuid, team uuid, is_public bool, vis varchar(10), kind text);
        CREATE TABLE team_members (team_id uuid, user_id uuid, role text, PRIMARY KEY (team_id, user_id));
        ALTER TABLE t ENABLE ROW LEVEL SECURITY;
        GRANT SELECT ON t, team_members TO READER; GRANT USAGE ON SCHEMA auth TO READER;
        """

    private func stage(
        _ sql: String, asHub: Bool = true, _ compiling: PolicyCompiling = PolicyReadingTests.member(.caller)
    ) throws -> CatalogStage {
        try CatalogStage(
            foundation: true, PolicyReadingTests.schema + sql, publication: "FOR TABLE t, team_members",
            asOwner: !asHub,
            compiling: compiling)
    }

    /// Returns a compiler that ignores the policy of `t`. It always returns the results for `team IN (SELECT team_id
    /// FROM team_members WHERE user_id = auth.uid())` and `user_id = auth.uid()`, which the real compiler would give,
    /// too.
    private static func member(_ reader: Membership.Reader, slots: [Int] = [1]) -> PolicyCompiling {
        let uuid = TypeFacts(oid: 2950, name: "uuid")
        return PolicyCompiling(
            names: { PolicyCompiler.names(in: $0) },
            compile: { catalog, text, table in
                guard table.name.name == "t" else {
                    if text.contains("EXISTS"), let back = catalog.relations[QualifiedName("public", "t")] {
                        let circle = Membership(
                            table: back.oid, keySlot: 0, condition: .always, reader: reader, fillSQL: "")
                        return CompiledPolicy(
                            term: .member(circle, key: nil), classification: .membership, rendering: text)
                    }
                    return CompiledPolicy(term: .isNull(.column(1, uuid)), classification: .compiled, rendering: text)
                }
                guard let members = catalog.relations[QualifiedName("public", "team_members")] else {
                    return CompiledPolicy(term: .isNull(.column(1, uuid)), classification: .compiled, rendering: text)
                }
                let membership = Membership(
                    table: members.oid, keySlot: 0, condition: .all(slots.map { .isNull(.column($0, uuid)) }),
                    reader: reader, fillSQL: "")
                return CompiledPolicy(
                    term: .member(membership, key: .column(2, uuid)), classification: .membership, rendering: text)
            })
    }

    @Test(arguments: [
        ("owner = auth.uid()", CompiledPolicy.Classification.compiled), ("(SELECT auth.uid()) = owner", .compiled),
        ("is_public", .compiled), ("vis <> 'private' AND kind IN ('a', 'b')", .compiled),
        ("t.team IN (SELECT team_id FROM team_members WHERE user_id = auth.uid())", .membership),
        ("pg_catalog.pg_is_in_recovery()", .fallback),
    ])
    func `policies are compiled, and PostgreSQL reads the same in them`(
        using: String, expected: CompiledPolicy.Classification
    ) throws {
        for asHub in [false, true] {
            let stage = try stage("CREATE POLICY p ON t USING (\(using));", asHub: asHub, .real)
            // The service reads a locked table later, and asks about tables in the stream separately.
            func found() throws -> PolicyBinding? {
                _ = stage.fresh()
                return try stage.binding(stage.request("t")).policy
            }
            _ = eventually { (try? found())?.classification == expected }
            let policy = try #require(try found())
            #expect(policy.classification == expected, "\(using): \(policy.parts.map(\.term))")
        }
    }

    // MARK: Bodies

    /// Returns the text that PostgreSQL reads as the body of `mine`.
    private func body(_ function: String, asHub: Bool = true) throws -> String? {
        let seen = Mutex<PolicyCatalog?>(nil)
        let compiling = PolicyCompiling(
            names: { PolicyCompiler.names(in: $0) },
            compile: { catalog, _, _ in
                seen.withLock { $0 = catalog }
                return PolicyCompiling.undecided
            })
        let stage = try stage(function + "CREATE POLICY p ON t USING (mine(team));", asHub: asHub, compiling)
        _ = stage.fresh()
        let catalog = try #require(seen.withLock { $0 })
        let facts = try #require(catalog.functions[QualifiedName("public", "mine")]?.first)
        if facts.canonicalBody != nil {
            #expect(catalog.relations[QualifiedName("public", "team_members")] != nil)
            #expect(catalog.functions[QualifiedName("auth", "uid")]?.first?.canonicalBody?.contains("sub") == true)
        }
        return facts.canonicalBody?.split(whereSeparator: \.isWhitespace).joined(separator: " ")
    }

    @Test(arguments: [
        (
            "(team uuid)",
            "AS 'SELECT team IN (SELECT m.team_id FROM public.team_members m WHERE m.user_id = auth.uid())'", "team"
        ),
        ("(uuid)", "AS 'SELECT $1 IN (SELECT m.team_id FROM team_members m WHERE m.user_id = auth.uid());'", "\"$1\""),
        (
            "(x uuid)",
            "SET search_path = '' AS 'SELECT mine.x IN (SELECT m.team_id FROM public.team_members m WHERE m.user_id = auth.uid())'",
            "x"
        ),
        ("(x uuid)", "RETURN x IN (SELECT m.team_id FROM team_members m WHERE m.user_id = auth.uid())", "x"),
        (
            "(x uuid)",
            "BEGIN ATOMIC SELECT x IN (SELECT m.team_id FROM team_members m WHERE m.user_id = auth.uid()); END", "x"
        ),
    ])
    func `bodies of functions are read as PostgreSQL reads them`(arguments: String, body: String, name: String) throws {
        for asHub in [false, true] {
            let text = try self.body(
                "CREATE FUNCTION mine\(arguments) RETURNS bool LANGUAGE sql STABLE \(body);", asHub: asHub)
            #expect(
                text?.contains(
                    "argument.\(name) IN ( SELECT m.team_id FROM public.team_members m WHERE (m.user_id = auth.uid()))")
                    == true, "\(text ?? "nil")")
            #expect(text?.contains("FROM argument") == false)
            #expect(text.map { PolicyCompiler.names(in: $0) } != nil)
        }
    }

    @Test(arguments: [
        // The search path leads to another table.
        """
        CREATE TABLE auth.flags (user_id uuid); CREATE TABLE public.flags (user_id uuid);
        ALTER ROLE READER SET search_path = auth, public;
        CREATE FUNCTION mine(x uuid) RETURNS bool LANGUAGE sql STABLE AS 'SELECT EXISTS (SELECT 1 FROM flags WHERE user_id = auth.uid())';
        """,
        "CREATE FUNCTION mine(x uuid) RETURNS bool LANGUAGE sql STABLE SET role = 'READER' AS 'SELECT x = auth.uid()';",
        "CREATE FUNCTION mine(x uuid) RETURNS bool LANGUAGE plpgsql STABLE AS 'BEGIN RETURN x = auth.uid(); END';",
        "CREATE FUNCTION mine(x uuid) RETURNS bool LANGUAGE sql VOLATILE AS 'SELECT 1; SELECT x = auth.uid()';",
        "CREATE FUNCTION mine(x uuid) RETURNS bool LANGUAGE sql AS 'SELECT x = $1 /* $1 */';",
    ])
    func `what is not certain is left to PostgreSQL`(function: String) throws {
        #expect(try body(function) == nil)
    }

    @Test func `a reading that PostgreSQL does not share is not used`() throws {
        let wrong = PolicyCompiling(
            names: { PolicyCompiler.names(in: $0) },
            compile: { _, _, _ in CompiledPolicy(term: .always, classification: .compiled, rendering: "true") })
        let stage = try stage("CREATE POLICY p ON t USING (owner = auth.uid());", wrong)
        let policy = try #require(try stage.binding(stage.request("t")).policy)
        #expect(policy.rowPolicy.term == .undecided && policy.classification == .fallback)
        #expect(policy.combinedSQL.contains("auth.uid()"))
    }

    /// Checks another role that has a setting. The setting matters only if the role can read the table, because roles
    /// of other databases are on the same server.
    @Test(arguments: [
        ("", true), ("GRANT SELECT ON t TO OTHER", false), ("GRANT OTHER TO READER", true),
        ("GRANT READER TO OTHER", false), ("GRANT pg_read_all_data TO OTHER", false),
        ("GRANT SELECT ON t TO PUBLIC", false),
    ])
    func `a role's settings matter where the role may read`(grant: String, isCompiled: Bool) throws {
        let stage = try stage("CREATE POLICY p ON t USING (owner = auth.uid());")
        let other = "other_" + stage.database.name
        try stage.run("CREATE ROLE \(other); ALTER ROLE \(other) SET array_nulls = off")
        if !grant.isEmpty { try stage.run(grant.replacing("OTHER", with: other)) }
        defer { try? stage.run("DROP OWNED BY \(other); DROP ROLE \(other)") }
        _ = stage.fresh()
        let term = try stage.binding(stage.request("t")).policy?.rowPolicy.term
        #expect((term != .undecided) == isCompiled)
    }

    @Test func `without TEMP nothing is compiled`() throws {
        let stage = try stage("CREATE POLICY p ON t USING (true);", asHub: true)
        try stage.run("REVOKE TEMPORARY ON DATABASE \(stage.database.name) FROM PUBLIC, tidewire")
        try stage.run("ALTER POLICY p ON t USING (owner IS NULL)")
        _ = stage.fresh()
        #expect(try stage.binding(stage.request("t")).policy?.rowPolicy.term == .undecided)
    }

    @Test func `a function that is replaced is noticed`() throws {
        let function = "CREATE OR REPLACE FUNCTION mine(x uuid) RETURNS bool LANGUAGE sql STABLE AS "
        let stage = try stage(function + "'SELECT x = auth.uid()'; CREATE POLICY p ON t USING (mine(owner));")
        let before = try #require(try stage.binding(stage.request("t")).policy)
        try stage.run(function + "'SELECT x IS NULL'")
        #expect(eventually { try! stage.binding(stage.request("t")).policy?.version != before.version })
        let after = try #require(try stage.binding(stage.request("t")).policy)
        #expect(after.version > before.version && after.combinedSQL == before.combinedSQL)
    }

    @Test func `a function that the role may not call is for PostgreSQL to refuse`() throws {
        let stage = try stage(
            """
            CREATE FUNCTION mine(x uuid) RETURNS bool LANGUAGE sql STABLE AS 'SELECT x = auth.uid()';
            REVOKE EXECUTE ON FUNCTION mine FROM PUBLIC; CREATE POLICY p ON t USING (mine(owner));
            """)
        #expect(try stage.binding(stage.request("t")).policy?.rowPolicy.term == .undecided)
        try stage.run("GRANT EXECUTE ON FUNCTION mine TO READER")
        #expect(eventually { try! stage.binding(stage.request("t")).policy?.rowPolicy.term != .undecided })
    }

    @Test func `what a function calls in its owner's name is for the owner to be allowed`() throws {
        let stage = try stage(
            """
            CREATE ROLE READER_owner;
            CREATE FUNCTION mine(x uuid) RETURNS bool LANGUAGE sql STABLE AS 'SELECT x = auth.uid()';
            CREATE FUNCTION asked(x uuid) RETURNS bool LANGUAGE sql STABLE SECURITY DEFINER AS 'SELECT mine(x)';
            ALTER FUNCTION asked OWNER TO READER_owner;
            REVOKE EXECUTE ON FUNCTION mine FROM PUBLIC; GRANT EXECUTE ON FUNCTION mine TO READER;
            CREATE POLICY p ON t USING (asked(owner));
            """)
        #expect(try stage.binding(stage.request("t")).policy?.rowPolicy.term == .undecided)
        try stage.run("GRANT EXECUTE ON FUNCTION mine TO READER_owner; GRANT USAGE ON SCHEMA auth TO READER_owner")
        #expect(eventually { try! stage.binding(stage.request("t")).policy?.rowPolicy.term != .undecided })
    }

    // MARK: Memberships

    private static let among = "team IN (SELECT m.team_id FROM team_members m WHERE m.user_id = auth.uid())"

    @Test func `a membership that the role may not read lets nobody see anything`() throws {
        let stage = try stage(
            "REVOKE ALL ON team_members FROM READER; GRANT SELECT (user_id) ON team_members TO READER;"
                + "CREATE POLICY p ON t USING (\(PolicyReadingTests.among)); CREATE POLICY q ON t USING (is_public);")
        let policy = try #require(try stage.binding(stage.request("t")).policy)
        #expect(policy.rowPolicy.term == .never && policy.warning?.contains("may not read") == true)
        try stage.run("GRANT SELECT (team_id) ON team_members TO READER")
        #expect(eventually { try! stage.binding(stage.request("t")).policy?.membershipTables.isEmpty == false })
    }

    @Test func `a membership counts as far as its own table's policies let the role see it`() throws {
        let stage = try stage(
            "ALTER TABLE team_members ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t USING (\(PolicyReadingTests.among));"
        )
        func condition() throws -> Term? {
            var found: Term?
            try stage.binding(stage.request("t")).policy?.rowPolicy.term.visit {
                if case .member(let membership, _) = $0 { found = membership.condition }
            }
            return found
        }
        _ = stage.fresh()
        // The service asks again about facts that PostgreSQL could not provide immediately.
        #expect(try eventually { try condition()?.contains { $0 == .never } == true })
        try stage.run("CREATE POLICY own ON team_members USING (user_id = auth.uid())")
        _ = stage.fresh()
        #expect(try eventually { try condition()?.contains { $0 == .never } == false })
        // A policy that refers back to `t` is an error that PostgreSQL must raise.
        try stage.run("ALTER POLICY own ON team_members USING (EXISTS (SELECT 1 FROM t WHERE t.team = team_id))")
        _ = stage.fresh()
        #expect(try stage.binding(stage.request("t")).policy?.rowPolicy.term == .undecided)
    }

    @Test func `a table whose changes do not tell enough is not followed`() throws {
        let stage = try stage(
            "CREATE POLICY p ON t USING (\(PolicyReadingTests.among));",
            PolicyReadingTests.member(.caller, slots: [1, 2]))
        #expect(try stage.binding(stage.request("t")).policy?.rowPolicy.term == .undecided)
        try stage.run("ALTER TABLE team_members REPLICA IDENTITY FULL")
        #expect(eventually { try! stage.binding(stage.request("t")).policy?.rowPolicy.term != .undecided })
        try stage.run("ALTER PUBLICATION supabase_realtime SET (publish = 'insert, update, delete')")
        #expect(eventually { try! stage.binding(stage.request("t")).policy?.rowPolicy.term == .undecided })
    }
}
