import Foundation

/// A column that filters can use, with the type of its values.
public struct LiveColumn<Value: FilterValue>: Sendable {
    /// Name of the column in the database.
    public let name: String

    /// Creates a column with its name in the database.
    public init(_ name: String) { self.name = name }
}

/// A value that a filter can compare a column with.
public protocol FilterValue: Sendable {
    /// The value as text in the server's syntax.
    var filterText: String { get }
}

extension FilterValue where Self: CustomStringConvertible {
    /// The value's description.
    public var filterText: String { description }
}

extension String: FilterValue {}
extension Int: FilterValue {}
extension Int64: FilterValue {}
extension Int32: FilterValue {}
extension Int16: FilterValue {}
extension Double: FilterValue {}
extension Bool: FilterValue {}
extension Decimal: FilterValue {}
extension PostgresNumeric: FilterValue {}

extension UUID: FilterValue {
    /// The UUID in lower case, as PostgreSQL writes it.
    public var filterText: String { uuidString.lowercased() }
}

extension Date: FilterValue {
    /// The date in PostgreSQL's form, to the microsecond.
    public var filterText: String { PostgresTime.text(self) }
}

extension FilterValue where Self: RawRepresentable, RawValue: FilterValue {
    /// The text of the raw value.
    public var filterText: String { rawValue.filterText }
}

/// A condition on a table's rows. The compiler checks it against the columns of the row type:
///
/// ```swift
/// let open: LiveFilter<Expense> = \.ownerID == me && \.amount > 0
/// ```
///
/// The server compares values by the column's type: it ignores the case of a UUID and the time zone of a timestamp.
public struct LiveFilter<Row: LiveRow>: Sendable, Hashable {
    indirect enum Node: Sendable, Hashable {
        case condition(column: String, operation: String, value: String)
        case and([Node])
        case or([Node])
        case not(Node)
    }

    let node: Node

    init(_ node: Node) { self.node = node }

    /// Creates a condition in the server's syntax, for operations without a Swift operator: `LiveFilter(column: "tags",
    /// operation: "cs", value: "{urgent}")`.
    ///
    /// - Parameters:
    ///   - column: name of the column.
    ///   - operation: operator in the server's syntax, for example `cs` for "contains".
    ///   - value: value in the server's syntax.
    public init(column: String, operation: String, value: String) {
        node = .condition(column: column, operation: operation, value: value)
    }

    /// The filter as the client sends it to the server.
    ///
    /// - Complexity: O(*n*), where *n* is the length of the text.
    public var text: String {
        switch node {
        case .and(let parts): parts.map { LiveFilter($0).text }.joined(separator: ",")
        case .condition(let column, let operation, let value): "\(column)=\(operation).\(value)"
        case .or(let parts): "or=(\(parts.map(Self.nested).joined(separator: ",")))"
        case .not(let part): Self.negated(part, separator: "=")
        }
    }

    private static func nested(_ node: Node) -> String {
        switch node {
        case .condition(let column, let operation, let value): "\(column).\(operation).\(value)"
        case .and(let parts): "and(\(parts.map(nested).joined(separator: ",")))"
        case .or(let parts): "or(\(parts.map(nested).joined(separator: ",")))"
        case .not(let part): negated(part, separator: ".")
        }
    }

    private static func negated(_ node: Node, separator: String) -> String {
        let equals = separator == "=" ? "=" : ""
        switch node {
        case .condition(let column, let operation, let value): return "\(column)\(separator)not.\(operation).\(value)"
        case .and(let parts): return "not.and\(equals)(\(parts.map(nested).joined(separator: ",")))"
        case .or(let parts): return "not.or\(equals)(\(parts.map(nested).joined(separator: ",")))"
        case .not(let part): return separator == "=" ? LiveFilter(part).text : nested(part)
        }
    }

    /// Returns a value for the server's filter syntax: in quotes if it contains characters with a meaning in that
    /// syntax.
    static func quoted(_ value: String) -> String {
        let isPlain = value.utf8.allSatisfy { byte in
            (48...57).contains(byte) || (65...90).contains(byte) || (97...122).contains(byte)
                || [UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."), UInt8(ascii: ":"), UInt8(ascii: "+")]
                    .contains(byte)
        }
        if isPlain, !value.isEmpty, value.lowercased() != "null" { return value }
        return "\"" + value.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"") + "\""
    }

