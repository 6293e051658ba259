import Change
import Embedded
import Foundation
import Postgres
import Replication
import Server
import Synchronization
import System
import TestSupport
import Testing

@testable import Ingest

extension EndToEnd {
    /// Tests of the main guarantee: a `kill -9` of the hub or the database at any moment loses no change and duplicates
    /// none.
    @Suite(.serialized) struct CrashTests {
        /// Number of kills: the value of CRASH_ROUNDS, or 24. SEED repeats a schedule of kills.
        static let rounds = ProcessInfo.processInfo.environment["CRASH_ROUNDS"].flatMap { Int($0) } ?? 24

        @Test(arguments: newSeed())
        func `what the log holds after many kills is what the database did`(seed: Seed) throws {
            var random = SeededRandom(seed: seed)
            let cluster = try TestCluster.fresh()
            let database = try TestDatabase(on: cluster)
            try prepare(database)
            let hub = ServedHub(database: database)
            // The guarantee excludes changes from before the slot exists.
            try hub.start()
            try eventually("the slot") {
                try database.value(
                    "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '\(database.slot)'") != nil
            }
            hub.kill()
            let writers = try (0..<3).map { try Writer(database, number: $0) }
            for round in 0..<Self.rounds {
                try hub.start()
                usleep(UInt32.random(in: 20_000...700_000, using: &random))
                if round % 6 == 5 {
                    cluster.kill()
                    try cluster.start()
                    usleep(UInt32.random(in: 0...500_000, using: &random))
                }
                hub.kill()
            }
            for writer in writers { writer.stop() }
            try compare(hub, cluster, database)
            cluster.stop()
        }

        private func prepare(_ database: TestDatabase) throws {
            try database.run(
                """
                CREATE TABLE items (id int PRIMARY KEY, v text);
                ALTER TABLE items REPLICA IDENTITY FULL;
                CREATE TABLE audit (n bigint GENERATED ALWAYS AS IDENTITY, xid bigint DEFAULT txid_current(), op text, id int, old text, new text);
                CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                  INSERT INTO audit (op, id, old, new) VALUES (TG_OP, COALESCE(NEW.id, OLD.id), OLD.v, NEW.v);
                  RETURN NULL;
                END $$;
                CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON items FOR EACH ROW EXECUTE FUNCTION audit();
                CREATE PUBLICATION supabase_realtime FOR TABLE items;
                """)
        }

        private func compare(_ hub: ServedHub, _ cluster: PrivateCluster, _ database: TestDatabase) throws {
            let connection = try cluster.connect(database: database.name)
            try hub.start()
            let mark = "mark-\(UInt64.random(in: 0 ... .max))"
            var history = LoggedHistory()
            // A walsender that has not noticed the kill may still use the slot.
            try connection.query("SELECT pg_logical_emit_message(true, 'test', $1)", [mark])
            try eventually("the log to catch up", seconds: 120) {
                history = try LoggedHistory.read(hub.logDirectory)
                return history.changes.contains { $0.new["content"] == mark }
            }
            hub.kill()
            let audit = try connection.execute("SELECT xid & 4294967295, op, id, old, new FROM audit ORDER BY n").values
            let expected = Dictionary(grouping: audit) { $0[0] ?? "" }
                .mapValues { $0.map { row in row.dropFirst().map { $0 ?? "NULL" }.joined(separator: "|") } }
            let logged = history.changes(of: "public.items")
            let found = Dictionary(grouping: logged) { String($0.xid) }.mapValues { $0.map(Self.line) }
            #expect(history.gaps.isEmpty)
            #expect(expected.count > Self.rounds, "the writers wrote")
            #expect(Set(found.keys) == Set(expected.keys), "the same transactions")
            for (xid, lines) in expected { #expect(found[xid] == lines, "transaction \(xid)") }
            #expect(history.changes.map(\.offset) == (0..<history.changes.count).map { UInt64($0) }, "dense offsets")
            let order = logged.map(\.commitLSN)
            #expect(order == order.sorted(), "in the order of commits")
            #expect(try replayed(logged) == state(connection), "replayed, the log gives the table")
        }

        private static func line(_ change: LoggedChange) -> String {
            let id = (change.new["id"] ?? change.old["id"] ?? nil) ?? "?"
            let old = (change.old["v"] ?? nil) ?? "NULL"
            let new = (change.new["v"] ?? nil) ?? "NULL"
            return [change.operation, id, old, new].joined(separator: "|")
        }

        private func replayed(_ changes: [LoggedChange]) throws -> [String: String] {
            var state: [String: String] = [:]
            for change in changes {
                if let old = change.old["id"] ?? nil { state[old] = nil }
                if let new = change.new["id"] ?? nil { state[new] = (change.new["v"] ?? nil) ?? "NULL" }
            }
            return state
        }

        private func state(_ connection: Connection) throws -> [String: String] {
            let rows = try connection.execute("SELECT id, COALESCE(v, 'NULL') FROM items").values
            return Dictionary(uniqueKeysWithValues: rows.map { ($0[0] ?? "", $0[1] ?? "") })
        }
    }
}

/// Real program in a process of its own, so that a test can kill it.
final class ServedHub {
    let dataDirectory = TemporaryDirectory.make("data")
    private let database: TestDatabase
    private var process: ChildProcess?

