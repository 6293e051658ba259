import Asking
import Catalog
import Change
import Policy

/// Has PostgreSQL decide on rows that a filter alone cannot decide on.
///
/// It may be called from any thread. Whoever takes an answer must not wait for anything.
public protocol FilterEvaluating: AnyObject, Sendable {
    /// For each question, in order, whether the row matches; nil where that could not be found out, which is never yes.
    func ask(_ batch: [JudgedQuestion], then: @escaping @Sendable ([Bool?]) -> Void)
    /// The values in the types that their columns have now; absent where that could not be found out.
    func convert(_ values: [ValueConversion], then: @escaping @Sendable ([ColumnText]) -> Void)
    func stop()
}

/// Has PostgreSQL decide what only it can of policies: who may read rows, what claims mean, who is a member.
///
/// It may be called from any thread. Whoever takes an answer must not wait for anything. What could not be found out is nil
/// or unavailable, which is never yes.
public protocol PolicyEvaluating: AnyObject, Sendable {
    /// Whether there is a login that may run policies.
    var availability: PolicyAvailability { get }
    /// For each question its answers, once all are known.
    func ask(
        _ questions: [PolicyQuestion], seeing xid: UInt32?, then: @escaping @Sendable ([PolicyAnswers]) -> Void)
    /// What the terms are for the claimant; nil where they could not be evaluated now.
    func evaluate(
        _ terms: [AskedTerm], as claimant: Claimant, then: @escaping @Sendable ([AskedTerm: AskedAnswer]?) -> Void)
    /// The keys of each membership for its claimant. They hold what the transaction did.
    func fill(
        _ memberships: [(membership: Membership, claimant: Claimant)], seeing xid: UInt32?,
        then: @escaping @Sendable ([MembershipFill]) -> Void)
    /// What the table itself shows of a row; nil where it could not be asked.
    func look(_ sight: TableSight, seeing xid: UInt32?, then: @escaping @Sendable (SeenInTable?) -> Void)
    /// The values of generated columns: of each request, for each of its questions in the order of the rows.
    func compute(_ requests: [GenerationRequest], then: @escaping @Sendable ([[[GeneratedValue]]]) -> Void)
    func stop()
}

extension FilterEvaluator: FilterEvaluating {}
extension PolicyEvaluator: PolicyEvaluating {}
