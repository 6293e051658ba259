import Asking
import Bytes
import Catalog
import Change
import Diagnostics
import Postgres
import System

/// The conversation with PostgreSQL about one snapshot. One transaction, in the subscriber's role and with its claims, reads
/// all rows into cursors that outlive it; then they are taken from those.
///
/// It belongs to one thread, and is used once.
final class SnapshotSession: CommitTail.Asking {
    struct Opened {
        let visible: VisibleTransactions
        /// Behind all that is visible, in PostgreSQL's log.
        let end: LSN
        /// Microseconds since 1970.
        let time: Int64
        let rowCount: Int
    }

    let session: PolicySession
    private let runsPolicies: Bool

    /// One that runs no policies is told by the server where a policy would decide.
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

    /// What is lost on the way is the database's absence, or nobody's wish any more, or took too long.
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

    /// SQLSTATE of a standby, which lets nobody write: `feature_not_supported`.
    private static let isInRecovery = "0A000"

    // MARK: Reading

    func open(_ request: SnapshotRequest) throws(SnapshotRefusal) -> Opened {
        let isRole = try asking { () throws(PostgresError) in try session.readSurroundings(of: request.role) }
        guard isRole, try mayBecome(request.role) else { throw .roleRefused }
        for _ in 0..<Limits.snapshotTries {
            guard let reading = try read(request) else { continue }
            // Its snapshots do not say which transactions run.
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

    /// Nil where a table was written anew in the moment between the snapshot and the lock on it, and so may look empty.
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

    /// They are filled as the transaction ends.
    private func cursors(_ request: SnapshotRequest) -> [PipelinedStatement] {
        // One more than there may be: so it is known that there are too many.
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

    /// `division_by_zero`.
    private static let isOther = "22012"

    /// Each fails where its table, or one of its parts, is not what the snapshot shows: TRUNCATE and what else writes a table
    /// anew are seen by everybody at once, so that a snapshot from before finds it empty. By now it is locked.
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

    /// From here on nothing is read of tables: the cursors hold what there is, and how long they are read does not matter.
    /// Texts are as the replication stream has them, whatever the role's own session is set to.
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
