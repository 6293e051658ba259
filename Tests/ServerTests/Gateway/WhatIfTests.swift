import Bytes
import Catalog
import Change
import Explaining
import Foundation
import History
import Postgres
import System
import TestSupport
import Testing

@testable import Settings

/// Tests that compare the predicted effects of a proposed policy with the known results for each change, policy and
/// user.
@Suite(.inChain(minutes: 10), .serialized) struct WhatIfTests {
    private struct Row: Equatable {
        var id: Int
        var owner: Int
        var room: Int
    }

    /// Members of rooms at the commit of a change.
    private typealias Members = Set<[Int]>

    private struct Told {
        var row: Row
        var members: Members
    }

    /// Policy in SQL, with a function that computes its expected result.
    private struct Rule: Sendable {
        var sql: String
        var shows: @Sendable (Row, Int, Members) -> Bool
    }

    private static let rules = [
        Rule(sql: "owner = auth.uid()") { row, user, _ in row.owner == user },
        Rule(sql: "room IN (SELECT m.room FROM members m WHERE m.person = auth.uid())") { row, user, members in
            members.contains([row.room, user])
        },
        Rule(sql: "true") { _, _, _ in true },
        Rule(sql: "id % 2 = 0 OR owner = auth.uid()") { row, user, _ in row.id % 2 == 0 || row.owner == user },
        Rule(sql: "is_small(id)") { row, _, _ in row.id < 40 },
        Rule(sql: "is_mine(owner) AND room > 0") { row, user, _ in row.owner == user && row.room > 0 },
        Rule(sql: "in_room(room) AND id > 10") { row, user, members in
            members.contains([row.room, user]) && row.id > 10
        },
    ]

    private static let tables = """
        CREATE TABLE notes (id int PRIMARY KEY, owner uuid NOT NULL, room int NOT NULL);
        CREATE TABLE members (room int, person uuid, PRIMARY KEY (room, person));
        ALTER TABLE notes REPLICA IDENTITY FULL; ALTER TABLE members REPLICA IDENTITY FULL;
        GRANT SELECT ON notes, members TO READER;
        CREATE FUNCTION is_small(n int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN n < 40; END $$;
        CREATE FUNCTION is_mine(who uuid) RETURNS boolean LANGUAGE sql STABLE AS $$ SELECT who = auth.uid() $$;
        CREATE FUNCTION in_room(place int) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public
            AS $$ SELECT EXISTS (SELECT 1 FROM members m WHERE m.room = place AND m.person = auth.uid()) $$;
        ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
        CREATE POLICY shown ON notes FOR SELECT TO READER USING (RULE);
        """

    private static func stage(_ rule: Rule) throws -> GatewayStage {
        try GatewayStage(
            tables.replacing("RULE", with: rule.sql), publication: "FOR TABLE notes, members")
    }

    private static func answer(
        _ stage: GatewayStage, _ sql: String, users: Range<Int> = 0..<3, asking bindings: ProposedBindings? = nil
    ) throws -> WhatIfReport {
        let log = HistoryLog(directory: try DiskDirectory(stage.dataDirectory + "/log"), masking: .nothing)
        let settings = WhatIf.Settings(
            target: stage.database.target, publication: "supabase_realtime", deletesAreStrict: true)
        let holders = try users.map { user in
            try ExplainedHolder(claims: nil, role: stage.reader, subject: GatewayStage.user(user))
        }
        return try WhatIf(log, settings).answer(
            stage.names.filled(sql), for: holders, asking: bindings, in: log.window(from: nil, to: nil)
        ) { _, _ in }
    }

    /// Makes random changes, each in its own transaction or in one with a changed membership.
    private static func play(_ stage: GatewayStage, _ random: inout SeededRandom) throws -> [Told] {
        var (rows, members, told): ([Row], Members, [Told]) = ([], [], [])
        for step in 0..<90 {
            var sql: [String] = []
            var changed: [Row] = []
            if random.next() % 3 == 0 {
                let member = [Int(random.next() % 3), Int(random.next() % 3)]
                let person = GatewayStage.user(member[1])
                if members.remove(member) != nil {
                    sql.append("DELETE FROM members WHERE room = \(member[0]) AND person = '\(person)'")
                } else {
                    members.insert(member)
                    sql.append("INSERT INTO members VALUES (\(member[0]), '\(person)')")
                }
            }
            switch random.next() % 4 {
            case 0 where !rows.isEmpty:
                let place = Int(random.next() % UInt64(rows.count))
                changed.append(rows.remove(at: place))
                sql.append("DELETE FROM notes WHERE id = \(changed[0].id)")
            case 1 where !rows.isEmpty:
                let place = Int(random.next() % UInt64(rows.count))
                rows[place].owner = Int(random.next() % 3)
                rows[place].room = Int(random.next() % 3)
                changed.append(rows[place])
                let owner = GatewayStage.user(rows[place].owner)
                sql.append(
                    "UPDATE notes SET owner = '\(owner)', room = \(rows[place].room) WHERE id = \(rows[place].id)")
            default:
                let row = Row(id: step, owner: Int(random.next() % 3), room: Int(random.next() % 3))
                rows.append(row)
                changed.append(row)
                sql.append("INSERT INTO notes VALUES (\(row.id), '\(GatewayStage.user(row.owner))', \(row.room))")
            }
            if random.next() % 2 == 0 { sql.reverse() }
            try stage.run("BEGIN; \(sql.joined(separator: "; ")); COMMIT")
            told += changed.map { Told(row: $0, members: members) }
        }
        return told
    }

    @Test(arguments: seeds(3))
    func `gains and losses are those of each change, policy and user`(_ seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let present = rules.randomElement(using: &random) ?? Self.rules[0]
        let stage = try Self.stage(present)
        defer { stage.stop() }
        let told = try Self.play(stage, &random)
        try stage.awaitLog()
        for proposed in Self.rules {
            let report = try Self.answer(stage, "ALTER POLICY shown ON notes USING (\(proposed.sql))")
            for user in 0..<3 {
                let now = told.map { present.shows($0.row, user, $0.members) }
                let then = told.map { proposed.shows($0.row, user, $0.members) }
                let gains = zip(now, then).count { !$0 && $1 }
                let losses = zip(now, then).count { $0 && !$1 }
                let line = report.lines.first { $0.holder == user }
                #expect(
                    (line?.gains ?? 0, line?.losses ?? 0) == (gains, losses),
                    "user \(user), \(present.sql) → \(proposed.sql)")
                if line != nil { #expect(line?.before == now.count(where: \.self), "user \(user), \(proposed.sql)") }
            }
            #expect(report.unasked == 0)
        }
    }

    private var rules: [Rule] { Self.rules }

    /// Returns the reported causes of gains and losses, with the number of rows for each cause.
    private static func shifts(_ report: WhatIfReport, of user: Int) -> [String: Int] {
        let shifts = report.lines.filter { $0.holder == user && $0.table.name == "notes" }.flatMap(\.shifts)
        let words = { (ground: RulingReason) in
            if case .policies(let names) = ground { names.joined(separator: "+") } else { "\(ground)" }
        }
        return Dictionary(
            shifts.map { ("\($0.isGain ? "gain" : "loss") \(words($0.shownBy)) \(words($0.keptBy))", $0.rows) },
            uniquingKeysWith: +)
    }

    @Test(arguments: seeds(3))
    func `each gain and loss says which policies show the row, and what keeps it`(_ seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let stage = try Self.stage(Self.rules[0])
        defer { stage.stop() }
        let told = try Self.play(stage, &random)
        try stage.awaitLog()
        let more = rules.dropFirst().filter { $0.sql != "true" }.randomElement(using: &random) ?? rules[1]
        // The report names policies that PostgreSQL evaluates just like others. But PostgreSQL uses the current
        // memberships.
        let ids = more.sql.contains("room IN") || more.sql.contains("in_room") ? "id < 40" : "is_small(id)"
        let report = try Self.answer(
            stage,
            """
            CREATE POLICY more ON notes FOR SELECT TO READER USING (\(more.sql));
            CREATE POLICY rooms ON notes AS RESTRICTIVE FOR SELECT TO READER USING (room > 0);
            CREATE POLICY ids ON notes AS RESTRICTIVE FOR SELECT TO READER USING (\(ids));
            """)
        for user in 0..<3 {
            var expected: [String: Int] = [:]
            for change in told {
                let (own, other) = (change.row.owner == user, more.shows(change.row, user, change.members))
                let keeping = [change.row.id < 40 ? nil : "ids", change.row.room > 0 ? nil : "rooms"]
                    .compactMap(\.self)
                let isShown = (own || other) && keeping.isEmpty
                if own == isShown { continue }
                // Policies of each kind are in the order of their names.
                let gain = "gain more noPolicy"
                expected[own ? "loss shown \(keeping.joined(separator: "+"))" : gain, default: 0] += 1
            }
            #expect(Self.shifts(report, of: user) == expected, "user \(user), \(more.sql)")
            for line in report.lines {
                #expect(line.shifts.filter(\.isGain).reduce(0) { $0 + $1.rows } == line.gains)
                #expect(line.shifts.filter { !$0.isGain }.reduce(0) { $0 + $1.rows } == line.losses)
            }
        }
    }

    @Test func `what is no policy's doing is said to be none`() throws {
        let stage = try Self.stage(Self.rules[2])
        defer { stage.stop() }
        try stage.run("INSERT INTO notes VALUES (1, '\(GatewayStage.user(1))', 1); UPDATE notes SET room = 2")
        try stage.awaitLog()
        let found = { (sql: String) in try Self.shifts(Self.answer(stage, sql, users: 1..<2), of: 0) }
        #expect(try found("REVOKE SELECT ON notes FROM READER") == ["loss shown unreadable": 2])
        #expect(
            try found("ALTER PUBLICATION supabase_realtime DROP TABLE notes") == ["loss shown unpublished": 2])
        // A table that is no longer published makes a difference, although the table and its policies are unchanged.
        let narrowed = "ALTER PUBLICATION supabase_realtime SET (publish = 'insert')"
        #expect(try found(narrowed) == ["loss shown unpublished": 1])
        let words = try Self.answer(stage, narrowed, users: 1..<2).differences.tables
        #expect(
            words.map { "\($0.name.name): \($0.changes)" }
                == ["members", "notes"].map {
                    "\($0): [\"no longer of update, delete\"]"
                })
        #expect(try found("DROP POLICY shown ON notes") == ["loss shown noPolicy": 2])
        try stage.run("ALTER POLICY shown ON notes USING (false)")
        #expect(try found("ALTER TABLE notes DISABLE ROW LEVEL SECURITY") == ["gain open noPolicy": 2])
    }

    /// All rules except the last one, which reads memberships with its owner's rights. The hub does not have these
    /// rights. So it asks PostgreSQL, which answers with the memberships at the time of the question.
    private static let followed = rules.dropLast()

    /// SQL of a trigger that numbers each version, so that a number identifies a received change, and of a table that
    /// marks the end.
    private static let numbered = """
        CREATE SEQUENCE marks; ALTER TABLE notes ADD COLUMN v bigint;
        CREATE FUNCTION number() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.v := nextval('marks'); RETURN NEW; END $$;
        CREATE TRIGGER number BEFORE INSERT OR UPDATE ON notes FOR EACH ROW EXECUTE FUNCTION number();
        CREATE TABLE ends (id int PRIMARY KEY); GRANT SELECT ON ends TO READER;
        """

    /// Bindings for the notes, by user.
    private typealias Asked = [[AskedBinding]]

    private static let filters = [
        nil, "room=eq.1", "room=in.(0,2)", "id=gt.30", "and=(room.gte.1,id.lt.60)", "owner=eq.\(GatewayStage.user(1))",
        "room=eq.01", "or=(id.lt.20,room.eq.2)",
    ]

    private static func asked(_ random: inout SeededRandom) -> Asked {
        (0..<3).map { _ in
            (0..<Int.random(in: 1...2, using: &random)).map { _ in
                AskedBinding(
                    operations: random.pick([.all, .all, .insert, .update, .delete]), filter: random.pick(filters))
            }
        }
    }

    private static func request(_ asked: AskedBinding) -> String {
        let event =
            switch asked.operations {
            case .insert: "INSERT"
            case .update: "UPDATE"
            case .delete: "DELETE"
            default: "*"
            }
        return binding("notes", event, filter: asked.filter)
    }

    private typealias Delivery = (stage: GatewayStage, heard: [Set<String>])

    /// Returns the changes that three users receive under a rule, each change by its name. On a busy machine, the hub
    /// may tell a user that changes may be missing. Then nothing can be compared, so the function starts again with a
    /// new hub.
    private static func delivery(
        _ rule: Rule, _ seed: Seed, asking asked: Asked = Array(repeating: [AskedBinding()], count: 3)
    ) throws -> Delivery {
        var losses: [Message] = []
        for _ in 0..<3 {
            let (delivery, told) = try deliverOnce(rule, seed, asking: asked)
            if told.isEmpty { return delivery }
            losses += told
            delivery.stage.stop()
        }
        throw Incomparable(losses: losses.map { "\($0)" })
    }

    private struct Incomparable: Error {
        var losses: [String]
    }

    private static func deliverOnce(
        _ rule: Rule, _ seed: Seed, asking asked: Asked
    ) throws -> (Delivery, told: [Message]) {
        let stage = try GatewayStage(
            tables.replacing("RULE", with: rule.sql) + numbered, publication: "FOR TABLE notes, members, ends")
        let callers = try (0..<3).map { user in
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", asked[user].map(request) + [binding("ends")], token: stage.token(of: user))
            return caller
        }
        var random = SeededRandom(seed: seed)
        _ = try play(stage, &random)
        try stage.run("INSERT INTO ends VALUES (1)")
        var told: [Message] = []
        let heard = try callers.map { caller in
            _ = try caller.first { $0.event == "postgres_changes" && $0.data["table"] as? String == "ends" }
            let unheard = caller.takeUnheard()
            told += unheard.filter { $0.payload["code"] as? String == "ChangesMissing" }
            let changes = unheard.filter { $0.event == "postgres_changes" }
            let names = changes.map { "\($0.type ?? "") \($0.old["id"] ?? $0.id ?? -1) \($0.record["v"] ?? "")" }
            #expect(Set(names).count == names.count, "each is told once")
            return Set(names)
        }
        try stage.awaitLog()
        return ((stage, heard), told)
    }

    @Test(arguments: seeds(3))
    func `gains and losses are the difference between what two hubs deliver`(_ seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let two = Self.followed.shuffled(using: &random).prefix(2)
        let (present, proposed) = try (Self.delivery(two[0], seed), Self.delivery(two[1], seed))
        defer {
            present.stage.stop()
            proposed.stage.stop()
        }
        #expect(present.heard.contains { !$0.isEmpty } || proposed.heard.contains { !$0.isEmpty })
        let report = try Self.answer(present.stage, "ALTER POLICY shown ON notes USING (\(two[1].sql))")
        for user in 0..<3 {
            let line = report.lines.first { $0.holder == user && $0.table.name == "notes" }
            let (now, then) = (present.heard[user], proposed.heard[user])
            #expect(
                (line?.gains ?? 0, line?.losses ?? 0) == (then.subtracting(now).count, now.subtracting(then).count),
                "user \(user), \(two[0].sql) → \(two[1].sql)")
        }
    }

    @Test(arguments: seeds(4))
    func `with other subscriptions gains and losses are the difference between what two hubs deliver`(
        _ seed: Seed
    ) throws {
        var random = SeededRandom(seed: seed)
        let two = Self.followed.shuffled(using: &random).prefix(2)
        // Both sides have the same policies, or different ones.
        let rule = (two[0], seed.number % 2 == 0 ? two[1] : two[0])
        let now = Self.asked(&random)
        let then = Array(repeating: Self.asked(&random)[0], count: 3)
        let (present, proposed) = try (
            Self.delivery(rule.0, seed, asking: now), Self.delivery(rule.1, seed, asking: then)
        )
        defer {
            present.stage.stop()
            proposed.stage.stop()
        }
        let notes = TableName(schema: "public", name: "notes")
        let report = try Self.answer(
            present.stage, "ALTER POLICY shown ON notes USING (\(rule.1.sql))",
            asking: ProposedBindings(then: [notes: then[0]], now: now.map { [notes: $0] }))
        for user in 0..<3 {
            let line = report.lines.first { $0.holder == user && $0.table.name == "notes" }
            let (heard, would) = (present.heard[user], proposed.heard[user])
            #expect(
                (line?.gains ?? 0, line?.losses ?? 0) == (
                    would.subtracting(heard).count, heard.subtracting(would).count
                ),
                "user \(user), \(rule.0.sql) → \(rule.1.sql), \(now[user]) → \(then[0])")
            // If both policies are the same, the difference results from the bindings.
            for shift in line?.shifts ?? [] where rule.0.sql == rule.1.sql { #expect(shift.keptBy == .notAskedFor) }
        }
        #expect(report.lines.allSatisfy { $0.table == notes })
    }

    @Test func `what the hub would refuse is refused`() throws {
        let stage = try Self.stage(Self.rules[0])
        defer { stage.stop() }
        try stage.run("INSERT INTO notes VALUES (1, '\(GatewayStage.user(1))', 1)")
        try stage.awaitLog()
        let notes = TableName(schema: "public", name: "notes")
        for filter in ["nothing=eq.1", "room=eq.x", "room=like.1", "room"] {
            let bindings = ProposedBindings(
                then: [notes: [AskedBinding(filter: filter)]],
                now: Array(repeating: [notes: [AskedBinding()]], count: 3))
            #expect(throws: WhatIf.Failure.self, "\(filter)") { try Self.answer(stage, "-- nothing", asking: bindings) }
        }
        // If the hub would now refuse a former binding, the binding counts as missing.
        let bindings = ProposedBindings(
            then: [notes: [AskedBinding()]],
            now: Array(repeating: [notes: [AskedBinding(filter: "nothing=eq.1")]], count: 3))
        let report = try Self.answer(stage, "-- nothing", asking: bindings)
        #expect(report.gains == 1 && report.losses == 0)
        #expect(report.lines.first?.shifts.map(\.keptBy) == [.notAskedFor])
    }

    @Test func `nothing of it is applied, whatever it says`() throws {
        let stage = try Self.stage(Self.rules[0])
        defer { stage.stop() }
        try stage.run("INSERT INTO notes VALUES (1, '\(GatewayStage.user(1))', 1)")
        try stage.awaitLog()
        let policies = "SELECT string_agg(polname || pg_get_expr(polqual, polrelid), ',') FROM pg_policy"
        let before = try stage.database.value(policies)
        let report = try Self.answer(
            stage, "CREATE POLICY more ON notes FOR SELECT TO READER USING (id = 1); SET ROLE READER;")
        #expect(report.gains == 2 && report.losses == 0)
        #expect(report.differences.tables.map(\.changes) == [["policy \"more\" is new: (id = 1)"]])
        for sql in [
            "DROP POLICY shown ON notes; COMMIT", "COMMIT; DROP POLICY shown ON notes", "ROLLBACK; DROP TABLE notes",
            "END; DROP TABLE notes", "ALTER POLICY gone ON notes USING (true)", "nonsense",
            "DROP POLICY shown ON notes; ROLLBACK",
        ] {
            #expect(throws: WhatIf.Failure.self, "\(sql)") { try Self.answer(stage, sql) }
            #expect(try stage.database.value(policies) == before, "\(sql)")
        }
        #expect(
            try stage.database.value("SELECT count(*) FROM pg_locks WHERE relation = 'notes'::regclass AND NOT granted")
                == "0")
    }

    @Test func `grants, the publication and row security count too`() throws {
        let stage = try Self.stage(Self.rules[2])
        defer { stage.stop() }
        try stage.run("INSERT INTO notes SELECT n, '\(GatewayStage.user(1))', 1 FROM generate_series(1, 5) n")
        try stage.awaitLog()
        let words = { (sql: String) in
            let report = try Self.answer(stage, sql, users: 1..<2)
            return (report.differences.tables.flatMap(\.changes), report.gains, report.losses)
        }
        #expect(
            try words("REVOKE SELECT ON notes FROM READER") == (
                ["may not be read any more", "without columns id, owner, room"], 0, 5
            ))
        #expect(
            try words("REVOKE SELECT ON notes FROM READER; GRANT SELECT (id, room) ON notes TO READER")
                == (["without columns owner"], 0, 0))
        #expect(
            try words("ALTER PUBLICATION supabase_realtime DROP TABLE notes") == (["is not published any more"], 0, 5))
        #expect(
            try words("ALTER TABLE notes DISABLE ROW LEVEL SECURITY; DROP POLICY shown ON notes")
                == (["row security no longer applies", "policy \"shown\" is dropped"], 0, 0))
        #expect(try words("DROP POLICY shown ON notes") == (["policy \"shown\" is dropped"], 0, 5))
        #expect(try words("-- nothing\n") == ([], 0, 0))
        // The policy's text is the same, but the function that it calls has another result.
        try stage.run("ALTER POLICY shown ON notes USING (is_small(id))")
        #expect(
            try words(
                "CREATE OR REPLACE FUNCTION is_small(n int) RETURNS boolean LANGUAGE plpgsql AS $f$ BEGIN RETURN n < 3; END $f$"
            )
                == ([], 0, 3))
    }
}
