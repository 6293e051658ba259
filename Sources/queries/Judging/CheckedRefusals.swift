import Catalog
import Policy

/// Questions to PostgreSQL whose refusals the hub checks against the catalog. A refusal counts only if no table,
/// function or policy was changed between the question and the answer. Otherwise a table renamed for a moment would
/// cause a refusal that lasts as long as the client stays connected.
extension PolicyEvaluating {
    /// Evaluates the terms for a role with its claims. `then` receives nil if PostgreSQL could not answer, or if it
    /// refused while definitions changed.
    public func evaluate(
        _ terms: [AskedTerm], as subject: PolicySubject, checkedBy catalog: any CatalogSource,
        then: @escaping @Sendable ([AskedTerm: AskedAnswer]?) -> Void
    ) {
        let areCurrent = catalog.watchDefinitions()
        evaluate(terms, as: subject) { answers in
            guard answers?.values.contains(.failed) == true else { return then(answers) }
            catalog.refresh(seeing: nil) { then($0 != nil && areCurrent() ? answers : nil) }
        }
    }

    /// Reads the keys of each membership for its policy subject (role and claims). Refusals become `unavailable` if
    /// definitions changed during the question.
    public func fill(
        _ memberships: [(membership: Membership, subject: PolicySubject)], checkedBy catalog: any CatalogSource,
        then: @escaping @Sendable ([MembershipFill]) -> Void
    ) {
        let areCurrent = catalog.watchDefinitions()
        fill(memberships, seeing: nil) { answers in
            guard answers.contains(where: \.isRefusal) else { return then(answers) }
            catalog.refresh(seeing: nil) { snapshot in
                if snapshot != nil, areCurrent() { return then(answers) }
                then(answers.map { $0.isRefusal ? .unavailable : $0 })
            }
        }
    }
}
