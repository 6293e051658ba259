import Embedded
import History
import Postgres
import TestSupport
import Testing

@testable import Console
@testable import tidewire

private let commands: [any Command] = [ReplayCommand(), SeedCommand(), LogCommand()]

@Suite(.within(minutes: 5)) struct ReplayCommandTests {
    private static let tables = """
        CREATE TABLE people (id int PRIMARY KEY, email text NOT NULL, access_token uuid NOT NULL, phones text[] NOT NULL,
            password bytea, address jsonb, settings jsonb, raw json, note varchar(30), diagnosis text);
        CREATE SCHEMA kept; CREATE TABLE kept.readers (email varchar(20) PRIMARY KEY, n int);
        """
    private static let usual = ["--map", "subscribers=kept.readers", "--mask", "diagnosis", "--speed", "max"]

    private static func staging() throws -> TestDatabase {
        let database = try TestDatabase()
        try database.run(Self.tables)
        return database
    }

    private static func run(
        _ log: TemporaryLog, _ database: TestDatabase, _ words: [String], answers: (() -> String?)? = nil,
        files: [String: String] = [:]
    ) async -> Run {
        await tidewireTests.run(
            ["replay", "--log", log.path, "--target", database.url] + words, commands: commands, files: files,
            answers: answers)
    }

    /// Returns all rows in the database as text.
    private static func contents(_ database: TestDatabase) throws -> String {
        let tables = ["people", "kept.readers"]
        return try tables.map { table in
            try database.run("SELECT t::text FROM \(table) t").values.map { $0[0] ?? "" }.joined(separator: "\n")
        }.joined(separator: "\n")
    }

    @Test func `a dry run says what would be and writes nothing`() async throws {
        let (stage, database) = (try SecretStage(), try Self.staging())
        defer { stage.log.remove() }
        let result = await Self.run(stage.log, database, ["--map", "subscribers=kept.readers"])
        #expect(result.exitCode == .ok, "\(result.errors)")
        let place = database.url.replacing(/:[^:@\/]*@/, with: ":********@")
        #expect(
            result.output.hasPrefix(
                "@0 to @8, 2026-11-21 10:04:50.000 to 2026-11-21 10:04:58.000 (UTC), into \(place):"),
            "\(result.output)")
        #expect(result.output.contains("public.subscribers  kept.readers   1  1  0  0  email"), "\(result.output)")
        #expect(
            result.output.contains(
                "6 transactions, 6 changes at the original speed, which takes 8 s; left out: 2 messages, 1 row of realtime.messages."
            ), "\(result.output)")
        #expect(result.output.hasSuffix("Nothing was written: --go replays it.\n"))
        #expect(try Self.contents(database) == "\n")
        let audit = await tidewireTests.run(["log", "audit", "--log", stage.log.path], commands: commands)
        #expect(audit.exitCode == .notFound)
    }

    @Test func `no secret reaches output or target, and masked keys still find their rows`() async throws {
        let (stage, database) = (try SecretStage(), try Self.staging())
        defer { stage.log.remove() }
        for json in [[], ["--json"]] {
            try database.run("TRUNCATE people, kept.readers")
            let result = await Self.run(stage.log, database, Self.usual + ["--go", "--tag", "again"] + json)
            #expect(result.exitCode == .ok, "\(result.output) \(result.errors)")
            let contents = try Self.contents(database)
            for text in [contents, result.output, result.errors] {
                #expect(!text.contains(SecretStage.secret), "\(text)")
            }
            #expect(contents.contains("*** "))
            #expect(try database.value("SELECT count(*) FROM people") == "1")
            #expect(
                try database.value("SELECT count(*) FROM kept.readers WHERE email ~ '^\\*\\*\\* [0-9a-f]{16}$'") == "1")
            if json.isEmpty { #expect(result.output.hasSuffix("Replayed 6 transactions, 6 changes.\n")) }
        }
        let audit = await tidewireTests.run(["log", "audit", "--log", stage.log.path, "--json"], commands: commands)
        #expect(audit.output.split(separator: "\n").count == 2 && audit.output.contains(#""action":"replay""#))
        #expect(
            audit.output.contains(
                ", 6 transactions, 6 changes of public.people, public.subscribers, tag again\","), "\(audit.output)")
        #expect(audit.output.contains("@0 to @8 into postgresql://postgres:*"))
    }

    @Test func `the same key masks alike in another run`() async throws {
        let (stage, database) = (try SecretStage(), try Self.staging())
        defer { stage.log.remove() }
        let files = ["key": "sixteen bytes it is", "short": "fifteen bytes  "]
        func part(_ from: String, _ to: String, _ key: [String]) async -> Run {
            await Self.run(
                stage.log, database, Self.usual + ["--table", "subscribers", "--from", from, "--to", to, "--go"] + key,
                files: files)
        }
        #expect(await part("@2", "@3", ["--mask-key", "key"]).exitCode == .ok)
        let other = await part("@3", "@4", [])
        #expect(other.exitCode == .notFound)
        #expect(
            other.output.hasSuffix(
                """
                Conflict: @3 kept.readers: the row is missing.
                Replayed 0 transactions, 0 changes. Stopped at a conflict: --from @3 continues.

                """), "\(other.output)")
        #expect(await part("@3", "@4", ["--mask-key", "key"]).exitCode == .ok)
        #expect(await part("@3", "@4", ["--mask-key", "short"]).exitCode == .usage)
    }

    @Test func `what cannot be written down is not replayed`() async throws {
        let (stage, database) = (try SecretStage(), try Self.staging())
        defer { stage.log.remove() }
        let result = await Self.run(
            stage.log, database, Self.usual + ["--go", "--audit-file", "/nowhere/at/all"])
        #expect(
            result.exitCode == .notFound && result.errors.contains("nothing was replayed, because"), "\(result.errors)")
        #expect(try Self.contents(database) == "\n")
    }

    @Test func `what the target cannot take is said before`() async throws {
        let (stage, database) = (try SecretStage(), try Self.staging())
        defer { stage.log.remove() }
        try database.run("ALTER TABLE people DROP COLUMN note; CREATE TYPE odd AS (a int)")
        try database.run("ALTER TABLE people ALTER diagnosis TYPE odd USING NULL, ADD CHECK (true); DELETE FROM people")
        try database.run("ALTER TABLE people ALTER diagnosis SET NOT NULL")
        let result = await Self.run(stage.log, database, ["--go", "--mask", "diagnosis"])
        #expect(result.exitCode == .notFound)
        for line in [
            "It cannot be replayed: public.people has no column note.",
            "It cannot be replayed: the target has no table public.subscribers.",
            "It cannot be replayed: public.people.diagnosis takes no NULL, and its type has no stand-in for masked values.",
        ] { #expect(result.output.contains(line), "\(result.output)") }
        #expect(try Self.contents(database) == "\n")
    }

    @Test func `the server of the source is refused, and so is a login that may not`() async throws {
        let database = try TestDatabase()
        try database.run("CREATE TABLE fullrep (id int PRIMARY KEY, email text, body text, deleted_at timestamptz)")
        let identifier = try #require(try database.value("SELECT system_identifier FROM pg_control_system()"))
        let log = try TemporaryLog(export.replacing(/"source":"[0-9]+"/, with: "\"source\":\"\(identifier)\""))
        defer { log.remove() }
        func replay(_ words: String...) async -> Run { await Self.run(log, database, ["--table", "fullrep"] + words) }
        let place = "127.0.0.1:\(database.cluster.port)/\(database.name)"
        let refused = await replay("--go")
        #expect(refused.exitCode == .notFound)
        #expect(
            refused.errors.contains(
                "\(place) is on the server that this log comes from, and may be the database itself"),
            "\(refused.errors)")
        let own = await replay("--database-url", database.url)
        #expect(own.exitCode == .notFound && own.errors.contains("may be the database itself"), "\(own.errors)")
        let another = await replay("--database-url", database.cluster.url(database: "elsewhere"))
        #expect(another.exitCode == .ok, "\(another.errors)")
        for words in [["--allow-target", place], ["--replay-targets", "a:1/b, \(place)"]] {
            let allowed = await Self.run(log, database, ["--table", "fullrep"] + words)
            #expect(allowed.exitCode == .ok, "\(allowed.errors)")
            let lines = allowed.output.split(separator: "\n", omittingEmptySubsequences: false)
            #expect(
                lines[0].hasPrefix(
                    "@12 to @16, 2026-11-21 10:04:51.703 to 2026-11-21 10:04:51.710 (UTC), into postgresql:"))
            #expect(
                lines.dropFirst().joined(separator: "\n") == """

                    TABLE           INTO            I  U  D  T  MASKED
                    public.fullrep  public.fullrep  1  3  1  0  email

                    5 transactions, 5 changes at the original speed, which takes less than a second.
                    Nothing was written: --go replays it.

                    """)
        }
    }

    @Test func `words that make no sense are said`() async throws {
        let (stage, database) = (try SecretStage(), try Self.staging())
        defer { stage.log.remove() }
        let wrong: [([String], String)] = [
            (["--speed", "fast"], "expected original, max or xN"), (["--map", "people"], "expected two tables"),
            (["--map", "a=b", "--map", "a=c"], "was mapped before"),
            (["--on-conflict", "ask"], "expected stop or skip"),
            (["--pause-on", "email"], "expected column=value"),
            (["--pause-on", "email=a@b"], "public.people.email is masked"),
        ]
        for (words, complaint) in wrong {
            let result = await Self.run(stage.log, database, words)
            #expect(result.exitCode == .usage && result.errors.contains(complaint), "\(words): \(result.errors)")
        }
        let targets: [([String], String)] = [
            (["https://staging"], "set REPLAY_TOKEN"), (["http://staging:port"], "expected postgresql://"),
            (["http://127.0.0.1:1"], "set REPLAY_TOKEN"), ([database.url, "--channel", "x"], "are for a hub"),
        ]
        for (words, complaint) in targets {
            let result = await tidewireTests.run(
                ["replay", "--log", stage.log.path, "--target"] + words, commands: commands)
            #expect(result.exitCode == .usage && result.errors.contains(complaint), "\(words): \(result.errors)")
        }
        let away = await tidewireTests.run(
            ["replay", "--log", stage.log.path, "--target", "http://127.0.0.1:1"], commands: commands,
            environment: ["REPLAY_TOKEN": "t"])
        #expect(away.exitCode == .unreachable, "\(away.errors)")
        let nowhere = await tidewireTests.run(["replay", "--log", stage.log.path], commands: commands)
        #expect(nowhere.exitCode == .usage && nowhere.errors.contains("--target is missing"))
    }

    @Test func `who steps goes on, stops, and is told how to go on`() async throws {
        let (stage, database) = (try SecretStage(), try Self.staging())
        defer { stage.log.remove() }
        var answers = ["", "q"]
        let stopped = await Self.run(
            stage.log, database, Self.usual + ["--step", "--go"],
            answers: { answers.isEmpty ? nil : answers.removeFirst() })
        #expect(stopped.exitCode == .notFound)
        #expect(
            stopped.output.hasSuffix("Replayed 1 transaction, 1 change. Stopped: --from @1 continues.\n"),
            "\(stopped.output)")
        #expect(stopped.errors.contains("next: @0 xid 740 2026-11-21 10:04:50.000 [Enter, c, q] "))
        let alone = await Self.run(stage.log, database, Self.usual + ["--pause-on", "n=1", "--go", "--from", "@1"])
        #expect(
            alone.output.hasSuffix("Replayed 1 transaction, 1 change. Stopped: --from @2 continues.\n"),
            "\(alone.output)"
        )
        #expect(alone.errors.contains("no answer, because standard input has ended"))
    }

    @Test func `a seed gives a database the rows of then, without secrets, and a replay goes on from there`()
        async throws
    {
        let (stage, database) = (try SecretStage(), try Self.staging())
        defer { stage.log.remove() }
        // The log has the lengths of its own columns.
        try database.run(
            "ALTER TABLE people ALTER note TYPE text; CREATE TABLE subscribers (email text PRIMARY KEY, n int)")
        let files = ["key": "sixteen bytes it is"]
        let masks = ["--mask", "diagnosis", "--mask-key", "key", "--log", stage.log.path]
        let seed = await tidewireTests.run(["seed", "--to", "@3"] + masks, commands: commands, files: files)
        #expect(seed.exitCode == .ok, "\(seed.errors)")
        #expect(
            seed.output.contains("-- public.people: 1 row; rows that no change touched since @0 are missing\n"))
        try database.run(seed.output)
        #expect(try database.run("SELECT id FROM people").values == [["1"]])
        let replay = await Self.run(
            stage.log, database,
            ["--from", "@3", "--speed", "max", "--go", "--mask", "diagnosis", "--mask-key", "key"],
            files: files)
        #expect(replay.exitCode == .ok, "\(replay.output) \(replay.errors)")
        let contents = try Self.contents(database) + "\(try database.run("SELECT * FROM subscribers").values)"
        for text in [seed.output, seed.errors, contents] { #expect(!text.contains(SecretStage.secret), "\(text)") }
        let unknown = await tidewireTests.run(
            ["seed", "--table", "nothing", "--log", stage.log.path], commands: commands)
        #expect(unknown.exitCode == .notFound && unknown.errors.contains("no changes of public.nothing"))
    }
}