    init(database: TestDatabase) { self.database = database }

    var logDirectory: String { IngestService.Settings.logDirectory(dataDirectory) }

    static var program: String {
        let tests = URL(fileURLWithPath: CommandLine.arguments[0]).resolvingSymlinksInPath()
        return tests.deletingLastPathComponent().appendingPathComponent("tidewire").path
    }

    /// Path of the file with the program's standard output and standard error.
    var output: String { dataDirectory + "/serve.log" }

    func start(_ more: [String] = [], environment: [String: String] = [:]) throws {
        process = try ChildProcess(
            [
                Self.program, "serve", "--data-dir", dataDirectory, "--slot", database.slot, "--segment-size", "1MB",
                "--listen", "127.0.0.1:0",
            ] + more,
            output: output,
            environment: ["TIDEWIRE_DATABASE_URL": database.url].merging(environment) { $1 })
    }

    func kill() {
        process?.signal(SIGKILL)
        process?.wait()
        process = nil
    }
}

/// Session that makes random changes, and connects again when the database is killed.
final class Writer: Sendable {
    private let interrupt: Wake
    private let thread: BackgroundThread

    init(_ database: TestDatabase, number: Int) throws {
        let interrupt = try Wake()
        self.interrupt = interrupt
        let target = database.target
        thread = try BackgroundThread("writer") {
            var connection: Connection?
            var count = 0
            while !interrupt.sleep(milliseconds: Int.random(in: 0...12)) {
                do {
                    if connection == nil { connection = try Connection(target) }
                    count += 1
                    try connection?.execute(Writer.transaction(number, count))
                } catch {
                    // A deadlock or a lost race ends only a transaction. A killed server ends the connection.
                    if connection?.isUsable != true {
                        connection = nil
                    } else {
                        _ = try? connection?.execute("ROLLBACK")
                    }
                }
            }
        }
    }

    func stop() {
        interrupt.ring()
        thread.join()
    }

    private static func transaction(_ writer: Int, _ count: Int) -> String {
        let id = Int.random(in: 0..<300)
        let upsert =
            "INSERT INTO items VALUES (\(id), 'w\(writer)-\(count)') ON CONFLICT (id) DO UPDATE SET v = excluded.v;"
        switch Int.random(in: 0..<20) {
        case 0: return "BEGIN; \(upsert) ROLLBACK;"
        case 1:
            return
                "BEGIN; \(upsert) SAVEPOINT s; DELETE FROM items WHERE id < 50; ROLLBACK TO s; UPDATE items SET v = v || '!' WHERE id = \(id); COMMIT;"
        case 2: return "DELETE FROM items WHERE id BETWEEN \(id) AND \(id + 3);"
        // This transaction exceeds the server's decoding memory, so the server streams it before its commit.
        case 3:
            return
                "INSERT INTO items SELECT g, repeat('x', 40) FROM generate_series(1000, 2500) g ON CONFLICT DO NOTHING; DELETE FROM items WHERE id >= 1000;"
        default: return upsert
        }
    }
}
