import Asking
import Bytes
import Catalog
import Change
import Diagnostics
import Postgres
import System

/// Session with PostgreSQL for one snapshot. One transaction, as the subscriber's role and with its claims, reads all
/// rows into cursors that outlive the transaction. The rows are then fetched from the cursors.
///
/// One thread owns the session, and uses it once.
final class SnapshotSession: CommitTail.Asking {
    struct Opened {
        let visible: VisibleTransactions
        /// Position in PostgreSQL's WAL after all visible changes.
        let end: LSN
        /// Time of the snapshot in microseconds since 1970.
        let time: Int64
        let rowCount: Int
    }

    let session: PolicySession
    private let runsPolicies: Bool

    /// Opens the session. If `runsPolicies` is false, PostgreSQL raises an error wherever a policy would filter rows.
    init(_ target: ConnectionTarget, runsPolicies: Bool, interrupt: Wake) throws(PostgresError) {
        let milliseconds = Limits.snapshotStatementTimeout.wholeMilliseconds
        self.runsPolicies = runsPolicies
        session = try PolicySession(
            target, applicationName: "tidewire snapshots",
            settings: [
                "default_transaction_read_only=on", "row_security=\(runsPolicies ? "on" : "off")",
                "statement_timeout=\(milliseconds)", "lock_timeout=\(milliseconds)",
                "idle_in_transaction_session_timeout=\(milliseconds)",
            ], connectTimeout: Limits.connectTimeout, answerTimeout: Limits.snapshotStatementTimeout,
            interrupt: interrupt)
    }

    var isStillWanted: (() -> Bool)? {
        get { session.isStillWanted }
        set { session.isStillWanted = newValue }
    }

    /// Runs a query and converts its error to a refusal. A lost connection can mean that the request was cancelled or
    /// timed out.
    private func asking<Answer>(_ ask: () throws(PostgresError) -> Answer) throws(SnapshotRefusal) -> Answer {
        let began = Clock.monotonicNanoseconds()
        do throws(PostgresError) {
            return try ask()
        } catch {
            if let isStillWanted, !isStillWanted() { throw .cancelled }
            let patience = Limits.snapshotStatementTimeout.wholeNanoseconds
            if error.isConnectionLost, Clock.monotonicNanoseconds() - began >= patience { throw .tookTooLong }
            Log.shared.debug("PostgreSQL could not take a snapshot", [.sqlstate(error.sqlState ?? "")])
            throw SnapshotRefusal(error)
        }
    }

    // MARK: Transactions

    func nextTransaction() throws(SnapshotRefusal) -> UInt64 {
        let answers = try asking { () throws(PostgresError) in
            try session.pipeline([
                PipelinedStatement("BEGIN READ WRITE"), PipelinedStatement("SELECT pg_catalog.txid_current()"),
                PipelinedStatement("ROLLBACK"),
            ])
        }
        if case .failure(let error) = answers[0], error.sqlState == SnapshotSession.isInRecovery { throw .standby }
        return try asking { () throws(PostgresError) in
            guard let number = try answers[1].get().first?.first.flatMap({ $0.flatMap { UInt64($0) } }) else {
                throw PolicySession.unreadable
            }
            return number
        }
    }

    func oldestRunning() throws(SnapshotRefusal) -> UInt64 {
        try asking { () throws(PostgresError) in
            guard let visible = VisibleTransactions(try session.query(VisibleTransactions.question)) else {
                throw PolicySession.unreadable
            }
            return visible.firstRunning
        }
    }

    /// Error code with which a standby refuses a transaction that may write: `feature_not_supported`.
    private static let isInRecovery = "0A000"

    // MARK: Reading

    func open(_ request: SnapshotRequest) throws(SnapshotRefusal) -> Opened {
        let isRole = try asking { () throws(PostgresError) in try session.readSurroundings(of: request.role) }
        guard isRole, try mayBecome(request.role) else { throw .roleRefused }
        for _ in 0..<Limits.snapshotTries {
            guard let reading = try read(request) else { continue }
            // A snapshot taken on a standby does not list the transactions that were running.
            guard !reading.isStandby else { throw .standby }
            let end = try asking { () throws(PostgresError) in try session.durableEnd(from: reading.position) }
            guard end >= reading.position else { throw .notWritten }
            let rowCount = try count(request)
            return Opened(visible: reading.visible, end: end, time: reading.time, rowCount: rowCount)
        }
        throw .tableChanged
    }

    private func mayBecome(_ role: String) throws(SnapshotRefusal) -> Bool {
        let becoming = JudgingLogin.becoming(serverVersion: session.serverVersion)
        let rows = try asking { () throws(PostgresError) in
            try session.query(
                """
                SELECT 1 FROM pg_catalog.pg_roles r
                WHERE r.rolname = $1 AND pg_catalog.pg_has_role(session_user, r.oid, '\(becoming)')
                """, [role])
        }
        return !rows.isEmpty
    }

    private struct Reading {
        let visible: VisibleTransactions
        let position: LSN
        let time: Int64
        let isStandby: Bool
    }

