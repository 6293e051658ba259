import Asking
import Change
import Diagnostics
import Postgres
import System

/// Whom the catalog's questions are asked: a server, a server within somebody's transaction, or what a server once said.
protocol CatalogAnswering: AnyObject {
    var serverVersion: Int { get }
    /// Whether transactions of others count, which may know of a table what is not in the log.
    var sharesTime: Bool { get }
    /// In the order of the statements, which do not depend on each other, but for those from BEGIN to ROLLBACK.
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

    /// Those for which there is no room beside the prepared ones are asked as if it were the only time.
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

/// The same within a transaction that somebody began and will end. What would be transactions of their own are savepoints, and a
/// statement that fails takes nothing with it. Nothing is left behind in the session.
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

/// Notes what a server answers.
final class NotedAnswers: CatalogAnswering {
    private let server: any CatalogAnswering
    private var noted: [UInt64: CatalogRecord.Answer] = [:]

    init(_ server: any CatalogAnswering) { self.server = server }

    var serverVersion: Int { server.serverVersion }
    var sharesTime: Bool { false }

    /// By their questions.
    var answers: [CatalogRecord.Answer] { noted.keys.sorted().compactMap { noted[$0] } }

    func answers(to statements: [PipelinedStatement]) throws(PostgresError) -> [Result<Rows, PostgresError>] {
        let answers = try server.answers(to: statements)
        for (question, answer) in zip(PipelinedStatement.fingerprints(statements), answers) {
            switch answer {
            case .success(let rows): noted[question] = CatalogRecord.Answer(question: question, rows: rows.values)
            case .failure(let error):
                // What says nothing of the question is not to be kept.
                guard let state = error.sqlState, !SQLState.isPassing(state) else { throw error }
                noted[question] = CatalogRecord.Answer(question: question, failure: state)
            }
        }
        return answers
    }
}

/// What a server once said.
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

    /// A version of the hub that asks something else cannot read what another one wrote.
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

    /// What is asked again and again, in always the same words: they are planned once on a connection.
    static func kept(_ sql: String, _ parameters: [String?] = []) -> PipelinedStatement {
        var statement = PipelinedStatement(sql, parameters)
        if statement.verb == .other {
            statement.name = "catalog_" + String(CatalogRecord.question(sql, [], behind: nil), radix: 16)
        }
        return statement
    }

    var askedOnce: PipelinedStatement { PipelinedStatement(sql, parameters) }

    /// One for each; what is asked within a transaction is another question behind other statements.
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
