import Asking
import Catalog
import Change
import Policy

/// Interface for asking PostgreSQL whether rows match filters that the hub cannot decide itself.
///
/// Any thread may call any method. Callbacks must not block.
public protocol FilterEvaluating: AnyObject, Sendable {
    /// Asks whether the row of each question matches its filter. `then` receives the answers in the order of the
    /// questions. Nil means unknown, which never counts as a match.
    func ask(_ batch: [JudgedQuestion], then: @escaping @Sendable ([Bool?]) -> Void)
    /// Converts the text of each value to the type that its column has now. `then` receives `absent` for a value that
    /// could not be converted.
    func convert(_ values: [ValueConversion], then: @escaping @Sendable ([ColumnText]) -> Void)
    func stop()
}

/// Interface for asking PostgreSQL about policies that the hub cannot decide itself: who may read rows, the values of
/// terms over claims, and the keys of memberships.
///
/// Any thread may call any method. Callbacks must not block. Unknown answers are nil or `unavailable`, and never count
/// as permission.
public protocol PolicyEvaluating: AnyObject, Sendable {
    /// Tells if there is a login that may run policies.
    var availability: PolicyAvailability { get }
    /// Asks who may read the rows of each question. `then` receives the answers in the order of the questions, once all
    /// are known. They include the effects of transaction `xid`.
    func ask(
        _ questions: [PolicyQuestion], seeing xid: UInt32?, then: @escaping @Sendable ([PolicyAnswers]) -> Void)
    /// Evaluates the terms for a role with its claims. `then` receives nil if PostgreSQL could not answer.
    func evaluate(
        _ terms: [AskedTerm], as subject: PolicySubject, then: @escaping @Sendable ([AskedTerm: AskedAnswer]?) -> Void)
    /// Reads the keys of each membership for its policy subject (role and claims). The keys include the effects of
    /// transaction `xid`.
    func fill(
        _ memberships: [(membership: Membership, subject: PolicySubject)], seeing xid: UInt32?,
        then: @escaping @Sendable ([MembershipFill]) -> Void)
    /// Asks whether a query on the table returns the row to a role with its claims. `then` receives nil if the question
    /// could not be asked.
    func look(
        _ sight: RowVisibilityQuestion, seeing xid: UInt32?, then: @escaping @Sendable (RowVisibilityAnswer?) -> Void)
    /// Computes generated columns. `then` receives values indexed by request, then by question, then by row.
    func compute(_ requests: [GenerationRequest], then: @escaping @Sendable ([[[GeneratedValue]]]) -> Void)
    func stop()
}

extension FilterEvaluator: FilterEvaluating {}
extension PolicyEvaluator: PolicyEvaluating {}
