import Catalog
import Policy

/// Questions whose refusals count only if definitions stayed the same from the question to the answer. A table or
/// function that has another name for a moment must not decide for as long as a client stays.
extension PolicyEvaluating {
    /// Evaluates the terms for the claimant; nil if that is not possible now.
    public func evaluate(
        _ terms: [AskedTerm], as claimant: PolicySubject, checkedBy catalog: any CatalogSource,
        then: @escaping @Sendable ([AskedTerm: AskedAnswer]?) -> Void
    ) {
        let areCurrent = catalog.watchDefinitions()
        evaluate(terms, as: claimant) { answers in
            guard answers?.values.contains(.failed) == true else { return then(answers) }
            catalog.refresh(seeing: nil) { then($0 != nil && areCurrent() ? answers : nil) }
        }
    }

    /// Reads the keys of each membership for its claimant.
    public func fill(
        _ memberships: [(membership: Membership, claimant: PolicySubject)], checkedBy catalog: any CatalogSource,
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
