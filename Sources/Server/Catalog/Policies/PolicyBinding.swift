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
        /// What it is held against, with the policies of membership tables in it.
        public var term: Term
    }

    /// A column that the policies read, for whoever has PostgreSQL decide.
    public struct Column: Sendable, Hashable {
        public var slot: Int
        public var name: String
        /// As declared, fit for a cast: domains and lengths count.
        public var type: String
        /// Where it is not the type's own, fit for COLLATE.
        public var collation: String?
    }

    public let role: String
    public let table: UInt32
    public let rowPolicy: RowPolicy
    /// The permissive ones first.
    public let parts: [Part]
    /// All of them as one boolean expression over a row of the table, which goes by its own name: original texts, combined.
    public let combinedSQL: String
    /// What the row is called in `combinedSQL`.
    public let alias: String
    public let columns: [Column]
    /// Another number whenever policies, or what they may mean, are others.
    public let version: UInt64
    /// What is to be said to whoever joins: nothing will be delivered, or not what he expects.
    public let warning: String?
    /// As it is asked of PostgreSQL.
    let judged: JudgedPolicy

    init(
        role: String, table: UInt32, rowPolicy: RowPolicy, parts: [Part], combinedSQL: String, alias: String,
        columns: [Column], version: UInt64, warning: String?
    ) {
        self.role = role
        self.table = table
        self.rowPolicy = rowPolicy
        self.parts = parts
        self.combinedSQL = combinedSQL
        self.alias = alias
        self.columns = columns
        self.version = version
        self.warning = warning
        judged = JudgedPolicy(
            role: role, relation: alias, table: table,
            columns: columns.map {
                JudgedPolicy.Column(slot: $0.slot, name: $0.name, type: $0.type, collation: $0.collation)
            }, sql: combinedSQL, version: version)
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
                && one.combinedSQL == other.combinedSQL && one.alias == other.alias
                && one.columns == other.columns && one.warning == other.warning
    }
}
