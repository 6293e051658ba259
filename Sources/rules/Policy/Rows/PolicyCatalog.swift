/// Types, functions, operators and tables to which policies refer. In texts that PostgreSQL prints, every name outside
/// `pg_catalog` is qualified.
public struct PolicyCatalog: Sendable {
    /// Types, by the name that `format_type` writes while only `pg_catalog` is in the search path.
    public var types: [String: TypeFacts] = [:]
    public var functions: [QualifiedName: [FunctionFacts]] = [:]
    public var operators: [QualifiedName: [OperatorFacts]] = [:]
    public var relations: [QualifiedName: RelationFacts] = [:]
    /// TimeZone of clients' sessions, as settings of roles and the database determine it; nil if it is not certain.
    public var timeZone: String?
    /// Names of custom settings that a database or role sets. Only PostgreSQL knows their values.
    public var presetSettings: Set<String> = []
    public var text = TextRules.unknown
    /// Types of extensions whose values are stored and written like text, such as citext: `pg_cast` has a cast to text
    /// WITHOUT FUNCTION, and `typoutput` is the internal `textout`.
    public var textTwins: Set<UInt32> = []

    /// Casts by functions of users or extensions. In the text of a policy they look like any other cast.
    public var madeCasts: Set<CastPair> = []

    public init() {}
}

/// Source type and target type of a cast, by oid.
public struct CastPair: Sendable, Hashable {
    public var source: UInt32
    public var target: UInt32

    public init(from source: UInt32, to target: UInt32) {
        self.source = source
        self.target = target
    }
}

public struct QualifiedName: Sendable, Hashable {
    public var schema: String
    public var name: String

    public init(_ schema: String, _ name: String) {
        self.schema = schema
        self.name = name
    }
}

public struct FunctionFacts: Sendable, Hashable {
    public enum Volatility: Sendable, Hashable { case immutable, stable, volatile }

    public var oid: UInt32
    public var arguments: [TypeFacts]
    public var result: TypeFacts
    public var returnsSet: Bool
    public var isStrict: Bool
    public var volatility: Volatility
    /// Name of the function's language, such as `sql`, `plpgsql`, `c` or `internal`.
    public var language: String
    public var isSecurityDefiner: Bool
    public var owner: UInt32
    /// Body of an SQL function that consists of one SELECT, as PostgreSQL prints it with `search_path = pg_catalog`, so
    /// that all names are qualified. The names were resolved under the search path with which the function runs. The
    /// compiler reads each of these forms:
    ///
    /// 1. `SELECT …` in which argument `n` is `$n`.
    /// 2. `pg_get_viewdef` of `CREATE TEMP VIEW v AS SELECT (body) FROM (SELECT NULL::uuid AS "$1", …) argument`. For a
    ///    function that returns a set, `SELECT ARRAY(body) FROM (…) argument`. The body is a sub-select, so that its
    ///    own FROM is separate. Argument `n` is `argument."$n"` or `"$n"`. Without arguments there is no FROM.
    /// 3. Either form in which an argument has its name: `argument.name`, or only the name if that is unambiguous.
    ///    `argumentNames` has its position.
    ///
    /// Nil for a function in another language. Nil also for a function that sets settings other than `search_path`
    /// (`proconfig`), because its body could read them.
    ///
    /// A semicolon at the end is allowed. The caller's right to EXECUTE is checked elsewhere.
    public var canonicalBody: String?
    /// Names of the arguments in order. Only form 3 of `canonicalBody` needs them.
    public var argumentNames: [String]

    public init(
        oid: UInt32, arguments: [TypeFacts], result: TypeFacts, returnsSet: Bool, isStrict: Bool,
        volatility: Volatility, language: String, isSecurityDefiner: Bool, owner: UInt32, canonicalBody: String?,
        argumentNames: [String] = []
    ) {
        self.oid = oid
        self.argumentNames = argumentNames
        self.arguments = arguments
        self.result = result
        self.returnsSet = returnsSet
        self.isStrict = isStrict
        self.volatility = volatility
        self.language = language
        self.isSecurityDefiner = isSecurityDefiner
        self.owner = owner
        self.canonicalBody = canonicalBody
    }

    /// True if the function comes with PostgreSQL: its oid is below `FirstNormalObjectId`.
    public var isBuiltIn: Bool { oid < 16_384 }
}

public struct OperatorFacts: Sendable, Hashable {
    public var oid: UInt32
    /// Type of the left side; nil for a prefix operator.
    public var left: TypeFacts?
    public var right: TypeFacts
    public var result: TypeFacts
    public var volatility: FunctionFacts.Volatility

    public init(
        oid: UInt32, left: TypeFacts?, right: TypeFacts, result: TypeFacts, volatility: FunctionFacts.Volatility
    ) {
        self.oid = oid
        self.left = left
        self.right = right
        self.result = result
        self.volatility = volatility
    }

    /// True if the operator comes with PostgreSQL.
    public var isBuiltIn: Bool { oid < 16_384 }
}

/// Table that has policies, or that policies read.
public struct RelationFacts: Sendable, Hashable {
    public var oid: UInt32
    public var name: QualifiedName
    /// Columns, by slot.
    public var columns: [ColumnFacts]
    /// Slots of the columns that changes contain. Generated columns and those that a column list omits are missing.
    public var carried: Set<Int>
    /// True if the hub can follow the table by its changes, so that it may hold memberships. Such a table is permanent
    /// and ordinary, without partitions or children.
    public var canBeFollowed: Bool

    public init(
        oid: UInt32, name: QualifiedName, columns: [ColumnFacts], carried: Set<Int>, canBeFollowed: Bool
    ) {
        self.oid = oid
        self.name = name
        self.columns = columns
        self.carried = carried
        self.canBeFollowed = canBeFollowed
    }
}
