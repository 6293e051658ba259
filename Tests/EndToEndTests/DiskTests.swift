import Change
import Diagnostics
import Embedded
import EventLog
import Glibc
import Postgres
import Replication
import Server
import System
import TestSupport
import Testing

@testable import Ingest

extension EndToEnd {
    /// Tests with a real database and a disk that refuses writes.
    @Suite(.serialized) struct DiskTests {
        @Test(arguments: [ENOSPC, EIO])
        func `a disk that refuses stops the confirming and loses nothing`(code: Int32) throws {
            let database = try TestDatabase()
            try database.run(
                "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION supabase_realtime FOR TABLE t")
            let disk = FaultyStorage()
            let interrupt = try Wake()
            let status = ReplicationStatus()
            let metrics = ProjectMetrics()
            let thread = try follow(database, disk, interrupt, status, metrics)
            try eventually("the stream") { status.isStreaming }
            try database.run("INSERT INTO t VALUES (1, 'before')")
            try eventually("the first change") { try Self.history(disk).changes.count == 1 }
            disk.setFaults { faults in
                faults.code = code
                faults.failSyncAfter = 0
                faults.times = 2
            }
            try database.run("INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(2, 2000) g")
            let target = try #require(try database.value("SELECT pg_current_wal_lsn()"))
            try eventually("the refusal to be met") { metrics.diskStalls.value > 0 }
            #expect(
                try database.value(
                    "SELECT confirmed_flush_lsn < '\(target)' FROM pg_replication_slots WHERE slot_name = '\(database.slot)'"
                ) == "t",
                "what is not durable is not confirmed")
            try eventually("the rest") { try Self.history(disk).changes.count == 2000 }
            try eventually("the confirmation") {
                try database.value(
                    "SELECT confirmed_flush_lsn >= '\(target)' FROM pg_replication_slots WHERE slot_name = '\(database.slot)'"
                ) == "t"
            }
            interrupt.ring()
            thread.join()
            let history = try Self.history(disk)
            #expect(history.changes.compactMap { $0.new["id"] ?? nil } == (1...2000).map { "\($0)" })
            #expect(history.gaps.isEmpty)
            try drop(database)
        }

        /// Checks a shutdown of the server. The server waits until the client of every walsender has confirmed
        /// everything.
        @Test func `a disk that goes on refusing does not keep the database from shutting down`() throws {
            let database = try TestDatabase()
            try database.run(
                "CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION supabase_realtime FOR TABLE t")
            let disk = FaultyStorage()
            let interrupt = try Wake()
            let status = ReplicationStatus()
            let metrics = ProjectMetrics()
            let thread = try follow(database, disk, interrupt, status, metrics)
            try eventually("the stream") { status.isStreaming }
            disk.setFaults { faults in
                faults.failWriteAfter = 0
                faults.times = .max
            }
            try database.run("INSERT INTO t VALUES (1)")
            try eventually("the slot to be let go", seconds: 30) {
                try database.value("SELECT active FROM pg_replication_slots WHERE slot_name = '\(database.slot)'")
                    == "f"
            }
            try eventually("the complaint") { status.trouble?.reason == .diskStall }
            try database.run("INSERT INTO t VALUES (2)")
            disk.setFaults { _ in }
            try eventually("the changes") { try Self.history(disk).changes.count == 2 }
            interrupt.ring()
            thread.join()
            #expect(try Self.history(disk).gaps.isEmpty)
            try drop(database)
        }

        @Test func `what came before the database went is stored while it is away`() throws {
            let database = try TestDatabase()
            try database.run(
                "CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION supabase_realtime FOR TABLE t")
            let disk = FaultyStorage()
            let interrupt = try Wake()
            let status = ReplicationStatus()
            let metrics = ProjectMetrics()
            let thread = try follow(database, disk, interrupt, status, metrics)
            try eventually("the stream") { status.isStreaming }
            let held = try #require(try refuseAChange(database, disk, metrics))
            let other = try database.cluster.connect()
            try other.execute("ALTER DATABASE \(database.name) ALLOW_CONNECTIONS false")
            try other.execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '\(database.slot)'"
            )
            try eventually("the connection to be missed") { !status.isStreaming }
            disk.setFaults { _ in }
            try eventually("the change") { try Self.history(disk).changes.contains { $0.new["id"] == held } }
            interrupt.ring()
            thread.join()
            try drop(database)
        }

        /// Makes writes fail until the hub has received a whole change that it cannot write. Returns the id of that
        /// row. If a keep-alive meets the failing disk first, the hub has not received the change. Then the function
        /// tries again.
        private func refuseAChange(
            _ database: TestDatabase, _ disk: FaultyStorage, _ metrics: ProjectMetrics
        ) throws -> String? {
            for id in 1...20 {
                let (stalls, bytes) = (metrics.diskStalls.value, metrics.bytesIngested.value)
                disk.setFaults { faults in
                    faults.failWriteAfter = 0
                    faults.times = .max
                }
                try database.run("INSERT INTO t VALUES (\(id))")
                try eventually("the refusal to be met") { metrics.diskStalls.value > stalls }
                if metrics.bytesIngested.value > bytes { return "\(id)" }
                disk.setFaults { _ in }
                try eventually("the change") { try Self.history(disk).changes.count == id }
            }
            return nil
        }

        private func follow(
            _ database: TestDatabase, _ disk: FaultyStorage, _ interrupt: Wake, _ status: ReplicationStatus,
            _ metrics: ProjectMetrics
        ) throws -> BackgroundThread {
            var settings = ReplicationSettings(target: database.target, slot: database.slot)
            settings.metrics = metrics
            return try BackgroundThread("ingest") { [settings] in
                var options = EventLogOptions(source: 0)
                options.preparesSegments = false
                options.segmentBytes = 2 << 20
                guard let sink = try? LogSink(directory: disk, options: options) else { return }
                Replicator(
                    settings: settings, spoolDirectory: MemoryDirectory(), sink: sink, interrupt: interrupt,
                    status: status
                ).run()
            }
        }

        private static func history(_ disk: FaultyStorage) throws -> LoggedHistory { try LoggedHistory.read(disk) }

        private func drop(_ database: TestDatabase) throws {
            try eventually("the slot to be let go") {
                (try? database.run("SELECT pg_drop_replication_slot('\(database.slot)')")) != nil
            }
        }
    }
}
