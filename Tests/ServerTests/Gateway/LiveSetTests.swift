import Diagnostics
import Embedded
import Foundation
import Postgres
import System
import TestSupport
import Testing

@testable import Server

extension GatewayHistories {
    /// Tests of rows that come into a client's sight or leave it although they did not change. The oracle is SELECT as
    /// the client's user.
    @Suite(.serialized) struct LiveSetTests {
        private static let mine = "SELECT m.team FROM members m WHERE m.person = auth.uid()"
        /// Conditions of the policy on notes.
        private static let shapes = [
            "team IN (\(mine))", "owner = auth.uid() OR team IN (\(mine))",
            "EXISTS (SELECT 1 FROM members m WHERE m.person = auth.uid() AND m.team = notes.team)",
            "team IN (\(mine)) AND kind <> 'b'", "team = ANY (ARRAY(\(mine))) OR kind = 'c'",
        ]
        /// Conditions under which the hub cannot name the rows that come and go.
        private static let unnamed = [
            "NOT team IN (\(mine))", "EXISTS (\(mine))",
            "team IN (\(mine)) OR other IN (\(mine))", "(team IN (\(mine))) IS NOT TRUE",
        ]

        private static func tables(_ policy: String) -> String {
            """
            CREATE TABLE members (team int, person uuid, PRIMARY KEY (team, person));
            CREATE TABLE notes (id int PRIMARY KEY, team int, other int, owner uuid, kind text, version int DEFAULT 0);
            CREATE TABLE fences (id int PRIMARY KEY);
            ALTER TABLE notes REPLICA IDENTITY FULL; ALTER TABLE members REPLICA IDENTITY FULL;
            ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
            CREATE POLICY seen ON notes FOR SELECT USING (\(policy));
            GRANT SELECT ON notes, members, fences TO READER;
            """
        }

        private func stage(_ policy: String, on cluster: PrivateCluster? = nil) throws -> GatewayStage {
            let stage = try GatewayStage(
                Self.tables(policy) + SQLFile.extras.map(\.text).joined(separator: "\n"),
                publication: "FOR TABLE notes, fences", followed: "members", on: cluster)
            // Until the hub follows the memberships, PostgreSQL decides, and nobody notices when they change.
            let someone = try stage.caller()
            try someone.subscribe("realtime:a", [binding("notes")], token: stage.token(of: 9))
            #expect(eventually { stage.hub.follows("members") })
            try stage.awaitCatalog()
            someone.hangUp()
            return stage
        }

        // MARK: Histories

        @Test(arguments: shapes, newSeed())
        func `what a client holds is what its user may see, whatever becomes of memberships`(
            policy: String, seed: Seed
        ) throws {
            let ground = try LiveSetGround(stage(policy), seed: seed)
            let hasSeenSets = {
                ground.clients.contains { $0.entered > 0 } && ground.clients.contains { $0.all > 0 }
            }
            // While the clients joined, memberships changed faster than sets could always be read.
            try ground.play(rounds: 1)
            ground.clients.forEach { $0.forgetLosses() }
            try ground.play(rounds: 12)
            // A history may leave the memberships that matter as they were.
            for _ in 0..<50 where !hasSeenSets() { try ground.play(rounds: 1) }
            #expect(ground.clients.flatMap(\.losses) == [], "the rows could be named")
            #expect(hasSeenSets())
        }

        @Test(arguments: unnamed, newSeed())
        func `where the rows cannot be named, the client is told to fetch, or gets all`(
            policy: String, seed: Seed
        ) throws {
            let ground = try LiveSetGround(stage(policy), seed: seed)
            try ground.play(rounds: 6)
            // The history may have left each user with some membership, or with none.
            if policy.hasPrefix("EXISTS") { return }
            #expect(ground.clients.contains { $0.fetches > 0 } && ground.clients.contains { $0.all > 0 })
        }

        @Test(arguments: newSeed())
        func `another policy, right or token changes what a client holds, too`(seed: Seed) throws {
            let ground = try LiveSetGround(stage(Self.shapes[0]), seed: seed)
            let stage = ground.stage
            try ground.play(rounds: 2)
            for change in [
                "ALTER POLICY seen ON notes USING (kind = 'a')",
                "ALTER POLICY seen ON notes USING (\(Self.shapes[1]))",
                "CREATE POLICY more ON notes FOR SELECT USING (kind = 'c')", "DROP POLICY more ON notes",
                "ALTER TABLE notes DISABLE ROW LEVEL SECURITY", "ALTER TABLE notes ENABLE ROW LEVEL SECURITY",
            ] {
                try stage.run(change)
                #expect(eventually { stage.catalogIsNoted })
                try stage.awaitCatalog()
                try ground.play(rounds: 1)
            }
            for client in ground.clients { try client.becomes(client.user == 1 ? 2 : 1) }
            try ground.play(rounds: 1)
        }

