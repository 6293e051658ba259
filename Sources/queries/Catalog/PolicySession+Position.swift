import Asking
import Change
import Postgres
import System

/// Queries for positions in PostgreSQL's WAL.
extension PolicySession {
    /// Query for an LSN after everything that was visible when the query ran.
    public static let position = PipelinedStatement(
        """
        SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
            ELSE pg_catalog.pg_current_wal_insert_lsn() END
        """, preparedAs: "position")

    /// Query for the LSN up to which the WAL is on the server's disk, and for `wal_writer_delay`.
    private static let durable = PipelinedStatement(
        """
        SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
            ELSE pg_catalog.pg_current_wal_flush_lsn() END,
            (SELECT s.setting FROM pg_catalog.pg_settings s WHERE s.name OPERATOR(pg_catalog.=) 'wal_writer_delay')
        """, preparedAs: "durable")

    /// Commit without changes. It makes PostgreSQL flush its last WAL page. The last page may also contain records of
    /// reading transactions, which prune pages. Without a commit, the WAL writer does not flush such a page.
    private static let emptyCommit = [
        PipelinedStatement("BEGIN READ WRITE"), PipelinedStatement("SELECT pg_catalog.txid_current()"),
        PipelinedStatement("COMMIT"),
    ]

    /// Waits until PostgreSQL's WAL up to `position` is on the server's disk. Returns the LSN up to which it is. After
    /// a limited wait, the result may be lower than `position`. After a crash, PostgreSQL may reuse positions that were
    /// not on disk for other transactions, even with the same numbers.
    ///
    /// With `synchronous_commit = off`, a transaction can be visible up to three times `wal_writer_delay` before it is
    /// on disk.
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
