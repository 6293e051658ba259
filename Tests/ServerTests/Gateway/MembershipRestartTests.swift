import Diagnostics
import Foundation
import Ingest
import Postgres
import Projects
import Replication
import System
import TestSupport
import Testing

@testable import Server

extension GatewayHistories {
    /// Tests of clients that return after the hub restarted. They receive rows by the memberships at each row's commit,
    /// or a notice that the hub cannot determine them.
    @Suite(.serialized) struct MembershipRestartTests {
        private static let tables = """
            CREATE TABLE notes (id int PRIMARY KEY, team int);
            CREATE TABLE fences (id serial PRIMARY KEY);
            CREATE TABLE members (team int, person uuid, PRIMARY KEY (team, person));
            ALTER TABLE notes REPLICA IDENTITY FULL; ALTER TABLE members REPLICA IDENTITY FULL;
            ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
            CREATE POLICY team ON notes FOR SELECT USING (
                team IN (SELECT m.team FROM members m WHERE m.person = auth.uid()));
            GRANT SELECT ON notes, members, fences TO READER;
            """

        /// Publication that has the table of members.
        enum Place: CaseIterable {
            case own, clients
        }

        private func stage(_ place: Place = .own) throws -> GatewayStage {
            let stage = try GatewayStage(
                Self.tables,
                publication: place == .own ? "FOR TABLE notes, fences" : "FOR TABLE notes, fences, members",
                followed: place == .own ? "members" : nil)
            #expect(eventually { stage.hub.follows("members") })
            return stage
        }

        private func make(_ user: Int) -> String {
            "DELETE FROM members; INSERT INTO members VALUES (1, '\(GatewayStage.user(user))');"
        }

        private func position(_ user: Int, _ stage: GatewayStage) throws -> String {
            let caller = try stage.caller()
            let wish = #","broadcast":{"tidewire":{"snapshot":true}}"#
            try caller.subscribe("realtime:a", Self.bindings, token: stage.token(of: user), more: wish)
            return try #require(try caller.first { $0.payload["position"] is String }.payload["position"] as? String)
        }

        private static let bindings = [binding("notes"), binding("fences")]

        /// Returns the messages that a user received after it resumed at a position, and if the hub told it of a loss.
        private func back(_ user: Int, at position: String, _ stage: GatewayStage) throws -> Heard {
            let fence = Int(try stage.run("INSERT INTO fences DEFAULT VALUES RETURNING id").first?[0] ?? "")
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", Self.bindings, token: stage.token(of: user),
                more: #","broadcast":{"tidewire":{"resume":"\#(position)"}}"#)
            var heard = Heard(ids: [])
            while true {
                let change = try caller.change()
                if change.data["table"] as? String == "notes" { heard.ids.append(change.id ?? 0) }
                if change.data["table"] as? String == "fences", change.id == fence { break }
            }
            // The hub sends the notice about the loss at the end of the turn.
            try caller.fence()
            heard.isTold = caller.takeUnheard().contains { $0.payload["code"] as? String == "ChangesMissing" }
            return heard
        }

        private struct Heard: Equatable {
            var ids: [Int]
            var isTold = false
        }

        /// Returns the messages that a user receives over HTTP from a position on, and if the hub told it of a loss.
        private func fed(_ user: Int, at position: String, _ stage: GatewayStage) throws -> Heard {
            var all = Heard(ids: [])
            var next: String? = position
            // On a busy machine, a page may end before the log's end, because its time limit has passed.
            while let position = next {
                let page = try page(user, at: position, stage)
                let events = page["events"] as? [[String: Any]] ?? []
                all.ids += events.compactMap {
                    (($0["data"] as? [String: Any])?["record"] as? [String: Any])?["id"] as? Int
                }
                let notes = page["system"] as? [[String: Any]] ?? []
                all.isTold = all.isTold || notes.contains { $0["code"] as? String == "ChangesMissing" }
                next = page["more"] as? Bool == true ? page["position"] as? String : nil
            }
            return all
        }

        private func page(_ user: Int, at position: String, _ stage: GatewayStage) throws -> [String: Any] {
            let caller = try Caller(port: stage.hub.port)
            defer { caller.hangUp() }
            try caller.send(
                "GET /realtime/v1/api/changes?table=notes&after=\(position)&apikey=\(stage.token(of: user)) HTTP/1.1\r\nHost: h\r\n\r\n"
            )
            let head = try caller.read(through: "\r\n\r\n")
            try #require(head.contains(" 200 ") && head.lowercased().contains("chunked"), "\(head)")
            var body = ""
            while let size = Int(try caller.read(through: "\r\n").dropLast(1), radix: 16), size > 0 {
                body += try caller.read(size)
                _ = try caller.read(through: "\r\n")
            }
            return try JSONSerialization.jsonObject(with: Data(body.utf8)) as? [String: Any] ?? [:]
        }

