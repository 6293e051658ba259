import Asking
import Catalog
import Change
import Diagnostics
import Policy
import Postgres

/// Evaluator of policies inside a transaction that the caller has begun and in which the caller has changed policies.
/// It shows what the changed policies would allow. It undoes each of its queries before the next.
public final class TrialJudge {
    private let session: PolicySession
    private var readRoles: Set<String> = []

    /// Creates the evaluator.
    /// - Parameter session: a session with an open transaction in which the policies are already changed.
    public init(_ session: PolicySession) { self.session = session }

    // MARK: Questions

    /// Evaluates the terms for a role with its claims, each in a query of its own. One failing term then does not
    /// affect the others.
    public func evaluate(
        _ terms: [AskedTerm], as subject: PolicySubject
    ) throws(PostgresError) -> [AskedTerm: AskedAnswer] {
        var answers: [AskedTerm: AskedAnswer] = [:]
        for term in terms {
            let loop = ClaimsScript(evaluating: [term], as: subject.role)
            switch try run(loop, [subject.claims], []) {
            case .failure: answers[term] = .failed
            case .success(let rows):
                // The function returns no row if all outputs are NULL.
                let row = rows.first
                answers[term] = row?[2] == nil ? .value(row?[3].map { Array($0.utf8) }) : .failed
            }
        }
        return answers
    }

    /// Reads the keys of a membership for a role with its claims. PostgreSQL reads as role `reader`, which is that role
    /// or a function's owner; nil means the session's role.
    public func fill(
        _ membership: Membership, as subject: PolicySubject, reader: String?
    ) throws(PostgresError) -> MembershipFill {
        let visible = try visibleTransactions()
        let limit = Limits.maximumMembershipKeys
        let loop = ClaimsScript(filling: membership.fillSQL, as: reader, limit: limit + 1)
        guard case .success(let rows) = try run(loop, [subject.claims], []) else { return .unreadable }
        if let state = rows.lazy.compactMap({ $0[2] }).first {
            let isOfTheClaimant = state == SQLState.insufficientPrivilege && membership.reader == .caller
            return !state.hasPrefix("42") || isOfTheClaimant ? .failed(sqlState: state) : .unreadable
        }
        guard rows.count <= limit else { return .unreadable }
        let keys = rows.map { row in
            FilledMembership.Key(text: row[3].map { Array($0.utf8) }, count: row[4].flatMap { Int($0) } ?? 0)
        }
        return .filled(FilledMembership(keys: keys, snapshot: visible.transactions, position: visible.position))
    }

    /// Returns, for each set of claims and each row, whether these claims may read the row under the policy. Nil means
    /// that the evaluation failed.
    public func judge(
        _ policy: JudgedPolicy, rows: [[String?]], claims: [String]
    ) throws(PostgresError) -> [[Bool?]] {
        let inputs = policy.row.columns.indices.map { column in rows.map { $0[column] } }
        var verdicts = [[Bool?]](repeating: Array(repeating: false, count: rows.count), count: claims.count)
        switch try run(policy.loop, claims, inputs) {
        case .failure: return verdicts.map { $0.map { _ in nil } }
        case .success(let answers):
            for answer in answers { Self.take(answer, into: &verdicts) }
            return verdicts
        }
    }

    private static func take(_ answer: [String?], into verdicts: inout [[Bool?]]) {
        guard let place = answer.place(after: 0), verdicts.indices.contains(place) else { return }
        let count = verdicts[place].count
        let element = answer[1].flatMap { Int($0) }
        if element == 0 || element == nil && answer[2] != nil && count == 1 {
            verdicts[place] = Array(repeating: nil, count: count)
        } else if let element {
            if (1...count).contains(element) {
                verdicts[place][element - 1] = answer[2] == nil ? answer[3] != nil : nil
            }
        } else if answer[2] == nil {
            for (row, letter) in zip(0..<count, (answer[3] ?? "").utf8) where letter == UInt8(ascii: "1") {
                verdicts[place][row] = true
            }
        }
    }

    // MARK: Queries

    private func visibleTransactions() throws(PostgresError) -> (transactions: VisibleTransactions, position: LSN) {
        let answers = try session.pipeline([PipelinedStatement(VisibleTransactions.question), PolicySession.position])
        guard let transactions = VisibleTransactions(try answers[0].get()),
            let position = try answers[1].get().first?.first.flatMap({ $0.flatMap { LSN($0) } })
        else { throw PolicySession.unreadable }
        return (transactions, position)
    }

    private func run(
        _ loop: ClaimsScript, _ claims: [String], _ inputs: [[String?]]
    ) throws(PostgresError) -> Result<[[String?]], PostgresError> {
        precondition(
            inputs.count == loop.inputCount && !claims.isEmpty, "a loop is asked with its inputs, for somebody")
        if let role = loop.role, !readRoles.contains(role) {
            guard try session.readSurroundings(of: role) else { return .failure(Self.noSuchRole) }
            readRoles.insert(role)
        }
        let parameters = (0...loop.inputCount).map { "CAST($\($0 + 1) AS pg_catalog.text[])" }
        let call = PipelinedStatement(
            "SELECT * FROM pg_temp.tidewire_trial(\(parameters.joined(separator: ", ")))",
            [TextArray.literal(claims[...])] + inputs.map { TextArray.literal($0) })
        let answers = try session.pipeline([
            PipelinedStatement("SAVEPOINT tidewire_trial"),
            PipelinedStatement(loop.function(named: "tidewire_trial")),
            try session.surroundingsStatement(loop.role), call,
            PipelinedStatement("ROLLBACK TO SAVEPOINT tidewire_trial"),
            PipelinedStatement("RELEASE SAVEPOINT tidewire_trial"),
        ])
        for case .failure(let error) in answers { return .failure(error) }
        return answers[3].map(\.values)
    }

    private static let noSuchRole = PostgresError(
        operation: "policies", sqlState: PolicySession.noSuchRole, message: "there is no such role")
}
