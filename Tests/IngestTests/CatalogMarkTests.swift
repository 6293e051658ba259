import Change
import Embedded
import EventLog
import Postgres
import Replication
import System
import TestSupport
import Testing

@testable import Ingest

/// Tests of the marks in the log that the catalog may have changed, and of their places.
@Suite(.within(minutes: 10)) struct CatalogMarkTests {
    /// Replication stream into a new log.
    private final class Stage {
        let database: TestDatabase
        let service: IngestService
        private let directory = TemporaryDirectory.make("marks")
        private var written = 0

        init(_ sql: String, _ coverage: StreamCoverage = StreamCoverage()) throws {
            database = try TestDatabase()
            try database.run(
                "CREATE TABLE t (id int PRIMARY KEY, a text); CREATE PUBLICATION supabase_realtime FOR TABLE t")
            if !sql.isEmpty { try database.run(sql) }
            service = try IngestService(
                IngestService.Settings(
                    replication: ReplicationSettings(target: database.target, slot: database.slot, coverage: coverage),
                    dataDirectory: directory))
            let status = service.status
            #expect(eventually { status.isStreaming })
        }

        deinit {
            service.stop()
            _ = try? database.run("SELECT pg_drop_replication_slot('\(database.slot)')")
        }

        /// Returns the kinds of entries in order. `m0` is a mark of any change, `m` a mark of one table, `t` a
        /// transaction.
        func kinds() throws -> [String] {
            guard let end = service.end else { return [] }
            var reader = try EventLogReader(
                directory: DiskDirectory(IngestService.Settings.logDirectory(directory)), end: end, from: .oldest)
            var kinds: [String] = []
            while try reader.next() {
                switch reader.entry.kind {
                case .catalogMark: kinds.append(try CatalogMarkCodec.decode(reader.payload).table == 0 ? "m0" : "m")
                case .transaction: kinds.append("t")
                default: break
                }
            }
            return kinds
        }

        /// Returns the entries that `sql` and one more row add to the log.
        func added(by sql: String, transactions expected: Int = 1) throws -> [String] {
            let before = try kinds()
            if !sql.isEmpty { try database.run(sql) }
            written += 1
            try database.run("INSERT INTO t (id) VALUES (\(written))")
            var added: [String] = []
            let isThere = try eventually {
                added = Array(try kinds().dropFirst(before.count))
                return added.filter { $0 == "t" }.count == expected
            }
            #expect(isThere)
            return added
        }
    }

    @Test func `what PostgreSQL announces is marked before the next row`() throws {
        let stage = try Stage("CREATE ROLE marks_\(UInt32.random(in: 0 ... .max))")
        let role = try #require(
            try stage.database.value("SELECT max(rolname) FROM pg_roles WHERE rolname LIKE 'marks\\_%'"))
        #expect(try stage.added(by: "") == ["m", "t"])
        // If much is altered at the same time, the sink may write more marks than needed, but not each time.
        #expect(try (1...5).contains { _ in try stage.added(by: "") == ["t"] })
        let announced = [
            "ALTER TABLE t ENABLE ROW LEVEL SECURITY", "ALTER TABLE t FORCE ROW LEVEL SECURITY",
            "CREATE POLICY p ON t USING (true)", "ALTER POLICY p ON t USING (false)",
            "ALTER POLICY p ON t RENAME TO q", "DROP POLICY q ON t", "GRANT SELECT ON t TO \(role)",
            "REVOKE SELECT ON t FROM \(role)", "GRANT SELECT (a) ON t TO \(role)",
            "ALTER TABLE t DISABLE ROW LEVEL SECURITY",
            "ALTER TABLE t ADD COLUMN b int", "CREATE INDEX ON t (a)", "ALTER TABLE t OWNER TO \(role)",
        ]
        for sql in announced { #expect(try stage.added(by: sql) == ["m", "t"], "\(sql)") }
    }

    @Test func `event triggers tell of what PostgreSQL does not announce`() throws {
        let stage = try Stage("")
        for file in SQLFile.extras {
            _ = try stage.added(by: file.text)
            // The triggers of the first run report the changes of the second run.
            _ = try stage.added(by: file.text, transactions: 2)
        }
        #expect(!SQLFile.extras.isEmpty)
        let told = [
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 2'", "DROP FUNCTION f()",
            "CREATE TYPE mood AS ENUM ('a')", "CREATE SCHEMA s", "GRANT USAGE ON SCHEMA s TO PUBLIC",
        ]
        // The message is a separate transaction after its mark.
        for sql in told {
            let added = try stage.added(by: sql, transactions: 2)
            #expect(added.first == "m0" && added.dropFirst().first == "t", "\(sql): \(added)")
        }
    }

    @Test func `a table that policies read is followed once the stream carries it`() throws {
        let coverage = StreamCoverage()
        let stage = try Stage("", coverage)
        try stage.database.run("CREATE TABLE m (id int PRIMARY KEY); INSERT INTO m VALUES (1)")
        #expect(coverage.followedSince == nil)
        try stage.database.run("CREATE PUBLICATION tidewire_internal FOR TABLE m")
        let seen = try #require(try stage.database.value("SELECT pg_current_wal_lsn()::text").flatMap { LSN($0) })
        coverage.saw(at: seen)
        #expect(
            try eventually {
                try stage.database.run("INSERT INTO t VALUES ((SELECT count(*) FROM t) + 1000)")
                return coverage.followedSince != nil
            })
        let since = try #require(coverage.followedSince)
        #expect(since >= seen)
        // The first change after the publication is in the log, after a mark of any change.
        let before = try stage.kinds().count
        try stage.database.run("INSERT INTO m VALUES (2)")
        #expect(try eventually { try stage.kinds().count > before })
        #expect(try stage.kinds().contains("m0"))
        // Without the publication, the stream continues, but the hub no longer relies on it. From PostgreSQL 18 on, the
        // server does not report the loss. The catalog then shows no table in the publication.
        try stage.database.run("DROP PUBLICATION tidewire_internal")
        let isSaid = try TestServer.major() < 18
        #expect(
            try !isSaid
                || eventually {
                    try stage.database.run("INSERT INTO t VALUES ((SELECT count(*) FROM t) + 1000)")
                    return coverage.followedSince == nil
                })
        let count = try stage.kinds().count
        #expect(
            try eventually {
                try stage.database.run("INSERT INTO t VALUES ((SELECT count(*) FROM t) + 1000)")
                return try stage.kinds().count > count
            })
    }
}
