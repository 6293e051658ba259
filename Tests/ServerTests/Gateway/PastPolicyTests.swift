import Catalog
import Change
import Diagnostics
import EventLog
import Explaining
import Foundation
import History
import System
import TestSupport
import Testing

@testable import Settings

/// Tests that compare the log's record of past policies with the changes that clients received.
@Suite(.inChain(minutes: 10), .serialized) struct PastPolicyTests {
    private static let tables = """
        CREATE TABLE notes (id int PRIMARY KEY, owner uuid NOT NULL, room int NOT NULL);
        CREATE TABLE members (room int, person uuid, PRIMARY KEY (room, person));
        ALTER TABLE notes REPLICA IDENTITY FULL; ALTER TABLE members REPLICA IDENTITY FULL;
        CREATE TABLE ends (id int PRIMARY KEY);
        GRANT SELECT ON notes, members, ends TO READER;
        CREATE FUNCTION is_mine(who uuid) RETURNS boolean LANGUAGE sql STABLE AS $$ SELECT who = auth.uid() $$;
        ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
        CREATE POLICY shown ON notes FOR SELECT TO READER USING (owner = auth.uid());
        """

    private static let alterations = [
        "ALTER POLICY shown ON notes USING (true)",
        "ALTER POLICY shown ON notes USING (owner = auth.uid())",
        "ALTER POLICY shown ON notes USING (id % 2 = 0 OR is_mine(owner))",
        "ALTER POLICY shown ON notes USING (room IN (SELECT m.room FROM members m WHERE m.person = auth.uid()))",
        "ALTER POLICY shown ON notes USING (is_mine(owner) AND room > 0)",
        "CREATE OR REPLACE FUNCTION is_mine(who uuid) RETURNS boolean LANGUAGE sql STABLE AS $$ SELECT who = auth.uid() $$",
        "CREATE OR REPLACE FUNCTION is_mine(who uuid) RETURNS boolean LANGUAGE sql STABLE AS $$ SELECT who <> auth.uid() $$",
        "ALTER TABLE notes DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE notes ENABLE ROW LEVEL SECURITY",
        "DROP POLICY IF EXISTS more ON notes",
        "CREATE POLICY more ON notes AS RESTRICTIVE FOR SELECT TO READER USING (room < 2)",
    ]

    private static func log(_ stage: GatewayStage) throws -> HistoryLog {
        HistoryLog(directory: try DiskDirectory(stage.dataDirectory + "/log"), masking: .nothing)
    }

    private static func records(_ stage: GatewayStage) throws -> Int {
        var reader = try EventLogReader(directory: log(stage).directory)
        var count = 0
        while try reader.next() { if reader.entry.kind == .catalogRecord { count += 1 } }
        return count
    }

    /// Returns two offsets for each catalog record: the first at which it may apply, and the first at which it
    /// certainly applies.
    private static func spans(_ stage: GatewayStage) throws -> [String] {
        var reader = try EventLogReader(directory: log(stage).directory)
        var spans: [String] = []
        while try reader.next() {
            guard reader.entry.kind == .catalogRecord else { continue }
            spans += try CatalogRecordCodec.decode(reader.payload).map { "\($0.unknownFrom)…\($0.since)" }
        }
        return spans
    }

    /// Runs the SQL, and waits until the hub uses the new catalog and the log has its record.
    private static func alter(_ stage: GatewayStage, _ sql: String) throws {
        try stage.run(sql)
        try stage.awaitCatalog()
        #expect(eventually { stage.catalogIsNoted }, "\(sql)")
    }

    private static func changes(of log: HistoryLog) throws -> [History.RecordedChange] {
        var found: [History.RecordedChange] = []
        var reader = try HistoryReader(log, HistoryQuery(from: nil, to: nil))
        while let item = try reader.next() {
            if case .change(let change) = item, change.relation?.relation.name == "notes" { found.append(change) }
        }
        return found
    }

    /// Waits for a catalog record. It may arrive seconds after the mark that policies may have changed.
    private static func awaitRecord(of log: HistoryLog) throws {
        let last = try #require(try changes(of: log).last)
        #expect(try eventually { try PastCatalogs.record(of: log, at: last.offset) != nil })
    }

    /// Returns an offset for which the log has a catalog record. On a busy machine, a hub that starts may read its
    /// catalog twice, seconds apart.
    private static func settle(_ stage: GatewayStage) throws -> UInt64 {
        var (settled, trial): (UInt64?, Int) = (nil, 0)
        #expect(
            try eventually {
                trial += 1
                try stage.run("INSERT INTO notes VALUES (\(1000 + trial), '\(GatewayStage.user(0))', 0)")
                try stage.awaitLog()
                let (log, last) = (try log(stage), try changes(of: log(stage)).last?.offset ?? 0)
                if try PastCatalogs.record(of: log, at: last) != nil { settled = last }
                return settled != nil
            })
        return try #require(settled)
    }

    @Test(arguments: seeds(2))
    func `what was decided is decided again as it was, without a database where the log suffices`(_ seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let stage = try GatewayStage(Self.tables, publication: "FOR TABLE notes, members, ends")
        defer { stage.stop() }
        let callers = try (0..<2).map { user in
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", [binding("notes", "INSERT"), binding("ends", "INSERT")], token: stage.token(of: user))
            return caller
        }
        let settled = try Self.settle(stage)
        var heard = callers.map { _ in Set<Int>() }
        // At this point, policies were evaluated on all earlier commits for both users.
        func hearAll(through end: Int) throws {
            try stage.run("INSERT INTO ends VALUES (\(end))")
            for (user, caller) in callers.enumerated() {
                #expect(
                    try eventually {
                        try caller.fence()
                        let told = caller.takeUnheard().filter { $0.event == "postgres_changes" }
                        heard[user].formUnion(told.compactMap(\.id))
                        return heard[user].contains(end)
                    })
                // One round trip is enough: the loop uses the new policy from its next turn on.
                try caller.fence()
            }
        }
        for step in 0..<40 {
            if step % 5 == 4, let change = Self.alterations.randomElement(using: &random) {
                let exists = try stage.database.value("SELECT count(*) FROM pg_policy WHERE polname = 'more'") == "1"
                // The hub may use the old or the new policies for changes that wait for PostgreSQL's answer while the
                // policies change.
                try hearAll(through: 90_000 + step)
                if !(exists && change.hasPrefix("CREATE POLICY")) { try Self.alter(stage, change) }
            }
            if random.next() % 4 == 0 {
                let (room, person) = (random.next() % 3, GatewayStage.user(Int(random.next() % 2)))
                try stage.run(
                    "INSERT INTO members VALUES (\(room), '\(person)') ON CONFLICT DO NOTHING")
            } else if random.next() % 6 == 0 {
                try stage.run("DELETE FROM members WHERE room = \(random.next() % 3)")
            }
            try stage.run(
                "INSERT INTO notes VALUES (\(step), '\(GatewayStage.user(Int(random.next() % 2)))', \(random.next() % 3))"
            )
            try stage.awaitLog()
            for caller in callers { try caller.fence() }
        }
        try hearAll(through: 99_999)
        let log = try Self.log(stage)
        try Self.awaitRecord(of: log)
        var (decided, undecided) = (0, 0)
        var unknown: [UInt64] = []
        var explainers: [UInt64: [Explainer]] = [:]
        for change in try Self.changes(of: log) {
            guard let record = try PastCatalogs.record(of: log, at: change.offset) else {
                if change.offset > settled { unknown.append(change.offset) }
                continue
            }
            let id = try #require(change.key.first?.value.plainText.flatMap { Int($0) })
            let known =
                try explainers[record.since]
                ?? [nil, stage.database.target].map { database in
                    var settings = Explainer.Settings(database: database, publication: "supabase_realtime")
                    (settings.past, settings.log) = (record, log)
                    return try Explainer(settings)
                }
            explainers[record.since] = known
            for (isOffline, explainer) in zip([true, false], known) {
                #expect(explainer.isOfThen)
                for user in 0..<2 {
                    let holder = try ExplainedHolder(
                        claims: nil, role: stage.reader, subject: GatewayStage.user(user))
                    let answer = try explainer.explain(Explainer.Question(change, to: holder))
                    if answer.isUndecided {
                        #expect(isOffline, "with a database nothing is left open: user \(user), row \(id)")
                        undecided += 1
                        continue
                    }
                    decided += 1
                    #expect(
                        answer.isTold == heard[user].contains(id),
                        "user \(user), row \(id), @\(change.offset), offline \(isOffline): \(answer.sentence)")
                }
            }
        }
        #expect(decided > 80 && heard.allSatisfy { !$0.isEmpty }, "\(decided) \(undecided)")
        let spans = try Self.spans(stage)
        #expect(unknown.isEmpty, "nothing was judged while the policies became others; \(spans)")
    }

    @Test func `roles that come and go on the server leave nothing unknown`() throws {
        let stage = try GatewayStage(Self.tables, publication: "FOR TABLE notes, members, ends")
        defer { stage.stop() }
        let caller = try stage.caller()
        try caller.subscribe("realtime:a", [binding("notes", "INSERT")], token: stage.token(of: 0))
        let (settled, version) = (try Self.settle(stage), stage.metrics.catalogVersion.value)
        let role = "passing_\(stage.reader)"
        for step in 0..<8 {
            try stage.run(step % 2 == 0 ? "CREATE ROLE \(role) REPLICATION" : "DROP ROLE \(role)")
            try stage.awaitCatalog()
            try stage.run("INSERT INTO notes VALUES (\(step), '\(GatewayStage.user(0))', 0)")
        }
        #expect(stage.metrics.catalogVersion.value >= version + 8, "each is a version of its own")
        var heard = Set<Int>()
        #expect(
            try eventually {
                try caller.fence()
                heard.formUnion(caller.takeUnheard().compactMap(\.id))
                return heard.contains(7)
            })
        // Policies made afterwards judge all of these changes.
        try Self.alter(stage, "ALTER POLICY shown ON notes USING (true)")
        let (log, notes) = (try Self.log(stage), try Self.changes(of: Self.log(stage)))
        #expect(notes.filter { $0.offset > settled }.count >= 8)
        try Self.awaitRecord(of: log)
        let spans = try Self.spans(stage)
        for note in notes where note.offset >= settled {
            let record = try PastCatalogs.record(of: log, at: note.offset)
            #expect(record != nil, "@\(note.offset); \(spans)")
        }
    }

    @Test func `what refers to what was is in the log's record of the catalog`() throws {
        let tables = Self.tables + "; ALTER TABLE notes ADD FOREIGN KEY (room, owner) REFERENCES members;"
        let stage = try GatewayStage(tables, publication: "FOR TABLE notes, members, ends")
        defer { stage.stop() }
        let caller = try stage.caller()
        try caller.subscribe("realtime:a", [binding("notes", "INSERT")], token: stage.token(of: 0))
        #expect(try eventually { try Self.records(stage) > 0 })
        let log = try Self.log(stage)
        let record = try #require(try PastCatalogs.record(of: log, at: .max - 1))
        let keys = try #require(ForeignKeys(of: record))
        #expect(
            keys.references.filter { $0.schema == "public" } == [
                ForeignKeys.Reference(
                    schema: "public", table: "notes", referencedSchema: "public", referencedTable: "members")
            ])
    }
}
