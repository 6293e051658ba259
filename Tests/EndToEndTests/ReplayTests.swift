import Bytes
import Change
import History
import Postgres
import System
import TestSupport
import Testing

@testable import Ingest
@testable import Replaying

/// Two databases with the same tables, each followed by a hub.
private final class ReplayStage {
    static let tables = """
        CREATE TYPE mood AS ENUM ('sad', 'glad');
        CREATE TABLE lists (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text, mood mood, made timestamptz);
        CREATE TABLE items (list int REFERENCES lists ON DELETE CASCADE, id uuid, body text, n numeric(8,2),
            twice numeric GENERATED ALWAYS AS (n * 2) STORED, tags text[], PRIMARY KEY (list, id));
        CREATE TABLE "Odd ""1"" one" (a char(6), b jsonb, c float8); ALTER TABLE "Odd ""1"" one" REPLICA IDENTITY FULL;
        CREATE TABLE full_items (id int PRIMARY KEY, body text, note text); ALTER TABLE full_items REPLICA IDENTITY FULL;
        CREATE TABLE days (day date, n int, PRIMARY KEY (day, n)) PARTITION BY RANGE (day);
        CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM ('2026-01-01') TO ('2026-06-01');
        CREATE TABLE days_2 PARTITION OF days FOR VALUES FROM ('2026-06-01') TO ('2027-01-01');
        CREATE FUNCTION echo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO full_items VALUES ((SELECT coalesce(max(id), 0) + 1 FROM full_items), 'by a trigger'); RETURN NEW; END $$;
        CREATE TRIGGER echo AFTER INSERT ON items FOR EACH ROW EXECUTE FUNCTION echo();
        CREATE PUBLICATION supabase_realtime FOR ALL TABLES;
        """
    let source: HubUnderTest
    let staging: HubUnderTest

    init() throws {
        (source, staging) = (try HubUnderTest(TestDatabase()), try HubUnderTest(TestDatabase()))
        for hub in [source, staging] {
            try hub.database.run(Self.tables)
            try hub.start()
        }
    }

    /// Returns a random statement, which may change nothing.
    func statement(_ random: inout SeededRandom) -> String {
        let number = Int.random(in: 1...40, using: &random)
        let text = "repeat(md5('\(Int.random(in: 0...9, using: &random))'), \(random.pick([1, 1, 400])))"
        switch Int.random(in: 0..<14, using: &random) {
        case 0, 1: return "INSERT INTO lists (name, mood, made) VALUES (\(text), 'glad', now())"
        case 2, 3:
            return "INSERT INTO items (list, id, body, n, tags) SELECT id, md5('\(number)')::uuid, \(text), \(number), "
                + "ARRAY['a,b', 'c'] FROM lists ORDER BY id LIMIT 3 ON CONFLICT DO NOTHING"
        case 4: return "UPDATE items SET n = n + 1 WHERE list % 3 = \(number % 3)"
        case 5: return "UPDATE items SET id = md5(id::text)::uuid WHERE list % 5 = \(number % 5)"
        case 6: return "DELETE FROM lists WHERE id % 7 = \(number % 7)"
        case 7:
            return
                "INSERT INTO \"Odd \"\"1\"\" one\" VALUES ('a\(number % 4)', '{\"a\": [1, null]}', \(number) / 3.0), "
                + "(NULL, NULL, 'NaN')"
        case 8: return "UPDATE \"Odd \"\"1\"\" one\" SET a = 'b', c = c + 1 WHERE a = 'a\(number % 4)'"
        case 9: return "DELETE FROM \"Odd \"\"1\"\" one\" WHERE a IS NULL AND random() < 0.5"
        case 10: return "UPDATE full_items SET note = \(text) WHERE id % 4 = \(number % 4)"
        case 11:
            return "INSERT INTO days SELECT '2026-0\(1 + number % 9)-05', \(number) ON CONFLICT DO NOTHING; "
                + "UPDATE days SET day = day + 150 WHERE n = \(number) AND day < '2026-06-01'"
        case 12: return number % 8 == 0 ? "TRUNCATE lists, items" : "UPDATE lists SET name = NULL WHERE id = \(number)"
        default: return number % 10 == 0 ? "TRUNCATE lists RESTART IDENTITY CASCADE" : "DELETE FROM items WHERE n > 20"
        }
    }

