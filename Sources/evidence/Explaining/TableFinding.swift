/// One thing that subscribers to a published table will notice, or that is slow.
public struct TableFinding: Sendable, Equatable {
    public enum Weight: Int, Sendable, Comparable {
        /// As it should be.
        case fine
        /// Worth knowing: some expect something else.
        case notable
        /// Nothing comes where somebody would expect something.
        case wrong

        public static func < (one: Weight, other: Weight) -> Bool { one.rawValue < other.rawValue }
    }

    public var table: String
    /// Whom it concerns.
    public var roles: [String]
    public var weight: Weight
    public var detail: String
    public var sql: String?
    /// The SQL shows somebody what was kept from him.
    public var showsMore = false
    /// Reason why the role sees no row of the table; nil if it sees some.
    var closed: Closed?

    enum Closed: Sendable, Equatable {
        /// The role may not SELECT.
        case byRights
        /// The role has no policy.
        case byPolicies
    }

    init(_ table: String, _ role: String, _ weight: Weight, _ detail: String, sql: String? = nil) {
        self.table = table
        roles = [role]
        self.weight = weight
        self.detail = detail
        self.sql = sql
    }
}

extension [TableFinding] {
    /// What is the same for several roles is said once.
    func joiningRoles() -> [TableFinding] {
        var joined: [TableFinding] = []
        for finding in self {
            let same = joined.firstIndex {
                $0.table == finding.table && $0.detail == finding.detail && $0.weight == finding.weight
                    && $0.sql == finding.sql
            }
            if let same { joined[same].roles += finding.roles } else { joined.append(finding) }
        }
        return joined
    }
}
