/// What a channel asks for.
public struct ChannelRequest: Sendable, Hashable {
    /// Without the protocol's prefix.
    public var topic: String
    public var bindings: [Binding]
    public var isPrivate = false
    /// Nil where nobody wants to know who is there.
    public var presenceKey: String?
    public var hearsItself = false
    /// The server is to tell what rows there are before it tells what changes.
    public var wantsRows = false
    /// Where it goes on; nil to begin now.
    public var position: Position?

    public init(topic: String, bindings: [Binding] = [], position: Position? = nil) {
        self.topic = topic
        self.bindings = bindings
        self.position = position
    }
}

/// One table's changes.
public struct Binding: Sendable, Hashable, Codable {
    public var schema: String
    public var table: String
    public var filter: String?
    /// All columns that may be read where it is nil.
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
    /// The payload of its join. What other servers do not know of it they leave alone.
    func payload(token: String?, position: Position?) -> JSONValue {
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