    func write(_ transactions: Int, _ random: inout SeededRandom) throws {
        try source.database.run("SELECT setseed(0.\(random.next() % 1000))")
        for _ in 0..<transactions {
            let count = random.pick([1, 1, 2, 5])
            let statements = (0..<count).map { _ in statement(&random) }
            let end = Int.random(in: 0..<10, using: &random) == 0 ? "ROLLBACK" : "COMMIT"
            // If PostgreSQL refuses a transaction, it changes nothing, which is a valid case, too.
            if (try? source.database.run("BEGIN; \(statements.joined(separator: "; ")); \(end)")) == nil {
                try source.database.run("ROLLBACK")
            }
        }
    }

    var log: HistoryLog {
        get throws { HistoryLog(directory: try DiskDirectory(source.logDirectory), masking: .nothing) }
    }

    /// Replays the log from `from` on, until its end or until `surroundings` stops the player.
    func replay(
        from: HistoryBound = .oldest, _ settings: Player.Settings, _ surroundings: Player.Surroundings = .init()
    ) throws -> ReplayReport {
        let (log, request) = (try log, ReplayRequest(HistoryQuery(from: from)))
        let target = DatabaseTarget(try Connection(staging.database.target), request)
        try target.withoutTriggers()
        let plan = try ReplayPlan(request, of: log)
        #expect(try target.obstacles(plan) == [])
        var player = try Player(request, plan, of: log, to: target, settings, surroundings)
        try player.play()
        return player.report
    }
}

/// Parts of a change that are the same in every database.
private struct SameChange: Equatable, CustomStringConvertible {
    var operation: String
    var new: [String: String?]
    var old: [String: String?]

    init(_ change: LoggedChange) { (operation, new, old) = (change.operation, change.new, change.old) }

    var description: String { "\(operation) \(new) was \(old)" }
}

extension LoggedHistory {
    fileprivate var byTable: [String: [SameChange]] {
        Dictionary(grouping: changes.filter { $0.operation != "MESSAGE" }, by: \.table).mapValues {
            $0.map(SameChange.init)
        }
    }
}

extension EndToEnd {
    @Suite(.within(minutes: 10)) struct ReplayTests {
        private static var atOnce: Player.Settings {
            var settings = Player.Settings()
            settings.speed = .maximum
            return settings
        }

        @Test(arguments: seeds(2))
        func `a second hub's log has the same changes of each table, in the same order`(_ seed: Seed) throws {
            var random = SeededRandom(seed: seed)
            let stage = try ReplayStage()
            try stage.write(60, &random)
            let original = try stage.source.caughtUp()
            // The replay is interrupted at a random moment, and continues from there.
            var left = Int.random(in: 20..<200, using: &random)
            var surroundings = Player.Surroundings()
            surroundings.isInterrupted = {
                left -= 1
                return left < 0
            }
            var report = try stage.replay(Self.atOnce, surroundings)
            #expect(report.conflicts == [] && report.end == .interrupted)
            report = try stage.replay(from: .offset(try #require(report.next)), Self.atOnce)
            #expect(report.conflicts == [] && report.end == .whole && report.transactions > 0)

            let replayed = try stage.staging.caughtUp()
            let (before, after) = (original.byTable, replayed.byTable)
            #expect(before.count >= 5 && before.keys == after.keys)
            for (table, changes) in before {
                let other = after[table] ?? []
                let place = zip(changes, other).enumerated().first { $0.element.0 != $0.element.1 }?.offset
                #expect(
                    place == nil && changes.count == other.count,
                    "\(table): \(String("\(place.map { "\(changes[$0]) / \(other[$0])" } ?? "")".prefix(600)))")
            }
            // The replay makes the same transactions, and each contains the mark of its original.
            let marks = replayed.changes.filter { $0.table == ReplayMark.prefix }
            let rows = original.changes.filter { $0.operation != "MESSAGE" }
            #expect(marks.count == Set(rows.map(\.commitLSN)).count)
            #expect(Set(replayed.changes.map(\.xid)).count == marks.count)
            let first = try #require(rows.first)
            #expect(
                (marks.first?.new["content"] ?? "")?.hasPrefix(
                    #"{"offset":\#(first.offset),"epoch":"\#(Hex.text(first.epoch))","lsn":"\#(first.commitLSN)","xid":\#(first.xid),"time":""#
                )
                    == true)
        }

        @Test(arguments: seeds(1))
        func `a seed gives another database the same rows`(_ seed: Seed) throws {
            var random = SeededRandom(seed: seed)
            let stage = try ReplayStage()
            try stage.write(80, &random)
            try stage.source.caughtUp()
            var script = ""
            let report = try SeedScript(stage.log, HistoryQuery(), SeedScript.Settings()).write { script += $0 + "\n" }
            #expect(report.rows > 0 && report.leftOut == [TableName(schema: "public", name: "Odd \"1\" one")])
            let copy = try TestDatabase()
            try copy.run(ReplayStage.tables)
            try copy.run(script)
            for table in ["lists", "items", "full_items", "days_1", "days_2"] {
                let rows = "SELECT t::text FROM \(table) t ORDER BY 1"
                #expect(
                    try copy.run(rows).values == stage.source.database.run(rows).values, "\(table)")
            }
        }

