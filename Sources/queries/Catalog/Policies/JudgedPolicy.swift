import Postgres
import Synchronization

/// Combined policies of a table in the form in which PostgreSQL evaluates them on rows, the same for all holders of a
/// role.
public final class JudgedPolicy: Sendable {
    let role: String
    /// Row type that PostgreSQL evaluates, given as its columns' texts in order.
    public let row: JudgedRow
    /// Oid of the table, for log lines.
    public let table: UInt32
    public let version: UInt64
    public let identity: UInt64
    public let loop: ClaimsScript

    private static let identities = Atomic<UInt64>(0)

    /// - Parameter sql: one boolean expression.
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

/// Role and claims for which PostgreSQL evaluates a policy.
public final class PolicySubject: Sendable {
    public let role: String
    /// Value of the setting `request.jwt.claims`, as PostgreSQL writes it.
    public let claims: String
    /// Number by which predicates know the claimant (`asker`).
    let identity: UInt32

    public init(role: String, claims: String, identity: UInt32) {
        self.role = role
        self.claims = claims
        self.identity = identity
    }
}

/// Question which claimants may read which rows.
public struct PolicyQuestion: Sendable {
    public var policy: JudgedPolicy
    /// Texts of the rows' columns; nil means NULL.
    public var rows: [[String?]]
    /// Claimants, all with the policy's role.
    public var claimants: [PolicySubject]

    public init(_ policy: JudgedPolicy, rows: [[String?]], claimants: [PolicySubject]) {
        precondition(rows.allSatisfy { $0.count == policy.row.columns.count }, "a row has a text for each column")
        precondition(claimants.allSatisfy { $0.role == policy.role }, "a policy is asked for holders of its role")
        self.policy = policy
        self.rows = rows
        self.claimants = claimants
    }

    public var pairCount: Int { rows.count * claimants.count }
    public var byteCount: Int {
        rows.reduce(0) { $0 + PolicyQuestion.bytes($1) } + 8 * claimants.count
    }

    public static func bytes(_ row: [String?]) -> Int { row.reduce(8) { $0 + ($1?.utf8.count ?? 0) } }
}

/// The answer for each row and claimant of a question.
public struct PolicyAnswers: Sendable {
    private let claimantCount: Int
    /// Version of the definitions for which PostgreSQL's session was opened; nil if they cannot change.
    private let definitions: DefinitionsVersion.Reading?
    private var answers: [Bool?]
    private var failed: Set<Int> = []

    /// Creates answers that are all unknown.
    public init(_ question: PolicyQuestion, by definitions: DefinitionsVersion.Reading? = nil) {
        self.definitions = definitions
        claimantCount = question.claimants.count
        answers = Array(repeating: nil, count: question.pairCount)
        assert(answers.count == question.rows.count * claimantCount, "each pair has its own answer")
    }

    /// Answer for a row and a claimant. Nil if PostgreSQL could not tell; that never counts as yes.
    public subscript(row: Int, claimant: Int) -> Bool? {
        get { answers[place(row, claimant)] }
        set { answers[place(row, claimant)] = newValue }
    }

    /// Records that the evaluation of the policy failed in PostgreSQL.
    public mutating func fail(_ row: Int, _ claimant: Int) {
        self[row, claimant] = nil
        failed.insert(place(row, claimant))
    }

    public func hasFailed(_ row: Int, _ claimant: Int) -> Bool { failed.contains(place(row, claimant)) }

    public var hasFailures: Bool { !failed.isEmpty }

    /// True if definitions have changed since the session was opened in which PostgreSQL failed.
    public var areOutdated: Bool { hasFailures && !areOfPresentDefinitions }

    private var areOfPresentDefinitions: Bool { definitions?.isCurrent ?? true }

    /// Makes the answers unknown on whose rows the policy failed, unless nothing else can be the reason: the policy and
    /// its table are as they were for the question, and so are all definitions since the session was opened.
    ///
    /// - Parameter snapshot: catalog that was read after the answers; nil if it could not be read.
    public mutating func forgetFailures(of policy: JudgedPolicy, unlessSameIn snapshot: CatalogSnapshot?) {
        let areSame = snapshot?.stillHas(policy) == true && areOfPresentDefinitions
        if !areSame { failed = [] }
    }

    /// Returns the index of the pair's answer. The checks prevent one claimant from getting another's answer.
    private func place(_ row: Int, _ claimant: Int) -> Int {
        assert(claimantCount > 0 && row < answers.count / claimantCount, "a row is of the question")
        precondition(row >= 0 && claimant >= 0 && claimant < claimantCount, "a pair is of the question")
        return row * claimantCount + claimant
    }

    public var unknownCount: Int { answers.count { $0 == nil } }
}
