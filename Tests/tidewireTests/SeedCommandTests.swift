import Change
import Embedded
import Glibc
import Postgres
import System
import TestSupport
import Testing

@testable import Console
@testable import tidewire

private let commands: [any Command] = [SeedCommand()]

/// Returns a log whose tables first appear in the wrong order: each one refers to a later one.
private func wrongWayRound(circle: Bool = false) throws -> TemporaryLog {
    func relation(_ name: String, _ oid: UInt32, _ columns: [String]) -> Relation {
        Relation(
            oid: oid, schema: "public", name: name, identity: .full,
            columns: (["id"] + columns).enumerated().map { index, column in
                Column(name: column, typeOID: 23, typeName: "int4", isIdentity: true, isPrimaryKey: index == 0)
            })
    }
    let relations = [
        relation("remarks", 16_601, ["item_id"]), relation("items", 16_602, ["category_id", "owner"]),
        relation("categories", 16_603, circle ? ["item_id"] : []), relation("people", 16_604, []),
    ]
    var lines = SecretStage.Lines()
    for relation in relations { lines.add(relation) }
    for relation in relations {
        let values = relation.columns.map { ($0.name, Optional("7")) }
        lines.add("INSERT", relation, new: Dictionary(uniqueKeysWithValues: values))
    }
    return try TemporaryLog(lines.ended)
}

private let tables = """
    CREATE TABLE people (id int PRIMARY KEY);
    CREATE TABLE categories (id int PRIMARY KEY);
    CREATE TABLE items (id int PRIMARY KEY, category_id int REFERENCES categories, owner int REFERENCES people);
    CREATE TABLE remarks (id int PRIMARY KEY, item_id int REFERENCES items);
    """

@Suite(.within(minutes: 5)) struct SeedCommandTests {
    private func seed(_ log: TemporaryLog, _ words: String...) async -> Run {
        await run(["seed", "--log", log.path] + words, commands: commands)
    }

    /// Returns the tables of a script in their order.
    private func order(_ script: String) -> [String] {
        script.split(separator: "\n").compactMap { line in
            line.wholeMatch(of: /INSERT INTO "public"\."(\w+)" .*/).map { String($0.1) }
        }
    }

    @Test func `where nobody says what the foreign keys are, columns' names do`() async throws {
        let log = try wrongWayRound()
        defer { log.remove() }
        let result = await seed(log)
        #expect(result.exitCode == .ok, "\(result.errors)")
        #expect(order(result.output) == ["categories", "items", "remarks", "people"], "\(result.output)")
        #expect(result.output.contains("-- the order of the tables follows names of columns"))
        #expect(!result.output.contains("circle"))
    }

    @Test func `tables that refer to each other in a circle are said`() async throws {
        let log = try wrongWayRound(circle: true)
        defer { log.remove() }
        let result = await seed(log)
        #expect(
            result.output.contains(
                "-- public.items, public.categories refer to each other in a circle: no order satisfies all of their foreign keys\n"
            ),
            "\(result.output)")
        #expect(order(result.output) == ["items", "categories", "remarks", "people"])
    }

    @Test func `by the database's foreign keys a login that is nothing special can load it`() async throws {
        let log = try wrongWayRound()
        defer { log.remove() }
        let (source, staging) = (try TestDatabase(), try TestDatabase())
        for database in [source, staging] { try database.run(tables) }
        let result = await seed(log, "--triggers", "--database-url", source.url)
        #expect(result.exitCode == .ok, "\(result.errors)")
        #expect(
            result.output.contains("-- the order of the tables follows foreign keys, as the database has them now\n"))
        #expect(order(result.output) == ["categories", "people", "items", "remarks"], "\(result.output)")
        let login = "loader_\(staging.name)"
        try staging.run("CREATE ROLE \(login)")
        try staging.run("GRANT INSERT ON ALL TABLES IN SCHEMA public TO \(login); SET ROLE \(login)")
        try staging.run(result.output)
        try staging.run("RESET ROLE")
        #expect(try staging.value("SELECT count(*) FROM remarks JOIN items i ON i.id = item_id") == "1")
        try staging.run("DROP OWNED BY \(login); DROP ROLE \(login)")
        // In the order of names, a table is before one to which it refers.
        let other = try TestDatabase()
        try other.run(tables)
        let guessed = await seed(log, "--triggers")
        #expect(throws: PostgresError.self) { try other.run(guessed.output) }
    }

    @Test func `a database that cannot be asked is said, and the order is by names`() async throws {
        let log = try wrongWayRound()
        defer { log.remove() }
        let result = await seed(log, "--database-url", "postgresql://nobody@127.0.0.1:1/none")
        #expect(result.exitCode == .ok)
        #expect(result.errors.contains("the order of the tables follows names of columns"), "\(result.errors)")
        #expect(order(result.output) == ["categories", "items", "remarks", "people"])
    }

    @Test func `a file has all of it or what it had before`() async throws {
        let log = try wrongWayRound()
        defer { log.remove() }
        let place = TemporaryDirectory.make("seed")
        let (path, directory) = (place + "/staging.sql", try DiskDirectory(place))
        func contents() throws -> String {
            String(decoding: try directory.open("staging.sql", for: .reading).contents(atMost: 1 << 20), as: UTF8.self)
        }
        let done = await seed(log, "-o", path)
        #expect(done.exitCode == .ok, "\(done.errors)")
        #expect(done.output == "\(path): 4 rows of 4 tables\n")
        let whole = try contents()
        #expect(await whole == seed(log).output)
        #expect(try directory.names() == ["staging.sql"])
        // The command fails after it has written the first table.
        let failed = await seed(log, "-o", path, "--table", "people", "--table", "nothing")
        #expect(failed.exitCode == .notFound && failed.errors.contains("no changes of public.nothing"))
        #expect(try contents() == whole && directory.names() == ["staging.sql"])
        let away = await seed(log, "-o", place + "/none/staging.sql")
        #expect(away.exitCode == .notFound && away.errors.contains("cannot write the file"), "\(away.errors)")
        #expect(await seed(log, "-o", place).exitCode == .usage)
        #expect(await seed(log, "-o", "/dev/null").exitCode == .usage)
    }

    @Test func `half of a script is never under its name`() throws {
        let place = TemporaryDirectory.make("seed")
        let directory = try DiskDirectory(place)
        do {
            let file = try NewFile(place + "/it.sql")
            try file.write(line: String(repeating: "x", count: 100_000))
            #expect(try directory.names() == ["it.sql.partial"])
            try file.keep()
            #expect(try directory.names() == ["it.sql"])
        }
        do {
            let file = try NewFile(place + "/it.sql")
            try file.write(line: "other")
        }
        #expect(try directory.names() == ["it.sql"])
        #expect(try directory.open("it.sql", for: .reading).size() == 100_001)
    }
}

