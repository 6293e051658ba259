/// The tree of an expression as PostgreSQL deparses it, names as they stand in the text: `.name("lower")` without a schema
/// is of `pg_catalog`.
public indirect enum Syntax: Sendable, Hashable {
    /// A quoted literal: what it says, and the type behind `::`.
    case literal(String, type: TypeName?)
    /// As it is written: digits are an integer, with a point or an exponent it is numeric.
    case number(String)
    case boolean(Bool)
    case null
    /// `column`, `relation.column`, `schema.relation.column`.
    case column(qualifier: [String], name: String)
    /// `$n` of a function's body.
    case parameter(Int)
    case call(SyntaxName, [Syntax])
    case special(SpecialForm, [Syntax])
    /// `CURRENT_USER`, `CURRENT_DATE` and their like, in capitals.
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
    /// Not understood, as it stands; whole in itself, so that what is around it means the same whatever it is.
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
        /// Or a function, where there are arguments.
        public var table: SyntaxName
        public var arguments: [Syntax]?
        public var alias: String?
        /// The names that a function's columns have here.
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

/// A name that may be qualified: of a function, an operator, a collation, a table.
public struct SyntaxName: Sendable, Hashable {
    public var schema: String?
    public var name: String

    public init(_ name: String, in schema: String? = nil) {
        self.name = name
        self.schema = schema
    }

    /// Deparsed with nothing but `pg_catalog` in the search path, a bare name is of `pg_catalog`.
    public var qualified: QualifiedName { QualifiedName(schema ?? "pg_catalog", name) }
}

/// A type as it is written behind `::`.
public struct TypeName: Sendable, Hashable {
    /// As `format_type` writes it without a modifier: `timestamp with time zone`, `public."Mood"`.
    public var base: String
    /// With its modifier: `timestamp(3) with time zone`.
    public var written: String
    public var isArray: Bool

    public init(_ base: String, written: String? = nil, isArray: Bool = false) {
        self.base = base
        self.written = written ?? base
        self.isArray = isArray
    }

    public var hasModifier: Bool { base != written }

    /// As `format_type` writes it without a modifier.
    public var plain: String { isArray ? base + "[]" : base }
}