        /// Writes rows and swaps two users' memberships among them. Returns the messages that users 1 and 2 receive,
        /// over WebSocket and over HTTP, when they resume from before the rows.
        private func swap(
            _ stage: GatewayStage, isRestarted: Bool = true, _ meanwhile: (GatewayStage) throws -> Void = { _ in }
        ) throws -> (one: [Heard], two: [Heard]) {
            try stage.run(make(1))
            let (one, two) = (try position(1, stage), try position(2, stage))
            try stage.run("INSERT INTO notes VALUES (1, 1)")
            try stage.awaitLog()
            func rows() throws {
                try stage.run("INSERT INTO notes VALUES (2, 1)")
                try meanwhile(stage)
                try stage.run(make(2))
                try stage.run("INSERT INTO notes VALUES (3, 1)")
            }
            if isRestarted { try stage.restart { try rows() } } else { try rows() }
            return (
                [try back(1, at: one, stage), try fed(1, at: one, stage)],
                [try back(2, at: two, stage), try fed(2, at: two, stage)]
            )
        }

        @Test(arguments: Place.allCases)
        func `who was a member when a row was written hears of it after a restart, and nobody else`(place: Place) throws
        {
            let stage = try stage(place)
            let (one, two) = try swap(stage)
            #expect(one == [Heard(ids: [1, 2]), Heard(ids: [1, 2])])
            #expect(two == [Heard(ids: [3]), Heard(ids: [3])])
        }

        /// Event after which earlier memberships cannot be determined.
        enum Trouble: String, CaseIterable {
            case fileDamaged, fileLost, tableAway, publicationAway, publicationAltered, publicationRenamed
        }

        private func bring(_ trouble: Trouble, _ stage: GatewayStage) throws {
            let file = stage.dataDirectory + "/log/memberships"
            switch trouble {
            case .fileDamaged:
                let bytes = try Data(contentsOf: URL(fileURLWithPath: file))
                try Data(bytes.map { $0 == UInt8(ascii: "3") ? UInt8(ascii: "2") : $0 }).write(
                    to: URL(fileURLWithPath: file))
            case .fileLost: try FileManager.default.removeItem(atPath: file)
            case .tableAway:
                try stage.run("ALTER PUBLICATION tidewire_internal DROP TABLE members")
                try stage.run(make(3))
                try stage.run("ALTER PUBLICATION tidewire_internal ADD TABLE members")
            case .publicationAway:
                try stage.run(
                    "DROP PUBLICATION tidewire_internal; CREATE PUBLICATION tidewire_internal FOR TABLE members")
            case .publicationAltered:
                try stage.run("ALTER PUBLICATION tidewire_internal SET (publish = 'insert, update, delete, truncate')")
            case .publicationRenamed:
                try stage.run("ALTER PUBLICATION tidewire_internal RENAME TO other")
                try stage.run(make(3))
                try stage.run("ALTER PUBLICATION other RENAME TO tidewire_internal")
            }
        }

        /// Pairs of trouble and restart. The files of a running hub cannot be damaged.
        private static let cases = Trouble.allCases.flatMap { trouble in
            [true, false].filter { $0 || trouble != .fileDamaged && trouble != .fileLost }.map { (trouble, $0) }
        }

        @Test(arguments: cases)
        func `where that is not known any more nobody hears too much, and who may miss something is told`(
            trouble: Trouble, isRestarted: Bool
        ) throws {
            let stage = try stage()
            let (one, two) = try swap(stage, isRestarted: isRestarted) {
                try bring(trouble, $0)
                if !isRestarted { try stage.awaitCatalog() }
            }
            for (all, whole) in [(one, [1, 2]), (two, [3])] {
                for heard in all {
                    #expect(heard.ids == whole || heard.isTold && heard.ids.allSatisfy(whole.contains), "\(heard)")
                }
            }
            // The hub knows the members again as soon as it follows the table.
            #expect(eventually { stage.hub.follows("members") })
            let position = try position(2, stage)
            try stage.run("INSERT INTO notes VALUES (4, 1)")
            try stage.awaitLog()
            try stage.restart {
                try stage.run("INSERT INTO notes VALUES (5, 1)")
                try stage.run(make(1))
                try stage.run("INSERT INTO notes VALUES (6, 1)")
            }
            #expect(try back(2, at: position, stage) == Heard(ids: [4, 5]))
        }

