import Diagnostics
import Embedded
import Foundation
import Postgres
import Synchronization
import System
import TestSupport
import Testing

@testable import Server

extension GatewayHistories {
    /// Tests of clients that begin with the existing rows and continue with the later changes.
    @Suite(.serialized) struct SnapshotTests {
        private static let wish = #","broadcast":{"tidewire":{"snapshot":true}}"#
        private static let notes = """
            CREATE TABLE notes (id int PRIMARY KEY, owner uuid, kind text, body text, secret text);
            ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
            CREATE POLICY own ON notes FOR SELECT USING (owner = auth.uid());
            GRANT SELECT (id, owner, kind, body) ON notes TO READER;
            """

        private func code(_ code: String) -> (Message) -> Bool { { $0.payload["code"] as? String == code } }

        /// Returns the rows of a snapshot up to its end.
        private func rows(_ caller: Caller) throws -> (rows: [Message], end: Message) {
            var rows: [Message] = []
            while true {
                let message = try caller.next()
                if message.data["tidewire"] as? [String: Bool] == ["snapshot": true] { rows.append(message) }
                if code("SnapshotComplete")(message) || code("SnapshotFailed")(message) { return (rows, message) }
            }
        }

        @Test(arguments: newSeed())
        func `what clients have of a table that many write to is the table, whenever they begin`(seed: Seed) throws {
            try followHistory(
                seed, GatewayStage(SnapshotWriter.tables, publication: "FOR TABLE items, fences"),
                standbyComesAndGoes: false)
        }

        @Test(arguments: newSeed())
        func `what clients have is the table also where commits wait for a standby`(seed: Seed) throws {
            let cluster = try TestCluster.fresh()
            defer { cluster.stop() }
            let stage = try GatewayStage(
                SnapshotWriter.tables, publication: "FOR TABLE items, fences", on: cluster)
            defer { stage.stop() }
            try followHistory(seed, stage, standbyComesAndGoes: true)
        }

        private func followHistory(_ seed: Seed, _ stage: GatewayStage, standbyComesAndGoes: Bool) throws {
            var random = SeededRandom(seed: seed)
            let end = Bell()
            let troubles = Mutex<[String]>([])
            let writers = try (0..<4).map { number in
                let seed = random.next()
                return try BackgroundThread("writer \(number)") {
                    do {
                        var writer = try SnapshotWriter(number, stage, seed: seed)
                        try writer.write(until: end)
                    } catch {
                        troubles.withLock { $0.append("\(error)") }
                    }
                }
            }
            var standby: BackgroundThread?
            if standbyComesAndGoes {
                let seed = random.next()
                standby = try BackgroundThread("standby") {
                    do {
                        try AbsentStandby.comesAndGoes(stage, seed: seed, until: end)
                    } catch {
                        troubles.withLock { $0.append("\(error)") }
                    }
                }
            }
            var hearers: [SnapshotHearer] = []
            var threads: [BackgroundThread] = []
            for _ in 0..<24 {
                BackgroundThread.rest(nanoseconds: UInt64.random(in: 1...120, using: &random) * 1_000_000)
                let hearer = try SnapshotHearer(user: Int.random(in: 1...2, using: &random), stage)
                try hearer.join(stage)
                hearers.append(hearer)
                threads.append(try BackgroundThread("hearer") { hearer.hear(upTo: 1_000_000) })
            }
            BackgroundThread.rest(nanoseconds: 300_000_000)
            end.ring()
            standby?.join()
            for writer in writers { writer.join() }
            #expect(troubles.withLock { $0 } == [])
            try stage.run("INSERT INTO fences VALUES (1)")
            // A client that still receives its snapshot may have this row in the snapshot.
            let (all, isOver) = (hearers, Bell())
            let beating = try BackgroundThread("heart") {
                while !isOver.rang {
                    for hearer in all { hearer.beat() }
                    BackgroundThread.rest(nanoseconds: 1_000_000_000)
                }
            }
            let complete = { stage.metrics.snapshots[.complete].value + stage.metrics.snapshots[.failed].value }
            #expect(eventually { complete() >= 24 })
            try stage.run("INSERT INTO fences VALUES (1000000)")
            for thread in threads { thread.join() }
            isOver.ring()
            beating.join()
            for hearer in hearers { try check(hearer, stage) }
            #expect(hearers.contains { $0.replica.changes > 0 } && hearers.contains { $0.replica.told > 0 })
        }

