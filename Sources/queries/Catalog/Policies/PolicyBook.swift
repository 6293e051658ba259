import Policy

/// Policy for SELECT as the catalog describes it, with its compiled form.
public struct CatalogPolicy: Sendable, Hashable {
    public var oid: UInt32
    public var table: UInt32
    public var name: String
    public var isPermissive: Bool
    /// Text of USING as PostgreSQL prints it while only `pg_catalog` is in the search path.
    public var text: String
    /// Numbers (`attnum`) of the columns that the policy names. Numbers below zero are system columns.
    public var columns: Set<Int>
    /// Use that the policy makes of the row apart from naming columns, such as reading the whole row.
    public var use: RowUse
    public var compiled: CompiledPolicy
    /// Oids of all functions that the policy may call, directly or through other functions.
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

    /// Description of data that the policy reads and changes do not contain; nil if there is none. PostgreSQL cannot be
    /// asked about such a policy.
    var looksBeyondRows: String? {
        if columns.contains(where: { $0 < 0 }) { return "system columns" }
        return use.readsStorage ? "how values are stored" : nil
    }
}

/// Policies of the published tables, and of all tables that these policies read.
public struct PolicyBook: Sendable, Equatable {
    /// Policies by table. Those of one table are ordered by name.
    public var policies: [UInt32: [CatalogPolicy]] = [:]
    /// Tables that policies read but the publication does not include, by oid.
    var tables: [UInt32: CatalogTable] = [:]
    /// Names of roles that own SECURITY DEFINER functions, by the roles' oids.
    var owners: [UInt32: String] = [:]
    /// Names of the owners of SECURITY DEFINER functions, by the functions' oids.
    var definers: [UInt32: String] = [:]
    /// Role with which the hub logs in. With it the hub reads the tables that SECURITY DEFINER functions read in their
    /// owners' names.
    public internal(set) var login = ""
    /// Oids of types for which a user defined a cast from text. PostgreSQL would change a value that it receives as
    /// text.
    public var typesCastFromText: Set<UInt32> = []
    /// Oids of all functions that policies may call.
    var functions: Set<UInt32> = []
    /// Text that changes whenever a function, operator, type, schema or setting changes.
    public internal(set) var surroundings = ""
    /// Version of the first catalog snapshot that had this book.
    public var version: UInt64 = 0
    /// Tables whose policies cannot be read now, because an object that they use is locked. The hub reads them again
    /// later and decides on no row of these tables until then. PostgreSQL could only decide by later definitions.
    public var unsettled: Set<UInt32> = []
    /// Functions whose bodies cannot be read now, because an object that they use is locked.
    var unsettledFunctions: Set<UInt32> = []
    var isUnfinished: Bool { !unsettled.isEmpty || !unsettledFunctions.isEmpty }

    public init() {}

    /// Creates a book of the given policies without reading a catalog.
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

    /// True if the books are equal, regardless of their versions.
    func isSame(as other: PolicyBook) -> Bool {
        policies == other.policies && tables == other.tables && owners == other.owners && definers == other.definers
            && login == other.login && functions == other.functions && surroundings == other.surroundings
            && typesCastFromText == other.typesCastFromText && unsettled == other.unsettled
    }
}
