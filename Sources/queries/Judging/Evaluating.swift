import Asking
import Catalog
import Change
import Policy

/// Evaluator that asks PostgreSQL about rows that the hub cannot decide by a filter.
///
/// Any thread may call any method. Callbacks must not block.
public protocol FilterEvaluating: AnyObject, Sendable {
    /// Asks whether the row of each question matches, in order. Nil means unknown, which never counts as yes.
    func ask(_ batch: [JudgedQuestion], then: @escaping @Sendable ([Bool?]) -> Void)
    /// Converts values to the present types of their columns; absent if the conversion could not be done.
    func convert(_ values: [ValueConversion], then: @escaping @Sendable ([ColumnText]) -> Void)
    func stop()
}

/// Evaluator that asks PostgreSQL for parts of policies that the hub cannot decide: who may read rows, the values of
/// terms over claims, and the keys of memberships.
///
/// Any thread may call any method. Callbacks must not block. Unknown answers are nil or unavailable, which never counts
/// as yes.
public protocol PolicyEvaluating: AnyObject, Sendable {
    /// Availability of a login that may run policies.
    var availability: PolicyAvailability { get }
    /// Asks the questions. `then` receives the answers in order, once all are known.
    func ask(
        _ questions: [PolicyQuestion], seeing xid: UInt32?, then: @escaping @Sendable ([PolicyAnswers]) -> Void)
    /// Evaluates the terms for the claimant; nil if that is not possible now.
    func evaluate(
        _ terms: [AskedTerm], as claimant: PolicySubject, then: @escaping @Sendable ([AskedTerm: AskedAnswer]?) -> Void)
    /// Reads the keys of each membership for its claimant. The keys include the transaction's effects.
    func fill(
        _ memberships: [(membership: Membership, claimant: PolicySubject)], seeing xid: UInt32?,
        then: @escaping @Sendable ([MembershipFill]) -> Void)
    /// Asks whether the table itself shows a row; nil if the question could not be asked.
    func look(_ sight: TableSight, seeing xid: UInt32?, then: @escaping @Sendable (SeenInTable?) -> Void)
    /// Computes generated columns. The values are listed by request, by question, and in the order of the rows.
    func compute(_ requests: [GenerationRequest], then: @escaping @Sendable ([[[GeneratedValue]]]) -> Void)
    func stop()
}

extension FilterEvaluator: FilterEvaluating {}
extension PolicyEvaluator: PolicyEvaluating {}