        private func check(_ hearer: SnapshotHearer, _ stage: GatewayStage) throws {
            #expect(hearer.failure == nil)
            #expect(hearer.replica.wrong == [])
            #expect(hearer.replica.completeRows == hearer.replica.told)
            let expected = try stage.run(
                "SELECT id, version, body FROM items WHERE owner = '\(GatewayStage.user(hearer.user))' ORDER BY id")
            let table = expected.values.map { row in row.map { $0 ?? "" } }
            let held = hearer.replica.rows.sorted { $0.key < $1.key }.map { id, row in
                ["\(id)", "\(row["version"] as? Int ?? -1)", row["body"] as? String ?? ""]
            }
            #expect(held == table)
        }

        @Test func `rows that a crash could take back are not told yet, and whoever asks again has them`() throws {
            let cluster = try TestCluster.fresh()
            defer { cluster.stop() }
            let stage = try GatewayStage(Self.notes, publication: "FOR TABLE notes", on: cluster)
            defer { stage.stop() }
            let caller = try stage.caller()
            let writer = try stage.database.value(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")
            let pid = try #require(writer.flatMap { pid_t($0) })
            kill(pid, SIGSTOP)
            defer { kill(pid, SIGCONT) }
            try stage.run(
                """
                BEGIN; SET LOCAL synchronous_commit = off;
                INSERT INTO notes VALUES (1, '\(GatewayStage.user(1))'); COMMIT
                """)
            try caller.subscribe("realtime:a", [binding("notes")], token: stage.token(of: 1), more: Self.wish)
            let refused = try rows(caller)
            #expect(refused.rows.isEmpty && code("SnapshotFailed")(refused.end))
            #expect(refused.end.payload["status"] as? String == "error", "asked again it may help")
            #expect((refused.end.payload["message"] as? String)?.contains("not written to its disk yet") == true)
            kill(pid, SIGCONT)
            try caller.subscribe("realtime:b", [binding("notes")], token: stage.token(of: 1), more: Self.wish)
            #expect(try rows(caller).rows.map(\.id) == [1])
        }

        @Test func `a commit that waits for a standby is told behind the rows, however much came after it`() throws {
            let cluster = try TestCluster.fresh()
            defer { cluster.stop() }
            let stage = try GatewayStage(
                "CREATE TABLE notes (id int PRIMARY KEY, body text); GRANT SELECT ON notes TO READER",
                publication: "FOR TABLE notes", on: cluster)
            defer { stage.stop() }
            try stage.standbyStaysAway()
            let writing = try stage.writeInBackground("INSERT INTO notes VALUES (0, 'waits')")
            #expect(try eventually { try stage.waitingForStandby() == 1 })
            try stage.awaitLog()
            try stage.run(
                """
                BEGIN; SET LOCAL synchronous_commit = local;
                INSERT INTO notes SELECT n, 'body' FROM generate_series(1, 20000) n; COMMIT
                """)
            try stage.awaitLog()
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes")], more: Self.wish)
            #expect(try rows(caller).rows.map(\.id) == Array(1...20_000))
            try stage.standbyIsBack()
            writing.join()
            try stage.run("INSERT INTO notes VALUES (20001, 'last')")
            #expect(try caller.change().id == 0)
            #expect(try caller.change().id == 20_001)
        }

        @Test func `everybody begins with what they may see, and no column that they may not`() throws {
            let stage = try GatewayStage(Self.notes, publication: "FOR TABLE notes")
            try stage.run(
                """
                INSERT INTO notes SELECT n, ('00000000-0000-4000-8000-00000000000' || 1 + n % 2)::uuid,
                    CASE WHEN n % 3 = 0 THEN 'a' ELSE 'b' END, 'body ' || n, 'secret' FROM generate_series(1, 1500) n
                """)
            let caller = try stage.caller()
            let wanted = binding("notes", filter: "kind=eq.a")
            try caller.subscribe("realtime:a", [wanted], token: stage.token(of: 1), more: Self.wish)
            let (rows, end) = try rows(caller)
            #expect(rows.map(\.id) == (1...1500).filter { $0 % 2 == 0 && $0 % 3 == 0 })
            #expect(rows.allSatisfy { Set($0.record.keys) == ["id", "owner", "kind", "body"] && $0.type == "INSERT" })
            #expect(end.payload["rows"] as? Int == rows.count && end.payload["position"] is String)
            try stage.run("UPDATE notes SET body = 'other' WHERE id = 6")
            #expect(try caller.change().record["body"] as? String == "other")
        }

        @Test func `a row reads the same in a snapshot as in the change that made it`() throws {
            let stage = try GatewayStage(
                """
                CREATE TYPE mood AS ENUM ('glad', 'sad'); CREATE TYPE pair AS (a int, b timestamptz);
                CREATE DOMAIN short AS varchar(20);
                CREATE TABLE shapes (id int PRIMARY KEY, big int8, small int2, real float4, double float8, exact numeric,
                    flag bool, name short, moment timestamptz, plain timestamp, day date, span interval, raw bytea, doc jsonb,
                    old json, list int[], texts text[], feeling mood, two pair, period tstzrange, nothing text,
                    twice int GENERATED ALWAYS AS (id * 2) STORED);
                ALTER ROLE READER SET TimeZone = 'Pacific/Auckland';
                GRANT SELECT ON shapes TO READER;
                """, publication: "FOR TABLE shapes")
            let live = try stage.caller()
            try live.subscribe("realtime:a", [binding("shapes")])
            func insert(_ id: Int) throws -> Message {
                try stage.run(
                    """
                    INSERT INTO shapes VALUES (\(id), 9007199254740993, -3, 0.1, 1e300, 12345678901234567890.123, true, 'ünï',
                        '2024-02-29 12:34:56.789+02', '2024-01-01 00:00:00', '0044-03-15 BC', '1 day 02:03:04', '\\xdead',
                        '{"a":[1,2.50]}', '{"b" : 1}', '{1,NULL,3}', '{"x y",NULL}', 'sad', ROW(1, '2024-01-01 00:00+00'),
                        '[2024-01-01 00:00+00,2024-02-01 00:00+00)', NULL)
                    """)
                return try live.change()
            }
            var made = try insert(1)
            // While a transaction from before the type's definition is open, also one of another database, the hub does
            // not use the type's values, and says so.
            if made.record["two"] == nil { _ = try live.first(code("ValuesMissing")) }
            while made.record["two"] == nil {
                BackgroundThread.rest(nanoseconds: 100_000_000)
                made = try insert((made.id ?? 0) + 1)
            }
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("shapes")], more: Self.wish)
            let (rows, _) = try rows(caller)
            let told = try #require(rows.last)
            #expect(told.record as NSDictionary == made.record as NSDictionary)
            #expect(told.data["columns"] as? NSArray == made.data["columns"] as? NSArray)
        }

