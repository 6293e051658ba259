/// A finding about a published table: something that its subscribers will notice, or that is slow.
public struct TableFinding: Sendable, Equatable {
    public enum Weight: Int, Sendable, Comparable {
        /// The table works as intended.
        case fine
        /// Worth knowing, because some users expect something else.
        case notable
        /// Clients receive nothing where a user would expect something.
        case wrong

        public static func < (one: Weight, other: Weight) -> Bool { one.rawValue < other.rawValue }
    }

    public var table: String
    /// Names of the roles that the finding concerns.
    public var roles: [String]
    public var weight: Weight
    public var detail: String
    public var sql: String?
    /// True if the SQL would show a role rows or columns that were hidden from the role.
    public var showsMore = false
    /// Reason why the role sees no row of the table; nil if the role may see some.
    var closed: Closed?

    enum Closed: Sendable, Equatable {
        /// The role does not have the right to SELECT.
        case byRights
        /// No policy applies to the role, so row security hides every row.
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
    /// Merges findings that are equal except for the role into one with all their roles.
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