    static func compare<Value>(
        _ column: KeyPath<Row.Columns, LiveColumn<Value>>, _ operation: String, _ value: Value
    ) -> LiveFilter {
        let name = Row.columns[keyPath: column].name
        return LiveFilter(.condition(column: name, operation: operation, value: quoted(value.filterText)))
    }
}

/// Returns a filter for rows whose column equals the value.
public func == <Row: LiveRow, Value>(column: KeyPath<Row.Columns, LiveColumn<Value>>, value: Value) -> LiveFilter<Row> {
    .compare(column, "eq", value)
}

/// Returns a filter for rows whose column differs from the value.
public func != <Row: LiveRow, Value>(column: KeyPath<Row.Columns, LiveColumn<Value>>, value: Value) -> LiveFilter<Row> {
    .compare(column, "neq", value)
}

/// Returns a filter for rows whose column is less than the value.
public func < <Row: LiveRow, Value>(column: KeyPath<Row.Columns, LiveColumn<Value>>, value: Value) -> LiveFilter<Row> {
    .compare(column, "lt", value)
}

/// Returns a filter for rows whose column is at most the value.
public func <= <Row: LiveRow, Value>(column: KeyPath<Row.Columns, LiveColumn<Value>>, value: Value) -> LiveFilter<Row> {
    .compare(column, "lte", value)
}

/// Returns a filter for rows whose column is greater than the value.
public func > <Row: LiveRow, Value>(column: KeyPath<Row.Columns, LiveColumn<Value>>, value: Value) -> LiveFilter<Row> {
    .compare(column, "gt", value)
}

/// Returns a filter for rows whose column is at least the value.
public func >= <Row: LiveRow, Value>(column: KeyPath<Row.Columns, LiveColumn<Value>>, value: Value) -> LiveFilter<Row> {
    .compare(column, "gte", value)
}

extension LiveFilter {
    /// Returns a filter for rows whose column has one of the values, at most 1000.
    public static func among<Value>(_ column: KeyPath<Row.Columns, LiveColumn<Value>>, _ values: [Value]) -> LiveFilter
    {
        let list = values.map { quoted($0.filterText) }.joined(separator: ",")
        return LiveFilter(.condition(column: Row.columns[keyPath: column].name, operation: "in", value: "(\(list))"))
    }

    /// Returns a filter for rows whose time is less than an age ago. Rows leave it as time passes, which the server does
    /// not report: see `leavesAt` of ``LiveQuery``.
    ///
    /// - Parameters:
    ///   - column: column with the time of a row.
    ///   - age: age in whole seconds, at least one.
    public static func newer(_ column: KeyPath<Row.Columns, LiveColumn<Date>>, than age: Duration) -> LiveFilter {
        let seconds = min(max(1, age.components.seconds), 999_999_999)
        return LiveFilter(
            .condition(column: Row.columns[keyPath: column].name, operation: "gt", value: "now-\(seconds)s"))
    }

    /// Returns a filter for rows whose column is NULL.
    public static func isNull<Value>(_ column: KeyPath<Row.Columns, LiveColumn<Value>>) -> LiveFilter {
        LiveFilter(.condition(column: Row.columns[keyPath: column].name, operation: "is", value: "null"))
    }

    /// Returns a filter for rows whose text matches an SQL pattern with `%` and `_`.
    public static func like(_ column: KeyPath<Row.Columns, LiveColumn<String>>, _ pattern: String) -> LiveFilter {
        compare(column, "like", pattern)
    }

    /// Returns a filter for rows that match both filters.
    public static func && (one: LiveFilter, other: LiveFilter) -> LiveFilter {
        let parts = [one.node, other.node].flatMap { node in
            if case .and(let parts) = node { parts } else { [node] }
        }
        return LiveFilter(.and(parts))
    }

    /// Returns a filter for rows that match at least one of the filters.
    public static func || (one: LiveFilter, other: LiveFilter) -> LiveFilter {
        let parts = [one.node, other.node].flatMap { node in
            if case .or(let parts) = node { parts } else { [node] }
        }
        return LiveFilter(.or(parts))
    }

    /// Returns a filter for rows that do not match the filter.
    public static prefix func ! (filter: LiveFilter) -> LiveFilter { LiveFilter(.not(filter.node)) }
}
