import Asking
import Catalog
import Change
import Diagnostics
import Policy
import Postgres

/// Question whether a query on a table returns a certain row to a role with its claims. The query names the row by its
/// primary key and contains no policy; PostgreSQL applies row level security.
public struct RowVisibilityQuestion: Sendable {
    /// Name of the table in SQL, qualified with its schema.
    let table: String
    /// Columns of the primary key, with their types as SQL.
    let key: [(name: String, type: String)]
    /// Texts of the key's columns.
    let texts: [String]
    let subject: PolicySubject

    public init?(_ table: CatalogTable, _ texts: [String?], _ subject: PolicySubject) {
        let known = texts.compactMap { $0 }
        guard !table.primaryKey.isEmpty, known.count == table.primaryKey.count else { return nil }
        self.table = Quoted.identifier(table.schema) + "." + Quoted.identifier(table.name)
        key = table.primaryKey.map { (table.columns[$0].name, table.columns[$0].declaredType) }
        self.texts = known
        self.subject = subject
    }

    /// Returns true if the query found the row; nil if the query failed.
    static func isVisible(_ answer: Result<Rows, PostgresError>) -> Bool? {
        guard case .success(let rows) = answer, rows.values.count == 1, rows.values[0].count == 1,
            let count = rows.values[0][0].flatMap({ Int($0) })
        else { return nil }
        return count > 0
    }

    var byteCount: Int { texts.reduce(subject.claims.utf8.count) { $0 + $1.utf8.count } }

    var sql: String {
        let conditions = key.enumerated().map { "\(Quoted.identifier($1.name)) = CAST($\($0 + 1) AS \($1.type))" }
        return "SELECT pg_catalog.count(*) FROM \(table) WHERE \(conditions.joined(separator: " AND "))"
    }
}

/// Answer to a `RowVisibilityQuestion`.
public struct RowVisibilityAnswer: Sendable {
    public var isVisible: Bool
    /// Position in PostgreSQL's WAL at some moment after the snapshot that answered.
    public var position: LSN
}

extension JudgingConnection {
    enum LookOutcome {
        case seen(RowVisibilityAnswer)
        case invisible
        case failed
    }

    func look(_ sight: RowVisibilityQuestion, seeing xid: UInt32?) throws(PostgresError) -> LookOutcome {
        guard try session.readSurroundings(of: sight.subject.role) else { return .failed }
        let answers = try session.pipeline([
            JudgingConnection.begin, PipelinedStatement(VisibleTransactions.question), PolicySession.position,
            try session.surroundingsStatement(sight.subject.role),
            claimsStatement(sight.subject.claims, sight.subject.role),
            PipelinedStatement(sight.sql, sight.texts), JudgingConnection.end, PolicySession.clean,
        ])
        guard try session.isClean(answers.last), let isVisible = RowVisibilityQuestion.isVisible(answers[5]),
            let position = try answers[2].get().first?.first.flatMap({ $0.flatMap { LSN($0) } }),
            let snapshot = VisibleTransactions(try answers[1].get())
        else { return .failed }
        if let xid, !snapshot.contains(xid) { return .invisible }
        return .seen(RowVisibilityAnswer(isVisible: isVisible, position: position))
    }
}

extension JudgingWorker {
    func looked(_ batch: JudgingBatch, _ connection: JudgingConnection) throws(PostgresError) -> () -> Void {
        assert(batch.jobs.count == 1, "a look is asked for by itself")
        guard let job = batch.jobs.first, case .sight(let sight, let reply) = job.work else { return {} }
        guard sight.texts.allSatisfy({ !$0.utf8.contains(0) }), !sight.subject.claims.utf8.contains(0) else {
            return { reply.giveUp() }
        }
        var outcome = try connection.look(sight, seeing: job.seeing)
        if case .invisible = outcome, try waitUntilVisible(Set(job.seeing.map { [$0] } ?? []), connection) {
            outcome = try connection.look(sight, seeing: job.seeing)
        }
        guard case .seen(let seen) = outcome else { return { reply.giveUp() } }
        return { reply.give(seen) }
    }
}