/// Tests of the progress that a command reports to a person if it takes longer than a second.
@Suite(.within(minutes: 5)) struct ProgressTests {
    @Test(
        arguments: [
            (["log", "export"], "exported "), (["log", "verify"], "reading checksums of"),
            (["row", "fullrep", "5"], "reading the log: @"), (["tx", "742"], "searching the log: @"),
            (["asof", "fullrep"], "reading the log: @"), (["stats"], "counting changes: "),
            (["seed", "-o", "FILE"], "0 of 1 tables are written; reading public.fullrep: @"),
            (["log", "info"], "reading checksums of"), (["log", "forget", "fullrep", "5"], "searching the log: @"),
        ] as [([String], String)])
    func `a long command shows how far it is, unless it is told not to`(words: [String], line: String) async throws {
        let log = try TemporaryLog()
        defer { log.remove() }
        let file = TemporaryDirectory.make("progress") + "/it"
        let words = words.map { $0 == "FILE" ? file : $0 } + ["--log", log.path]
        let seen = await run(words, commands: allCommands, hasErrorScreen: true, time: SlowTime())
        #expect(seen.errors.contains("\r\u{1b}[K") && seen.errors.contains(line), "\(seen.errors)")
        let quiet = await run(words + ["--quiet"], commands: allCommands, hasErrorScreen: true, time: SlowTime())
        #expect(!quiet.errors.contains("\r"), "\(quiet.errors)")
        let nobody = await run(words, commands: allCommands, time: SlowTime())
        #expect(!nobody.errors.contains("\r"), "\(nobody.errors)")
    }

    @Test func `an import shows how far it is`() async throws {
        let place = TemporaryDirectory.make("progress")
        let bytes = Array((export + "\n").utf8)
        try DiskDirectory(place).open("it.ndjson", for: .creating).write(bytes.span.bytes, at: 0)
        let seen = await run(
            ["log", "import", place + "/it.ndjson", "--log", place + "/log"], commands: allCommands,
            hasErrorScreen: true, time: SlowTime())
        #expect(seen.exitCode == .ok && seen.errors.contains("100 %, "), "\(seen.errors)")
    }
}
