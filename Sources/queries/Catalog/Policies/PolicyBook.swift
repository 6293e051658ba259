import Policy

/// A policy of a table that counts for SELECT, as the catalog has it, and what became of its text.
public struct CatalogPolicy: Sendable, Hashable {
    public var oid: UInt32
    public var table: UInt32
    public var name: String
    public var isPermissive: Bool
    /// USING, as PostgreSQL writes it with nothing but `pg_catalog` in the search path.
    public var text: String
    /// Numbers of the table's columns that it names; system columns have numbers below zero.
    public var columns: Set<Int>
    /// What else of the row it looks at.
    public var use: RowUse
    public var compiled: CompiledPolicy
    /// All functions that its text and the bodies below it may call, by oid.
    var functions: Set<UInt32> = []

    public init(
        oid: UInt32, table: UInt32, name: String, isPermissive: Bool = true, text: String, columns: Set<Int>,
        use: RowUse, compiled: CompiledPolicy
    ) {
        self.oid = oid
        self.table = table
        self.name = name
        self.isPermissive = isPermissive
        self.text = text
        self.columns = columns
        self.use = use
        self.compiled = compiled
    }

    /// What it looks at that a row has only where it lies: nobody can be asked about a row that was told of then.
    var looksBeyondRows: String? {
        if columns.contains(where: { $0 < 0 }) { return "system columns" }
        return use.readsStorage ? "how values are stored" : nil
    }
}

/// The policies of published tables, and of all tables that these read.
public struct PolicyBook: Sendable, Equatable {
    /// By table, in the order of their names.
    public var policies: [UInt32: [CatalogPolicy]] = [:]
    /// Tables that policies read and that are not published.
    var tables: [UInt32: CatalogTable] = [:]
    /// Names of roles that own functions with SECURITY DEFINER.
    var owners: [UInt32: String] = [:]
    /// Functions with SECURITY DEFINER, and in whose name they run.
    var definers: [UInt32: String] = [:]
    /// Who the hub itself is there. What runs in the names of functions' owners it has to read in its own.
    public internal(set) var login = ""
    /// Types whose values cannot be given as texts.
    public var typesCastFromText: Set<UInt32> = []
    /// All functions that policies may call.
    var functions: Set<UInt32> = []
    /// Another text whenever a function, an operator, a type, a schema or a setting is another.
    public internal(set) var surroundings = ""
    /// The version of the first snapshot that had it.
    public var version: UInt64 = 0
    /// Tables with policies that could not be read for the moment, as something they look at is locked: they are to be read
    /// again, and nobody is to be judged by them meanwhile. PostgreSQL would decide by what is there then.
    public var unsettled: Set<UInt32> = []
    /// Functions of which that is so.
    var unsettledFunctions: Set<UInt32> = []
    var isUnfinished: Bool { !unsettled.isEmpty || !unsettledFunctions.isEmpty }

    public init() {}

    /// A book of policies that were made, not read.
    public init(policies: [UInt32: [CatalogPolicy]], tables: [CatalogTable], version: UInt64) {
        assert(policies.allSatisfy { table, own in own.allSatisfy { $0.table == table } }, "a policy is of its table")
        self.policies = policies
        self.tables = Dictionary(tables.map { ($0.oid, $0) }, uniquingKeysWith: { first, _ in first })
        self.version = version
    }

    func of(_ table: UInt32) -> [CatalogPolicy] {
        let found = policies[table] ?? []
        assert(found.allSatisfy { $0.table == table }, "a table is judged by its own policies")
        return found
    }

    mutating func leaveToServer(_ policy: CatalogPolicy) {
        guard let place = policies[policy.table]?.firstIndex(where: { $0.oid == policy.oid }) else { return }
        policies[policy.table]?[place].compiled = PolicyCompiling.undecided
        assert(of(policy.table)[place].compiled.term == .undecided, "what is left to the server decides nothing here")
    }

    /// Apart from when it was read.
    func isSame(as other: PolicyBook) -> Bool {
        policies == other.policies && tables == other.tables && owners == other.owners && definers == other.definers
            && login == other.login && functions == other.functions && surroundings == other.surroundings
            && typesCastFromText == other.typesCastFromText && unsettled == other.unsettled
    }
}
