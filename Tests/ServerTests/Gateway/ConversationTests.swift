import Diagnostics
import Postgres
import System
import TestSupport
import Testing

@testable import Server
@testable import Settings

extension Gateways {
    /// Tests of all messages that a client receives, from the first to the last.
    @Suite(.serialized) struct ConversationTests {
        private static let notes = """
            CREATE TABLE notes (id int PRIMARY KEY, kind text, body text);
            GRANT SELECT ON notes TO READER;
            """

        private func stage(_ sql: String = "", _ settings: [(Setting, String)] = []) throws -> GatewayStage {
            try GatewayStage(Self.notes + sql, publication: "FOR ALL TABLES", settings)
        }

        @Test func `joins, hears of changes and leaves`() throws {
            let stage = try stage()
            let caller = try stage.caller()
            let ref = try caller.subscribe("realtime:a", [binding("notes")])
            try stage.run("INSERT INTO notes VALUES (1, 'x', 'one'); UPDATE notes SET body = 'two'; DELETE FROM notes")
            #expect(try (0..<3).map { _ in try caller.change().type } == ["INSERT", "UPDATE", "DELETE"])
            let leave = try caller.push("realtime:a", "phx_leave", "{}", joinRef: ref)
            let reply = try caller.next()
            #expect(reply.event == "phx_reply" && reply.ref == leave && reply.joinRef == ref)
            let close = try caller.next()
            #expect(close.event == "phx_close" && close.ref == ref && close.joinRef == ref)
            try caller.subscribe("realtime:b", [binding("notes")])
            try stage.run("INSERT INTO notes VALUES (2, 'x', 'one')")
            #expect(try caller.change().topic == "realtime:b")
            #expect(caller.takeUnheard().isEmpty)
        }

        @Test func `one channel sees two views of one table`() throws {
            let stage = try stage()
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes", select: ["id"]), binding("notes", "INSERT")])
            try stage.run("INSERT INTO notes VALUES (1, 'x', 'one'), (2, 'x', 'two')")
            let heard = try (0..<4).map { _ in try caller.change() }
            #expect(heard.map { $0.id } == [1, 1, 2, 2])
            #expect(Set(heard.map { $0.record.count }) == [1, 3])
            #expect(Set(heard.map { $0.bindings.count }) == [1])
        }

        @Test func `a filter that PostgreSQL has to judge does not change the order`() throws {
            let stage = try stage()
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", [binding("notes", filter: "kind=eq.plain"), binding("notes", filter: "body=match.^y+$")])
            for start in stride(from: 1, to: 300, by: 3) {
                try stage.run(
                    """
                    INSERT INTO notes VALUES (\(start), 'plain', 'n'), (\(start + 1), 'asked', 'yyy'),
                        (\(start + 2), 'asked', 'no')
                    """)
            }
            try stage.run("INSERT INTO notes VALUES (1000, 'plain', 'yy')")
            let wanted = (1...300).filter { $0 % 3 != 0 } + [1000]
            #expect(try caller.ids(wanted.count) == wanted)
        }

