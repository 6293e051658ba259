/// Tree of an expression as PostgreSQL deparses it. Names stand as in the text: a name without a schema, such as
/// `lower`, is of `pg_catalog`.
public indirect enum Syntax: Sendable, Hashable {
    /// Quoted literal: its value, and the type after `::`.
    case literal(String, type: TypeName?)
    /// Number as it is written. Digits are an integer; a point or an exponent makes a numeric.
    case number(String)
    case boolean(Bool)
    case null
    /// `column`, `relation.column`, `schema.relation.column`.
    case column(qualifier: [String], name: String)
    /// Argument `$n` in a function's body.
    case parameter(Int)
    case call(SyntaxName, [Syntax])
    case special(SpecialForm, [Syntax])
    /// `CURRENT_USER`, `CURRENT_DATE` and similar keywords, in capitals.
    case keyword(String)
    case cast(Syntax, TypeName)
    case element(Syntax, index: Syntax)
    case choice(operand: Syntax?, [Branch], otherwise: Syntax?)
    case array([Syntax])
    case row([Syntax])
    case arrayOf(Select)
    case exists(Select)
    case scalar(Select)
    /// `value IN (SELECT …)`, and `value op ANY/ALL (SELECT …)` for other operators.
    case among(Syntax, Select)
    case infix(SyntaxName, Syntax, Syntax)
    case prefix(SyntaxName, Syntax)
    case quantified(SyntaxName, Syntax, Quantifier, Syntax)
    case test(Syntax, Test)
    case isDistinct(Syntax, Syntax)
    case collate(Syntax, SyntaxName)
    case atTimeZone(Syntax, Syntax)
    case not(Syntax)
    case all([Syntax])
    case any([Syntax])
    /// Text that is not understood, kept verbatim. Such a text is complete in itself and does not change the meaning of
    /// the rest.
    case opaque(String)

    public enum SpecialForm: String, Sendable, Hashable {
        case coalesce = "COALESCE"
        case nullIf = "NULLIF"
        case greatest = "GREATEST"
        case least = "LEAST"
    }

    public enum Quantifier: String, Sendable, Hashable {
        case any = "ANY"
        case all = "ALL"
    }

    public enum Test: String, Sendable, Hashable {
        case isNull = "IS NULL"
        case isNotNull = "IS NOT NULL"
        case isTrue = "IS TRUE"
        case isNotTrue = "IS NOT TRUE"
        case isFalse = "IS FALSE"
        case isNotFalse = "IS NOT FALSE"
        case isUnknown = "IS UNKNOWN"
        case isNotUnknown = "IS NOT UNKNOWN"
    }

    public struct Branch: Sendable, Hashable {
        public var condition: Syntax
        public var value: Syntax

        public init(condition: Syntax, value: Syntax) {
            self.condition = condition
            self.value = value
        }
    }

    /// A sub-select of the simple form: no join, no grouping, no limit, at most one table.
    public struct Select: Sendable, Hashable {
        public var outputs: [Output]
        public var source: Source?
        public var condition: Syntax?

        public init(outputs: [Output], source: Source? = nil, condition: Syntax? = nil) {
            self.outputs = outputs
            self.source = source
            self.condition = condition
        }
    }

    public struct Output: Sendable, Hashable {
        public var value: Syntax
        public var alias: String?

        public init(value: Syntax, alias: String? = nil) {
            self.value = value
            self.alias = alias
        }
    }

    public struct Source: Sendable, Hashable {
        /// Name of the table, or of a function if there are arguments.
        public var table: SyntaxName
        public var arguments: [Syntax]?
        public var alias: String?
        /// Names that this select gives to the columns of a function.
        public var columns: [String]

        public init(
            table: SyntaxName, arguments: [Syntax]? = nil, alias: String? = nil, columns: [String] = []
        ) {
            self.table = table
            self.arguments = arguments
            self.alias = alias
            self.columns = columns
        }
    }
}

/// Name of a function, operator, collation or table, which may be qualified.
public struct SyntaxName: Sendable, Hashable {
    public var schema: String?
    public var name: String

    public init(_ name: String, in schema: String? = nil) {
        self.name = name
        self.schema = schema
    }

    /// Name with a schema. A bare name is of `pg_catalog`: texts are deparsed with only `pg_catalog` in the search
    /// path.
    public var qualified: QualifiedName { QualifiedName(schema ?? "pg_catalog", name) }
}

/// Type as it is written after `::`.
public struct TypeName: Sendable, Hashable {
    /// Name as `format_type` writes it without a modifier: `timestamp with time zone`, `public."Mood"`.
    public var base: String
    /// Name with its modifier: `timestamp(3) with time zone`.
    public var written: String
    public var isArray: Bool

    public init(_ base: String, written: String? = nil, isArray: Bool = false) {
        self.base = base
        self.written = written ?? base
        self.isArray = isArray
    }

    public var hasModifier: Bool { base != written }

    /// Name of the type, or of its array, as `format_type` writes it without a modifier.
    public var plain: String { isArray ? base + "[]" : base }
}
