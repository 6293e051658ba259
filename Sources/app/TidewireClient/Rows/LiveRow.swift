/// A row of a table in the app's own type.
///
/// ```swift
/// struct Expense: LiveRow {
///     static let table = "financial_transactions"
///     let id: UUID
///     let ownerID: UUID          // owner_id
///     let amount: Decimal
///
///     struct Columns: Sendable {
///         let ownerID = LiveColumn<UUID>("owner_id")
///         let amount = LiveColumn<Decimal>("amount")
///     }
///     static let columns = Columns()
/// }
/// ```
public protocol LiveRow: Decodable, Identifiable, Sendable where ID: Sendable & Decodable {
    /// Type with a property for each column that filters use.
    associatedtype Columns: Sendable = Tidewire.NoColumns
    /// Name of the table.
    static var table: String { get }
    /// Schema of the table; `public` by default.
    static var schema: String { get }
    /// Names of the primary key's columns; `id` by default. If there are several, `ID` must be a type that decodes from
    /// them.
    static var key: [String] { get }
    /// Columns that filters can use.
    static var columns: Columns { get }
}

extension Tidewire {
    /// Columns of a row type without filters: there are none. Default of ``LiveRow/Columns``.
    public struct NoColumns: Sendable {}
}

extension LiveRow {
    /// Default schema: `public`.
    public static var schema: String { "public" }
    /// Default primary key: the column `id`.
    public static var key: [String] { ["id"] }
}

extension LiveRow where Columns == Tidewire.NoColumns {
    /// Empty list of columns, for row types without filters.
    public static var columns: Tidewire.NoColumns { Tidewire.NoColumns() }
}

extension LiveRow {
    /// Returns the row's id from an image that may contain only the key columns.
    static func id(of image: RowImage) throws -> ID {
        if key.count == 1 { return try image.decode(ID.self, column: key[0]) }
        return try image.decode(ID.self)
    }

    static func hasKey(_ image: [String: JSONValue]) -> Bool { key.allSatisfy { image[$0] != nil } }
}