        /// Checks a stream that stands for longer than the hub waits for a log that moves, as a cluster does without a
        /// feeder. PostgreSQL tells the present members meanwhile, and the log comes to them only later.
        @Test func `who comes back while nothing reaches the log hears of everything and is told of no loss`() throws {
            let stage = try stage()
            try stage.run(make(1))
            let (one, two) = (try position(1, stage), try position(2, stage))
            try stage.run("INSERT INTO notes VALUES (1, 1)")
            try stage.awaitLog()
            let ingest = try #require(stage.hub.director.main?.ingest)
            let patience = max(Limits.membershipUnwindPatience, Limits.bindingPatience)
            let end = Clock.monotonicNanoseconds() + (patience + .seconds(3)).wholeNanoseconds
            ingest.pause.begin(until: end)
            #expect(eventually { !ingest.status.isStreaming })
            try stage.run("INSERT INTO notes VALUES (2, 1)")
            try stage.run(make(2))
            try stage.run("INSERT INTO notes VALUES (3, 1)")
            #expect(try back(1, at: one, stage) == Heard(ids: [1, 2]))
            // The test is void if the pause ended before the clients came back.
            #expect(Clock.monotonicNanoseconds() > end)
            #expect(try back(2, at: two, stage) == Heard(ids: [3]))
        }

        // MARK: Histories

        private static let policies = [
            "team IN (SELECT m.team FROM members m WHERE m.person = auth.uid())",
            "EXISTS (SELECT FROM members m WHERE m.team = notes.team AND m.person = auth.uid())",
            "NOT EXISTS (SELECT FROM members m WHERE m.team = notes.team AND m.person = auth.uid())",
            "team = 3 OR team IN (SELECT m.team FROM members m WHERE m.person = auth.uid() AND m.team > 1)",
        ]
        private static let users = 1...3

        /// Returns the users that may see the row. Asks PostgreSQL just after the row's commit.
        private func seers(of id: Int, _ stage: GatewayStage) throws -> Set<Int> {
            try Set(
                Self.users.filter { user in
                    try stage.run(
                        "BEGIN; SET LOCAL ROLE READER; SELECT set_config('request.jwt.claims', '{\"sub\":\"\(GatewayStage.user(user))\"}', true)"
                    )
                    defer { _ = try? stage.run("COMMIT") }
                    return try !stage.run("SELECT id FROM notes WHERE id = \(id)").isEmpty
                })
        }

        private func membership(_ random: inout SeededRandom) -> String {
            let (team, user) = (Int.random(in: 1...3, using: &random), Int.random(in: Self.users, using: &random))
            let person = GatewayStage.user(user)
            return random.pick([
                "INSERT INTO members VALUES (\(team), '\(person)') ON CONFLICT DO NOTHING",
                "INSERT INTO members VALUES (\(team), '\(person)') ON CONFLICT DO NOTHING",
                "DELETE FROM members WHERE person = '\(person)'", "DELETE FROM members WHERE team = \(team)",
                "UPDATE members m SET team = \(team) WHERE person = '\(person)' AND NOT EXISTS (SELECT FROM members n WHERE n.team = \(team) AND n.person = m.person) AND m.team = (SELECT min(team) FROM members n WHERE n.person = m.person)",
            ])
        }

        /// Writes rows and memberships in turn, and restarts the hub between some of them. Users resume from any
        /// position that they once received. The expected result is PostgreSQL's answer after each row.
        @Test(arguments: seeds(4))
        func `whenever a hub is restarted, who comes back hears what PostgreSQL would have shown`(
            seed: Seed
        ) throws {
            var random = SeededRandom(seed: seed)
            let stage = try stage(seed.number % 2 == 0 ? .clients : .own)
            let policy = Self.policies[Int(seed.number % UInt64(Self.policies.count))]
            try stage.run("ALTER POLICY team ON notes USING (\(policy))")
            try stage.awaitCatalog()
            var rows: [(id: Int, seers: Set<Int>)] = []
            var positions: [(user: Int, position: String, rows: Int)] = []
            func write() throws {
                for _ in 0..<Int.random(in: 1...4, using: &random) {
                    for _ in 0..<Int.random(in: 0...2, using: &random) { try stage.run(membership(&random)) }
                    let id = rows.count + 1
                    try stage.run("INSERT INTO notes VALUES (\(id), \(Int.random(in: 1...3, using: &random)))")
                    rows.append((id, try seers(of: id, stage)))
                }
            }
            for round in 0..<4 {
                for user in Self.users where Bool.random(using: &random) || round == 0 {
                    positions.append((user, try position(user, stage), rows.count))
                }
                try write()
                try stage.restart { try write() }
                if Bool.random(using: &random) { try write() }
                for user in Self.users {
                    guard let (_, position, count) = positions.filter({ $0.user == user }).randomElement(using: &random)
                    else { continue }
                    let expected = Heard(ids: rows.dropFirst(count).filter { $0.seers.contains(user) }.map(\.id))
                    #expect(try back(user, at: position, stage) == expected, "\(seed), round \(round), user \(user)")
                    #expect(try fed(user, at: position, stage) == expected, "\(seed), round \(round), user \(user)")
                }
            }
        }
    }
}
