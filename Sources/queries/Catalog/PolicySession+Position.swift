import Asking
import Change
import Postgres
import System

/// Where PostgreSQL's log stands, as a session sees it.
extension PolicySession {
    /// Behind everything that was visible when it was asked.
    public static let position = PipelinedStatement(
        """
        SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
            ELSE pg_catalog.pg_current_wal_insert_lsn() END
        """, preparedAs: "position")

    /// Where what the server has on disk ends, and how long it may take to write what it has not.
    private static let durable = PipelinedStatement(
        """
        SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
            ELSE pg_catalog.pg_current_wal_flush_lsn() END,
            (SELECT s.setting FROM pg_catalog.pg_settings s WHERE s.name OPERATOR(pg_catalog.=) 'wal_writer_delay')
        """, preparedAs: "durable")

    /// Readers write WAL too (they tidy pages), and where nobody commits the WAL writer leaves its last page alone for as long as
    /// nothing else happens. A commit that changed nothing has it see to that.
    private static let emptyCommit = [
        PipelinedStatement("BEGIN READ WRITE"), PipelinedStatement("SELECT pg_catalog.txid_current()"),
        PipelinedStatement("COMMIT"),
    ]

    /// A position behind all that was visible when the server had written up to `position`, and one that no crash takes back:
    /// what is behind it after a crash would be other transactions, some with the numbers of lost ones.
    ///
    /// Transactions can be seen before they are on disk (`synchronous_commit = off`), for three times the writer's delay at most.
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