        // MARK: Single cases

        @Test func `clients that ask for nothing hear nothing of it`() throws {
            let stage = try stage(Self.shapes[0])
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes"), binding("fences")], token: stage.token(of: 1))
            try stage.run("INSERT INTO notes VALUES (1, 7)")
            try stage.run("INSERT INTO members VALUES (7, '\(GatewayStage.user(1))'); INSERT INTO fences VALUES (1)")
            #expect(try caller.change().data["table"] as? String == "fences")
            #expect(caller.takeUnheard().allSatisfy { $0.event != "system" || $0.payload["code"] == nil })
        }

        @Test func `the set is named by the column's values as records have them, and its rows are marked`() throws {
            let stage = try stage(Self.shapes[0])
            try stage.run("INSERT INTO notes VALUES (1, 7), (2, 8)")
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", [binding("notes")], token: stage.token(of: 1), more: #","tidewire":{"moves":true}"#)
            try stage.run("INSERT INTO members VALUES (7, '\(GatewayStage.user(1))')")
            let changed = try caller.first { $0.payload["code"] as? String == "SetChanged" }
            let sets = changed.payload["sets"] as? [[String: Any]] ?? []
            #expect(changed.status == "ok" && sets.count == 1)
            #expect(sets.first?["schema"] as? String == "public" && sets.first?["table"] as? String == "notes")
            #expect(sets.first?["column"] as? String == "team" && sets.first?["values"] as? [Int] == [7])
            let row = try caller.change()
            #expect(row.id == 1 && row.type == "INSERT" && row.data["tidewire"] as? [String: String] == ["moved": "in"])
            let complete = try caller.first { $0.payload["code"] as? String == "SetComplete" }
            #expect(complete.payload["rows"] as? Int == 1)
        }

        @Test func `a column that the client does not get names no set`() throws {
            let stage = try stage(Self.shapes[0])
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", [binding("notes", select: ["id", "kind"])], token: stage.token(of: 1),
                more: #","tidewire":{"moves":true}"#)
            try stage.run("INSERT INTO members VALUES (7, '\(GatewayStage.user(1))')")
            let told = try caller.first { $0.payload["code"] as? String == "ChangesMissing" }
            #expect(told.status == "ok" && !told.description.contains("team"))
        }

        @Test func `rows by a membership that PostgreSQL does not show yet follow when it does`() throws {
            let cluster = try TestCluster.fresh()
            defer { cluster.stop() }
            let stage = try stage(Self.shapes[0], on: cluster)
            defer { stage.stop() }
            try stage.run("INSERT INTO notes VALUES (1, 7)")
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", [binding("notes")], token: stage.token(of: 1), more: #","tidewire":{"moves":true}"#)
            try stage.standbyStaysAway()
            let writing = try stage.writeInBackground("INSERT INTO members VALUES (7, '\(GatewayStage.user(1))')")
            #expect(try eventually { try stage.waitingForStandby() == 1 })
            try stage.awaitLog()
            BackgroundThread.rest(nanoseconds: 2_000_000_000)
            #expect(try stage.waitingForStandby() == 1 && stage.metrics.snapshotRows.value == 0)
            try stage.standbyIsBack()
            writing.join()
            _ = try caller.first { $0.payload["code"] as? String == "SetChanged" }
            #expect(try caller.change().id == 1)
            _ = try caller.first { $0.payload["code"] as? String == "SetComplete" }
            #expect(!caller.takeUnheard().contains { $0.payload["code"] as? String == "SetChanged" }, "said once")
        }

        @Test func `too many keys at once are fetched`() throws {
            let stage = try stage(Self.shapes[0])
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", [binding("notes")], token: stage.token(of: 1), more: #","tidewire":{"moves":true}"#)
            try stage.run(
                "INSERT INTO members SELECT n, '\(GatewayStage.user(1))' FROM generate_series(0, \(Limits.maximumTouchedKeys)) n"
            )
            _ = try caller.first { $0.payload["code"] as? String == "ChangesMissing" }
        }
    }
}

