import CPostgres
import Glibc
import System

/// Statement that runs in one batch with others.
public struct PipelinedStatement: Sendable {
    public var sql: String
    public var parameters: [String?]
    /// Name under which the server prepares the statement: it plans the statement once and then runs it by this name.
    /// Nil for a statement that runs only once.
    public var name: String?

    public init(_ sql: String, _ parameters: [String?] = [], preparedAs name: String? = nil) {
        self.sql = sql
        self.parameters = parameters
        self.name = name
    }
}

/// Running of many statements in one round trip. Each is its own transaction, so a failure does not affect the others.
extension Connection {
    /// Runs the statements and returns their answers in the same order. Throws if the connection is lost or an answer
    /// takes longer than the timeout; afterwards the connection cannot be used.
    ///
    /// `prepared` contains the names of statements that the server has prepared; this call adds new ones. All
    /// statements and parameters are in memory until they are sent, so the caller must limit their number.
    public func pipeline(
        _ statements: [PipelinedStatement], prepared: inout Set<String>, timeoutMilliseconds: Int,
        interrupt: Wake? = nil
    ) throws(PostgresError) -> [Result<Rows, PostgresError>] {
        if statements.isEmpty { return [] }
        // SAFETY: libpq calls on this object's own, living handle.
        guard unsafe PQenterPipelineMode(handle) == 1 else { throw connectionError("pipeline") }
        // The connection is non-blocking, so that a server that stops reading cannot block this thread beyond the
        // deadline.
        guard unsafe PQsetnonblocking(handle, 1) == 0 else { throw connectionError("pipeline") }
        var announced: Set<String> = []
        let sent = try statements.map { statement throws(PostgresError) in
            try send(statement, prepared: prepared, &announced)
        }
        var answers: [Result<Rows, PostgresError>] = []
        answers.reserveCapacity(statements.count)
        for (statement, sent) in zip(statements, sent) {
            let deadline = Clock.monotonicNanoseconds() + UInt64(timeoutMilliseconds) * 1_000_000
            answers.append(try receive(statement, sent, &prepared, deadline, interrupt))
        }
        // SAFETY: as above. Every result has been taken, so libpq lets the mode end.
        guard unsafe PQsetnonblocking(handle, 0) == 0, unsafe PQexitPipelineMode(handle) == 1 else {
            throw connectionError("pipeline")
        }
        return answers
    }

    private enum Sent {
        case nothing
        case statement
        /// A preparation is sent before the statement and has its own answer.
        case preparation
    }

    private func send(
        _ statement: PipelinedStatement, prepared: Set<String>, _ announced: inout Set<String>
    ) throws(PostgresError) -> Sent {
        // A C string ends at its first zero byte, so the rest of the parameter would be lost without an error.
        guard !statement.parameters.contains(where: { $0?.utf8.contains(0) ?? false }) else { return .nothing }
        let isNew = statement.name.map { !prepared.contains($0) && announced.insert($0).inserted } ?? false
        let copies = CStringArray(statement.parameters)
        let count = Int32(statement.parameters.count)
        // SAFETY: libpq copies statement and parameters inside these calls; the array holds as many as are announced.
        let isSent = withExtendedLifetime(copies) {
            guard let name = statement.name else {
                return unsafe PQsendQueryParams(handle, statement.sql, count, nil, copies.constant, nil, nil, 0) == 1
            }
            if isNew, unsafe PQsendPrepare(handle, name, statement.sql, 0, nil) != 1 { return false }
            return unsafe PQsendQueryPrepared(handle, name, count, copies.constant, nil, nil, 0) == 1
        }
        // SAFETY: the handle lives.
        guard isSent, unsafe PQpipelineSync(handle) == 1 else { throw connectionError("pipeline") }
        return isNew ? .preparation : .statement
    }

