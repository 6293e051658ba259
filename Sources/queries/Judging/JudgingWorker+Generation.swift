import Asking
import Catalog
import Diagnostics
import Policy
import Postgres
import System

/// Computation of generated columns on the rows of changes.
extension JudgingWorker {
    func generated(_ batch: JudgingBatch, _ connection: JudgingConnection) throws(PostgresError) -> () -> Void {
        var answers: [[[GeneratedValue]]] = []
        let deadline = Clock.monotonicNanoseconds() + Limits.policyBatchPatience.wholeNanoseconds
        for job in batch.jobs {
            guard case .generation(let request, _) = job.work else { continue }
            var values: [[GeneratedValue]] = []
            for question in request.questions {
                if Clock.monotonicNanoseconds() > deadline { pace.penalise(batch.key, Clock.monotonicNanoseconds()) }
                values.append(try computed(question, request, batch.key, connection))
            }
            answers.append(values)
        }
        assert(answers.count == batch.jobs.count, "each request is answered")
        let found = answers
        return {
            for (job, values) in zip(batch.jobs, found) {
                if case .generation(_, let reply) = job.work { reply.give(values) }
            }
        }
    }

    /// Computes the column in the first role that can compute any of the rows.
    private func computed(
        _ question: GenerationQuestion, _ request: GenerationRequest, _ key: JudgingKey, _ connection: JudgingConnection
    ) throws(PostgresError) -> [GeneratedValue] {
        var values = [GeneratedValue](repeating: .failed, count: question.rows.count)
        for role in request.roles.prefix(Limits.maximumGenerationRoles) {
            guard !pace.isPenalised(key, Clock.monotonicNanoseconds()) else { break }
            values = try computed(question, as: role, request.table, key, connection)
            if values.contains(where: { $0 != .failed }) { break }
        }
        return values
    }

    private func computed(
        _ question: GenerationQuestion, as role: String, _ table: UInt32, _ key: JudgingKey,
        _ connection: JudgingConnection
    ) throws(PostgresError) -> [GeneratedValue] {
        var values: [GeneratedValue] = []
        while values.count < question.rows.count {
            let rows = question.rows[values.count...].fitting(
                Limits.policyStatementRows, within: Limits.policyStatementBytes, PolicyQuestion.bytes)
            let began = Clock.monotonicNanoseconds()
            let computed = try connection.compute(question.column, Array(rows), as: role)
            metrics.policyStatementSeconds.record(.nanoseconds(Clock.monotonicNanoseconds() - began))
            guard let computed else {
                Log.shared.warning(
                    "PostgreSQL takes too long to compute a generated column: changes lack the column for a while",
                    [.oid(table), .delay(Limits.policyPenalty)])
                pace.penalise(key, Clock.monotonicNanoseconds())
                return values + Array(repeating: .failed, count: question.rows.count - values.count)
            }
            assert(computed.count == rows.count, "each row has its own value, or none")
            values += computed
            // If many rows fail, the other rows are assumed to fail too.
            if rows.count >= Limits.generationRowsTried, !computed.contains(where: { $0 != .failed }) {
                return values + Array(repeating: .failed, count: question.rows.count - values.count)
            }
        }
        return values
    }
}

extension JudgingConnection {
    /// Returns the column's value for each row; nil after a timeout. If the rows fail together, they are computed
    /// separately, so that a failing row does not affect others.
    func compute(
        _ column: GeneratedColumn, _ rows: [[String?]], as role: String
    ) throws(PostgresError) -> [GeneratedValue]? {
        guard let together = try computeParts([rows], column, role).first else { return nil }
        switch together {
        case .values(let values): return values
        case .tooSlow: return rows.count > 1 ? try computeSmaller(column, rows, role) : nil
        case .failed: return rows.count > 1 ? try computeEach(column, rows, role) : [.failed]
        }
    }