    /// Reads all rows into cursors. Returns nil if a table was rewritten between the snapshot and the table's lock,
    /// because the table may then look empty.
    private func read(_ request: SnapshotRequest) throws(SnapshotRefusal) -> Reading? {
        let answers = try asking { () throws(PostgresError) in
            try session.pipeline(head(request) + cursors(request) + checks(request) + [PipelinedStatement("COMMIT")])
        }
        let headCount = 6
        let checked = headCount + request.selections.count..<headCount + 2 * request.selections.count
        for (place, answer) in answers.enumerated() {
            guard case .failure(let error) = answer else { continue }
            if checked.contains(place), error.sqlState == SnapshotSession.isOther { return nil }
            Log.shared.debug("PostgreSQL could not take a snapshot", [.sqlstate(error.sqlState ?? "")])
            throw SnapshotRefusal(error)
        }
        return try asking { () throws(PostgresError) in
            guard let visible = VisibleTransactions(try answers[1].get()),
                let row = try answers[3].get().first, row.count == 3, let position = row[0].flatMap({ LSN($0) }),
                let time = row[1].flatMap({ Int64($0) })
            else { throw PolicySession.unreadable }
            return Reading(visible: visible, position: position, time: time, isStandby: row[2] == "t")
        }
    }

    private func head(_ request: SnapshotRequest) throws(PostgresError) -> [PipelinedStatement] {
        [
            PipelinedStatement("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
            PipelinedStatement(VisibleTransactions.question),
            PipelinedStatement("SET LOCAL cursor_tuple_fraction = 1"),
            PipelinedStatement(
                """
                SELECT (\(PolicySession.position.sql)), CAST(
                    EXTRACT(epoch FROM pg_catalog.transaction_timestamp()) * 1000000 AS pg_catalog.int8),
                    pg_catalog.pg_is_in_recovery()
                """),
            try session.surroundingsStatement(request.role),
            PipelinedStatement(
                "SELECT pg_catalog.set_config('request.jwt.claims', $1, true), pg_catalog.set_config('role', $2, true)",
                [request.claims, request.role]),
        ]
    }

    /// Returns the statements that declare the cursors. PostgreSQL fills the cursors when the transaction ends.
    private func cursors(_ request: SnapshotRequest) -> [PipelinedStatement] {
        // One row more than the maximum shows that there are too many.
        let most = request.maximumRows + 1
        return request.selections.enumerated().map { index, selection in
            PipelinedStatement(
                """
                DECLARE \(SnapshotSession.cursor(index)) SCROLL CURSOR WITH HOLD FOR
                \(selection.sql(longest: request.maximumBodyBytes, atMost: most))
                """, selection.constants)
        }
    }

    private static func cursor(_ index: Int) -> String { "tidewire_\(index)" }

    /// Error code with which a check fails: `division_by_zero`.
    private static let isOther = "22012"

    /// Returns one check for each table. It fails if the table or a partition was rewritten after the snapshot, for
    /// example by TRUNCATE. All snapshots see a rewrite immediately, so an older snapshot finds the table empty. The
    /// table is already locked when the check runs.
    private func checks(_ request: SnapshotRequest) -> [PipelinedStatement] {
        request.selections.map { selection in
            PipelinedStatement(
                """
                WITH RECURSIVE parts (part) AS (
                    SELECT CAST($1 AS pg_catalog.oid)
                    UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN parts p ON i.inhparent = p.part)
                SELECT 1 / CASE WHEN pg_catalog.bool_and(c.relfilenode
                        = COALESCE(pg_catalog.pg_relation_filenode(c.oid), 0::pg_catalog.oid))
                    AND (SELECT pg_catalog.string_agg(a.attnum || ':' || a.atttypid, ',' ORDER BY a.attnum)
                        FROM pg_catalog.pg_attribute a
                        WHERE a.attrelid = CAST($1 AS pg_catalog.oid) AND NOT a.attisdropped
                            AND a.attnum = ANY (CAST($2 AS pg_catalog.int2[]))) = $3
                    THEN 1 ELSE 0 END
                FROM parts p JOIN pg_catalog.pg_class c ON c.oid = p.part
                """, [String(selection.table.oid), selection.columnNumbers, selection.shape])
        }
    }

    /// Counts the rows. The tables are not read any more, only the cursors, so the statement timeout is switched off.
    /// Values get the format of the replication stream, whichever settings the role has.
    private func count(_ request: SnapshotRequest) throws(SnapshotRefusal) -> Int {
        let settings = [
            PipelinedStatement(
                """
                SELECT pg_catalog.set_config('TimeZone', 'UTC', false),
                    pg_catalog.set_config('statement_timeout', '0', false)
                """)
        ]
        let moves = request.selections.indices.flatMap { index in
            [
                PipelinedStatement("MOVE FORWARD ALL IN \(SnapshotSession.cursor(index))"),
                PipelinedStatement("MOVE ABSOLUTE 0 IN \(SnapshotSession.cursor(index))"),
            ]
        }
        return try asking { () throws(PostgresError) in
            var total = 0
            let answers = try session.pipeline(settings + moves)
            for (place, answer) in answers.enumerated() {
                let rows = try answer.get()
                if place > 0, place % 2 == 1 { total += rows.affected ?? 0 }
            }
            return total
        }
    }

    // MARK: Taking

    func read(_ index: Int, into pages: SnapshotPages) throws(SnapshotRefusal) {
        pages.begin(index)
        do throws(PostgresError) {
            try session.stream("FETCH ALL FROM \(SnapshotSession.cursor(index))") { pages.take($0) }
        } catch {
            if let refusal = pages.refusal { throw refusal }
            throw SnapshotRefusal(error)
        }
    }
}