/// Clients of a table with memberships, random changes of both, and the comparison of what the clients hold with what
/// their users may see.
private final class LiveSetGround {
    let stage: GatewayStage
    private(set) var clients: [LiveSetClient] = []
    private var random: SeededRandom
    private var fences = 0

    init(_ stage: GatewayStage, seed: Seed) throws {
        self.stage = stage
        random = SeededRandom(seed: seed)
        for _ in 0..<8 { try stage.run(change()) }
        // Memberships change also while the clients join and get their first rows.
        let changes = (0..<60).map { _ in change() }
        let writing = try BackgroundThread("writer") { [target = stage.database.target] in
            guard let writer = try? Connection(target) else { return }
            for change in changes {
                _ = try? writer.execute(change)
                BackgroundThread.rest(nanoseconds: 10_000_000)
            }
        }
        defer { writing.join() }
        for user in 1...2 {
            for options in [#"{"moves":true}"#, #"{"moves":true,"snapshot":true}"#] {
                for filter in [nil, "kind=neq.c"] {
                    clients.append(try LiveSetClient(user: user, filter: filter, options, stage))
                }
            }
        }
    }

    /// Changes rows and memberships, and compares after each round.
    func play(rounds: Int) throws {
        for _ in 0..<rounds {
            let isTransaction = Bool.random(using: &random)
            var changes = (0..<Int.random(in: 1...6, using: &random)).map { _ in change() }
            if isTransaction { changes = ["BEGIN; " + changes.joined(separator: "; ") + "; COMMIT"] }
            for change in changes { try stage.run(change) }
            fences += 1
            try stage.run("INSERT INTO fences VALUES (\(fences))")
            for client in clients { try client.hear(upTo: fences) }
            for client in clients {
                let seen = try client.select()
                // Reports that rows must be fetched have a pause between them.
                while client.held != seen, client.fetches > 0 {
                    do { try client.hearOfLoss() } catch {
                        #expect(
                            client.held == seen,
                            "user \(client.user), \(client.options), after \(changes): \(client.heard)")
                        throw error
                    }
                }
                #expect(
                    client.held == seen, "user \(client.user), \(client.options), after \(changes): \(client.heard)")
            }
        }
    }

    private func change() -> String {
        let person = GatewayStage.user(Int.random(in: 1...2, using: &random))
        let (id, team) = (Int.random(in: 1...12, using: &random), Int.random(in: 1...4, using: &random))
        let (other, kind) = (Int.random(in: 1...4, using: &random), random.pick(["a", "b", "c"]))
        let owner = random.pick(["'\(GatewayStage.user(1))'", "'\(GatewayStage.user(2))'", "NULL"])
        switch Int.random(in: 0..<12, using: &random) {
        case 0..<3: return "INSERT INTO members VALUES (\(team), '\(person)') ON CONFLICT DO NOTHING"
        case 3..<5: return "DELETE FROM members WHERE team = \(team) AND person = '\(person)'"
        case 5:
            return """
                UPDATE members SET team = \(team) WHERE team = \(other) AND person = '\(person)'
                    AND NOT EXISTS (SELECT 1 FROM members WHERE team = \(team) AND person = '\(person)')
                """
        case 6: return "DELETE FROM notes WHERE id = \(id)"
        case 7: return "UPDATE notes SET team = \(team), version = version + 1 WHERE id = \(id)"
        case 8: return "UPDATE notes SET kind = '\(kind)', owner = \(owner), version = version + 1 WHERE id = \(id)"
        default:
            return """
                INSERT INTO notes VALUES (\(id), \(team), \(other), \(owner), '\(kind)')
                ON CONFLICT (id) DO UPDATE SET version = notes.version + 1
                """
        }
    }
}

extension SeededRandom {
    fileprivate mutating func pick(_ all: [String]) -> String { all[Int.random(in: all.indices, using: &self)] }
}

/// Client that keeps the rows of a table by what it is told, as the documentation describes it.
private final class LiveSetClient {
    private(set) var user: Int
    let options: String
    private let filter: String?
    private let stage: GatewayStage
    private let caller: Caller
    private let joinRef: String
    private var rows: [Int: [String: Any]] = [:]
    /// Rows of a snapshot that has not ended yet.
    private var staged: [Int: [String: Any]]?
    /// Numbers of rows that came into sight, of repeated snapshots, and of times that the client had to fetch.
    private(set) var (entered, all, fetches) = (0, 0, 0)
    /// Losses of which the client was told, and what it was told last, for the messages of failures.
    private(set) var losses: [String] = []
    private(set) var heard: [String] = []

