import Synchronization

/// A table's policies, combined, as PostgreSQL is asked about rows under them: the same for all holders of a role.
final class JudgedPolicy: Sendable {
    let role: String
    /// As what a row is asked about: by its columns' texts, in their order.
    let row: JudgedRow
    /// The table, for log lines.
    let table: UInt32
    let version: UInt64
    let identity: UInt64
    let loop: ClaimsLoop

    private static let identities = Atomic<UInt64>(0)

    /// `sql` is one boolean expression.
    init(role: String, row: JudgedRow, table: UInt32, sql: String, version: UInt64) {
        self.role = role
        self.row = row
        self.table = table
        self.version = version
        identity = JudgedPolicy.identities.add(1, ordering: .relaxed).newValue
        loop = ClaimsLoop(judging: sql, row, as: role)
    }
}

/// Who asks: a role and the claims that are set for it.
final class Claimant: Sendable {
    let role: String
    /// What `request.jwt.claims` is set to, as PostgreSQL writes it.
    let claims: String
    /// What predicates know it by (`asker`).
    let identity: UInt32

    init(role: String, claims: String, identity: UInt32) {
        self.role = role
        self.claims = claims
        self.identity = identity
    }
}

/// Which of these may read which of those rows?
struct PolicyQuestion: Sendable {
    var policy: JudgedPolicy
    /// The texts of the row's columns, nil is NULL.
    var rows: [[String?]]
    /// They have the policy's role.
    var claimants: [Claimant]

    init(_ policy: JudgedPolicy, rows: [[String?]], claimants: [Claimant]) {
        precondition(rows.allSatisfy { $0.count == policy.row.columns.count }, "a row has a text for each column")
        precondition(claimants.allSatisfy { $0.role == policy.role }, "a policy is asked for holders of its role")
        self.policy = policy
        self.rows = rows
        self.claimants = claimants
    }

    var pairCount: Int { rows.count * claimants.count }
    var byteCount: Int {
        rows.reduce(0) { $0 + PolicyQuestion.bytes($1) } + 8 * claimants.count
    }

    static func bytes(_ row: [String?]) -> Int { row.reduce(8) { $0 + ($1?.utf8.count ?? 0) } }
}

/// The answer for each row and claimant of a question.
struct PolicyAnswers: Sendable, Equatable {
    private let claimantCount: Int
    private var answers: [Bool?]

    /// Nothing is known.
    init(_ question: PolicyQuestion) {
        claimantCount = question.claimants.count
        answers = Array(repeating: nil, count: question.pairCount)
    }

    /// Nil where it could not be found out, which is never yes.
    subscript(row: Int, claimant: Int) -> Bool? {
        get { answers[row * claimantCount + claimant] }
        set { answers[row * claimantCount + claimant] = newValue }
    }

    var unknownCount: Int { answers.count { $0 == nil } }
}
