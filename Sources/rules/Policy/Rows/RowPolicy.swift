/// Combined and compiled policies of a table for a role, which decide the rows that the role may read. All holders of
/// the role share one value.
public struct RowPolicy: Sendable, Hashable {
    /// Condition: one of the permissive policies AND all restrictive ones. It includes the policies of membership
    /// tables.
    public var term: Term

    public init(_ term: Term) { self.term = term }

    /// Policy that only PostgreSQL can decide.
    public static let undecided = RowPolicy(.undecided)

    /// True if the same row and claims always give the same result, because the policy reads neither a clock nor other
    /// tables.
    public var isSteady: Bool {
        var isSteady = !term.readsClock
        term.visit { if case .member = $0 { isSteady = false } }
        return isSteady
    }
}

/// PostgreSQL's value of an `AskedTerm` for one holder.
public enum AskedAnswer: Sendable, Hashable {
    /// Text of the value; nil for NULL.
    case value([UInt8]?)
    /// PostgreSQL failed to evaluate the term, and would fail for every row.
    case failed
}

public enum ResidualOutcome: Sendable {
    /// PostgreSQL must first evaluate these terms.
    case needs([AskedTerm])
    case residual(Residual)
}

/// Part of a policy that is left for one holder after its claims are inserted: a term over the row and memberships.
public struct Residual: Sendable, Hashable {
    public var term: Term
    /// Memberships in the term. Their keys must be read before the predicate can be made.
    public var memberships: [HeldMembership]
    /// True if only PostgreSQL can decide some or all rows.
    public var mayAsk: Bool

    public init(term: Term, memberships: [HeldMembership], mayAsk: Bool) {
        self.term = term
        self.memberships = memberships
        self.mayAsk = mayAsk
    }

    /// Residual that only PostgreSQL can decide.
    public static let undecided = Residual(term: .undecided, memberships: [], mayAsk: true)
}

/// Membership for one holder, with its claims inserted. Holders whose value is equal have the same keys.
public struct HeldMembership: Sendable, Hashable {
    public var membership: Membership
    /// Predicate that selects the rows of the membership's table that count for this holder.
    public var rows: Predicate
}

/// Keys that one holder has through a membership.
public struct MembershipKeys: Sendable, Hashable {
    /// Texts of the keys, canonical and sorted, without duplicates.
    public var keys: [[UInt8]]
    /// True if some row's key is NULL.
    public var hasNull: Bool
    /// True if the membership has any row.
    public var hasRows: Bool
    /// True if PostgreSQL refuses to read the keys and would refuse again. The policy then fails where it needs them.
    public var hasFailed: Bool
    /// True if the keys are unknown or too many, so that only PostgreSQL can decide.
    public var isUnknown: Bool

    public init(
        keys: [[UInt8]], hasNull: Bool, hasRows: Bool, hasFailed: Bool = false, isUnknown: Bool = false
    ) {
        self.keys = keys
        self.hasNull = hasNull
        self.hasRows = hasRows
        self.hasFailed = hasFailed
        self.isUnknown = isUnknown
    }
}
