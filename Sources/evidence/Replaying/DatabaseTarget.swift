import Change
import Diagnostics
import History
import Postgres

/// Target that repeats the changes in a database. Each transaction of the log becomes one transaction of that database,
/// with a message in the WAL that states its origin. Only one thread may use it.
public final class DatabaseTarget: ReplayTarget {
    private let connection: Connection
    private let request: ReplayRequest
    private var tables: [TableName: TargetTable] = [:]
    private var statements: [UInt64: RowStatements] = [:]
    private var mark: ReplayMark?
    /// Names of the prepared statements that the connection already has.
    private var prepared: Set<String> = []
    /// Statements that were not sent to PostgreSQL yet.
    private var queue: [Queued] = []
    /// Total size in bytes of the statements in `queue`.
    private var queuedBytes = 0
    /// Tables that the next TRUNCATE statement must empty together, because they may refer to each other. `change` is
    /// the first of their truncations in the log.
    private var emptied: (tables: [TableName], change: RecordedChange)?

    private struct Queued {
        var sql: String
        var offset: UInt64
        var table: TableName?
        /// True if the statement must affect exactly one row.
        var isOfARow: Bool
    }

    /// Makes a target for the database of a connection.
    ///
    /// - Parameter isInterrupted: returns true if the user wants to end the replay. Called while the target waits for
    ///   PostgreSQL.
    public init(_ connection: Connection, _ request: ReplayRequest, isInterrupted: @escaping () -> Bool = { false }) {
        self.connection = connection
        self.request = request
        connection.isStillWanted = { !isInterrupted() }
    }

    /// Disables triggers and foreign keys in the target's session, because the log already contains their effects.
    public func withoutTriggers() throws(PostgresError) {
        try connection.execute("SET session_replication_role = replica")
    }

    /// Returns the reasons, as texts, why this database cannot take the plan's changes; empty if it can.
    public func obstacles(_ plan: ReplayPlan) throws(PostgresError) -> [String] {
        var found: [String] = []
        for table in plan.tables {
            guard let target = try TargetCatalog(connection).table(table.target) else {
                found.append("the target has no table \(table.target)")
                continue
            }
            tables[table.target] = target
            for (relation, masked) in table.relations {
                let statements = RowStatements(of: relation.relation, into: target)
                self.statements[relation.fingerprint] = statements
                for obstacle in statements.obstacles(hiding: masked.contains) where !found.contains(obstacle) {
                    found.append(obstacle)
                }
            }
        }
        return found
    }

    // MARK: Transactions

    public func begin(_ mark: ReplayMark) throws {
        precondition(self.mark == nil, "a transaction begins where none is")
        self.mark = mark
        add(Queued(sql: "BEGIN ISOLATION LEVEL READ COMMITTED", offset: mark.offset, table: nil, isOfARow: false))
        let prefix = SQLText.literal(ReplayMark.prefix)
        let sql = "SELECT pg_logical_emit_message(true, \(prefix), \(SQLText.literal(mark.json)))"
        add(Queued(sql: sql, offset: mark.offset, table: nil, isOfARow: false))
    }

    public func take(_ change: RecordedChange) throws {
        precondition(mark != nil, "changes are made in transactions")
        guard let relation = change.relation else { return }
        let target = request.target(of: relation.table)
        if change.operation == .truncate { return empty(target, change) }
        sayEmptied()
        guard let statements = statements[relation.fingerprint] else {
            throw ReplayConflict(
                offset: change.offset, table: relation.table, reason: "the plan has no such schema of the table")
        }
        let sql: String?
        switch change.operation {
        case .insert: sql = statements.insert(change.new)
        case .update: sql = statements.update(change)
        case .delete: sql = statements.delete(change)
        case .truncate, .message: return
        }
        guard let sql else {
            throw ReplayConflict(
                offset: change.offset, table: relation.table, reason: "the log does not show which row it was")
        }
        add(
            Queued(
                sql: sql, offset: change.offset, table: target, isOfARow: change.operation != .insert))
        if queue.count >= Limits.maximumReplayStatements || queuedBytes >= Limits.maximumReplayBytes { try send() }
    }

    /// Adds a table to `emptied`. If the same TRUNCATE statement cannot empty this table, queues that statement first
    /// and begins another.
    private func empty(_ table: TableName, _ change: RecordedChange) {
        if let emptied, emptied.tables.contains(table) || emptied.change.options != change.options { sayEmptied() }
        emptied = ((emptied?.tables ?? []) + [table], emptied?.change ?? change)
    }

    /// Queues the TRUNCATE statement for the tables in `emptied`, if there are any.
    private func sayEmptied() {
        guard let (tables, change) = emptied else { return }
        emptied = nil
        let sql = RowStatements.truncate(
            tables, cascades: change.cascades, restartsIdentity: change.restartsIdentity)
        add(Queued(sql: sql, offset: change.offset, table: tables[0], isOfARow: false))
    }

    private func add(_ statement: Queued) {
        queue.append(statement)
        queuedBytes += statement.sql.utf8.count
    }

    public func commit() throws {
        sayEmptied()
        try send()
        guard let mark else { preconditionFailure("what is committed has begun") }
        // The commit is not interrupted: a caller that gave up waiting would not know whether it took effect.
        let isStillWanted = connection.isStillWanted
        connection.isStillWanted = nil
        defer { connection.isStillWanted = isStillWanted }
        do throws(PostgresError) {
            try connection.execute("COMMIT")
        } catch {
            throw try conflict(error, at: mark.offset, nil)
        }
        self.mark = nil
    }

    public func rollBack() {
        queue = []
        queuedBytes = 0
        emptied = nil
        guard mark != nil else { return }
        mark = nil
        // If the connection is lost, the server rolls the transaction back.
        if connection.isUsable { _ = try? connection.execute("ROLLBACK") }
    }

    // MARK: Statements

    private func send() throws {
        let sent = queue
        queue = []
        queuedBytes = 0
        let answers: [Result<Rows, PostgresError>]
        do throws(PostgresError) {
            answers = try connection.pipeline(
                sent.map { PipelinedStatement($0.sql) }, prepared: &prepared,
                timeoutMilliseconds: Limits.replayPatienceMilliseconds)
        } catch {
            if connection.isStillWanted?() == false { throw ReplayInterruption() }
            throw error
        }
        for (statement, answer) in zip(sent, answers) {
            switch answer {
            case .failure(let error): throw try conflict(error, at: statement.offset, statement.table)
            case .success(let rows):
                guard statement.isOfARow, rows.affected ?? rows.values.count != 1 else { continue }
                throw ReplayConflict(
                    offset: statement.offset, table: statement.table, reason: "the row is missing")
            }
        }
    }

    /// Makes a conflict of an error of PostgreSQL. Rethrows the error if it is not about one statement.
    private func conflict(_ error: PostgresError, at offset: UInt64, _ table: TableName?) throws -> ReplayConflict {
        guard !error.isConnectionLost, let state = error.sqlState else { throw error }
        // Errors of these classes (constraints, names) contain no values of rows. Other errors may contain some.
        let reason = ["23", "42"].contains { state.hasPrefix($0) } ? error.message : "PostgreSQL does not accept it"
        return ReplayConflict(offset: offset, table: table, reason: "\(reason) (SQLSTATE \(state))")
    }
}