    /// Computes the rows in smaller parts after a timeout. Returns nil if a part times out too: all changes wait for
    /// the result, so it is not tried again.
    private func computeSmaller(
        _ column: GeneratedColumn, _ rows: [[String?]], _ role: String
    ) throws(PostgresError) -> [GeneratedValue]? {
        var values: [GeneratedValue] = []
        var size = 1
        while values.count < rows.count {
            let part = Array(rows[values.count...].prefix(size))
            guard let outcome = try computeParts([part], column, role).first else { return nil }
            switch outcome {
            case .values(let found): values += found
            case .failed:
                guard let found = try computeEach(column, part, role) else { return nil }
                values += found
            case .tooSlow: return nil
            }
            size = Limits.generationRowsTried
        }
        return values
    }

    private func computeEach(
        _ column: GeneratedColumn, _ rows: [[String?]], _ role: String
    ) throws(PostgresError) -> [GeneratedValue]? {
        var values: [GeneratedValue] = []
        while values.count < rows.count {
            let part = rows[values.count...].prefix(Limits.generationRowsTried)
            for outcome in try computeParts(part.map { [$0] }, column, role) {
                switch outcome {
                case .values(let found): values += found
                case .failed: values.append(.failed)
                case .tooSlow: return nil
                }
            }
            let isHopeless = !values.contains { $0 != .failed }
            if isHopeless { values += Array(repeating: .failed, count: rows.count - values.count) }
        }
        return values
    }

    private enum PartOutcome {
        case values([GeneratedValue])
        case failed
        case tooSlow
    }

    /// Computes the column for each range of rows in a savepoint of its own, as the role, with the settings that the
    /// replication stream uses. All ranges run in one read-only transaction that is rolled back.
    private func computeParts(
        _ parts: [[[String?]]], _ column: GeneratedColumn, _ role: String
    ) throws(PostgresError) -> [PartOutcome] {
        let sql = column.statement
        let statements = parts.flatMap { rows in
            [JudgingConnection.save, JudgingConnection.generationSettings(role)]
                + [PipelinedStatement(sql, JudgingConnection.parameters(column, rows)), JudgingConnection.undo]
        }
        let answers = try session.pipeline(
            [JudgingConnection.begin] + statements + [JudgingConnection.end, PolicySession.clean])
        guard try session.isClean(answers.last) else { return parts.map { _ in .failed } }
        precondition(answers.count == parts.count * 4 + 3, "each part has its four statements")
        return parts.enumerated().map { index, rows in
            JudgingConnection.outcome(answers[1 + index * 4 + 1], answers[1 + index * 4 + 2], rows.count)
        }
    }

    private static func generationSettings(_ role: String) -> PipelinedStatement {
        PipelinedStatement(
            """
            SELECT pg_catalog.set_config('search_path', 'pg_catalog', true),
                pg_catalog.set_config('TimeZone', 'UTC', true), pg_catalog.set_config('request.jwt.claims', '', true),
                pg_catalog.set_config('role', $1, true)
            """, [role], preparedAs: "generation_settings")
    }

    private static func parameters(_ column: GeneratedColumn, _ rows: [[String?]]) -> [String?] {
        [TextArray.literal(rows.indices.map { String($0) })]
            + column.inputs.indices.map { input in TextArray.literal(rows.map { $0[input] }) }
    }

    private static func outcome(
        _ settings: Result<Rows, PostgresError>, _ answer: Result<Rows, PostgresError>, _ count: Int
    ) -> PartOutcome {
        guard case .success = settings else { return .failed }
        switch answer {
        case .success(let rows):
            var values = [GeneratedValue](repeating: .failed, count: count)
            for row in rows.values {
                guard row.count == 2, let place = row[0].flatMap({ Int($0) }), values.indices.contains(place) else {
                    Impossible.happened("a value is of a row that was asked about", in: .judging)
                    return .failed
                }
                values[place] = row[1].map { .text($0) } ?? .null
            }
            return .values(values)
        case .failure(let error): return error.sqlState == SQLState.queryCanceled ? .tooSlow : .failed
        }
    }
}
