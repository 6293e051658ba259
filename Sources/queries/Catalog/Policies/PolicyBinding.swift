import Change
import Policy

/// Combined policies that decide which rows of a table a role may read. They are the same for all claims of the role.
///
/// Snapshots share one object for as long as nothing in it changes.
public final class PolicyBinding: Sendable {
    /// Policy that applies to the role, for explanations.
    public struct Part: Sendable, Hashable {
        public var oid: UInt32
        public var name: String
        public var isPermissive: Bool
        public var classification: CompiledPolicy.Classification
        /// Text of USING as PostgreSQL prints it.
        public var text: String
        /// SQL with which PostgreSQL evaluates this policy alone. It is `false` if the policy reads data that changes
        /// lack.
        var askedText: String
        /// Compiled term of the policy. It includes the policies of membership tables.
        public var term: Term
    }

    public let role: String
    public let table: UInt32
    public let rowPolicy: RowPolicy
    /// The single policies, permissive ones first.
    public let parts: [Part]
    /// Boolean SQL expression that combines the texts of all policies. It refers to the row by the table's name.
    public let combinedSQL: String
    /// Number that changes whenever the policies or their meanings may have changed.
    public let version: UInt64
    /// Warning for a client that joins, if it will receive no changes or fewer than it expects; nil otherwise.
    public let warning: String?
    /// Combined policies in the form in which PostgreSQL evaluates them.
    public let judged: JudgedPolicy
    /// Positions in the WAL at which the memberships of some tables are unknown, because the hub did not follow the
    /// tables. PostgreSQL knows only present memberships, so it cannot decide on rows from such a position.
    private let unknownPasts: [UnknownPast]

    init(
        role: String, table: UInt32, rowPolicy: RowPolicy, parts: [Part], combinedSQL: String, row: JudgedRow,
        version: UInt64, warning: String?, unknownPasts: [UnknownPast] = []
    ) {
        precondition(!role.isEmpty && table != 0, "policies are of a table, for a role")
        assert(
            zip(parts, parts.dropFirst()).allSatisfy { $0.isPermissive || !$1.isPermissive },
            "the permissive ones first")
        assert(!combinedSQL.isEmpty, "an empty text lets nobody decide")
        self.role = role
        self.table = table
        self.rowPolicy = rowPolicy
        self.parts = parts
        self.combinedSQL = combinedSQL
        self.version = version
        self.warning = warning
        self.unknownPasts = unknownPasts
        judged = JudgedPolicy(role: role, row: row, table: table, sql: combinedSQL, version: version)
    }

    /// True if it cannot be determined who could see a row that was committed at this LSN, because PostgreSQL knows
    /// only present memberships.
    public func isUnknown(at position: LSN) -> Bool { unknownPasts.contains { $0.contains(position) } }

    /// Row type of the table in which PostgreSQL receives rows.
    public var row: JudgedRow { judged.row }

    /// Returns one of the policies alone, in the form in which PostgreSQL evaluates it.
    public func judged(_ part: Part) -> JudgedPolicy {
        JudgedPolicy(
            role: role, row: row, table: table, sql: combinedSQL == "false" ? "false" : part.askedText, version: version
        )
    }

    /// Slowest classification of the policies; `compiled` if no policy applies.
    public var classification: CompiledPolicy.Classification {
        let order = CompiledPolicy.Classification.allCases
        return parts.map(\.classification).max { order.firstIndex(of: $0) ?? 0 < order.firstIndex(of: $1) ?? 0 }
            ?? .compiled
    }

    /// Tables that hold the memberships which the policies read.
    public var membershipTables: Set<UInt32> {
        var tables: Set<UInt32> = []
        rowPolicy.term.visit { if case .member(let membership, _) = $0 { tables.insert(membership.table) } }
        return tables
    }
}

extension PolicyBinding: Equatable {
    public static func == (one: PolicyBinding, other: PolicyBinding) -> Bool {
        one === other
            || one.role == other.role && one.table == other.table && one.version == other.version
                && one.rowPolicy == other.rowPolicy && one.parts == other.parts
                && one.combinedSQL == other.combinedSQL && one.row == other.row && one.warning == other.warning
                && one.unknownPasts == other.unknownPasts
    }
}
