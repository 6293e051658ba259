import Change
import Policy

/// Which rows of a table a role may read: what row level security says, for all holders of the role.
///
/// Its own object for as long as nothing of it changes.
public final class PolicyBinding: Sendable {
    /// One of the policies that apply to the role, for whoever asks why.
    public struct Part: Sendable, Hashable {
        public var oid: UInt32
        public var name: String
        public var isPermissive: Bool
        public var classification: CompiledPolicy.Classification
        /// As PostgreSQL writes it.
        public var text: String
        /// As PostgreSQL is asked about it by itself: false where it looks beyond what changes carry.
        var askedText: String
        /// What it is held against, with the policies of membership tables in it.
        public var term: Term
    }

    public let role: String
    public let table: UInt32
    public let rowPolicy: RowPolicy
    /// The permissive ones first.
    public let parts: [Part]
    /// All of them as one boolean expression over a row of the table, which goes by its own name: original texts, combined.
    public let combinedSQL: String
    /// Another number whenever policies, or what they may mean, are others.
    public let version: UInt64
    /// What is to be said to whoever joins: nothing will be delivered, or not what he expects.
    public let warning: String?
    /// As it is asked of PostgreSQL.
    public let judged: JudgedPolicy
    /// Unknown pasts of tables that the policies read and that are not followed now. PostgreSQL's answers for rows of such a
    /// time are wrong.
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

    /// True if PostgreSQL, which knows only present memberships, cannot tell who might see a row that was committed there.
    public func isUnknown(at position: LSN) -> Bool { unknownPasts.contains { $0.contains(position) } }

    /// What a row is asked about as.
    public var row: JudgedRow { judged.row }

    /// One of the policies by itself, as it is asked of PostgreSQL.
    public func judged(_ part: Part) -> JudgedPolicy {
        JudgedPolicy(
            role: role, row: row, table: table, sql: combinedSQL == "false" ? "false" : part.askedText, version: version
        )
    }

    /// How the worst of it is decided; compiled where no row is ever visible.
    public var classification: CompiledPolicy.Classification {
        let order = CompiledPolicy.Classification.allCases
        return parts.map(\.classification).max { order.firstIndex(of: $0) ?? 0 < order.firstIndex(of: $1) ?? 0 }
            ?? .compiled
    }

    /// Tables whose rows make members.
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
