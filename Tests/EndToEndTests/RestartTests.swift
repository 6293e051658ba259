import Change
import Diagnostics
import Embedded
import EventLog
import Foundation
import Postgres
import Replication
import Server
import System
import TestSupport
import Testing

@testable import Ingest

extension EndToEnd {
    @Suite(.serialized) struct RestartTests {
        private func table(on cluster: TestDatabase) throws {
            try cluster.run(
                "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION supabase_realtime FOR ALL TABLES")
        }

        /// Waits until the server has noticed that the hub has disconnected.
        private func letGo(_ database: TestDatabase) throws {
            try eventually("the slot to be let go") {
                try database.value("SELECT active FROM pg_replication_slots WHERE slot_name = '\(database.slot)'")
                    == "f"
            }
        }

        @Test func `a restart repeats nothing and misses nothing`() throws {
            let database = try TestDatabase()
            try table(on: database)
            let hub = try HubUnderTest(database)
            for round in 0..<4 {
                try hub.start()
                try database.run("INSERT INTO t VALUES (\(round * 10), 'while it runs')")
                hub.stop()
                try database.run("INSERT INTO t VALUES (\(round * 10 + 1), 'while it is away')")
            }
            try hub.start()
            let history = try hub.caughtUp()
            #expect(
                history.changes(of: "public.t").compactMap { $0.new["id"] ?? nil } == [
                    "0", "1", "10", "11", "20", "21", "30", "31",
                ])
            #expect(history.gaps.isEmpty)
            #expect(Set(history.changes.map(\.epoch)).count == 1)
        }

