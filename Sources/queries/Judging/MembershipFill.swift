import Catalog
import Change
import Diagnostics
import Policy

/// Result of reading a membership's keys for one role with its claims.
public enum MembershipFill: Sendable {
    case filled(FilledMembership)
    /// PostgreSQL refuses to read the keys for this role with its claims, because a privilege is missing or the claims
    /// are invalid. It would refuse again.
    case failed(sqlState: String)
    /// The hub cannot keep or read the keys: there are too many, or no login may read them. PostgreSQL must decide on
    /// each row instead.
    case unreadable
    /// PostgreSQL could not answer now. A later attempt may succeed.
    case unavailable

    /// True if PostgreSQL would not return the keys if asked again.
    var isRefusal: Bool {
        switch self {
        case .failed, .unreadable: true
        case .filled, .unavailable: false
        }
    }
}

public struct FilledMembership: Sendable {
    public struct Key: Sendable, Hashable {
        /// Text of the key; nil means NULL.
        public var text: [UInt8]?
        /// Number of rows that have the key.
        public var count: Int

        public init(text: [UInt8]?, count: Int) {
            self.text = text
            self.count = count
        }
    }

    public var keys: [Key]
    /// Snapshot with which PostgreSQL read the keys: they include exactly the effects of its transactions.
    public var snapshot: VisibleTransactions
    /// Position in PostgreSQL's WAL at some moment after the snapshot was taken.
    public var position: LSN

    public init(keys: [Key], snapshot: VisibleTransactions, position: LSN) {
        self.keys = keys
        self.snapshot = snapshot
        self.position = position
    }

    /// Converts the keys to the form that policies read. They are marked unknown if there are more than the hub keeps.
    public func keys(of membership: Membership) -> MembershipKeys {
        guard keys.count <= Limits.maximumMembershipKeys else {
            return MembershipKeys(keys: [], hasNull: false, hasRows: false, isUnknown: true)
        }
        let present = keys.filter { $0.count > 0 }
        // For a membership without a key column it matters only if there is a row.
        let hasKey = membership.keySlot != nil
        return MembershipKeys(
            keys: hasKey ? present.compactMap(\.text).sorted { $0.lexicographicallyPrecedes($1) } : [],
            hasNull: hasKey && present.contains { $0.text == nil }, hasRows: !present.isEmpty)
    }
}

/// Request of an operator to evaluate expressions for one row and one role with its claims.
public struct PolicyExplanation: Sendable {
    var row: JudgedRow
    /// Texts of the row's columns.
    var texts: [String?]
    var subject: PolicySubject
    var expressions: [String]

    public init(row: JudgedRow, texts: [String?], subject: PolicySubject, expressions: [String]) {
        precondition(texts.count == row.columns.count, "a row has a text for each column")
        self.row = row
        self.texts = texts
        self.subject = subject
        self.expressions = expressions
    }

    var byteCount: Int {
        PolicyQuestion.bytes(texts) + expressions.reduce(0) { $0 + $1.utf8.count } + subject.claims.utf8.count
    }
}

public enum ExplainedValue: Sendable, Equatable {
    /// Value as text; nil means NULL.
    case value(String?)
    /// Error in PostgreSQL's own words.
    case failed(sqlState: String, message: String)
}
