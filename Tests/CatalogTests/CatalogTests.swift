import Diagnostics
import Embedded
import Policy
import Postgres
import Synchronization
import System
import TestSupport
import Testing

@testable import Catalog

@Suite(.within(minutes: 10)) struct CatalogTests {
    // MARK: Changes are noticed

    @Test func `rights that change are noticed, and listeners are told`() throws {
        let stage = try CatalogStage("CREATE TABLE t (id int PRIMARY KEY, a text)", publication: "FOR TABLE t")
        let versions = Mutex<[UInt64]>([])
        stage.service.listen { snapshot in versions.withLock { $0.append(snapshot.version) } }
        #expect(try stage.binding(stage.request("t")).access == .unauthorized)
        try stage.run("GRANT SELECT (id) ON t TO READER")
        #expect(eventually { stage.service.resolved(stage.request("t")).map(isReadable) == true })
        #expect(try stage.binding(stage.request("t")).delivered == [0])
        try stage.run("GRANT SELECT ON t TO PUBLIC")
        #expect(try eventually { try stage.binding(stage.request("t")).delivered == [0, 1] })
        try stage.run("REVOKE ALL ON t FROM PUBLIC; REVOKE ALL ON t FROM READER")
        // The service finds the change without a request. After listeners were notified, the fast path must not give an
        // outdated permission.
        #expect(eventually { stage.service.resolved(stage.request("t")) == nil })
        #expect(try stage.binding(stage.request("t")).access == .unauthorized)
        let seen = versions.withLock { $0 }
        #expect(seen.count >= 3 && seen == seen.sorted() && Set(seen).count == seen.count)
    }

    @Test func `tables that come, change and go are noticed`() throws {
        let stage = try CatalogStage("CREATE TABLE t (id int PRIMARY KEY, a text)", publication: "FOR ALL TABLES")
        let first = try #require(stage.fresh()?.table("public", "t"))
        func columns() -> [String]? { stage.fresh()?.table("public", "t")?.columns.map(\.name) }
        try stage.run("ALTER TABLE t ADD COLUMN b int; ALTER TABLE t DROP COLUMN a; ALTER TABLE t RENAME b TO c")
        #expect(columns() == ["id", "c"])
        #expect(stage.fresh()?.table("public", "t")?.columns.map(\.number) == [1, 3])
        try stage.run("ALTER TABLE t ALTER c TYPE text")
        #expect(stage.fresh()?.table("public", "t")?.columns.last?.typeName == "text")
        try stage.run("ALTER TABLE t RENAME TO u")
        #expect(columns() == nil && stage.fresh()?.table("public", "u")?.oid == first.oid)
        try stage.run("CREATE TABLE t (x text)")
        let second = try #require(stage.fresh()?.table("public", "t"))
        #expect(second.oid != first.oid && second.primaryKey.isEmpty)
        try stage.run("DROP TABLE t")
        #expect(columns() == nil && stage.fresh()?.table(second.oid) == nil)
        try stage.run("ALTER TABLE u REPLICA IDENTITY FULL")
        #expect(stage.fresh()?.table(first.oid)?.identity == .full)
    }

    /// Checks changes after which PostgreSQL's sessions may fail or use former definitions. Each change is undone
    /// immediately, so that the catalog reads as before.
    @Test(arguments: [
        "ALTER TABLE t RENAME a TO b; ALTER TABLE t RENAME b TO a",
        "ALTER TYPE label RENAME TO b; ALTER TYPE b RENAME TO label",
        "ALTER TYPE label RENAME VALUE 'x' TO 'z'; ALTER TYPE label RENAME VALUE 'z' TO 'x'",
        "ALTER TYPE pair ADD ATTRIBUTE b int; ALTER TYPE pair DROP ATTRIBUTE b",
        "ALTER FUNCTION f RENAME TO g; ALTER FUNCTION g RENAME TO f",
        "ALTER DOMAIN short RENAME TO b; ALTER DOMAIN b RENAME TO short",
        "ALTER TABLE t DROP c; ALTER TABLE t ADD c int",
    ])
    func `definitions that come and go make earlier readings old`(sql: String) throws {
        let stage = try CatalogStage(
            """
            CREATE TYPE label AS ENUM ('x', 'y'); CREATE TYPE pair AS (a int); CREATE DOMAIN short AS text;
            CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
            CREATE TABLE t (id int PRIMARY KEY, a label, c int);
            """, publication: "FOR TABLE t")
        var before = stage.definitions.current
        // The first readings find tables that later readings need, too.
        #expect(
            eventually {
                before = stage.definitions.current
                return stage.fresh() != nil && before.isCurrent
            })
        try stage.run(sql)
        _ = stage.fresh()
        #expect(!before.isCurrent)
    }

    @Test func `a table made a moment ago can be subscribed to`() throws {
        let stage = try CatalogStage(publication: "FOR ALL TABLES")
        for number in 1...5 {
            try stage.run("CREATE TABLE t\(number) (id int PRIMARY KEY); GRANT SELECT ON t\(number) TO READER")
            #expect(try stage.binding(stage.request("t\(number)")).access == .readable)
        }
    }

    @Test func `the questions are planned once on a connection`() throws {
        let database = try TestDatabase()
        try database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION supabase_realtime FOR TABLE t")
        let connection = try Connection(
            database.target, applicationName: "catalog", settings: CatalogWorker.sessionSettings)
        let trial = CatalogTrial(AskedServer(connection, interrupt: try Wake()), "supabase_realtime")
        var view = try trial.view(for: ["anon"])
        func kept() throws -> [String?] {
            let text =
                "SELECT count(*), sum(custom_plans) FROM pg_prepared_statements WHERE name LIKE 'catalog\\_%'"
            return try connection.execute(text).first ?? []
        }
        let first = try kept()
        for number in 1...4 {
            try database.run("ALTER TABLE t ADD COLUMN a\(number) int")
            view = try trial.view(for: ["anon"])
        }
        #expect(view.snapshot.tables.first?.columns.count == 5)
        let count = try #require(first[0].flatMap { Int($0) })
        #expect(count > 5)
        #expect(try kept() == ["\(count)", "0"], "those of the first time are known, none is planned for its values")
    }

    @Test func `no more statements are kept than a connection may have, in one round trip or in many`() throws {
        let connection = try Connection(TestDatabase().target, applicationName: "catalog")
        let server = AskedServer(connection, interrupt: try Wake())
        let all = 2 * Limits.maximumPreparedQuestions
        for round in [0..<all, 0..<3, all - 3..<all, 0..<all] {
            let answers = try server.answers(to: round.map { .kept("SELECT \($0) + $1::int", ["1"]) })
            #expect(try answers.map { try $0.get().first?.first } == round.map { "\($0 + 1)" })
        }
        let kept = try connection.execute("SELECT count(*) FROM pg_prepared_statements").first?.first
        #expect(kept == "\(Limits.maximumPreparedQuestions)")
    }

    @Test func `what does not change stays the same object and the same version`() throws {
        // Roles with more rights than clients' roles belong to the whole cluster, and other tests create such roles.
        let cluster = try TestCluster.fresh()
        defer { cluster.stop() }
        let stage = try CatalogStage(
            on: cluster,
            "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)", publication: "FOR ALL TABLES")
        let before = try #require(stage.fresh())
        try stage.run("CREATE TYPE unused AS ENUM ('a'); CREATE ROLE READER_other")
        #expect(stage.fresh()?.version == before.version)
        try stage.run("ALTER TABLE t ADD COLUMN a int")
        let after = try #require(stage.fresh())
        #expect(after.version > before.version)
        #expect(after.table("public", "u") === before.table("public", "u"))
        #expect(after.table("public", "t") !== before.table("public", "t"))
    }

    @Test func `a publication that is made later is found`() throws {
        let stage = try CatalogStage("CREATE TABLE t (id int PRIMARY KEY); GRANT SELECT ON t TO READER")
        #expect(stage.message(stage.request("t"))?.hasPrefix("Unable to subscribe") == true)
        try stage.run("DROP PUBLICATION supabase_realtime")
        #expect(stage.message(stage.request("t"))?.hasPrefix("Unable to subscribe") == true)
        let all = try TestServer.major() >= 15 ? "TABLES IN SCHEMA public" : "ALL TABLES"
        try stage.run("CREATE PUBLICATION supabase_realtime FOR \(all)")
        #expect(try stage.binding(stage.request("t")).access == .readable)
    }

    @Test func `partitions are published as the publication says`() throws {
        let stage = try CatalogStage(
            """
            CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id);
            CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
            """, publication: "FOR TABLE p")
        #expect(stage.fresh()?.tables.map(\.name) == ["p1"])
        try stage.run("ALTER PUBLICATION supabase_realtime SET (publish_via_partition_root = true)")
        #expect(stage.fresh()?.tables.map(\.name) == ["p"])
    }

    @Test func `a role that goes is unknown`() throws {
        let stage = try CatalogStage("CREATE TABLE t (id int PRIMARY KEY)", publication: "FOR TABLE t")
        _ = try stage.binding(stage.request("t"))
        try stage.run("DROP OWNED BY READER; DROP ROLE READER")
        let message = stage.message(stage.request("t"))
        #expect(message?.hasSuffix("role \"\(stage.role)\" does not exist") == true)
    }

    @Test func `memberships count as the server counts them`() throws {
        let stage = try CatalogStage(
            "CREATE TABLE t (id int PRIMARY KEY); CREATE ROLE READER_team; GRANT SELECT ON t TO READER_team",
            publication: "FOR TABLE t")
        #expect(try stage.binding(stage.request("t")).access == .unauthorized)
        try stage.run("GRANT READER_team TO READER")
        #expect(try stage.binding(stage.request("t")).access == .readable)
        // Up to PostgreSQL 15, INHERIT is set for all memberships of a role; from 16 on, for later memberships only.
        let isOfEach = try TestServer.major() >= 16
        try stage.run(isOfEach ? "GRANT READER_team TO READER WITH INHERIT FALSE" : "ALTER ROLE READER NOINHERIT")
        #expect(try eventually { try stage.binding(stage.request("t")).access == .unauthorized })
    }

    @Test func `a transaction's work is seen once it is over, and not waited for for ever`() throws {
        let stage = try CatalogStage("CREATE TABLE t (id int PRIMARY KEY)", publication: "FOR TABLE t")
        let other = try stage.database.cluster.connect(database: stage.database.name)
        try other.execute("BEGIN; ALTER TABLE t ADD COLUMN late int")
        let xid = try #require(
            try other.execute("SELECT pg_current_xact_id()::text").first?.first.flatMap { $0.flatMap { UInt64($0) } })
        let answer = Awaited<CatalogSnapshot?>()
        stage.service.refresh(seeing: UInt32(truncatingIfNeeded: xid)) { answer.set($0) }
        #expect(stage.fresh()?.table("public", "t")?.columns.count == 1)
        try other.execute("COMMIT")
        #expect((answer.wait() ?? nil)?.table("public", "t")?.columns.count == 2)
        try other.execute("BEGIN; ALTER TABLE t ADD COLUMN never int")
        let hidden = try #require(
            try other.execute("SELECT pg_current_xact_id()::text").first?.first.flatMap { $0.flatMap { UInt64($0) } })
        let none = Awaited<CatalogSnapshot?>()
        stage.service.refresh(seeing: UInt32(truncatingIfNeeded: hidden)) { none.set($0) }
        let given = try #require(none.wait())
        #expect(given == nil)
    }

    // MARK: Row security

    @Test func `row security is active for whom the server says`() throws {
        let stage = try CatalogStage(
            """
            CREATE ROLE READER_owner; CREATE ROLE READER_member; GRANT READER_owner TO READER_member;
            CREATE ROLE READER_apart NOINHERIT; GRANT READER_owner TO READER_apart;
            CREATE ROLE READER_bypass BYPASSRLS; CREATE ROLE READER_heir; GRANT READER_bypass TO READER_heir;
            CREATE ROLE READER_super SUPERUSER; CREATE ROLE READER_sub; GRANT READER_super TO READER_sub;
            CREATE TABLE off (id int PRIMARY KEY); CREATE TABLE ena (id int PRIMARY KEY);
            CREATE TABLE forced (id int PRIMARY KEY);
            ALTER TABLE ena ENABLE ROW LEVEL SECURITY;
            ALTER TABLE forced ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
            ALTER TABLE off OWNER TO READER_owner; ALTER TABLE ena OWNER TO READER_owner;
            ALTER TABLE forced OWNER TO READER_owner;
            GRANT SELECT ON off, ena, forced TO PUBLIC; GRANT USAGE ON SCHEMA public TO PUBLIC;
            CREATE POLICY p ON ena USING (true);
            """, publication: "FOR ALL TABLES")
        for suffix in ["", "_owner", "_member", "_apart", "_bypass", "_heir", "_super", "_sub"] {
            let role = stage.role + suffix
            for table in ["off", "ena", "forced"] {
                try stage.database.run("BEGIN")
                try stage.database.run("SET LOCAL ROLE \(role)")
                let isActive = try stage.database.value("SELECT row_security_active('\(table)')") == "t"
                try stage.database.run("COMMIT")
                let binding = try stage.binding(stage.request(table, role: role))
                #expect((binding.policy != nil) == isActive, "\(role) on \(table)")
                #expect(binding.access == .readable)
            }
        }
        let ena = try #require(stage.fresh()?.table("public", "ena"))
        #expect(ena.hasRowSecurity && !ena.forcesRowSecurity && ena.hasPolicies)
    }

    @Test func `row security that is switched on is noticed`() throws {
        let stage = try CatalogStage(
            "CREATE TABLE t (id int PRIMARY KEY); GRANT SELECT ON t TO READER", publication: "FOR TABLE t")
        #expect(stage.resolve([stage.request("t")]).map(isReadable) == [true])
        try stage.run("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
        #expect(
            eventually {
                guard case .tables(let tables)? = stage.service.resolved(stage.request("t")) else { return false }
                return tables.allSatisfy { $0.policy?.warning != nil }
            })
    }

    // MARK: Facts about columns

    @Test(.icu) func `columns are what the catalog says they are`() throws {
        let stage = try CatalogStage(
            #"""
            CREATE TYPE mood AS ENUM ('sad', 'ok', 'a "b"', 'happy');
            ALTER TYPE mood ADD VALUE 'meh' BEFORE 'ok';
            CREATE DOMAIN posint AS int CHECK (VALUE > 0); CREATE DOMAIN tiny AS posint;
            CREATE TYPE pair AS (a int, b text[]);
            CREATE EXTENSION hstore;
            CREATE COLLATION nd (provider = icu, locale = 'und', deterministic = false);
            CREATE TABLE t (
                id bigint PRIMARY KEY, m mood, ms mood[], d tiny, ds posint[], p pair, ps pair[], h hstore, n name,
                c text COLLATE "C", plain text, weird text COLLATE nd, ch char(3), r int4range, b box[], v varchar(5)[],
                g int GENERATED ALWAYS AS (1) STORED, "Odd name" point)
            """#, publication: "FOR TABLE t")
        let table = try #require(stage.fresh()?.table("public", "t"))
        func column(_ name: String) throws -> CatalogColumn { try #require(table.columns.first { $0.name == name }) }
        let mood = try column("m").facts.type
        #expect(mood.shape == .enumeration(labels: ["sad", "meh", "ok", #"a "b""#, "happy"]))
        #expect(mood.name == "public.mood")
        #expect(try column("ms").facts.type.shape == .array(of: mood))
        let integer = TypeFacts(oid: 23, name: "integer")
        #expect(try column("d").facts.type == integer)
        #expect(try column("d").typeName == "tiny")
        #expect(try column("d").rendering == .scalar(oid: 23))
        #expect(try column("ds").facts.type.shape == .array(of: integer))
        let pair = ColumnRendering.composite([
            ColumnRendering.Field(name: "a", rendering: .scalar(oid: 23)),
            ColumnRendering.Field(
                name: "b", rendering: .array(of: .scalar(oid: 25), delimiter: UInt8(ascii: ","))),
        ])
        #expect(try column("p").facts.type.shape == .other)
        #expect(try column("p").rendering == pair)
        #expect(try column("ps").rendering == .array(of: pair, delimiter: UInt8(ascii: ",")))
        #expect(try column("h").rendering == .hstore)
        #expect(try column("h").facts.type.shape == .other)
        #expect(try column("n").facts.collation == .bytewise)
        #expect(try column("c").facts.collation == .bytewise)
        #expect(try column("plain").facts.collation == .deterministic(name: nil))
        #expect(try column("weird").facts.collation == .nondeterministic(name: "public.nd"))
        #expect(try column("id").facts.collation == .none)
        #expect(try column("ch").typeName == "bpchar")
        #expect(try column("r").facts.type.shape == .other)
        #expect(try column("b").rendering == .array(of: .scalar(oid: 603), delimiter: UInt8(ascii: ";")))
        #expect(try column("v").typeName == "_varchar")
        #expect(try column("g").isPublished == false)
        #expect(try column("Odd name").facts.type.shape == .base)
        #expect(stage.fresh()?.text == TextRules(.utf8, foldsASCIIPlainly: true))
        try stage.run("ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'")
        let renamed = try #require(stage.fresh()?.table("public", "t")?.columns[1].facts.type)
        #expect(renamed.shape == .enumeration(labels: ["sad", "meh", "fine", #"a "b""#, "happy"]))
    }

    @Test func `a database in C compares by bytes`() throws {
        let cluster = try TestCluster.shared()
        try cluster.connect().execute("CREATE DATABASE \(stageName) TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
        let connection = try cluster.connect(database: stageName)
        try connection.execute("CREATE TABLE t (id text PRIMARY KEY); CREATE PUBLICATION supabase_realtime FOR TABLE t")
        let service = try CatalogService(CatalogService.Settings(target: cluster.target(database: stageName)))
        defer { service.stop() }
        let answer = Awaited<CatalogSnapshot?>()
        service.refresh { answer.set($0) }
        #expect((answer.wait() ?? nil)?.table("public", "t")?.columns.first?.facts.collation == .bytewise)
    }

    private let stageName = "in_c_\(UInt32.random(in: 0 ... .max))"

    @Test(.postgres(15)) func `a column list and replica identities are read`() throws {
        let stage = try CatalogStage(
            """
            CREATE TABLE t (id int PRIMARY KEY, a int NOT NULL, b int); CREATE UNIQUE INDEX i ON t (a);
            ALTER TABLE t REPLICA IDENTITY USING INDEX i;
            CREATE TABLE n (id int PRIMARY KEY); ALTER TABLE n REPLICA IDENTITY NOTHING;
            """, publication: "FOR TABLE t (id, a), TABLE n")
        let snapshot = try #require(stage.fresh())
        #expect(snapshot.table("public", "t")?.columns.map(\.isPublished) == [true, true, false])
        #expect(snapshot.table("public", "t")?.identity == .index([1]))
        #expect(snapshot.table("public", "n")?.identity == .nothing)
    }

    // MARK: When the database is away

    @Test func `a database that goes and comes back is asked again`() throws {
        let cluster = try TestCluster.fresh()
        let stage = try CatalogStage(
            on: cluster, "CREATE TABLE t (id int PRIMARY KEY); GRANT SELECT ON t TO READER", publication: "FOR TABLE t")
        #expect(isReadable(stage.resolve(stage.request("t"))))
        cluster.kill()
        #expect(eventually { !stage.service.isCurrent })
        #expect(stage.service.resolved(stage.request("t")) == nil)
        guard case .unavailable = stage.resolve(stage.request("t")) else {
            Issue.record("an answer without a database")
            return
        }
        #expect(stage.fresh() == nil)
        try cluster.start()
        // The port stays the same unless another process has taken it.
        #expect(eventually { isReadable(stage.resolve(stage.request("t"))) })
        #expect(stage.service.isCurrent)
    }

    @Test func `stopping answers those who wait`() throws {
        let stage = try CatalogStage("CREATE TABLE t (id int PRIMARY KEY)", publication: "FOR TABLE t")
        _ = stage.fresh()
        stage.stop()
        guard case .unavailable = stage.resolve(stage.request("t")) else {
            Issue.record("an answer after the end")
            return
        }
        #expect(stage.fresh() == nil)
    }

    @Test func `stopping does not wait for a database that does not answer`() throws {
        // No host answers at this address (RFC 5737).
        let service = try CatalogService(
            CatalogService.Settings(target: ConnectionTarget("postgresql://postgres@192.0.2.1:5432/postgres")))
        let answer = Awaited<[BindingOutcome]>()
        service.resolve([BindingRequest(role: "r", schema: "public", table: "t")]) { outcomes, _ in answer.set(outcomes)
        }
        service.stop()
        guard case .unavailable = answer.wait()?.first else {
            Issue.record("no answer at the end")
            return
        }
    }
}
