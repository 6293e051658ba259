/// A change of a row, as the server sent it.
public struct RowChange: Sendable, Hashable {
    /// Kind of a change.
    public enum Kind: String, Sendable, Hashable {
        /// A new row, or an existing row that the query can see from now on.
        case insert = "INSERT"
        /// A row with new values.
        case update = "UPDATE"
        /// A deleted row.
        case delete = "DELETE"
        /// An update after which the row no longer matches the query, or is no longer visible to this user. The row
        /// still exists.
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
    /// Row after the change. A large value that an update left unchanged may be missing.
    public var record: [String: JSONValue]
    /// Old row, if the server has it and may send it. Often it contains only the key.
    public let oldRecord: [String: JSONValue]
    /// Commit time as the server sent it. All changes of one transaction have the same text.
    public let commitTimestamp: String
    /// Position after the change; nil from servers without positions.
    public let position: LogPosition?
    /// Reasons why the change arrived without its row, for example `Error 413: Payload Too Large`.
    public let errors: [String]

    /// Columns of the previous change, already converted. If the next change has the same columns, they are reused.
    struct LastColumns: Sendable {
        private var told: [JSONValue] = []
        private var types: [String: String] = [:]

        /// Returns the types of the columns by their names.
        mutating func types(_ told: [JSONValue]) -> [String: String] {
            // If the parser reused the previous columns (`PreviousColumns`), this comparison is fast.
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

    /// Columns that the update left unchanged and the server did not send.
    ///
    /// - Complexity: O(*n* log *n*), where *n* is the number of columns.
    public var absentColumns: [String] {
        guard kind == .insert || kind == .update, errors.isEmpty, record.count < columns.count else { return [] }
        return columns.keys.filter { record[$0] == nil }.sorted()
    }
}