    private func receive(
        _ statement: PipelinedStatement, _ sent: Sent, _ prepared: inout Set<String>, _ deadline: UInt64,
        _ interrupt: Wake?
    ) throws(PostgresError) -> Result<Rows, PostgresError> {
        if case .nothing = sent { return .failure(Connection.zeroByte) }
        if case .preparation = sent, let name = statement.name {
            let preparation = try answer(statement.sql, deadline, interrupt)
            guard case .success = preparation else {
                // After the failed preparation, the server skips the statement up to the synchronization.
                _ = try answer(statement.sql, deadline, interrupt)
                try takeSynchronisation(deadline, interrupt)
                return preparation
            }
            prepared.insert(name)
        }
        let answer = try answer(statement.sql, deadline, interrupt)
        try takeSynchronisation(deadline, interrupt)
        return answer
    }

    /// Error as the server words it, for a text that contains a zero byte.
    private static let zeroByte = PostgresError(
        operation: "pipeline", sqlState: "22021", message: #"invalid byte sequence for encoding "UTF8": 0x00"#)

    /// Returns the answer to one statement, and reads the null result that ends it.
    private func answer(
        _ sql: String, _ deadline: UInt64, _ interrupt: Wake?
    ) throws(PostgresError) -> Result<Rows, PostgresError> {
        // SAFETY: the result is ours until it is cleared, here or in `rows`, and not used afterwards.
        guard let result = unsafe try nextResult(deadline, interrupt) else { throw connectionError("pipeline") }
        let isSkipped = unsafe PQresultStatus(result) == PGRES_PIPELINE_ABORTED
        let answer: Result<Rows, PostgresError>
        if isSkipped {
            unsafe PQclear(result)
            answer = .failure(PostgresError(operation: "pipeline", message: "not asked: preparing it failed"))
        } else {
            do throws(PostgresError) {
                answer = .success(unsafe try rows(result, sql))
            } catch {
                if error.isConnectionLost { throw error }
                answer = .failure(error)
            }
        }
        // SAFETY: a null result ends the command; there is nothing to clear.
        guard unsafe try nextResult(deadline, interrupt) == nil else { throw Connection.outOfStep }
        return answer
    }

    private func takeSynchronisation(_ deadline: UInt64, _ interrupt: Wake?) throws(PostgresError) {
        let result = unsafe try nextResult(deadline, interrupt)
        // SAFETY: the result is ours; a null one is no synchronisation and cleared without effect.
        defer { unsafe PQclear(result) }
        guard unsafe PQresultStatus(result) == PGRES_PIPELINE_SYNC else { throw Connection.outOfStep }
    }

    private static let outOfStep = PostgresError(
        operation: "pipeline", message: "answers out of step", isConnectionLost: true)

    func nextResult(_ deadline: UInt64, _ interrupt: Wake?) throws(PostgresError) -> OpaquePointer? {
        // SAFETY: libpq calls on this object's own, living handle.
        while true {
            let unsent = unsafe PQflush(handle)
            guard unsent >= 0 else { throw connectionError("pipeline") }
            if unsafe PQisBusy(handle) == 0 { return unsafe PQgetResult(handle) }
            let now = Clock.monotonicNanoseconds()
            let left = deadline > now ? Int32(clamping: (deadline - now) / 1_000_000 + 1) : 0
            let slice = isStillWanted == nil ? left : min(left, Connection.wantedMilliseconds)
            let ready = Poll.wait(
                socket: socket, forWriting: unsent == 1, interrupt: interrupt, timeoutMilliseconds: slice)
            if ready.interrupt { throw abandoned(Connection.interrupted("pipeline")) }
            if !ready.socket {
                if let isStillWanted, !isStillWanted() { throw abandoned(Connection.unwanted) }
                guard slice < left else { throw abandoned(Connection.late) }
                continue
            }
            // SAFETY: as above.
            guard unsafe PQconsumeInput(handle) == 1 else { throw connectionError("pipeline") }
        }
    }

    /// Milliseconds between two calls of `isStillWanted`.
    private static let wantedMilliseconds: Int32 = 100

    static let unwanted = PostgresError(
        operation: "pipeline", message: "nobody waits for the answer any more", isConnectionLost: true)

    private static let late = PostgresError(
        operation: "pipeline", message: "no answer in time", isConnectionLost: true)

    func abandoned(_ error: PostgresError) -> PostgresError {
        cancel()
        return error
    }
}