    init(user: Int, filter: String?, _ options: String, _ stage: GatewayStage) throws {
        self.user = user
        self.filter = filter
        self.options = options
        self.stage = stage
        caller = try stage.caller()
        joinRef = try caller.subscribe(
            "realtime:a",
            [binding("notes", filter: filter).dropLast() + #","tidewire":\#(options)}"#, binding("fences")],
            token: stage.token(of: user))
        try fetch()
        if options.contains("snapshot") { staged = [:] }
    }

    /// Goes on with the token of another user.
    func becomes(_ other: Int) throws {
        user = other
        try caller.push(
            "realtime:a", "access_token", #"{"access_token":"\#(stage.token(of: other))"}"#, joinRef: joinRef)
        try caller.fence()
    }

    /// Rows that the client holds, as texts, by id.
    var held: [String] { rows.sorted { $0.key < $1.key }.map { Self.text($0.value) } }

    /// Returns the rows that the user may see, as texts, by id.
    func select() throws -> [String] { try read().sorted { $0.key < $1.key }.map { Self.text($0.value) } }

    private func fetch() throws { rows = try read() }

    private func read() throws -> [Int: [String: Any]] {
        let condition = filter == nil ? "true" : "kind <> 'c'"
        let answer = try stage.run(
            """
            BEGIN; SET LOCAL ROLE READER;
            SELECT set_config('request.jwt.claims', '{"sub":"\(GatewayStage.user(user))"}', true);
            SELECT coalesce(json_agg(n), '[]') FROM notes n WHERE \(condition)
            """)
        try stage.run("COMMIT")
        let json = try JSONSerialization.jsonObject(with: Data((answer.first?.first.flatMap(\.self) ?? "[]").utf8))
        let all = json as? [[String: Any]] ?? []
        return Dictionary(uniqueKeysWithValues: all.map { ($0["id"] as? Int ?? -1, $0) })
    }

    private static func text(_ row: [String: Any]) -> String {
        ["id", "team", "other", "owner", "kind", "version"].map { "\(row[$0] ?? "-")" }.joined(separator: " ")
    }

    /// Receives messages up to a fence.
    func hear(upTo fence: Int) throws {
        while true {
            let message = try caller.next()
            note(message)
            switch message.event {
            case "system": try take(system: message)
            case "postgres_changes":
                if message.data["table"] as? String == "fences" {
                    if message.id == fence { return }
                } else {
                    take(message)
                }
            default: break
            }
        }
    }

    func forgetLosses() { losses = [] }

    private func note(_ message: Message) {
        let row = message.type == "DELETE" ? message.old : message.record
        heard.append(
            "\(message.event) \(message.payload["code"] ?? message.type ?? "") \(message.data["table"] ?? "") \(Self.text(row)) \(message.data["tidewire"] ?? "") \(message.payload["position"] ?? "")"
        )
        if heard.count > 60 { heard.removeFirst() }
    }

    /// Receives messages up to a report that rows must be fetched.
    func hearOfLoss() throws {
        try take(system: caller.first { $0.payload["code"] as? String == "ChangesMissing" })
    }

    private func take(system message: Message) throws {
        switch message.payload["code"] as? String {
        case "SetChanged"?:
            guard let sets = message.payload["sets"] as? [[String: Any]] else {
                staged = [:]
                return
            }
            for set in sets {
                let values = (set["values"] as? [Any] ?? []).map { "\($0)" }
                let column = set["column"] as? String ?? ""
                rows = rows.filter { !values.contains("\($0.value[column] ?? "")") }
            }
        case "SnapshotComplete"?:
            guard let staged else { return }
            rows = staged
            self.staged = nil
            all += 1
        case "ChangesMissing"?:
            fetches += 1
            losses.append(message.said ?? "")
            try fetch()
        case "SnapshotFailed"?: Issue.record("\(message)")
        default: break
        }
    }

    private func take(_ message: Message) {
        let mark = message.data["tidewire"] as? [String: Any]
        if mark?["snapshot"] as? Bool == true {
            if let id = message.id { staged?[id] = message.record }
            return
        }
        if mark?["moved"] as? String == "in" { entered += 1 }
        switch message.type {
        case "DELETE": if let id = message.old["id"] as? Int { rows[id] = nil }
        default: if let id = message.id { rows[id] = message.record }
        }
    }
}
