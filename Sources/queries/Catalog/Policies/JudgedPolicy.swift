import Synchronization

/// A table's policies, combined, as PostgreSQL is asked about rows under them: the same for all holders of a role.
public final class JudgedPolicy: Sendable {
    let role: String
    /// As what a row is asked about: by its columns' texts, in their order.
    public let row: JudgedRow
    /// The table, for log lines.
    public let table: UInt32
    public let version: UInt64
    public let identity: UInt64
    public let loop: ClaimsScript

    private static let identities = Atomic<UInt64>(0)

    /// `sql` is one boolean expression.
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

/// Who asks: a role and the claims that are set for it.
public final class Claimant: Sendable {
    public let role: String
    /// What `request.jwt.claims` is set to, as PostgreSQL writes it.
    public let claims: String
    /// What predicates know it by (`asker`).
    let identity: UInt32

    public init(role: String, claims: String, identity: UInt32) {
        self.role = role
        self.claims = claims
        self.identity = identity
    }
}

/// Which of these may read which of those rows?
public struct PolicyQuestion: Sendable {
    public var policy: JudgedPolicy
    /// The texts of the row's columns, nil is NULL.
    public var rows: [[String?]]
    /// They have the policy's role.
    public var claimants: [Claimant]

    public init(_ policy: JudgedPolicy, rows: [[String?]], claimants: [Claimant]) {
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
public struct PolicyAnswers: Sendable, Equatable {
    private let claimantCount: Int
    private var answers: [Bool?]
    private var failed: Set<Int> = []

    /// Nothing is known.
    public init(_ question: PolicyQuestion) {
        claimantCount = question.claimants.count
        answers = Array(repeating: nil, count: question.pairCount)
        assert(answers.count == question.rows.count * claimantCount, "each pair has its own answer")
    }

    /// Nil where it could not be found out, which is never yes.
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

    /// Nobody has another's answer.
    private func place(_ row: Int, _ claimant: Int) -> Int {
        assert(claimantCount > 0 && row < answers.count / claimantCount, "a row is of the question")
        precondition(row >= 0 && claimant >= 0 && claimant < claimantCount, "a pair is of the question")
        return row * claimantCount + claimant
    }

    public var unknownCount: Int { answers.count { $0 == nil } }
}
