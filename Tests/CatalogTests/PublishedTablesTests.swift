import Embedded
import Postgres
import TestSupport
import Testing

@testable import Catalog

@Suite(.within(minutes: 10)) struct PublishedTablesTests {
    /// Checks publications and tables of all kinds: the hub's own reading of the catalog must give the result of
    /// PostgreSQL's function.
    @Test(.postgres(15), arguments: seeds(4)) func `what is published is what PostgreSQL says`(seed: Seed) throws {
        let database = try TestDatabase()
        var shapes = PublicationShapes(seed: seed)
        for statement in shapes.tables() { try database.run(statement) }
        for number in 0..<20 {
            let made = shapes.publication("p\(number)", serverVersion: database.connection.serverVersion)
            // PostgreSQL refuses some of these statements.
            guard (try? database.run(made)) != nil else { continue }
            let (ours, theirs) = (
                try published(database, "p\(number)"), try publishedByFunction(database, "p\(number)")
            )
            #expect(ours == theirs, "\(made)")
        }
        #expect(shapes.made > 10)
    }

    private func published(_ database: TestDatabase, _ publication: String) throws -> [[String?]] {
        let tables = PublishedTables.of(serverVersion: database.connection.serverVersion)
        return try database.run(
            """
            SELECT g.relid::regclass, \(Self.columns), g.is_filtered
            FROM pg_publication p CROSS JOIN LATERAL \(tables) g WHERE p.pubname = '\(publication)' ORDER BY 1
            """
        ).values
    }

    private func publishedByFunction(_ database: TestDatabase, _ publication: String) throws -> [[String?]] {
        try database.run(
            """
            SELECT DISTINCT g.relid::regclass, \(Self.columns), g.qual IS NOT NULL
            FROM pg_publication p, pg_get_publication_tables(p.pubname::text) g
            WHERE p.pubname = '\(publication)' ORDER BY 1
            """
        ).values
    }

    /// List of a published table's columns. Newer servers list all columns where older servers have no list.
    private static let columns = """
        COALESCE(g.attrs::text, (SELECT string_agg(a.attnum::text, ' ' ORDER BY a.attnum) FROM pg_attribute a
            WHERE a.attrelid = g.relid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''))
        """

    /// Checks a table that is locked for minutes: the hub must still read the other tables.
    @Test func `a locked table keeps nobody from the others`() throws {
        let stage = try CatalogStage(
            """
            CREATE TABLE others (id int PRIMARY KEY);
            CREATE TABLE members (team int, CONSTRAINT key PRIMARY KEY (team)); GRANT SELECT ON members TO READER;
            CREATE TABLE notes (id int PRIMARY KEY, team int); GRANT SELECT ON notes TO READER;
            ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
            CREATE POLICY team ON notes USING (team IN (SELECT m.team FROM members m));
            CREATE TABLE sums (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED);
            CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
            CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (10);
            """, publication: "FOR ALL TABLES")
        let before = try #require(stage.fresh())
        #expect(before.policies.unsettled.isEmpty)
        let holding = try stage.database.cluster.connect(database: stage.database.name)
        try holding.execute("BEGIN; LOCK TABLE members, sums, part, parts IN ACCESS EXCLUSIVE MODE")
        for round in 0..<3 {
            try stage.run("GRANT SELECT ON others TO READER")
            #expect(try eventually { try stage.binding(stage.request("others")).access == .readable }, "\(round)")
            try stage.run("REVOKE ALL ON others FROM READER")
            #expect(try eventually { try stage.binding(stage.request("others")).access == .unauthorized }, "\(round)")
        }
        let unsettled = try #require(stage.fresh()).policies.unsettled
        #expect(unsettled == Set(["notes", "sums"].compactMap { before.table("public", $0)?.oid }))
        try holding.execute("COMMIT")
        #expect(eventually { stage.service.snapshot?.policies.unsettled.isEmpty == true })
        let after = try #require(stage.fresh())
        let notes = try #require(after.table("public", "notes")?.oid)
        #expect(after.policies.of(notes).map(\.text) == before.policies.of(notes).map(\.text))
        #expect(after.table("public", "sums") == before.table("public", "sums"))
    }
}

