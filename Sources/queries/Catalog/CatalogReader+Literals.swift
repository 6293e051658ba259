import Policy
import Postgres

/// Conversion of literals in filters from the texts that clients write to the texts that PostgreSQL writes.
extension CatalogReader {
    /// Returns the converted text of each literal, or PostgreSQL's error for it. One failing literal does not affect
    /// the others.
    func canonical(_ literals: Set<Literal>) throws(PostgresError) -> [Literal: Result<String, FilterRefusal>] {
        let literals = Array(literals)
        let answers = try ask(literals.map { PipelinedStatement($0.sql, [$0.text]) })
        var texts: [Literal: Result<String, FilterRefusal>] = [:]
        for (literal, answer) in zip(literals, answers) { texts[literal] = CatalogReader.text(literal, answer) }
        return texts
    }

    /// Returns the outcomes of requests whose drafts only lack the converted texts of their literals.
    func outcomes(
        of drafts: [BindingRequest: [BindingDraft]]
    ) throws(PostgresError) -> [BindingRequest: BindingOutcome] {
        let answers = try canonical(Set(drafts.values.joined().flatMap(\.literals)))
        return drafts.mapValues { drafts in
            BindingDraft.outcome(
                drafts, drafts.map { $0.literals.map { answers[$0] ?? .failure(BindingDraft.unanswered) } })
        }
    }

    private static func text(
        _ literal: Literal, _ answer: Result<Rows, PostgresError>
    ) -> Result<String, FilterRefusal> {
        switch answer {
        case .success(let rows):
            guard let text = rows.first?.first ?? nil else { return .failure(BindingDraft.unanswered) }
            return .success(text)
        case .failure(let error):
            let state = error.sqlState ?? "XX000"
            return .failure(
                literal.refusal(
                    sqlState: state, condition: SQLCondition.name(of: state), message: error.message))
        }
    }
}