        @Test func `an idle slot moves on, so that the server can remove WAL`() throws {
            let database = try TestDatabase()
            try table(on: database)
            try database.run(
                "CREATE TABLE unpublished (v text); ALTER PUBLICATION supabase_realtime SET (publish = 'delete')")
            let hub = try HubUnderTest(database)
            try hub.start()
            try database.run("INSERT INTO unpublished SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
            let target = try #require(try database.value("SELECT pg_current_wal_lsn()"))
            try eventually("the slot to be moved on", seconds: 40) {
                try database.value(
                    "SELECT confirmed_flush_lsn >= '\(target)' FROM pg_replication_slots WHERE slot_name = '\(database.slot)'"
                ) == "t"
            }
            hub.stop()
            try hub.start()
            #expect(try hub.history().gaps.isEmpty)
        }

        @Test func `the database may stop, crash and come back`() throws {
            let cluster = try TestCluster.fresh()
            let database = try TestDatabase(on: cluster)
            try table(on: database)
            let hub = try HubUnderTest(database)
            try hub.start()
            try database.run("INSERT INTO t VALUES (1, 'before')")
            // A fast shutdown waits for walsenders. So it ends only if the hub confirms everything.
            cluster.stop()
            try cluster.start()
            var again = try cluster.connect(database: database.name)
            try again.execute("INSERT INTO t VALUES (2, 'after a stop')")
            cluster.kill()
            try cluster.start()
            again = try cluster.connect(database: database.name)
            try again.execute("INSERT INTO t VALUES (3, 'after a crash')")
            let history = try hub.caughtUp(on: again)
            // This cluster does not sync its disk, so its crash may lose the last commit. The log must then agree with
            // the database.
            let rows = try again.execute("SELECT id FROM t ORDER BY id").values.compactMap { $0[0] }
            #expect(history.changes(of: "public.t").compactMap { $0.new["id"] ?? nil } == rows)
            hub.stop()
            cluster.stop()
        }

        @Test func `a dropped slot is a gap and another epoch`() throws {
            let database = try TestDatabase()
            try table(on: database)
            let hub = try HubUnderTest(database)
            try hub.start()
            try database.run("INSERT INTO t VALUES (1, 'kept')")
            try hub.caughtUp()
            hub.stop()
            try letGo(database)
            try database.run("SELECT pg_drop_replication_slot('\(database.slot)')")
            try database.run("INSERT INTO t VALUES (2, 'lost')")
            try hub.start()
            try database.run("INSERT INTO t VALUES (3, 'kept')")
            let history = try hub.caughtUp()
            #expect(history.changes(of: "public.t").compactMap { $0.new["id"] ?? nil } == ["1", "3"])
            #expect(history.gaps.map(\.reason) == [.slotMissing])
            #expect(Set(history.changes.map(\.epoch)).count == 2)
            // The offset between the two belongs to the message that the test waited for. Offsets continue across the
            // gap.
            #expect(history.changes.map(\.offset) == [0, 2])
        }

        @Test func `a slot that somebody else moved is a gap`() throws {
            let database = try TestDatabase()
            try table(on: database)
            let hub = try HubUnderTest(database)
            try hub.start()
            try hub.caughtUp()
            hub.stop()
            try database.run("INSERT INTO t VALUES (1, 'taken by another')")
            try eventually("the slot to be let go") {
                try database.value("SELECT active FROM pg_replication_slots WHERE slot_name = '\(database.slot)'")
                    == "f"
            }
            try database.run("SELECT pg_replication_slot_advance('\(database.slot)', pg_current_wal_lsn())")
            try hub.start()
            #expect(try hub.history().gaps.map(\.reason) == [.slotAdvanced])
        }

        @Test func `an invalidated slot is made again and marked`() throws {
            var options = PrivateCluster.Options.forTests
            options.settings += ["max_slot_wal_keep_size=1MB", "min_wal_size=32MB", "max_wal_size=32MB"]
            let cluster = try TestCluster.fresh(options)
            let database = try TestDatabase(on: cluster)
            try table(on: database)
            let hub = try HubUnderTest(database)
            try hub.start()
            try hub.caughtUp()
            hub.stop()
            for _ in 0..<6 {
                try database.run("SELECT pg_logical_emit_message(false, 'bulk', repeat('x', 9000000))")
                try database.run("SELECT pg_switch_wal()")
                try database.run("CHECKPOINT")
            }
            #expect(try database.value("SELECT wal_status FROM pg_replication_slots") == "lost")
            try hub.start()
            try database.run("INSERT INTO t VALUES (1, 'after')")
            let history = try hub.caughtUp()
            #expect(history.gaps.map(\.reason) == [.slotInvalidated])
            #expect(history.changes(of: "public.t").count == 1)
            hub.stop()
            cluster.stop()
        }

        /// Checks a pause of the reading: it ends when the operator wants, or earlier if the server is about to drop
        /// WAL that the hub has not read.
        @Test func `a pause is over before the slot is lost`() throws {
            var options = PrivateCluster.Options.forTests
            options.settings += ["max_slot_wal_keep_size=64MB", "min_wal_size=32MB", "max_wal_size=1GB"]
            let cluster = try TestCluster.fresh(options)
            defer { cluster.stop() }
            let database = try TestDatabase(on: cluster)
            try table(on: database)
            let hub = try HubUnderTest(database)
            try hub.start()
            try hub.caughtUp()
            let pause = hub.settings.replication.pause
            pause.begin(until: Clock.monotonicNanoseconds() + 3_600_000_000_000)
            try eventually("the stream to have ended") {
                try database.value("SELECT active FROM pg_replication_slots") == "f"
            }
            try database.run("INSERT INTO t VALUES (1, 'meanwhile')")
            #expect(try hub.history().changes(of: "public.t").isEmpty)
            // These messages use nearly all the WAL that the server keeps.
            for _ in 0..<6 { try database.run("SELECT pg_logical_emit_message(false, 'bulk', repeat('x', 9300000))") }
            try eventually("the hub to read on") {
                try database.value("SELECT active FROM pg_replication_slots") == "t"
            }
            let history = try hub.caughtUp()
            #expect(history.gaps.isEmpty && history.changes(of: "public.t").count == 1)
            #expect(!pause.finish())
            hub.stop()
        }

        /// Simulates a volume that was not mounted, or a rebuilt machine: the log is lost, and the slot no longer has
        /// its changes.
        @Test func `an empty data directory on a slot that was followed is a gap`() throws {
            let database = try TestDatabase()
            try table(on: database)
            let hub = try HubUnderTest(database)
            try hub.start()
            try database.run("INSERT INTO t VALUES (1, 'lost with the log')")
            try hub.caughtUp()
            hub.stop()
            try shell("rm -rf \(hub.dataDirectory)/*")
            try database.run("INSERT INTO t VALUES (2, 'kept')")
            let before = hub.settings.replication.metrics.gaps.value
            try hub.start()
            let history = try hub.caughtUp()
            #expect(history.gaps.map(\.reason) == [.logMissing])
            #expect(history.changes(of: "public.t").map { $0.new["id"] } == ["2"], "what the slot still had")
            #expect(hub.settings.replication.metrics.gaps.value == before + 1)
            hub.stop()
            try hub.start()
            #expect(try hub.caughtUp().gaps.count == 1, "it is told once")
        }

        @Test(arguments: ["log/*.segment log/*.index", "log/*.segment log/*.index log/messages"])
        func `a log of which the segments are gone is a gap, with its slot and without`(files: String) throws {
            let database = try TestDatabase()
            try table(on: database)
            let hub = try HubUnderTest(database)
            try hub.start()
            try hub.caughtUp()
            hub.stop()
            try letGo(database)
            try shell("cd \(hub.dataDirectory) && rm -f \(files)")
            if files.contains("messages") { try database.run("SELECT pg_drop_replication_slot('\(database.slot)')") }
            try hub.start()
            try database.run("INSERT INTO t VALUES (1, 'kept')")
            let history = try hub.caughtUp()
            #expect(history.gaps.map(\.reason) == [.logMissing])
            #expect(history.changes(of: "public.t").count == 1)
        }

        @Test func `a lineage that cannot be read is a gap, and read again from there on`() throws {
            let database = try TestDatabase()
            try table(on: database)
            let hub = try HubUnderTest(database)
            try hub.start()
            try hub.caughtUp()
            hub.stop()
            try shell("sed -i 's/^timeline ./timeline 9/' \(hub.logDirectory)/lineage")
            try hub.start()
            #expect(try hub.caughtUp().gaps.map(\.reason) == [.lineageDamaged])
            hub.stop()
            try hub.start()
            #expect(try hub.caughtUp().gaps.count == 1)
        }

        @Test func `a publication that was made anew while the hub was away is a gap`() throws {
            let database = try TestDatabase()
            try table(on: database)
            let hub = try HubUnderTest(database)
            try hub.start()
            try hub.caughtUp()
            hub.stop()
            try database.run("DROP PUBLICATION supabase_realtime")
            try database.run("CREATE PUBLICATION supabase_realtime")
            try database.run("INSERT INTO t VALUES (1, 'never decoded')")
            try database.run("ALTER PUBLICATION supabase_realtime ADD TABLE t")
            try hub.start()
            try database.run("INSERT INTO t VALUES (2, 'kept')")
            let history = try hub.caughtUp()
            #expect(history.gaps.map(\.reason) == [.publicationRecreated])
            #expect(history.changes(of: "public.t").map { $0.new["id"] } == ["2"])
        }

        @Test func `a database that went back in time is a gap`() throws {
            let cluster = try TestCluster.fresh()
            let database = try TestDatabase(on: cluster)
            try table(on: database)
            let hub = try HubUnderTest(database)
            try hub.start()
            try hub.caughtUp()
            cluster.stop()
            let copy = cluster.directory + "/data.copy"
            try shell("cp -a \(cluster.directory)/data \(copy)")
            try cluster.start()
            var again = try cluster.connect(database: database.name)
            try again.execute("INSERT INTO t SELECT g, 'will be forgotten' FROM generate_series(1, 1000) g")
            try hub.caughtUp(on: again)
            cluster.stop()
            try shell("rm -rf \(cluster.directory)/data && mv \(copy) \(cluster.directory)/data")
            try cluster.start()
            again = try cluster.connect(database: database.name)
            try eventually("the gap") { try hub.history().gaps.map(\.reason) == [.databaseRestored] }
            try again.execute("INSERT INTO t VALUES (5000, 'on the old copy')")
            let history = try hub.caughtUp(on: again)
            #expect(history.changes(of: "public.t").last?.new["id"] == "5000")
            #expect(Set(history.changes.map(\.epoch)).count == 2)
            hub.stop()
            cluster.stop()
        }

        /// Simulates a point-in-time recovery, or the promotion of a standby that lagged. The database lost the end of
        /// its WAL while no hub was connected, and has written more WAL since.
        @Test func `a database that went back and has overtaken the log is a gap`() throws {
            let cluster = try TestCluster.fresh()
            let database = try TestDatabase(on: cluster)
            try table(on: database)
            let hub = try HubUnderTest(database)
            try hub.start()
            try hub.caughtUp()
            cluster.stop()
            hub.stop()
            let copy = cluster.directory + "/data.copy"
            try shell("cp -a \(cluster.directory)/data \(copy)")
            try cluster.start()
            var again = try cluster.connect(database: database.name)
            try again.execute("INSERT INTO t VALUES (1, 'will be forgotten')")
            hub.settings.replication.target = cluster.target(database: database.name)
            try hub.start()
            try hub.caughtUp(on: again)
            hub.stop()
            cluster.stop()
            try shell("rm -rf \(cluster.directory)/data && mv \(copy) \(cluster.directory)/data")
            try shell("echo \"restore_command = 'false'\" >> \(cluster.directory)/data/postgresql.auto.conf")
            try shell("touch \(cluster.directory)/data/recovery.signal")
            try cluster.start()
            again = try cluster.connect(database: database.name)
            try eventually("the promotion") { try again.execute("SELECT pg_is_in_recovery()").first?[0] == "f" }
            try again.execute("INSERT INTO t SELECT g, 'on the new line' FROM generate_series(2, 20000) g")
            try again.execute("INSERT INTO t VALUES (0, 'on the new line')")
            hub.settings.replication.target = cluster.target(database: database.name)
            try hub.start()
            let history = try hub.caughtUp(on: again)
            #expect(history.gaps.map(\.reason) == [.databaseRestored])
            #expect(history.changes(of: "public.t").count == 20001)
            hub.stop()
            // Since this start, the log follows the new timeline, so there is no second gap.
            try hub.start()
            #expect(try hub.caughtUp(on: again).gaps.count == 1)
            hub.stop()
            cluster.stop()
        }

        @Test func `another database of the same server is a gap, not the same history`() throws {
            let first = try TestDatabase()
            try table(on: first)
            let hub = try HubUnderTest(first)
            let second = try TestDatabase()
            try table(on: second)
            try second.run("SELECT pg_create_logical_replication_slot('\(second.slot)', 'pgoutput')")
            try second.run("INSERT INTO t VALUES (1, 'before the log of the other ends')")
            try hub.start()
            try first.run("INSERT INTO t VALUES (1, 'of the first')")
            try hub.caughtUp()
            hub.stop()
            hub.settings.replication.target = second.target
            hub.settings.replication.slot = second.slot
            try hub.start()
            let history = try hub.caughtUp(on: second.connection)
            #expect(history.gaps.map(\.reason) == [.otherDatabase])
            #expect(history.changes(of: "public.t").count == 2)
            hub.stop()
            try eventually("the slot to be let go") {
                (try? second.run("SELECT pg_drop_replication_slot('\(second.slot)')")) != nil
            }
        }

        @Test func `a stop while the server makes the slot leaves none behind`() throws {
            let database = try TestDatabase()
            try table(on: database)
            let running = try database.cluster.connect(database: database.name)
            try running.execute("BEGIN; CREATE TABLE other (id int)")
            let hub = try HubUnderTest(database)
            try hub.start(awaitingStream: false)
            let slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = '\(database.slot)'"
            try eventually("the making to begin") { try database.value(slots) == "1" }
            hub.stop()
            try eventually("the half-made slot to go") { try database.value(slots) == "0" }
            try running.execute("COMMIT")
        }

        @Test func `a slot that is not ready yet is waited for, and no loss`() throws {
            let database = try TestDatabase()
            try table(on: database)
            let running = try database.cluster.connect(database: database.name)
            try running.execute("BEGIN; CREATE TABLE other (id int)")
            // The data directory is left as by a hub that was killed while the server created its slot.
            let url = database.url
            let slot = database.slot
            let maker = try BackgroundThread("maker") {
                let connection = try? Connection(ConnectionTarget(url))
                _ = try? connection?.execute("SELECT pg_create_logical_replication_slot('\(slot)', 'pgoutput')")
            }
            try eventually("the making to begin") {
                try database.value("SELECT count(*) FROM pg_replication_slots WHERE slot_name = '\(slot)'") == "1"
            }
            let hub = try HubUnderTest(database)
            try hub.start(awaitingStream: false)
            try eventually("the complaint") { hub.service?.status.trouble?.reason == .slotBusy }
            #expect(hub.service?.status.trouble?.message.contains("being created") == true)
            #expect(try hub.history().entries == 0)
            try running.execute("COMMIT")
            maker.join()
            try eventually("the stream") { hub.service?.status.isStreaming == true }
            try database.run("INSERT INTO t VALUES (1, 'kept')")
            let history = try hub.caughtUp()
            #expect(history.changes(of: "public.t").count == 1)
            #expect(history.gaps.isEmpty)
        }

        @Test func `two hubs cannot share a directory, not even before there is a log`() throws {
            let database = try TestDatabase()
            let hub = try HubUnderTest(database) {
                // No database is at this address, so the hub does not create a log.
                $0.replication.target = ConnectionTarget("postgres://127.0.0.1:1/nowhere")
            }
            try hub.start(awaitingStream: false)
            #expect(throws: EventLogError.self) { try IngestService(hub.settings) }
            hub.stop()
            try hub.start(awaitingStream: false)
        }

        @Test func `two hubs cannot share a log, nor a slot`() throws {
            let database = try TestDatabase()
            try table(on: database)
            let hub = try HubUnderTest(database)
            try hub.start()
            #expect(throws: (any Error).self) { try IngestService(hub.settings) }
            let rival = try HubUnderTest(database)
            try rival.start(awaitingStream: false)
            try eventually("the rival to be told") { rival.service?.status.trouble?.reason == .slotBusy }
            #expect(rival.service?.status.trouble?.hint?.contains(database.slot) == true)
            // The second hub's history begins at the slot's position when the first hub has disconnected, and not
            // earlier.
            try database.run("INSERT INTO t VALUES (1, 'of the first')")
            try hub.caughtUp()
            #expect(try rival.history().gaps.isEmpty)
            hub.stop()
            try eventually("the rival to take over") { rival.service?.status.isStreaming == true }
            #expect(try rival.caughtUp().gaps.map(\.reason) == [.logMissing])
        }

        /// Checks that both ways of reading the stream give the same changes: libpq with TLS, and the hub's own code
        /// without TLS.
        @Test func `a stream over TLS is the same stream`() throws {
            var options = PrivateCluster.Options.forTests
            options.settings += ["ssl=on"]
            let cluster = try PrivateCluster(directory: TemporaryDirectory.make("postgres"), options: options)
            let data = cluster.directory + "/data"
            try shell(
                """
                openssl req -new -x509 -days 2 -nodes -subj /CN=localhost -keyout \(data)/server.key \
                    -out \(data)/server.crt 2>/dev/null && chmod 600 \(data)/server.key \
                    && chown --reference=\(data)/PG_VERSION \(data)/server.key \(data)/server.crt
                """)
            try cluster.start()
            let database = try TestDatabase(on: cluster)
            try table(on: database)
            let hub = try HubUnderTest(database) {
                $0.replication.target = ConnectionTarget(database.url + "?sslmode=require")
            }
            try hub.start()
            let encrypted = "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_replication USING (pid)"
            #expect(try database.value(encrypted) == "t")
            try database.run("INSERT INTO t SELECT g, repeat('x', g % 700) FROM generate_series(1, 20000) g")
            try database.run("INSERT INTO t VALUES (30000, repeat('y', 3000000))")
            let changes = try hub.caughtUp().changes(of: "public.t")
            #expect(changes.compactMap { $0.new["id"] ?? nil } == (1...20_000).map { "\($0)" } + ["30000"])
            #expect(changes.last?.new["v"]??.utf8.count == 3_000_000)
            // The server also stops during an encrypted stream.
            cluster.stop()
            try cluster.start()
            try eventually("the stream again") { hub.service?.status.isStreaming == true }
            hub.stop()
            cluster.stop()
        }
    }
}

func shell(_ command: String) throws {
    let ending = try ChildProcess(["/bin/sh", "-c", command]).wait()
    guard ending == .exited(0) else { throw TookTooLong(description: "\(command): \(String(describing: ending))") }
}
