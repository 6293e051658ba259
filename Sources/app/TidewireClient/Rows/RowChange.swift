/// What happened to a row, as the server told it.
public struct RowChange: Sendable, Hashable {
    public enum Kind: String, Sendable, Hashable {
        case insert = "INSERT"
        case update = "UPDATE"
        case delete = "DELETE"
        /// An update took it out of what the query sees, or of what this person may see. The row itself is still there.
        case leaving
    }

    public let kind: Kind
    public let schema: String
    public let table: String
    /// The names of all columns that may be read, and of their types.
    public let columns: [String: String]
    /// The row as it is now. A large value that an update left alone may be absent.
    public var record: [String: JSONValue]
    /// As it was, as far as the server knows and may tell: often its key alone.
    public let oldRecord: [String: JSONValue]
    /// As the server writes it. Changes of one transaction have the same.
    public let commitTimestamp: String
    /// Behind it; nil from servers that keep no positions.
    public let position: Position?
    /// Why it came without its row, e.g. `Error 413: Payload Too Large`.
    public let errors: [String]

    /// The names that the last change had: of one table they are the same, and not gathered anew.
    struct LastColumns: Sendable {
        private var told: [JSONValue] = []
        private var types: [String: String] = [:]

        mutating func types(_ told: [JSONValue]) -> [String: String] {
            // Those that were read once are one value, which is seen at once (`SaidBefore`).
            guard told != self.told else { return types }
            let pairs = told.compactMap { column in
                column["name"]?.text.map { ($0, column["type"]?.text ?? "") }
            }
            (self.told, types) = (told, Dictionary(pairs) { _, last in last })
            return types
        }
    }

    init?(_ data: JSONValue, position: Position?, _ last: inout LastColumns) {
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

    /// Columns that the update left alone and the server did not send.
    public var absentColumns: [String] {
        guard kind == .insert || kind == .update, errors.isEmpty, record.count < columns.count else { return [] }
        return columns.keys.filter { record[$0] == nil }.sorted()
    }
}
