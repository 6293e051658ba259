/// Role of an operator of the hub. A higher role may do all that a lower one may.
public enum OperatorRole: String, Sendable, CaseIterable, Comparable {
    /// Sees counts, states and times, and no values of rows, claims or users.
    case viewer
    /// Sees users, sessions and masked values, and fetches bundles.
    case analyst
    /// Unmasks with a reason, sends signals, cuts users off, changes projects.
    case admin

    private var rank: Int {
        switch self {
        case .viewer: 0
        case .analyst: 1
        case .admin: 2
        }
    }

    public static func < (left: OperatorRole, right: OperatorRole) -> Bool { left.rank < right.rank }
}

/// Choice of the role for operators' tokens that name none.
public enum OperatorDefaultRole: String, Sendable, CaseIterable {
    case admin, analyst, viewer
    /// No role: the hub refuses such a token.
    case none

    var role: OperatorRole? {
        switch self {
        case .admin: .admin
        case .analyst: .analyst
        case .viewer: .viewer
        case .none: nil
        }
    }
}

/// Operator whose token was accepted.
public struct Operator: Sendable, Equatable {
    /// The claim `sub` of the token; empty if it has none.
    public let subject: String
    public let role: OperatorRole
    /// End of the token in Unix seconds; nil if it has none.
    public let expiry: Int64?

    static let longestSubject = 200

    public init(subject: String, role: OperatorRole, expiry: Int64? = nil) {
        self.subject = String(subject.prefix(Self.longestSubject))
        self.role = role
        self.expiry = expiry
    }
}

/// Rule that makes an operator's role of a token's claims.
public struct OperatorRoleRule: Sendable, Equatable {
    /// Name of the claim.
    public let claim: String
    /// Role of a token without the claim; nil if such a token is refused.
    public let withoutClaim: OperatorRole?

    public init(claim: String = "tidewire_role", withoutClaim: OperatorRole? = .admin) {
        self.claim = claim
        self.withoutClaim = withoutClaim
    }
}
