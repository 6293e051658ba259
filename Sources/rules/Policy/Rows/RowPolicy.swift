/// The policies of a table for a role, combined and compiled: which rows it may read, the same for all holders of the
/// role.
public struct RowPolicy: Sendable, Hashable {
    /// (One of the permissive ones) AND (all of the restrictive ones), with what policies of membership tables add.
    public var term: Term

    public init(_ term: Term) { self.term = term }

    /// Only PostgreSQL decides.
    public static let undecided = RowPolicy(.undecided)

    /// Whether the same row and claims always have the same answer: neither the clock nor other tables have
    /// a say.
    public var isSteady: Bool {
        var isSteady = !term.readsClock
        term.visit { if case .member = $0 { isSteady = false } }
        return isSteady
    }
}

/// PostgreSQL's answer to an asked term for one holder.
public enum AskedAnswer: Sendable, Hashable {
    /// The value's text; nil is NULL.
    case value([UInt8]?)
    /// Evaluating it failed, and would for every row.
    case failed
}

public enum ResidualOutcome: Sendable {
    /// These are to be asked of PostgreSQL first.
    case needs([AskedTerm])
    case residual(Residual)
}

/// A policy for one holder: a term over the row's columns and memberships, without claims.
public struct Residual: Sendable, Hashable {
    public var term: Term
    /// The memberships it speaks of; each has to be filled before there is a predicate.
    public var memberships: [HeldMembership]
    /// Some rows, or all, can only be decided by PostgreSQL.
    public var mayAsk: Bool

    public init(term: Term, memberships: [HeldMembership], mayAsk: Bool) {
        self.term = term
        self.memberships = memberships
        self.mayAsk = mayAsk
    }

    /// A residual that only PostgreSQL can decide.
    public static let undecided = Residual(term: .undecided, memberships: [], mayAsk: true)
}

/// A membership for one holder: two holders with an equal one have the same keys.
public struct HeldMembership: Sendable, Hashable {
    public var membership: Membership
    /// The predicate of the rows of the membership's table that count for this holder.
    public var rows: Predicate
}

/// The keys a holder has by a membership.
public struct MembershipKeys: Sendable, Hashable {
    /// Canonical texts, sorted, each once.
    public var keys: [[UInt8]]
    /// There is a row whose key is NULL.
    public var hasNull: Bool
    /// There is any row.
    public var hasRows: Bool
    /// They could not be read, and reading them again would not help: the policy fails where they decide.
    public var hasFailed: Bool
    /// There are too many to hold, or they are not known: only PostgreSQL can tell.
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
