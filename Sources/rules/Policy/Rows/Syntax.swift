/// Tree of an expression in the form in which PostgreSQL prints it. Names are as in the text: a name without a schema,
/// such as `lower`, belongs to `pg_catalog`.
public indirect enum Syntax: Sendable, Hashable {
    /// A quoted literal: its value, and the type after `::` if there is one.
    case literal(String, type: TypeName?)
    /// A number as it is written. Digits alone are an integer; with a point or an exponent it is a numeric.
    case number(String)
    case boolean(Bool)
    case null
    /// A column such as `column`, `relation.column` or `schema.relation.column`.
    case column(qualifier: [String], name: String)
    /// Argument `$n` in the body of a function.
    case parameter(Int)
    case call(SyntaxName, [Syntax])
    case special(SpecialForm, [Syntax])
    /// `CURRENT_USER`, `CURRENT_DATE` or a similar keyword, in capitals.
    case keyword(String)
    case cast(Syntax, TypeName)
    case element(Syntax, index: Syntax)
    case choice(operand: Syntax?, [Branch], otherwise: Syntax?)
    case array([Syntax])
    case row([Syntax])
    case arrayOf(Select)
    case exists(Select)
    case scalar(Select)
    /// `value IN (SELECT …)`. PostgreSQL prints it for `value = ANY (SELECT …)` too.
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
    /// A part that the parser does not understand, with its text unchanged. It is complete in itself and does not
    /// affect how the rest is read.
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

    /// Simple sub-select without joins, grouping and limit, from at most one table.
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
        /// Name of the table; name of the function if there are arguments.
        public var table: SyntaxName
        public var arguments: [Syntax]?
        public var alias: String?
        /// Names that the select gives to the columns of a function.
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

/// Name of a function, operator, collation or table, with its schema if it is qualified.
public struct SyntaxName: Sendable, Hashable {
    public var schema: String?
    public var name: String

    public init(_ name: String, in schema: String? = nil) {
        self.name = name
        self.schema = schema
    }

    /// Name with its schema. A name without a schema belongs to `pg_catalog`, because PostgreSQL prints texts while
    /// only `pg_catalog` is in the search path.
    public var qualified: QualifiedName { QualifiedName(schema ?? "pg_catalog", name) }
}

/// Type as it is written after `::`.
public struct TypeName: Sendable, Hashable {
    /// Name as `format_type` writes it without a modifier, such as `timestamp with time zone` or `public."Mood"`.
    public var base: String
    /// Name with its modifier, such as `timestamp(3) with time zone`.
    public var written: String
    public var isArray: Bool

    public init(_ base: String, written: String? = nil, isArray: Bool = false) {
        self.base = base
        self.written = written ?? base
        self.isArray = isArray
    }

    public var hasModifier: Bool { base != written }

    /// Name of the type, or of its array type, as `format_type` writes it without a modifier.
    public var plain: String { isArray ? base + "[]" : base }
}
