/// Part of the catalog that policies name: types, functions, operators and tables. Text that PostgreSQL deparsed
/// qualifies every name outside of `pg_catalog`.
public struct PolicyCatalog: Sendable {
    /// Types by the name that `format_type` writes with only `pg_catalog` in the search path.
    public var types: [String: TypeFacts] = [:]
    public var functions: [QualifiedName: [FunctionFacts]] = [:]
    public var operators: [QualifiedName: [OperatorFacts]] = [:]
    public var relations: [QualifiedName: RelationFacts] = [:]
    /// TimeZone of a client's session, as role and database settings give it; nil if it is not certain.
    public var timeZone: String?
    /// Custom settings that a database or role sets. Only PostgreSQL knows their values.
    public var presetSettings: Set<String> = []
    public var text = TextRules.unknown
    /// Types of extensions whose values are text under another name, like citext: `pg_cast` casts them to text WITHOUT
    /// FUNCTION, and `typoutput` is the internal `textout`.
    public var textTwins: Set<UInt32> = []

    /// Casts by functions that did not come with PostgreSQL. In a text they look like any other cast.
    public var madeCasts: Set<CastPair> = []

    public init() {}
}

/// Source and target type of a cast, by oid.
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
    /// Name of the language, such as `sql`, `plpgsql`, `c` or `internal`.
    public var language: String
    public var isSecurityDefiner: Bool
    public var owner: UInt32
    /// Body of an SQL function that is one SELECT, as PostgreSQL itself writes it with `search_path = pg_catalog` (all
    /// names qualified), resolved under the search path that the function runs with. Any of these forms is read:
    ///
    /// 1. `SELECT …` where argument `n` is `$n`.
    /// 2. `pg_get_viewdef` of `CREATE TEMP VIEW v AS SELECT (body) FROM (SELECT NULL::uuid AS "$1", …) argument`. For a
    ///    function that returns a set: of `SELECT ARRAY(body) FROM (…) argument`. The body is a sub-select, so its own
    ///    FROM stays apart. Argument `n` is `argument."$n"` or `"$n"`. Without arguments there is no FROM at all.
    /// 3. Either form with an argument written by its name: `argument.name`, or bare if nothing else can be meant.
    ///    `argumentNames` then tells its position.
    ///
    /// Nil for a function with settings of its own other than `search_path` (`proconfig`), because its body could read
    /// them. Nil for a function in another language, which does no harm.
    ///
    /// A semicolon at the end is allowed. The caller's right to EXECUTE is not checked here.
    public var canonicalBody: String?
    /// Names of the arguments, by position; needed only for form 3 of `canonicalBody`.
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

    /// True if the function came with PostgreSQL: its oid is below `FirstNormalObjectId`.
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

    public var isBuiltIn: Bool { oid < 16_384 }
}

/// Table that policies are about, or that policies read.
public struct RelationFacts: Sendable, Hashable {
    public var oid: UInt32
    public var name: QualifiedName
    /// Columns by slot.
    public var columns: [ColumnFacts]
    /// Slots that changes carry, without generated columns and columns that a column list leaves out.
    public var carried: Set<Int>
    /// True if the table can be followed through the stream, so that a membership may use it: an ordinary, permanent
    /// table without children, with an identity that holds every column.
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