        @Test func `a transaction that does not fit is there not at all`() throws {
            let stage = try ReplayStage()
            try stage.source.database.run("INSERT INTO full_items VALUES (1, 'a')")
            try stage.source.database.run(
                "BEGIN; INSERT INTO full_items VALUES (2, 'b'); UPDATE full_items SET body = 'c' WHERE id = 1; COMMIT")
            try stage.source.database.run("INSERT INTO full_items VALUES (3, 'd')")
            let original = try stage.source.caughtUp()
            try stage.staging.database.run("INSERT INTO full_items VALUES (2, 'mine')")
            func rows() throws -> [[String?]] {
                try stage.staging.database.run("SELECT id, body FROM full_items ORDER BY id").values
            }
            var report = try stage.replay(Self.atOnce)
            let second = original.changes[1].offset
            #expect(report.end == .conflict && report.next == second && report.transactions == 1)
            #expect(
                "\(try #require(report.conflicts.first))"
                    == "@\(second) public.full_items: duplicate key value violates unique constraint \"full_items_pkey\" (SQLSTATE 23505)"
            )
            #expect(try rows() == [["1", "a"], ["2", "mine"]])
            var settings = Self.atOnce
            settings.skipsConflicts = true
            report = try stage.replay(from: .offset(second), settings)
            #expect(report.end == .whole && report.transactions == 1 && report.skipped == 1)
            #expect(try rows() == [["1", "a"], ["2", "mine"], ["3", "d"]])
        }

        @Test func `the source is told from others, and who follows is seen`() throws {
            let stage = try ReplayStage()
            try stage.source.database.run("INSERT INTO full_items VALUES (1, 'a')")
            try stage.source.caughtUp()
            let (source, staging) = (stage.source.database, stage.staging.database)
            func doubts(_ database: TestDatabase, source: String?) throws -> [TargetIdentity.Doubt] {
                try TargetIdentity(database.connection, against: stage.log, sourceDatabase: source).doubts
            }
            // The result does not depend on the name that the caller passes for the source.
            for name in [nil, source.name, staging.name] {
                #expect(try doubts(source, source: name) == [.source, .followed(slots: [source.slot])])
            }
            #expect(try doubts(staging, source: source.name) == [.followed(slots: [staging.slot])])
            #expect(try doubts(staging, source: nil) == [.sourceServer, .followed(slots: [staging.slot])])
            let fresh = try doubts(TestDatabase(), source: source.name)
            let elsewhere = try TestCluster.lend { try doubts(TestDatabase(on: $0), source: nil) }
            #expect(fresh == [] && elsewhere == [])
        }

        @Test func `who steps or pauses is asked, and time stands still meanwhile`() throws {
            let stage = try ReplayStage()
            for id in 1...4 { try stage.source.database.run("INSERT INTO full_items VALUES (\(id), 'row \(id)')") }
            let offsets = try stage.source.caughtUp().changes.map(\.offset)
            var asked: [UInt64] = []
            var surroundings = Player.Surroundings()
            surroundings.ask = { mark, isStep in
                asked.append(mark.offset)
                return mark.offset == offsets[3] ? .stop : .next
            }
            var settings = Self.atOnce
            settings.steps = true
            var report = try stage.replay(settings, surroundings)
            #expect(asked == offsets && report.end == .stopped && report.next == offsets[3])
            asked = []
            try stage.staging.database.run("TRUNCATE full_items")
            settings.steps = false
            settings.pause = [try #require(RowCondition("body=row 3"))]
            report = try stage.replay(settings, surroundings)
            #expect(asked == [offsets[2]] && report.end == .whole && report.transactions == 4)
        }
    }
}
