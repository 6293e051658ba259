/// Parameters of a channel that the client joins.
struct ChannelRequest: Sendable, Hashable {
    /// Topic without the prefix `realtime:`.
    var topic: String
    var bindings: [TableBinding]
    var isPrivate = false
    /// Key under which the client appears in presence; nil if the channel receives no presence.
    var presenceKey: String?
    /// True if the client also receives the broadcasts that it sends itself.
    var hearsItself = false
    /// True if the client asks the server to send the existing rows before changes.
    var wantsRows = false
    /// Position to resume from; nil to start with changes from now on.
    var position: LogPosition?

    init(topic: String, bindings: [TableBinding] = [], position: LogPosition? = nil) {
        self.topic = topic
        self.bindings = bindings
        self.position = position
    }
}

/// Subscription to the changes of one table.
public struct TableBinding: Sendable, Hashable, Codable {
    /// Schema of the table.
    public var schema: String
    /// Name of the table.
    public var table: String
    /// Condition on the rows, in the server's syntax; nil for all rows. See ``LiveFilter/text``.
    public var filter: String?
    /// Columns to receive; nil means all columns that the user may read.
    public var select: [String]?

    /// Creates a subscription to the changes of one table.
    ///
    /// - Parameters:
    ///   - schema: schema of the table.
    ///   - table: name of the table.
    ///   - filter: condition on the rows, in the server's syntax; nil for all rows.
    ///   - select: columns to receive; nil for all columns that the user may read.
    public init(schema: String = "public", table: String, filter: String? = nil, select: [String]? = nil) {
        self.schema = schema
        self.table = table
        self.filter = filter
        self.select = select
    }

    var json: JSONValue {
        var members: [String: JSONValue] = ["event": "*", "schema": .string(schema), "table": .string(table)]
        if let filter { members["filter"] = .string(filter) }
        if let select { members["select"] = .array(select.map(JSONValue.string)) }
        return .object(members)
    }
}

extension ChannelRequest {
    /// Returns the payload of the join message. Servers other than Tidewire ignore the options that they do not know.
    func payload(token: String?, position: LogPosition?) -> JSONValue {
        var options: [String: JSONValue] = ["position": true, "moves": true, "limits": true]
        if let position { options["resume"] = .string(position.description) }
        if wantsRows { options["snapshot"] = true }
        var payload: [String: JSONValue] = [
            "config": [
                "broadcast": ["ack": true, "self": .bool(hearsItself), "tidewire": .object(options)],
                "presence": ["key": .string(presenceKey ?? ""), "enabled": .bool(presenceKey != nil)],
                "postgres_changes": .array(bindings.map(\.json)),
                "private": .bool(isPrivate),
            ]
        ]
        if let token { payload["access_token"] = .string(token) }
        return .object(payload)
    }
}