        @Test func `values that are too large to be told are left out, and said so`() throws {
            let stage = try GatewayStage(
                "CREATE TABLE notes (id int PRIMARY KEY, body text, kind text); GRANT SELECT ON notes TO READER",
                publication: "FOR TABLE notes")
            try stage.run("INSERT INTO notes VALUES (1, repeat('x', 3000000), 'a'), (2, repeat('y', 700000), 'b')")
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes")], more: Self.wish)
            let (rows, _) = try rows(caller)
            #expect(rows.map { Set($0.record.keys) } == [["id", "kind"], ["id", "body", "kind"]])
            #expect(rows.first?.errors == ["Error 413: Payload Too Large"])
        }

        @Test func `what cannot be had is told with its reason, and changes come all the same`() throws {
            let stage = try GatewayStage(
                """
                CREATE TABLE many (id int PRIMARY KEY); CREATE TABLE keyless (id int);
                CREATE TABLE broken (id int PRIMARY KEY); ALTER TABLE broken ENABLE ROW LEVEL SECURITY;
                CREATE POLICY broken ON broken FOR SELECT USING (1 / (id - 1) >= 0);
                GRANT SELECT ON many, keyless, broken TO READER;
                INSERT INTO many SELECT generate_series(1, 100001); INSERT INTO broken VALUES (1);
                """, publication: "FOR TABLE many, keyless, broken")
            for (table, reason) in [("many", "100000 rows"), ("keyless", "primary key"), ("broken", "22012")] {
                let caller = try stage.caller()
                try caller.subscribe("realtime:a", [binding(table)], more: Self.wish)
                let (rows, end) = try rows(caller)
                #expect(rows.isEmpty && code("SnapshotFailed")(end))
                #expect(end.said?.contains(reason) == true && end.status == "ok", "\(end)")
                try stage.run("INSERT INTO \(table) VALUES (200002)")
                #expect(try caller.change().data["table"] as? String == table)
            }
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("many", "DELETE")], more: Self.wish)
            #expect(try rows(caller).end.said?.contains("INSERT") == true)
        }

        @Test func `the database's absence is told, and changes come when it is back`() throws {
            let stage = try GatewayStage(Self.notes, publication: "FOR TABLE notes")
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes")], token: stage.token(of: 1))
            let late = try stage.caller()
            try stage.away("tidewire snapshots") {
                try late.subscribe("realtime:a", [binding("notes")], token: stage.token(of: 1), more: Self.wish)
                let (_, end) = try rows(late)
                #expect(code("SnapshotFailed")(end) && end.status == "error", "\(end)")
            }
            try stage.run("INSERT INTO notes VALUES (1, '\(GatewayStage.user(1))', 'a', 'b', 'c')")
            #expect(try late.change().id == 1)
        }

        @Test func `who goes on where it was gets no rows, who cannot gets them`() throws {
            let stage = try GatewayStage(Self.notes, publication: "FOR TABLE notes")
            try stage.run("INSERT INTO notes VALUES (1, '\(GatewayStage.user(1))', 'a', 'b', 'c')")
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes")], token: stage.token(of: 1), more: Self.wish)
            let (_, end) = try rows(caller)
            let position = try #require(end.payload["position"] as? String)
            try stage.run("INSERT INTO notes VALUES (2, '\(GatewayStage.user(1))', 'a', 'b', 'c')")
            #expect(try caller.change().id == 2)
            func join(_ resume: String) throws -> Caller {
                let caller = try stage.caller()
                let more = #","broadcast":{"tidewire":{"snapshot":true,"resume":"\#(resume)"}}"#
                try caller.subscribe("realtime:a", [binding("notes")], token: stage.token(of: 1), more: more)
                return caller
            }
            let back = try join(position)
            let change = try back.change()
            #expect(change.id == 2 && change.data["tidewire"] == nil)
            let lost = try join("00000000000000ff.1")
            #expect(try rows(lost).rows.map(\.id) == [1, 2])
        }

        @Test func `a table that is emptied is empty, whatever its snapshot showed`() throws {
            let stage = try GatewayStage(Self.notes + SnapshotWriter.fences, publication: "FOR TABLE notes, fences")
            try stage.run("INSERT INTO notes VALUES (1, '\(GatewayStage.user(1))', 'a', 'b', 'c')")
            try stage.run("TRUNCATE notes; INSERT INTO notes VALUES (2, '\(GatewayStage.user(1))', 'a', 'b', 'c')")
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", [binding("notes"), binding("fences")], token: stage.token(of: 1), more: Self.wish)
            let (rows, _) = try rows(caller)
            #expect(rows.compactMap(\.id) == [2])
            try stage.run("TRUNCATE notes")
            _ = try caller.first(code("Truncated"))
            try stage.run("INSERT INTO fences VALUES (1)")
            #expect(try caller.change().data["table"] as? String == "fences")
        }

        /// Each case is a channel with a snapshot, and a change that one of its bindings must still deliver although
        /// the snapshot is read after it.
        @Test(arguments: [
            ([SnapshotHearer.wish("notes"), binding("fences")], "fences"),
            ([SnapshotHearer.wish("notes"), SnapshotHearer.wish("fences", event: "UPDATE")], "fences"),
            ([SnapshotHearer.wish("notes", filter: "kind=eq.b"), binding("notes", "UPDATE")], "notes"),
            (
                [SnapshotHearer.wish("notes", filter: "kind=eq.b"), SnapshotHearer.wish("notes", event: "UPDATE")],
                "notes"
            ),
        ])
        func `a binding that gets no rows loses no change to the rows of another`(
            bindings: [String], table: String
        ) throws {
            let stage = try GatewayStage(
                """
                CREATE TABLE notes (id int PRIMARY KEY, kind text); CREATE TABLE first (id int PRIMARY KEY);
                CREATE TABLE fences (id int PRIMARY KEY, kind text);
                GRANT SELECT ON notes, first, fences TO READER;
                INSERT INTO notes VALUES (1, 'a'); INSERT INTO fences VALUES (1, 'a');
                """, publication: "FOR TABLE notes, first, fences")
            let caller = try stage.caller()
            let lock = try stage.database.cluster.connect(database: stage.database.name)
            // A connection's snapshots are read one after the other.
            try lock.execute("BEGIN; LOCK TABLE first")
            try caller.subscribe("realtime:first", [SnapshotHearer.wish("first")], token: stage.token())
            try caller.subscribe("realtime:a", bindings, token: stage.token())
            try stage.run("UPDATE \(table) SET kind = 'c'")
            try stage.awaitLog()
            try lock.execute("COMMIT")
            _ = try caller.first { code("SnapshotComplete")($0) && $0.topic == "realtime:a" }
            let change = try caller.first { $0.topic == "realtime:a" && $0.data["type"] as? String == "UPDATE" }
            #expect((change.data["record"] as? [String: Any])?["kind"] as? String == "c")
        }

        @Test func `who does not take the rows holds up nobody, and gets them when it does`() throws {
            let stage = try GatewayStage(
                "CREATE TABLE notes (id int PRIMARY KEY, body text); GRANT SELECT ON notes TO READER",
                publication: "FOR TABLE notes")
            try stage.run("INSERT INTO notes SELECT n, repeat('x', 2000) FROM generate_series(1, 8000) n")
            try stage.awaitLog()
            let slow = try stage.caller(receiveBuffer: 65_536)
            try slow.push(
                "realtime:a", "phx_join", Caller.join([binding("notes")], token: stage.token(), more: Self.wish))
            #expect(eventually { stage.metrics.snapshotRows.value > 0 })
            let quick = try stage.caller()
            try quick.subscribe("realtime:a", [binding("notes")])
            try stage.run("INSERT INTO notes VALUES (9000, 'new')")
            #expect(try quick.change().id == 9000)
            // The hub did not read the rows that it did not send.
            #expect(stage.metrics.snapshotRows.value < 8000)
            #expect(try rows(slow).rows.map(\.id) == Array(1...8000))
            #expect(try slow.change().id == 9000)
        }

        @Test func `who leaves amid the rows ends their reading`() throws {
            let stage = try GatewayStage(
                "CREATE TABLE notes (id int PRIMARY KEY, body text); GRANT SELECT ON notes TO READER",
                publication: "FOR TABLE notes")
            try stage.run("INSERT INTO notes SELECT n, repeat('x', 2000) FROM generate_series(1, 8000) n")
            for leaves in [true, false] {
                let slow = try stage.caller(receiveBuffer: 65_536)
                let ref = try slow.push(
                    "realtime:a", "phx_join", Caller.join([binding("notes")], token: stage.token(), more: Self.wish))
                #expect(eventually { stage.metrics.snapshotsRunning.value == 1 })
                if leaves { try slow.push("realtime:a", "phx_leave", "{}", joinRef: ref) } else { slow.hangUp() }
                #expect(eventually { stage.metrics.snapshotsRunning.value == 0 })
                let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidewire snapshots'"
                #expect(try eventually { try stage.database.value(sessions) == "0" })
            }
        }
    }
}
