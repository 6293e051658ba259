import Change
import Diagnostics
import Embedded
import EventLog
import Explaining
import Foundation
import History
import System
import TestSupport
import Testing

@testable import Console
@testable import Server
@testable import Settings
@testable import tidewire

/// Tests that compare the answers of `tidewire who` with the changes that clients received.
@Suite(.inChain(minutes: 15), .serialized) struct WhoTests {
    private static let tables = """
        CREATE TABLE notes (id int PRIMARY KEY, owner uuid NOT NULL, room int NOT NULL, v int NOT NULL);
        CREATE TABLE members (room int, person uuid, PRIMARY KEY (room, person));
        CREATE TABLE ends (id int PRIMARY KEY);
        ALTER TABLE notes REPLICA IDENTITY FULL; ALTER TABLE members REPLICA IDENTITY FULL;
        GRANT SELECT ON notes, members, ends TO READER, OUTSIDER;
        CREATE FUNCTION is_mine(who uuid) RETURNS boolean LANGUAGE sql STABLE AS $$ SELECT who = auth.uid() $$;
        ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
        CREATE POLICY shown ON notes FOR SELECT TO READER, OUTSIDER USING (owner = auth.uid());
        """

    fileprivate static let policies = [
        "owner = auth.uid()", "true", "id % 2 = 0 OR is_mine(owner)", "is_mine(owner) AND room > 0",
        "room IN (SELECT m.room FROM members m WHERE m.person = auth.uid())", "false",
        "room = (auth.jwt() -> 'app_metadata' ->> 'room')::int",
        "EXISTS (SELECT FROM members m WHERE m.room = notes.room AND m.person = auth.uid()) OR owner = auth.uid()",
    ]

    fileprivate static let filters = [nil, nil, "room=eq.1", "room=in.(0,2)", "id=gt.20", "v=lt.60"]

    /// One channel of a client, from its join to its end, with the changes that it received.
    private final class Stay {
        let caller: Caller
        let user: Int
        let role: String
        let request: String
        let topic: String
        private(set) var ref = ""
        private(set) var position: String?
        private(set) var heard: [String] = []
        var isThere = true

        init(_ caller: Caller, user: Int, role: String, request: String, topic: String) {
            (self.caller, self.user, self.role, self.request, self.topic) = (caller, user, role, request, topic)
        }

        func join(_ token: String, from position: String? = nil) throws {
            let resume = position.map { #","resume":"\#($0)""# } ?? ""
            ref = try caller.push(
                topic, "phx_join",
                Caller.join(
                    [request, binding("ends", "INSERT")], token: token,
                    more: #","tidewire":{"position":true\#(resume)}"#))
            let reply = try caller.first { $0.event == "phx_reply" && $0.ref == ref }
            let standing = (reply.payload["response"] as? [String: Any])?["tidewire"] as? [String: Any]
            self.position = standing?["position"] as? String
            guard reply.status == "ok", self.position != nil else { throw Unexpected(message: "\(reply)") }
            _ = try caller.first { $0.topic == topic && $0.isSubscription }
        }

        func leave() throws {
            isThere = false
            try caller.push(topic, "phx_leave", "{}", joinRef: ref)
            try caller.fence()
            take()
        }

        func lose() {
            isThere = false
            caller.fallSilent()
            take()
        }

        /// Waits for the final row, which every client sees.
        func awaitEnd() throws {
            _ = try caller.first { $0.event == "postgres_changes" && $0.data["table"] as? String == "ends" }
        }

        private func take() {
            for message in caller.takeUnheard() where message.event == "postgres_changes" {
                if let place = message.payload["position"] as? String { position = place }
                guard message.data["table"] as? String == "notes" else { continue }
                heard.append(
                    "\(message.type ?? "") \(message.old["id"] ?? message.id ?? -1) \(message.record["v"] ?? "")")
            }
        }
    }

    /// Random changes of rows, memberships and policies, with clients that join, leave, lose their connections and
    /// return.
    private final class Play {
        let stage: GatewayStage
        var random: SeededRandom
        private var rows: [Int: Int] = [:]
        private(set) var stays: [Stay] = []
        private var lost: [Stay] = []
        private var step = 0

        init(_ stage: GatewayStage, _ seed: Seed) {
            self.stage = stage
            random = SeededRandom(seed: seed)
        }

        func run(_ steps: Int) throws {
            for _ in 0..<5 {
                step += 1
                try join()
            }
            #expect(try eventually { try records() > 0 })
            for _ in 0..<steps {
                step += 1
                switch Int.random(in: 0..<20, using: &random) {
                case 0..<3 where stays.count(where: \.isThere) < 8: try join()
                case 3:
                    try stays.filter(\.isThere).randomElement(using: &random)?.leave()
                case 4:
                    guard let losing = stays.filter(\.isThere).randomElement(using: &random) else { continue }
                    losing.lose()
                    lost.append(losing)
                case 5, 6: try comeBack()
                case 7: try alter()
                case 8, 9: try changeMembers()
                default: try changeRow()
                }
                // In the other cases, clients join and leave before the log has the earlier commits.
                if random.next() % 4 == 0 { try stage.awaitLog() }
            }
            try stage.run("INSERT INTO ends VALUES (1)")
            for stay in stays where stay.isThere {
                try stay.awaitEnd()
                try stay.leave()
            }
        }

        /// Changes a policy. In most cases, the policy stays in force long enough to be recorded.
        private func alter() throws {
            let (version, before) = (stage.metrics.catalogVersion.value, try records())
            try stage.run("ALTER POLICY shown ON notes USING (\(random.pick(policies)))")
            guard Int.random(in: 0..<4, using: &random) > 0 else { return }
            try stage.awaitCatalog()
            guard stage.metrics.catalogVersion.value != version else { return }
            #expect(try eventually { try records() > before })
        }

        /// Returns the number of catalog records in the log.
        func records() throws -> Int {
            var reader = try EventLogReader(directory: DiskDirectory(stage.dataDirectory + "/log"))
            var count = 0
            while try reader.next() { if reader.entry.kind == .catalogRecord { count += 1 } }
            return count
        }

        private func token(of stay: Stay) -> String {
            let user = stay.user
            return stage.token(of: user, #","app_metadata":{"room":"\#(user)"}"#, role: stay.role)
        }

        private func join() throws {
            let request = binding(
                "notes", random.pick(["*", "*", "INSERT", "UPDATE", "DELETE"]), filter: random.pick(filters))
            // The hub records the rights of another role only after a client of that role has been connected for a
            // moment.
            let role = Int.random(in: 0..<5, using: &random) == 0 ? stage.outsider : stage.reader
            let stay = Stay(
                try stage.caller(), user: Int.random(in: 0..<3, using: &random), role: role, request: request,
                topic: "realtime:t\(step)")
            try stay.join(token(of: stay))
            stays.append(stay)
            // These changes are made before the hub records the role's rights.
            for _ in 0..<(role == stage.outsider ? 3 : 0) {
                step += 1
                try changeRow()
            }
        }

        private func comeBack() throws {
            guard !lost.isEmpty else { return }
            let before = lost.remove(at: Int.random(in: 0..<lost.count, using: &random))
            let stay = Stay(
                try stage.caller(), user: before.user, role: before.role, request: before.request,
                topic: "realtime:t\(step)")
            try stay.join(token(of: stay), from: before.position)
            stays.append(stay)
        }

        private func changeMembers() throws {
            let (room, person) = (
                Int.random(in: 0..<3, using: &random), GatewayStage.user(Int.random(in: 0..<3, using: &random))
            )
            try stage.run(
                Bool.random(using: &random)
                    ? "INSERT INTO members VALUES (\(room), '\(person)') ON CONFLICT DO NOTHING"
                    : "DELETE FROM members WHERE room = \(room) AND person = '\(person)'")
        }

        private func changeRow() throws {
            let (owner, room) = (
                GatewayStage.user(Int.random(in: 0..<3, using: &random)), Int.random(in: 0..<3, using: &random)
            )
            switch Int.random(in: 0..<6, using: &random) {
            case 0 where !rows.isEmpty:
                guard let id = rows.keys.sorted().randomElement(using: &random) else { return }
                rows[id] = nil
                try stage.run("DELETE FROM notes WHERE id = \(id)")
            case 1, 2:
                guard let id = rows.keys.sorted().randomElement(using: &random) else { return }
                try stage.run(
                    "UPDATE notes SET owner = '\(owner)', room = \(room), v = \(step) WHERE id = \(id)")
            default:
                rows[step] = step
                try stage.run("INSERT INTO notes VALUES (\(step), '\(owner)', \(room), \(step))")
            }
        }
    }

    private static func ask(_ words: [String], _ stage: GatewayStage) throws -> [[String: Any]] {
        let path = stage.dataDirectory + "/log"
        let (output, errors) = try onThisThread {
            let recorder = Recorder()
            let terminal = Terminal(
                width: nil, surroundings: .only(),
                output: { (bytes) throws(OutputFailure) in recorder.output += bytes },
                errors: { (bytes) throws(OutputFailure) in recorder.errors += bytes })
            _ = await Program(commands: [WhoCommand(), WhyCommand(), TailCommand()]).run(
                words + ["--log", path, "--json"], terminal)
            return (recorder.output, recorder.errors)
        }
        #expect(errors.isEmpty, "\(words): \(String(decoding: errors, as: UTF8.self))")
        return try output.split(separator: UInt8(ascii: "\n")).map {
            try JSONSerialization.jsonObject(with: Data($0)) as? [String: Any] ?? [:]
        }
    }

    private final class Recorder {
        var output: [UInt8] = []
        var errors: [UInt8] = []
    }

    private static func name(of change: [String: Any]) -> String {
        let key = (change["key"] as? [String: Any])?["id"] as? Int ?? -1
        let version = (change["record"] as? [String: Any])?["v"].map { "\($0)" } ?? ""
        return "\(change["op"] ?? "") \(key) \(version)"
    }

    /// Returns the number of correct answers, and of "sent" among them. Each answer uses the database, or the log
    /// alone.
    private static func judge(
        _ answers: [[String: Any]], _ name: String, _ play: Play, isWhole: Bool
    ) -> (right: Int, sent: Int, recorded: Int, unknown: Int) {
        var (right, sent, recorded, unknown) = (0, 0, 0, 0)
        for stay in play.stays {
            let answer = answers.first { $0["topic"] as? String == stay.topic }
            let outcome = answer?["outcome"] as? String
            // A state of the catalog that lasted only a moment has no record, and the answer then says that. Recorded
            // deliveries do not depend on it.
            let isRecorded = answer?["basis"] as? String == "recorded"
            if !isRecorded, answer?["policies"] as? String ?? "then" != "then" { continue }
            // A few unknown results do no harm.
            if !isRecorded, outcome == "unknown" {
                unknown += 1
                continue
            }
            let isSent = ["sent", "received", "sent_later", "received_later"].contains(outcome)
            let count = stay.heard.count { $0 == name }
            #expect(
                count == (isSent ? 1 : 0),
                "\(name), \(stay.topic) of user \(stay.user), \(stay.request), \(isWhole): \(answer ?? [:])")
            #expect((answer?["sent_at"] is String) == (isRecorded && isSent), "\(answer ?? [:])")
            (right, sent) = (right + 1, sent + count)
            if isRecorded { recorded += 1 }
        }
        return (right, sent, recorded, unknown)
    }

    @Test(arguments: seeds(1), ["ranges", "full"])
    func `who was sent a change is who got it`(_ seed: Seed, _ scope: String) throws {
        let stage = try GatewayStage(
            Self.tables + SQLFile.extras.map(\.text).joined(separator: "\n"),
            publication: "FOR TABLE notes, members, ends", [(Setting(\.ledger), scope)])
        defer { stage.stop() }
        let play = Play(stage, seed)
        try play.run(70)
        try stage.awaitLog()
        let logins = ["--database-url", stage.logins.hubURL, "--policy-database-url", stage.logins.policyURL]
        var (right, alone) = ((right: 0, sent: 0), (right: 0, sent: 0))
        var (recorded, unknown) = (0, 0)
        let changes = try Self.ask(["tail", "--from", "oldest", "--table", "notes"], stage)
        let heard = Set(play.stays.flatMap(\.heard))
        let shuffled = changes.shuffled(using: &play.random)
        let told = shuffled.filter { heard.contains(Self.name(of: $0)) }
        let others = shuffled.filter { !heard.contains(Self.name(of: $0)) }
        for change in told.prefix(14) + others.prefix(10) {
            let (name, words) = (Self.name(of: change), ["who", "@\(change["offset"] as? Int ?? -1)"])
            let one = Self.judge(try Self.ask(words + logins, stage), name, play, isWhole: true)
            let other = Self.judge(try Self.ask(words, stage), name, play, isWhole: false)
            right = (right.right + one.right, right.sent + one.sent)
            alone = (alone.right + other.right, alone.sent + other.sent)
            recorded += one.recorded + other.recorded
            unknown += one.unknown
        }
        #expect(unknown * 4 < right.right, "\(unknown) of \(right.right)")
        #expect((recorded > right.sent) == (scope == "full"), "\(recorded)")
        #expect(right.sent > 1 && right.right > 50 && alone.sent > 1, "\(right) \(alone)")
    }

    /// Reconnects a client while a policy shows every row. The client reads what it missed so slowly that the policy is
    /// repaired before the end. So the hub never sends part of it.
    @Test(arguments: ["ranges", "full"]) func `who caught up slowly is not said to have got what he did not`(
        _ scope: String
    ) throws {
        let stage = try GatewayStage(
            Self.tables + SQLFile.extras.map(\.text).joined(separator: "\n") + ";ALTER TABLE notes ADD pad text",
            publication: "FOR TABLE notes, members, ends", [(Setting(\.ledger), scope)])
        defer { stage.stop() }
        func alter(_ policy: String) throws {
            try stage.run("ALTER POLICY shown ON notes USING (\(policy))")
            try stage.awaitCatalog()
            #expect(eventually { stage.catalogIsNoted })
        }
        try alter("true")
        let request = binding("notes")
        let first = Stay(try stage.caller(), user: 1, role: stage.reader, request: request, topic: "realtime:first")
        try first.join(stage.token(of: 1))
        // The log also has the rights of the client's role. Without them, the answer would be unknown.
        let log = HistoryLog(directory: try DiskDirectory(stage.dataDirectory + "/log"), masking: Masking())
        let isRecorded = eventually {
            (try? PastCatalogs.record(of: log, at: .max))?.roles.contains(stage.reader) ?? false
        }
        #expect(isRecorded)
        let heardOf = 4
        try stage.run(
            "INSERT INTO notes SELECT n, '\(GatewayStage.user(2))', 0, n, '' FROM generate_series(1, \(heardOf)) n")
        for _ in 0..<heardOf { _ = try first.caller.first { $0.event == "postgres_changes" } }
        first.lose()
        let count = 80
        for id in 1...count {
            try stage.run(
                "INSERT INTO notes VALUES (100 + \(id), '\(GatewayStage.user(2))', 0, \(id), repeat(md5('\(id)'), 12000))"
            )
        }
        try stage.awaitLog()
        let slow = try stage.caller(receiveBuffer: 4096)
        let stay = Stay(slow, user: 1, role: stage.reader, request: request, topic: "realtime:slow")
        try stay.join(stage.token(of: 1), from: first.position)
        try alter("false")
        try stage.run("INSERT INTO ends VALUES (1)")
        try stay.awaitEnd()
        try stay.leave()
        #expect(stay.heard.count > 1 && stay.heard.count < count, "\(stay.heard.count)")
        try stage.awaitLog()
        let logins = ["--database-url", stage.logins.hubURL, "--policy-database-url", stage.logins.policyURL]
        var known = 0
        let changes = try Self.ask(["tail", "--from", "oldest", "--table", "notes"], stage)
        for change in changes.dropFirst(heardOf) where (change["offset"] as? Int ?? 0) % 4 == 0 {
            let name = Self.name(of: change)
            let answers = try Self.ask(["who", "@\(change["offset"] as? Int ?? -1)"] + logins, stage)
            let answer = try #require(answers.first { $0["topic"] as? String == stay.topic })
            let outcome = answer["outcome"] as? String ?? ""
            if outcome == "unknown" { continue }
            known += 1
            let isSent = ["sent_later", "received_later"].contains(outcome)
            #expect(isSent == stay.heard.contains(name), "\(name): \(answer)")
        }
        #expect((known > 0) == (scope == "full"), "\(known)")
    }

    /// Checks that present memberships never answer for those of a change, after which their table was truncated: either
    /// the log shows the memberships that matter, or the answer is unknown.
    @Test func `memberships that were truncated since are not guessed`() throws {
        let stage = try GatewayStage(
            """
            CREATE TABLE members (team int, person uuid, PRIMARY KEY (team, person));
            CREATE TABLE notes (id int PRIMARY KEY, team int);
            ALTER TABLE notes REPLICA IDENTITY FULL; ALTER TABLE members REPLICA IDENTITY FULL;
            ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
            CREATE POLICY shown ON notes FOR SELECT USING (
                team IN (SELECT m.team FROM members m WHERE m.person = auth.uid()));
            GRANT SELECT ON notes, members TO READER;
            """ + SQLFile.extras.map(\.text).joined(separator: "\n"), publication: "FOR TABLE notes",
            followed: "members")
        defer { stage.stop() }
        let caller = try stage.caller()
        try caller.subscribe("realtime:a", [binding("notes")], token: stage.token(of: 1))
        #expect(eventually { stage.hub.follows("members") && stage.catalogIsNoted })
        try stage.run("INSERT INTO members VALUES (7, '\(GatewayStage.user(1))')")
        try stage.run("INSERT INTO notes VALUES (1, 7)")
        #expect(try caller.change().id == 1)
        let (second, third) = (GatewayStage.user(2), GatewayStage.user(3))
        try stage.run("BEGIN; TRUNCATE members; INSERT INTO members VALUES (7, '\(second)'), (8, '\(third)'); COMMIT")
        try stage.awaitLog()
        for (user, hub, words) in [
            (1, "true", "would have been told"), (2, "false", "was NOT told"),
            (3, "left to PostgreSQL", "only PostgreSQL can say whether"),
        ] {
            let answers = try Self.ask(
                [
                    "why", "--table", "notes", "--key", "id=1", "--role", stage.reader, "--sub",
                    GatewayStage.user(user),
                    "--database-url", stage.logins.hubURL, "--policy-database-url", stage.logins.policyURL,
                ], stage)
            let answer = try #require(answers.first)
            let combined = (answer["image"] as? [String: Any])?["combined"] as? [String: Any]
            let sentence = answer["sentence"] as? String ?? ""
            // The ledger knows that the first user got the change.
            let isSaid = sentence.contains(words) || user == 1 && sentence.contains("was told")
            #expect(combined?["hub"] as? String == hub && isSaid, "\(user): \(answer)")
            #expect(answer["told"] as? Bool == (user == 1))
        }
    }

    /// Checks that `why` uses the ledger: policies alone cannot show that a client was connected.
    @Test func `why says was told of those alone whom the ledger has`() throws {
        let stage = try GatewayStage(
            Self.tables + SQLFile.extras.map(\.text).joined(separator: "\n"),
            publication: "FOR TABLE notes, members, ends")
        defer { stage.stop() }
        try stage.run("ALTER POLICY shown ON notes USING (true)")
        try stage.awaitCatalog()
        let stays = try [1, 2].map { user in
            let stay = Stay(
                try stage.caller(), user: user, role: stage.reader,
                request: binding("notes", filter: user == 2 ? "room=eq.7" : nil), topic: "realtime:u\(user)")
            try stay.join(stage.token(of: user))
            return stay
        }
        #expect(eventually { stage.catalogIsNoted })
        // On a busy machine, the record of the altered policy may arrive only now.
        Thread.sleep(forTimeInterval: 2)
        try stage.run("INSERT INTO notes VALUES (1, '\(GatewayStage.user(1))', 0, 1); INSERT INTO ends VALUES (1)")
        for stay in stays {
            try stay.awaitEnd()
            try stay.leave()
        }
        #expect(stays.map(\.heard.count) == [1, 0])
        try stage.awaitLog()
        let logins = ["--database-url", stage.logins.hubURL, "--policy-database-url", stage.logins.policyURL]
        for (user, words, listening) in [
            (1, "was told: ", "listened"), (2, "would have been told: ", "otherwise"),
            (3, "would have been told: ", "absent"),
        ] {
            let answer = try #require(
                try Self.ask(
                    [
                        "why", "--table", "notes", "--key", "id=1", "--role", stage.reader, "--sub",
                        GatewayStage.user(user),
                    ]
                        + logins, stage
                ).first)
            #expect((answer["sentence"] as? String)?.contains(words) == true, "\(answer["sentence"] ?? "")")
            #expect(
                answer["listening"] as? String == listening && answer["told"] as? Bool == true, "\(user): \(answer)")
        }
    }
}

private let policies = WhoTests.policies
private let filters = WhoTests.filters
