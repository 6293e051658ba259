import Postgres
import Synchronization

/// Combined policies of a table for a role, in the form in which PostgreSQL evaluates them on rows.
public final class JudgedPolicy: Sendable {
    let role: String
    /// Row type of the table. PostgreSQL builds rows of it from the texts of their columns.
    public let row: JudgedRow
    /// Oid of the table, for log lines.
    public let table: UInt32
    /// Version of the catalog snapshot in which the hub's policies last changed; for log lines.
    public let version: UInt64
    /// Number that no other object of this type has; jobs about the same policy are grouped by it.
    public let identity: UInt64
    /// Script with which PostgreSQL evaluates the policies for many sets of claims.
    public let loop: ClaimsScript

    private static let identities = Atomic<UInt64>(0)

    /// Creates the policy.
    ///
    /// - Parameter sql: one boolean SQL expression that combines all policies.
    init(role: String, row: JudgedRow, table: UInt32, sql: String, version: UInt64) {
        precondition(!sql.isEmpty, "an empty text decides nothing")
        self.role = role
        self.row = row
        self.table = table
        self.version = version
        identity = JudgedPolicy.identities.add(1, ordering: .relaxed).newValue
        loop = ClaimsScript(judging: sql, row, as: role)
    }
}

/// Role and claims for which PostgreSQL evaluates policies.
public final class PolicySubject: Sendable {
    public let role: String
    /// Claims as the text of the setting `request.jwt.claims`.
    public let claims: String
    /// Number by which predicates refer to this role and its claims (`asker`).
    let identity: UInt32

    public init(role: String, claims: String, identity: UInt32) {
        self.role = role
        self.claims = claims
        self.identity = identity
    }
}

/// Question which of the policy subjects (role and claims) may read which of the rows.
public struct PolicyQuestion: Sendable {
    public var policy: JudgedPolicy
    /// Rows that the question is about, each as the texts of its columns; nil means NULL.
    public var rows: [[String?]]
    /// Policy subjects that the question asks about. All have the role of the policy.
    public var subjects: [PolicySubject]

    public init(_ policy: JudgedPolicy, rows: [[String?]], subjects: [PolicySubject]) {
        precondition(rows.allSatisfy { $0.count == policy.row.columns.count }, "a row has a text for each column")
        precondition(subjects.allSatisfy { $0.role == policy.role }, "a policy is asked for holders of its role")
        self.policy = policy
        self.rows = rows
        self.subjects = subjects
    }

    public var pairCount: Int { rows.count * subjects.count }
    public var byteCount: Int {
        rows.reduce(0) { $0 + PolicyQuestion.bytes($1) } + 8 * subjects.count
    }

    public static func bytes(_ row: [String?]) -> Int { row.reduce(8) { $0 + ($1?.utf8.count ?? 0) } }
}

/// Answers to a `PolicyQuestion`, one for each row and policy subject.
public struct PolicyAnswers: Sendable {
    private let subjectCount: Int
    /// Version of the definitions when PostgreSQL's session was opened; nil if they cannot change.
    private let definitions: DefinitionsVersion.Reading?
    private var answers: [Bool?]
    private var failed: Set<Int> = []

    /// Creates answers that are all unknown.
    public init(_ question: PolicyQuestion, by definitions: DefinitionsVersion.Reading? = nil) {
        self.definitions = definitions
        subjectCount = question.subjects.count
        answers = Array(repeating: nil, count: question.pairCount)
        assert(answers.count == question.rows.count * subjectCount, "each pair has its own answer")
    }

    /// True if the policy subject with index `subject` may read the row. Nil means unknown, which never counts as
    /// permission.
    public subscript(row: Int, subject: Int) -> Bool? {
        get { answers[place(row, subject)] }
        set { answers[place(row, subject)] = newValue }
    }

    /// Records that PostgreSQL failed to evaluate the policy on the row for the policy subject.
    public mutating func fail(_ row: Int, _ subject: Int) {
        self[row, subject] = nil
        failed.insert(place(row, subject))
    }

    public func hasFailed(_ row: Int, _ subject: Int) -> Bool { failed.contains(place(row, subject)) }

    public var hasFailures: Bool { !failed.isEmpty }

    /// True if PostgreSQL failed on some row and definitions have changed since its session was opened.
    public var areOutdated: Bool { hasFailures && !areOfPresentDefinitions }

    private var areOfPresentDefinitions: Bool { definitions?.isCurrent ?? true }

    /// Turns recorded failures into plain unknown answers if a change may have caused them. A failure remains recorded
    /// only if the policy, its table and all definitions are still the same.
    ///
    /// - Parameter snapshot: a catalog snapshot that was read after the answers; nil if the catalog could not be read.
    public mutating func forgetFailures(of policy: JudgedPolicy, unlessSameIn snapshot: CatalogSnapshot?) {
        let areSame = snapshot?.stillHas(policy) == true && areOfPresentDefinitions
        if !areSame { failed = [] }
    }

    /// Returns the index of the answer for this row and policy subject. The checks prevent one subject from receiving
    /// another's answer.
    private func place(_ row: Int, _ subject: Int) -> Int {
        assert(subjectCount > 0 && row < answers.count / subjectCount, "a row is of the question")
        precondition(row >= 0 && subject >= 0 && subject < subjectCount, "a pair is of the question")
        return row * subjectCount + subject
    }

    public var unknownCount: Int { answers.count { $0 == nil } }
}
