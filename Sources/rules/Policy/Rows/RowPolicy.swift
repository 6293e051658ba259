/// Policies of a table for a role, combined and compiled: which rows the role may read. All holders of the role share
/// the same value.
public struct RowPolicy: Sendable, Hashable {
    /// (One of the permissive policies) AND (all of the restrictive ones), with conditions from policies of membership
    /// tables.
    public var term: Term

    public init(_ term: Term) { self.term = term }

    /// Policy that only PostgreSQL can decide.
    public static let undecided = RowPolicy(.undecided)

    /// True if the same row and claims always have the same answer: neither the clock nor other tables matter.
    public var isSteady: Bool {
        var isSteady = !term.readsClock
        term.visit { if case .member = $0 { isSteady = false } }
        return isSteady
    }
}

/// PostgreSQL's answer to an asked term for one holder.
public enum AskedAnswer: Sendable, Hashable {
    /// Text of the value; nil for NULL.
    case value([UInt8]?)
    /// Evaluation failed, and would fail for every row.
    case failed
}

public enum ResidualOutcome: Sendable {
    /// PostgreSQL has to evaluate these terms first.
    case needs([AskedTerm])
    case residual(Residual)
}

/// Policy for one holder: a term over the row's columns and memberships, without claims.
public struct Residual: Sendable, Hashable {
    public var term: Term
    /// Memberships in the term. Each has to be filled before there is a predicate.
    public var memberships: [HeldMembership]
    /// True if only PostgreSQL can decide some rows, or all.
    public var mayAsk: Bool

    public init(term: Term, memberships: [HeldMembership], mayAsk: Bool) {
        self.term = term
        self.memberships = memberships
        self.mayAsk = mayAsk
    }

    /// Residual that only PostgreSQL can decide.
    public static let undecided = Residual(term: .undecided, memberships: [], mayAsk: true)
}

/// Membership for one holder. Two holders with an equal one have the same keys.
public struct HeldMembership: Sendable, Hashable {
    public var membership: Membership
    /// Predicate for the rows of the membership's table that count for this holder.
    public var rows: Predicate
}

/// Keys that a holder has by a membership.
public struct MembershipKeys: Sendable, Hashable {
    /// Texts of the keys: canonical, sorted, each once.
    public var keys: [[UInt8]]
    /// True if there is a row whose key is NULL.
    public var hasNull: Bool
    /// True if there is any row.
    public var hasRows: Bool
    /// True if the keys could not be read, and another try would not help. The policy fails where they decide.
    public var hasFailed: Bool
    /// True if the keys are too many to hold, or not known: only PostgreSQL can tell.
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
