/// A change of a row, as the server sent it.
public struct RowChange: Sendable, Hashable {
    /// Kind of a change.
    public enum Kind: String, Sendable, Hashable {
        /// A new row, or one that the query can see from now on.
        case insert = "INSERT"
        /// A row with new values.
        case update = "UPDATE"
        /// A deleted row.
        case delete = "DELETE"
        /// An update moved the row out of the query, or out of what this user may see. The row itself still exists.
        case leaving
    }

    /// Kind of the change.
    public let kind: Kind
    /// Schema of the table.
    public let schema: String
    /// Name of the table.
    public let table: String
    /// Names and types of all columns that the user may read.
    public let columns: [String: String]
    /// Row after the change. A large value that an update did not touch may be absent.
    public var record: [String: JSONValue]
    /// Old row, as far as the server knows it and may send it: often only its key.
    public let oldRecord: [String: JSONValue]
    /// Commit time in the server's form. All changes of one transaction have the same.
    public let commitTimestamp: String
    /// Position behind the change; nil from servers that keep no positions.
    public let position: LogPosition?
    /// Reasons why the change arrived without its row, e.g. `Error 413: Payload Too Large`.
    public let errors: [String]

    /// Columns of the last change. Most changes have the same columns, which are then not converted again.
    struct LastColumns: Sendable {
        private var told: [JSONValue] = []
        private var types: [String: String] = [:]

        mutating func types(_ told: [JSONValue]) -> [String: String] {
            // Columns parsed once are the same value, so the comparison is fast (`SaidBefore`).
            guard told != self.told else { return types }
            let pairs = told.compactMap { column in
                column["name"]?.text.map { ($0, column["type"]?.text ?? "") }
            }
            (self.told, types) = (told, Dictionary(pairs) { _, last in last })
            return types
        }
    }

    init?(_ data: JSONValue, position: LogPosition?, _ last: inout LastColumns) {
        guard let type = data["type"]?.text, let schema = data["schema"]?.text, let table = data["table"]?.text else {
            return nil
        }
        let hasLeft = data["tidewire"]?["moved"]?.text == "out"
        guard let kind = hasLeft ? .leaving : Kind(rawValue: type) else { return nil }
        self.kind = kind
        self.schema = schema
        self.table = table
        self.position = position
        columns = last.types(data["columns"]?.array ?? [])
        record = data["record"]?.object ?? [:]
        oldRecord = data["old_record"]?.object ?? [:]
        commitTimestamp = data["commit_timestamp"]?.text ?? ""
        errors = (data["errors"]?.array ?? []).compactMap(\.text)
    }

    /// Columns that the update did not touch and the server did not send.
    ///
    /// - Complexity: O(*n* log *n*), where *n* is the number of columns.
    public var absentColumns: [String] {
        guard kind == .insert || kind == .update, errors.isEmpty, record.count < columns.count else { return [] }
        return columns.keys.filter { record[$0] == nil }.sorted()
    }
}