        @Test func `a role that a new token brings sees what it may see`() throws {
            let stage = try stage("GRANT SELECT (id) ON notes TO OUTSIDER;")
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes")])
            try stage.run("INSERT INTO notes VALUES (1, 'x', 'one')")
            #expect(try caller.change().record.count == 3)
            try caller.push("realtime:a", "access_token", #"{"access_token":"\#(stage.token(stage.outsider))"}"#)
            _ = try caller.first { $0.isSubscription }
            try stage.run("INSERT INTO notes VALUES (2, 'x', 'two')")
            #expect(try caller.change().record.keys.sorted() == ["id"])
        }

        /// Checks a token with a new role whose rights the hub's catalog does not contain yet. Until the catalog does,
        /// the channel receives nothing. Then it receives all changes.
        @Test func `rows are never shown to a role that the channel has no more`() throws {
            let stage = try stage("GRANT SELECT (id) ON notes TO OUTSIDER;")
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes")])
            try stage.away("tidewire bindings") {
                try caller.push("realtime:a", "access_token", #"{"access_token":"\#(stage.token(stage.outsider))"}"#)
                try caller.fence()
                try stage.run("INSERT INTO notes VALUES (1, 'x', 'secret')")
                try stage.awaitLog()
                try caller.fence()
                #expect(caller.takeUnheard().isEmpty)
            }
            _ = try caller.first { $0.isSubscription }
            let change = try caller.change()
            #expect(change.id == 1 && change.record.keys.sorted() == ["id"])
        }

        @Test func `the same role with another token is told again and misses nothing`() throws {
            let stage = try stage()
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes", filter: "id=gt.0")])
            for number in 1...50 {
                let token = stage.token(mark: "\(number)")
                try caller.push("realtime:a", "access_token", #"{"access_token":"\#(token)"}"#)
                try stage.run("INSERT INTO notes VALUES (\(number), 'x', 'one')")
            }
            #expect(try caller.ids(50) == Array(1...50))
        }

        @Test func `rights that are taken away end deliveries`() throws {
            let stage = try stage()
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes")])
            try stage.run("REVOKE SELECT ON notes FROM READER")
            try stage.awaitCatalog()
            try stage.run("INSERT INTO notes VALUES (1, 'x', 'secret')")
            let change = try caller.change()
            #expect(change.record.isEmpty && change.errors == ["Error 401: Unauthorized"])
        }

        @Test func `a table with row security and no policy tells nothing, also when it gets it later`() throws {
            let stage = try stage("CREATE TABLE plain (id int PRIMARY KEY); GRANT SELECT ON plain TO READER;")
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("*")])
            try stage.run("ALTER TABLE notes ENABLE ROW LEVEL SECURITY")
            _ = try caller.first { $0.said?.contains("public.notes") == true && $0.status == "ok" }
            try stage.run("INSERT INTO notes VALUES (1, 'x', 'secret'); INSERT INTO plain VALUES (7)")
            #expect(try caller.change().id == 7)
        }

        @Test func `a table that changes is followed`() throws {
            let stage = try stage()
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes")])
            try stage.run("ALTER TABLE notes ADD COLUMN extra int; INSERT INTO notes VALUES (1, 'x', 'one', 11)")
            #expect(try caller.change().record["extra"] as? Int == 11)
            try stage.run("ALTER TABLE notes RENAME COLUMN extra TO more; INSERT INTO notes VALUES (2, 'x', 'two', 22)")
            #expect(try caller.change().record["more"] as? Int == 22)
            try stage.run("ALTER TABLE notes ALTER more TYPE text; INSERT INTO notes VALUES (3, 'x', 'three', '33')")
            #expect(try caller.change().record["more"] as? String == "33")
            try stage.run("ALTER TABLE notes DROP COLUMN more; INSERT INTO notes VALUES (4, 'x', 'four')")
            #expect(try caller.change().id == 4)
            #expect(caller.takeUnheard().isEmpty)
        }

        @Test func `a table that is dropped and made again is another one, and followed`() throws {
            let stage = try stage()
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes")])
            try stage.run("DROP TABLE notes; CREATE TABLE notes (id int PRIMARY KEY); GRANT SELECT ON notes TO READER")
            try stage.run("INSERT INTO notes VALUES (1)")
            #expect(try caller.change().id == 1)
        }

        @Test func `a table that is made later is subscribed to then, and its absence is said once`() throws {
            let stage = try stage()
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes"), binding("later")])
            #expect(caller.takeUnheard().filter { $0.isTrouble }.count == 1)
            try stage.run("CREATE TABLE other (id int PRIMARY KEY)")
            try stage.run("INSERT INTO other VALUES (1); INSERT INTO notes VALUES (1, 'x', 'one')")
            #expect(try caller.change().id == 1)
            try stage.run("CREATE TABLE other2 (id int PRIMARY KEY)")
            try stage.run("INSERT INTO other2 VALUES (1); INSERT INTO notes VALUES (2, 'x', 'one')")
            #expect(try caller.change().id == 2)
            #expect(caller.takeUnheard().isEmpty)
            try stage.run("CREATE TABLE later (id int PRIMARY KEY); GRANT SELECT ON later TO READER")
            _ = try caller.first { $0.isSubscription }
            try stage.run("INSERT INTO later VALUES (3)")
            #expect(try caller.change().id == 3)
        }

        @Test func `a gap is told to those who follow tables`() throws {
            let stage = try stage()
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes")])
            try caller.join("realtime:talk", [])
            try stage.run("DROP PUBLICATION supabase_realtime")
            try stage.run("INSERT INTO notes VALUES (1, 'x', 'missed')")
            try stage.run("CREATE PUBLICATION supabase_realtime FOR ALL TABLES")
            let trouble = try caller.first { $0.isTrouble && $0.said?.hasPrefix("Changes may be missing") == true }
            #expect(trouble.topic == "realtime:a")
        }

        @Test func `rows that could not be judged are told of each time`() throws {
            let stage = try stage()
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes", filter: "body=match.^y+$")])
            for round in [10, 20] {
                try stage.run("INSERT INTO notes VALUES (\(round), 'x', 'yy')")
                #expect(try caller.change().id == round)
                try stage.away("tidewire judge") {
                    try stage.run("INSERT INTO notes VALUES (\(round + 1), 'x', 'yy')")
                    let trouble = try caller.first { $0.isTrouble }
                    #expect(trouble.said?.contains("could not be evaluated") == true)
                }
                let judge =
                    "SELECT 1 FROM pg_stat_activity WHERE application_name = 'tidewire judge' AND datname = current_database()"
                #expect(try eventually { try !stage.run(judge).isEmpty })
            }
        }

        /// Checks joins of one client while the catalog changes: another client, which joined before, must receive all
        /// changes.
        @Test func `joins while the catalog moves take nothing from those who are there`() throws {
            let stage = try stage()
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes")])
            let ended = Bell()
            let joiner = try stage.caller()
            let joining = try BackgroundThread("joiner") {
                while !ended.rang {
                    guard let ref = try? joiner.subscribe("realtime:j", [binding("notes")]) else { return }
                    _ = try? joiner.push("realtime:j", "phx_leave", "{}", joinRef: ref)
                    _ = try? joiner.first { $0.event == "phx_close" }
                    _ = joiner.takeUnheard()
                }
            }
            let target = stage.database.target
            let moving = try BackgroundThread("mover") {
                guard let mover = try? Connection(target) else { return }
                while !ended.rang {
                    _ = try? mover.execute("CREATE POLICY p ON notes USING (true)")
                    BackgroundThread.rest(nanoseconds: 100_000_000)
                    _ = try? mover.execute("DROP POLICY p ON notes")
                    BackgroundThread.rest(nanoseconds: 100_000_000)
                }
            }
            let count = 15_000
            // A thread reads the client's messages, so that the hub does not find the client too slow on a busy
            // machine.
            let heard = Awaited<[Int]>()
            let listening = try BackgroundThread("listener") { heard.set((try? caller.ids(count)) ?? []) }
            for start in stride(from: 1, through: count, by: 3) {
                try stage.run("INSERT INTO notes SELECT g, 'x', 'y' FROM generate_series(\(start), \(start + 2)) g")
            }
            listening.join()
            ended.ring()
            joining.join()
            moving.join()
            #expect(heard.wait() == Array(1...count))
        }
    }
}
