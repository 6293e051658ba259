import Asking
import Change
import Postgres
import System

/// End of PostgreSQL's log, as a session sees it.
extension PolicySession {
    /// Query for a position after everything that was visible when the query ran.
    public static let position = PipelinedStatement(
        """
        SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
            ELSE pg_catalog.pg_current_wal_insert_lsn() END
        """, preparedAs: "position")

    /// Query for the end of the log on the server's disk, and for the maximum delay before PostgreSQL writes the rest.
    private static let durable = PipelinedStatement(
        """
        SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
            ELSE pg_catalog.pg_current_wal_flush_lsn() END,
            (SELECT s.setting FROM pg_catalog.pg_settings s WHERE s.name OPERATOR(pg_catalog.=) 'wal_writer_delay')
        """, preparedAs: "durable")

    /// Commit without changes, which makes PostgreSQL flush its last WAL page. Reading transactions write WAL too,
    /// because they prune pages. While nobody commits, the WAL writer does not flush the last page.
    private static let emptyCommit = [
        PipelinedStatement("BEGIN READ WRITE"), PipelinedStatement("SELECT pg_catalog.txid_current()"),
        PipelinedStatement("COMMIT"),
    ]

    /// Returns a position that no crash takes back, after everything that was visible when the server had written up to
    /// `position`. After a crash, PostgreSQL may put other transactions at lost positions, some with the same numbers.
    ///
    /// Transactions can be visible before they are on disk (`synchronous_commit = off`), for at most three times the
    /// writer's delay.
    public func durableEnd(from position: LSN) throws(PostgresError) -> LSN {
        let began = Clock.monotonicNanoseconds()
        var hasCommitted = false
        while true {
            guard let row = try pipeline([PolicySession.durable]).first?.get().first,
                let end = row[0].flatMap({ LSN($0) })
            else { throw PolicySession.unreadable }
            let delay = (row[1].flatMap { UInt64($0) } ?? 200) * 1_000_000
            let waited = Clock.monotonicNanoseconds() - began
            if end >= position || waited > 4 * delay + 200_000_000 { return end }
            if !hasCommitted, waited > delay {
                hasCommitted = true
                _ = try pipeline(PolicySession.emptyCommit)
            }
            BackgroundThread.rest(nanoseconds: 10_000_000)
        }
    }
}
