import Catalog
import Change
import Diagnostics
import Policy

/// Keys of a membership as PostgreSQL read them for one claimant.
public enum MembershipFill: Sendable {
    case filled(FilledMembership)
    /// PostgreSQL refuses to read the keys for this claimant and would refuse again, for a missing privilege or invalid
    /// claims.
    case failed(sqlState: String)
    /// Too many keys, or no login with which the hub can read the keys; neither depends on the claimant. PostgreSQL must
    /// then decide on each row.
    case unreadable
    /// The keys could not be read now.
    case unavailable

    /// True if PostgreSQL would not give the keys if it was asked again.
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
    /// Transactions whose effects the keys include, and no others.
    public var snapshot: VisibleTransactions
    /// Position of the database's log at some moment after the snapshot.
    public var position: LSN

    public init(keys: [Key], snapshot: VisibleTransactions, position: LSN) {
        self.keys = keys
        self.snapshot = snapshot
        self.position = position
    }

    /// Returns the keys as policies read them: unknown if they are more than the hub keeps.
    public func keys(of membership: Membership) -> MembershipKeys {
        guard keys.count <= Limits.maximumMembershipKeys else {
            return MembershipKeys(keys: [], hasNull: false, hasRows: false, isUnknown: true)
        }
        let present = keys.filter { $0.count > 0 }
        // A membership without a key says only that there is a row.
        let hasKey = membership.keySlot != nil
        return MembershipKeys(
            keys: hasKey ? present.compactMap(\.text).sorted { $0.lexicographicallyPrecedes($1) } : [],
            hasNull: hasKey && present.contains { $0.text == nil }, hasRows: !present.isEmpty)
    }
}

/// One row, one claimant, and expressions over the row, for an operator's explanation.
public struct PolicyExplanation: Sendable {
    var row: JudgedRow
    /// Texts of the row's columns.
    var texts: [String?]
    var claimant: PolicySubject
    var expressions: [String]

    public init(row: JudgedRow, texts: [String?], claimant: PolicySubject, expressions: [String]) {
        precondition(texts.count == row.columns.count, "a row has a text for each column")
        self.row = row
        self.texts = texts
        self.claimant = claimant
        self.expressions = expressions
    }

    var byteCount: Int {
        PolicyQuestion.bytes(texts) + expressions.reduce(0) { $0 + $1.utf8.count } + claimant.claims.utf8.count
    }
}

public enum ExplainedValue: Sendable, Equatable {
    /// Value as text; nil means NULL.
    case value(String?)
    /// Error in PostgreSQL's own words.
    case failed(sqlState: String, message: String)
}
