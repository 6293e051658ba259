import Change
import Policy

/// Policies that decide which rows of a table a role may read. They are the same for all holders of the role.
///
/// The object remains the same while nothing in it changes.
public final class PolicyBinding: Sendable {
    /// One of the policies that apply to the role, for explanations.
    public struct Part: Sendable, Hashable {
        public var oid: UInt32
        public var name: String
        public var isPermissive: Bool
        public var classification: CompiledPolicy.Classification
        /// Text of the policy as PostgreSQL writes it.
        public var text: String
        /// SQL with which PostgreSQL evaluates this policy alone; `false` if the policy reads more than changes carry.
        var askedText: String
        /// Compiled term of the policy, including the policies of membership tables.
        public var term: Term
    }

    public let role: String
    public let table: UInt32
    public let rowPolicy: RowPolicy
    /// Single policies, the permissive ones first.
    public let parts: [Part]
    /// Boolean SQL expression that combines the original texts of all policies over a row of the table under its own
    /// name.
    public let combinedSQL: String
    /// Number that changes whenever the policies or their possible meanings change.
    public let version: UInt64
    /// Warning for a joining client: no changes will be delivered, or fewer than it expects.
    public let warning: String?
    /// Combined policies in the form in which PostgreSQL evaluates them.
    public let judged: JudgedPolicy
    /// Unknown pasts of tables that the policies read and that are not followed now. For rows from such a time,
    /// PostgreSQL's answers are wrong.
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

    /// True if PostgreSQL, which knows only present memberships, cannot tell who could see a row committed at this
    /// position.
    public func isUnknown(at position: LSN) -> Bool { unknownPasts.contains { $0.contains(position) } }

    /// Row type that PostgreSQL evaluates.
    public var row: JudgedRow { judged.row }

    /// Returns one of the policies alone, in the form in which PostgreSQL evaluates it.
    public func judged(_ part: Part) -> JudgedPolicy {
        JudgedPolicy(
            role: role, row: row, table: table, sql: combinedSQL == "false" ? "false" : part.askedText, version: version
        )
    }

    /// Slowest of the policies' classifications; `compiled` if no row is ever visible.
    public var classification: CompiledPolicy.Classification {
        let order = CompiledPolicy.Classification.allCases
        return parts.map(\.classification).max { order.firstIndex(of: $0) ?? 0 < order.firstIndex(of: $1) ?? 0 }
            ?? .compiled
    }

    /// Tables that hold the policies' memberships.
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