/// Random tables and publications of all kinds.
private struct PublicationShapes {
    private var random: SeededRandom
    private var names: [String] = []
    private(set) var made = 0

    init(seed: Seed) { random = SeededRandom(seed: seed) }

    mutating func tables() -> [String] {
        var statements = (0..<3).map { "CREATE SCHEMA s\($0)" }
        for number in 0..<12 {
            let name = "s\(Int.random(in: 0..<3, using: &random)).t\(number)"
            switch Int.random(in: 0..<6, using: &random) {
            case 0:
                statements.append("CREATE UNLOGGED TABLE \(name) (id int PRIMARY KEY)")
                continue
            case 1: statements += partitions(of: name, depth: 0)
            case 2:
                statements.append("CREATE TABLE \(name) (id int PRIMARY KEY, a int)")
                statements.append("CREATE TABLE \(name)_heir (b int) INHERITS (\(name))")
            case 3:
                statements.append(
                    "CREATE TABLE \(name) (id int PRIMARY KEY, gone int, a int GENERATED ALWAYS AS (id * 2) STORED)")
                statements.append("ALTER TABLE \(name) DROP COLUMN gone")
            default: statements.append("CREATE TABLE \(name) (id int PRIMARY KEY, a int)")
            }
            names.append(name)
        }
        statements.append("CREATE VIEW s0.v AS SELECT 1; CREATE MATERIALIZED VIEW s0.m AS SELECT 1")
        return statements
    }

    private mutating func partitions(of name: String, depth: Int) -> [String] {
        var statements =
            depth == 0 ? ["CREATE TABLE \(name) (id int PRIMARY KEY, a int) PARTITION BY RANGE (id)"] : []
        for number in 0..<2 {
            let schema = "s\(Int.random(in: 0..<3, using: &random))"
            let part = "\(schema).\(name.split(separator: ".")[1])_\(number)"
            let bounds =
                "FOR VALUES FROM (\((number * 100) >> (depth * 3))) TO (\(((number + 1) * 100) >> (depth * 3)))"
            let isSplit = depth == 0 && Bool.random(using: &random)
            statements.append(
                "CREATE TABLE \(part) PARTITION OF \(name) \(bounds)\(isSplit ? " PARTITION BY RANGE (id)" : "")")
            if isSplit { statements.append("CREATE TABLE \(part)_all PARTITION OF \(part) DEFAULT") }
            names.append(part)
        }
        return statements
    }

    mutating func publication(_ name: String, serverVersion: Int) -> String {
        made += 1
        let options =
            " WITH (publish_via_partition_root = \(Bool.random(using: &random))"
            + (serverVersion >= 180_000 && Bool.random(using: &random) ? ", publish_generated_columns = stored)" : ")")
        switch Int.random(in: 0..<6, using: &random) {
        case 0: return "CREATE PUBLICATION \(name) FOR ALL TABLES" + options
        case 1: return "CREATE PUBLICATION \(name) FOR TABLES IN SCHEMA s\(made % 3)" + options
        case 2:
            return "CREATE PUBLICATION \(name) FOR TABLES IN SCHEMA s\(made % 3), TABLE \(random.pick(names))" + options
        default:
            let tables = names.shuffled(using: &random).prefix(Int.random(in: 1..<5, using: &random))
            let listed = tables.map { table in
                let columns = Int.random(in: 0..<3, using: &random) == 0 ? " (id)" : ""
                return table + columns + (Int.random(in: 0..<3, using: &random) == 0 ? " WHERE (id > 0)" : "")
            }
            return "CREATE PUBLICATION \(name) FOR TABLE \(listed.joined(separator: ", "))" + options
        }
    }
}
