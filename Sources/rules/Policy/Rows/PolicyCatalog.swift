/// The part of the catalog that policies name: types, functions, operators and tables. Deparsed text names everything
/// outside of `pg_catalog` in full.
public struct PolicyCatalog: Sendable {
    /// By what `format_type` writes with nothing but `pg_catalog` in the search path.
    public var types: [String: TypeFacts] = [:]
    public var functions: [QualifiedName: [FunctionFacts]] = [:]
    public var operators: [QualifiedName: [OperatorFacts]] = [:]
    public var relations: [QualifiedName: RelationFacts] = [:]
    /// The database's TimeZone as role and database settings give it to a client's session; nil where it is not certain.
    public var timeZone: String?
    /// Custom settings that a database or role sets: their values are PostgreSQL's to say.
    public var presetSettings: Set<String> = []
    public var text = TextRules.unknown
    /// Types of extensions whose values are text under another name, as citext's are: `pg_cast` casts them to text WITHOUT
    /// FUNCTION, and `typoutput` is the internal `textout`.
    public var textTwins: Set<UInt32> = []

    /// Casts by functions that did not come with PostgreSQL: they are written as any other cast.
    public var madeCasts: Set<CastPair> = []

    public init() {}
}

/// From one type to another, by oid.
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
    /// `sql`, `plpgsql`, `c`, `internal`.
    public var language: String
    public var isSecurityDefiner: Bool
    public var owner: UInt32
    /// The body as PostgreSQL itself writes it (with `search_path = pg_catalog`, names in full), of SQL functions that are
    /// one SELECT; resolved under the search path that the function runs with. Any of these forms is read:
    ///
    /// 1. `SELECT …` where argument `n` is `$n`.
    /// 2. `pg_get_viewdef` of `CREATE TEMP VIEW v AS SELECT (body) FROM (SELECT NULL::uuid AS "$1", …) argument`, and for a
    ///    function that returns a set, of `SELECT ARRAY(body) FROM (…) argument`: the body is a sub-select (so its own FROM
    ///    stays apart), argument `n` is `argument."$n"` or `"$n"`. Without arguments there is no FROM at all.
    /// 3. Either, with an argument written by its name, `argument.name` or bare where nothing else can be meant: then
    ///    `argumentNames` says which it is.
    ///
    /// Nil for a function with settings of its own other than `search_path` (`proconfig`): they could be what its body reads.
    /// Whether the caller may EXECUTE it is not looked at here.
    ///
    /// A semicolon at the end does no harm. Nil, and no harm either, where the function is written in another language.
    public var canonicalBody: String?
    /// Names of the arguments, by position; needed for form 3 only.
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

    /// `FirstNormalObjectId`: what is below came with PostgreSQL.
    public var isBuiltIn: Bool { oid < 16_384 }
}

public struct OperatorFacts: Sendable, Hashable {
    public var oid: UInt32
    /// Nil: a prefix operator.
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

/// A table that policies are about, or read.
public struct RelationFacts: Sendable, Hashable {
    public var oid: UInt32
    public var name: QualifiedName
    /// By slot.
    public var columns: [ColumnFacts]
    /// Slots that changes carry: not those that are generated or left out by a column list.
    public var carried: Set<Int>
    /// It can be followed through the stream (an ordinary, permanent table without children, with an identity that holds
    /// every column): a membership may live on it.
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
