import Asking
import Change
import Diagnostics
import Postgres
import System

/// Source that answers queries to the catalog: a server, an open transaction of the caller, or a recorded catalog.
protocol CatalogAnswering: AnyObject {
    var serverVersion: Int { get }
    /// True if other transactions run at the same time as the queries. They may have changed a table in ways that the
    /// event log does not have yet.
    var sharesTime: Bool { get }
    /// Returns one answer for each statement, in order. Statements are independent of each other, except those between
    /// BEGIN and ROLLBACK or COMMIT.
    func answers(to statements: [PipelinedStatement]) throws(PostgresError) -> [Result<Rows, PostgresError>]
}

final class AskedServer: CatalogAnswering {
    private let connection: Connection
    private let interrupt: Wake
    private var prepared: Set<String> = []

    init(_ connection: Connection, interrupt: Wake) {
        self.connection = connection
        self.interrupt = interrupt
    }

    var serverVersion: Int { connection.serverVersion }
    var sharesTime: Bool { true }

    func answers(to statements: [PipelinedStatement]) throws(PostgresError) -> [Result<Rows, PostgresError>] {
        let answers = try connection.pipeline(
            withinBounds(statements), prepared: &prepared,
            timeoutMilliseconds: Limits.answerTimeout.wholeMilliseconds, interrupt: interrupt)
        guard answers.count == statements.count else {
            throw .impossible("a statement has one answer", in: .catalog)
        }
        return answers
    }

    /// Returns the statements. Those that would exceed the limit of prepared statements are changed to unprepared ones.
    private func withinBounds(_ statements: [PipelinedStatement]) -> [PipelinedStatement] {
        var kept = prepared
        return statements.map { statement in
            guard let name = statement.name, !kept.contains(name) else { return statement }
            guard kept.count < Limits.maximumPreparedQuestions else { return statement.askedOnce }
            kept.insert(name)
            return statement
        }
    }
}

/// Answers of the server within a transaction that the caller began and will end. Savepoints replace the transactions
/// of the queries, so a failed statement undoes nothing else. No prepared statement remains in the session.
final class AskedTransaction: CatalogAnswering {
    private let server: AskedServer

    init(_ connection: Connection, interrupt: Wake) { server = AskedServer(connection, interrupt: interrupt) }

    var serverVersion: Int { server.serverVersion }
    var sharesTime: Bool { false }

    func answers(to statements: [PipelinedStatement]) throws(PostgresError) -> [Result<Rows, PostgresError>] {
        var sent: [PipelinedStatement] = []
        var places: [Int] = []
        var isWithin = false
        for statement in statements {
            switch statement.verb {
            case .begin:
                places.append(sent.count)
                sent.append(Self.save)
                isWithin = true
            case .rollback:
                places.append(sent.count)
                sent += [Self.undo, Self.release]
                isWithin = false
            case .commit:
                places.append(sent.count)
                sent.append(Self.release)
                isWithin = false
            case .other where isWithin:
                places.append(sent.count)
                sent.append(statement.askedOnce)
            case .other:
                places.append(sent.count + 1)
                sent += [Self.save, statement.askedOnce, Self.undo, Self.release]
            }
        }
        let answers = try server.answers(to: sent)
        return places.map { answers[$0] }
    }

    private static let save = PipelinedStatement("SAVEPOINT tidewire_catalog")
    private static let undo = PipelinedStatement("ROLLBACK TO SAVEPOINT tidewire_catalog")
    private static let release = PipelinedStatement("RELEASE SAVEPOINT tidewire_catalog")
}

/// Answers of another source, collected to be written into a catalog record.
final class NotedAnswers: CatalogAnswering {
    private let server: any CatalogAnswering
    private var noted: [UInt64: CatalogRecord.Answer] = [:]

    init(_ server: any CatalogAnswering) { self.server = server }

    var serverVersion: Int { server.serverVersion }
    var sharesTime: Bool { false }

    /// Collected answers, ordered by the fingerprints of their queries.
    var answers: [CatalogRecord.Answer] { noted.keys.sorted().compactMap { noted[$0] } }

    func answers(to statements: [PipelinedStatement]) throws(PostgresError) -> [Result<Rows, PostgresError>] {
        let answers = try server.answers(to: statements)
        for (question, answer) in zip(PipelinedStatement.fingerprints(statements), answers) {
            switch answer {
            case .success(let rows): noted[question] = CatalogRecord.Answer(question: question, rows: rows.values)
            case .failure(let error):
                // A temporary failure is not a property of the catalog, so it is not recorded.
                guard let state = error.sqlState, !SQLState.isPassing(state) else { throw error }
                noted[question] = CatalogRecord.Answer(question: question, failure: state)
            }
        }
        return answers
    }
}

/// Answers read from a catalog record.
final class RecordedAnswers: CatalogAnswering {
    let serverVersion: Int
    private let answers: [UInt64: CatalogRecord.Answer]

    init(_ record: CatalogRecord) {
        serverVersion = Int(record.serverVersion)
        answers = Dictionary(record.answers.map { ($0.question, $0) }, uniquingKeysWith: { first, _ in first })
    }

    var sharesTime: Bool { false }

    func answers(to statements: [PipelinedStatement]) throws(PostgresError) -> [Result<Rows, PostgresError>] {
        try PipelinedStatement.fingerprints(statements).map { question throws(PostgresError) in
            guard let answer = answers[question] else { throw Self.unasked }
            if let state = answer.failure {
                return .failure(PostgresError(operation: "catalog", sqlState: state, message: "as it was then"))
            }
            return .success(Rows(recorded: answer.rows))
        }
    }

    /// Error for a query that the record lacks, because a version of the hub with other queries wrote it.
    private static let unasked = PostgresError(
        operation: "catalog", message: "the record has no answer to a question of this version")
}

extension PipelinedStatement {
    enum Verb { case begin, commit, rollback, other }

    var verb: Verb {
        switch sql.prefix(while: { $0 != " " }) {
        case "BEGIN": .begin
        case "COMMIT": .commit
        case "ROLLBACK": .rollback
        default: .other
        }
    }

    /// Returns a statement that connections prepare, so that PostgreSQL plans a frequent query only once.
    static func kept(_ sql: String, _ parameters: [String?] = []) -> PipelinedStatement {
        var statement = PipelinedStatement(sql, parameters)
        if statement.verb == .other {
            statement.name = "catalog_" + String(CatalogRecord.question(sql, [], behind: nil), radix: 16)
        }
        return statement
    }

    var askedOnce: PipelinedStatement { PipelinedStatement(sql, parameters) }

    /// Returns one fingerprint for each statement. The fingerprint of a statement in a transaction also depends on the
    /// statements before it in that transaction.
    static func fingerprints(_ statements: [PipelinedStatement]) -> [UInt64] {
        var before: UInt64?
        return statements.map { statement in
            let question = CatalogRecord.question(statement.sql, statement.parameters, behind: before)
            let verb = statement.verb
            if verb == .begin || before != nil { before = question }
            if verb == .rollback || verb == .commit { before = nil }
            return question
        }
    }
}
