/// Request for a channel.
public struct ChannelRequest: Sendable, Hashable {
    /// Topic without the protocol's prefix.
    public var topic: String
    public var bindings: [TableBinding]
    public var isPrivate = false
    /// Key under which the client is present; nil to receive no presence.
    public var presenceKey: String?
    public var hearsItself = false
    /// True if the server should send the existing rows before changes.
    public var wantsRows = false
    /// Position to resume from; nil to begin now.
    public var position: LogPosition?

    public init(topic: String, bindings: [TableBinding] = [], position: LogPosition? = nil) {
        self.topic = topic
        self.bindings = bindings
        self.position = position
    }
}

/// Subscription to the changes of one table.
public struct TableBinding: Sendable, Hashable, Codable {
    public var schema: String
    public var table: String
    public var filter: String?
    /// Columns to receive; nil means all columns that the user may read.
    public var select: [String]?

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
    /// Returns the payload of the join. Other servers ignore the options that they do not know.
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
